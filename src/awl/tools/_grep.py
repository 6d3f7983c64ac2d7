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
    left = wanted["limit"] + 1
    for name in names.split(b"\0"):
        shown = name.decode(errors="replace").replace("\n", "\\n")
        for number, text in _matches(name, regex):
            # At once, since this process is ended when the search takes too long.
            sys.stdout.buffer.write(f"{shown}:{number}:{text}\n".encode(errors="replace"))
            sys.stdout.buffer.flush()
            left -= 1
            if not left:
                return 0
    return 0


def _matches(name: bytes, regex: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The lines of a file that match, with their numbers. Binary and special files have none."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as file:
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode) or b"\0" in file.peek(BINARY_PROBE):
                return
            number = 1
            while piece := file.readline(MAX_PIECE):
                line = piece.decode(errors="replace").rstrip("\r\n")
                if found := regex.search(line):
                    yield number, _around(line, found)
                number += piece.endswith(b"\n")
        except OSError:
            return


def _around(line: str, found: re.Match[str]) -> str:
    """The line, or the part of a long one around the match."""
    if len(line) <= MAX_LINE:
        return line
    start = max(0, min(found.start() - MAX_LINE // 4, len(line) - MAX_LINE))
    end = start + MAX_LINE
    return f"{'...' if start else ''}{line[start:end]}{'...' if end < len(line) else ''}"


if __name__ == "__main__":
    sys.exit(main())
