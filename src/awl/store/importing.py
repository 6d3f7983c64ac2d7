"""Another program's session becomes one of awl's.

A new session is a header, one `import` entry and the entries of the source; it is there whole or
not at all. A source that was imported before is compared with what came of it, entry by entry: its
ids are the same each time. What is new in it goes on behind, unless the copy here has turns of its
own: then the source comes as another session. The `import` entry says how far a source was read; of
a continuation it is the last, so that one which was broken off goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from awl.conversation import UNKNOWN_MODEL, ContentBlock, Image, ModelRef, ToolResult, ToolUse
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    Entry,
    ForkPointEntry,
    Header,
    ImportEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    RewindEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.errors import AwlError
from awl.formats import Facts, Format, Imported, Report
from awl.formats.chain import Chain
from awl.formats.format import Keep, refer
from awl.formats.records import check_is_file
from awl.log.birth import Sweeper, birth
from awl.log.blobs import Blobs
from awl.log.durable import write_all
from awl.log.file import LogFile
from awl.log.line import BadLine, Outer, decode, encode, encode_many
from awl.log.names import log_path, now
from awl.log.scan import Damage, read_at, scan
from awl.replay import replay
from awl.session import new_header
from awl.state import is_prompt

Outcome = Literal["new", "grown", "same", "apart", "empty"]
"""What came of a source: a new session; more of one that was here; nothing, as it was here already;
another session, as the one here has gone its own way; nothing, as there are no messages in it."""

Progress = Callable[[int, int], None]
"""Told how many bytes of a source were read, and how many it has."""

_CHUNK: Final = 1 << 20
_BATCH: Final = 64
"""Entries that are written at once."""
_TAIL: Final = 64 << 10
_of_windows: Final = re.compile(r"[A-Za-z]:[\\/]").match
_UNCOUNTED: Final = 10**9 - 1
_OWN: Final = (
    CompactionEntry,
    CondensationEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    RewindEntry,
    ToolCallEntry,
    ToolResultEntry,
)


_OTHERWISE: Final = "what was imported of it reads otherwise now"


class NotImportable(AwlError):
    """A format is written by awl and never read."""

    def __init__(self, known: Format) -> None:
        super().__init__(f"{known.title} is a format that awl writes and does not read")


@dataclass(slots=True)
class Tally:
    """What entries hold."""

    messages: int = 0
    prompts: int = 0
    answers: int = 0
    calls: int = 0
    results: int = 0
    errors: int = 0
    images: int = 0
    others: int = 0

    def take(self, entries: Sequence[Entry]) -> None:
        """Count entries."""
        messages = [entry.message for entry in entries if type(entry) is MessageEntry]
        self.messages += len(messages)
        for message in messages:
            if message.role == "assistant":
                self.answers += 1
            elif is_prompt(message):
                self.prompts += 1
            for block in message.content:
                if type(block) is ToolUse:
                    self.calls += 1
                elif type(block) is ToolResult:
                    self.results += 1
                    self.errors += block.is_error
                    self.images += len(block.images)
                elif type(block) is Image:
                    self.images += 1
        if len(messages) < len(entries):
            for entry in entries:
                if type(entry) is NoteEntry:
                    self.images += len(entry.images)
                self.others += type(entry) not in (MessageEntry, RewindEntry)

    def add(self, other: Tally) -> None:
        """Count what another one has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        found = [
            f"{count} {word}{'' if count == 1 else 's'}"
            for word, count in {
                "prompt": self.prompts,
                "answer": self.answers,
                "tool call": self.calls,
                "result": self.results,
                "image": self.images,
            }.items()
            if count
        ]
        if self.errors:
            found.append(f"{self.errors} of the results errors")
        if self.others:
            found.append(f"{self.others} other entr{'y' if self.others == 1 else 'ies'}")
        return ", ".join(found) or "nothing"


@dataclass(slots=True)
class Brought:
    """What came of importing one source.

    `session_id` and `path` are those of the session that holds it now; empty and None where none
    does, and in a dry run where none did. `tally` counts what came now. `reason`: why a source that
    was here already came as another session.
    """

    source: Facts
    outcome: Outcome
    tally: Tally
    report: Report
    session_id: str = ""
    path: Path | None = None
    reason: str = ""


