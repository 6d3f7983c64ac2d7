"""What the entries from the root to the leaf fold into: the conversation, and what of it is open.

`Path.extend` is the only place that says what an entry does to it, for what was just written, for
what is replayed in one pass, and for a path that is walked again after a rewind.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Literal, cast

import msgspec

from awl.conversation import (
    ContentBlock,
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
    CompactionEntry,
    CondensationEntry,
    Entry,
    GapEntry,
    ImportEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialBlock,
    PartialEntry,
    RewindEntry,
    Summary,
    ToolCallEntry,
    ToolResultEntry,
)
from awl.log.line import Outer, Skimmed
from awl.table import NO_USERS, ROOT, SYSTEM, WHOLE, Shape, Table

NO_MODEL = ModelRef("", "")

CUT_SHORT = frozenset({"aborted", "error"})
"""The stop reasons of an answer that is not whole."""


_LOOKED_AT = re.compile(re.escape(bytes((WHOLE,))) + b"|" + re.escape(bytes((SYSTEM,))))


class Call(msgspec.Struct, eq=False, gc=False):
    """A tool call on the path, and what the log knows of it.

    `position` is that of the message that made it, `number` its place among the calls of that
    message. `live`: awl recorded its turn as it happened. `cut`: a fork or a rewind came before its
    batch was complete. `until` is the position of the next prompt. `recorded` is a result that was
    logged while others were open; `result` is the one in the user message, which is what a model
    saw; `answered_seq` is that of the one that counts.
    """

    use: ToolUse
    position: int
    seq: int
    number: int
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


ItemKind = Literal["message", "partial", "summary", "import", "note", "gap"]


class Item(msgspec.Struct, frozen=True, gc=False):
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


class Path:
    """What a path folds into.

    `runs` are the stretches [first, stop) of positions that it is made of, root first. `asked` is
    the active model; `submitted` whom the last user message went to, which is whom an answer
    belongs to. `ranges` are the accepted condensations: lo, hi and the entry's position.

    Args:
        table: the entries of the log.
        gaps: what is said where something is missing, by the position that follows it.
        model: whom the first request goes to.
        forked_at: up to which seq the entries come from the parent session; 0 when it is no fork.
    """

    def __init__(
        self, table: Table, gaps: Mapping[int, str], model: ModelRef, forked_at: int
    ) -> None:
        self._table = table
        self._gaps = gaps
        self._forked_at = forked_at
        self.runs: list[tuple[int, int]] = []
        self.items: list[Item] = []
        self.asked = self.submitted = model
        self.thinking_level: str | None = None
        self.cleared: set[int] = set()
        self.ranges: list[tuple[int, int, int]] = []
        self.findings: list[Finding] = []
        # The calls that have no result, by id: those made since the last prompt, and older ones.
        self._open: dict[str, Call | list[Call]] = {}
        self._left_open: dict[str, Call | list[Call]] = {}
        self._partials: list[PartialBlock] = []
        self._partial_at = ROOT
        self._placed: set[int] = set()  # condensations whose summary stands in its place
        self._absorbed: set[int] = set()  # and those that have none any more

    # -- folding ---------------------------------------------------------------------------------

    @classmethod
    def walked(
        cls,
        table: Table,
        gaps: Mapping[int, str],
        model: ModelRef,
        forked_at: int,
        condensations: Iterable[int],
    ) -> Path:
        """The path that leads to the last entry. `condensations` are the positions of all."""
        path = cls(table, gaps, model, forked_at)
        runs = table.runs_to(len(table) - 1)
        path._accept(condensations, runs)
        for first, stop in runs:
            path.extend(first, stop)
        return path

    @property
    def tip(self) -> int:
        """The position that the path leads to; `ROOT` when it is empty."""
        return self.runs[-1][1] - 1 if self.runs else ROOT

    def holds(self, position: int) -> bool:
        """Whether an entry is on the path."""
        return _hold(self.runs, position)

    def extend(self, first: int, stop: int) -> None:
        """Fold the entries [first, stop), each of which follows the one before it."""
        self._join(first, stop)
        for at, end, seq in self._pieces(first, stop):
            self._piece(at, end, seq)

    def follow(self) -> None:
        """Fold the last entry of the log."""
        last = len(self._table) - 1
        self._join(last, last + 1)
        self._piece(last, last + 1, self._table.seqs.last)

    def _join(self, first: int, stop: int) -> None:
        if self.runs and self.runs[-1][1] == first:
            self.runs[-1] = self.runs[-1][0], stop
        else:
            self.runs.append((first, stop))

    def _piece(self, first: int, stop: int, seq: int) -> None:
        replaced_by = self._replaced_by(seq) if self.ranges else None
        if replaced_by is None and first in self._gaps:
            self._gap(self._gaps[first], first, seq)
        if seq > self._forked_at > 0:
            self._cut(self._forked_at)
        if replaced_by is None:
            self._fold(first, seq, self._table.whole(first, stop))
        else:
            self._replace(first, stop, replaced_by)

    def _pieces(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Stretches [first, stop) of positions with the first one's seq, in which seqs grow by one
        and no gap, range or fork begins or ends."""
        if not (self.ranges or self._gaps or self._forked_at):
            yield from self._table.seqs.ramps(first, stop)
            return
        gaps = sorted(at for at in self._gaps if first < at < stop)
        for at, end, seq in self._table.seqs.ramps(first, stop):
            last = seq + end - at - 1
            edges = {at, end}
            edges.update(gaps[bisect_right(gaps, at) : bisect_right(gaps, end - 1)])
            if seq <= self._forked_at < last:
                edges.add(at + self._forked_at + 1 - seq)
            for lo, hi, _ in self.ranges[max(0, self._range_at(seq)) :]:
                if lo > last:
                    break
                edges.update(at + edge - seq for edge in (lo, hi + 1) if seq < edge <= last)
            for one, other in pairwise(sorted(edges)):
                yield one, other, seq + one - at

    def _fold(self, first: int, seq: int, entries: list[Entry]) -> None:
        """Fold whole entries that no summary stands for.

        All entries of a session that is resumed come by here, so it calls nothing for what there is
        most of: answers, calls and results that come one after the other.
        """
        items, opened = self.items, self._open
        asked, submitted = self.asked, self.submitted
        provider, model, _ = asked
        ahead = seq - first
        for position, entry in zip(range(first, first + len(entries)), entries, strict=True):
            if type(entry) is MessageEntry:
                logged = entry.message
                role, content = logged.role, logged.content
                calls: tuple[Call, ...] = ()
                if self._partials:
                    self._end_partials(role)
                if role == "user":
                    if entry.provider != provider or entry.model != model:
                        asked = self.asked = asked_by(asked, entry)
                        provider, model, _ = asked
                    if submitted is not asked:
                        submitted = self.submitted = asked
                    words = not content
                    for block in content:
                        if type(block) is ToolResult:
                            call = opened.pop(block.tool_use_id, None)
                            if type(call) is Call:
                                call.result = block
                                call.answered_seq = position + ahead
                            else:
                                if call is not None:
                                    opened[block.tool_use_id] = call
                                self._answer(block, position + ahead)
                        else:
                            words = True
                    if words and opened:
                        self._end_turn(position)
                elif role == "assistant" and logged.stop_reason not in CUT_SHORT:
                    for block in content:
                        if type(block) is ToolUse:
                            live = entry.turn_id is not None
                            call = Call(block, position, position + ahead, len(calls), live)
                            calls = (*calls, call) if calls else (call,)
                            if block.id in opened:
                                call = [*_flat(opened[block.id]), call]
                            opened[block.id] = call
                message, reason = Message(role, content), logged.stop_reason
                items.append(
                    Item("message", message, position, position + ahead, submitted, reason, calls)
                )
            elif type(entry) is ToolResultEntry:
                call = opened.get(entry.tool_use_id)
                if type(call) is Call and call.recorded is None:
                    call.recorded = entry
                    call.answered_seq = position + ahead
                elif call is not None or self._left_open:
                    self._record(entry, position + ahead)
            elif type(entry) is not ToolCallEntry:
                self._other(entry, position, position + ahead)
                asked, submitted = self.asked, self.submitted
                provider, model, _ = asked

    def _other(self, entry: Entry, position: int, seq: int) -> None:
        """Fold an entry of a type that there are few of."""
        self._change(entry)
        if isinstance(entry, PartialEntry):
            if not self._partials:
                self._partial_at = position
            self._partials.extend(entry.content)
        elif isinstance(entry, ImportEntry) and entry.source == "legacy":
            message = text_message("system", import_text(entry))
            self.items.append(Item("import", message, position, seq, self.asked))
        elif isinstance(entry, NoteEntry):
            said = Message("user", (Text(text=entry.text), *entry.images))
            self.items.append(Item("note", said, position, seq, self.asked))
        elif isinstance(entry, GapEntry):
            self._gap(f"[awl: {gap_text(entry)}]", position, seq)

    def _change(self, entry: Entry) -> None:
        """What an entry changes even if a summary stands for it."""
        if isinstance(entry, RewindEntry):
            self._cut()
        elif isinstance(entry, ModelChangeEntry):
            self.asked = ModelRef(entry.provider, entry.model, entry.endpoint)
            self.thinking_level = entry.thinking_level
        elif isinstance(entry, CompactionEntry):
            self.cleared.update(entry.cleared)

    def _gap(self, text: str, position: int, seq: int) -> None:
        self.items.append(Item("gap", text_message("system", text), position, seq, self.asked))
        self.submitted = NO_MODEL  # what is lost may say whom the next answer comes from

    def _cut(self, up_to: int | None = None) -> None:
        """A rewind or a fork comes before these calls are answered."""
        for calls in self._open.values():
            for call in _flat(calls):
                if up_to is None or call.seq <= up_to:
                    call.cut = True

    def _end_turn(self, position: int) -> None:
        """A prompt ends the wait for what is not answered."""
        for name, calls in self._open.items():
            for call in _flat(calls):
                call.until = position
            self._left_open[name] = [*_flat(self._left_open.get(name, [])), *_flat(calls)]
        self._open.clear()

    def _answer(self, result: ToolResult, seq: int) -> None:
        """A result for whichever open call has its id."""
        name = result.tool_use_id
        for open_calls in (self._open, self._left_open):
            found = _flat(open_calls.get(name, []))
            if found:
                call = _nearest(found)
                call.result, call.answered_seq = result, seq
                others = [other for other in found if other is not call]
                if others:
                    open_calls[name] = others
                else:
                    del open_calls[name]
                return

    def _record(self, entry: ToolResultEntry, seq: int) -> None:
        """A call has ended while others are open."""
        name = entry.tool_use_id
        left, opened = self._left_open.get(name, []), self._open.get(name, [])
        found = [call for call in (*_flat(left), *_flat(opened)) if call.recorded is None]
        if found:
            call = _nearest(found)
            call.recorded, call.answered_seq = entry, seq

    def _end_partials(self, role: Role) -> None:
        """A message ends what had streamed before it: an answer voids it, any other proves that it
        was cut short."""
        if role != "assistant":
            self.items.append(self._partial_item())
        self._partials = []

    def _partial_item(self) -> Item:
        joined: dict[int, list[PartialBlock]] = {}
        for block in self._partials:
            joined.setdefault(block.index, []).append(block)
        content: list[ContentBlock] = []
        for _, parts in sorted(joined.items()):
            if thinking := "".join(part.thinking for part in parts):
                content.append(Thinking(thinking=thinking))
            if text := "".join(part.text for part in parts):
                content.append(Text(text=text))
        at, message = self._partial_at, Message("assistant", tuple(content))
        return Item("partial", message, at, self._table.seqs[at], self.submitted, "aborted")

    # -- condensations ---------------------------------------------------------------------------

    def _accept(self, condensations: Iterable[int], runs: list[tuple[int, int]]) -> None:
        """Take the condensations of these runs that replace something, and no other's range."""
        for position in condensations:
            if not _hold(runs, position):
                continue
            (found,) = self._table.whole(position, position + 1)
            entry = cast(CondensationEntry, found)
            lo, hi = entry.replaced
            wrong = self._fault(lo, hi, self._table.seqs[position], runs)
            if wrong:
                line = self._table.places.line(position)
                self.findings.append(Finding(line, f"condensation of {lo}-{hi} {wrong}: ignored"))
            else:
                if entry.absorbs and self._will_stand(lo, hi, runs):
                    earlier = {self._table.seqs[at]: at for _, _, at in self.ranges}
                    self._absorbed.update(earlier[seq] for seq in entry.absorbs if seq in earlier)
                self.ranges.append((lo, hi, position))
        self.ranges.sort()

    def faults(
        self, ranges: Iterable[tuple[int, int]], seq: int, after: int, condensations: Iterable[int]
    ) -> list[str | None]:
        """Why condensations with seqs from `seq` on that follow the entry at position `after`
        cannot replace these seqs, one after another; None for each that can."""
        runs = self._table.runs_to(after)
        self._accept(condensations, runs)
        faults = []
        for lo, hi in ranges:
            faults.append(self._fault(lo, hi, seq, runs))
            self.ranges.append((lo, hi, after))
        return faults

    def _fault(self, lo: int, hi: int, seq: int, runs: list[tuple[int, int]]) -> str | None:
        """What is wrong with the range of a condensation with this seq."""
        if not lo <= hi < seq or next(self._within(lo, hi, runs), None) is None:
            return "covers nothing of this path"
        if any(lo <= other_hi and other_lo <= hi for other_lo, other_hi, _ in self.ranges):
            return "overlaps an earlier one"
        return None

    def _within(self, lo: int, hi: int, runs: list[tuple[int, int]]) -> Iterator[int]:
        """The positions of these runs whose seq is in [lo, hi]."""
        for first, stop in runs:
            for at, end, seq in self._table.seqs.ramps(first, stop):
                yield from range(max(at, at + lo - seq), min(end, at + hi + 1 - seq))

    def _will_stand(self, lo: int, hi: int, runs: list[tuple[int, int]]) -> bool:
        """Whether there is something in a range in whose place its summary stands: system text and
        other summaries stay where they are."""
        shapes = map(self._table.shape, self._within(lo, hi, runs))
        return any(shape.role != "system" and shape.type != "condensation" for shape in shapes)

    def _replaced_by(self, seq: int) -> int | None:
        """The position of the condensation that replaces this seq."""
        at = self._range_at(seq)
        return self.ranges[at][2] if at >= 0 and self.ranges[at][1] >= seq else None

    def _range_at(self, seq: int) -> int:
        """Which range is the last that begins at a seq or before; -1: none."""
        return bisect_right(self.ranges, (seq, 1 << 62, 0)) - 1

    def _replace(self, first: int, stop: int, condensation: int) -> None:
        """Fold entries that a summary stands for. Most of them were left on disk and are passed
        over; those in memory and system text are looked at."""
        codes = bytes(self._table.codes[first:stop])
        at = 0
        for found in _LOOKED_AT.finditer(codes):
            self._pass_over(codes[at : found.start()], condensation)
            at = found.end()
            self._replace_one(first + at - 1, condensation)
        self._pass_over(codes[at:], condensation)

    def _replace_one(self, position: int, condensation: int) -> None:
        table = self._table
        shape = table.shape(position)
        if shape.role == "system":
            self._fold(position, table.seqs[position], table.whole(position, position + 1))
        else:
            entry = table[position]
            if not isinstance(entry, Outer):
                self._change(entry)
            if not isinstance(entry, CondensationEntry):
                self._stand_for(shape, condensation)

    def _pass_over(self, codes: bytes, condensation: int) -> None:
        """Fold entries that were left on disk, none of which is system text."""
        shapes = self._table.shapes
        at = 0
        while at < len(codes) and (at == 0 or self._partials):
            self._stand_for(shapes[codes[at]], condensation)
            at += 1
        users = codes[at:].translate(None, NO_USERS)
        if len(set(users)) == 1:
            users = users[:1]
        for code, _ in groupby(users):
            self._stand_for(shapes[code], condensation)

    def _stand_for(self, shape: Shape, condensation: int) -> None:
        """Fold what is neither system text nor a condensation: the summary, once, and who is
        spoken to."""
        if shape.role == "user":
            self.asked = self.submitted = asked_by(self.asked, shape)
        if shape.role and self._partials:
            self._end_partials(cast(Role, shape.role))
        if condensation not in self._placed and condensation not in self._absorbed:
            self._placed.add(condensation)
            (entry,) = self._table.whole(condensation, condensation + 1)
            summary = summary_text(cast(CondensationEntry, entry).summary)
            seq, message = self._table.seqs[condensation], text_message("system", summary)
            self.items.append(Item("summary", message, condensation, seq, self.asked))

    # -- reading ---------------------------------------------------------------------------------

    def said(self) -> list[Item]:
        """The messages as they were said, with what stands for others. A copy."""
        return [*self.items, self._partial_item()] if self._partials else list(self.items)

    def open_calls(self) -> list[Call]:
        """The calls that no user message answers, in order."""
        everywhere = (*self._left_open.values(), *self._open.values())
        found = [call for calls in everywhere for call in _flat(calls)]
        return sorted(found, key=lambda call: (call.position, call.number))

    @property
    def interrupted(self) -> bool:
        """Whether the last turn has an open call or no finished answer."""
        if self._partials or self._open:
            return True
        for item in reversed(self.items):
            if item.message.role != "system":
                finished = item.message.role == "assistant" and not item.cut_short
                return not finished
        return False


def _hold(runs: list[tuple[int, int]], position: int) -> bool:
    """Whether a position is in one of these stretches."""
    at = bisect_right(runs, position, key=itemgetter(0)) - 1
    return at >= 0 and position < runs[at][1]


def asked_by(before: ModelRef, entry: MessageEntry | Outer | Skimmed | Shape) -> ModelRef:
    """Whom a user message was submitted to."""
    if not entry.provider and not entry.model:
        return before
    provider = entry.provider or before.provider
    # The endpoint is recorded with a model change; another provider's does not carry over.
    endpoint = before.endpoint if provider == before.provider else None
    return ModelRef(provider, entry.model or before.model, endpoint)


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


def _flat(calls: Call | list[Call]) -> list[Call]:
    """The open calls that have one id, of which there is hardly ever more than one."""
    return [calls] if isinstance(calls, Call) else calls


def _nearest(found: list[Call]) -> Call:
    """Of calls with one id, the one that a result belongs to: the first of the last message."""
    return next(call for call in found if call.position == found[-1].position)
