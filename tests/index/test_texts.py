"""What of a log can be searched, and what a query asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rawlog import RawLog, result, use

from awl.index.rows import Taken
from awl.index.texts import LONGEST_WORD, Doc, Docs, excerpt, needles, words
from awl.log.scan import scan


def docs(log: RawLog, tmp_path: Path, mark: Taken | None = None) -> tuple[list[Doc], Taken]:
    path = log.write(tmp_path)
    made = Docs(mark or Taken())
    found: list[Doc] = []
    with path.open("rb") as file:
        for line in scan(file.fileno(), start=mark.start if mark else 0):
            found += made.take(line)
    rest, after = made.finish(path.stat().st_size)
    return found + rest, after


def said(log: RawLog, tmp_path: Path) -> list[tuple[int, str, str]]:
    return [(doc.seq, doc.role, doc.text) for doc in docs(log, tmp_path)[0]]


def test_every_kind_of_words_is_a_doc(tmp_path: Path) -> None:
    log = RawLog()
    log.system("be brief")
    log.prompt("Fix it")
    thought = {"type": "thinking", "thinking": "hm"}
    log.answer(thought, "I run", use("t1", '{"command":"ls\\n\\u00e4"}'), stop="toolUse")
    log.started("t1")
    log.results(result("t1", "a file"))
    log.add("title", title="Named")
    log.add("label", targetId="e1", label="here")
    log.condensed(1, 2, "the gist")
    found = said(log, tmp_path)
    assert [(seq, role) for seq, role, _ in found] == [
        (1, "system"),
        (2, "user"),
        (3, "assistant"),
        (5, "tool"),
        (6, "title"),
        (7, "label"),
        (8, "summary"),
    ]
    assert found[2][2] == 'hm\nI run\nbash {"command":"ls\\n\\u00e4"}\nls\nä'
    assert found[3][2] == "a file"
    assert "the gist" in found[-1][2]


def test_what_streamed_is_a_doc_until_the_answer_says_it(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("Go")
    log.partial("Hel")
    log.partial("lo")
    found, mark = docs(log, tmp_path)
    assert [(doc.seq, doc.text) for doc in found] == [(1, "Go"), (2, "Hello")]
    assert (mark.from_doc, mark.next_doc) == (1, 1)
    log.answer("Hello there")
    assert [(doc.seq, doc.text) for doc in docs(log, tmp_path, mark)[0]] == [(4, "Hello there")]
    assert said(log, tmp_path) == [(1, "user", "Go"), (4, "assistant", "Hello there")]


def test_what_streamed_before_a_kill_stays_a_doc(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("Go")
    log.partial("Hello")
    log.prompt("Again")
    assert [text for _, _, text in said(log, tmp_path)] == ["Go", "Hello", "Again"]


def test_a_result_is_a_doc_until_the_batch_is_complete(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("Go")
    log.calls("t1", "t2")
    log.ended("t1", "first output")
    assert (3, "tool", "first output") in said(log, tmp_path)
    log.results(result("t1", "first output"), result("t2", "second"))
    texts = [text for _, _, text in said(log, tmp_path)]
    assert texts[2:] == ["first output\nsecond"]


def test_damage_and_foreign_entries_cost_nothing_else(tmp_path: Path) -> None:
    log = RawLog(stamped=False)
    log.prompt("one")
    log.bad()
    log.add("sound", name="x")
    log.answer("two")
    assert said(log, tmp_path) == [(1, "user", "one"), (3, "assistant", "two")]


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("parser", "The PARSER works", True),
        ("arse", "The parser", True),
        ("fix parser", "parser: a fix", True),
        ('"fix parser"', "parser: a fix", False),
        ('"fix parser"', "do fix  parser", False),
        ('"fix parser" now', "now fix parser", True),
        ("strasse", "Straße", True),
        ("下午", "明天下午三点", True),
        ("youer", "修改youer服务端", True),
        ("改you", "修改youer服务端", True),
        ('5" pipe', 'a 5" pipe', True),
        ('"', 'a " b', True),
        ("%", "100 %", True),
        ("_", "a_b", True),
        ("i̇stanbul", "İstanbul", True),
        ("ꮳꮃꭹ", "ᏣᎳᎩ", True),
        ("ᏣᎳᎩ", "ꮳꮃꭹ", True),
        ("x", "abc", False),
    ],
)
def test_a_query_finds_its_words_anywhere_and_quotes_whole(
    query: str, text: str, found: bool
) -> None:
    assert (excerpt(text, needles(query)) is not None) is found


@given(st.text(max_size=30), st.text(max_size=5), st.text(max_size=30))
def test_a_needle_that_occurs_has_a_word_that_holds_its_piece(
    before: str, part: str, behind: str
) -> None:
    """The index is allowed to look only where such a word is."""
    for needle in needles(part):
        text = f"{before}{part}{behind}"
        if excerpt(text, (needle,)) is not None and needle.piece:
            assert any(needle.piece in word for word in words(text))


def test_words_that_are_too_long_are_all_one() -> None:
    long = "x" * (LONGEST_WORD + 1)
    assert words(f"a {long} b") == {"a", "", "b"}
    assert needles(long)[0].piece == ""


def test_a_query_of_nothing_asks_for_nothing() -> None:
    assert needles("  \n ") == ()


def test_a_snippet_is_one_line_around_the_hit() -> None:
    text = "word " * 50 + "the Needle\n\nhere" + " word" * 50
    made = excerpt(text, needles("needle"))
    assert made is not None
    assert "the «Needle» here word" in made
    assert made.startswith("…")
    assert made.endswith("…")
    assert len(made) < 130
    assert excerpt("Needle", needles("needle")) == "«Needle»"
    assert excerpt("Straße", needles("strasse")) == "«Straße»"
    assert excerpt("In der Straße da", needles("assed")) is None
    assert excerpt("In der Straße da", needles("sse")) == "In der Stra«ße» da"
    assert excerpt("ßßx İstanbul, ja", needles("stanbul")) == "ßßx İ«stanbul», ja"