class Importer:
    """Imports into the sessions below a folder.

    Args:
        root: the folder of all sessions.
        logs: the logs there are; walked once, with the first source.
        cwd: the directory of sessions whose source names none.
        dry_run: read everything and write nothing.
    """

    def __init__(
        self, root: Path, logs: Iterable[Path], cwd: str, *, dry_run: bool = False
    ) -> None:
        self._root = root
        self._logs = logs
        self._cwd = cwd
        self._dry_run = dry_run
        self._known: dict[tuple[str, str], list[Path]] | None = None
        self._sweep = Sweeper()

    def bring(self, source: Path, known: Format, progress: Progress | None = None) -> Brought:
        """Import a file, which is only read.

        Raises:
            NotImportable: its format is only written.
            SessionBusy: it grew, and the session that it became is open elsewhere.
            AwlError, OSError: it cannot be read, or the session not be written.
        """
        if known.read is None:
            raise NotImportable(known)
        job = _Job(source, known.read, mark_of(source), progress)
        if self._known is None:
            self._known = _imported(self._logs)
        found = job.read()
        facts = found.facts
        key = (facts.source, facts.source_id or str(source.resolve()))
        before = self._known.setdefault(key, [])
        brought = self._again(job, facts, before) if before else self._new(job, found)
        if brought.path is not None and brought.outcome in ("new", "apart"):
            before.append(brought.path)
        return brought

    def _new(
        self,
        job: _Job,
        found: Imported,
        outcome: Literal["new", "apart"] = "new",
        reason: str = "",
    ) -> Brought:
        tally = Tally()
        if self._dry_run:
            for batch in _batches(found.entries):
                tally.take(batch)
            so_far: Outcome = outcome if tally.messages else "empty"
            return Brought(found.facts, so_far, tally, found.report, reason=reason)
        facts = found.facts
        header = _header(facts, self._cwd)
        path = log_path(self._root, header.cwd, header.timestamp, header.id)
        self._sweep(path.parent)
        try:
            with birth(path) as log:
                job.keep = log.blobs.put
                log.write(encode(header))
                start = os.fstat(log.fd).st_size
                first = _record(job, facts)
                log.write(encode(first))
                strung = Strung(found.entries, first.id, 1, [1], _titles(facts), header.timestamp)
                for lines in _lines(strung, tally):
                    log.write(lines)
                if not tally.messages:
                    raise _Empty
                _write_count(log.fd, start, first, tally.messages)
        except _Empty:
            return Brought(facts, "empty", tally, found.report)
        return Brought(facts, outcome, tally, found.report, header.id, path, reason)

    def _again(self, job: _Job, facts: Facts, logs: list[Path]) -> Brought:
        """Import a source that was imported before, into one of the logs that it became: there are
        several where files differ that say they are the same session."""
        latest_first = [(path, *_imported_as(path, facts)) for path in reversed(logs)]
        for path, session_id, mark in latest_first:
            if mark == job.mark:
                if not self._dry_run:
                    self._sweep(path.parent)
                return Brought(facts, "same", Tally(), Report(), session_id, path)
        reasons = []
        for path, session_id, _ in latest_first:
            brought = self._more(job, path, session_id)
            if isinstance(brought, Brought):
                return brought
            reasons.append(brought)
        return self._new(job, job.read(), "apart", reasons[0])

    def _more(self, job: _Job, path: Path, session_id: str) -> Brought | str:
        """Bring what a log does not have of a source yet; or why the source cannot go on there."""
        found = job.read()
        log = None if self._dry_run else LogFile.open(path)
        fd = os.open(path, os.O_RDONLY) if log is None else log.fd
        try:
            compared = _Comparison(fd, found)
            if compared.reason:
                return compared.reason
            if not compared.grew:
                return Brought(found.facts, "same", Tally(), found.report, session_id, path)
            return self._go_on(job, compared, log, path, session_id)
        finally:
            if log is None:
                os.close(fd)
            else:
                log.close()

    def _go_on(
        self, job: _Job, compared: _Comparison, log: LogFile | None, path: Path, session_id: str
    ) -> Brought:
        """Append what is new in a source."""
        tally = Tally()
        found = job.read()
        job.keep = refer if log is None else Blobs(path).put
        rest = islice(found.entries, compared.number, None)
        if log is None:
            for batch in _batches(chain(compared.extra, rest)):
                tally.take(batch)
            return Brought(found.facts, "grown", tally, found.report, session_id, path)
        state, _ = replay(log.fd, path, log.recovery.lost_lines, lazily=True)
        parent, seq = state.leaf_id or "", state.next_seq - 1
        strung = Strung(rest, parent, seq, compared.places, compared.extra, state.updated)
        if compared.closed:
            name = Chain(found.facts.source_id).passing_id("back", compared.number)
            strung.extra.insert(0, RewindEntry(id=name, parent_id=compared.last, timestamp=now()))
        for lines in _lines(strung, tally):
            log.append(lines)
        through = replace(
            _record(job, found.facts),
            id=secrets.token_hex(4),
            parent_id=strung.parent,
            seq=strung.seq + 1,
            message_count=tally.messages,
        )
        log.append(encode(through))
        return Brought(found.facts, "grown", tally, found.report, session_id, path)


