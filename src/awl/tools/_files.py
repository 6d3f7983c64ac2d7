"""Files for the tools: finding them, opening them safely, replacing them whole."""

from __future__ import annotations

import os
import secrets
import stat
import threading
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from awl.tools import ToolContext
from awl.tools._input import Failure, check

SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Directories that a search does not enter by itself; one may be searched by naming it."""

BINARY_PROBE: Final = 8192
"""A file with a NUL among this many first bytes is taken for binary."""

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def resolve(path: str, context: ToolContext) -> Path:
    """The path that a model means."""
    if "\0" in path:
        raise Failure("invalid input: path holds a NUL character")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise Failure("invalid input: path is not valid Unicode") from error
    try:
        return context.cwd / Path(path).expanduser()
    except RuntimeError as error:  # ~name of nobody
        raise Failure(f"{path}: no such user") from error


def open_regular(path: Path) -> BufferedReader:
    """A regular file, open for reading. Pipes and devices are refused, and never waited for."""
    try:
        # Non-blocking, else a pipe without a writer would hold the thread before it can be refused.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError as error:
        raise Failure(f"{path} does not exist: use find to look for it") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise Failure(f"{path} is a directory: use find to list what is in it")
    raise Failure(f"{path} is {kind_of(mode)}, not a regular file: it is not read")


def kind_of(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a special file")


def replace(path: Path, data: bytes, stop: threading.Event, before: os.stat_result | None) -> None:
    """Make `path` hold `data`: entirely or not at all, also if the machine stops half-way.

    A symbolic link is followed. An existing file keeps its mode; `before` is what it was when it
    was looked at, None if it was not there: if that changed since, nothing is written.
    """
    temporary = path.with_name(f".awl-{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as error:  # of the folder, and not of a name that nobody has heard of
        raise Failure(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        check(stop)
        if _identity(look(path)) != _identity(before):
            raise Failure(f"{path} was changed by another program meanwhile: read it again")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def look(path: Path) -> os.stat_result | None:
    """What is at `path`, None if nothing; refuses what cannot be replaced by a file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise Failure(f"{path} is {kind_of(found.st_mode)}, not a regular file")
    if not os.access(path, os.W_OK):
        # A rename would go through all the same: the directory decides about that.
        raise Failure(f"{path} is write-protected")
    return found


def _identity(found: os.stat_result | None) -> tuple[int, ...] | None:
    if found is None:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def target_of(path: Path) -> Path:
    """Where a write to `path` goes: what a symbolic link points at, there or not."""
    try:
        return path.resolve()
    except RuntimeError as error:  # Python up to 3.12 says so of a loop
        raise Failure(f"{path}: its symbolic links go in a circle") from error


class Walk:
    """The files below a directory, in sorted order, not following links to directories.

    `unreadable` counts directories that could not be read.
    """

    def __init__(self, root: Path, stop: threading.Event) -> None:
        self._root, self._stop = root, stop
        self.unreadable = 0

    def __iter__(self) -> Iterator[tuple[str, bool, bool]]:
        """Paths relative to the root, with whether each is a directory, and a symbolic link."""
        pending = [""]
        while pending:
            check(self._stop)
            folder = pending.pop()
            try:
                with os.scandir(self._root / folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError:
                self.unreadable += 1
                continue
            folders = []
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and entry.name in SKIPPED:
                    continue
                if is_folder:
                    folders.append(name)
                yield name, is_folder, entry.is_symlink()
            pending.extend(reversed(folders))


def shown_name(path: Path, context: ToolContext) -> str:
    """A path as a model can use it: relative to the working directory if it is below that."""
    if path.is_relative_to(context.cwd):
        path = path.relative_to(context.cwd)
    return printable_name(str(path))


def printable_name(name: str) -> str:
    """A file name as text in one line; bytes that are not UTF-8 cannot be kept."""
    return os.fsencode(name).decode(errors="replace").replace("\n", "\\n")
