"""Sets of places, which are small numbers, in few bytes. Pure.

A place takes two bytes; or, where places are near each other, the gap to the one before takes one;
or, where most places are in the set, a bit says of each whether it is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate, chain, compress
from operator import sub
from typing import Final

PLAIN, GAPS, BITS = range(3)
KINDS: Final = 2
"""Bits that name the kind of a set."""

_WINDOW: Final = 512  # places that are looked at at once, where most are in the set
_BITS: Final = [bytes(byte >> bit & 1 for bit in range(8)) for byte in range(256)]


class Places:
    """A set of places, as it is kept."""

    def __init__(self, kind: int, data: bytes) -> None:
        self.kind = kind
        self.data = data
        self._found: Sequence[int] = ()

    @classmethod
    def of(cls, places: array[int]) -> Places:
        """The set of these, which are in order."""
        count, last = len(places), places[-1]
        if count > last // 8:
            bits = bytearray(last // 8 + 1)
            for place in places:
                bits[place >> 3] |= 1 << (place & 7)
            return cls(BITS, bytes(bits))
        if count > last // 255:
            data = b"".join(map(_gap, map(sub, places, chain((0,), places))))
            if len(data) < 2 * count:
                return cls(GAPS, data)
        return cls(PLAIN, places.tobytes())

    def __len__(self) -> int:
        if self.kind == BITS:
            return int.from_bytes(self.data, "little").bit_count()
        if self.kind == GAPS:
            return len(self.data) - self.data.count(255)
        return len(self.data) // 2

    def __contains__(self, place: int) -> bool:
        if self.kind == BITS:
            return place >> 3 < len(self.data) and bool(self.data[place >> 3] >> (place & 7) & 1)
        found = self._decoded()
        at = bisect_left(found, place)
        return at < len(found) and found[at] == place

    def between(self, start: int, end: int) -> Sequence[int]:
        """Those from `start` up to `end`, in order."""
        found: Sequence[int]
        if self.kind == BITS:
            first, last = start >> 3, end + 7 >> 3
            flags = b"".join(map(_BITS.__getitem__, self.data[first:last]))
            found = list(compress(range(first << 3, last << 3), flags))
        else:
            found = self._decoded()
        return found[bisect_left(found, start) : bisect_left(found, end)]

    def _decoded(self) -> Sequence[int]:
        if not self._found:
            self._found = array("H", self.data) if self.kind == PLAIN else _summed(self.data)
        return self._found


Group = Sequence[Places]
"""Sets of which any may have a place."""


def size(group: Group) -> int:
    """How many places are in a group at most."""
    return sum(map(len, group))


def common(groups: Sequence[Group], start: int, end: int) -> Iterator[int]:
    """The places in a range that are in each group, highest first."""
    rarest, *others = sorted(groups, key=size) if len(groups) > 1 else groups
    step = _WINDOW if any(places.kind == BITS for places in rarest) else 1 << 16
    for high in range(end, start, -step):
        parts = [places.between(max(start, high - step), high) for places in rarest]
        here = parts[0] if len(parts) == 1 else sorted(set[int]().union(*parts))
        if not others:
            yield from reversed(here)
            continue
        for place in reversed(here):
            if all(any(place in places for places in group) for group in others):
                yield place


@cache
def _gap(size: int) -> bytes:
    """A gap in bytes: 255 is a part of it, after which there is no place."""
    return b"\xff" * (size // 255) + bytes((size % 255,))


def _summed(data: bytes) -> list[int]:
    found = list(accumulate(data))
    return [at for at, gap in zip(found, data, strict=True) if gap < 255] if 255 in data else found
