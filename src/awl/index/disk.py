"""The logs that there are: one scan of each folder, one stat of each log."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.log.names import LogName, parse_log_name

_OWNER: Final = b".owner"


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


class Disk:
    """What lies below a root: the logs, those that say that they are open (`owned`), those that
    lie elsewhere (`links`), and the folders and logs that cannot be read, with why."""

    def __init__(self, root: Path) -> None:
        self.logs: list[Seen] = []
        self.owned: set[bytes] = set()
        self.links: set[bytes] = set()
        self.unreadable: list[str] = []
        try:
            with os.scandir(os.fsencode(root)) as folders:
                found = [folder for folder in folders if not folder.name.startswith(b".")]
        except FileNotFoundError:
            return
        for folder in found:
            try:
                if folder.is_dir():
                    self._scan(folder)
            except OSError as error:
                self._miss(folder, error)

    def _miss(self, entry: os.DirEntry[bytes], error: OSError) -> None:
        self.unreadable.append(f"{os.fsdecode(entry.path)}: {error.strerror or error}")

    def _scan(self, folder: os.DirEntry[bytes]) -> None:
        prefix = folder.name + b"/"
        add = self.logs.append
        with os.scandir(folder.path) as files:
            for file in files:
                name = file.name
                if name.endswith(b".jsonl"):
                    try:
                        found = file.stat()
                    except FileNotFoundError:
                        continue
                    except OSError as error:
                        self._miss(file, error)
                        continue
                    if file.is_symlink():
                        self.links.add(prefix + name)
                    add(
                        (
                            prefix + name,
                            found.st_size,
                            found.st_mtime_ns,
                            found.st_ctime_ns,
                            found.st_dev,
                            found.st_ino,
                        )
                    )
                elif name.endswith(_OWNER):
                    self.owned.add(prefix + name[: -len(_OWNER)])

    def digest(self, salt: int) -> bytes:
        """The same for the same logs, unchanged."""
        seen = msgspec.msgpack.encode((salt, self.logs))
        return hashlib.blake2b(seen, digest_size=16).digest()
