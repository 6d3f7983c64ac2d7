"""The fold: what a session is, computed from its entries and from nothing else.

`State.add` takes the readable lines of a log in file order and keeps what is file-wide;
`State.settle` folds the path from the root to the last entry into the conversation (`awl.path`).
`State.take` does both for many lines at once, `State.fold` for one entry that was just written. All
of them use one rule for each entry, so a replayed state equals the live one. No clock, no config,
no model and no tool is asked.
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from awl.conversation import Conversation, Message, ModelRef, ToolResult
from awl.entries import (
    UNSTAMPED,
    CondensationEntry,
    CwdChangeEntry,
    Entry,
    GapEntry,
    Header,
    ImportEntry,
    KnownEntry,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    PartialEntry,
    RewindEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.log.line import (
    REFUSED,
    Outer,
    OuterMessage,
    decode_outer,
    decode_roughly,
    skim,
)
from awl.log.scan import Batch, Damage, Line
from awl.path import (
    CUT_SHORT,
    NO_MODEL,
    Call,
    Finding,
    Item,
    ItemKind,
    Path,
    asked_by,
    gap_text,
    import_text,
    summary_text,
)
from awl.table import (
    ASSISTANT,
    PARTIAL,
    ROOT,
    SYSTEM,
    TAGS,
    TOOL_CALL,
    TOOL_RESULT,
    Column,
    NewIds,
    Ramp,
    Shape,
    Table,
)

__all__ = [
    "CUT_SHORT",
    "LARGEST",
    "NO_MODEL",
    "ROOT",
    "Call",
    "CallStatus",
    "Finding",
    "Item",
    "ItemKind",
    "State",
    "Tokens",
    "entry_type",
    "gap_text",
    "import_text",
    "is_prompt",
    "prompts_in",
    "summary_text",
]

LARGEST = 1 << 53
"""The largest seq and turn id that is believed: what every JSON reader holds exactly."""

CallStatus = Literal["finished", "unknown", "not_started"]


@dataclass(slots=True)
class Tokens:
    """Sums of usage: `own` requests of this session, and those `inherited` from a fork's parent."""

    own_input: int = 0
    own_output: int = 0
    inherited_input: int = 0
    inherited_output: int = 0

    def count(self, input_tokens: int, output_tokens: int, *, own: bool) -> None:
        if own:
            self.own_input += input_tokens
            self.own_output += output_tokens
        else:
            self.inherited_input += input_tokens
            self.inherited_output += output_tokens


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
        self.damage: list[Damage] = []
        self.findings: list[Finding] = []
        self.gaps: dict[int, str] = {}
        self.labels: dict[str, str] = {}
        self.given_title: str | None = None
        self.changed_cwd: str | None = None
        self.tokens = Tokens()
        self.message_count = 0
        self.turn = 0
        self.updated = header.timestamp if header else ""
        self.lost = 0
        self.last_submitted = NO_MODEL
        self._table = Table(read)
        self._last_id: str | None = None
        self._last_seq = 0
        self._skipped = 0  # seqs that a writer passed over for lines that recovery had cut
        self._unread_since = 0
        self._seen: set[tuple[str, int]] | None = None  # once a seq did not grow
        self._damaged_before: list[int] = []  # for each damage, how many entries precede it
        self._bridges: dict[str, tuple[int, str]] = {}
        self._explained: set[int] = set()  # damage that held a parent which is accounted for
        self._marked: list[int] = []  # where a repair left a mark for what it could not read
        self._condensations: list[int] = []
        self._started: set[str] = set()
        self._newly_started: list[str] = []
        self._path: Path | None = None  # None where it is to be walked anew

    # -- folding ---------------------------------------------------------------------------------

    def add(self, line: Line | Damage) -> int | None:
        """Take in the next line of the file. Returns its position if it is a new entry."""
        if isinstance(line, Damage):
            self.damage.append(line)
            self._damaged_before.append(len(self._table))
            self._unread_since += line.acknowledged
            return None
        entry = line.entry
        if isinstance(entry, Header):
            if self.header is None and not self._table:
                self.header = entry
                self.updated = entry.timestamp
                self._path = None
            elif line.start:
                self._find(line.line, "another session header: ignored")
            return None
        position = len(self._table)
        expected = self.next_seq
        seq = entry.seq if 0 < entry.seq <= LARGEST else expected
        if seq <= self._last_seq:  # only such a line can have been seen before
            if (entry.id, seq) in self._all_seen():
                self._find(line.line, f"entry {entry.id} (seq {seq}) again: ignored")
                return None
            self._find(line.line, f"seq {seq} does not grow (after {self._last_seq})")
        parent = self._parent(entry, position, line.line)
        if seq > expected and position not in self.gaps:
            self._skipped += seq - expected
        self._table.append(entry, seq, parent, line.line, line.start, line.end)
        if self._seen is not None:
            self._seen.add((entry.id, seq))
        self._last_id = entry.id
        self._last_seq = max(self._last_seq, seq)
        self._unread_since = 0
        self._note(entry, position, seq)
        return position

    def take(self, batch: Batch, *, skim: bool = False) -> None:
        """Take in the next lines of the file; with `skim`, most bodies stay there. A path that is
        folded up to the leaf stays so as long as what comes follows it."""
        at = base = 0
        rough: list[KnownEntry | Outer] = []
        while at < batch.count:
            if skim:
                at += self._skim_run(batch, at)
            else:
                if at - base >= len(rough):
                    base, rough = at, decode_roughly(batch.lines[at:], outer=False)
                    batch.release()
                at += self._take_run(batch, at, cast(list[Entry], rough[at - base :]))
            if at < batch.count:
                found = batch.one(at, outer=skim)
                if found is not None:
                    self._follow(self.add(found))
                at += 1

    def settle(self, lost_lines: int = 0) -> None:
        """Fold the path that ends in the last entry; `lost_lines` as recovery counted them.

        A line that was cut off was passed over by the append after it: only those that no append
        followed count still.
        """
        self.lost = max(0, lost_lines - self._skipped)
        if self._path is None:
            self._walk()

    def fold(self, line: Line) -> None:
        """Take in an entry that was just written to the end of the file."""
        self.lost = 0
        self._follow(self.add(line))
        if self._path is None:
            self._walk()

    def _take_run(self, batch: Batch, first: int, entries: list[Entry]) -> int:
        """Take in as many entries, of the lines from `first` on, as follow one another as awl
        writes them, and are of the types that there are most of. Returns how many those were."""
        run = _Run(self._last_id, self.next_seq, self.turn, self.last_submitted)
        run.entries(entries[: self._most(min(len(entries), batch.whole - first))])
        count = run.seq - self.next_seq
        if count:
            line, start, end = self._place(batch, first, count)
            self._table.extend(entries[:count], self.next_seq, line, start, end)
            if self._seen is not None:
                self._seen.update((entry.id, entry.seq) for entry in entries[:count])
            self._add_up(run, count, reversed(entries[:count]))
        return count

    def _skim_run(self, batch: Batch, first: int) -> int:
        """The same, but the bodies stay on disk."""
        lines = batch.lines[first : first + self._most(batch.whole - first)]
        run = _Run(self._last_id, self.next_seq, self.turn, self.last_submitted)
        run.skim(lines, self._table, plain=batch.plain)
        count = len(run.ids)
        if count:
            line, start, end = self._place(batch, first, count)
            self._table.extend_on_disk(run.codes, run.ids, self.next_seq, line, start, end)
            if self._seen is not None:
                self._seen.update(zip(run.ids, range(self.next_seq, run.seq), strict=True))
            self._add_up(run, count, map(_outer, reversed(lines[:count])))
        return count

    def _most(self, count: int) -> int:
        """How many entries may be taken in at once: a fork's own begin anew, and seqs end."""
        ends = self.forked_at if self.next_seq <= self.forked_at else LARGEST
        return max(0, min(count, ends + 1 - self.next_seq))

    def _place(self, batch: Batch, first: int, count: int) -> tuple[int, int, int]:
        """The number of the first of these lines, and the bytes [start, end) of all."""
        return batch.number + first, batch.start_of(first), batch.start_of(first + count)

    def _add_up(self, run: _Run, count: int, latest_first: Iterator[Entry | Outer]) -> None:
        """Note what a run of entries, which are in the table by now, adds up to."""
        own = self.next_seq > self.forked_at
        self.tokens.count(run.input_tokens, run.output_tokens, own=own)
        self._newly_started += run.started
        self.message_count += run.messages
        self.turn, self.last_submitted = run.turn, run.submitted
        for entry in latest_first:
            if entry.timestamp and entry_type(entry) != "partial":
                self.updated = entry.timestamp
                break
        self._last_id, self._last_seq = run.last_id, run.seq - 1
        self._unread_since = 0
        if self._path is not None:
            self._path.extend(len(self._table) - count, len(self._table))

    def _follow(self, position: int | None) -> None:
        """Fold an entry that was just taken in, if the path is folded up to it and leads on."""
        if position is None or self._path is None:
            return
        leads_on = self._table.parents.last == self._path.tip
        if not leads_on or position in self._condensations[-1:]:
            self._path = None
        else:
            self._path.follow()

    def _all_seen(self) -> set[tuple[str, int]]:
        if self._seen is None:
            self._seen = set(zip(self._table.ids, self._table.seqs, strict=True))
        return self._seen

    def _find(self, line: int, text: str) -> None:
        self.findings.append(Finding(line, text))

    def _parent(self, entry: Entry | Outer, position: int, line: int) -> int:
        name = entry.parent_id
        if name is None:
            return ROOT
        if name in (UNSTAMPED, self._last_id):
            return position - 1
        found = self._table.ids.find(name)
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
        for position in range(len(self._table) - 1, ROOT, -1):
            if self._table.shape(position).role == "user":
                body = self.body(position)
                if isinstance(body, MessageEntry) and is_prompt(body.message.said()):
                    return position
        return ROOT

    def _note(self, entry: Entry | Outer, position: int, seq: int) -> None:
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
                spoken = cast(MessageEntry | Outer, entry)
                self.last_submitted = asked_by(self.last_submitted, spoken)
        elif kind == "toolCall":
            self._newly_started.append(cast(str, cast(ToolCallEntry | Outer, entry).tool_use_id))
        elif isinstance(entry, CondensationEntry):
            usage = entry.usage
            self._condensations.append(position)
        elif isinstance(entry, GapEntry):
            self._marked.append(position)
        elif isinstance(entry, TitleEntry):
            self.given_title = entry.title
        elif isinstance(entry, LabelEntry):
            self.labels[entry.target_id] = entry.label
        elif isinstance(entry, CwdChangeEntry):
            self.changed_cwd = _directory(entry.cwd, entry.cwd_bytes)
        if usage is not None:
            self.tokens.count(usage.input, usage.output, own=seq > self.forked_at)

    def _walk(self) -> None:
        model = NO_MODEL
        if self.header is not None:
            model = ModelRef(self.header.provider, self.header.model, self.header.endpoint)
        self._path = Path.walked(self._table, self.gaps, model, self.forked_at, self._condensations)

    @property
    def _folded(self) -> Path:
        if self._path is None:
            self._walk()
        assert self._path is not None
        return self._path

    # -- reading ---------------------------------------------------------------------------------

    @property
    def entries(self) -> Table:
        """The entries by position, as far as they are in memory: at least their outer fields."""
        return self._table

    @property
    def seqs(self) -> Ramp:
        return self._table.seqs

    @property
    def parents(self) -> Ramp:
        """The position that each entry follows."""
        return self._table.parents

    @property
    def lines(self) -> Column:
        """The number of each entry's line."""
        return Column(self._table.places, 0)

    @property
    def starts(self) -> Column:
        """The byte at which each entry's line starts."""
        return Column(self._table.places, 1)

    @property
    def ends(self) -> Column:
        """The byte behind each entry's line, which is its newline if it has one."""
        return Column(self._table.places, 2)

    @property
    def read(self) -> Callable[[int, int], bytes]:
        """Gives bytes [start, end) of the log."""
        return self._table.read

    @read.setter
    def read(self, read: Callable[[int, int], bytes]) -> None:
        self._table.read = read

    @property
    def leaf(self) -> int:
        """The position of the last entry; `ROOT` when there is none."""
        return len(self._table) - 1

    @property
    def leaf_id(self) -> str | None:
        return self._last_id

    @property
    def next_seq(self) -> int:
        """The seq of the next entry: no acknowledged one is ever used twice."""
        return self._last_seq + 1 + self._unread_since + self.lost

    @property
    def started(self) -> set[str]:
        """The ids of the calls that were started, wherever in the tree."""
        self._started.update(self._newly_started)
        self._newly_started.clear()
        return self._started

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
        asked = self._folded.asked
        return asked if asked.provider else self.last_submitted

    @property
    def submitted(self) -> ModelRef:
        """Whom an answer would come from: the model that the last user message on the path went
        to."""
        return self._folded.submitted

    @property
    def thinking_level(self) -> str | None:
        return self._folded.thinking_level

    @property
    def items(self) -> list[Item]:
        """The messages on the path as they were said, with what stands for others. A copy."""
        return self._folded.said()

    @property
    def conversation(self) -> Conversation:
        return Conversation(tuple([item.message for item in self._folded.said()]))

    @property
    def path(self) -> list[int]:
        """The positions from the root to the leaf. A copy."""
        return [at for first, stop in self._folded.runs for at in range(first, stop)]

    def on_path(self, position: int) -> bool:
        """Whether an entry is on the path to the leaf."""
        return self._folded.holds(position)

    @property
    def cleared(self) -> frozenset[int]:
        """The seqs whose tool output is no longer sent."""
        return frozenset(self._folded.cleared)

    @property
    def condensed(self) -> list[tuple[int, int, int]]:
        """The ranges of seqs on the path that are sent as a summary, in order: lo, hi, and the
        position of their condensation. A copy."""
        return list(self._folded.ranges)

    def range_faults(self, ranges: Sequence[tuple[int, int]], after: int) -> list[str | None]:
        """Why condensations that follow the entry at position `after`, one after another, cannot
        replace these seqs; None for each that can."""
        path = Path(self._table, self.gaps, NO_MODEL, self.forked_at)
        return path.faults(ranges, self.next_seq, after, self._condensations)

    @property
    def open_calls(self) -> list[Call]:
        """The calls on the path that no user message answers."""
        return self._folded.open_calls()

    @property
    def all_findings(self) -> list[Finding]:
        """What is readable but not as awl writes it: file-wide first, then on the path."""
        return [*self.findings, *self._folded.findings]

    @property
    def interrupted(self) -> bool:
        """Whether the last turn on the path has an open call or no finished answer."""
        return self._folded.interrupted

    def prompts(self) -> Iterator[str]:
        """The words of the prompts in the file, in order."""
        for position in range(len(self._table)):
            shape = self._table.shape(position)
            if shape.role == "user" or shape.type == "import":
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
        last = len(self._table) if until is None else until
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
        return self._table.ids.find(entry_id)

    def new_ids(self) -> NewIds:
        """Random ids for new entries: none that an entry has."""
        return self._table.ids.new()

    def body(self, position: int) -> Entry:
        """The whole entry at a position, read from the file if it was left there."""
        return self._table.body(position)

    def path_to(self, position: int) -> list[int]:
        """The positions from the root to one entry."""
        return [at for first, stop in self._table.runs_to(position) for at in range(first, stop)]

    def between(self, lo: int, hi: int) -> Iterator[Entry]:
        """The entries whose seq lies in [lo, hi], in file order."""
        for first, stop, seq in self._table.seqs.ramps(0, len(self._table)):
            for position in range(max(first, first + lo - seq), min(stop, first + hi + 1 - seq)):
                yield self.body(position)


