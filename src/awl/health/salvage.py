"""What can be read of a damaged log: its lines, and whole entries inside lines that are none.

A line can hold more than its writer put there: a fragment that another program wrote on behind,
zeros of a disk that lost power, two entries whose newline is gone. What is whole of it is an entry
as good as any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from awl.entries import Entry, Header
from awl.log.line import BadLine, decode
from awl.log.scan import Damage, Line, read_at, scan

_BEGINS: Final = re.compile(r'\{\s*"(?:type|id|parentId|timestamp|seq|turnId|version)"\s*:')
# After an object that is part of a larger one.
_INSIDE: Final = re.compile(r"\s*[,\]}:]")
_ATTEMPTS: Final = (
    1000  # places in a line at which no whole object may begin, before it is given up
)
_EMPTY: Final = b"\0 \t\r\xef\xbb\xbf"

_decoder: Final = json.JSONDecoder(strict=False)


def pieces(fd: int, end: int) -> Iterator[Line | Damage]:
    """All that can be read of the first `end` bytes of an open log, and what cannot, in order.

    Of a bad line that holds whole entries, each is a `Line` with the bytes that are its own; what
    is between them is `Damage` that was never acknowledged. Zeros and blanks are passed over.
    """
    for item in scan(fd):
        if item.end > end:
            return
        if isinstance(item, Line):
            yield item
            continue
        data = read_at(fd, item.end - item.start, item.start)
        at = 0
        for entry, start, stop in whole_entries(data):
            yield from _rest(item, data, at, start)
            yield Line(entry, item.line, item.start + start, item.start + stop)
            at = stop
        if at:
            yield from _rest(item, data, at, len(data))
        elif data.strip(_EMPTY) or item.acknowledged:
            yield item


def _rest(line: Damage, data: bytes, start: int, end: int) -> Iterator[Damage]:
    if data[start:end].strip(_EMPTY):
        yield Damage(line.line, line.start + start, line.start + end, "a fragment", False)


def whole_entries(line: bytes) -> Iterator[tuple[Header | Entry, int, int]]:
    """The entries in a bad line, each with its bytes [start, end)."""
    text = line.decode("latin-1")  # one character a byte: what is JSON stays JSON
    at, attempts = 0, _ATTEMPTS
    while attempts and (begin := _BEGINS.search(text, at)):
        start = begin.start()
        try:
            found, end = _decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError):
            at, attempts = start + 1, attempts - 1
            continue
        at = end
        if _INSIDE.match(text, end) or not isinstance(found, dict):
            continue
        if found.get("type") != "session" and "parentId" not in found:
            continue  # a content block has a type and an id, too
        try:
            entry = decode(line[start:end])
        except BadLine:
            continue
        yield entry, start, end
