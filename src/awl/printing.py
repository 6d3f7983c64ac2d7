"""Text that came from elsewhere, made harmless to print.

Whatever a model, a tool, a person or another program wrote is data. A terminal would act on some
of it: escape sequences move the cursor, set titles, paste into the shell. `safe` turns every such
character into something visible, and every place that prints stored text uses it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import accumulate
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f"
    # C1 controls: \x9b alone is a CSI to a terminal in 8-bit mode.
    "\x80-\x9f"
    # Bidirectional embeddings, overrides and isolates: they show a line in another order than it
    # has ("Trojan Source").
    "\u202a-\u202e\u2066-\u2069"
    # Lone surrogates: writing them to a UTF-8 stream raises.
    "\ud800-\udfff]"
)
_SPACE: Final = re.compile(r"\s+")


def safe(text: str) -> str:
    """The text with nothing in it that a terminal could act on, but newlines and tabs.

    Line ends `\\r\\n` become `\\n`. Control characters become their pictures (ESC: `␛`) or escapes
    (`\\x9b`), as do bidirectional overrides (`\\u202e`) and lone surrogates (`\\ud83d`).
    `safe(safe(text)) == safe(text)`.
    """
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(lambda found: _visible(found[0]), text.replace("\r\n", "\n"))


@cache
def _visible(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def safe_json(text: str) -> str:
    """JSON with nothing in it that a terminal could act on, but newlines and tabs; it says the same
    as before. What would be none in JSON (a control character outside of strings) stays none."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: an argument of a command may hold any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(text: str, width: int) -> str:
    """The text on one line of at most `width` terminal cells, cut with `…` if need be.

    Runs of white space become one space each. The result is `safe`.
    """
    # A line is never wider than this many characters, so a huge text is not read to its end
    # (combining characters, which take no cell, are given room).
    head = text[: 16 * max(width, 1) + 256]
    line = safe(_SPACE.sub(" ", head).strip())
    if len(head) == len(text) and cells(line) <= width:
        return line
    kept = max(width - 1, 0)
    if not line.isascii():
        kept = sum(end < width for end in accumulate(map(_cells_of, line)))
    return line[:kept].rstrip() + "…" if width > 0 else ""


def local_time(timestamp: str) -> str:
    """The local time of a logged one, to the minute; what stands there, as wide, if it is none."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(timestamp).astimezone().isoformat(" ")[:16]
    except (ValueError, OverflowError, OSError):  # not a time, or one that no clock here can show
        return one_line(timestamp, 16).replace("T", " ").ljust(16)


def cells(text: str) -> int:
    """The number of terminal cells that the text takes, if it is on one line."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
