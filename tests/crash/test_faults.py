"""Every operation fails once, in each way that it can, and many in a row: it is said, nothing that
was acknowledged is lost, what was refused is not there, and it goes on when the disk works again.

The short form fails each operation in one way; `pytest --long tests/crash` in all of them, and
loses power after more of them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from awl.entries import EndEntry, Entry, ForkPointEntry, Header
from awl.errors import NotSaved
from awl.log.birth import sweep
from awl.log.line import decode
from awl.session import Session
from awl.store.files import Store

from .conftest import Figures
from .explore import Judge, lines_written, scratch
from .promises import check
from .recorder import Recorder
from .scenarios import SCENARIOS, Play

Fault = int | Literal["short"]
FAULTS: tuple[Fault, ...] = (errno.EIO, errno.ENOSPC, errno.EDQUOT, "short")
RUNS = (1, 2, 7, 50)
"""How many operations fail in a row."""


@dataclass
class Disk:
    """Operations number `first` … `first + run - 1` fail; or their writes take less than given.

    `at`: the `place` at which the first one failed.
    """

    fault: Fault
    first: int
    run: int
    place: Callable[[], int] = lambda: 0
    count: int = 0
    hits: int = 0
    at: int = 0

    def __call__(self, name: str, about: str) -> int | None:
        self.count += 1
        if not self.first <= self.count < self.first + self.run:
            return None
        if not self.hits:
            self.at = self.place()
        if self.fault == "short":
            self.hits += name == "write"
            return 7 if name == "write" else None
        self.hits += 1
        raise OSError(self.fault, os.strerror(self.fault))


class OnBadDisk(Play):
    """A scenario whose disk fails: what is told is true, and what is refused is tried again.

    `accepted` are the entries that were acknowledged, or queued as facts. `doubtful`: a line whose
    sync failed could not even be cut off before the session was closed. It is shown afterwards, but
    no sync by another process makes it durable or tells that it is not.
    """

    def __init__(self, root: Path, recorder: Recorder) -> None:
        super().__init__(root, recorder)
        self.accepted: list[Entry] = []
        self.doubtful = False
        self.sessions_open: list[Session] = []

    def create(self) -> Session:
        session = super().create()
        self.sessions_open.append(session)
        return session

    def open(self, log: Path) -> Session:
        while True:
            with contextlib.suppress(OSError):
                session = super().open(log)
                self.sessions_open.append(session)
                return session

    def close(self, session: Session) -> None:
        while session.unsaved:
            with contextlib.suppress(NotSaved):
                session.flush()
        self.told(session)
        session.close()
        assert session._log is not None
        self.doubtful |= bool(session._log._unsettled)
        self.sessions_open.remove(session)

    def append(self, session: Session, *entries: Entry) -> None:
        for _ in range(4 * max(RUNS)):
            try:
                session.append_many(entries)
            except NotSaved as error:
                assert str(error).startswith(f"NOT SAVED to {session.path}: ")
                if not error.queued:
                    assert error.kind != "fact"
                    continue
            else:
                self.told(session)
            self.accepted += entries
            return
        raise AssertionError("the disk works again, and it is refused all the same")

    def promised(self, log: Path, end: int) -> int:
        """A line whose sync failed is in the file until the writer can cut it off. An index that
        looks in between takes it in, and finds out at its next look."""
        held = (one._log for one in self.sessions_open if one.path == log)
        return next((one.end for one in held if one is not None and one._unsettled), end)

    def told(self, session: Session) -> None:
        assert session._log is not None
        self.acknowledge(session.path, session._log.end)

    def blob(self, session: Session, data: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                super().blob(session, data)
                return

    def fork(self, source: Session | Path, at: int | None = None) -> Path:
        while True:
            with (
                contextlib.suppress(OSError, NotSaved),
                contextlib.closing(Store(self.sessions)) as store,
            ):
                child = store.fork(source, at=at)
                self.acknowledge(child)
                return child

    def delete(self, log: Path, *, purge: bool = False) -> None:
        while log.exists():  # what fails after the move is made up for by the next one
            with contextlib.suppress(OSError):
                super().delete(log, purge=purge)

    def restore(self, home: Path) -> None:
        while not home.exists():
            with contextlib.suppress(OSError):
                super().restore(home)

    def export(self, log: Path, target: Path) -> None:
        while True:
            with contextlib.suppress(OSError):
                super().export(log, target)
                return

    def bring(self, source: Path) -> None:
        while True:
            with contextlib.suppress(OSError):
                super().bring(source)
                return


def payload(entry: Entry) -> str:
    """What was said, without what the session stamps on it."""
    return repr(
        msgspec.structs.replace(entry, id="x", parent_id=None, seq=0, turn_id=None, timestamp="x")
    )


def logged(root: Path) -> Iterator[Entry]:
    for log in root.glob("sessions/*/*.jsonl"):
        for line in log.read_bytes().split(b"\n")[1:-1]:
            entry = decode(line)
            assert not isinstance(entry, Header)
            if not isinstance(entry, EndEntry | ForkPointEntry):
                yield entry


def fail(judge: Judge, name: str, disk: Disk, *, power_loss: bool) -> None:
    """Play a scenario on a failing disk to its end, and judge what is there then; with
    `power_loss`, also what would be there had the power been lost after the first failure."""
    with judge.place() as root:
        recorder = Recorder(root, disk)
        disk.place = lambda: len(recorder.operations)
        with recorder:
            play = OnBadDisk(root, recorder)
            SCENARIOS[name](play)
            assert not play.sessions_open
        if name not in ("forking", "importing", "deleting", "tearing"):
            accepted = Counter(map(payload, play.accepted))
            assert Counter(map(payload, logged(root))) == accepted, "not just what was accepted"
        for folder in root.glob("sessions/*"):
            sweep(folder)
        left = [path.name for path in root.glob("sessions/*/.*")]
        assert not left, "a failure left something behind"
        check(root, play.kept, lines_written(recorder))
    if power_loss and not play.doubtful:
        judge.explore(recorder, f"{disk}: ", start=disk.at)


def count(name: str) -> int:
    """How many operations a scenario has."""
    with scratch() as root:
        disk = Disk("short", 1 << 30, 0)
        with Recorder(root, disk) as recorder:
            SCENARIOS[name](OnBadDisk(root, recorder))
    return disk.count


def fail_all(name: str, faults: Iterable[tuple[int, Fault, int]], part: float) -> Counter[str]:
    """Fail a scenario in all these ways; lose power after some part of the failures."""
    chance = random.Random(name)
    tried: Counter[str] = Counter()
    with scratch() as folder:
        judge = Judge(folder, every=0, most=3)
        for first, fault, run in faults:
            disk = Disk(fault, first, run)
            try:
                fail(judge, name, disk, power_loss=chance.random() < part)
            except BaseException as error:
                error.add_note(f"{name}: {disk}")
                raise
            what = fault if isinstance(fault, str) else errno.errorcode[fault]
            tried[f"operations failed with {what}"] += disk.hits
            tried["runs with a failing disk"] += 1
    tried.update(judge.tally.figures())
    return tried


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_fails_is_said_and_nothing_is_lost(name: str, figures: Figures) -> None:
    ways = itertools.cycle(itertools.product(FAULTS, RUNS))
    chance = random.Random(name)
    some = ((n, *next(ways)) for n in range(1, count(name) + 1) if chance.random() < 0.5)
    figures.counts += fail_all(name, some, 0.02)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_fails_in_any_way_is_said_and_nothing_is_lost(name: str, figures: Figures) -> None:
    moments = range(1, count(name) + 1)
    figures.counts += fail_all(name, itertools.product(moments, FAULTS, RUNS), 0.1)
