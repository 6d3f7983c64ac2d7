"""Where each id of a log stands, in a few bytes an id: a log of a gigabyte has millions."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

_RUN: Final = 1 << 16  # ids that are kept in a dict before they are packed
_SLICES: Final = 16


class _Run(NamedTuple):
    """Packed ids: their hashes in order, and the position of each."""

    hashes: array[int]
    positions: array[int]


class Ids:
    """The positions of ids, which are given in order. An id is known by its hash."""

    def __init__(self) -> None:
        self._fresh: dict[int, int] = {}
        self._runs: list[_Run] = []
        self._again: dict[int, list[int]] = {}

    def add(self, name: str, position: int) -> None:
        """Note that the entry at a position has this id."""
        key = hash(name)
        fresh = self._fresh
        if key in fresh:
            self._again.setdefault(key, []).append(fresh[key])
        fresh[key] = position
        if len(fresh) >= _RUN:
            self._pack()

    def latest(self, name: str) -> int | None:
        """The last position of an id."""
        return next(self.positions(name), None)

    def positions(self, name: str) -> Iterator[int]:
        """All positions of an id, the last of each stretch of the log first."""
        key = hash(name)
        if key in self._fresh:
            yield self._fresh[key]
        for run in reversed(self._runs):
            at = bisect_left(run.hashes, key)
            if at < len(run.hashes) and run.hashes[at] == key:
                yield run.positions[at]
        yield from self._again.get(key, ())

    def repeated(self) -> list[int]:
        """The positions of entries with an id that stands elsewhere, too: all but one of each."""
        self._pack()
        found = [position for positions in self._again.values() for position in positions]
        step = (1 << 64) // _SLICES
        for low in range(-(1 << 63), 1 << 63, step):  # a slice of all hashes at a time
            seen: set[int] = set()
            for hashes, positions in self._runs:
                begin = bisect_left(hashes, low)
                end = bisect_left(hashes, low + step)
                part = hashes[begin:end]
                if not seen.isdisjoint(part):
                    found += [positions[begin + at] for at, key in enumerate(part) if key in seen]
                seen.update(part)
        return sorted(found)

    def _pack(self) -> None:
        if self._fresh:
            keys = sorted(self._fresh)
            self._runs.append(
                _Run(array("q", keys), array("I", map(self._fresh.__getitem__, keys)))
            )
            self._fresh = {}
