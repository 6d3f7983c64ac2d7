from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import awl.log.scan as scanning
from awl.entries import Entry, Header, MessageEntry, TitleEntry, UnknownEntry
from awl.log.line import BadLine, Outer, decode, decode_outer, encode
from awl.log.scan import Damage, Line, scan

from .making import ENTRIES, HEADER, a_log, message, stamped
from .test_line import any_line, good_lines


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def scanned(
    path: Path, *, outer: bool = False, start: int = 0, line: int = 1
) -> list[Line | Damage]:
    with opened(path) as fd:
        return list(scan(fd, outer=outer, start=start, line=line))


def entries_in(found: list[Line | Damage]) -> list[Header | Entry | Outer]:
    return [item.entry for item in found if isinstance(item, Line)]


def damage_in(found: list[Line | Damage]) -> list[Damage]:
    return [item for item in found if isinstance(item, Damage)]


def test_every_line_comes_in_order_with_its_number_and_bytes(tmp_path: Path) -> None:
    path = a_log(tmp_path, *ENTRIES)
    data = path.read_bytes()
    found = scanned(path)
    assert entries_in(found) == ENTRIES
    assert [item.line for item in found] == list(range(1, len(ENTRIES) + 1))
    for item, entry in zip(found, ENTRIES, strict=True):
        assert data[item.start : item.end] + b"\n" == encode(entry)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"garbage", "not a complete JSON object"),
        (b"\x00" * 300, "zero bytes"),
        (encode(message(2))[:-9], "not a complete JSON object"),
        (encode(message(2))[:-1] * 2, "not a complete JSON object"),
        (encode(message(2))[:-1] + b"\x00\x00", "not a complete JSON object"),
        (b"[]", "not a JSON object"),
        (b"{}", "an object without a type or an id: not an entry"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[" * 50_000, "nested too deeply"),
    ],
    ids=lambda value: repr(value[:24]),
)
@pytest.mark.parametrize("outer", [False, True])
def test_a_bad_line_in_the_middle_costs_itself_and_is_named_exactly(
    tmp_path: Path, bad: bytes, reason: str, outer: bool
) -> None:
    first, third = encode(HEADER), encode(message(3))
    path = a_log(tmp_path, first, bad + b"\n", third)
    good, damage, after = scanned(path, outer=outer)
    assert isinstance(good, Line) and good.entry == HEADER
    assert damage == Damage(2, len(first), len(first) + len(bad), reason, True)
    assert str(damage) == f"line 2 (bytes {len(first)}-{len(first) + len(bad)}): {reason}"
    assert isinstance(after, Line)
    assert (after.line, after.start) == (3, len(first) + len(bad) + 1)


def test_blank_lines_count_as_lines_and_are_no_damage(tmp_path: Path) -> None:
    path = a_log(tmp_path, HEADER, b"\n  \n\r\n\t\n", message(1), b"\n")
    header, entry = scanned(path)
    assert isinstance(header, Line) and isinstance(entry, Line)
    assert (header.line, entry.line, entry.entry) == (1, 6, message(1))


def test_lines_that_end_as_on_windows_are_read(tmp_path: Path) -> None:
    lines = [encode(entry)[:-1] + b"\r\n" for entry in (HEADER, message(1))]
    found = scanned(a_log(tmp_path, *lines))
    assert entries_in(found) == [HEADER, message(1)]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    path = a_log(tmp_path, b"\xef\xbb\xbf", message(1), message(2))
    first, second = scanned(path, outer=True)
    assert isinstance(first, Line) and isinstance(first.entry, Outer)
    assert (first.start, second.line) == (3, 2)
    with opened(path) as fd:
        assert decode(os.pread(fd, first.end - first.start, first.start)) == message(1)


def test_a_byte_order_mark_further_on_is_damage(tmp_path: Path) -> None:
    found = scanned(a_log(tmp_path, HEADER, b"\xef\xbb\xbf", message(1), message(2)))
    assert [damage.line for damage in damage_in(found)] == [2]
    assert entries_in(found) == [HEADER, message(2)]


def test_a_last_line_without_newline_is_read_if_whole_and_was_never_acknowledged_if_not(
    tmp_path: Path,
) -> None:
    whole = scanned(a_log(tmp_path, HEADER, encode(message(1))[:-1]))
    assert entries_in(whole) == [HEADER, message(1)]
    torn = encode(message(1))[:-5]
    _, damage = scanned(a_log(tmp_path, HEADER, torn))
    at = len(encode(HEADER))
    assert damage == Damage(2, at, at + len(torn), "not a complete JSON object", False)


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert scanned(a_log(tmp_path)) == []