class _Run:
    """Entries that each follow the one before, as awl writes them, and what they add up to.

    It sees every entry of a session that is resumed, so it repeats itself rather than call anything
    or look at two types in one place. `last_id`, `seq`, `turn` and `submitted` are those before the
    first, then behind the last; `seq` is the one that comes next.
    """

    def __init__(self, last_id: str | None, seq: int, turn: int, submitted: ModelRef) -> None:
        self.last_id, self.seq, self.turn, self.submitted = last_id, seq, turn, submitted
        self.ids: list[str] = []  # of those that stay on disk, and their codes
        self.codes: list[int] = []
        self.started: list[str] = []
        self.messages = self.input_tokens = self.output_tokens = 0

    def entries(self, entries: list[Entry]) -> None:
        """Count as many of these as are ordinary."""
        last, seq, turn = self.last_id, self.seq, self.turn
        started = self.started
        provider, model, _ = self.submitted
        messages = input_tokens = output_tokens = 0
        for entry in entries:
            if type(entry) is MessageEntry:
                if entry.parent_id != last or entry.seq != seq or not entry.id:
                    break
                last, turn_id = entry.id, entry.turn_id
                messages += 1
                logged = entry.message
                usage = logged.usage
                if usage is not None:
                    input_tokens += usage.input
                    output_tokens += usage.output
                if logged.role == "user" and (entry.provider != provider or entry.model != model):
                    self.submitted = asked_by(self.submitted, entry)
                    provider, model, _ = self.submitted
            elif type(entry) is ToolCallEntry:
                if entry.parent_id != last or entry.seq != seq or not entry.id:
                    break
                last, turn_id = entry.id, entry.turn_id
                started.append(entry.tool_use_id)
            elif type(entry) is ToolResultEntry or type(entry) is PartialEntry:
                if entry.parent_id != last or entry.seq != seq or not entry.id:
                    break
                last, turn_id = entry.id, entry.turn_id
            else:
                break
            if turn_id != turn and turn_id and turn < turn_id <= LARGEST:
                turn = turn_id
            seq += 1
        self.last_id, self.seq, self.turn, self.messages = last, seq, turn, messages
        self.input_tokens, self.output_tokens = input_tokens, output_tokens

    def skim(self, lines: list[bytes], table: Table, *, plain: bool) -> None:
        """Count as many lines as are ordinary, and keep their ids and codes."""
        last, seq, turn = self.last_id, self.seq, self.turn
        ids, codes, started = self.ids, self.codes, self.started
        messages = input_tokens = output_tokens = 0
        provider = model = None
        user: int | None = None  # the code of a user message to this model
        with contextlib.suppress(*REFUSED):
            for entry in skim(lines, plain=plain):
                name = entry.id
                if entry.parent_id != last or entry.seq != seq or not name:
                    break
                kind = entry.type
                if kind == "message":
                    message = entry.message
                    if message is None:
                        break
                    role = message.role
                    if role == "assistant":
                        codes.append(ASSISTANT)
                    elif role == "user":
                        if user is None or entry.provider != provider or entry.model != model:
                            provider, model = entry.provider, entry.model
                            user = table.code(Shape("message", "user", provider, model))
                            if user is None:
                                break
                            self.submitted = asked_by(self.submitted, entry)
                        codes.append(user)
                    else:
                        codes.append(SYSTEM)
                    messages += 1
                    usage = message.usage
                    if usage is not None:
                        input_tokens += usage.input
                        output_tokens += usage.output
                elif kind == "toolCall":
                    if entry.tool_use_id is None:
                        break
                    started.append(entry.tool_use_id)
                    codes.append(TOOL_CALL)
                else:
                    codes.append(TOOL_RESULT if kind == "toolResult" else PARTIAL)
                turn_id = entry.turn_id
                if turn_id != turn and turn_id and turn < turn_id <= LARGEST:
                    turn = turn_id
                last = name
                ids.append(name)
                seq += 1
        self.last_id, self.seq, self.turn, self.messages = last, seq, turn, messages
        self.input_tokens, self.output_tokens = input_tokens, output_tokens


