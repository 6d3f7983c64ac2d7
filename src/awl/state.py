"""The fold: what a session is, computed from its entries and from nothing else.

`State.add` takes the readable lines of a log in file order and keeps what is file-wide;
`State.settle` walks the path from the last entry to the root and folds it into the conversation.
`State.fold` does both for one entry that was just written. All three use one rule for each entry,
so a replayed state equals the live one. No clock, no config, no model and no tool is asked.
"""

from __future__ import annotations

import base64
import contextlib
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import msgspec

from awl.conversation import (
    ContentBlock,
    Conversation,
    Message,
    ModelRef,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.entries import (
    UNSTAMPED,
    CompactionEntry,
    CondensationEntry,
    CwdChangeEntry,
    Entry,
    GapEntry,
    Header,
    ImportEntry,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialBlock,
    PartialEntry,
    RewindEntry,
    Summary,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.log.line import Outer, OuterMessage, decode
from awl.log.scan import Damage, Line

ROOT = -1
"""The position before the first entry."""

LARGEST = 1 << 53
"""The largest seq and turn id that is believed: what every JSON reader holds exactly."""

NO_MODEL = ModelRef("", "")

CUT_SHORT = frozenset({"aborted", "error"})
"""The stop reasons of an answer that is not whole."""

CallStatus = Literal["finished", "unknown", "not_started"]


@dataclass(slots=True, eq=False)
class Call:
    """A tool call on the path, and what the log knows of it.

    `position` is that of the message that made it. `live`: awl recorded its turn as it happened.
    `cut`: a fork or a rewind came before its batch was complete. `until` is the position of the
    next prompt. `recorded` is a result that was logged while others were open; `result` is the one
    in the user message, which is what a model saw; `answered_seq` is that of the one that counts.
    """

    use: ToolUse
    position: int
    seq: int
    live: bool
    cut: bool = False
    until: int | None = None
    recorded: ToolResultEntry | None = None
    result: ToolResult | None = None
    answered_seq: int = 0

    def answer(self) -> ToolResult | None:
        """The real result, wherever it was recorded."""
        if self.result is not None or self.recorded is None:
            return self.result
        entry = self.recorded
        return ToolResult(
            tool_use_id=entry.tool_use_id,
            content=entry.content,
            images=entry.images,
            is_error=entry.is_error,
            duration_ms=entry.duration_ms,
            output=entry.output,
        )


ItemKind = Literal["message", "partial", "summary", "import", "gap", "note"]


@dataclass(slots=True, frozen=True)
class Item:
    """One message of the conversation and where it comes from.

    `asked` is whom the request was submitted to that an assistant message answers, or that a user
    message made.
    """

    kind: ItemKind
    message: Message
    position: int
    seq: int
    asked: ModelRef
    stop_reason: str | None = None
    calls: tuple[Call, ...] = ()

    @property
    def cut_short(self) -> bool:
        """Whether it is an answer that was cancelled or broke off: none of its calls ran."""
        return self.stop_reason in CUT_SHORT


class Finding(msgspec.Struct, frozen=True):
    """Something in the log that is not as awl writes it, although it can be read."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(slots=True)
class Tokens:
    """Sums of usage: `own` requests of this session, and those `inherited` from a fork's parent."""

    own_input: int = 0
    own_output: int = 0
    inherited_input: int = 0
    inherited_output: int = 0


@dataclass(slots=True)
class _Path:
    """What the entries from the root to the leaf fold into.

    `asked` is the active model; `submitted` whom the last user message went to, which is whom an
    answer belongs to. `ranges` are the accepted condensations: lo, hi and the entry's position;
    `placed` those whose summary stands in its place, and `absorbed` those that have none any more.
    """

    positions: list[int] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    asked: ModelRef = NO_MODEL
    submitted: ModelRef = NO_MODEL
    thinking_level: str | None = None
    open_calls: list[Call] = field(default_factory=list)
    partials: list[PartialBlock] = field(default_factory=list)
    partial_at: int = ROOT
    cleared: set[int] = field(default_factory=set)
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    placed: set[int] = field(default_factory=set)
    absorbed: set[int] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)


def _unreadable(start: int, end: int) -> bytes:
    raise LookupError("this state was built without its file")


class State:
    """A session as its log tells it.

    Positions count the readable entries in file order, from 0; `ROOT` is before them all.
    `read` gives bytes [start, end) of the log, for bodies that were left on disk.
    """

    def __init__(
        self, header: Header | None = None, read: Callable[[int, int], bytes] = _unreadable
    ) -> None:
        self.header = header
        self.read = read
        self.entries: list[Entry | Outer] = []
        self.parents: list[int] = []
        self.seqs: list[int] = []
        self.lines = array("Q")
        self.starts = array("Q")
        self.ends = array("Q")
        self.damage: list[Damage] = []
        self.findings: list[Finding] = []
        self.gaps: dict[int, str] = {}
        self._marked: list[int] = []  # where a repair left a mark for what it could not read
        self.started: set[str] = set()
        self.labels: dict[str, str] = {}
        self.given_title: str | None = None
        self.changed_cwd: str | None = None
        self.tokens = Tokens()
        self.message_count = 0
        self.turn = 0
        self.updated = header.timestamp if header else ""
        self.lost = 0
        self._last_seq = 0
        self._skipped = 0  # seqs that a writer passed over for lines that recovery had cut
        self._unread_since = 0
        self._latest: dict[str, int] = {}
        self._repeated: set[tuple[str, int]] = set()
        self._damaged_before: list[int] = []  # for each damage, how many entries precede it
        self.last_submitted = NO_MODEL
        self._bridges: dict[str, tuple[int, str]] = {}
        self._explained: set[int] = set()  # damage that held a parent which is accounted for
        self._path = _Path()

    # -- folding ---------------------------------------------------------------------------------

    def add(self, line: Line | Damage) -> int | None:
        """Take in the next line of the file. Returns its position if it is a new entry."""
        if isinstance(line, Damage):
            self.damage.append(line)
            self._damaged_before.append(len(self.entries))
            self._unread_since += line.acknowledged
            return None
        entry = line.entry
        if isinstance(entry, Header):
            if self.header is None and not self.entries:
                self.header = entry
                self.updated = entry.timestamp
            elif line.start:
                self._find(line.line, "another session header: ignored")
            return None
        position = len(self.entries)
        known = self._latest.get(entry.id)
        expected = self.next_seq
        seq = entry.seq if 0 < entry.seq <= LARGEST else expected
        if known is not None:
            if self.seqs[known] == seq or (entry.id, seq) in self._repeated:
                self._find(line.line, f"entry {entry.id} (seq {seq}) again: ignored")
                return None
            self._repeated.add((entry.id, self.seqs[known]))
        if seq <= self._last_seq:
            self._find(line.line, f"seq {seq} does not grow (after {self._last_seq})")
        self.parents.append(self._parent(entry, position, line.line))
        if seq > expected and position not in self.gaps:
            self._skipped += seq - expected
        self.entries.append(entry)
        self.seqs.append(seq)
        self.lines.append(line.line)
        self.starts.append(line.start)
        self.ends.append(line.end)
        self._latest[entry.id] = position
        self._last_seq = max(self._last_seq, seq)
        self._unread_since = 0
        self._note(entry, seq)
        return position

    def settle(self, lost_lines: int = 0) -> None:
        """Fold the path that ends in the last entry; `lost_lines` as recovery counted them.

        A line that was cut off was passed over by the append after it: only those that no append
        followed count still.
        """
        self.lost = max(0, lost_lines - self._skipped)
        self._walk()

    def fold(self, line: Line) -> None:
        """Take in an entry that was just written to the end of the file."""
        self.lost = 0
        leaf = self.leaf
        position = self.add(line)
        if position is None:
            return
        path = self._path
        if self.parents[position] == leaf and not isinstance(
            self.entries[position], CondensationEntry
        ):
            path.positions.append(position)
            self._step(path, position)
        else:
            self._walk()

    def _find(self, line: int, text: str) -> None:
        self.findings.append(Finding(line, text))

    def _parent(self, entry: Entry | Outer, position: int, line: int) -> int:
        name = entry.parent_id
        if name is None:
            return ROOT
        if name == UNSTAMPED:
            return position - 1
        found = self._latest.get(name)
        if found is not None:
            return found
        if name not in self._bridges:
            self._bridges[name] = self._bridge(entry, position, line)
        bridge, text = self._bridges[name]
        self.gaps[position] = text
        return bridge

    def _bridge(self, entry: Entry | Outer, position: int, line: int) -> tuple[int, str]:
        """Where an entry is attached whose parent cannot be found, and what is said of the gap.

        All entries but a rewind follow the one written before them, so what they name is missing
        right before them and nothing readable may be hidden. What a rewind names can lie in any
        bad line that is not known to hold another entry.
        """
        rewind = isinstance(entry, RewindEntry)
        for index in range(len(self.damage) - 1, -1, -1):
            before = self._damaged_before[index]
            if not rewind and before < position:
                break
            if self.damage[index].acknowledged and index not in self._explained:
                self._explained.add(index)
                return before - 1, _gap_text(self.damage[index])
        if not rewind:
            self._find(line, "the entry before it is missing")
            return position - 1, "[awl: an entry is missing from the log here]"
        self._find(line, "the entry that it goes back to is missing")
        prompt = self._last_prompt()
        at = position - 1 if prompt == ROOT else self.parents[prompt]
        return at, "[awl: the point gone back to is missing from the log]"

    def _last_prompt(self) -> int:
        for position in range(len(self.entries) - 1, ROOT, -1):
            entry = self.entries[position]
            if entry_type(entry) == "message":
                body = self.body(position)
                if isinstance(body, MessageEntry) and is_prompt(body.message.said()):
                    return position
        return ROOT

    def _note(self, entry: Entry | Outer, seq: int) -> None:
        """What counts wherever in the tree it stands."""
        if entry.turn_id is not None and entry.turn_id <= LARGEST:
            self.turn = max(self.turn, entry.turn_id)
        kind = entry_type(entry)
        if kind == "message":
            self.message_count += 1
        if kind in ("message", "toolCall", "toolResult", "rewind"):
            self.updated = entry.timestamp or self.updated
        usage: Usage | None = None
        if kind == "message":
            logged = _logged(entry)
            usage = logged.usage
            if logged.role == "user":
                self.last_submitted = _asked(self.last_submitted, entry)
        elif isinstance(entry, CondensationEntry):
            usage = entry.usage
        elif isinstance(entry, GapEntry):
            self._marked.append(len(self.entries) - 1)
        elif isinstance(entry, ToolCallEntry):
            self.started.add(entry.tool_use_id)
        elif isinstance(entry, TitleEntry):
            self.given_title = entry.title
        elif isinstance(entry, LabelEntry):
            self.labels[entry.target_id] = entry.label
        elif isinstance(entry, CwdChangeEntry):
            self.changed_cwd = _directory(entry.cwd, entry.cwd_bytes)
        if usage is not None:
            if seq <= self.forked_at:
                self.tokens.inherited_input += usage.input
                self.tokens.inherited_output += usage.output
            else:
                self.tokens.own_input += usage.input
                self.tokens.own_output += usage.output

    def _walk(self) -> None:
        path = _Path(asked=self._header_model(), submitted=self._header_model())
        position = self.leaf
        while position != ROOT:
            path.positions.append(position)
            position = self.parents[position]
        path.positions.reverse()
        self._accept_ranges(path)
        for position in path.positions:
            self._step(path, position)
        self._path = path

    def _accept_ranges(self, path: _Path) -> None:
        seqs: list[int] | None = None
        for position in path.positions:
            entry = self.entries[position]
            if not isinstance(entry, CondensationEntry):
                continue
            if seqs is None:
                seqs = sorted(self.seqs[at] for at in path.positions)
            lo, hi = entry.replaced
            wrong = _range_fault(lo, hi, self.seqs[position], seqs, path.ranges)
            if wrong:
                line = self.lines[position]
                path.findings.append(Finding(line, f"condensation of {lo}-{hi} {wrong}: ignored"))
            else:
                if entry.absorbs and self._will_stand(path, lo, hi):
                    earlier = {self.seqs[at]: at for _, _, at in path.ranges}
                    path.absorbed.update(earlier[seq] for seq in entry.absorbs if seq in earlier)
                path.ranges.append((lo, hi, position))
        path.ranges.sort()

    def _will_stand(self, path: _Path, lo: int, hi: int) -> bool:
        """Whether there is something in a range in whose place its summary stands."""
        return any(
            lo <= self.seqs[position] <= hi and self._can_be_replaced(position)
            for position in path.positions
        )

    def _can_be_replaced(self, position: int) -> bool:
        """System text and other summaries stay where they are."""
        entry = self.entries[position]
        if isinstance(entry, CondensationEntry):
            return False
        return entry_type(entry) != "message" or _logged(entry).role != "system"

    def range_faults(self, ranges: Sequence[tuple[int, int]], after: int) -> list[str | None]:
        """Why condensations that follow the entry at position `after`, one after another, cannot
        replace these seqs; None for each that can."""
        path = _Path(positions=self.path_to(after))
        self._accept_ranges(path)
        seqs = sorted(self.seqs[at] for at in path.positions)
        faults = []
        for lo, hi in ranges:
            faults.append(_range_fault(lo, hi, self.next_seq, seqs, path.ranges))
            path.ranges.append((lo, hi, after))
        return faults

    def _step(self, path: _Path, position: int) -> None:
        """Fold one entry of the path. The only place that says what an entry does to it."""
        entry = self.entries[position]
        seq = self.seqs[position]
        condensation = self._condensation(path, seq) if path.ranges else None
        if condensation is None and position in self.gaps:
            gap = text_message("system", self.gaps[position])
            path.items.append(Item("gap", gap, position, seq, path.asked))
            path.submitted = NO_MODEL  # what is lost may say whom the next answer comes from
        for call in path.open_calls:
            if call.until is None and (
                isinstance(entry, RewindEntry) or seq > self.forked_at >= call.seq
            ):
                call.cut = True
        if isinstance(entry, ModelChangeEntry):
            path.asked = ModelRef(entry.provider, entry.model, entry.endpoint)
            path.thinking_level = entry.thinking_level
        elif isinstance(entry, CompactionEntry):
            path.cleared.update(entry.cleared)
        kind = entry_type(entry)
        if condensation is not None:
            self._replaced(path, position, condensation)
        elif kind == "message":
            self._message(path, position)
        elif kind == "partial":
            body = self._body_kept(position)
            assert isinstance(body, PartialEntry)
            if not path.partials:
                path.partial_at = position
            path.partials.extend(body.content)
        elif kind == "toolResult":
            self._recorded(path, self._body_kept(position), seq)
        elif isinstance(entry, ImportEntry) and entry.source == "legacy":
            message = text_message("system", import_text(entry))
            path.items.append(Item("import", message, position, seq, path.asked))
        elif isinstance(entry, NoteEntry):
            said = Message("user", (Text(text=entry.text), *entry.images))
            path.items.append(Item("note", said, position, seq, path.asked))
        elif isinstance(entry, GapEntry):
            gap = text_message("system", f"[awl: {gap_text(entry)}]")
            path.items.append(Item("gap", gap, position, seq, path.asked))
            path.submitted = NO_MODEL

    def _condensation(self, path: _Path, seq: int) -> int | None:
        """The position of the condensation that replaces this seq."""
        index = bisect_right(path.ranges, (seq, 1 << 62, 0)) - 1
        if index >= 0 and path.ranges[index][1] >= seq:
            return path.ranges[index][2]
        return None

    def _replaced(self, path: _Path, position: int, condensation: int) -> None:
        """Fold an entry that a summary stands for. System text and other summaries stay."""
        entry = self.entries[position]
        if isinstance(entry, CondensationEntry):
            return
        if entry_type(entry) == "message":
            role = _logged(entry).role
            if role == "system":
                self._message(path, position)
                return
            if role == "user":
                path.asked = path.submitted = _asked(path.asked, entry)
            self._end_partials(path, role)
        if condensation not in path.placed and condensation not in path.absorbed:
            path.placed.add(condensation)
            summary = cast(CondensationEntry, self.entries[condensation]).summary
            message = text_message("system", summary_text(summary))
            path.items.append(
                Item("summary", message, condensation, self.seqs[condensation], path.asked)
            )

    def _message(self, path: _Path, position: int) -> None:
        entry = self._body_kept(position)
        assert isinstance(entry, MessageEntry)
        logged = entry.message
        message = logged.said()
        self._end_partials(path, logged.role)
        calls: tuple[Call, ...] = ()
        if logged.role == "user":
            path.asked = path.submitted = _asked(path.asked, entry)
            for result in message.tool_results:
                self._answered(path, result, self.seqs[position])
            if is_prompt(message):
                for call in path.open_calls:
                    if call.until is None:
                        call.until = position
        elif logged.role == "assistant" and logged.stop_reason not in CUT_SHORT:
            seq = self.seqs[position]
            live = entry.turn_id is not None
            calls = tuple(Call(use, position, seq, live) for use in message.tool_uses)
            path.open_calls.extend(calls)
        path.items.append(
            Item(
                "message",
                message,
                position,
                self.seqs[position],
                path.submitted,
                logged.stop_reason,
                calls,
            )
        )

    def _end_partials(self, path: _Path, role: Role) -> None:
        """A message ends what had streamed before it: an answer voids it, any other proves that it
        was cut short."""
        if path.partials and role != "assistant":
            path.items.append(self._partial_item(path))
        path.partials = []

    def _answered(self, path: _Path, result: ToolResult, seq: int) -> None:
        call = _nearest(path.open_calls, result.tool_use_id)
        if call is not None:
            path.open_calls.remove(call)
            call.result, call.answered_seq = result, seq

    def _recorded(self, path: _Path, entry: Entry, seq: int) -> None:
        assert isinstance(entry, ToolResultEntry)
        waiting = [call for call in path.open_calls if call.recorded is None]
        call = _nearest(waiting, entry.tool_use_id)
        if call is not None:
            call.recorded, call.answered_seq = entry, seq

    def _partial_item(self, path: _Path) -> Item:
        joined: dict[int, list[PartialBlock]] = {}
        for block in path.partials:
            joined.setdefault(block.index, []).append(block)
        content: list[ContentBlock] = []
        for _, parts in sorted(joined.items()):
            if thinking := "".join(part.thinking for part in parts):
                content.append(Thinking(thinking=thinking))
            if text := "".join(part.text for part in parts):
                content.append(Text(text=text))
        return Item(
            "partial",
            Message("assistant", tuple(content)),
            path.partial_at,
            self.seqs[path.partial_at],
            path.submitted,
            "aborted",
        )

    def _header_model(self) -> ModelRef:
        if self.header is None:
            return NO_MODEL
        return ModelRef(self.header.provider, self.header.model, self.header.endpoint)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def leaf(self) -> int:
        """The position of the last entry; `ROOT` when there is none."""
        return len(self.entries) - 1

    @property
    def leaf_id(self) -> str | None:
        return self.entries[-1].id if self.entries else None

    @property
    def next_seq(self) -> int:
        """The seq of the next entry: no acknowledged one is ever used twice."""
        return self._last_seq + 1 + self._unread_since + self.lost

    @property
    def forked_at(self) -> int:
        """Up to which seq the entries come from the parent session; 0 when it is no fork."""
        return self.header.forked_from.seq if self.header and self.header.forked_from else 0

    @property
    def cwd(self) -> str:
        """The directory that the session belongs to."""
        if self.changed_cwd or self.header is None:
            return self.changed_cwd or ""
        return _directory(self.header.cwd, self.header.cwd_bytes)

    @property
    def active_model(self) -> ModelRef:
        """Whom the next request goes to: the last user message or model change on the path, else
        the header, else (it is damaged) the last user message of the file."""
        return self._path.asked if self._path.asked.provider else self.last_submitted

    @property
    def thinking_level(self) -> str | None:
        return self._path.thinking_level

    @property
    def items(self) -> list[Item]:
        """The messages on the path as they were said, with what stands for others. A copy."""
        path = self._path
        return [*path.items, self._partial_item(path)] if path.partials else list(path.items)

    @property
    def conversation(self) -> Conversation:
        return Conversation(tuple(item.message for item in self.items))

    @property
    def path(self) -> list[int]:
        """The positions from the root to the leaf. A copy."""
        return list(self._path.positions)

    @property
    def cleared(self) -> frozenset[int]:
        """The seqs whose tool output is no longer sent."""
        return frozenset(self._path.cleared)

    @property
    def condensed(self) -> list[tuple[int, int, int]]:
        """The ranges of seqs on the path that are sent as a summary, in order: lo, hi, and the
        position of their condensation. A copy."""
        return list(self._path.ranges)

    @property
    def open_calls(self) -> list[Call]:
        """The calls on the path that no user message answers."""
        return list(self._path.open_calls)

    @property
    def all_findings(self) -> list[Finding]:
        """What is readable but not as awl writes it: file-wide first, then on the path."""
        return [*self.findings, *self._path.findings]

    @property
    def interrupted(self) -> bool:
        """Whether the last turn on the path has an open call or no finished answer."""
        path = self._path
        if path.partials or any(call.until is None for call in path.open_calls):
            return True
        for item in reversed(path.items):
            if item.message.role != "system" and item.kind != "note":
                finished = item.message.role == "assistant" and not item.cut_short
                return not finished
        return False

    def prompts(self) -> Iterator[str]:
        """The words of the prompts in the file, in order."""
        for position, entry in enumerate(self.entries):
            kind = entry_type(entry)
            if kind == "import" or (kind == "message" and _logged(entry).role == "user"):
                yield from prompts_in(self.body(position))

    @property
    def first_prompt(self) -> str:
        """The words of the first prompt in the file; empty when there is none."""
        return next(self.prompts(), "")

    def call_status(self, call: Call) -> CallStatus:
        """What is known of a call.

        "Not started" needs proof: a turn that awl recorded, every line readable from the call to
        the next prompt or the end, and no start in the file.
        """
        if call.result is not None or call.recorded is not None:
            return "finished"
        at_end = call.until is None and self.leaf_is_in_fork
        proven = (
            call.live
            and not call.cut
            and not at_end
            and call.use.id not in self.started
            and self._all_readable(call.position, call.until)
        )
        return "not_started" if proven else "unknown"

    @property
    def leaf_is_in_fork(self) -> bool:
        """Whether a fork has nothing of its own yet: its parent's log goes on behind the cut."""
        return bool(self.forked_at) and self._last_seq <= self.forked_at

    def _all_readable(self, first: int, until: int | None) -> bool:
        last = len(self.entries) if until is None else until
        last_seq = self.next_seq if until is None else self.seqs[until]
        return (
            last_seq - self.seqs[first] == last - first
            and not any(first < mark < last for mark in self._marked)
            and not any(
                first < before <= last and damage.acknowledged
                for before, damage in zip(self._damaged_before, self.damage, strict=True)
            )
        )

    def find(self, entry_id: str) -> int | None:
        """The position of the last entry with this id."""
        return self._latest.get(entry_id)

    def body(self, position: int) -> Entry:
        """The whole entry at a position, read from the file if it was left there."""
        entry = self.entries[position]
        if not isinstance(entry, Outer):
            return entry
        return cast(Entry, decode(self.read(self.starts[position], self.ends[position])))

    def _body_kept(self, position: int) -> Entry:
        entry = self.entries[position] = self.body(position)
        return entry

    def path_to(self, position: int) -> list[int]:
        """The positions from the root to one entry."""
        found = []
        while position != ROOT:
            found.append(position)
            position = self.parents[position]
        return found[::-1]

    def between(self, lo: int, hi: int) -> Iterator[Entry]:
        """The entries whose seq lies in [lo, hi], in file order."""
        for position, seq in enumerate(self.seqs):
            if lo <= seq <= hi:
                yield self.body(position)


def _range_fault(
    lo: int, hi: int, seq: int, seqs: list[int], ranges: list[tuple[int, int, int]]
) -> str | None:
    """What is wrong with the range of a condensation with this seq, on a path with these seqs and
    ranges."""
    if not lo <= hi < seq or bisect_right(seqs, hi) == bisect_right(seqs, lo - 1):
        return "covers nothing of this path"
    if any(lo <= other_hi and other_lo <= hi for other_lo, other_hi, _ in ranges):
        return "overlaps an earlier one"
    return None


def _directory(cwd: str, cwd_bytes: str | None) -> str:
    """A directory as the log names it: by its bytes where they are not UTF-8."""
    if cwd_bytes:
        with contextlib.suppress(ValueError):
            return os.fsdecode(base64.b64decode(cwd_bytes, validate=True))
    return cwd


def entry_type(entry: Entry | Outer) -> str:
    """The type of an entry as the log names it."""
    if isinstance(entry, Outer):
        return entry.type
    return str(entry.__struct_config__.tag)


def prompts_in(entry: Entry) -> list[str]:
    """The words of the prompts that an entry holds: its own, or those of what was imported."""
    if isinstance(entry, MessageEntry) and is_prompt(entry.message.said()):
        return [entry.message.said().text]
    if isinstance(entry, ImportEntry):
        return [said.text for said in entry.messages if said.role == "user"]
    return []


def is_prompt(message: Message) -> bool:
    """Whether a user message carries a person's words, and not tool results alone."""
    return message.role == "user" and (
        not message.content or any(not isinstance(block, ToolResult) for block in message.content)
    )


def summary_text(summary: Summary) -> str:
    """A condensation's summary as a model and a person read it."""
    parts = [
        "Summary of the earlier part of this conversation. It is a record of the past, not a task."
    ]
    if summary.session_intent:
        parts.append(f"Intent: {summary.session_intent}")
    for title, lines in (
        ("Files modified", summary.files_modified),
        ("Decisions made", summary.decisions_made),
        ("Open questions", summary.open_questions),
        ("Next steps", summary.next_steps),
    ):
        if lines:
            parts.append("\n".join((f"{title}:", *(f"- {line}" for line in lines))))
    return "\n\n".join(parts)


def import_text(entry: ImportEntry) -> str:
    """A legacy conversation as a model and a person read it."""
    first = f"This session had {entry.message_count} prior messages before durable logging existed."
    return "\n\n".join((first, *(f"{said.role}: {said.text}" for said in entry.messages)))


def gap_text(entry: GapEntry) -> str:
    """What a person and a model are told of what a repair could not read."""
    lines = "a line" if entry.lines == 1 else f"{entry.lines} lines"
    size = f" ({entry.size} bytes)" if entry.size else ""
    return f"{lines} of the log{size} could not be repaired; what was said there is missing here"


def _gap_text(damage: Damage) -> str:
    return (
        f"[awl: line {damage.line} of the log ({damage.end - damage.start} bytes) is damaged;"
        " what it said is missing here]"
    )


def _nearest(calls: list[Call], tool_use_id: str) -> Call | None:
    """The call that a result belongs to: of the last message with one of that id, the first."""
    fitting = [call for call in calls if call.use.id == tool_use_id]
    return next((call for call in fitting if call.position == fitting[-1].position), None)


def _logged(entry: Entry | Outer) -> LoggedMessage | OuterMessage:
    """The message of an entry of that type, or what was decoded of it."""
    message = cast(MessageEntry | Outer, entry).message
    assert message is not None
    return message


def _asked(before: ModelRef, entry: Entry | Outer) -> ModelRef:
    """Whom a user message was submitted to."""
    entry = cast(MessageEntry | Outer, entry)
    if not entry.provider and not entry.model:
        return before
    provider = entry.provider or before.provider
    # The endpoint is recorded with a model change; another provider's does not carry over.
    endpoint = before.endpoint if provider == before.provider else None
    return ModelRef(provider, entry.model or before.model, endpoint)
