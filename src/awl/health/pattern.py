"""A text that is to go, found however it is written: plainly, or behind JSON escapes of any depth.

A log holds strings as JSON writes them; a tool's input in a log is JSON inside such a string, and
what a tool printed can be JSON again. So a text is looked for as it stands, and in what is left of
it when its escapes are taken off, layer by layer. What is found is replaced in the text as it
stands, and nothing around it changes.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from awl.errors import AwlError
from awl.printing import is_text
from awl.secrets import MASK

PATIENCE: Final = 10.0
"""Seconds that a regular expression may take for one text."""

_LAYERS: Final = 6  # of escapes
_ROUNDS: Final = 8
_ESCAPE: Final = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    r"|u([0-9a-fA-F]{4})|([\"\\/bfnrt]))"
)
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')  # what JSON writes otherwise, wherever it stands
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class BadPattern(AwlError):
    """A pattern that cannot be used. The reason is for people."""


class Found(NamedTuple):
    """Where a text holds the pattern: characters [start, end)."""

    start: int
    end: int


class Pattern:
    """What is to go, and what comes in its place.

    Attributes:
        replacement: comes in the place of what is found.
        encoded: the bytes to look for in what is no text.
    """

    def __init__(self, text: str, *, regex: bool = False, replacement: str = MASK) -> None:
        """
        Args:
            text: what is to go: as it is, or with `regex` a regular expression.

        Raises:
            BadPattern: it is empty, no expression, or the replacement holds it.
        """
        self.replacement = replacement
        self._limited = regex
        try:
            self._find = re.compile(text if regex else re.escape(text))
        except (re.error, RecursionError, OverflowError) as error:
            raise BadPattern(f"that is no regular expression: {error}") from None
        if not is_text(text + replacement):
            raise BadPattern("the pattern and what replaces it must be UTF-8")
        if not text or self._matches(""):
            raise BadPattern("the pattern fits everything: it must hold something")
        if _ESCAPED.search(replacement):
            raise BadPattern(
                "the replacement may hold no quotes, backslashes and control characters"
            )
        self.encoded = () if regex else tuple(map(text.encode, ("utf-16-le", "utf-16-be")))
        # Of characters that JSON never escapes by a letter, only \uXXXX can hide one.
        self._plain = not regex and "/" not in text and not _ESCAPED.search(text)
        if self.holds(replacement):
            raise BadPattern("the replacement holds what is to go: choose another with --replace")

    def holds(self, text: str) -> bool:
        """Whether a text holds it, behind whatever escapes."""
        return next(self._all(text), None) is not None

    def scrub(self, text: str) -> tuple[str, int]:
        """The text without it, and how often it was there.

        Raises:
            BadPattern: it is there again each time it was replaced, or takes too long.
        """
        count = 0
        for _ in range(_ROUNDS):
            found = self.find(text)
            if not found:
                return text, count
            count += len(found)
            text = self.replaced(text, found)
        raise BadPattern("what is left holds it again each time: choose another with --replace")

    def find(self, text: str) -> list[Found]:
        """All places of a text that hold it, from left to right; none overlaps another."""
        apart: list[Found] = []
        for found in sorted(self._all(text)):
            if apart and found.start < apart[-1].end:
                before = apart[-1]
                apart[-1] = Found(before.start, max(before.end, found.end))
            else:
                apart.append(found)
        return apart

    def replaced(self, text: str, found: list[Found]) -> str:
        """The text with the replacement in these places."""
        parts, at = [], 0
        for start, end in found:
            parts += [text[at:start], self.replacement]
            at = end
        return "".join((*parts, text[at:]))

    def scrub_bytes(self, data: bytes) -> bytes:
        """The same for a file. In what is no text, as many bytes stay as there were."""
        try:
            return self.scrub(data.decode())[0].encode()
        except UnicodeDecodeError:
            pass
        text = data.decode("utf-8", "surrogateescape")
        for start, end in reversed(self.find(text)):
            size = len(text[start:end].encode("utf-8", "surrogateescape"))
            text = text[:start] + "*" * size + text[end:]
        data = text.encode("utf-8", "surrogateescape")
        for form in self.encoded:
            data = data.replace(form, b"*" * len(form))
        return data

    def in_bytes(self, data: bytes) -> bool:
        """Whether a file, or a part of one, holds it."""
        return any(form in data for form in self.encoded) or self.holds(
            data.decode("utf-8", "surrogateescape")
        )

    # -- inside ------------------------------------------------------------------------------------

    def _all(self, text: str) -> Iterator[Found]:
        layers: list[_Layer] = []
        for _ in range(_LAYERS):
            for start, end in self._spans(text):
                for layer in reversed(layers):
                    start, end = layer.outside(start), layer.outside(end)
                yield Found(start, end)
            if "\\" not in text or (self._plain and "\\u" not in text):
                return
            layer = _Layer(text)
            if layer.inside == text:
                return
            layers.append(layer)
            text = layer.inside

    def _spans(self, text: str) -> list[tuple[int, int]]:
        if not self._limited:
            return [match.span() for match in self._find.finditer(text)]
        with _limit():
            return [match.span() for match in self._find.finditer(text) if match[0]]

    def _matches(self, text: str) -> bool:
        with _limit():
            return self._find.search(text) is not None


class _Layer:
    """A text without its outermost escapes (`inside`), and where each character of it was."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._inside = [0]  # where a stretch without escapes begins, in here
        self._outside = [0]  # and out there
        length = at = 0
        for escape in _ESCAPE.finditer(text):
            plain, char = text[at : escape.start()], _unescaped(escape)
            parts += [plain, char]
            length += len(plain)
            self._inside += [length, length + len(char)]
            self._outside += [escape.start(), escape.end()]
            length += len(char)
            at = escape.end()
        self.inside = "".join((*parts, text[at:]))

    def outside(self, position: int) -> int:
        """Where a character of `inside` was."""
        at = bisect_right(self._inside, position) - 1
        return self._outside[at] + position - self._inside[at]


def _unescaped(escape: re.Match[str]) -> str:
    high, low, code, short = escape.groups()
    if high:
        return chr(0x10000 + (int(high, 16) - 0xD800 << 10) + int(low, 16) - 0xDC00)
    return chr(int(code, 16)) if code else _SHORT.get(short, short)


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """Give up on a search that takes too long. Only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return

    def stop(*_: Any) -> None:
        raise BadPattern(f"the expression takes more than {PATIENCE:g} s for one text: simplify it")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
