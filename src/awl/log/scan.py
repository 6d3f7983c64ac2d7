"""Tolerant reading: every readable line of a log in order, and a report of what is not.

A bad line costs that line alone. Readers never write; memory is bounded by the longest line.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Final

import msgspec

from awl.entries import Entry, Header
from awl.log.line import BadLine, Outer, decode, decode_outer, decode_roughly, sound

BLOCK: Final = 4 << 20
"""Bytes at a time of what is read as bytes."""

CHUNK: Final = 1 << 18
"""Bytes at a time of what is read as lines: few enough to be decoded, looked at and folded while
they are in the processor's cache."""

_FIRST: Final = 1 << 12

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


class Batch:
    """Some lines of a log, one after the other: the bytes [start, end) of it. `number` is that of
    the first, `count` how many they are, `whole` how many of them end in a newline (the last of a
    log may not), and `plain` whether they are ASCII alone."""

    def __init__(self, start: int, number: int, data: bytes, lines: list[bytes], left: int) -> None:
        self.start, self.number = start, number
        self.end = start + len(data) - left
        self.count = self.whole = len(lines)
        if not lines[-1].endswith(b"\n"):
            self.whole -= 1
        self.plain = data.isascii()
        self._data = data
        self._lines: list[bytes] | None = lines

    @property
    def lines(self) -> list[bytes]:
        if self._lines is None:
            self._lines = io.BytesIO(self._data).readlines()[: self.count]
        return self._lines

    def release(self) -> None:
        """Let go of the lines, which will hardly be needed again: what comes next has their memory
        while it is at hand."""
        self._lines = None

    @property
    def last(self) -> int:
        """The number of the last line that is not blank; 0 when all are."""
        if self._data.endswith(b"}\n", 0, self.end - self.start):
            return self.number + self.count - 1
        found = (at for at in range(self.count - 1, -1, -1) if self.lines[at].strip())
        return next((self.number + at for at in found), 0)

    def start_of(self, at: int) -> int:
        """The byte at which one of the lines starts, or at which they end."""
        if at in (0, self.count):
            return self.end if at else self.start
        return self.start + sum(map(len, self.lines[:at]))

    def one(self, at: int, *, outer: bool = False) -> Line | Damage | None:
        """What one of the lines holds; None: it is blank."""
        return _one(self.lines[at], self.start_of(at), self.number + at, outer)

    def items(self, *, outer: bool) -> Iterator[Line | Damage]:
        """What the lines hold; blank ones are passed over."""
        start = self.start
        base, rough = 0, decode_roughly(self.lines, outer=outer)
        for at, line in enumerate(self.lines):
            number, end = self.number + at, start + len(line) - line.endswith(b"\n")
            if at - base < len(rough) and sound(rough[at - base]):
                yield Line(rough[at - base], number, start, end)
            elif found := _one(line, start, number, outer):
                yield found
            if at - base == len(rough):  # the decoder did not take this one
                base, rough = at + 1, decode_roughly(self.lines[at + 1 :], outer=outer)
            start += len(line)


class Reader:
    """Reads the lines of an open file from byte `start` (the start of line number `line`) on,
    `chunks` times `CHUNK` at a time.

    The descriptor's own position is neither used nor moved.
    """

    def __init__(self, fd: int, start: int = 0, line: int = 1, *, chunks: int = 1) -> None:
        self._fd, self._start, self._line = fd, start, line
        self._chunks = chunks
        self._ended = False

    def read(self) -> Batch | None:
        """The next lines; None behind the last.

        The first line of a file, which is like no other, comes alone.
        """
        if self._ended:
            return None
        size = CHUNK * self._chunks if self._start else _FIRST
        while True:
            data = read_at(self._fd, size, self._start)
            lines = io.BytesIO(data).readlines()
            if not lines:
                return None
            whole = lines[-1].endswith(b"\n")
            if whole or len(lines) > 1:
                break
            if len(data) < size:  # what is being written while it is read has an end that is none
                self._ended = True
                break
            size *= 2  # a long line
        left = 0
        if not self._start:
            del lines[1:]
            left = len(data) - len(lines[0])
        elif not (whole or self._ended):
            left = len(lines.pop())
        batch = Batch(self._start, self._line, data, lines, left)
        self._start, self._line = batch.end, self._line + batch.count
        return batch


def scan(fd: int, *, outer: bool = False, start: int = 0, line: int = 1) -> Iterator[Line | Damage]:
    """All lines of an open file from byte `start` (the start of line number `line`), in order.

    Blank lines in the middle are passed over. The descriptor's own position is neither used nor
    moved. With `outer`, bulky entries come as `Outer`.
    """
    reader = Reader(fd, start, line)
    while batch := reader.read():
        yield from batch.items(outer=outer)


def _one(line: bytes, start: int, number: int, outer: bool) -> Line | Damage | None:
    """What a line holds; None: it is blank. A fragment behind the last newline was no entry yet."""
    if not line.strip():
        return None
    text = line.removesuffix(b"\n")
    end = start + len(text)
    skipped = len(BOM) if start == 0 and text.startswith(BOM) else 0
    try:
        entry = decode_outer(text[skipped:]) if outer else decode(text[skipped:])
    except BadLine as bad:
        return Damage(number, start, end, str(bad), acknowledged=text != line)
    return Line(entry, number, start + skipped, end)
