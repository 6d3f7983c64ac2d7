"""Stringing what was read into awl's order: ids that are the same each time, and jumps. Pure.

In awl every entry follows the one before it, and only a `rewind` goes back. A source that is a tree
names the parent of each record: where that is not the record before it, a `rewind` goes there.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from awl.entries import RewindEntry

_ID: Final = re.compile(r"[0-9a-f]{8}")
_SPACE: Final = 1 << 32


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
        self._next = int.from_bytes(digest[4:8], "big")
        self.import_id = digest[8:12].hex()
        self._salt = digest[12:]
        self._ids: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._used: set[str] | None = set() if keep else None
        self._at: str | None = None  # the id of the entry that the next one follows
        self._jumps: list[tuple[int, int]] = []
        self.count = 0

    def draw(self, key: str | None = None) -> str:
        """The id of the next entry; `key` is its name in the source, for jumps back to it."""
        self.count += 1
        self._at = self._kept(key) or self._drawn()
        if key is not None:
            self._ids[key], self._numbers[key] = self._at, self.count
        return self._at

    def alias(self, key: str, other: str) -> None:
        """Give the entry that has a name one more; nothing, if there is none."""
        if other in self._ids:
            self._ids[key], self._numbers[key] = self._ids[other], self._numbers[other]

    def id_of(self, key: str) -> str | None:
        """The id of the entry that has this name."""
        return self._ids.get(key)

    def number_of(self, key: str) -> int | None:
        """The number of the entry that has this name."""
        return self._numbers.get(key)

    def jump(self, parent: str | None, timestamp: str) -> RewindEntry | None:
        """What goes back to an entry by its name (None: to before everything); None if the next
        entry follows it anyway. A name that is not known (its line is damaged) leads nowhere."""
        to = None if parent is None else self._ids.get(parent, self._at)
        if to == self._at:
            return None
        self._at = to
        self.count += 1
        self._jumps.append((self.count, 0 if parent is None else self._numbers[parent]))
        return RewindEntry(id=self._drawn(), parent_id=to, timestamp=timestamp)

    def closing(self, parent: str, timestamp: str) -> RewindEntry | None:
        """What goes back to an entry at the end of the source as it is now. It has no number, so
        that more can be read of a source that grew."""
        if self._ids.get(parent, self._at) == self._at:
            return None
        name = self.passing_id("end", self.count)
        return RewindEntry(id=name, parent_id=self._ids[parent], timestamp=timestamp)

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

    def _kept(self, key: str | None) -> str | None:
        if self._used is None or key is None or key in self._used or not _ID.fullmatch(key):
            return None
        self._used.add(key)
        return key

    def _drawn(self) -> str:
        while True:
            found = f"{self._next:08x}"
            self._next = (self._next + self._step) % _SPACE
            if self._used is None:
                return found
            if found not in self._used:
                self._used.add(found)
                return found