def _outer(line: bytes) -> Entry | Outer:
    return cast(Entry | Outer, decode_outer(line))


def _directory(cwd: str, cwd_bytes: str | None) -> str:
    """A directory as the log names it: by its bytes where they are not UTF-8."""
    if cwd_bytes:
        with contextlib.suppress(ValueError):
            return os.fsdecode(base64.b64decode(cwd_bytes, validate=True))
    return cwd


def entry_type(entry: Entry | Outer) -> str:
    """The type of an entry as the log names it."""
    return entry.type if isinstance(entry, Outer) else TAGS[type(entry)]


def prompts_in(entry: Entry) -> list[str]:
    """The words of the prompts that an entry holds: its own, or those of what was imported."""
    if isinstance(entry, MessageEntry) and is_prompt(entry.message.said()):
        return [entry.message.said().text]
    if isinstance(entry, ImportEntry):
        return [said.text for said in entry.messages if said.role == "user"]
    return []


def is_prompt(message: Message | LoggedMessage) -> bool:
    """Whether a user message carries a person's words, and not tool results alone."""
    if message.role != "user":
        return False
    for block in message.content:
        if type(block) is not ToolResult:
            return True
    return not message.content


def _gap_text(damage: Damage) -> str:
    return (
        f"[awl: line {damage.line} of the log ({damage.end - damage.start} bytes) is damaged;"
        " what it said is missing here]"
    )


def _logged(entry: Entry | Outer) -> LoggedMessage | OuterMessage:
    """The message of an entry of that type, or what was decoded of it."""
    message = cast(MessageEntry | Outer, entry).message
    assert message is not None
    return message
