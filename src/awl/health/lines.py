"""Following the lines of a log, one after the other: what each says of itself and of the others.

The rules are those of `awl.state`, which folds what can be read; here every place is named where a
log is not as awl writes it. A few bytes are kept of each entry: a log of any size can be checked.
"""

from __future__ import annotations

import contextlib
import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec

from awl.conversation import (
    BlobRef,
    ContentBlock,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import (
    UNSTAMPED,
    VERSION,
    CompactionEntry,
    CondensationEntry,
    ForkPointEntry,
    GapEntry,
    Header,
    KnownEntry,
    LabelEntry,
    MessageEntry,
    NoteEntry,
    RevisionEntry,
    RewindEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
)
from awl.health.findings import Finding, Kind
from awl.health.ids import Ids
from awl.log.scan import Damage, Line
from awl.state import LARGEST, ROOT

_RECENT: Final = 4096  # calls that are looked for by name; of older ones only a hash is kept
_LONGEST_SHOWN: Final = 40  # characters of an id

_ENTRY_TYPES: Final = frozenset(str(cls.__struct_config__.tag) for cls in get_args(KnownEntry))
_BLOCK_TYPES: Final = frozenset(str(cls.__struct_config__.tag) for cls in get_args(ContentBlock))
_PLAIN: Final = frozenset({Text, Thinking, RedactedThinking})
_BLOB_NAME: Final = re.compile(r"\b[0-9a-f]{64}\b")


class Named(msgspec.Struct, frozen=True):
    """A blob as the log names it, and the first line that does. Two sizes are two of these."""

    name: str
    size: int
    line: int
    start: int
    end: int


class Condensed(msgspec.Struct, frozen=True, gc=False):
    """A condensation that counts: where it stands, and the seqs that it replaces."""

    position: int
    lo: int
    hi: int


class Lines:
    """What the lines of a log are, as they are taken in the order of the file.

    Attributes:
        header: the header, if there is one.
        seqs: of each entry.
        blobs: those that the log names, by name and size.
        mentioned: names that may be those of blobs, in what this awl does not know.
        lost_blobs: those that a repair knew to be lost.
    """

    def __init__(self, lost_lines: int = 0) -> None:
        """`lost_lines`: newline-ended lines that recovery cut from this log."""
        self.header: Header | None = None
        self.seqs = array("Q")
        self.blobs: dict[tuple[str, int], Named] = {}
        self.mentioned: set[str] = set()
        self.lost_blobs: set[str] = set()
        self.ids = Ids()
        self._lost_lines = lost_lines
        self._findings: list[Finding] = []
        self._excusable: dict[int, int] = {}  # of a finding, the seq that a repair may have noted
        self._noted: set[int] = set()
        self._at = 0  # the byte where the next line begins
        self._next_line = 1
        self._last_seq = 0
        self._unread = 0
        self._skipped = 0
        self._leaf: str | None = None
        self._under: str | None = None  # the leaf, but for gaps
        self._jumps: list[tuple[int, int]] = []  # entries that follow another than the one before
        self._condensed: list[Condensed] = []
        self._recent: dict[str, None] = {}
        self._calls = array("q")
        self._unanswered: list[tuple[int, int, Line, str]] = []
        self._strange: dict[str, tuple[int, Line]] = {}
        self._by_type: dict[type, Callable[[Any, Line, int], None]] = {
            MessageEntry: self._message,
            ToolCallEntry: self._started,
            ToolResultEntry: self._result,
            CondensationEntry: self._condensation,
            CompactionEntry: self._compaction,
            ForkPointEntry: self._fork_point,
            LabelEntry: self._label,
            NoteEntry: self._note,
            RevisionEntry: self._revision,
            UnknownEntry: self._unknown,
        }

    # -- taking lines in ---------------------------------------------------------------------------

    def take(self, item: Line | Damage) -> int | None:
        """Take in the next line. Returns its position if it is a new entry."""
        if item.start != self._at:
            self._passed_over(item)
        self._at, self._next_line = item.end + 1, item.line + 1
        if isinstance(item, Damage):
            self._bad(item)
            return None
        entry = item.entry
        kind = type(entry)
        if isinstance(entry, Header):
            self._header(entry, item)
            return None
        expected = self._last_seq + 1 + self._unread
        seq = entry.seq if 0 < entry.seq <= LARGEST else expected
        if seq <= self._last_seq:
            if self.stands(entry.id, seq):
                self._find("damage", "id", item, f"entry {_shown(entry.id)} (seq {seq}) again")
                return None
            text = f"seq {seq} does not grow (after {self._last_seq})"
            self._find("damage", "seq", item, text)
        position = len(self.seqs)
        if entry.parent_id != self._leaf or seq != expected:
            self._follow(entry, item, seq, expected)
        self.seqs.append(seq)
        self.ids.add(entry.id, position)
        self._leaf = entry.id
        if kind is not GapEntry:
            self._under = entry.id
        if seq > self._last_seq:
            self._last_seq = seq
        self._unread = 0
        if check := self._by_type.get(kind):
            check(entry, item, seq)
        return position

    def stands(self, name: str, seq: int) -> bool:
        """Whether there is an entry with this id and this seq."""
        return any(self.seqs[position] == seq for position in self.ids.positions(name))

    @property
    def leaf(self) -> str | None:
        """The id of the last entry so far."""
        return self._leaf

    @property
    def next_seq(self) -> int:
        """The seq of the next entry: no acknowledged one is ever used twice."""
        return self._last_seq + 1 + self._unread + max(0, self._lost_lines - self._skipped)

    @property
    def odd(self) -> list[int]:
        """The seqs of entries that are not as the format says, so far."""
        return sorted(set(self._excusable.values()))

    def end(self, end: int) -> list[Finding]:
        """What was found in the log, which ends at this byte, in the order of its lines."""
        last = self._findings[-1] if self._findings else None
        if last is not None and last.kind == "tail":
            pass  # it was said already
        elif self._at - 1 == end and (self.seqs or self.header):
            self._note_at_end("the last line lacks its newline", end, end)
        elif 0 < self._at < end:
            self._note_at_end("blank lines at the end", self._at, end)
        if self.header is None and self.seqs:
            text = "no session header: rebuilt from the file's name and what follows"
            self._findings.append(Finding(severity="damage", kind="header", text=text, line=1))
        for kind, (count, first) in self._strange.items():
            as_is = "kept as they are" if count > 1 else "kept as it is"
            if kind.endswith(":"):
                records = f"{count} records" if count > 1 else "a record"
                text = f"{records} of {_shown(kind[:-1])}: {as_is}"
            else:
                many = f"{count} entries" if count > 1 else "an entry"
                text = f"{many} of type {_shown(kind)}, which this awl does not know: {as_is}"
            self._find("note", "entry", first, text)
        for position in self.ids.repeated():
            text = f"the id of the entry with seq {self.seqs[position]} stands again in the log"
            self._findings.append(Finding(severity="note", kind="id", text=text))
        self._look_for_calls()
        found = [self._excused(at, finding) for at, finding in enumerate(self._findings)]
        return sorted(found, key=lambda finding: finding.line)

    # -- places ------------------------------------------------------------------------------------

    def _passed_over(self, item: Line | Damage) -> None:
        """What stands between the line before and this one: blank lines, or a byte order mark."""
        if item.line == self._next_line:
            text, count = "a byte order mark before the first line", 1
        else:
            text, count = "blank", item.line - self._next_line
        self._findings.append(
            Finding(
                severity="note",
                kind="line",
                text=text,
                line=self._next_line,
                start=self._at,
                end=item.start,
                lines=count,
            )
        )

    def _bad(self, damage: Damage) -> None:
        if not damage.acknowledged:
            text = (
                f"incomplete, never acknowledged ({damage.reason}); the next resume sets it aside"
            )
            self._note_at_end(text, damage.start, damage.end)
            return
        self._unread += 1
        before = self._findings[-1] if self._findings else None
        if (
            before is not None
            and before.severity == "damage"
            and before.text == damage.reason
            and before.line + before.lines == damage.line
        ):
            self._findings[-1] = msgspec.structs.replace(
                before, lines=before.lines + 1, end=damage.end
            )
            return
        self._find("damage", "line", damage, damage.reason)

    def _note_at_end(self, text: str, start: int, end: int) -> None:
        line = self._next_line - 1
        self._findings.append(
            Finding(severity="note", kind="tail", text=text, line=line, start=start, end=end)
        )

    def _header(self, header: Header, line: Line) -> None:
        if self.header is None and not self.seqs:
            self.header = header
            if header.version > VERSION:
                text = (
                    f"format {header.version} is newer than this awl: checked as far as understood"
                )
                self._find("note", "header", line, text)
        elif line.start:
            self._find("damage", "header", line, "another session header: ignored")

    # -- the chain ---------------------------------------------------------------------------------

    def _follow(self, entry: Any, line: Line, seq: int, expected: int) -> None:
        """Check what an entry says of the one that it follows."""
        name = entry.parent_id
        goes_back = type(entry) is RewindEntry
        position = len(self.seqs)
        if name == self._leaf:
            missing = seq - expected
        elif name == UNSTAMPED:
            missing = seq - expected
            if goes_back:
                self._find("damage", "parent", line, "a rewind that names no entry to go back to")
        else:
            parent = ROOT if name is None else self.ids.latest(name)
            if parent is None:
                self._without_parent(name, goes_back, line, seq, expected)
                return
            if not goes_back and entry.seq and name != self._under:
                followed = "nothing" if name is None else _shown(name)
                text = (
                    f"it follows {followed} and not the entry before it, although it is no"
                    " rewind: what lies between is hidden"
                )
                self._find("damage", "parent", line, text)
            self._jumps.append((position, parent))
            missing = seq - expected
        if missing > 0:
            self._skip(goes_back, line, seq, missing)

    def _without_parent(
        self, name: str, goes_back: bool, line: Line, seq: int, expected: int
    ) -> None:
        verb = "goes back to" if goes_back else "follows"
        text = f"it {verb} {_shown(name)}, which is not in the log"
        if seq > expected:
            text += f": {_seqs(expected, seq - 1)} missing"
        self._find("damage", "parent", line, text)

    def _skip(self, goes_back: bool, line: Line, seq: int, missing: int) -> None:
        """Seqs that no line has. Where the entry follows the one before it, nothing stood between
        them on the path; of a rewind nobody knows, unless recovery kept what it cut."""
        self._skipped += missing
        forked_at = self.header.forked_from.seq if self.header and self.header.forked_from else 0
        accounted = not goes_back or self._skipped <= self._lost_lines or seq <= forked_at
        what = _seqs(seq - missing, seq - 1)
        if accounted:
            self._find("note", "seq", line, f"{what} of lines that recovery cut off before it")
        else:
            self._find("damage", "seq", line, f"{what} missing before it")

    def _ancestors(self, position: int) -> Iterator[tuple[int, int]]:
        """The path to a position as stretches of positions [first, last], the last one first."""
        for at, parent in reversed(self._jumps):
            if at <= position:
                yield at, position
                if parent == ROOT:
                    return
                position = parent
        yield 0, position

    # -- what entries say --------------------------------------------------------------------------

    def _message(self, entry: MessageEntry, line: Line, seq: int) -> None:
        for block in entry.message.content:
            if type(block) in _PLAIN:
                continue
            match block:
                case ToolUse():
                    self._call(block.id)
                case ToolResult():
                    self._answered(block.tool_use_id, line)
                    self._payloads(block.images, block.output, line)
                case Image():
                    self._blob(block.blob, line)
                case Opaque():
                    self.mentioned.update(_BLOB_NAME.findall(block.raw))
                    if block.kind in _BLOCK_TYPES:
                        text = f"a {block.kind} block that is not as the format says: never sent"
                        self._find("note", "entry", line, text)

    def _result(self, entry: ToolResultEntry, line: Line, seq: int) -> None:
        self._answered(entry.tool_use_id, line)
        self._payloads(entry.images, entry.output, line)

    def _started(self, entry: ToolCallEntry, line: Line, seq: int) -> None:
        self._answered(entry.tool_use_id, line)

    def _note(self, entry: NoteEntry, line: Line, seq: int) -> None:
        self._payloads(entry.images, None, line)
        self._mention(entry.record)

    def _mention(self, value: Any) -> None:
        """What another program wrote may name blobs in its own way."""
        with contextlib.suppress(ValueError, RecursionError):
            self.mentioned.update(_BLOB_NAME.findall(json.dumps(value)))

    def _payloads(self, images: tuple[Image, ...], output: BlobRef | None, line: Line) -> None:
        for image in images:
            self._blob(image.blob, line)
        if output is not None:
            self._blob(output, line)

    def _blob(self, ref: BlobRef, line: Line) -> None:
        key = ref.blob, ref.size
        if key not in self.blobs:
            self.blobs[key] = Named(ref.blob, ref.size, line.line, line.start, line.end)

    def _call(self, name: str) -> None:
        self._calls.append(hash(name))
        self._recent[name] = None
        if len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]

    def _answered(self, name: str, line: Line) -> None:
        if name not in self._recent:
            self._unanswered.append((hash(name), len(self._calls), line, name))

    def _look_for_calls(self) -> None:
        """Look for the calls of results that came long after them, or never had one."""
        seen: set[int] = set()
        at = 0
        for key, before, line, name in self._unanswered:
            seen.update(self._calls[at:before])
            at = before
            if key not in seen:
                self._find(
                    "note", "call", line, f"no answer before it made the call {_shown(name)}"
                )

    def _condensation(self, entry: CondensationEntry, line: Line, seq: int) -> None:
        lo, hi = entry.replaced
        position = len(self.seqs) - 1
        stretches = list(self._ancestors(position))
        if not lo <= hi < seq or not any(
            self._holds(first, last, lo, hi) for first, last in stretches
        ):
            self._wrong_range(line, seq, f"condensation of {lo}-{hi} covers nothing of its path")
            return
        for other in self._condensed:
            on_path = any(first <= other.position <= last for first, last in stretches)
            if on_path and lo <= other.hi and other.lo <= hi:
                self._wrong_range(line, seq, f"condensation of {lo}-{hi} overlaps an earlier one")
                return
        self._condensed.append(Condensed(position, lo, hi))

    def _holds(self, first: int, last: int, lo: int, hi: int) -> bool:
        at = bisect_left(self.seqs, lo, first, last + 1)
        return at <= last and self.seqs[at] <= hi

    def _compaction(self, entry: CompactionEntry, line: Line, seq: int) -> None:
        wrong = [cleared for cleared in entry.cleared if not 0 < cleared < seq]
        if wrong:
            self._wrong_range(line, seq, f"compaction of seq {wrong[0]}, which is not before it")

    def _wrong_range(self, line: Line, seq: int, text: str) -> None:
        self._excusable[len(self._findings)] = seq
        self._find("damage", "range", line, text)

    def _fork_point(self, entry: ForkPointEntry, line: Line, seq: int) -> None:
        if not 0 <= entry.at < seq:
            text = f"a fork at seq {entry.at}, which is not before it"
            self._find("note", "range", line, text)

    def _label(self, entry: LabelEntry, line: Line, seq: int) -> None:
        if self.ids.latest(entry.target_id) is None:
            text = f"a label of entry {_shown(entry.target_id)}, which is not in the log"
            self._find("note", "parent", line, text)

    def _revision(self, entry: RevisionEntry, line: Line, seq: int) -> None:
        self.lost_blobs.update(entry.lost_blobs)
        self._noted.update(entry.odd)

    def _unknown(self, entry: UnknownEntry, line: Line, seq: int) -> None:
        self._mention(entry.raw)
        if entry.kind in _ENTRY_TYPES:
            self._excusable[len(self._findings)] = seq
            text = (
                f"a {entry.kind} entry that is not as the format says: kept, but it does not count"
            )
            self._find("damage", "entry", line, text)
            return
        program, colon, _ = entry.kind.partition(":")
        kind = program + colon  # all that an import brought is one note
        count, first = self._strange.get(kind, (0, line))
        self._strange[kind] = count + 1, first

    # -- findings ----------------------------------------------------------------------------------

    def _find(self, severity: Any, kind: Kind, line: Line | Damage, text: str) -> None:
        self._findings.append(
            Finding(
                severity=severity,
                kind=kind,
                text=text,
                line=line.line,
                start=line.start,
                end=line.end,
            )
        )

    def _excused(self, at: int, finding: Finding) -> Finding:
        if self._excusable.get(at) not in self._noted:
            return finding
        return msgspec.structs.replace(finding, severity="note", text=f"{finding.text} (known)")


def _seqs(first: int, last: int) -> str:
    return f"seq {first} is" if first == last else f"seqs {first}-{last} are"


def _shown(name: str) -> str:
    return name if len(name) <= _LONGEST_SHOWN else name[:_LONGEST_SHOWN] + "…"
