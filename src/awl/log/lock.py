"""Who may write to a log: the kernel's lock, and a hint for messages who holds it."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from awl.errors import SessionBusy
from awl.log.durable import CLOEXEC, create_private, write_all
from awl.log.names import now

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK_PATIENCE: Final = 0.25
"""Seconds a second writer tries before it is told who holds the session."""

# On Windows locked bytes cannot be read by others: the lock lies far past the end of any log.
_WINDOWS_LOCK_AT: Final = 1 << 62


class Owner(msgspec.Struct, frozen=True):
    """Who says that they hold a log."""

    pid: int | None = None
    host: str | None = None
    since: str | None = None


def owner_path(log: Path) -> Path:
    """Where the owner's hint of a log lies."""
    return log.with_name(log.name + ".owner")


def name_owner(log: Path) -> None:
    """Leave the hint for messages. That it cannot be written hinders nothing."""
    with contextlib.suppress(OSError):
        hint = Owner(os.getpid(), platform.node(), now())
        owner_path(log).unlink(missing_ok=True)
        out = create_private(owner_path(log))
        try:
            write_all(out, msgspec.json.encode(hint))
        finally:
            os.close(out)


def read_owner(log: Path) -> Owner:
    """Who says that they hold a log; all None when nobody does."""
    try:
        # Somebody's pipe of that name must not be waited for.
        hint = os.open(owner_path(log), os.O_RDONLY | CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        try:
            return msgspec.json.decode(os.read(hint, 4096), type=Owner)
        finally:
            os.close(hint)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return Owner()


def is_locked(path: Path) -> bool:
    """Whether some process holds the log open for writing. The log is not touched."""
    try:
        fd = os.open(path, os.O_RDONLY | CLOEXEC)
    except OSError:
        return False
    try:
        lock(fd, shared=True)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def open_locked(path: Path, patience: float | None = None) -> int:
    """A descriptor of a log that holds its lock; nothing else is done to the log.

    Raises:
        SessionBusy: another process holds it, and went on holding it for so many seconds,
            `LOCK_PATIENCE` by default.
        OSError: it cannot be opened or locked.
    """
    deadline = time.monotonic() + (LOCK_PATIENCE if patience is None else patience)
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | CLOEXEC)
        try:
            lock(fd)
            # Between open and lock the path may have come to name another file.
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
            os.close(fd)
        except BlockingIOError:
            os.close(fd)
            if time.monotonic() >= deadline:
                owner = read_owner(path)
                raise SessionBusy(path, owner.pid, owner.host) from None
            time.sleep(0.01)
        except BaseException:
            os.close(fd)
            raise


if sys.platform == "win32":

    def lock(fd: int, *, shared: bool = False) -> None:
        os.lseek(fd, _WINDOWS_LOCK_AT, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked") from error

else:

    def lock(fd: int, *, shared: bool = False) -> None:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