class _Empty(Exception):
    """A source holds no message."""


@dataclass(slots=True)
class _Job:
    """A source that is to be imported, and how far it goes. `keep` is where its payloads go."""

    source: Path
    reader: Callable[[Path, Keep], Imported]
    mark: str
    progress: Progress | None
    keep: Keep = refer

    def read(self) -> Imported:
        found = self.reader(self.source, lambda data: self.keep(data))
        if self.progress is not None:
            found.entries = _watched(found.entries, found, self.progress)
        return found


class Strung:
    """Entries of a source as they stand in a log: each with its parent and seq.

    `parent` and `seq` are those of the entry before the first, and after that of the last one that
    was given. `places` are the seqs of the entries that came before from the same source, the
    `import` entry's first. `extra` come first and have no number among them. `time` is that
    of entries which have none.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        parent: str,
        seq: int,
        places: list[int],
        extra: Sequence[Entry] = (),
        time: str = "",
    ) -> None:
        self.parent = parent
        self.seq = seq
        self._entries = entries
        self.extra = list(extra)
        self._places = places
        self._time = time

    def batches(self) -> Iterator[list[Entry]]:
        """The entries, many at a time."""
        shift = self.seq + 1 + len(self.extra) - len(self._places)

        def seq_of(number: int) -> int:
            return self._places[number] if number < len(self._places) else number + shift

        time = self._time
        for batch in _batches(chain(self.extra, self._entries)):
            parent: str | None = self.parent
            seq = self.seq
            for at, entry in enumerate(batch):
                if type(entry) in _NAMING:
                    entry = with_seqs(entry, seq_of)
                elif type(entry) is RewindEntry:
                    parent = entry.parent_id
                seq += 1
                time = entry.timestamp or time
                batch[at] = replace(entry, parent_id=parent, seq=seq, timestamp=time)
                parent = entry.id
            self.parent, self.seq = entry.id, seq
            yield batch


_NAMING: Final = frozenset({CondensationEntry, CompactionEntry, ForkPointEntry})
"""Entries that name others by their number in the source."""


def with_seqs(entry: Entry, seq_of: Callable[[int], int]) -> Entry:
    """An entry with the seqs of those that it names by number."""
    if isinstance(entry, CondensationEntry):
        lo, hi = entry.replaced
        absorbs = tuple(map(seq_of, entry.absorbs))
        return replace(entry, replaced=(seq_of(lo), seq_of(hi)), absorbs=absorbs)
    if isinstance(entry, CompactionEntry):
        return replace(entry, cleared=tuple(map(seq_of, entry.cleared)))
    if isinstance(entry, ForkPointEntry):
        return replace(entry, at=seq_of(entry.at))
    return entry


class _Comparison:
    """A source beside the log that it became.

    Attributes:
        places: the seqs of its entries in the log, the `import` entry's first.
        number: how many of its entries the log has.
        extra: what its last message there lacks, as a message.
        grew: whether there is more in the source.
        last: the id of its last entry in the log.
        closed: whether the log went back to the end of the main path behind it.
        reason: why the source cannot go on in this log; empty if it can.
    """

    def __init__(self, fd: int, found: Imported) -> None:
        self.places: list[int] = []
        self.number = 0
        self.extra: tuple[Entry, ...] = ()
        self.grew = False
        self.last = ""
        self.closed = False
        self.reason = ""
        self._was_longer = False  # the last message of the source is the first part of one here
        self._fd = fd
        self._names = Chain(found.facts.source_id)
        self._there = _entries(fd)
        self._next = next(self._there, None)
        self._compare(found.entries)

    def _compare(self, entries: Iterator[Entry]) -> None:
        self._pass_until(self._names.import_id)
        if self._next is None:
            self.reason = "the session here does not tell how it was imported"
            return
        self.places.append(self._next.entry.seq)
        self._step()
        for entry in entries:
            if entry.id == self._passing("end"):
                continue
            self._pass_until(entry.id)
            if self.reason:
                return
            if self._next is None or self.extra:
                self.grew = True
                break
            if self._was_longer or not self._agrees(entry):
                self.reason = _OTHERWISE
                return
        else:
            self.grew = bool(self.extra)
            if not self.grew:
                return  # all of it is here, whatever came behind
        while self._next is not None and not self.reason:
            self._pass()

    def _pass_until(self, name: str) -> None:
        """Pass over what did not come from the source."""
        while self._next is not None and self._next.entry.id != name and not self.reason:
            self._pass()

    def _pass(self) -> None:
        assert self._next is not None
        entry = self._next.entry
        if entry.id == self._passing("end"):
            self.closed = True
        elif entry.id == self._passing("back"):
            self.closed = False
        elif entry.turn_id is not None or (isinstance(entry, _OWN) and self.places):
            self.reason = _OTHERWISE if _came_in(entry) else "the session here has turns of its own"
        self._step()

    def _passing(self, what: str) -> str:
        """The id of a rewind that stands here for the end of the source only."""
        return self._names.passing_id(what, self.number)

    def _step(self) -> None:
        self._next = next(self._there, None)

    def _agrees(self, entry: Entry) -> bool:
        """Whether the log has an entry of the source, perhaps only the first part of a message."""
        assert self._next is not None
        there = self._next
        seq_of = self.places.__getitem__
        try:
            named = with_seqs(entry, seq_of)
        except IndexError:
            return False
        placed = replace(
            named,
            parent_id=there.entry.parent_id,
            seq=there.entry.seq,
            timestamp=named.timestamp or there.entry.timestamp,
        )
        self._step()
        agrees = encode(placed) == there.line + b"\n"
        if not agrees and isinstance(entry, MessageEntry) and isinstance(there.entry, MessageEntry):
            agrees = self._begins(entry, there.entry)
        self.places.append(there.entry.seq)
        self.number += 1
        self.last = self.last if self.extra else there.entry.id
        self.closed = False
        return agrees

    def _begins(self, entry: MessageEntry, there: MessageEntry) -> bool:
        """Whether the log has the first blocks of a message, and what comes then."""
        wanted, content = entry.message.content, there.message.content
        self.last = there.id
        while len(content) < len(wanted) and self._next is not None:
            more = self._next.entry
            if isinstance(more, MessageEntry):
                if more.id != _rest_id(entry.id, len(content)):
                    break
                self.last = more.id
                content += more.message.content
            elif isinstance(more, _OWN):
                break
            self._step()
        both = min(len(wanted), len(content))
        same_role = entry.message.role == there.message.role
        if not same_role or _bare(wanted[:both]) != _bare(content[:both]):
            return False
        self._was_longer = both < len(content)
        if len(content) < len(wanted):
            logged = replace(
                entry.message,
                content=wanted[len(content) :],
                usage=_more(there.message.usage, entry.message.usage),
            )
            name = _rest_id(entry.id, len(content))
            self.extra = (replace(entry, id=name, message=logged),)
        return True


def _came_in(entry: Entry) -> bool:
    """Whether a message came from a source: awl's own are in turns, but for the system text."""
    is_message = isinstance(entry, MessageEntry) and entry.message.role != "system"
    return is_message and entry.turn_id is None


