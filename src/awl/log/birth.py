"""The birth of a whole log: it is there complete, with its blobs, or not at all.

A log in the making is a hidden file in the folder where it will lie, `.<name>.jsonl.<random>.new`,
locked by its maker, and `.<name>.jsonl.<random>.new.blobs/` beside it. When both are synced, first
the blobs get their name and then the log: a kill at any moment leaves it whole or unseen. What it
leaves is known by its free lock, and `sweep` removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from awl.errors import AwlError
from awl.log.blobs import Blobs
from awl.log.durable import begin_writing, folders_of, make_directories, sync_directory, write_all
from awl.log.file import give_name, open_unborn
from awl.log.lock import open_locked

_SUFFIX: Final = ".new"
_PIECE: Final = 1 << 19
"""Bytes at a time that the disk is told to write."""
_WRITING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What goes wrong with a file only where it is written."""
_HIDDEN: Final = re.compile(r"\.(.+)\.[0-9a-f]{8}(?:\.new)?", re.DOTALL)


class Unborn:
    """A log in the making.

    Attributes:
        path: where it will lie.
        fd: its descriptor: append to it whatever the log shall hold, in whole lines.
        blobs: where its blobs go.
    """

    def __init__(self, path: Path, fd: int, hidden: Path, place: Path | None, over: bool) -> None:
        self.path = path
        self.fd = fd
        self.blobs = Blobs(path)
        self._place = place or self.blobs.directory
        self._over = over
        self._hidden = hidden
        self.blobs.directory = hidden.with_name(hidden.name + ".blobs")
        self._placed = self._born = False
        self._waiting = 0  # bytes at the end that the disk was not told of
        folder, *above = folders_of(path)
        self._folder = folder
        # In the background: a disk takes hardly longer for several at once than for one.
        self._syncs = [_Sync(*above)]

    def write(self, data: bytes) -> None:
        """Append bytes."""
        write_all(self.fd, data)
        self._waiting += len(data)
        if self._waiting >= _PIECE:
            end = os.lseek(self.fd, 0, os.SEEK_END)
            begin_writing(self.fd, end - self._waiting, self._waiting)
            self._waiting = 0

    def adopt(self, blob: Path) -> None:
        """Take a blob of another log, by a link where that is possible.

        Raises:
            OSError: it cannot be written.
        """
        make_directories(self.blobs.directory)
        try:
            os.link(blob, self.blobs.directory / blob.name)
        except FileExistsError:
            pass
        except OSError:  # another file system, or one without links
            try:
                data = blob.read_bytes()
            except OSError:  # then it is missing here as it is there
                return
            self.blobs.put(data)

    def appear(self) -> None:
        """Let the log be seen. It is durable when the block ends; until then there is time for
        something else.

        Raises:
            FileExistsError: there is such a file.
            OSError: it cannot be written.
        """
        if not self._over and os.path.lexists(self.path):  # nothing was touched so far
            raise FileExistsError(errno.EEXIST, "File exists", str(self.path))
        os.fsync(self.fd)
        if self.blobs.directory.is_dir():
            sync_directory(self.blobs.directory)
            self._place_blobs()
        if self._over:
            self._hidden.replace(self.path)
        else:
            give_name(self._hidden, self.path)
        self._born = True
        self._syncs.append(_Sync(self._folder))

    def _settle(self) -> None:
        if not self._born:
            self.appear()
        errors = [sync.wait() for sync in self._syncs]
        if error := next(filter(None, errors), None):
            raise error

    def _place_blobs(self) -> None:
        """Give the blobs their folder, or move them into what is there of it already."""
        try:
            self.blobs.directory.rename(self._place)
            self._placed = True
        except OSError:
            make_directories(self._place)
            for blob in self.blobs.directory.iterdir():
                blob.replace(self._place / blob.name)
            self.blobs.directory.rmdir()
            sync_directory(self._place)
        sync_directory(self._place.parent)

    def _abandon(self, error: BaseException) -> None:
        for sync in self._syncs:
            sync.wait()
        if self._born and not self._over:
            self.path.unlink()
            sync_directory(self.path.parent)  # a power loss must not leave it without its blobs
        # Where another process gave birth to this very log, the blobs are now its own.
        if self._placed and not isinstance(error, FileExistsError):
            _remove_folder(self._place)
        _remove_folder(self.blobs.directory)
        self._hidden.unlink(missing_ok=True)  # last: as long as it is there, `sweep` finds the rest


