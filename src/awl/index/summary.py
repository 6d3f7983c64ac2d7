"""What lists show of a session, folded from its log in one pass that can go on where it stopped.

Whether a session was interrupted, and whom it talks to, depends on its path from the last prompt
on; all else adds up over the file. So a mark keeps the place of the last prompt and the sums up to
it: a log that grew is read from there on, and memory holds one turn, not the session. Only where a
later line leads back before that prompt (a rewind) or repeats what is there, the log is read whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from pathlib import Path
from typing import Final, cast

import msgspec

from awl.conversation import ModelRef
from awl.entries import (
    CondensationEntry,
    Entry,
    Header,
    ImportEntry,
    MessageEntry,
)
from awl.index.info import Summary
from awl.index.titles import Title
from awl.log.line import BadLine, Outer, decode
from awl.log.names import header_of_name, in_utc
from awl.log.scan import BLOCK, Damage, Line, read_at, scan
from awl.state import LARGEST, ROOT, State, prompts_in

CHECKED_WHOLE: Final = 16 << 20
"""Bytes up to which all that was read before is checked when a log has changed. Of what is longer,
the last indexed line is."""

_LONGEST_CHECKED_LINE: Final = 1 << 16


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A line that begins a turn, and what the lines before it add up to."""

    start: int = 0
    line: int = 1
    events: int = 0
    messages: int = 0
    turn: int = 0
    last_seq: int = 0
    updated: str = ""
    given_title: str | None = None
    changed_cwd: bytes | None = None
    submitted: tuple[str, str] = ("", "")
    title: str = ""
    title_found: bool = False


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """How far a log was read (`end` follows a newline), how its bytes are known again, and from
    where to read on."""

    end: int
    checksum: int
    last_start: int
    last_digest: bytes
    header: Header | None
    point: Point


class Changed(OSError):
    """A log changed while it was read: lines that were there are there no more."""


class _LeadsBack(Exception):
    """A line that belongs to what lies before the point: the log is to be read whole."""


def read_on(fd: int, path: Path, before: Mark | None) -> tuple[Summary | None, Mark]:
    """The summary of an open log, read on from a mark that fits.

    The summary is None where nothing was ever acknowledged. Raises `Changed` where the file was
    seen to change while it was read, `OSError` where it cannot be read.
    """
    end = complete(fd, os.fstat(fd).st_size)
    try:
        folded = _folded(fd, end, before)
    except BadLine as error:  # it was read before
        raise Changed(str(error)) from None
    last_start = _line_start(fd, end)
    checksum = _checksum(fd, before.end, end, before.checksum) if before else _checksum(fd, 0, end)
    mark = Mark(
        end, checksum, last_start, _digest(fd, last_start, end), folded.header, folded.point
    )
    return folded.summary(path), mark


def _folded(fd: int, end: int, before: Mark | None) -> _Fold:
    if before is not None:
        with contextlib.suppress(_LeadsBack):
            return _Fold(fd, end, before.header, before.point, whole=False)
    try:
        return _Fold(fd, end, None, Point(), whole=False)
    except _LeadsBack:
        return _Fold(fd, end, None, Point(), whole=True)


def fits(fd: int, mark: Mark) -> bool:
    """Whether a log still begins with what the mark says was read of it."""
    if os.fstat(fd).st_size < mark.end:
        return False
    if mark.end <= CHECKED_WHOLE:
        return _checksum(fd, 0, mark.end) == mark.checksum
    return stands(fd, mark)


def stands(fd: int, mark: Mark) -> bool:
    """Whether the last line that was read is still there."""
    return _digest(fd, mark.last_start, mark.end) == mark.last_digest


