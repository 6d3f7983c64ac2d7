"""A sound copy of a damaged session, as a new session. The original is left as it is.

The copy holds every entry that can be read, also those inside lines that are none, with their ids
and seqs; `mend` says what is done where something is missing. It is a fork of the original, so that
nothing is counted twice, and ends in a `revision` entry that tells what was done and what could not
be. It is there whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from awl.conversation import ModelRef
from awl.entries import (
    CwdChangeEntry,
    Entry,
    ForkedFrom,
    Header,
    MessageEntry,
    RevisionEntry,
    UnknownEntry,
)
from awl.errors import NotASession
from awl.health.beside import blob_fault, blobs_beside
from awl.health.lines import Lines
from awl.health.mend import Changes, Mended, Mender
from awl.health.salvage import pieces
from awl.health.verify import Progress, verify
from awl.log.birth import Unborn, birth, sweep
from awl.log.file import torn_files
from awl.log.line import BadLine, decode, encode, with_fields
from awl.log.names import cwd_of_label, log_path, new_session_id, now, parse_log_name
from awl.log.scan import Damage, Line, read_at
from awl.replay import UnknownDirectory
from awl.session import new_header
from awl.state import LARGEST, State
from awl.store.copying import copy_bytes

_STEP: Final = 1 << 24
_LONGEST_HEADER: Final = 1 << 16
_TOLD: Final = re.compile(
    rb'"(cwd|provider|model|endpoint|cwdBytes)"\s*:\s*("(?:[^"\\\x00-\x1f]|\\.){0,4096}")'
)


class Repaired(msgspec.Struct, frozen=True):
    """A copy of a session: its id, its log, and what was done, a line each."""

    session_id: str
    path: Path
    changes: tuple[str, ...]


def repair(
    path: Path,
    root: Path,
    *,
    cwd: str | None = None,
    dry: bool = False,
    progress: Progress | None = None,
) -> Repaired | None:
    """Make a sound copy of a session; None if there is nothing to repair.

    Args:
        path: its log.
        root: the folder of all sessions, where the copy goes.
        cwd: the directory that it belongs to, where nothing tells that any more.
        dry: only say what would be done.
        progress: is told how far it is: the log is read three times.

    Raises:
        UnknownDirectory: nothing tells the directory, and `cwd` was not given.
        NotASession: nothing in it can be read.
        OSError: it cannot be read, or the copy not be written.
    """
    sound = verify(path, progress=progress).ok
    with ExitStack() as opened:
        source = _Source(path, opened)
        survey = _Survey(source, progress)
        if not survey.seqs and survey.header is None:
            raise NotASession(path, "nothing in it can be read")
        if sound and not survey.from_torn:
            return None
        changes = Changes()
        header, line = _new_header(path, survey, cwd, changes)
        target = log_path(root, State(header).cwd, header.timestamp, header.id)
        copy = _Copy(source, survey, header, changes)
        if dry:
            copy.write(line, None, progress)
        else:
            sweep(target.parent)
            with birth(target) as child:
                copy.write(line, child, progress)
    return Repaired(header.id, target, tuple(changes.lines))


class _Source:
    """What can be read of a log and of its torn tails. The same each time it is asked."""

    def __init__(self, path: Path, opened: ExitStack) -> None:
        self.path = path
        self._files = [self._open(file, opened) for file in (path, *torn_files(path))]
        self._ends = [os.fstat(fd).st_size for fd in self._files]

    def _open(self, path: Path, opened: ExitStack) -> int:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        opened.callback(os.close, fd)
        return fd

    @property
    def fd(self) -> int:
        """The log."""
        return self._files[0]

    def __iter__(self) -> Iterator[tuple[int, Line | Damage]]:
        """All that the log holds, and then those entries of torn tails that nothing was written
        behind; each with its open file."""
        last = 0
        for fd, end in zip(self._files, self._ends, strict=True):
            for piece in map(_without_header, pieces(fd, end)):
                seq = _seq(piece)
                if fd == self.fd or seq > last:
                    yield fd, piece
                last = max(last, seq)


def _without_header(piece: Line | Damage) -> Line | Damage:
    """A first line that says all that a header does but that it is one is a damaged header, and no
    entry of another type."""
    if piece.line > 1 or isinstance(piece, Damage) or not isinstance(piece.entry, UnknownEntry):
        return piece
    if not {"version", "cwd", "model"} & piece.entry.raw.keys():
        return piece
    return Damage(piece.line, piece.start, piece.end, "a header that says it is none", True)


def _seq(piece: Line | Damage) -> int:
    """The seq that an entry says it has; 0 where none does."""
    if isinstance(piece, Damage) or isinstance(piece.entry, Header):
        return 0
    seq = cast(Entry, piece.entry).seq
    return seq if seq <= LARGEST else 0


class _Survey:
    """What must be known of a log before it is copied.

    Attributes:
        seqs: of the entries, in order, as they are.
        kept: for each line, whether it is copied.
        header: the first header, if there is one that is this log's; `raw` is its line, which
            begins at `header_at`.
        first: the first line, if it cannot be read.
        from_torn: how many entries come from torn tails.
        cwd: the directory that the last change of it names.
        model: whom the last user message was submitted to.
    """

    def __init__(self, source: _Source, progress: Progress | None) -> None:
        self.kept = bytearray()
        self.header: Header | None = None
        self.raw = b""
        self.header_at = -1
        self.first = b""
        self.from_torn = 0
        self.cwd: CwdChangeEntry | None = None
        self.model = ("", "")
        self._named = parse_log_name(source.path.name)
        lines = Lines()
        told = 0
        for fd, piece in source:
            position = lines.take(piece)
            if isinstance(piece, Line):
                self.kept.append(position is not None)
                self._note(fd, piece)
                self.from_torn += position is not None and fd != source.fd
            elif piece.line == 1:
                size = min(piece.end - piece.start, _LONGEST_HEADER)
                self.first = read_at(fd, size, piece.start)
            if progress and piece.end - told >= _STEP and fd == source.fd:
                progress(piece.end - told)
                told = piece.end
        self.seqs: array[int] = lines.seqs

    def _note(self, fd: int, line: Line) -> None:
        entry = line.entry
        if isinstance(entry, Header):
            mine = self._named is None or entry.id == self._named.session_id
            if self.header is None and (mine or not any(self.kept)):
                self.header, self.header_at = entry, line.start
                self.raw = read_at(fd, line.end - line.start, line.start)
        elif isinstance(entry, CwdChangeEntry):
            self.cwd = entry
        elif isinstance(entry, MessageEntry) and entry.message.role == "user" and entry.model:
            self.model = entry.provider or self.model[0], entry.model


class _Copy:
    """One copy being made."""

    def __init__(self, source: _Source, survey: _Survey, header: Header, changes: Changes) -> None:
        self._source = source
        self._survey = survey
        self._header = header
        self._changes = changes
        self._check = Lines()
        self._mender = Mender(survey.seqs, self._check.ids, header.timestamp, changes)
        self._child: Unborn | None = None
        self._range = (-1, 0, 0, 0)  # an open file, its bytes to be copied, and their last line
        self._line = 0
        self._end = 0

    def write(self, header: bytes, child: Unborn | None, progress: Progress | None) -> None:
        """Write the copy; with no child, only find out what would be done."""
        self._child = child
        self._put(self._header, header)
        number = told = 0
        before: Line | Damage | None = None
        for fd, piece in self._source:
            if fd == self._source.fd:
                self._tell_place(piece, before)
                before = piece
            if isinstance(piece, Damage):
                self._mender.skip(piece)
                continue
            kept, number = self._survey.kept[number], number + 1
            if kept:
                for mended in self._mender.take(piece):
                    self._take(fd, mended)
                if fd != self._source.fd:
                    self._changes.add(f"seq {self._mender.last_seq} was found in a torn tail")
            elif isinstance(piece.entry, Header):
                if piece.start != self._survey.header_at:
                    self._changes.add(f"line {piece.line}: another session header: left out")
            else:
                self._changes.add(f"line {piece.line} is there already: left out")
            if progress and piece.end - told >= _STEP and fd == self._source.fd:
                progress(piece.end - told)
                told = piece.end
        for mended in self._mender.finish():
            self._take(-1, mended)
        self._flush()
        lost = self._blobs()
        for seq in self._check.odd:
            self._changes.add(f"the entry with seq {seq} is not as the format says: kept as it is")
        seq = self._mender.last_seq + 1
        revision = RevisionEntry(
            id=self._mender.new_id(seq),
            parent_id=self._mender.leaf,
            timestamp=self._header.timestamp,
            seq=seq,
            reason="repair",
            changes=tuple(self._changes.lines),
            source_id=self._header.forked_from.session_id if self._header.forked_from else None,
            odd=tuple(self._check.odd),
            lost_blobs=tuple(lost),
        )
        self._put(revision, encode(revision))

    def _tell_place(self, piece: Line | Damage, before: Line | Damage | None) -> None:
        """Tell of a line that was not one alone, and of bytes that are nothing."""
        if before is None:
            return
        if piece.line == before.line:
            if isinstance(piece, Line):
                self._changes.add(f"line {piece.line}: what stood on it has lines of its own now")
        elif piece.start > before.end + 1:
            self._changes.add(f"bytes {before.end + 1}-{piece.start} hold nothing: left out")

    def _take(self, fd: int, mended: Mended) -> None:
        line = mended.line
        if line is None:
            self._put(mended.entry, encode(mended.entry))
        elif mended.fields:
            raw = read_at(fd, line.end - line.start, line.start)
            data = _with_fields(raw, mended)
            self._put(cast(Entry, decode(data)), data)
        else:
            source, start, end, last = self._range
            if (source, end + 1, last + 1) == (fd, line.start, line.line):
                self._range = fd, start, line.end, line.line
            else:
                self._flush()
                self._range = fd, line.start, line.end, line.line
            self._note(mended.entry, line.end - line.start + 1)

    def _put(self, entry: Header | Entry, data: bytes) -> None:
        self._flush()
        if self._child is not None:
            self._child.write(data)
        self._note(entry, len(data))

    def _note(self, entry: Header | Entry, size: int) -> None:
        self._line += 1
        self._check.take(Line(entry, self._line, self._end, self._end + size - 1))
        self._end += size

    def _flush(self) -> None:
        fd, start, end, _ = self._range
        if fd >= 0 and self._child is not None:
            copy_bytes(fd, self._child.fd, start, end)
            self._child.write(b"\n")
        self._range = -1, 0, 0, 0

    def _blobs(self) -> list[str]:
        """Take over the blobs that the copy names. Returns those that are lost."""
        folder = blobs_beside(self._source.path)
        lost = set()
        sound = {name for name in self._check.mentioned if (folder / name).is_file()}
        for named in self._check.blobs.values():
            if fault := blob_fault(folder, named):
                self._changes.add(f"blob {named.name[:12]} {fault}: it is lost")
                lost.add(named.name)
            else:
                sound.add(named.name)
        if self._child is not None:
            for name in sorted(sound - lost):
                self._child.adopt(folder / name)
        return sorted(lost)


def _with_fields(line: bytes, mended: Mended) -> bytes:
    try:
        return with_fields(line, **mended.fields)
    except (BadLine, RecursionError):  # too deep for any decoder: what can be known of it is kept
        return with_fields(encode(mended.entry), **mended.fields)


def _new_header(
    path: Path, survey: _Survey, cwd: str | None, changes: Changes
) -> tuple[Header, bytes]:
    """The header of the copy, and its line."""
    old = survey.header
    sound = old is not None and _is_exact(survey.raw)
    if not sound:
        old = _rebuilt(path, survey)
        changes.add("the header is made anew, from what is left of it and what follows")
    assert old is not None
    fields: dict[str, Any] = {}
    if cwd is not None:
        there = new_header(cwd, ModelRef("", ""))
        old = msgspec.structs.replace(old, cwd=there.cwd, cwd_bytes=there.cwd_bytes)
        fields = {"cwd": there.cwd, "cwdBytes": there.cwd_bytes}
    if not State(old).cwd and survey.cwd is None:
        raise UnknownDirectory(path)
    header = msgspec.structs.replace(
        old,
        id=new_session_id(),
        timestamp=now(),
        forked_from=ForkedFrom(old.id, max(survey.seqs, default=0)) if old.id else None,
    )
    if not sound:
        return header, encode(header)
    fields |= {"id": header.id, "timestamp": header.timestamp, "forkedFrom": header.forked_from}
    return header, with_fields(survey.raw, **fields)


def _is_exact(line: bytes) -> bool:
    try:
        line.decode()
        msgspec.json.decode(line, type=Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def _rebuilt(path: Path, survey: _Survey) -> Header:
    """A header for a log that has none, or one that is not as the format says."""
    named = parse_log_name(path.name)
    header = survey.header or Header(
        version=1,
        id=named.session_id if named else "",
        timestamp=named.timestamp if named else "",
        cwd="",
        provider="",
        model="",
    )
    found: dict[str, str] = {}
    for name, text in _TOLD.findall(survey.first):
        try:
            found.setdefault(name.decode(), json.loads(text))
        except ValueError:
            continue
    provider, model = survey.model
    changed = survey.cwd
    return msgspec.structs.replace(
        header,
        cwd=header.cwd
        or found.get("cwd", "")
        or (changed.cwd if changed else cwd_of_label(path.parent.name)),
        cwd_bytes=header.cwd_bytes or found.get("cwdBytes") or (changed and changed.cwd_bytes),
        provider=header.provider or found.get("provider", provider),
        model=header.model or found.get("model", model),
        endpoint=header.endpoint or found.get("endpoint"),
    )
