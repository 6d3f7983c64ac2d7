"""Forks against their floor, in one run: `uv run python benchmarks/fork.py`.

The floor is to copy the same bytes to a new file and to sync that. The runs take turns. Of each,
the best and the median are given, as ratios to those of the floor.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from awl.conversation import ModelRef, text_message
from awl.store.files import Store

RUNS = 61
MESSAGES = 10_000


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def copied(log: Path, to: Path) -> None:
    shutil.copyfile(log, to)
    fd = os.open(to, os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "sessions"
        store = Store(root)
        session = store.create(name, ModelRef("anthropic", "claude-1"))
        with patch("awl.log.file.sync"):
            session.append_many(
                [
                    session.message_entry(text_message(("user", "assistant")[n % 2], "word " * 90))
                    for n in range(MESSAGES)
                ]
            )
        session.close()
        log = session.path
        store.list()
        ways: dict[str, Callable[[], object]] = {
            "copy + fsync": lambda: copied(log, Path(name, "copy")),
            "fork, whole": lambda: store.fork(log),
            "fork, whole, by id": lambda: store.fork(session.id),
            f"fork --at {MESSAGES}": lambda: store.fork(log, at=MESSAGES),
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(RUNS):
            for way, work in ways.items():
                before = {*log.parent.iterdir()}
                times[way].append(seconds(work))
                for made in {*log.parent.iterdir()} - before:
                    made.unlink()
                Path(name, "copy").unlink(missing_ok=True)
        floor = times["copy + fsync"]
        print(f"{MESSAGES} messages, {log.stat().st_size / 1e6:.1f} MB")
        for way, taken in times.items():
            best, median = min(taken), statistics.median(taken)
            print(
                f"{way}: best {1e3 * best:.1f} ms = {best / min(floor):.2f} x,"
                f" median {1e3 * median:.1f} ms = {median / statistics.median(floor):.2f} x"
            )


if __name__ == "__main__":
    main()
