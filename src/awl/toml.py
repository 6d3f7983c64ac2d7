"""Where things stand in a TOML text, which tomllib does not tell. Pure; for valid TOML only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

Key = tuple[str | int, ...]
"""A key's parts from the top of the document; an int stands for a table of an array of tables."""

_PART: Final = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED: Final = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_BLANK: Final = re.compile(r"(?:[ \t\r\n\ufeff]|#[^\n]*)*")
_HEADER: Final = re.compile(rf"(\[\[?)[ \t]*({_DOTTED})[ \t]*\]\]?[^\n]*\n?")
_SETTING: Final = re.compile(rf"({_DOTTED})[ \t]*=[ \t]*")
_VALUE: Final = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}|' + r"'''.*?''''{0,2}|"
    r'"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*'|"
    r"#[^\n]*|(?P<open>[\[{])|(?P<close>[\]}])|(?P<end>\n)|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)


class Statement(NamedTuple):
    """One header or one setting, and the characters that it takes up: [start, end), with the rest
    of its last line and the newline.

    `table` is the table that it opens, or in which it stands; `key` is the whole key, so of a
    header the same.
    """

    start: int
    end: int
    table: Key
    key: Key
    is_header: bool


def statements(text: str) -> Iterator[Statement]:
    """The headers and settings of a document, in order."""
    table: Key = ()
    arrays: dict[Key, int] = {}  # an array of tables -> the index of its newest table
    at = 0
    while (at := _end(_BLANK, text, at)) < len(text):
        if header := _HEADER.match(text, at):
            table = ()
            parts = _parts(header[2])
            for part in parts[:-1]:
                table = (*table, part)
                table = (*table, arrays[table]) if table in arrays else table
            table = (*table, parts[-1])
            if header[1] == "[[":
                arrays[table] = arrays.get(table, -1) + 1
                table = (*table, arrays[table])
            yield Statement(at, header.end(), table, table, True)
            at = header.end()
        elif setting := _SETTING.match(text, at):
            end = _value_end(text, setting.end())
            yield Statement(at, end, table, (*table, *_parts(setting[1])), False)
            at = end
        else:  # not TOML
            at = text.find("\n", at) + 1 or len(text)


def line_of(text: str, at: int) -> int:
    """The number of the line that holds a character."""
    return text.count("\n", 0, at) + 1


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _value_end(text: str, at: int) -> int:
    """Where the line ends on which a value ends."""
    depth = 0
    while found := _VALUE.match(text, at):
        at = found.end()
        depth += bool(found["open"]) - bool(found["close"])
        if found["end"] and depth <= 0:
            break
    return at


def _parts(dotted: str) -> list[str]:
    """The parts of a dotted key, without their quotes."""
    import tomllib

    return [next(iter(tomllib.loads(f"{part}=0"))) for part in re.findall(_PART, dotted)]
