"""Stringing what was read into awl's order: ids that are the same each time, and jumps. Pure.

In awl every entry follows the one before it, and only a `rewind` goes back. A source that is a tree
names the parent of each record: where that is not the record before it, a `rewind` goes there.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from awl.entries import CondensationEntry, RewindEntry, Summary

_MASK: Final = (1 << 32) - 1
_DIGITS: Final = "0123456789abcdef"


class Chain:
    """Draws ids for the entries of one source, and remembers what the source calls them.

    The ids depend on the source's id and on the order alone, so that a source which is read again
    gives the same entries. None is drawn twice.

    Attributes:
        count: how many were drawn, which is the number of the entry drawn last.
        import_id: the id of the `import` entry before them all.
    """

    def __init__(self, source_id: str, *, keep: bool = False) -> None:
        """With `keep`, names that are ids in awl's form are the ids of their entries."""
        digest = hashlib.sha256(source_id.encode(errors="replace")).digest()
        # An odd step goes through all 2^32 ids before one comes again.
        self._step = int.from_bytes(digest[:4], "big") | 1
        self._start = int.from_bytes(digest[4:8], "big")
        self.import_id = digest[8:12].hex()
        self._salt = digest[12:]
        self._keep = keep
        self._numbers: dict[str, int] = {}
        self._odd: dict[str, str] = {}  # the ids of names that are not kept, where names are
        self._drawn: set[str] = set()  # ids that are no names, where names are kept
        self._at = 0  # the number of the entry that the next one follows
        self._jumps: list[tuple[int, int]] = []
        self.count = 0

    def draw(self, key: str | None = None) -> str:
        """The id of the next entry; `key` is its name in the source, for jumps back to it. An entry
        without a name stands beside the source's own order."""
        self.count = number = self.count + 1
        if not self._keep:
            if key is not None:
                self._numbers[key] = self._at = number
            return self._numbered(number)
        if key is None:
            return self._free()
        is_id = len(key) == 8 and not key.strip(_DIGITS)
        if is_id and key not in self._numbers and key not in self._drawn:
            found = key
        else:
            found = self._odd[key] = self._free()
        self._numbers[key] = self._at = number
        return found

    def alias(self, key: str, other: str) -> None:
        """Give the entry that has a name one more; nothing, if there is none."""
        number = self._numbers.get(other)
        if number is not None:
            self._odd[key] = self._id(other, number)
            self._numbers[key] = number

    def id_of(self, key: str) -> str | None:
        """The id of the entry that has this name."""
        number = self._numbers.get(key)
        return None if number is None else self._id(key, number)

    def number_of(self, key: str) -> int | None:
        """The number of the entry that has this name."""
        return self._numbers.get(key)

    def jump(self, parent: str | None, timestamp: str) -> RewindEntry | None:
        """What goes back to an entry by its name (None: to before everything); None if the next
        entry follows it anyway. A name that is not known (its line is damaged) leads nowhere."""
        number = 0 if parent is None else self._numbers.get(parent, self._at)
        if number == self._at:
            return None
        self._at = number
        self.count += 1
        self._jumps.append((self.count, number))
        to = None if parent is None else self._id(parent, number)
        return RewindEntry(id=self._free(), parent_id=to, timestamp=timestamp)

    def back_to(self, number: int, timestamp: str) -> RewindEntry | None:
        """What goes back to an entry by its number, where names are not kept; None if it is the
        last."""
        if number == self.count:
            return None
        to = self._numbered(number) if number else None
        self.count += 1
        self._jumps.append((self.count, number))
        return RewindEntry(id=self._free(), parent_id=to, timestamp=timestamp)

    def closing(self, parent: str, timestamp: str) -> RewindEntry | None:
        """What goes back to an entry at the end of the source as it is now. It has no number, so
        that more can be read of a source that grew."""
        number = self._numbers.get(parent, self._at)
        if number == self._at:
            return None
        name = self.passing_id("end", self.count)
        return RewindEntry(id=name, parent_id=self._id(parent, number), timestamp=timestamp)

    def closing_at(self, number: int, timestamp: str) -> RewindEntry | None:
        """The same to an entry by its number, where names are not kept."""
        if number == self.count:
            return None
        to = self._numbered(number) if number else None
        name = self.passing_id("end", self.count)
        return RewindEntry(id=name, parent_id=to, timestamp=timestamp)

    def passing_id(self, what: str, count: int) -> str:
        """The id of something that stands behind so many entries and has no number itself."""
        return hashlib.sha256(self._salt + f"{what} {count}".encode()).hexdigest()[:8]

    def on_path(self, number: int) -> bool:
        """Whether an entry is on the path that the entry drawn last ends."""
        at = self.count
        for jump, to in reversed(self._jumps):
            if jump <= at:
                if number >= jump:
                    break
                at = to
        return number <= at

    def _id(self, key: str, number: int) -> str:
        if key in self._odd:
            return self._odd[key]
        return key if self._keep else self._numbered(number)

    def _numbered(self, number: int) -> str:
        return ((self._start + number * self._step) & _MASK).to_bytes(4, "big").hex()

    def _free(self) -> str:
        """An id for the entry that is being counted."""
        found = self._numbered(self.count)
        if self._keep:
            nonce = 0
            while found in self._numbers or found in self._drawn:
                nonce += 1
                found = self.passing_id(str(nonce), self.count)
            self._drawn.add(found)
        return found


class Replaced(NamedTuple):
    """What a summary takes the place of: the entries with the numbers `lo` to `hi`, and the earlier
    summaries that it tells anew."""

    lo: int
    hi: int
    absorbs: tuple[int, ...]


class Summaries:
    """The summaries of a source, each of which tells all that came before it on its path."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._made: list[tuple[int, int]] = []  # their numbers, and up to where they tell

    def up_to(self, hi: int) -> Replaced | None:
        """What a summary of everything up to an entry takes the place of; None if there is nothing
        left. To be `told` when it was drawn."""
        on_path = self._chain.on_path
        # The last one on the path tells the most: each begins behind those before it.
        last = next((one for one in reversed(self._made) if on_path(one[0])), None)
        lo = 1 if last is None else last[1] + 1
        absorbs = () if last is None else (last[0],)
        return Replaced(lo, hi, absorbs) if lo <= hi else None

    def condensation(self, hi: int, summary: str, timestamp: str) -> CondensationEntry | None:
        """The next entry: what a source says in place of everything up to an entry; None if there
        is nothing left."""
        replaced = self.up_to(hi)
        if replaced is None:
            return None
        entry = CondensationEntry(
            id=self._chain.draw(),
            timestamp=timestamp,
            replaced=(replaced.lo, replaced.hi),
            absorbs=replaced.absorbs,
            summary=Summary(session_intent=summary),
            tokens_before=0,
            tokens_after=0,
        )
        self.told(replaced)
        return entry

    def told(self, replaced: Replaced) -> None:
        """The summary was the entry drawn last."""
        self._made.append((self._chain.count, replaced.hi))
