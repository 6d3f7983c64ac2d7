"""Where the space is: what each session takes, and what is kept besides."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from awl.health.beside import Folder
from awl.log.blobs import Blobs
from awl.store.trash import NAME as TRASH


class Taken(msgspec.Struct, frozen=True):
    """The bytes of one session: its log, its blobs, and what recovery has cut from its end."""

    path: str
    log: int
    blobs: int
    torn: int

    @property
    def total(self) -> int:
        return self.log + self.blobs + self.torn


class Usage(msgspec.Struct, frozen=True):
    """The bytes below the folder of all sessions. `sessions` come smallest first. `shared` are
    bytes of blobs that several of them have in common: they are there once. `other` is whatever
    belongs to no session."""

    sessions: tuple[Taken, ...]
    shared: int
    databases: int = 0
    trash: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        of_sessions = sum(taken.total for taken in self.sessions) - self.shared
        return of_sessions + self.databases + self.trash + self.other


class _Counter:
    """Adds up the sizes of files, and what of them was counted already."""

    def __init__(self) -> None:
        self.shared = 0
        self._seen: set[tuple[int, int]] = set()

    def file(self, path: Path | os.DirEntry[str]) -> int:
        """The size of a file; 0 where it is gone, or none."""
        try:
            found = path.stat(follow_symlinks=False)
        except OSError:
            return 0
        if not stat.S_ISREG(found.st_mode):
            return 0
        if found.st_nlink > 1:
            key = found.st_dev, found.st_ino
            if key in self._seen:
                self.shared += found.st_size
            self._seen.add(key)
        return found.st_size

    def tree(self, folder: Path) -> int:
        """The sizes of all files below a folder."""
        return sum(
            self.file(Path(place, name)) for place, _, files in os.walk(folder) for name in files
        )


def usage_of(logs: Iterable[Path]) -> Usage:
    """What these sessions take. A log that is gone takes nothing."""
    return _sessions(logs, _Counter())


def usage_below(root: Path, logs: Iterable[Path]) -> Usage:
    """What all that is below a root takes; `logs` are all logs there."""
    counter = _Counter()
    found = _sessions(logs, counter)
    databases, trash = counter.tree(root / ".awl"), counter.tree(root / TRASH)
    everything = _Counter()
    in_all = everything.tree(root) - everything.shared
    known = Usage(found.sessions, counter.shared, databases, trash)
    # A log that is a link takes no space here.
    return msgspec.structs.replace(known, other=max(0, in_all - known.total))


def _sessions(logs: Iterable[Path], counter: _Counter) -> Usage:
    taken = []
    folder: Folder | None = None
    for log in logs:
        try:
            if folder is None or folder.path != log.parent:
                folder = Folder(log.parent)
        except OSError:
            continue
        taken.append(
            Taken(
                path=str(log),
                log=counter.file(log),
                blobs=counter.tree(Blobs(log).directory),
                torn=sum(map(counter.file, folder.torn(log))),
            )
        )
    taken.sort(key=lambda one: (one.total, one.path))
    return Usage(tuple(taken), counter.shared)
