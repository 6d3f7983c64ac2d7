"""Forks, beside a copy of the same bytes that is synced."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from awl.store.files import Store
from benchmarks.corpus import fill, folder
from benchmarks.figures import Curve, Figure, Found, in_turns, medians, ratio

FLOOR = "copy of the bytes + fsync"
BAR_AT = 10_000


def measure(quick: bool) -> Found:
    figures: list[Figure] = []
    names = ("awl", "awl, by id", "awl, --at", "floor")
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for count in (1_000, BAR_AT) if quick else (100, 1_000, BAR_AT, 100_000):
        taken = _forked(count, 7 if quick or count > BAR_AT else 31)
        for name, seconds in taken.items():
            points[name].append((count, seconds))
        if count == BAR_AT:
            what, base = f"fork of {count:,} messages", taken["floor"]
            figures += [
                ratio(f"{what}, whole", taken["awl"], FLOOR, base, 1.5),
                ratio(f"{what}, whole, by id", taken["awl, by id"], FLOOR, base, 1.5),
                ratio(f"{what}, at the last entry", taken["awl, --at"], FLOOR, base, None),
            ]
    return Found(figures, [Curve("fork", "messages in the session", "a fork", points)])


def _forked(count: int, times: int) -> dict[str, float]:
    with folder() as name:
        store = Store(name / "sessions")
        fill(store.root, 1, lambda _: ["word " * 90] * count)
        (session,) = store.list().sessions
        log = Path(session.path)
        with log.open("rb") as made:  # nothing of it is left for the floor's sync or for ours
            os.fsync(made.fileno())
        before = {*log.parent.iterdir()}

        def remove() -> None:
            for made in {*log.parent.iterdir()} - before:
                made.unlink()
            (name / "copy").unlink(missing_ok=True)

        works = {
            "floor": lambda: _copied(log, name / "copy"),
            "awl": lambda: store.fork(log),
            "awl, by id": lambda: store.fork(session.id),
            "awl, --at": lambda: store.fork(log, at=count),
        }
        taken = in_turns(works, times, after=remove)
        store.close()
    return medians(taken)


def _copied(log: Path, to: Path) -> None:
    shutil.copyfile(log, to)
    fd = os.open(to, os.O_RDWR)
    os.fsync(fd)
    os.close(fd)
