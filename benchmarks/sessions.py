"""Append and resume against their floors: `uv run python -m benchmarks.sessions [WHAT]`.

WHAT is append, resume, condensed or memory; without it, all run. What is compared runs in turns,
and each figure is a ratio to its floor of the same run: of the best times and of the medians.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import msgspec

from awl.conversation import Text
from awl.entries import Header, KnownEntry, LoggedMessage, MessageEntry
from awl.log.line import encode
from awl.session import Session
from benchmarks.corpus import TIME, write_log

ENTRIES = 100_000


class OuterFields(msgspec.Struct, rename="camel"):
    """What every entry has."""

    type: str
    id: str
    parent_id: str | None = None
    timestamp: str = ""
    seq: int = 0
    turn_id: int | None = None
    provider: str | None = None
    model: str | None = None


def typed_floor(path: Path) -> object:
    """Every line decoded, one by one, as what it is."""
    decode = msgspec.json.Decoder(Header | KnownEntry).decode
    with path.open("rb") as lines:
        return [decode(line) for line in lines]


def outer_floor(path: Path) -> object:
    """The outer fields of every line decoded, one by one."""
    decode = msgspec.json.Decoder(OuterFields).decode
    with path.open("rb") as lines:
        for line in lines:
            decode(line)
    return None


def resumed(path: Path) -> object:
    """What a person who resumes waits for: the session is open and its conversation there."""
    session = Session.open(path)
    found = session.state.items, session.conversation
    session.close()
    return session, found


def in_turns(*works: Callable[[], object], times: int) -> list[list[float]]:
    """The seconds that each took, a list for each, run in turns."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, seconds in zip(works, taken, strict=True):
            begun = time.perf_counter()
            made = work()
            seconds.append(time.perf_counter() - begun)
            del made  # letting go of it is not what is measured
    return taken


def ratio(name: str, floor: list[float], ours: list[float]) -> None:
    best, middle = min(ours) / min(floor), median(ours) / median(floor)
    print(
        f"{name}: {1e3 * min(ours):.1f} ms, floor {1e3 * min(floor):.1f} ms:"
        f" {best:.2f} x (medians {middle:.2f} x)"
    )


def resume() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = write_log(Path(name), ENTRIES)
        print(f"{ENTRIES} entries, {path.stat().st_size / 1e6:.0f} MB")
        floor, ours = in_turns(lambda: typed_floor(path), lambda: resumed(path), times=9)
        ratio("resume, fully", floor, ours)


def condensed() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = write_log(Path(name), ENTRIES, condensed=True)
        floor, ours = in_turns(lambda: outer_floor(path), lambda: resumed(path), times=15)
        ratio("resume, condensed near the end", floor, ours)


def append() -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:
        path = write_log(Path(name), 1000)
        session = Session.open(path)
        entry = MessageEntry(
            message=LoggedMessage(role="user", content=(Text(text="w" * 110),)),
            provider="anthropic",
            model="claude-1",
        )
        session.append(entry)
        line = encode(msgspec.structs.replace(entry, id="0" * 8, timestamp=TIME, seq=1001))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        fd = os.open(Path(name) / "plain", flags, 0o600)

        def floor() -> None:
            os.write(fd, line)
            os.fdatasync(fd)

        base, ours = in_turns(floor, lambda: session.append(entry), times=2000)
        session.close()
        os.close(fd)
        more = 1e6 * (median(ours) - median(base))
        print(
            f"append of {len(line)} bytes: floor {1e6 * median(base):.0f} us,"
            f" {median(base) / median(ours):.2f} of its rate, {more:.0f} us over it (medians)"
        )


def memory() -> None:
    """Each in a process of its own: its peak is measured."""
    with tempfile.TemporaryDirectory() as name:
        path = write_log(Path(name), ENTRIES)
        floor, ours = _growth("typed_floor", path), _growth("resumed", path)
        print(f"memory, resumed fully: {ours >> 20} MB, {ours / floor:.2f} x of the floor's")
        path = write_log(Path(name), 1_500_000, condensed=True, seed=2)
        size = path.stat().st_size
        print(f"memory, condensed, {size >> 20} MB: {_growth('resumed', path) / size:.3f} of it")


def _growth(what: str, path: Path) -> int:
    """By how many bytes a process grows that does this with a log."""
    code = (
        "import sys; from pathlib import Path; from benchmarks import sessions as s;"
        f"before = s.peak(); kept = s.{what}(Path(sys.argv[1])); print(s.peak() - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, check=True, text=True
    )
    return int(run.stdout)


def peak() -> int:
    """The most bytes of memory that this process has held (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise LookupError("no VmHWM")


WORK: dict[str, Callable[[], None]] = {
    "append": append,
    "resume": resume,
    "condensed": condensed,
    "memory": memory,
}

if __name__ == "__main__":
    for what in sys.argv[1:] or WORK:
        WORK[what]()
