"""Other programs' session files: read into entries, and where it makes sense written from them.

One module a format, named after the program, with the facts of its files in the docstring; each is
imported when it is asked for. A format never changes what it reads, reads it as a stream, and keeps
what it does not know. `awl.formats.format` says what a format is, `records` reads damaged files,
`chain` strings what was read into awl's order, `listing` finds the files.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

from awl.errors import AwlError
from awl.formats.format import Facts, Format, Imported, Report, Source

__all__ = [
    "NAMES",
    "Facts",
    "Format",
    "Imported",
    "Report",
    "Source",
    "UnknownFormat",
    "find",
    "named_by",
]

_MODULES: Final = {
    "claude-code": "claude_code",
    "codex": "codex",
    "gemini-cli": "gemini_cli",
    "html": "html",
    "kimi-cli": "kimi_cli",
    "markdown": "markdown",
    "opencode": "opencode",
    "openai": "openai",
    "pi": "pi",
    "qwen-code": "qwen_code",
    "zeph": "zeph",
}

_SUFFIXES: Final = {".html": "html", ".htm": "html", ".md": "markdown"}

NAMES: Final = tuple(_MODULES)
"""The formats there are, by name."""


class UnknownFormat(AwlError):
    """There is no format of this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no format {name!r}: choose one of {', '.join(NAMES)}")


def find(name: str) -> Format:
    """The format of a name.

    Raises:
        UnknownFormat: there is none.
    """
    try:
        module = _MODULES[name]
    except KeyError:
        raise UnknownFormat(name) from None
    found: Format = importlib.import_module(f"awl.formats.{module}").FORMAT
    return found


def named_by(target: Path) -> str | None:
    """The format that the name of a file to write asks for; None: it asks for none."""
    return _SUFFIXES.get(target.suffix.lower())
