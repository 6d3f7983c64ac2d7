"""The operations on files that real code asks for, in order, as they are asked for.

Within `Recorder(root)` the functions of `os` that change files note what they did below `root`. The
same place lets each of them fail, take less than it was given, or be the last that is ever done:
what a `kill -9` leaves. What opens a file for writing past `os.open` is refused, so that nothing
can happen unseen; SQLite's files alone are not followed.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import awl.log.birth
import awl.log.file
from crash.disk import (
    Cut,
    Explorer,
    File,
    Folder,
    Name,
    Named,
    Node,
    Operation,
    Synced,
    Unsynced,
    Write,
    put,
)

Hook = Callable[[str, str], int | None]
"""Called before each operation with its name and the path or file it is about. It may raise what
the operation raises, or give how many bytes a write takes."""

OPERATIONS = (
    *("open", "mkdir", "write", "fsync", "fdatasync", "ftruncate"),
    *("link", "rename", "unlink", "rmdir"),
)
"""The names that hooks are given. `open` is the birth of a file, or that of a folder to sync it."""


class Killed(BaseException):
    """The process ends here, without another word."""


class Recorder:
    """Follows what happens below a folder.

    Attributes:
        explorer: one that stands at the beginning, and can be led through `operations`.
        operations: what happened, and between that whatever was given to `note`.
    """

    def __init__(self, root: Path, hook: Hook | None = None) -> None:
        self._root = os.path.realpath(root)
        self._live = _read(self._root)
        self._beginning = Explorer(self._live)
        self.operations: list[Operation | Any] = []
        self._hook = hook
        self._dead = False
        self._inside = 0
        self._fds: dict[int, tuple[Node, int]] = {}
        self._patches: list[Any] = []

    def __enter__(self) -> Self:
        _watch()
        _recorders.append(self)
        wrappers: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "close": self._close,
            "write": self._write,
            "fsync": self._sync("fsync"),
            "fdatasync": self._sync("fdatasync"),
            "sync": self._sync_all,
            "ftruncate": self._ftruncate,
            "truncate": self._truncate,
            "mkdir": self._mkdir,
            "rmdir": self._removed("rmdir"),
            "unlink": self._removed("unlink"),
            "remove": self._removed("unlink"),
            "link": self._link,
            "rename": self._rename,
            "replace": self._rename,
            "sendfile": self._sendfile,
            "copy_file_range": self._copy_file_range,
            "pwrite": self._pwrite,
            **dict.fromkeys(("pwritev", "writev"), self._unexpected),
        }
        for name, wrapper in wrappers.items():
            if hasattr(os, name):
                real = getattr(os, name)
                self._patches.append(patch.object(os, name, _with_real(wrapper, real)))
        # One thing after the other: syncs that are asked for at once have no order to be tried.
        self._patches.append(patch.object(awl.log.birth._Sync, "_start", awl.log.birth._Sync._run))
        for patched in self._patches:
            patched.start()
        return self

    def __exit__(self, *_: object) -> None:
        for patched in reversed(self._patches):
            patched.stop()
        _recorders.remove(self)

    @property
    def explorer(self) -> Explorer:
        return self._beginning.copy()

    def note(self, what: Any) -> None:
        """Put something of the caller's between the operations."""
        self.operations.append(what)

    def heal(self) -> None:
        """No operation fails from here on."""
        self._hook = None

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """What is done here is no part of what may fail."""
        hook, self._hook = self._hook, None
        try:
            yield
        finally:
            self._hook = hook

    def bury(self) -> None:
        """After `Killed`: what the system does when a process is gone; then another may begin."""
        self.heal()
        for log in list(awl.log.file._open_files):
            log._let_go()
        self._dead = False

    # -- what is patched ---------------------------------------------------------------------------

    def _ask(self, name: str, about: object) -> int | None:
        """Whether an operation may happen."""
        if self._dead:
            raise Killed
        if self._hook is None:
            return None
        try:
            return self._hook(name, str(about))
        except Killed:
            self._dead = True
            raise

    def _open(
        self,
        real: Callable[..., int],
        path: Any,
        flags: int,
        mode: int = 0o777,
        *,
        dir_fd: int | None = None,
    ) -> int:
        place = self._place(path, dir_fd)
        if place is None:
            return self._really(real, path, flags, mode, dir_fd=dir_fd)
        folder, name = place
        node = folder.names.get(name) if name else self._live
        if self._dead:
            raise Killed
        if node is None or isinstance(node, Folder):
            self._ask("open", path)
        fd = self._really(real, path, flags, mode, dir_fd=dir_fd)
        if node is None:
            node = File()
            self._do(Named((Name(folder, name, node),)))
        elif flags & os.O_TRUNC and isinstance(node, File):
            self._do(Cut(node, 0))
        self._fds[fd] = (node, flags)
        return fd

    def _close(self, real: Callable[..., None], fd: int) -> None:
        self._fds.pop(fd, None)
        real(fd)

    def _write(self, real: Callable[..., int], fd: int, data: Any) -> int:
        node, flags = self._fds.get(fd, (None, 0))
        if not isinstance(node, File):
            return real(fd, data)
        limit = self._ask("write", self._path_of(node))
        given = bytes(data) if limit is None else bytes(data)[:limit]
        at = len(node.data) if flags & os.O_APPEND else os.lseek(fd, 0, os.SEEK_CUR)
        taken = real(fd, given)
        self._do(Write(node, at, given[:taken]))
        return taken

    def _pwrite(self, real: Callable[..., int], fd: int, data: Any, at: int) -> int:
        node, _ = self._fds.get(fd, (None, 0))
        if not isinstance(node, File):
            return real(fd, data, at)
        limit = self._ask("write", self._path_of(node))
        given = bytes(data) if limit is None else bytes(data)[:limit]
        taken = real(fd, given, at)
        self._do(Write(node, at, given[:taken]))
        return taken

    def _sync(self, name: str) -> Callable[..., None]:
        def sync(real: Callable[..., None], fd: int) -> None:
            node, _ = self._fds.get(fd, (None, 0))
            if node is None:
                real(fd)
                return
            try:
                self._ask(name, self._path_of(node))
            except OSError:
                self._do(Unsynced(node))
                raise
            self._do(Synced(node))  # the disk in question is a model: nothing need be waited for

        return sync

    def _sync_all(self, real: Callable[[], None]) -> None:
        for node in self._nodes(self._live):
            self._do(Synced(node))

    def _nodes(self, folder: Folder) -> Iterator[Node]:
        yield folder
        for node in folder.names.values():
            if isinstance(node, Folder):
                yield from self._nodes(node)
            else:
                yield node

    def _ftruncate(self, real: Callable[..., None], fd: int, size: int) -> None:
        node, _ = self._fds.get(fd, (None, 0))
        if isinstance(node, File):
            self._ask("ftruncate", self._path_of(node))
        real(fd, size)
        if isinstance(node, File):
            self._do(Cut(node, size))

    def _truncate(self, real: Callable[..., None], path: Any, size: int) -> None:
        place = None if isinstance(path, int) else self._place(path, None)
        node = None if place is None else place[0].names.get(place[1])
        if isinstance(node, File):
            self._ask("ftruncate", path)
        real(path, size)
        if isinstance(node, File):
            self._do(Cut(node, size))

    def _mkdir(
        self,
        real: Callable[..., None],
        path: Any,
        mode: int = 0o777,
        *,
        dir_fd: int | None = None,
    ) -> None:
        place = self._place(path, dir_fd)
        if place is not None:
            self._ask("mkdir", path)
        real(path, mode, dir_fd=dir_fd)
        if place is not None:
            self._do(Named((Name(*place, Folder()),)))

    def _removed(self, name: str) -> Callable[..., None]:
        def remove(real: Callable[..., None], path: Any, *, dir_fd: int | None = None) -> None:
            place = self._place(path, dir_fd)
            if place is not None:
                self._ask(name, path)
            real(path, dir_fd=dir_fd)
            if place is not None and place[1] in place[0].names:
                self._do(Named((Name(*place, None),)))

        return remove

    def _link(self, real: Callable[..., None], source: Any, target: Any, **more: Any) -> None:
        old, new = self._place(source, None), self._place(target, None)
        if new is not None:
            self._ask("link", target)
        real(source, target, **more)
        if new is not None:
            assert old is not None, "a link from outside cannot be followed"
            self._do(Named((Name(*new, old[0].names[old[1]]),)))

    def _rename(self, real: Callable[..., None], source: Any, target: Any, **more: Any) -> None:
        old, new = self._place(source, None), self._place(target, None)
        if old is not None and old[1] not in old[0].names:  # one of SQLite's
            old = new = None
        if old is not None or new is not None:
            assert old is not None and new is not None, "a rename to elsewhere cannot be followed"
            self._ask("rename", target)
        real(source, target, **more)
        if old is not None and new is not None:
            node = old[0].names[old[1]]
            self._do(Named((Name(*old, None), Name(*new, node))))

    def _sendfile(
        self, real: Callable[..., int], out: int, source: int, offset: Any, count: int, **more: Any
    ) -> int:
        return self._copied(out, source, offset, lambda: real(out, source, offset, count, **more))

    def _copy_file_range(
        self,
        real: Callable[..., int],
        source: int,
        out: int,
        count: int,
        offset_src: int | None = None,
        offset_dst: int | None = None,
    ) -> int:
        assert offset_dst is None, "a copy to a place of its own cannot be followed"
        return self._copied(out, source, offset_src, lambda: real(source, out, count, offset_src))

    def _copied(self, out: int, source: int, offset: int | None, copy: Callable[[], int]) -> int:
        node, flags = self._fds.get(out, (None, 0))
        if not isinstance(node, File):
            return copy()
        self._ask("write", self._path_of(node))
        start = os.lseek(source, 0, os.SEEK_CUR) if offset is None else offset
        at = len(node.data) if flags & os.O_APPEND else os.lseek(out, 0, os.SEEK_CUR)
        if taken := copy():
            self._do(Write(node, at, os.pread(source, taken, start)))
        return taken

    def _unexpected(self, real: Callable[..., int], fd: int, *arguments: Any) -> int:
        assert fd not in self._fds, "this kind of write cannot be followed"
        return real(fd, *arguments)

    def _really(self, real: Callable[..., int], *arguments: Any, **more: Any) -> int:
        self._inside += 1
        try:
            return real(*arguments, **more)
        finally:
            self._inside -= 1

    # -- what there is -----------------------------------------------------------------------------

    def _place(self, path: Any, dir_fd: int | None) -> tuple[Folder, str] | None:
        """The folder and the name that a path means; None when it lies elsewhere or nowhere."""
        given = Path(os.fsdecode(path))
        folder = self._live
        if dir_fd is not None:
            at, _ = self._fds.get(dir_fd, (None, 0))
            if not isinstance(at, Folder):
                return None
            folder = at
        else:
            given = given.absolute()
            if not given.is_relative_to(self._root):
                return None
            given = given.relative_to(self._root)
        parts = given.parts or ("",)
        for part in parts[:-1]:
            inner = folder.names.get(part)
            if not isinstance(inner, Folder):
                return None
            folder = inner
        return folder, parts[-1]

    def _path_of(self, node: Node) -> str:
        """A name of a file or folder, for hooks and people."""
        waiting = [(self._live, "")]
        while waiting:
            folder, path = waiting.pop()
            if folder is node:
                return path or "/"
            for name, inner in folder.names.items():
                if inner is node:
                    return f"{path}/{name}"
                if isinstance(inner, Folder):
                    waiting.append((inner, f"{path}/{name}"))
        return "?"

    def _do(self, operation: Operation) -> None:
        self.operations.append(operation)
        match operation:
            case Write(file, at, data):
                put(file.data, at, data)
            case Cut(file, size):
                put(file.data, size, b"")
                del file.data[size:]
            case Named(names):
                for name in names:
                    if name.node is None:
                        name.folder.names.pop(name.name, None)
                    else:
                        name.folder.names[name.name] = name.node

    def sees(self, path: str) -> bool:
        """Whether a file that is opened for writing past `os.open` should have been followed."""
        full = Path(path).absolute()
        return full.is_relative_to(self._root) and not self._inside and ".db" not in full.name


def _read(path: str) -> Folder:
    folder = Folder()
    with os.scandir(path) as found:
        for item in found:
            if item.is_dir(follow_symlinks=False):
                folder.names[item.name] = _read(item.path)
            else:
                folder.names[item.name] = File(bytearray(Path(item.path).read_bytes()))
    return folder


# -- nothing unseen --------------------------------------------------------------------------------

_recorders: list[Recorder] = []


def _with_real(wrapper: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **more: wrapper(real, *arguments, **more)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _recorders:
        return
    path, _, flags = arguments
    if isinstance(path, int) or not flags & (os.O_WRONLY | os.O_RDWR):
        return
    if any(recorder.sees(os.fsdecode(path)) for recorder in _recorders):
        raise RuntimeError(f"{path} is written to in a way that the recorder cannot follow")


@functools.cache
def _watch() -> None:
    sys.addaudithook(_audit)  # for good: there is no way to take it back
