"""One open session: its log and its live state, which never differ.

`Session` is the way to write: it stamps entries, makes them durable, and folds what it wrote.
To look at one without opening it, `awl.replay.read` takes no lock and changes nothing.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, Self

import msgspec

from awl.conversation import Conversation, Message, ModelRef
from awl.entries import (
    VERSION,
    CondensationEntry,
    CwdChangeEntry,
    EndEntry,
    EndReason,
    Entry,
    Header,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    PartialEntry,
    RewindEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.errors import (
    InvalidEntry,
    InvalidRange,
    InvalidTarget,
    LogChanged,
    NotASession,
    NotSaved,
    SessionClosed,
)
from awl.log.blobs import Blobs, MemoryBlobs
from awl.log.durable import create_private, sync, sync_directory, write_all
from awl.log.file import LogFile
from awl.log.line import encode, encode_as_is, held
from awl.log.names import (
    log_path,
    new_session_id,
    now,
    same_directory,
)
from awl.log.scan import BLOCK, Line, read_at
from awl.replay import (
    UnknownDirectory,
    check_first_line,
    damage_notices,
    path_reader,
    recovery_notices,
    replay,
)
from awl.state import ROOT, State, is_prompt
from awl.table import NewIds

MOST_QUEUED: Final = 64
"""Facts that may wait for a disk that cannot be written."""

_TARGETING: Final = frozenset({RewindEntry, LabelEntry, CondensationEntry})
"""Entries that name others, which must be there."""

_OF_A_TURN: Final = frozenset({ToolCallEntry, ToolResultEntry, PartialEntry})

# That another program changed or emptied the file is no reason to lose what waits to be written.
_CANNOT_WRITE: Final = (OSError, LogChanged, NotASession)


class Session:
    """An open session. Thread-safe: one append at a time.

    Attributes:
        path: its log, which exists once something was appended.
        id: its id, a UUID.
        kept: False for a session that nothing is written of.
        notices: what a person should know of opening it (recovery, damage), a line each.
    """

    def __init__(self, path: Path, header: Header, state: State, log: LogFile | None) -> None:
        self.path = path
        self.header = header
        self.notices: list[str] = []
        self.blobs = Blobs(path)
        self.kept = True
        self._state = state
        self._behind: deque[Line] = deque()  # what was written and is not folded yet
        self._folding = threading.Lock()
        self._end: tuple[str | None, int, int] | None = None
        self._new_ids: NewIds | None = None
        self._ids: list[str] = []  # some of those
        self._log = log
        self._line = 0
        self._opening: tuple[Entry, ...] = ()
        self._queue: list[tuple[Entry, ...]] = []
        self._appended = False
        self._closed = False
        self._guard = threading.RLock()

    # -- making and opening ----------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        root: Path,
        cwd: str,
        model: ModelRef,
        *,
        session_id: str | None = None,
        created: str | None = None,
        opening: Sequence[Entry] = (),
    ) -> Self:
        """A new session. Its file appears with the first append.

        Args:
            root: the folder of all sessions.
            cwd: the directory it belongs to; it is resolved.
            model: whom its first request goes to.
            session_id, created: its id and when it began, if it has been one already.
            opening: entries that are written with the first append, before it.
        """
        header = new_header(cwd, model, session_id=session_id, created=created)
        state = State(header)
        state.settle()
        path = log_path(root, os.path.realpath(cwd), header.timestamp, header.id)
        session = cls(path, header, state, None)
        session._opening = tuple(
            msgspec.structs.replace(entry, timestamp=now()) for entry in opening
        )
        return session

    @classmethod
    def unkept(cls, cwd: str, model: ModelRef) -> Session:
        """A session that nothing is written of: it ends with the process."""
        session = cls.create(Path(os.devnull), cwd, model)
        session.kept = False
        session.blobs = MemoryBlobs()
        return session

    @classmethod
    def open(cls, path: Path, *, cwd: str | None = None) -> Session:
        """Lock a log, recover its tail and replay it.

        Args:
            path: the log.
            cwd: the directory it belongs to, where the log cannot tell it any more; recorded.

        Raises:
            SessionBusy, NotASession, NewerFormat, UnknownDirectory, NotSaved, OSError.
        """
        check_first_line(path)
        log = LogFile.open(path)
        try:
            state, line = replay(log.fd, path, log.recovery.lost_lines)
            assert state.header is not None
            session = cls(path, state.header, state, log)
            session._line = line
            session.notices = [*recovery_notices(log), *damage_notices(path, state)]
            if not state.cwd:
                if cwd is None:
                    raise UnknownDirectory(path)
                session.append(_moved_to(cwd))
        except BaseException:
            log.close()
            raise
        return session

    # -- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self.header.id

    @property
    def state(self) -> State:
        """The fold of everything that was written so far. Do not change it, and ask again after an
        append: what was written is folded when somebody asks."""
        if self._behind:
            self._catch_up()
        return self._state

    @property
    def cwd(self) -> str:
        return self.state.cwd

    @property
    def conversation(self) -> Conversation:
        return self.state.conversation

    @property
    def active_model(self) -> ModelRef:
        return self.state.active_model

    @property
    def leaf_id(self) -> str | None:
        """The id of the last entry; None before the first."""
        return self.state.leaf_id

    @property
    def born(self) -> bool:
        """Whether there is a file."""
        return self._log is not None

    @property
    def resumable(self) -> bool:
        """Whether there is something to go on with later."""
        return self.kept and self.born

    @property
    def unsaved(self) -> int:
        """How many entries wait to be written."""
        return sum(map(len, self._queue))

    def get(self, entry_id: str) -> Entry | None:
        """The last entry with this id."""
        position = self.state.find(entry_id)
        return None if position is None else self.state.body(position)

    def path_entries(self, from_id: str | None = None) -> list[Entry]:
        """The entries from the root to `from_id`, the leaf by default.

        Raises:
            InvalidTarget: there is no such entry.
        """
        state = self.state
        position = state.leaf if from_id is None else state.find(from_id)
        if position is None:
            raise InvalidTarget(f"no entry {from_id!r} in session {self.id}")
        return [state.body(at) for at in state.path_to(position)]

    def entries(self, lo: int = 1, hi: int | None = None) -> Iterator[Entry]:
        """The entries with a seq in [lo, hi], in file order."""
        return self.state.between(lo, self.state.next_seq if hi is None else hi)

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entry: Entry) -> str:
        """Write one entry behind the leaf. Durable on return. Returns its id.

        Raises:
            NotSaved: it could not be written; the error says whether it is queued.
            SessionClosed: the session was closed.
        """
        # What is written most takes the fewest steps: between two syncs each of them is a cold one.
        if type(entry) in _TARGETING:
            return self.append_many([entry])[0]
        at = now()
        with self._guard:
            if self._end is None or self._log is None or self._closed or self._queue:
                return self.append_many([entry])[0]
            parent, seq, turn = self._end
            stamped, turn = self._stamped(entry, parent, seq, turn, at)
            try:
                line, as_it_is = encode_as_is(stamped)
                start = self._log.begin(line)
                # While the disk works: behind a sync, each of these steps would be a cold one.
                there = held(stamped, line, as_it_is)
                written = Line(there, self._line + 1, start, start + len(line) - 1)
                end = stamped.id, seq + 1, turn
                self._log.settle(line)
            except LogChanged:
                return self.append_many([entry])[0]
            except _CANNOT_WRITE as error:
                raise self._not_saved((entry,), at, error) from error
            except TypeError as error:
                raise _invalid(error) from error
            # No call before the last step: a signal's exception comes with a call, and must not
            # leave the session with half of what it is to know of its log.
            self._line += 1
            self._end = end
            self._appended = True
            self._behind.append(written)
        return stamped.id

    def append_many(self, entries: Sequence[Entry]) -> list[str]:
        """Write entries in one write and one sync: all of them or none. Returns their ids.

        Raises:
            NotSaved: they could not be written; the error says whether they are queued.
            InvalidTarget: a rewind or a label among them points at no entry.
            InvalidRange: a condensation among them replaces what it cannot.
            SessionClosed: the session was closed.
        """
        if not entries:
            return []
        at = now()
        with self._guard:
            if self._closed:
                raise SessionClosed(f"session {self.id} is closed")
            try:
                if self._queue:
                    self._flush()
                return self._write(entries, at)
            except _CANNOT_WRITE as error:
                raise self._not_saved(entries, at, error) from error

    def append_message(
        self,
        message: Message,
        *,
        provider: str | None = None,
        model: str | None = None,
        stop_reason: str | None = None,
        usage: Usage | None = None,
    ) -> str:
        """Write a message. Returns its entry's id.

        Args:
            message: what was said.
            provider, model: of a user message, whom it is submitted to (the active model when left
                out); of an answer, what handled the request.
            stop_reason, usage: of an answer.

        Raises:
            NotSaved, SessionClosed: as `append`.
        """
        return self.append(
            self.message_entry(
                message, provider=provider, model=model, stop_reason=stop_reason, usage=usage
            )
        )

    def message_entry(
        self,
        message: Message,
        *,
        provider: str | None = None,
        model: str | None = None,
        stop_reason: str | None = None,
        usage: Usage | None = None,
    ) -> MessageEntry:
        """The entry of a message, not written yet; arguments as `append_message`."""
        if message.role == "user":
            active = self.active_model
            return MessageEntry(
                provider=provider or active.provider,
                model=model or active.model,
                message=LoggedMessage.of(message),
            )
        logged = LoggedMessage.of(
            message, provider=provider, model=model, stop_reason=stop_reason, usage=usage
        )
        return MessageEntry(message=logged)

    def flush(self) -> int:
        """Write what is queued, in order. Returns how many entries that were.

        Raises:
            NotSaved: it still cannot be written.
        """
        with self._guard:
            before = self.unsaved
            try:
                self._flush()
            except _CANNOT_WRITE as error:
                raise NotSaved(
                    self.path, error, kind="fact", queued=True, waiting=self.unsaved
                ) from error
            return before

    def rewind(self, entry_id: str | None) -> str:
        """Go back to an entry (None: to before everything). What came after stays in the log.

        Raises:
            InvalidTarget: there is no such entry.
            NotSaved, SessionClosed: as `append`.
        """
        return self.append(RewindEntry(parent_id=entry_id))

    def label(self, entry_id: str, label: str) -> str:
        """Name an entry.

        Raises:
            InvalidTarget, NotSaved, SessionClosed: as `rewind`.
        """
        return self.append(LabelEntry(target_id=entry_id, label=label))

    def switch_model(self, model: ModelRef, *, thinking_level: str | None = None) -> None:
        """Record that another model answers from here on. Before the file is born, the header does.

        Raises:
            NotSaved, SessionClosed: as `append`.
        """
        with self._guard:
            state = self.state
            if (model, thinking_level) == (state.active_model, state.thinking_level):
                return
            unborn = self._log is None and not state.entries
            if unborn and thinking_level is None:  # a header has no place for a level
                self.header = msgspec.structs.replace(
                    self.header,
                    provider=model.provider,
                    model=model.model,
                    endpoint=model.endpoint,
                )
                state = State(self.header)
                state.settle()
                self._begin_anew(state)
                return
            self.append(
                ModelChangeEntry(
                    provider=model.provider,
                    model=model.model,
                    endpoint=model.endpoint,
                    thinking_level=thinking_level,
                )
            )

    def move(self, cwd: str) -> None:
        """Record that the session belongs to another directory from here on.

        Raises:
            NotSaved, SessionClosed: as `append`.
        """
        if not same_directory(cwd, self.cwd):
            self.append(_moved_to(cwd))

    def close(self, reason: EndReason = "user_quit") -> None:
        """Record the end, if anything was appended since opening, and release the lock."""
        with self._guard:
            if self._closed:
                return
            try:
                if self._log is not None and self._appended:
                    # What is queued could not be written; neither could this, and it says nothing.
                    # A process forked from the holder may not write, and only lets go.
                    with contextlib.suppress(NotSaved, SessionClosed):
                        self.append(EndEntry(reason=reason))
            finally:
                self._closed = True
                if self._log is not None:
                    self._log.close()
                    self._state.read = path_reader(self.path)  # the descriptor may become another's

    def save_copy(self, path: Path) -> None:
        """Write the whole session, what is queued and its blobs included, to another place.

        Raises:
            OSError: it could not be written, or something is there already. Nothing of it is left.
        """
        path = path.expanduser().absolute()
        with self._guard:
            out = create_private(path)
            blobs = Blobs(path)
            try:
                if self.kept and self.blobs.directory.is_dir():
                    for blob in self.blobs.directory.iterdir():
                        blobs.put(blob.read_bytes())
                for piece in self._written():
                    write_all(out, piece)
                for batch in self._stamped_queue():
                    write_all(out, b"".join(map(encode, batch)))
                sync(out)
            except BaseException:
                with contextlib.suppress(OSError):
                    path.unlink()
                shutil.rmtree(blobs.directory, ignore_errors=True)
                raise
            finally:
                os.close(out)
            sync_directory(path.parent)

    # -- inside ----------------------------------------------------------------------------------

    def _written(self) -> Iterator[bytes]:
        """What the log holds, in pieces; where it holds it no more, or never did, what is known."""
        if self._log is None or os.fstat(self._log.fd).st_size < self._log.end:
            yield encode(self.header)
            for position in range(len(self.state.entries)):
                yield encode(self.state.body(position))
            return
        at, end = 0, self._log.end
        while at < end and (piece := self._state.read(at, min(at + BLOCK, end))):
            yield piece
            at += len(piece)

    def _check_targets(self, entries: Sequence[Entry]) -> None:
        leaf = self.state.leaf
        ranges: list[tuple[int, int]] = []
        for entry in entries:
            if isinstance(entry, RewindEntry):
                leaf = ROOT if entry.parent_id is None else self._named(entry.parent_id)
                ranges = []
            elif isinstance(entry, LabelEntry):
                self._named(entry.target_id)
            elif isinstance(entry, CondensationEntry):
                ranges.append(entry.replaced)
                fault = self.state.range_faults(ranges, leaf)[-1]
                if fault is not None:
                    raise InvalidRange(entry.replaced, fault)

    def _named(self, entry_id: str) -> int:
        position = self.state.find(entry_id)
        if position is None:
            raise InvalidTarget(f"no entry {entry_id!r} in session {self.id}")
        return position

    def _not_saved(self, entries: Sequence[Entry], at: str, error: Exception) -> NotSaved:
        """What is raised for entries that could not be written; facts wait, if there is room."""
        timed = _timed(entries, at)
        kind = _kind(timed)
        queued = kind == "fact" and self.unsaved + len(timed) <= MOST_QUEUED
        if queued:
            _encoded(timed)  # what cannot be written ever must not wait before others
            self._queue.append(timed)
        return NotSaved(self.path, error, kind=kind, queued=queued, waiting=self.unsaved)

    def _flush(self) -> None:
        while self._queue:
            self._write(self._queue[0])
            self._queue.pop(0)

    def _write(self, entries: Sequence[Entry], at: str = "", *, again: bool = False) -> list[str]:
        """Write entries; `at` is when those are from that have no time."""
        targeting = not _TARGETING.isdisjoint(map(type, entries))
        if targeting:
            self._check_targets(entries)
        stamped, turn = self._stamp((*self._opening, *entries), *self._where_it_ends(), at)
        ids = [entry.id for entry in stamped]
        end = ids[-1], stamped[-1].seq + 1, turn
        written = _encoded(stamped)
        lines = self._placed(written)
        try:
            self._keep(b"".join([line for line, _ in written]), stamped)
        except LogChanged:
            if self._log is None or again:
                raise
            self._reload()
            return self._write(entries, at, again=True)
        # As in `append`: no call before the last step.
        self._opening = ()
        self._line = lines[-1].line
        self._end = end
        self._appended = True
        self._behind.extend(lines)
        if targeting:  # their fold may read what was left on disk, which nobody has changed so far
            self._catch_up()
        return ids[-len(entries) :]

    def _placed(self, written: Sequence[tuple[bytes, Entry]]) -> list[Line]:
        """Where the lines of entries will be, if they are written now."""
        number, start = self._line, 0
        if self._log is not None:
            start = self._log.end
        elif self.kept:
            number, start = 1, len(encode(self.header))
        lines = []
        for line, entry in written:
            number += 1
            lines.append(Line(entry, number, start, start + len(line) - 1))
            start += len(line)
        return lines

    def _catch_up(self) -> None:
        """Fold what was written."""
        with self._folding:
            while self._behind:
                self._state.fold(self._behind[0])
                self._behind.popleft()

    def _where_it_ends(self) -> tuple[str | None, int, int]:
        """What the next entry follows, its seq, and the turn that it may be of."""
        if self._end is None:
            state = self.state
            self._end = state.leaf_id, state.next_seq, state.turn
        return self._end

    def _keep(self, data: bytes, entries: Sequence[Entry]) -> None:
        """Make the lines of entries durable. Where that worked, nothing is called any more."""
        if self._log is not None:
            self._log.append(data)
        elif self.kept:
            self._state.read = self._read
            self._log = LogFile.create(self.path, encode(self.header) + data)

    def _read(self, start: int, end: int) -> bytes:
        """Bytes [start, end) of the log."""
        assert self._log is not None
        return read_at(self._log.fd, end - start, start)

    def _stamp(
        self, entries: Sequence[Entry], parent: str | None, seq: int, turn: int, at: str = ""
    ) -> tuple[list[Entry], int]:
        """Entries with what they have in the log, and the turn that they end in."""
        stamped: list[Entry] = []
        for entry in entries:
            entry, turn = self._stamped(entry, parent, seq, turn, at)
            stamped.append(entry)
            parent, seq = entry.id, seq + 1
        return stamped, turn

    def _stamped(
        self, entry: Entry, parent: str | None, seq: int, turn: int, at: str
    ) -> tuple[Entry, int]:
        """An entry with what it has in the log, and the turn that it ends in."""
        if not self._ids:
            self._draw_ids()
        turn_id = None
        if type(entry) is MessageEntry:
            turn += is_prompt(entry.message)
            if turn and entry.message.role != "system":
                turn_id = turn
        elif turn and type(entry) in _OF_A_TURN:
            turn_id = turn
        stamped = msgspec.structs.replace(
            entry,
            id=self._ids.pop(),
            parent_id=entry.parent_id if type(entry) is RewindEntry else parent,
            timestamp=entry.timestamp or at,
            seq=seq,
            turn_id=turn_id,
        )
        return stamped, turn

    def _draw_ids(self) -> None:
        if self._new_ids is None:
            self._new_ids = self.state.new_ids()
        self._ids = self._new_ids.draw()

    def _stamped_queue(self) -> Iterator[list[Entry]]:
        parent, seq, turn = self._where_it_ends()
        for batch in self._queue:
            stamped, turn = self._stamp(batch, parent, seq, turn)
            yield stamped
            parent, seq = stamped[-1].id, stamped[-1].seq + 1

    def _begin_anew(self, state: State) -> None:
        """Take another state for what was written."""
        with self._folding:
            self._state = state
            self._behind.clear()
        self._end = self._new_ids = None
        self._ids = []

    def _reload(self) -> None:
        """Another program wrote to the log although it was locked: read it again."""
        assert self._log is not None
        before = self._log.end
        self._log.recover()
        try:
            state, self._line = replay(self._log.fd, self.path, self._log.recovery.lost_lines)
            # Lines that the other program took away were acknowledged: their seqs stay used.
            state.lost += max(0, self._where_it_ends()[1] - state.next_seq)
            self._begin_anew(state)
        except BaseException:
            self._log.end = before  # so that the next append reads it again
            raise
        self.notices += [
            f"{self.path} was changed by another program; it was read again",
            *recovery_notices(self._log),
            *damage_notices(self.path, state),
        ]


def _timed(entries: Sequence[Entry], at: str) -> tuple[Entry, ...]:
    """Entries, those without a time as of now."""
    replace = msgspec.structs.replace
    return tuple([one if one.timestamp else replace(one, timestamp=at) for one in entries])


def _encoded(entries: Sequence[Entry]) -> list[tuple[bytes, Entry]]:
    """The lines of entries, and the entries as those hold them."""
    try:
        made = [(entry, *encode_as_is(entry)) for entry in entries]
        return [(line, held(entry, line, as_it_is)) for entry, line, as_it_is in made]
    except TypeError as error:
        raise _invalid(error) from error


def _invalid(error: TypeError) -> InvalidEntry:
    return InvalidEntry(f"it holds what JSON cannot: {error}")


def new_header(
    cwd: str, model: ModelRef, *, session_id: str | None = None, created: str | None = None
) -> Header:
    """The header of a session that begins now, or that has been one already."""
    cwd = os.path.realpath(cwd)
    return Header(
        version=VERSION,
        id=session_id or new_session_id(),
        timestamp=created or now(),
        cwd=cwd,
        provider=model.provider,
        model=model.model,
        endpoint=model.endpoint,
        cwd_bytes=_raw_cwd(cwd),
    )


def _kind(entries: Sequence[Entry]) -> Literal["intent", "fact", "partial"]:
    """What a batch of entries is: facts record what has happened already."""
    if all(map(_is_fact, entries)):
        return "fact"
    return "partial" if all(isinstance(entry, PartialEntry) for entry in entries) else "intent"


def _is_fact(entry: Entry) -> bool:
    """Whether an entry records what has happened already."""
    if isinstance(entry, MessageEntry):
        return entry.message.role == "assistant" or (
            entry.message.role == "user" and not is_prompt(entry.message.said())
        )
    return isinstance(entry, ToolResultEntry)


def _moved_to(cwd: str) -> CwdChangeEntry:
    cwd = os.path.realpath(cwd)
    return CwdChangeEntry(cwd=cwd, cwd_bytes=_raw_cwd(cwd))


def _raw_cwd(cwd: str) -> str | None:
    try:
        cwd.encode()
    except UnicodeEncodeError:
        return base64.b64encode(os.fsencode(cwd)).decode()
    return None
