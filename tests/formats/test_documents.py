"""Files that are one JSON value, cut out piece by piece."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON
from hypothesis import given
from hypothesis import strategies as st

from awl.formats import documents
from awl.formats.documents import Document
from awl.formats.format import Report

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value crosses the edge of a piece."""
    monkeypatch.setattr(documents, "_PIECE", 3)


def read(path: Path, array: str | None) -> tuple[list[bytes], dict[str, bytes], Report]:
    report = Report()
    document = Document(path, array)
    return list(document.elements(report)), document.members, report


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8", "surrogatepass")
    return path


@given(
    st.lists(VALUES, max_size=5),
    st.dictionaries(st.text(), VALUES, max_size=3),
    st.booleans(),
    st.sampled_from((None, 2)),
)
def test_pieces_are_what_a_parser_sees(
    tmp_path_factory: pytest.TempPathFactory,
    elements: list[Any],
    members: JSON,
    ascii: bool,
    indent: int | None,
) -> None:
    members.pop("messages", None)
    path = tmp_path_factory.getbasetemp() / "document.json"
    both = [{**members, "messages": elements}, {"messages": elements, **members}]
    for whole in (*both, elements):
        text = json.dumps(whole, ensure_ascii=ascii, indent=indent)
        array = "messages" if isinstance(whole, dict) else None
        write(path, text)
        for at_once in (0, 1 << 20):
            documents._AT_ONCE = at_once  # type: ignore[misc]
            found, others, report = read(path, array)
            assert list(map(json.loads, found)) == elements
            if array:
                assert {name: json.loads(value) for name, value in others.items()} == members
            assert not report.damaged
    documents._AT_ONCE = 32 << 20  # type: ignore[misc]


def test_cut_at_every_byte_what_is_whole_counts(tmp_path: Path) -> None:
    elements = [{"a": 'b"\\'}, "c\\", [1, {"d": None}], 17, {"é": "}]"}]
    text = json.dumps({"info": {"x": 1}, "messages": elements}, ensure_ascii=False).encode()
    ends = [
        text.index(json.dumps(one, ensure_ascii=False).encode())
        + len(json.dumps(one, ensure_ascii=False).encode())
        for one in elements
    ]
    for cut in range(len(text)):
        path = tmp_path / "cut.json"
        path.write_bytes(text[:cut])
        found, _, report = read(path, "messages")
        # A number at the very end may go on.
        whole = sum(end <= cut - (number == 3) for number, end in enumerate(ends))
        assert [json.loads(one) for one in found] == elements[:whole], text[:cut]
        assert report.damaged == 1


@pytest.mark.parametrize("text", ["", "  ", "garbage", "{", "[1", "\0\0\0\0", "{}x", '{"a"', '"'])
def test_what_is_no_document_is_reported(tmp_path: Path, text: str) -> None:
    found, _, report = read(write(tmp_path / "bad.json", text), "messages")
    assert found == []
    assert report.damaged == 1
    found, _, report = read(write(tmp_path / "bad.json", text), None)
    assert report.damaged == 1


def test_garbage_behind_good_elements_costs_what_follows(tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    path.write_bytes(b'[{"a": 1}, {"b": 2}, \x00\xff }')
    found, _, report = read(path, None)
    assert found[:2] == [b'{"a": 1}', b'{"b": 2}']
    assert report.damaged == 1


@pytest.mark.parametrize("behind", ["\0\0\0", '{"messages": []}', "[[[", "x"])
@pytest.mark.parametrize("array", ["messages", None])
def test_what_comes_behind_a_whole_document_is_reported(
    tmp_path: Path, array: str | None, behind: str
) -> None:
    path = tmp_path / "s.json"
    text = '{"messages": [1, 2], "b": 3}' if array else "[1, 2]"
    path.write_text(text + " \n" + behind)
    report = Report()
    assert list(Document(path, array).elements(report)) == [b"1", b"2"]
    assert [(one.start, one.reason) for one in report.damage] == [
        (len(text) + 2, "the document ended before this")
    ]


def test_what_is_left_out_is_counted_in_words_that_fit_its_number() -> None:
    report = Report()
    phrases = (
        "copies of requests",
        "entries that were gone back from",
        "pictures that are missing",
        "reasoning",
        "uncut outputs of tools",
    )
    for phrase in phrases:
        report.left_out[phrase] = 1
    assert report.lines(Path("x")) == [
        "x: left out: 1 copy of requests, 1 entry that was gone back from, "
        "1 picture that is missing, 1 reasoning, 1 uncut output of tools"
    ]
    for phrase in phrases:
        report.left_out[phrase] = 2
    assert report.lines(Path("x")) == [
        "x: left out: " + ", ".join(f"2 {phrase}" for phrase in phrases)
    ]
