"""Reading a file that is one JSON value with an array of messages in it, whole or damaged.

A sound file of moderate size is decoded at once. Of a large one, or one that ends too soon, the
elements are cut out one by one: what is whole of them counts, and memory is bounded by the longest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from io import BufferedReader
from itertools import chain, filterfalse
from pathlib import Path
from typing import Final

import msgspec

from awl.formats.format import Damaged, Report
from awl.formats.records import (
    LONGEST,
    is_compressed,
    open_source,
    read_until_damage,
    size_of,
)
from awl.log.scan import BOM

_AT_ONCE: Final = 32 << 20
_PIECE: Final = 1 << 20
_TOGETHER: Final = 256
_DEEPEST: Final = 10_000
"""Levels of objects and arrays; no decoder goes so deep."""
# A string that the buffer does not hold whole comes to the buffer's end.
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_SCALAR: Final = re.compile(rb"[-+.0-9A-Za-z]+")
_BETWEEN: Final = re.compile(rb"[\s,:]*")
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_at_once: Final = msgspec.json.Decoder(
    dict[str, list[msgspec.Raw] | dict[str, msgspec.Raw] | str | float | int | bool | None]
).decode
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Document:
    """A JSON file and the elements of its array.

    Attributes:
        array: the member that holds the elements; None if the root does.
        members: the other members of the root, as far as they were read. Those behind the array are
            there when its elements were walked.
        at: how many bytes were read.
    """

    def __init__(self, path: Path, array: str | None) -> None:
        """`array` is the member that holds it; None if the root is the array."""
        self.path = path
        self.members: dict[str, bytes] = {}
        self.at = 0
        self.array = array

    def elements(self, report: Report) -> Iterator[bytes]:
        """The elements, each as it stands there. What cannot be read is reported."""
        return chain.from_iterable(self.blocks(report))

    def blocks(self, report: Report) -> Iterator[list[bytes]]:
        """The elements, as many together as were read together."""
        for block in self._blocks(report):
            try:
                for value in filterfalse(bytes.isascii, block):
                    str(value, "utf-8")
            except UnicodeDecodeError:
                yield [_sound(value, report) for value in block]
            else:
                yield block

    def _blocks(self, report: Report) -> Iterator[list[bytes]]:
        self.at = 0
        if self._whole is not None:
            size, members, elements = self._whole
            self.at = size
            self.members = {name: _sound(one, report) for name, one in members.items()}
            for at in range(0, len(elements), _TOGETHER):
                yield list(map(bytes, elements[at : at + _TOGETHER]))
            return
        with open_source(self.path) as file:
            pieces = _Pieces(file)
            try:
                for value in self._piecewise(pieces, report):
                    yield [value]
                pieces.finish()
            except (_Ended, OSError) as error:
                reason = str(getattr(error, "strerror", None) or error or "ends in the middle")
                end = pieces.base + len(pieces.data)
                start = pieces.base + pieces.at
                report.add(
                    Damaged(self.path, 1, start, end, reason, ends=not isinstance(error, _AtEnd))
                )

    @cached_property
    def _whole(self) -> tuple[int, dict[str, bytes], list[msgspec.Raw]] | None:
        """The size, the members and the elements of a sound file of moderate size."""
        # A buffer of the file's size is had sooner than a larger one.
        most = _AT_ONCE if is_compressed(self.path) else min(size_of(self.path), _AT_ONCE)
        try:
            with open_source(self.path) as file:
                data = file.read(most + 1)
            if len(data) > most:
                return None
            return len(data), *_split(data.removeprefix(BOM), self.array)
        except Exception:  # whatever is wrong here, the pieces have the last word
            return None

    def _piecewise(self, pieces: _Pieces, report: Report) -> Iterator[bytes]:
        if self.array is None:
            yield from self._items(pieces)
            return
        pieces.take(b"{")
        while pieces.next() != b"}":
            name = _text(pieces.value())
            if name == self.array and pieces.next() == b"[":
                yield from self._items(pieces)
            else:
                self.members[name] = _sound(pieces.value(), report)
        pieces.take(b"}")

    def _items(self, pieces: _Pieces) -> Iterator[bytes]:
        pieces.take(b"[")
        while pieces.next() != b"]":
            yield pieces.value()
            self.at = pieces.base + pieces.at
        pieces.take(b"]")


def _split(data: bytes, array: str | None) -> tuple[dict[str, bytes], list[msgspec.Raw]]:
    """The other members of a sound document, and its elements."""
    if array is None:
        return {}, _elements(data)
    try:
        members = _at_once(data)
        elements = members.pop(array, [])
        if isinstance(elements, list):
            return {name: msgspec.json.encode(one) for name, one in members.items()}, elements
    except msgspec.MsgspecError:  # a text among them is odd
        pass
    raws = _members(data)
    elements = _elements(raws.pop(array, b"[]"))
    return {name: bytes(raw) for name, raw in raws.items()}, elements


def _sound(value: bytes, report: Report) -> bytes:
    """A value as every reader takes it: bytes that are no UTF-8 are replaced."""
    try:
        value.isascii() or str(value, "utf-8")
    except UnicodeDecodeError:
        pass
    else:
        return value
    report.left_out["values' bytes that are no UTF-8"] += 1
    return value.decode(errors="replace").encode()


class _Ended(Exception):
    """The file ends, or goes on, where no JSON value does."""


class _AtEnd(_Ended):
    """It ends there."""


class _Pieces:
    """The values of a JSON text that is read in pieces.

    `data` is what is held of it, which begins at byte `base`, and `at` the place in it.
    """

    def __init__(self, file: BufferedReader) -> None:
        self.data, self._damage = read_until_damage(file, _AT_ONCE + 1)
        self.base = 0
        self.at = len(BOM) if self.data.startswith(BOM) else 0
        self._file = file

    def next(self) -> bytes:
        """The first byte of what comes next; white space, commas and colons are passed over."""
        while True:
            match = _BETWEEN.match(self.data, self.at)
            assert match is not None
            self.at = match.end()
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            self._more()

    def finish(self) -> None:
        """Refuse what comes behind the document: a second one would be lost unseen."""
        try:
            self.next()
        except _Ended:
            return
        raise _Ended("the document ended before this")

    def take(self, bracket: bytes) -> None:
        if self.next() != bracket:
            raise _Ended("no JSON of this format from here on")
        self.at += 1

    def value(self) -> bytes:
        """The next value, whole."""
        first = self.next()
        end = self._bracket_end() if first in b'{["' else self._scalar_end()
        value = self.data[self.at : end]
        self.at = end
        return value

    def _scalar_end(self) -> int:
        while True:
            match = _SCALAR.match(self.data, self.at)
            if match is None:
                raise _Ended("no JSON of this format from here on")
            if match.end() < len(self.data):
                return match.end()
            self._more()

    def _bracket_end(self) -> int:
        """Where the string, the object or the array that begins here ends."""
        depth, seen = 0, 0  # `seen` counts from the value's first byte
        while True:
            for match in _TOKEN.finditer(self.data, self.at + seen):
                token = match[0]
                if token[:1] == b'"':
                    if len(token) == 1 or token[-1:] != b'"' or _is_open(token):
                        break
                    if depth == 0:
                        return match.end()
                elif token in b"{[":
                    depth += 1
                    if depth > _DEEPEST:
                        raise _Ended(f"nested in more than {_DEEPEST} levels")
                else:
                    depth -= 1
                    if depth <= 0:
                        return match.end()
                seen = match.end() - self.at
            self._more()

    def _more(self) -> None:
        """Read on; what lies before the place is let go."""
        self.base += self.at
        self.data = self.data[self.at :]
        self.at = 0
        size = len(self.data)
        if size >= LONGEST:
            raise _Ended(f"a value longer than {LONGEST >> 20} MiB")
        if self._damage is not None:
            raise self._damage
        piece, self._damage = read_until_damage(self._file, min(max(_PIECE, size), LONGEST - size))
        if self._damage is None and not piece:
            middle = self.data.strip()
            raise _AtEnd("ends in the middle" if middle else "ends before its end")
        self.data += piece


def _is_open(token: bytes) -> bool:
    """Whether what looks like a string's last quote is escaped."""
    body = token[1:-1]
    return (len(body) - len(body.rstrip(b"\\"))) % 2 == 1


def _text(token: bytes) -> str:
    try:
        return str(msgspec.json.decode(token))
    except msgspec.MsgspecError:
        return token.decode(errors="replace")
