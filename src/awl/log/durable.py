"""Private files and folders, and how what is in them is made durable."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""What every descriptor of awl is opened with, where the system has it."""


def create_private(path: Path, flags: int = os.O_WRONLY) -> int:
    """A descriptor of a new file that only its owner can read, whatever the umask.

    Raises:
        FileExistsError: the name is taken.
    """
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL | CLOEXEC, 0o600)
    if hasattr(os, "fchmod"):
        try:
            os.fchmod(fd, 0o600)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                path.unlink()  # else the name would be taken for ever
            raise
    return fd


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write bytes; more than one `write` only where the system takes fewer than it was given."""
    written = os.write(fd, data)
    if written < len(data):
        view = memoryview(data)[written:]
        while view:
            view = view[os.write(fd, view) :]


# Of both an append waits for every step: the system is asked for once.
if sys.platform == "linux":

    def begin_writing(fd: int, at: int, size: int) -> None:
        """Let the disk begin with `size` bytes of a file, from byte `at` on, so that less is left
        for its sync to wait for. On Linux this is what saying that they are not needed soon does to
        pages that are not written yet; they stay in memory."""
        try:  # noqa: SIM105
            os.posix_fadvise(fd, at, size, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass  # only the sync counts

else:

    def begin_writing(fd: int, at: int, size: int) -> None:
        """Elsewhere there is no word for it."""


if sys.platform == "darwin":

    def sync(fd: int) -> None:
        """Make what was written durable, for which macOS needs F_FULLFSYNC."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

elif sys.platform == "win32":

    def sync(fd: int) -> None:
        """Make what was written durable."""
        os.fsync(fd)

else:

    def sync(fd: int) -> None:
        """Make what was written durable."""
        os.fdatasync(fd)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if sys.platform == "win32":
        return
    fd = os.open(directory, os.O_RDONLY | CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that knows no sync of directories
            raise
    finally:
        os.close(fd)


def folders_of(path: Path) -> tuple[Path, Path, Path]:
    """The folders whose syncs make the name of a log durable: its own, and those above it that awl
    makes. Another process may have made them and been killed, or not have got to its syncs yet."""
    return path.parent, path.parent.parent, path.parent.parent.parent


def sync_name(path: Path) -> None:
    """Make the name of a log durable."""
    folder, *above = folders_of(path)
    sync_directory(folder)
    for folder in above:
        with contextlib.suppress(PermissionError):  # it may be passed through, and not be read
            sync_directory(folder)


def make_directories(directory: Path) -> None:
    """Create a directory and its missing parents, 0700, each durable on return.

    Raises:
        OSError: one could not be made or synced. What was made and not synced is gone again.
    """
    missing: list[Path] = []
    while not directory.is_dir():
        missing.append(directory)
        if directory.parent == directory:
            break
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            path.chmod(0o700)
            sync_directory(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                path.rmdir()  # else the next attempt would take it for durable
            raise


def is_at(fd: int, path: Path) -> bool:
    """Whether a path names the file that is open."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
