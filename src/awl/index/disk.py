"""The logs that there are: one scan of each folder, one stat of each log."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from awl.log.names import LogName, parse_log_name

_OWNER: Final = b".owner"
_TICK: Final = 50_000_000  # ns within which a file system may give two changes one time
_COARSE_TICK: Final = 2_000_000_000  # where it counts whole seconds, or pairs of them
_REMEMBERED: Final = 2_000_000_000  # ns for which the times of a folder tell what is in it


class Log(NamedTuple):
    """A log as the file system has it: its path below the root, and what tells that it changed."""

    path: bytes
    size: int
    mtime: int
    ctime: int
    dev: int
    ino: int

    @property
    def name(self) -> LogName | None:
        """What the file's name says; None when it is not a log's."""
        return parse_log_name(os.fsdecode(self.path.rsplit(b"/", 1)[-1]))


Seen = tuple[bytes, int, int, int, int, int]
"""The same facts as a plain tuple: a list must look at ten thousand in a moment."""


def is_settled(mtime: int, ctime: int, now: int) -> bool:
    """Whether a later change is sure to give a file other times, whoever sets its mtime back."""
    fine = mtime % 1_000_000_000 or ctime % 1_000_000_000
    return max(mtime, ctime) < now - (_TICK if fine else _COARSE_TICK)


class Folder(NamedTuple):
    """What was in a folder at a moment: the logs, those that say that they are open, and links.
    A folder whose times are the same has the same names in it."""

    scanned: int
    times: tuple[int, ...]
    logs: list[bytes]
    owned: set[bytes]
    links: set[bytes]


class Disk:
    """What lies below a root: the `logs`, those that say that they are open (`owned`), those that
    lie elsewhere (`links`), and the folders and logs that cannot be read, with why. `known` is
    what is remembered of folders between two looks."""

    def __init__(self, root: Path, known: dict[bytes, Folder] | None = None) -> None:
        self._facts: list[Any] = []
        self.owned: set[bytes] = set()
        self.links: set[bytes] = set()
        self.unreadable: list[str] = []
        self._known = {} if known is None else known
        self._root = os.fsencode(root) + b"/"
        self._now = time.time_ns()
        try:
            names = os.listdir(self._root)  # noqa: PTH208 - bytes
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith(b"."):
                continue
            try:
                self._look(name)
            except OSError as error:
                self._miss(name, error)

    def _miss(self, path: bytes, error: OSError) -> None:
        self.unreadable.append(f"{os.fsdecode(self._root + path)}: {error.strerror or error}")

    def _look(self, name: bytes) -> None:
        path = self._root + name
        try:
            found = os.stat(path)  # noqa: PTH116 - bytes, and many
        except FileNotFoundError:
            return
        times = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
        folder = self._known.get(name)
        if (
            folder is not None
            and folder.times == times
            and 0 <= self._now - folder.scanned < _REMEMBERED
        ):
            self._stat(folder.logs)
        elif stat.S_ISDIR(found.st_mode):
            folder = Folder(self._now, times, [], set(), set())
            self._scan(name, folder)
            if is_settled(found.st_mtime_ns, found.st_ctime_ns, self._now):
                self._known[name] = folder
        else:
            return
        self.owned |= folder.owned
        self.links |= folder.links

    def _scan(self, name: bytes, folder: Folder) -> None:
        prefix = name + b"/"
        with os.scandir(self._root + name) as files:
            for file in files:
                path = prefix + file.name
                if path.endswith(b".jsonl"):
                    folder.logs.append(path)
                    if file.is_symlink():
                        folder.links.add(path)
                elif path.endswith(_OWNER):
                    folder.owned.add(path[: -len(_OWNER)])
        self._stat(folder.logs)

    def _stat(self, paths: list[bytes]) -> None:
        root, facts = self._root, self._facts
        for path in paths:
            try:
                of = os.stat(root + path)  # noqa: PTH116 - bytes, and many
            except FileNotFoundError:
                continue
            except OSError as error:
                self._miss(path, error)
                continue
            facts += path, of.st_size, of.st_mtime_ns, of.st_ctime_ns, of.st_dev, of.st_ino

    @property
    def logs(self) -> list[Seen]:
        """The logs, as they were seen."""
        return [*zip(*[iter(self._facts)] * len(Log._fields), strict=True)]

    def digest(self, salt: int) -> bytes:
        """The same for the same logs, unchanged, and the same that cannot be read."""
        seen = msgspec.msgpack.encode((salt, self._facts, self.unreadable))
        return hashlib.blake2b(seen, digest_size=16).digest()
