"""Mending the lines of a log as they are copied: what is kept, what stands in a gap, what changes.

A line is copied byte for byte. Only what leads nowhere is set anew: a parent that is not there
although nothing is missing, and a seq that does not grow. Where something is missing, a `gap` takes
its place in the chain, and where its id is known, that too: then no other line need change.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

from awl.entries import (
    UNSTAMPED,
    CompactionEntry,
    CondensationEntry,
    Entry,
    ForkPointEntry,
    GapEntry,
    MessageEntry,
    RewindEntry,
)
from awl.health.ids import Ids
from awl.log.scan import Damage, Line
from awl.state import is_prompt

MOST_TOLD: Final = 100
"""Changes that are told one by one; of more, how many there are."""


class Mended(NamedTuple):
    """A line of the copy: its entry, where its bytes are in the original (None: it has none
    there), and the fields that are set anew."""

    entry: Entry
    line: Line | None
    fields: dict[str, Any]


class Changes:
    """What was done, a line each for a person."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._more = 0

    def add(self, text: str) -> None:
        if len(self.told) < MOST_TOLD:
            self.told.append(text)
        else:
            self._more += 1

    def __bool__(self) -> bool:
        return bool(self.told)

    @property
    def lines(self) -> list[str]:
        return [*self.told, *([f"and {self._more} changes more"] if self._more else [])]


@dataclass(slots=True)
class _Bad:
    """Bad lines between two entries. `before`: the id that a jump into them leads to. `unknown`:
    how many of them may have held an entry that another one names."""

    before: str | None
    unknown: int


