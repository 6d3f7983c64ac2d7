"""Lines of another program's file are read many at a time, and come as if one by one."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from awl.formats import records
from awl.formats.format import Report
from awl.formats.records import Lines, Records, time_of, times_of
from awl.log.names import written


class Record(msgspec.Struct):
    n: int = 0


LINES = [
    b'{"n": 1}\n',
    b"\n",
    b'{"n": 2, "text": "%s"}\n' % (b"long" * 30),
    b"damaged\n",
    b'{"n": "odd"}\n',
    b'{"n": 3, "text": "\xe2\x9c\x93"}\n',
    b'{"n": 4, "text": "\xff"}\n',
    b'{"n": 5}',
]


def read(path: Path, wanted: bytearray | None = None) -> tuple[list[tuple[int, int]], Report]:
    """Where each record starts and its number, and what was damaged."""
    report = Report()
    blocks = Records(Lines(path, report), Record, wanted=wanted).blocks()
    found = [
        (start, record.n if record else -1)
        for starts, _, found in blocks
        for start, record in zip(starts, found, strict=True)
    ]
    return found, report


@pytest.mark.parametrize("size", range(1, 80))
def test_wherever_a_block_ends_the_same_records_come_from_the_same_places(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BLOCK", size)
    path = tmp_path / "lines"
    path.write_bytes(b"".join(LINES))
    starts = [sum(map(len, LINES[:number])) for number in range(len(LINES))]
    found, report = read(path)
    assert found == [(starts[0], 1), (starts[2], 2), (starts[4], 0), (starts[5], 3), (starts[7], 5)]
    assert [(one.line, one.start) for one in report.damage] == [(4, starts[3]), (7, starts[6])]


@pytest.mark.parametrize("size", [1, 20, 1000])
def test_a_line_that_is_too_long_costs_itself(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BLOCK", size)
    monkeypatch.setattr(records, "LONGEST", 2000)
    path = tmp_path / "lines"
    path.write_bytes(b'{"n": 1}\n{"a": "%s"}\n{"n": 2}\n' % (b"x" * 5000))
    found, report = read(path)
    assert [n for _, n in found] == [1, 2]
    assert [(one.line, one.start, one.end) for one in report.damage] == [(2, 9, 5019)]


@pytest.mark.parametrize("size", [1, 20, 1000])
def test_lines_that_are_not_wanted_are_passed_over(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BLOCK", size)
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(6)) + b"damaged\n")
    found, report = read(path, bytearray([1, 0, 0, 1]))
    assert [n for _, n in found] == [0, 3, 4, 5]
    assert [one.line for one in report.damage] == [7]


def test_times_that_are_numbers_are_written_as_all_times_are() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        seconds = chance.choice([chance.uniform(-6e10, 2e11), chance.uniform(0, 2e9)])
        if abs(seconds) <= 1e11:
            assert time_of(seconds) == written(datetime.fromtimestamp(seconds, UTC))
        millis = chance.randrange(10**11 + 1, 4 * 10**12)
        assert time_of(millis) == written(datetime.fromtimestamp(millis / 1000, UTC))


def test_times_that_come_together_are_those_of_each() -> None:
    sound = "2026-11-29T20:15:56.137Z"
    odd = [
        "",
        "2026-11-29T20:15:56Z",
        "2026-11-29T20:15:56.137+02:00",
        f"{sound}\n{sound}",
        sound + "\n",
        sound[:10],
        sound[10:],
        sound.replace("9", "\u0669"),
        "a time",
        None,
        1795983174781,
        1795983174.781,
        True,
    ]
    assert times_of([sound] * 3) == [sound] * 3
    assert times_of([]) == []
    for first in (sound, *odd):
        for second in odd:
            given = [sound, first, second, sound]
            assert times_of(given) == [time_of(one) for one in given]
