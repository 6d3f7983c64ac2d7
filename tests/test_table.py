"""What is kept of every entry: compact, and as good as a plain list."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awl.conversation import Text
from awl.entries import LoggedMessage, MessageEntry
from awl.log.line import Outer, decode_outer, encode
from awl.log.scan import Line
from awl.table import ROOT, WHOLE, Ids, Place, Places, Ramp, Shape, Table

ANY_ID = st.one_of(
    st.sampled_from(["00000000", "0000000A", "é", "12345", " 1234567", "12 34 56", "1234567 "]),
    st.integers(0, 5).map(lambda n: f"{n:08x}"),
    st.integers(0, 2**32 - 1).map(lambda n: f"{n:08x}"),
)


# -- numbers -------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-3, 30), st.integers(1, 4)), max_size=12))
def test_a_ramp_is_a_list_of_numbers(parts: list[tuple[int, int]]) -> None:
    ramp, plain = Ramp(), list[int]()
    for value, count in parts:
        if count == 1:
            ramp.append(value)
        else:
            ramp.extend(value, count)
        plain += range(value, value + count)
    assert ramp == plain and list(ramp) == plain and len(ramp) == len(plain)
    assert [ramp[at] for at in range(-len(plain), len(plain))] == plain + plain
    assert ramp[1:-1] == plain[1:-1] and ramp[::-2] == plain[::-2]
    for first in range(len(plain)):
        for stop in range(first, len(plain) + 1):
            found = [
                value + at - begin
                for begin, end, value in ramp.ramps(first, stop)
                for at in range(begin, end)
            ]
            assert found == plain[first:stop]


def test_a_ramp_of_a_million_is_as_small_as_its_steps() -> None:
    ramp = Ramp()
    for value in (1, 2_000_000, 5):
        ramp.extend(value, 1_000_000)
    assert list(ramp.ramps(0, 3_000_000)) == [
        (0, 1_000_000, 1),
        (1_000_000, 2_000_000, 2_000_000),
        (2_000_000, 3_000_000, 5),
    ]


def test_a_place_that_there_is_not_is_an_error() -> None:
    ramp = Ramp()
    ramp.extend(7, 3)
    for at in (3, -4):
        with pytest.raises(IndexError):
            ramp[at]


# -- ids -----------------------------------------------------------------------------------------


@given(st.lists(st.lists(ANY_ID, max_size=4), max_size=6), ANY_ID, st.booleans())
def test_ids_are_found_where_they_stand_last(
    parts: list[list[str]], other: str, often: bool
) -> None:
    ids, plain = Ids(), list[str]()
    for part in parts:
        ids.extend(part)
        plain += part
        if often:
            ids._looked_through = 1 << 40  # somebody has asked very often
        for one in (*part, other):
            last = max((at for at, found in enumerate(plain) if found == one), default=None)
            assert ids.find(one) == last
    assert list(ids) == plain and len(ids) == len(plain)
    assert [ids[at] for at in range(-len(plain), 0)] == plain


def test_an_id_is_found_between_others_whose_bytes_hold_it() -> None:
    ids = Ids()
    ids.extend(["aabbccdd", "eeff0011", "00aabbcc", "dd000000"])
    assert ids.find("ccddeeff") is None
    assert ids.find("aabbccdd") == 0


def test_new_ids_are_none_that_there_are_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = Ids()
    ids.extend(["ab000001", "cd000002", "ab000003"])
    first = itertools.chain([b"\xab"], (bytes((0, 0, n)) for n in (1, 3, 2, 2, 4)))
    drawn = itertools.chain(first, (bytes((1, n >> 8, n & 255)) for n in itertools.count()))
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn))
    new = ids.new()
    ids_drawn = [one for _ in range(20) for one in new.draw()]
    assert len(set(ids_drawn)) == len(ids_drawn) >= 1000
    assert {"ab000002", "ab000004"} <= set(ids_drawn)
    assert not {"ab000001", "ab000003"} & set(ids_drawn)


# -- places --------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.booleans(), st.booleans())
    )
)
def test_places_are_known_however_lines_came(
    parts: list[tuple[list[int], bool, bool]],
) -> None:
    data, places, plain, line = b"", Places(read_of(lambda: data)), list[Place](), 0
    for sizes, bulk, gap in parts:
        if gap:  # a line that is no entry
            data, line = data + b"??\n", line + 1
        start, first = len(data), line + 1
        for size in sizes:
            line += 1
            plain.append(Place(line, len(data), len(data) + size))
            data += b"x" * size + b"\n"
            if not bulk:
                places.append(*plain[-1])
        if bulk:
            places.extend(first, len(sizes), start, len(data))
    assert [places[at] for at in range(len(plain))] == plain
    assert [places.line(at) for at in range(len(plain))] == [place.line for place in plain]
    for first in range(len(plain)):
        assert list(places.of(first, len(plain))) == plain[first:]


def test_the_place_of_a_line_among_many_is_looked_for_among_few() -> None:
    places = Places(read_of(lambda: b""))
    for at in range(5000):
        places.append(at + 2, 10 * at, 10 * at + 9)
    assert places[4321] == Place(4323, 43_210, 43_219)
    assert len(places._stretches) > 5


def read_of(data: Callable[[], bytes]) -> Table:
    return Table(lambda start, end: data()[start:end])


# -- entries -------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 8), max_size=25))
def test_the_way_to_an_entry_leads_over_its_parents(back: list[int]) -> None:
    table = read_of(lambda: b"")
    for position, steps in enumerate(back):
        table.parents.append(max(ROOT, position - 1 - steps // 2 * 2))
    for position in range(ROOT, len(back)):
        plain, at = list[int](), position
        while at != ROOT:
            plain.append(at)
            at = table.parents[at]
        runs = table.runs_to(position)
        assert [at for first, stop in runs for at in range(first, stop)] == plain[::-1]
        assert all(stop < first for (_, stop), (first, _) in pairwise(runs))


def test_bodies_are_read_when_they_are_needed_and_then_kept() -> None:
    table, reads = on_disk(("one", "two", "three"))
    assert isinstance(table[1], Outer) and table.codes[1] != WHOLE
    assert text_of(table.body(1)) == "two" and table.codes[1] != WHOLE
    del reads[:]
    assert [text_of(entry) for entry in table.whole(0, 3)] == ["one", "two", "three"]
    assert len(reads) == 1
    assert [text_of(entry) for entry in table.whole(1, 3)] == ["two", "three"]
    assert len(reads) == 1 and table.codes == bytes(3)


def test_bodies_that_lie_far_apart_are_read_apart() -> None:
    table, reads = on_disk(("x", "y" * 300_000, "z"))
    assert [len(text_of(entry)) for entry in table.whole(0, 3)] == [1, 300_000, 1]
    assert max(end - start for start, end in reads) < 301_000


def test_there_can_be_more_kinds_of_entries_than_a_byte_tells() -> None:
    models = [f"m{n}" for n in range(400)]
    table, _ = on_disk(["x"] * len(models), models)
    shapes = [table.shape(at) for at in range(len(models))]
    assert shapes == [Shape("message", "user", "p", model) for model in models]
    assert 0 < table.codes.count(WHOLE) < 400


def on_disk(
    texts: tuple[str, ...] | list[str], models: list[str] | None = None
) -> tuple[Table, list[tuple[int, int]]]:
    """Messages whose bodies are on disk, and what is read of it."""
    data = b""
    reads: list[tuple[int, int]] = []

    def read(start: int, end: int) -> bytes:
        reads.append((start, end))
        return data[start:end]

    table = Table(read)
    for at, words in enumerate(texts):
        logged = LoggedMessage(role="user", content=(Text(text=words),))
        model = models[at] if models else "m"
        message = MessageEntry(id=f"{at:08x}", provider="p", model=model, message=logged)
        start, data = len(data), data + encode(message)
        line = Line(decode_outer(encode(message)), at + 1, start, len(data) - 1)
        assert isinstance(line.entry, Outer)
        table.append(line.entry, at + 1, at - 1, line.line, line.start, line.end)
    return table, reads


def text_of(entry: object) -> str:
    assert isinstance(entry, MessageEntry)
    return entry.message.said().text