def _bare(content: tuple[ContentBlock, ...]) -> list[ContentBlock]:
    """Blocks without what lies in files of their own, which may be gone by now."""
    return [
        replace(block, output=None) if isinstance(block, ToolResult) else block for block in content
    ]


def _rest_id(name: str, blocks: int) -> str:
    """The id of the rest of a message, of which so many blocks were there before."""
    return hashlib.sha256(f"{name}+{blocks}".encode()).hexdigest()[:8]


def _more(before: Usage | None, now: Usage | None) -> Usage | None:
    """What a request used beyond what was counted already."""
    if before is None or now is None:
        return now
    output = max(0, now.output - before.output)
    return Usage(input=0, output=output) if output else None


class _There(msgspec.Struct, frozen=True, gc=False):
    """An entry that a log has, and its line."""

    entry: Entry
    line: bytes


def _entries(fd: int) -> Iterator[_There]:
    """The readable entries of an open log."""
    for item in scan(fd):
        if not isinstance(item, Damage) and not isinstance(item.entry, Header | Outer):
            yield _There(item.entry, read_at(fd, item.end - item.start, item.start))


def _imported_as(path: Path, facts: Facts) -> tuple[str, int | str | None]:
    """The id of the session that a source became, and how far it was read the last time."""
    session_id, mark = "", None
    with path.open("rb") as file:
        for item in scan(file.fileno(), outer=True):
            entry = None if isinstance(item, Damage) else item.entry
            if isinstance(entry, Header) and not session_id:
                session_id = entry.id
            elif isinstance(entry, ImportEntry) and entry.source == facts.source:
                mark = entry.through
    return session_id, mark