def complete(fd: int, size: int) -> int:
    """Where the last whole line of a file of this size ends: behind its newline, or at 0."""
    at = size
    while at > 0:
        start = max(0, at - _LONGEST_CHECKED_LINE)
        cut = read_at(fd, at - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        at = start
    return 0


class _Fold:
    """One pass over a log from a point on. `whole`: nothing is forgotten at the turns' edges."""

    def __init__(
        self, fd: int, end: int, header: Header | None, point: Point, *, whole: bool
    ) -> None:
        self.header = header
        self.point = point
        self._whole = whole
        self._fd = fd
        self._title = Title(point.title, found=point.title_found)
        self._last_seq = point.last_seq
        self._begin(point)
        for line in scan(fd, outer=True, start=point.start, line=point.line):
            if line.end >= end:
                break
            self._take(line)
        self.header = self._state.header
        tail = self._tail()
        self._interrupted, self._model = tail.interrupted, tail.active_model
        if not self._model.provider:
            self._model = self._state.last_submitted

    def summary(self, path: Path) -> Summary | None:
        state = self._state
        header = self.header
        if header is None:
            if not self._events:
                return None
            header = header_of_name(path)
            if header is None:
                return None
        state.header = header
        return Summary(
            id=header.id,
            title=self._title.text if state.given_title is None else state.given_title,
            cwd=os.fsencode(state.cwd),
            provider=self._model.provider,
            model=self._model.model,
            created=in_utc(header.timestamp),
            updated=in_utc(state.updated or header.timestamp),
            message_count=state.message_count,
            event_count=self._events,
            interrupted=self._interrupted,
            forked_from=header.forked_from,
        )

    @property
    def _events(self) -> int:
        return self._before + len(self._state.entries)

    def _read(self, start: int, end: int) -> bytes:
        return read_at(self._fd, end - start, start)

    def _begin(self, point: Point) -> None:
        """A state that knows of what came before the point only the sums."""
        self._before = point.events
        state = self._state = State(self.header, self._read)
        state.message_count, state.turn = point.messages, point.turn
        state.given_title = point.given_title
        if point.changed_cwd is not None:
            state.changed_cwd = os.fsdecode(point.changed_cwd)
        state.updated = point.updated or state.updated
        state.last_submitted = ModelRef(*point.submitted)

    def _take(self, line: Line | Damage) -> None:
        if isinstance(line, Damage) or isinstance(line.entry, Header):
            self._state.add(line)
            self.header = self._state.header
            return
        entry = line.entry
        if not self._whole and not self._last_seq < entry.seq <= LARGEST:
            raise _LeadsBack
        if _begins_turn(entry, self._state.turn):
            self.point = self._point(line)
            if not self._whole:
                self._begin(self.point)
                entry = msgspec.structs.replace(entry, parent_id=None)
                line = msgspec.structs.replace(line, entry=entry)
        parent = entry.parent_id
        if not self._whole and parent and self._state.find(parent) is None:
            raise _LeadsBack
        position = self._state.add(line)
        if position is not None:
            self._last_seq = max(self._last_seq, self._state.seqs[position])
            self._find_title(position)

    def _point(self, line: Line) -> Point:
        state = self._state
        return Point(
            start=line.start,
            line=line.line,
            events=self._events,
            messages=state.message_count,
            turn=state.turn,
            last_seq=self._last_seq,
            updated=state.updated,
            given_title=state.given_title,
            changed_cwd=os.fsencode(cwd) if (cwd := state.changed_cwd) is not None else None,
            submitted=state.last_submitted[:2],
            title=self._title.text,
            title_found=self._title.found,
        )

    def _find_title(self, position: int) -> None:
        entry = self._state.entries[position]
        if self._title.found or not (isinstance(entry, ImportEntry) or _role(entry) == "user"):
            return
        for words in prompts_in(self._state.body(position)):
            self._title.take(words)

    def _tail(self) -> State:
        """The state of the path from its last prompt on."""
        state = self._state
        path, position = [], state.leaf
        while position != ROOT:
            path.append(position)
            position = state.parents[position]
        path.reverse()
        start = turn = 0
        for at, position in enumerate(path):
            if _begins_turn(state.entries[position], turn):
                start, turn = at, cast(int, state.entries[position].turn_id)
        if start or self._before:
            first = state.seqs[path[start]] if path else 0
            if any(_condenses_from(state.entries[at], first) for at in path[start:]):
                if not self._whole:
                    raise _LeadsBack
                start = 0
        tail = State(self.header, self._read)
        before: str | None = None
        for position in path[start:]:
            entry = decode(self._read(state.starts[position], state.ends[position]))
            if isinstance(entry, Header) or entry.id != state.entries[position].id:
                raise Changed("another line is there now")
            entry = msgspec.structs.replace(entry, parent_id=before, seq=state.seqs[position])
            before = entry.id
            line, begin, end = state.lines[position], state.starts[position], state.ends[position]
            tail.add(Line(entry, line, begin, end))
        tail.settle()
        return tail


def _role(entry: Entry | Outer) -> str:
    if isinstance(entry, MessageEntry):
        return entry.message.role
    if isinstance(entry, Outer) and entry.message is not None:
        return entry.message.role
    return ""


def _begins_turn(entry: Entry | Outer, turn: int) -> bool:
    """Whether a line is the prompt of a turn after this one. A prompt ends all that was open."""
    number = entry.turn_id
    return number is not None and turn < number <= LARGEST and _role(entry) == "user"


def _condenses_from(entry: Entry | Outer, seq: int) -> bool:
    return isinstance(entry, CondensationEntry) and entry.replaced[1] >= seq


def _line_start(fd: int, end: int) -> int:
    """Where the line begins that ends before `end`."""
    return complete(fd, end - 1) if end else 0


def _digest(fd: int, start: int, end: int) -> bytes:
    """A hash of a line; of one that is very long, of its end."""
    start = max(start, end - _LONGEST_CHECKED_LINE)
    return hashlib.blake2b(read_at(fd, end - start, start), digest_size=16).digest()


def _checksum(fd: int, start: int, end: int, value: int = 0) -> int:
    while start < end and (block := read_at(fd, min(BLOCK, end - start), start)):
        value = zlib.crc32(block, value)
        start += len(block)
    return value
