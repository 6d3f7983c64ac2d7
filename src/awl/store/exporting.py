"""Sessions leave: as files of awl's own, which are the log's bytes, or in another program's format.

What is written is there whole or not at all, and never in the place of something else unless that
is asked for. Blobs are copied, not linked: what was exported is somebody else's to change.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from awl.errors import AwlError
from awl.formats.format import Format, Source, counted
from awl.index.conversations import Conversations
from awl.log.birth import Sweeper, birth, sweep_beside
from awl.log.blobs import Blobs, is_blob_name
from awl.log.file import torn_files
from awl.log.scan import BLOCK, read_at
from awl.replay import read
from awl.store.copying import blobs_named, complete, copy_blobs, open_log, same_until

Kept = Literal["new", "grown", "same", "longer", "apart"]
"""What became of a log in a backup: it was not there; it has more than what was there; nothing new;
the backup has more than the log; or the two are not the beginning one of the other. In the last
two cases, the backup stays as it is."""


class Exists(AwlError):
    """Something lies where an export is to go."""

    def __init__(self, path: Path, *, is_file: bool = True) -> None:
        self.path = path
        what = "exists" if is_file else "is there and is no file"
        force = ", or say --force to replace it" if is_file else ""
        super().__init__(f"{path} {what}: name another file{force}")


class Outgoing:
    """A session on its way out.

    `pieces` gives the bytes of the file, once. After that, `blobs` are those that belong beside it,
    and `left_out` says, a line each, what is not in it.
    """

    def __init__(self, log: Path, known: Format | None) -> None:
        self.blobs: set[str] = set()
        self.left_out: list[str] = []
        self._log = log
        self._known = known

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the file.

        Raises:
            NotASession: the log holds nothing that was ever acknowledged.
            OSError: it cannot be read.
        """
        if self._known is None:
            return self._as_it_is()
        if self._known.write is None:
            raise AwlError(f"{self._known.title} is a format that awl reads and does not write")
        return self._converted(self._known.write)

    def bring_blobs(self, to: Blobs, there: Blobs | None = None) -> None:
        """Put the blobs beside the file, but those that are there already."""
        known = there.names() if there else frozenset()
        missing = copy_blobs(Blobs(self._log), self.blobs - known, to)
        self.left_out += [f"left out: {damaged}" for damaged in missing.values()]

    def _as_it_is(self) -> Iterator[bytes]:
        with open_log(self._log) as fd:
            end, newline = complete(fd, self._log)
            at = 0
            while at < end and (block := read_at(fd, min(BLOCK, end - at), at)):
                yield block
                at += len(block)
            if not newline:
                yield b"\n"
            self.blobs = blobs_named(fd, end)
            if torn := os.fstat(fd).st_size - end:
                self.left_out.append(f"left out: {torn} bytes of an incomplete last line")

    def _converted(self, write: Callable[[Source], Iterator[bytes]]) -> Iterator[bytes]:
        source = Source(read(self._log), Blobs(self._log).get)
        yield from write(source)
        self.blobs = set(source.blobs)
        self.left_out += [
            f"left out: {counted(count, what)}" for what, count in sorted(source.left_out.items())
        ]


def export(
    log: Path, target: Path, known: Format | None, *, root: Path, force: bool = False
) -> list[str]:
    """Write a session to a file: as it is, or in another program's format. Its blobs go to
    `<target>.blobs/`, or where that program looks for them. Returns what is not in it, a line each.

    Args:
        log: the session's log.
        target: the file.
        known: the format, if it is not awl's own.
        root: the folder of all sessions, where nothing is exported to.
        force: replace a file that is there.

    Raises:
        Exists: there is something, and `force` was not said.
        AwlError: the format is only read, or the log holds nothing that was ever acknowledged.
        OSError: it cannot be read or written.
    """
    _check_outside(target, root)
    if not target.parent.is_dir():
        raise AwlError(f"there is no directory {target.parent}")
    if os.path.lexists(target) and not (force and target.is_file()):
        raise Exists(target, is_file=target.is_file())
    beside = known.blobs if known else f"{target.name}.blobs"
    place = target.with_name(beside or f".{target.name}.blobs")
    session = Outgoing(log, known)
    sweep_beside(target)
    with birth(target, blobs=place, over=force) as out:
        for piece in session.pieces():
            out.write(piece)
        if beside:
            session.bring_blobs(out.blobs)
    if force and known is None:
        _remove_others(place, session.blobs)
    return session.left_out


class Backup:
    """A folder that holds what a store holds, byte for byte, and can be one itself.

    Args:
        root: the folder.
        store: that of the sessions which are kept there.
        force: replace also what is no beginning of the log that goes there.

    Raises:
        AwlError: the folder lies in the store.
    """

    def __init__(self, root: Path, store: Path, *, force: bool = False) -> None:
        _check_outside(root, store)
        self.root = root
        self.notices: list[str] = []
        self._force = force
        self._sweep = Sweeper()

    def keep(self, log: Path) -> Kept:
        """Bring the backup of a log up to date.

        Raises:
            NotASession: the log holds nothing that was ever acknowledged.
            OSError: it cannot be read or written.
        """
        target = self.root / log.parent.name / log.name
        self._sweep(target.parent)
        before = log.stat()
        kept = self._compared(log, target, before)
        if kept in ("new", "grown") or (kept == "apart" and self._force):
            session = Outgoing(log, None)
            with birth(target, over=kept != "new") as out:
                for piece in session.pieces():
                    out.write(piece)
                session.bring_blobs(out.blobs, Blobs(target))
            # The next backup sees by this that nothing changed.
            os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
            self.notices += [f"{log.name}: {line}" for line in session.left_out]
            for torn in torn_files(log):
                self._copy_torn(torn, target.with_name(torn.name))
        return kept

    def keep_conversations(self, rows: Conversations) -> None:
        """Bring the backup of the numbers and of the conversations without a log up to date.

        Raises:
            AwlError, OSError: they cannot be read or written.
        """
        rows.copy_to(self.root / ".awl" / rows.path.name)

    def _compared(self, log: Path, target: Path, found: os.stat_result) -> Kept:
        try:
            there = target.stat()
        except FileNotFoundError:
            return "new"
        if (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns):
            return "same"
        with open_log(log) as ours, open_log(target) as theirs:
            end, newline = complete(ours, log)
            size = os.fstat(theirs).st_size
            same = same_until(ours, theirs, min(end, size))
        if same < min(end, size):
            return "apart"
        full = end + (not newline)
        return "grown" if size < full else "same" if size == full else "longer"

    def _copy_torn(self, torn: Path, target: Path) -> None:
        if not target.exists():
            with birth(target) as out:
                out.write(torn.read_bytes())


def _check_outside(target: Path, root: Path) -> None:
    if target.resolve().is_relative_to(root.resolve()):
        raise AwlError(f"{target} would lie among the sessions: name another place")


def _remove_others(place: Path, names: set[str]) -> None:
    """Remove the blobs of what was replaced."""
    if place.is_dir():
        for path in place.iterdir():
            if is_blob_name(path.name) and path.name not in names:
                path.unlink()
