"""The file of a log: lock, append, sync, recover.

`LogFile` is the only thing in awl that writes to a log. It knows lines, not what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from awl.errors import LogChanged, NotASession, SessionBusy, SessionClosed
from awl.log.durable import (
    begin_writing,
    create_private,
    is_at,
    make_directories,
    sync,
    sync_directory,
    sync_name,
    write_all,
)
from awl.log.line import is_object
from awl.log.lock import lock, name_owner, open_locked, owner_path
from awl.log.scan import BLOCK, BOM, read_at

FIRST_READ: Final = 1 << 16  # bytes from the end, where most logs show how they end
_LONGEST_READ: Final = 1 << 30  # Linux reads no more than 2 GiB at once

_open_files: set[LogFile] = set()

# Logs that this process could neither make durable nor remove: nothing of them was acknowledged.
_stillborn: dict[Path, os.stat_result] = {}


class Recovery(msgspec.Struct, frozen=True):
    """What opening a log for writing found at its tail.

    `torn`: where the bytes that were cut off are kept; `torn_bytes`: how many.
    `newline_added`: the last object was whole and only lacked its newline.
    `lost_lines`: newline-ended lines in all torn files of this log, each of which may have been an
    acknowledged entry.
    """

    torn: Path | None = None
    torn_bytes: int = 0
    newline_added: bool = False
    lost_lines: int = 0


class LogFile:
    """An open log that this process alone may append to.

    Attributes:
        path: the log.
        end: the byte where the file must end, which is where the next line goes.
        recovery: what was found at the tail when it was opened.

    Not thread-safe: the `Session` above it is.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._name = os.fspath(path)
        self.fd = fd
        found = os.fstat(fd)
        self._inode, self._device = found.st_ino, found.st_dev
        self.end = 0
        self.recovery = Recovery()
        self._pid = os.getpid()
        self._unsettled = b""  # what an append has written, or may have, and not made durable
        self._owner = owner_path(path)
        _open_files.add(self)

    @classmethod
    def create(cls, path: Path, first: bytes) -> LogFile:
        """Make a new log that begins with the lines `first`, durable with its directories.

        It is there whole or not at all, whenever this process is killed.

        Raises:
            OSError: it could not be made; nothing of it is left.
        """
        make_directories(path.parent)
        unborn, fd = open_unborn(path, os.O_RDWR | os.O_APPEND)
        log = cls(path, fd)
        log.end = len(first)
        try:
            write_all(fd, first)
            os.fsync(fd)
            _take_back(path)
            give_name(unborn, path)
            sync_name(path)
            log._name_owner()
        except BaseException:
            log._unmake(unborn)
            raise
        return log

    @classmethod
    def open(cls, path: Path, *, briefly: bool = False) -> LogFile:
        """Lock an existing log and recover its tail. What was there is durable on return.

        `briefly` is for one append, which makes what was there durable, too: nothing is synced
        before it, and no hint is left who holds the log.

        Raises:
            SessionBusy: another process holds it.
            NotASession: it holds nothing that was ever acknowledged. Nothing is changed.
            OSError: it cannot be read, locked or written.
        """
        log = cls(path, open_locked(path))
        try:
            log.recover(settle=not briefly)
            if not briefly:
                with contextlib.suppress(PermissionError):
                    sync_name(path)
        except BaseException:
            log._let_go()
            raise
        if not briefly:
            log._name_owner()
        return log

    def append(self, lines: bytes) -> int:
        """Append whole lines in one write, durable on return. Returns the byte where they start.

        Raises:
            SessionClosed: closed, or this process was forked from the one that opened the log.
            LogChanged: the file does not end where this writer left it. Nothing was written.
            OSError: it could not be written; the file was cut back to where it ended.
        """
        start = self.begin(lines)
        self.settle(lines)
        return start

    def begin(self, lines: bytes) -> int:
        """The first half of `append`: the lines are written and the disk has begun with them, so
        that there is time for something else. They count from `settle` on; without it the next
        append takes them back, or `close`.

        Raises:
            SessionClosed, LogChanged, OSError: as `append`.
        """
        assert lines.endswith(b"\n")
        # Most often all is well, and `_check` a step that is spared.
        if self.fd < 0 or self._unsettled or os.lseek(self.fd, 0, os.SEEK_END) != self.end:
            self._check()
        self._unsettled = lines
        try:
            write_all(self.fd, lines)
            begin_writing(self.fd, self.end, len(lines))
        except BaseException:
            self._give_up()
            raise
        return self.end

    def settle(self, lines: bytes) -> None:
        """The other half of `append`: what was begun is durable on return.

        Raises:
            LogChanged: a signal's handler has appended meanwhile. What was begun does not count.
            OSError: as `append`.
        """
        end = self.end + len(lines)
        try:
            self._check_name()
            sync(self.fd)
        except BaseException:
            self._give_up()
            raise
        if self._unsettled is not lines:
            self._unsettled = lines  # should they be there all the same
            raise LogChanged(self.path, self.end, os.fstat(self.fd).st_size)
        self.end = end
        self._unsettled = b""

    def close(self) -> None:
        """Release the lock. Without effect when closed already."""
        try:
            if self.fd >= 0 and os.getpid() == self._pid:
                with contextlib.suppress(OSError):
                    self._owner.unlink()
                if self._unsettled:
                    with contextlib.suppress(LogChanged):
                        self._give_up()
        finally:
            self._let_go()

    @property
    def closed(self) -> bool:
        return self.fd < 0

    def _check(self) -> None:
        if self.fd < 0:
            raise SessionClosed(self._why_closed())
        if self._unsettled:
            # An append came to no end: what the file holds now is known only by reading it.
            self._cut_back()
        size = os.lseek(self.fd, 0, os.SEEK_END)
        if size != self.end:
            raise LogChanged(self.path, self.end, size)

    def _check_name(self) -> None:
        try:
            found = os.stat(self._name)  # noqa: PTH116  once for every append
        except FileNotFoundError:
            found = None
        if found is None or found.st_ino != self._inode or found.st_dev != self._device:
            raise OSError(errno.ENOENT, "the log was moved or deleted while it was open")

    def _why_closed(self) -> str:
        if os.getpid() != self._pid:
            return f"{self.path} belongs to process {self._pid}: a fork cannot write"
        return f"{self.path} is closed"

    def _give_up(self) -> None:
        """Take back what was begun; the next append does where that fails."""
        with contextlib.suppress(OSError):
            self._cut_back()

    def _cut_back(self) -> None:
        """After a failed append: the file ends again in the last acknowledged line."""
        size = os.fstat(self.fd).st_size
        left = read_at(self.fd, len(self._unsettled) + 1, self.end)
        if not self._unsettled.startswith(left):  # another program's bytes are not ours to cut
            raise LogChanged(self.path, self.end, size)
        if left:
            os.ftruncate(self.fd, self.end)
            sync(self.fd)
        if last_object(self.fd) != (self.end, True):
            raise LogChanged(self.path, self.end, size)
        self._unsettled = b""

    def recover(self, *, settle: bool = True) -> None:
        """Find the last complete object, and keep aside what stands behind it."""
        end, has_newline = last_object(self.fd)
        if end == 0:
            size = os.fstat(self.fd).st_size
            raise NotASession(
                self.path, "it is empty" if size == 0 else "its only line is incomplete"
            )
        size = os.fstat(self.fd).st_size
        torn = None
        if size > end:
            torn = self._save_torn(end, size)
            os.ftruncate(self.fd, end)
        if not has_newline:
            write_all(self.fd, b"\n")
        # Also where nothing was mended: the last writer may have been killed before it could sync
        # what is read and shown from here on.
        if settle:
            os.fsync(self.fd)
        self.end = end + (not has_newline)
        self._unsettled = b""
        self.recovery = Recovery(
            torn=torn,
            torn_bytes=size - end if torn else 0,
            newline_added=not has_newline,
            lost_lines=lost_lines(self.path),
        )

    def _save_torn(self, start: int, end: int) -> Path:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S-%f")[:-3] + "Z"
        base = self.path.with_name(f"{self.path.name}.torn-{stamp}")
        torn, n = base, 2
        while True:
            try:
                out = create_private(torn)
                break
            except FileExistsError:
                torn, n = base.with_name(f"{base.name}-{n}"), n + 1
        try:
            at = start
            while at < end and (piece := read_at(self.fd, min(BLOCK, end - at), at)):
                write_all(out, piece)
                at += len(piece)
            os.fsync(out)
        except BaseException:
            with contextlib.suppress(OSError):
                torn.unlink()
            raise
        finally:
            os.close(out)
        sync_directory(torn.parent)
        return torn

    def _unmake(self, unborn: Path) -> None:
        """Remove a new log, under whichever of its names there is."""
        try:
            if is_at(self.fd, self.path):
                self.path.unlink()
                self._owner.unlink(missing_ok=True)
        except OSError:
            _stillborn[self.path] = os.fstat(self.fd)
        with contextlib.suppress(OSError):
            unborn.unlink()
        self._let_go()

    def _name_owner(self) -> None:
        name_owner(self.path)

    def _let_go(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
        _open_files.discard(self)


def torn_files(log: Path) -> list[Path]:
    """The torn tails that were cut from a log, oldest first.

    Links, pipes and folders of such names are none: awl makes files, and a pipe never ends.
    """
    prefix = log.name + ".torn-"
    with os.scandir(log.parent) as found:
        return sorted(
            Path(item.path)
            for item in found
            if item.name.startswith(prefix) and item.is_file(follow_symlinks=False)
        )


def lost_lines(log: Path) -> int:
    """How many whole lines recovery has cut from a log: each may have been acknowledged."""
    count = 0
    for torn in torn_files(log):
        with torn.open("rb") as lines:
            count += sum(1 for line in lines if line.endswith(b"\n") and line.strip())
    return count


def last_object(fd: int) -> tuple[int, bool]:
    """Where the last complete JSON object of a file ends, and whether a newline follows it.

    The byte returned is the one after the newline, or after the object's own line where there is
    none; 0 when no line is an object. The file is read from its end.
    """
    end = at = os.fstat(fd).st_size  # end of the line being looked at, its newline excluded
    tail = b""  # bytes from `at` to `end`, and some behind it
    terminated = False
    while True:
        cut = tail.rfind(b"\n", 0, end - at)
        if cut < 0 and at > 0:
            tail = tail[: end - at]
            # Doubling: a long line is copied twice at most.
            step = min(max(FIRST_READ, len(tail)), at, _LONGEST_READ)
            tail = read_at(fd, step, at - step) + tail
            at -= step
            continue
        line = tail[cut + 1 : end - at]
        start = at + cut + 1
        if start == 0 and line.startswith(BOM):
            line = line[len(BOM) :]
        if line.strip() and is_object(line):
            return (end + 1, True) if terminated else (end, False)
        if cut < 0:
            return 0, False
        end, terminated = at + cut, True


def open_unborn(path: Path, flags: int, suffix: str = "") -> tuple[Path, int]:
    """A new hidden file beside a log to come, locked while it is in the making: one that nobody
    holds was left by a kill."""
    while True:
        unborn = path.with_name(f".{path.name}.{os.urandom(4).hex()}{suffix}")
        fd = create_private(unborn, flags)
        try:
            lock(fd)
            if is_at(fd, unborn):
                return unborn, fd
            os.close(fd)
        except BlockingIOError:  # another process takes it for a leftover
            os.close(fd)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                unborn.unlink()
            raise


def give_name(unborn: Path, path: Path) -> None:
    """Let a file that is complete appear under its name; never over another.

    Raises:
        FileExistsError: the name is taken.
    """
    try:
        os.link(unborn, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if path.exists():
            raise FileExistsError(errno.EEXIST, "File exists", str(path)) from None
        unborn.rename(path)
    else:
        with contextlib.suppress(OSError):  # a name too many, for the next birth's `sweep`
            unborn.unlink()


def _take_back(path: Path) -> None:
    """Remove what a birth of this process has left that failed, unless someone went on with it."""
    left = _stillborn.get(path)
    if left is None:
        return
    with contextlib.suppress(FileNotFoundError, SessionBusy):
        fd = open_locked(path, patience=0)
        try:
            found = os.fstat(fd)
            if os.path.samestat(found, left) and found.st_size == left.st_size:
                path.unlink()
        finally:
            os.close(fd)
    del _stillborn[path]


if hasattr(os, "register_at_fork"):

    def _forget_after_fork() -> None:
        # A child that kept the descriptor would keep the lock alive after its parent's death.
        for log in list(_open_files):
            log._let_go()

    os.register_at_fork(after_in_child=_forget_after_fork)