def _imported(logs: Iterable[Path]) -> dict[tuple[str, str], list[Path]]:
    """The logs of sessions that were imported, by source. Forks of such sessions are none."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in logs:
        try:
            with path.open("rb") as file:
                header, entry = (decode(file.readline(_CHUNK)) for _ in range(2))
        except (OSError, BadLine):
            continue
        if isinstance(header, Header) and not header.forked_from and isinstance(entry, ImportEntry):
            name = entry.source_id or entry.source_path
            if name:
                found.setdefault((entry.source, name), []).append(path)
    return found


def mark_of(source: Path) -> str:
    """How far a source goes: its size and what its end looks like.

    Raises:
        NoFile, OSError: it cannot be read.
    """
    check_is_file(source)
    with source.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        digest = hashlib.sha256(file.read(_TAIL)).hexdigest()
    return f"{size}-{digest[:16]}"


def _header(facts: Facts, cwd: str) -> Header:
    model = ModelRef(facts.provider or facts.source, facts.model or UNKNOWN_MODEL)
    named = facts.cwd if "\0" not in facts.cwd else ""
    header = new_header(named or cwd, model, created=facts.created or None)
    if _of_windows(named) and os.name != "nt":  # there it is no path that could be resolved
        header = replace(header, cwd=named)
    return header


def _titles(facts: Facts) -> list[Entry]:
    name = Chain(facts.source_id).passing_id("title", 0)
    return [TitleEntry(id=name, title=facts.title)] if facts.title else []


def _record(job: _Job, facts: Facts) -> ImportEntry:
    """The entry that says where a session comes from. It is written before its messages can be
    counted."""
    return ImportEntry(
        id=Chain(facts.source_id).import_id,
        parent_id=None,
        timestamp=now(),
        seq=1,
        source=facts.source,
        source_id=facts.source_id or None,
        source_path=str(job.source.resolve()),
        through=job.mark,
        message_count=_UNCOUNTED,
    )


def _write_count(fd: int, start: int, first: ImportEntry, count: int) -> None:
    """Put the number of messages into the line of the `import` entry, which keeps its length."""
    line = encode(first)
    field = f'"messageCount":{_UNCOUNTED}'.encode()
    counted = f'"messageCount":{count:{len(str(_UNCOUNTED))}}'.encode()
    line = line.replace(field, counted)
    os.lseek(fd, start, os.SEEK_SET)
    write_all(fd, line)
    os.lseek(fd, 0, os.SEEK_END)


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    while batch := list(islice(entries, _BATCH)):
        yield batch


def _lines(strung: Strung, tally: Tally) -> Iterator[bytes]:
    """The lines of entries, many at a time, while they are counted."""
    for batch in strung.batches():
        tally.take(batch)
        yield encode_many(batch)


def _watched(entries: Iterator[Entry], found: Imported, progress: Progress) -> Iterator[Entry]:
    for number, entry in enumerate(entries):
        if number % 256 == 0:
            progress(found.at(), found.size)
        yield entry
    progress(found.size, found.size)
