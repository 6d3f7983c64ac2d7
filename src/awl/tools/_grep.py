"""The search of `grep`, run as a program of its own by `awl.tools.grep`.

It uses nothing but the standard library, so that it starts fast and may be run isolated. On its
input: a line of JSON (pattern, ignoreCase, limit), then file names, each before a NUL. On its
output: `name:line:text`, at most limit + 1 times.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import Final

MAX_PIECE: Final = 1 << 20
"""Bytes that are searched at once: a longer line is searched in pieces."""

MAX_LINE: Final = 500
"""Characters of a line that are shown."""

BINARY_PROBE: Final = 8192


def main() -> int:
    request, _, names = sys.stdin.buffer.read().partition(b"\n")
    wanted = json.loads(request)
    try:
        regex = re.compile(wanted["pattern"], re.IGNORECASE if wanted["ignoreCase"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(str(error))
        return 2
    needle = b"" if wanted["ignoreCase"] else _needle(wanted["pattern"])
    left = wanted["limit"] + 1
    for name in names.split(b"\0"):
        shown = name.decode(errors="replace").replace("\n", "\\n")
        for number, text in _matches(name, regex, needle):
            # At once, since this process is ended when the search takes too long.
            sys.stdout.buffer.write(f"{shown}:{number}:{text}\n".encode(errors="replace"))
            sys.stdout.buffer.flush()
            left -= 1
            if not left:
                return 0
    return 0


def _needle(pattern: str) -> bytes:
    """The bytes that each match of a pattern without operators holds; empty if it has some.

    Most searches are for plain text, and a file that does not hold it need not be split in lines.
    """
    plain = re.sub(r"\\(\W)", r"\1", pattern)
    has_operators = re.search(r"[\\.^$*+?{}\[\]|()\ufffd]", re.sub(r"\\\W", "", pattern))
    return b"" if has_operators else plain.encode(errors="replace")


def _matches(name: bytes, regex: re.Pattern[str], needle: bytes) -> Iterator[tuple[int, str]]:
    """The lines of a file that match, with their numbers. Binary and special files have none."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or b"\0" in file.peek(BINARY_PROBE):
                return
            first = 1
            while piece := file.read(MAX_PIECE) + file.readline(MAX_PIECE):
                if needle in piece:
                    yield from _in_piece(piece, first, regex)
                first += piece.count(b"\n")
        except OSError:
            return


def _in_piece(piece: bytes, first: int, regex: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    lines = piece.removesuffix(b"\n").decode(errors="replace").split("\n")
    for number, line in enumerate(lines, first):
        line = line.rstrip("\r")
        if found := regex.search(line):
            yield number, _around(line, found)


def _around(line: str, found: re.Match[str]) -> str:
    """The line, or the part of a long one around the match."""
    if len(line) <= MAX_LINE:
        return line
    start = max(0, min(found.start() - MAX_LINE // 4, len(line) - MAX_LINE))
    end = start + MAX_LINE
    return f"{'...' if start else ''}{line[start:end]}{'...' if end < len(line) else ''}"


if __name__ == "__main__":
    sys.exit(main())
