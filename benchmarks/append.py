"""A durable append, beside write and fdatasync of the same bytes, in sessions of any size."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from awl.conversation import Text
from awl.entries import LoggedMessage, MessageEntry
from awl.log.line import encode
from awl.session import Session
from benchmarks.corpus import TIME, folder, write_log
from benchmarks.figures import Curve, Figure, Found, amount, beside, in_turns, medians, over

SLOW_SYNC = 100e-6
"""Seconds from which a sync is what an append takes."""
FLOOR = "write + fdatasync of the same bytes"


def measure(quick: bool) -> Found:
    sizes = (100, 1_000, 10_000) if quick else (100, 1_000, 10_000, 100_000)
    points: dict[str, list[tuple[int, float]]] = {"awl": [], "floor": []}
    figures = []
    for size in sizes:
        with folder() as root:
            bytes_, taken = _appended(root, size, 300 if quick else 2_000 if size == 1000 else 500)
        for name, seconds in taken.items():
            points[name].append((size, seconds))
        if size == 1_000:
            figures.append(_figure(bytes_, taken["floor"], taken["awl"]))
    return Found(figures, [Curve("append", "entries in the session", "an append", points)])


def _figure(size: int, base: float, ours: float) -> Figure:
    what = f"durable append of {size} bytes"
    if base < SLOW_SYNC:
        return over(what, ours, FLOOR, base, 20e-6)
    value = base / ours
    shown = f"{beside(value, 0.85)} of its rate (+{amount(ours - base, 's')})"
    met = value >= 0.85
    return Figure(what, ours, value, shown, floor=FLOOR, base=base, bar="≥ 0.85 of it", met=met)


def _appended(root: Path, size: int, times: int) -> tuple[int, dict[str, float]]:
    session = Session.open(write_log(root, size))
    entry = MessageEntry(
        message=LoggedMessage(role="user", content=(Text(text="w" * 110),)),
        provider="anthropic",
        model="claude-1",
    )
    session.append(entry)
    line = encode(msgspec.structs.replace(entry, id="0" * 8, timestamp=TIME, seq=size))
    fd = os.open(root / "plain", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def floor() -> None:
        os.write(fd, line)
        os.fdatasync(fd)

    taken = in_turns({"floor": floor, "awl": lambda: session.append(entry)}, times)
    session.close()
    os.close(fd)
    return len(line), medians(taken)
