"""Glob patterns as models write them: `*.py`, `src/**/test_*.py`, `**/*.{ts,tsx}`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from typing import Final

from awl.tools._input import Failure

MAX_ALTERNATIVES: Final = 100
"""Patterns that braces may stand for."""

_MAGIC = re.compile(r"[*?\[{]")
_Part = Callable[[str], object] | None  # None is `**`


def fixed_part(pattern: str) -> tuple[str, str]:
    """The folders that a pattern begins with, up to its first wildcard, and the rest."""
    head, parts = [], pattern.split("/")
    while len(parts) > 1 and not _MAGIC.search(parts[0]):
        head.append(parts.pop(0))
    prefix = "/".join(head)
    return prefix or ("/" if head else ""), "/".join(parts)


def matcher(pattern: str, *, anchored: bool) -> Callable[[str], bool]:
    """A test for relative paths. Not `anchored`, it holds for the end of a path: `*.py`."""
    patterns = []
    for plain in _expand_braces(pattern):
        parts = [_part(part) for part in plain.split("/") if part not in ("", ".")]
        patterns.append(parts if anchored else [None, *parts])
    return lambda path: any(_matches(parts, path.split("/")) for parts in patterns)


def _part(part: str) -> _Part:
    # fnmatch's own translation does not backtrack over several stars.
    return None if part == "**" else re.compile(fnmatch.translate(part)).match


def _matches(parts: Sequence[_Part], names: Sequence[str]) -> bool:
    """Whether the parts cover all names. Keeps the set of places in `parts` it can have reached."""
    places = _skip({0}, parts)
    for name in names:
        after: set[int] = set()
        for place in places:
            if place < len(parts):
                part = parts[place]
                if part is None:
                    after.add(place)
                elif part(name):
                    after.add(place + 1)
        places = _skip(after, parts)
    return len(parts) in places


def _skip(places: set[int], parts: Sequence[_Part]) -> set[int]:
    """Also the places after each `**`, which may stand for nothing."""
    reached = set(places)
    for place in sorted(places):
        while place < len(parts) and parts[place] is None:
            place += 1
            reached.add(place)
    return reached


def _expand_braces(pattern: str) -> list[str]:
    """`a.{b,c}` stands for `a.b` and `a.c`; braces within braces are expanded from the inside."""
    done: list[str] = []
    pending = [pattern]
    while pending:
        text = pending.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if not found:
            done.append(text)
        else:
            options = found[1].split(",")
            pending += [text[: found.start()] + option + text[found.end() :] for option in options]
        if len(done) + len(pending) > MAX_ALTERNATIVES:
            raise Failure(f"the braces of {pattern} stand for too many patterns")
    return done