def test_a_scan_can_start_at_any_line_and_leaves_the_descriptor_where_it_was(
    tmp_path: Path,
) -> None:
    path = a_log(tmp_path, *ENTRIES)
    at = len(encode(ENTRIES[0])) + len(encode(ENTRIES[1]))
    with opened(path) as fd:
        os.lseek(fd, 5, os.SEEK_SET)
        found = list(scan(fd, start=at, line=3))
        assert os.lseek(fd, 0, os.SEEK_CUR) == 5
    assert entries_in(found) == ENTRIES[2:]
    assert (found[0].line, found[0].start) == (3, at)


@pytest.mark.parametrize("block", [1, 2, 7, 64, 300, 1000])
@pytest.mark.parametrize("outer", [False, True])
def test_where_the_blocks_end_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, outer: bool
) -> None:
    path = a_log(
        tmp_path,
        *ENTRIES[:3],
        b"garbage\n\n",
        message(4, "long " * 200),
        b"\x00" * 700 + b"\n",
        *ENTRIES[4:],
        encode(message(9))[:-3],
    )
    whole = scanned(path, outer=outer)
    assert len(damage_in(whole)) == 3
    monkeypatch.setattr(scanning, "CHUNK", block)
    monkeypatch.setattr(scanning, "_FIRST", block)
    assert scanned(path, outer=outer) == whole


any_buffer = st.lists(any_line, max_size=6).map(lambda lines: b"".join(x + b"\n" for x in lines))


@given(any_buffer, st.sampled_from([b"", b"frag", b'{"type":"title","id":"t","title":"x"}']))
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_nothing_is_read_twice_or_passed_over(tmp_path: Path, buffer: bytes, tail: bytes) -> None:
    path = a_log(tmp_path, buffer, tail)
    data = path.read_bytes()
    for outer in (False, True):
        found = scanned(path, outer=outer)
        lines = data.split(b"\n")
        numbers = [item.line for item in found]
        assert numbers == [n for n, text in enumerate(lines, 1) if text.strip()]
        for item in found:
            text = lines[item.line - 1]
            assert data[item.start : item.end] in (text, text[3:])
            ended = item.line < len(lines)
            assert isinstance(item, Line) or item.acknowledged == ended


@given(st.lists(st.sampled_from([b"", b"{A}", b"{A}{B}", b"{A} {B}", b"{A}\n{", b"x"]), max_size=9))
@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_glued_and_blank_lines_never_make_up_for_each_other(
    tmp_path: Path, shapes: list[bytes]
) -> None:
    one = encode(message(1))[:-1]
    other = b'{"type":"partial","id":"b","content":[]}'
    data = b"".join(shape + b"\n" for shape in shapes).replace(b"{A}", one).replace(b"{B}", other)
    for outer, read in ((False, decode), (True, decode_outer)):
        found = scanned(a_log(tmp_path, data), outer=outer)
        for item, line in zip(found, filter(None, data.split(b"\n")), strict=True):
            if isinstance(item, Line):
                assert item.entry == read(line)
            else:
                with pytest.raises(BadLine):
                    read(line)


@given(st.lists(good_lines, min_size=2, max_size=6), st.randoms(use_true_random=False))
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_one_flipped_line_leaves_all_others_as_they_were(
    tmp_path: Path, lines: list[bytes], rng: random.Random
) -> None:
    hit = rng.randrange(len(lines))
    broken = [*lines]
    broken[hit] = rng.choice([b"\x00" * len(lines[hit]), lines[hit][: len(lines[hit]) // 2]])
    before = scanned(a_log(tmp_path, *(line + b"\n" for line in lines)))
    after = scanned(a_log(tmp_path, *(line + b"\n" for line in broken)))
    assert repr(entries_in(after)) == repr(entries_in(before[:hit] + before[hit + 1 :]))
    assert [damage.line for damage in damage_in(after)] == [hit + 1]


def test_outer_leaves_only_bulky_bodies_on_disk(tmp_path: Path) -> None:
    title = TitleEntry(**stamped(2), title="x")
    unknown = b'{"type":"new","id":"n","seq":3}\n'
    found = entries_in(scanned(a_log(tmp_path, HEADER, message(1), title, unknown), outer=True))
    assert [type(entry) for entry in found] == [Header, Outer, TitleEntry, UnknownEntry]


def test_memory_is_bounded_by_the_block_and_the_longest_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "CHUNK", 1 << 16)
    line = encode(message(1, "x" * 10_000))
    path = a_log(tmp_path, HEADER, line * 2_000)  # 20 MB
    with opened(path) as fd:
        tracemalloc.start()
        count = sum(1 for _ in scan(fd))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 2_001
    assert peak < 1_000_000


def test_a_line_longer_than_many_blocks_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "CHUNK", 1 << 12)
    long = message(1, "x" * 3_000_000)
    found = entries_in(scanned(a_log(tmp_path, HEADER, long, message(2))))
    assert found == [HEADER, long, message(2)]
    assert isinstance(found[1], MessageEntry)
