"""Another program's session becomes one of awl's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    Entry,
    ForkPointEntry,
    RewindEntry,
)

Place = "Callable[[int], int]"


class Strung:
    """Entries of a source as they stand in a log: each with its parent and seq.

    `parent` and `seq` are those of the entry before the first; `places` are the seqs of the entries
    that came before from the same source, the `import` entry's first.
    """

    def __init__(self, entries: Iterable[Entry], parent: str, seq: int, places: list[int]) -> None:
        self._entries = entries
        self._parent = parent
        self._seq = seq
        self._shift = seq - len(places) + 1
        self._places = places
        self._time = ""

    def __iter__(self) -> Iterator[Entry]:
        for entry in self._entries:
            self._seq += 1
            self._time = entry.timestamp or self._time
            strung = msgspec.structs.replace(
                self._named(entry),
                parent_id=entry.parent_id if isinstance(entry, RewindEntry) else self._parent,
                seq=self._seq,
                timestamp=self._time,
            )
            self._parent = entry.id
            yield strung

    def _named(self, entry: Entry) -> Entry:
        """The entry with the seqs that it names as they are in the log."""
        if isinstance(entry, CondensationEntry):
            lo, hi = entry.replaced
            return msgspec.structs.replace(entry, replaced=(self._seq_of(lo), self._seq_of(hi)))
        if isinstance(entry, CompactionEntry) and entry.cleared:
            cleared = tuple(map(self._seq_of, entry.cleared))
            return msgspec.structs.replace(entry, cleared=cleared)
        if isinstance(entry, ForkPointEntry):
            return msgspec.structs.replace(entry, at=self._seq_of(entry.at))
        return entry

    def _seq_of(self, number: int) -> int:
        return self._places[number] if number < len(self._places) else number + self._shift
