"""Lists of sessions with the index warm, beside scandir and stat of the logs."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from awl.store.files import Store
from benchmarks.corpus import fill_shortly, folder
from benchmarks.figures import Curve, Figure, Found, in_turns, medians, plain, ratio

FLOOR = "scandir + stat of the logs"


def measure(quick: bool) -> Found:
    figures: list[Figure] = []
    names = ("awl", "awl, newest 50", "floor")
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for count in (100, 1_000) if quick else (100, 1_000, 10_000):
        taken, build = _listed(count)
        for name, seconds in taken.items():
            points[name].append((count, seconds))
        if count >= 1_000:
            base, what = taken["floor"], f"list of {count:,} sessions"
            figures += [
                ratio(what, taken["awl"], FLOOR, base, 2.5),
                ratio(f"{what}, the newest 50", taken["awl, newest 50"], FLOOR, base, 1.5),
                plain(f"{what}, when there is no index yet", build),
            ]
    return Found(figures, [Curve("list", "sessions", "a list", points)])


def _listed(count: int) -> tuple[dict[str, float], float]:
    with folder() as root:
        fill_shortly(root, count)
        time.sleep(0.2)  # a log that is as fresh as the look at it would be looked at again
        build = median(_without_index(root) for _ in range(3))
        store = Store(root)

        def floor() -> None:
            for directory in os.scandir(root):
                if not directory.name.startswith("."):
                    for file in os.scandir(directory.path):
                        file.stat()

        store.list()
        works: dict[str, Callable[[], object]] = {
            "floor": floor,
            "awl": store.list,
            "awl, newest 50": lambda: store.list(limit=50),
        }
        taken = medians(in_turns(works, 15))
        store.close()
    return taken, build


def _without_index(root: Path) -> float:
    """The seconds of a list that must make its index first."""
    shutil.rmtree(root / ".awl", ignore_errors=True)
    store = Store(root)
    begun = time.perf_counter()
    store.list()
    took = time.perf_counter() - begun
    store.close()
    return took
