"""Tolerant reading: every readable line of a log in order, and a report of what is not.

A bad line costs that line alone. Readers never write; memory is bounded by the longest line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import msgspec

from awl.entries import Entry, Header
from awl.log.line import BadLine, Outer, decode, decode_buffer, decode_outer

BLOCK: Final = 4 << 20
"""Bytes read at a time."""

BOM: Final = b"\xef\xbb\xbf"


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes of an open file from `offset` on, whatever its position."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    os.lseek(fd, offset, os.SEEK_SET)  # Windows; what is appended goes to the end all the same
    return os.read(fd, size)


class Damage(msgspec.Struct, frozen=True):
    """A line that could not be read: its number (1 is the header's) and its bytes [start, end).

    `acknowledged`: it is not blank and ends in a newline, so an entry may have been lost with it.
    """

    line: int
    start: int
    end: int
    reason: str
    acknowledged: bool

    def __str__(self) -> str:
        return f"line {self.line} (bytes {self.start}-{self.end}): {self.reason}"


class Line(msgspec.Struct, frozen=True, gc=False):
    """A readable line: what it holds, its number and its bytes [start, end).

    Neither a byte order mark before it nor its newline is among them.
    """

    entry: Header | Entry | Outer
    line: int
    start: int
    end: int


def scan(fd: int, *, outer: bool = False, start: int = 0, line: int = 1) -> Iterator[Line | Damage]:
    """All lines of an open file from byte `start` (the start of line number `line`), in order.

    Blank lines in the middle are passed over. The descriptor's own position is neither used nor
    moved. With `outer`, bulky entries come as `Outer`.
    """
    rest: list[bytes] = []  # pieces of a line longer than a block
    offset = start
    while block := read_at(fd, BLOCK, offset):
        offset += len(block)
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest.append(block)
            continue
        whole = b"".join((*rest, block[:cut]))
        rest = [block[cut:]] if cut < len(block) else []
        yield from _lines(whole, start, line, outer)
        start += len(whole)
        line += whole.count(b"\n")
    if tail := b"".join(rest):
        yield from _tail(tail, start, line, outer)


def _lines(whole: bytes, start: int, line: int, outer: bool) -> Iterator[Line | Damage]:
    entries = decode_buffer(whole, outer=outer)
    at = 0
    if entries is not None:
        for entry in entries:
            end = whole.index(b"\n", at)
            yield Line(entry, line, start + at, start + end)
            at, line = end + 1, line + 1
        return
    while at < len(whole):
        end = whole.index(b"\n", at)
        yield from _one(whole[at:end], start + at, line, outer, acknowledged=True)
        at, line = end + 1, line + 1


def _one(
    text: bytes, start: int, line: int, outer: bool, *, acknowledged: bool
) -> Iterator[Line | Damage]:
    if not text.strip():
        return
    end = start + len(text)
    skipped = len(BOM) if start == 0 and text.startswith(BOM) else 0
    try:
        entry = decode_outer(text[skipped:]) if outer else decode(text[skipped:])
    except BadLine as bad:
        yield Damage(line, start, end, str(bad), acknowledged)
        return
    yield Line(entry, line, start + skipped, end)


def _tail(tail: bytes, start: int, line: int, outer: bool) -> Iterator[Line | Damage]:
    """What follows the last newline: a whole object is an entry, a fragment never was one."""
    yield from _one(tail, start, line, outer, acknowledged=False)