class _Sync:
    """Makes the names in folders durable, in the background."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None
        self._start()

    def wait(self) -> OSError | None:
        """Wait for the end. Returns what went wrong."""
        if self._thread is not None:
            self._thread.join()
        return self._error

    def _start(self) -> None:
        thread = threading.Thread(target=self._run)
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads
            self._run()
        else:
            self._thread = thread

    def _run(self) -> None:
        for folder in self._folders:
            try:
                sync_directory(folder)
            except OSError as error:
                # A folder above may be passed through, and not be read.
                if len(self._folders) == 1 or not isinstance(error, PermissionError):
                    self._error = error


@contextmanager
def birth(path: Path, *, blobs: Path | None = None, over: bool = False) -> Iterator[Unborn]:
    """Make a whole log. What is written to the `Unborn` is there, durable, when the block ends; an
    error or a kill leaves nothing of it.

    Args:
        path: where it will lie.
        blobs: where its blobs will, if not where a log's do.
        over: take the place of what is there.

    Raises:
        FileExistsError: there is such a file.
        OSError: it could not be made.
    """
    make_directories(path.parent)
    try:
        hidden, fd = open_unborn(path, os.O_RDWR, _SUFFIX)
    except OSError as error:
        error.filename = str(path)  # nobody knows the hidden name
        raise
    unborn = Unborn(path, fd, hidden, blobs, over)
    try:
        yield unborn
        unborn._settle()
    except BaseException as error:
        with contextlib.suppress(OSError):
            unborn._abandon(error)
        if isinstance(error, OSError) and error.filename is None and error.errno in _WRITING:
            error.filename = str(path)
        raise
    finally:
        os.close(fd)


def sweep(folder: Path) -> None:
    """Remove what births that were killed have left in a folder of sessions. What cannot be removed
    stays."""
    for hidden, name in _left(folder):
        _remove(hidden, folder / name if name.endswith(".jsonl") else None)


class Sweeper:
    """Sweeps folders, each of them once."""

    def __init__(self) -> None:
        self._swept: set[Path] = set()

    def __call__(self, folder: Path) -> None:
        if folder not in self._swept:
            self._swept.add(folder)
            sweep(folder)


def sweep_beside(path: Path) -> None:
    """Remove what births of one file that were killed have left, in a folder that is not awl's."""
    for hidden, name in _left(path.parent):
        if name == path.name:
            _remove(hidden, None)


def _left(folder: Path) -> list[tuple[Path, str]]:
    """The hidden files of births, and the names that they were to have."""
    try:
        with os.scandir(folder) as found:
            matches = [match for item in found if (match := _HIDDEN.fullmatch(item.name))]
    except OSError:
        return []
    return [(folder / match[0], match[1]) for match in matches]


def _remove(hidden: Path, path: Path | None) -> None:
    with contextlib.suppress(OSError, AwlError):
        fd = open_locked(hidden, patience=0)  # its maker is dead
        try:
            if hidden.name.endswith(_SUFFIX):
                # A link more: the log had got its name, and nothing but this one is too much.
                if path and os.fstat(fd).st_nlink == 1 and not path.exists():
                    _remove_folder(Blobs(path).directory)
                _remove_folder(hidden.with_name(hidden.name + ".blobs"))
            hidden.unlink()
        finally:
            os.close(fd)


def _remove_folder(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