class Mender:
    """Turns what can be read of a log into lines that follow each other."""

    def __init__(self, seqs: array[int], ids: Ids, timestamp: str, changes: Changes) -> None:
        """`seqs` are those of the entries that will be taken, `ids` those of the lines that were
        given, which the caller keeps; `timestamp` is that of gaps."""
        self.leaf: str | None = None
        self.last_seq = 0
        self._seqs = growing(seqs)
        self._old = seqs
        self._position = 0
        self._moved: dict[int, int] = {}
        self._ids = ids
        self._timestamp = timestamp
        self._changes = changes
        self._pending: list[Damage] = []
        self._bad: list[_Bad] = []
        self._led: dict[str, str | None] = {}
        self._under: str | None = None
        self._before_prompt: str | None = None
        self._prompted = False

    def skip(self, damage: Damage) -> None:
        """Take in what cannot be read."""
        self._pending.append(damage)

    def take(self, line: Line) -> Iterator[Mended]:
        """Take in the next entry. Gives its line, and before it one for what is missing there."""
        entry = cast(Entry, line.entry)
        seq = self._seqs[self._position]
        old = self._old[self._position]
        fields: dict[str, Any] = {}
        if seq != old:
            self._moved[old] = seq
            fields["seq"] = seq
            self._tell(line, f"seq {old} is {seq} now")
        fields |= self._references(entry)
        gap = self._gap(entry, line, seq, fields)
        if gap is not None:
            yield gap
        if not entry.seq and seq != self.last_seq + 1:
            fields["seq"] = seq
        if isinstance(entry, MessageEntry) and is_prompt(entry.message.said()):
            parent = fields.get("parentId", entry.parent_id)
            self._before_prompt = self.leaf if parent == UNSTAMPED else parent
            self._prompted = True
        self._advance(entry.id, seq)
        if not isinstance(entry, GapEntry):
            self._under = entry.id
        self._position += 1
        yield Mended(entry, line, fields)

    def finish(self) -> Iterator[Mended]:
        """What stands for the lines behind the last entry that cannot be read."""
        lost = sum(damage.acknowledged for damage in self._pending)
        if lost:
            yield self._made(self.last_seq + lost, None)
        elif self._pending:
            size = sum(damage.end - damage.start for damage in self._pending)
            self._changes.add(f"{size} bytes behind the last entry, never acknowledged: left out")

    def new_id(self, seq: int) -> str:
        """An id that no entry has so far: the same each time, for the entry with this seq."""
        drawn = f"{self.leaf} {seq}"
        while True:
            drawn = hashlib.sha256(drawn.encode()).hexdigest()[:8]
            if self._ids.latest(drawn) is None:
                return drawn

    # -- the chain ---------------------------------------------------------------------------------

    def _gap(self, entry: Entry, line: Line, seq: int, fields: dict[str, Any]) -> Mended | None:
        """What stands before an entry for what is missing there; `fields` get a new parent where
        the entry must have one."""
        name = entry.parent_id
        goes_back = isinstance(entry, RewindEntry)
        room = seq > self.last_seq + 1
        known = name is None or name == UNSTAMPED or self._ids.latest(name) is not None
        gap: Mended | None = None
        before = self.leaf
        if room and (self._pending or not known or goes_back):
            # What an ordinary entry names was written right before it.
            gap = self._made(seq - 1, None if known or goes_back else name)
            known = known or not goes_back
        else:
            self._leave_out()
        if goes_back:
            if name == UNSTAMPED:
                self._lead(fields, line, "it names nothing to go back to", before)
            elif name is not None and not known:
                if name not in self._led:
                    self._led[name] = self._back()
                self._lead(fields, line, f"{name} is lost", self._led[name])
        elif not known:
            self._lead(fields, line, f"{name} is not there, and nothing is missing", before)
        elif entry.seq and name not in (before, self.leaf, self._under, UNSTAMPED):
            self._lead(fields, line, "it is no rewind", before)
        return gap

    def _lead(self, fields: dict[str, Any], line: Line, why: str, to: str | None) -> None:
        fields["parentId"] = to
        self._tell(line, f"{why}: it follows {to or 'nothing'} now")

    def _back(self) -> str | None:
        """Where a rewind leads whose target is lost: to the bad line that may have held it, else to
        before the last prompt."""
        for bad in reversed(self._bad):
            if bad.unknown:
                bad.unknown -= 1
                return bad.before
        return self._before_prompt if self._prompted else self.leaf

    def _made(self, seq: int, name: str | None) -> Mended:
        """A gap for what is pending. With a name, it stands for the entry of that name."""
        lost = [damage for damage in self._pending if damage.acknowledged]
        size = sum(damage.end - damage.start for damage in self._pending)
        entry = GapEntry(
            id=name or self.new_id(seq),
            parent_id=self.leaf,
            timestamp=self._timestamp,
            seq=seq,
            lines=max(len(lost), 1),
            size=size,
        )
        if self._pending:
            self._changes.add(f"{_where(self._pending)} cannot be read: a gap has seq {seq}")
        else:
            self._changes.add(f"nothing is left of {_seqs(self.last_seq + 1, seq)}: a gap")
        self._bad.append(_Bad(entry.id, len(lost) - (name is not None)))
        self._pending.clear()
        self._advance(entry.id, seq)
        return Mended(entry, None, {})

    def _leave_out(self) -> None:
        """What is pending took no entry's place."""
        if not self._pending:
            return
        lost = sum(damage.acknowledged for damage in self._pending)
        self._changes.add(f"{_where(self._pending)}: left out, nothing is missing there")
        self._bad.append(_Bad(self.leaf, lost))
        self._pending.clear()

    def _advance(self, name: str, seq: int) -> None:
        self.leaf = name
        self.last_seq = seq

    # -- seqs --------------------------------------------------------------------------------------

    def _references(self, entry: Entry) -> dict[str, Any]:
        """The seqs that an entry names, where those have moved."""
        moved = self._moved
        if not moved:
            return {}
        match entry:
            case CondensationEntry(replaced=(lo, hi)) if lo in moved or hi in moved:
                return {"replaced": [moved.get(lo, lo), moved.get(hi, hi)]}
            case CompactionEntry(cleared=cleared) if not moved.keys().isdisjoint(cleared):
                return {"cleared": [moved.get(seq, seq) for seq in cleared]}
            case ForkPointEntry(at=at) if at in moved:
                return {"at": moved[at]}
        return {}

    def _tell(self, line: Line, text: str) -> None:
        self._changes.add(f"line {line.line} (bytes {line.start}-{line.end}): {text}")


def growing(seqs: array[int]) -> array[int]:
    """The same seqs, but that each is larger than the one before: as many as can be stay."""
    if all(one < other for one, other in pairwise(seqs)):
        return seqs
    kept = _longest_growing(seqs)
    found = array("Q")
    last = 0
    for position, seq in enumerate(seqs):
        last = max(seq, last + 1) if kept[position] else last + 1
        found.append(last)
    return found


def _longest_growing(seqs: array[int]) -> bytearray:
    """Marks a longest part of the seqs that grows."""
    lasts: list[int] = []  # of each length, the smallest seq that such a part ends in
    places: list[int] = []
    before = array("q")
    for position, seq in enumerate(seqs):
        length = bisect_left(lasts, seq)
        before.append(places[length - 1] if length else -1)
        if length == len(lasts):
            lasts.append(seq)
            places.append(position)
        else:
            lasts[length], places[length] = seq, position
    marks = bytearray(len(seqs))
    position = places[-1] if places else -1
    while position >= 0:
        marks[position] = 1
        position = before[position]
    return marks


def _where(damage: list[Damage]) -> str:
    first, last = damage[0], damage[-1]
    if first.line == last.line:
        return f"line {first.line} (bytes {first.start}-{last.end})"
    return f"lines {first.line}-{last.line} (bytes {first.start}-{last.end})"


def _seqs(first: int, last: int) -> str:
    return f"seq {first}" if first == last else f"seqs {first}-{last}"
