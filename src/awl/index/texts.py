"""What there is to search in a log, and what a query asks for. Pure.

A query is a list of needles: its words, and what it has in quotes, each of which must occur in an
entry's text, anywhere, whatever its case: what a plain grep finds is found. Words make that fast: a
needle that holds a word can only occur where a known word holds that one. Scripts without spaces
and words of an extreme length are no words here; such needles are looked for in the texts.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final, NamedTuple

from awl.conversation import Image, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse
from awl.entries import (
    CondensationEntry,
    Entry,
    Header,
    ImportEntry,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    NoteEntry,
    PartialEntry,
    RewindEntry,
    TitleEntry,
    ToolResultEntry,
)
from awl.index.rows import Taken
from awl.log.line import Outer
from awl.log.scan import Damage, Line
from awl.state import LARGEST, import_text, is_prompt, summary_text

LONGEST_WORD: Final = 64
"""Characters of a word that is indexed as one."""

_AROUND: Final = 48  # characters of a snippet before and behind the hit

# Letters, digits and underscores, but for scripts that write without spaces (Thai to Tibetan,
# Burmese, Khmer, CJK and kana), where a "word" would be a whole sentence.
_WORD: Final = re.compile(
    r"[^\W\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\ua4cf\uf900-\ufaff"
    r"\uff66-\uff9f\U00020000-\U0003ffff]+"
)
_NEEDLE: Final = re.compile(r'"([^"]*)"?|(\S+)')


class Doc(NamedTuple):
    """The text of one entry. `role` is whose words they are, or what kind of entry it is."""

    seq: int
    entry_id: str
    role: str
    timestamp: str
    text: str


class Needle(NamedTuple):
    """Something to look for. `cased`: upper and lower case of it differ, so texts are folded.
    `piece`: its longest word, by which entries can be found; empty: only by looking."""

    text: str
    cased: bool
    piece: str


def fold(text: str) -> str:
    """The text without regard to case."""
    return text.casefold()


def words(text: str) -> set[str]:
    """The words of a text, folded. A word that is too long to be indexed is the empty one."""
    found = set(_WORD.findall(fold(text)))
    if max(map(len, found), default=0) > LONGEST_WORD:
        return {word if len(word) <= LONGEST_WORD else "" for word in found}
    return found


def needles(query: str) -> tuple[Needle, ...]:
    """What a query asks for: its words and, whole, what is in quotes. A quote that is never closed
    and a query of quotes alone are taken as they are."""
    if query.count('"') % 2:
        parts = query.split()
    else:
        parts = [phrase or word for phrase, word in _NEEDLE.findall(query) if phrase or word]
    return tuple(map(_needle, parts or query.split()))


def _needle(part: str) -> Needle:
    text = fold(part)
    piece = max(_WORD.findall(text), key=len, default="")
    return Needle(text, text.upper() != text.lower(), piece if len(piece) <= LONGEST_WORD else "")


def excerpt(text: str, wanted: tuple[Needle, ...]) -> str | None:
    """The text around its first hit on one line, the hit in « »; None unless all needles occur."""
    folded = text.casefold()
    at = size = len(folded)
    for needle in wanted:
        found = folded.find(needle.text)
        if found < 0:
            return None
        if (hit := (found, len(needle.text))) < (at, size):
            at, size = hit
    end = at + size
    if len(folded) != len(text):  # a sharp s is two letters when folded
        ends = list(accumulate(len(fold(letter)) for letter in text))
        at, end = bisect_right(ends, at), bisect_left(ends, end) + 1
    begin, start = (at - _AROUND, "…") if at > _AROUND else (0, "")
    before, behind = text[begin:at], text[end : end + _AROUND]
    more = "…" if end + _AROUND < len(text) else ""
    line = f"{start}{before.lstrip()}«{text[at:end]}»{behind.rstrip()}{more}"
    if line.isprintable() and "  " not in line:  # of all white space, only a space is printable
        return line
    return " ".join(line.split())


class Docs:
    """The docs of a log's lines, in order. What streamed and the results of an open batch are said
    again by the message that follows: until then they are docs of their own."""

    def __init__(self, mark: Taken) -> None:
        self._next = mark.from_doc
        self._last_seq = mark.last_seq
        self._pending: list[tuple[int, Entry]] = []
        self._settled = mark

    def take(self, line: Line | Damage) -> list[Doc]:
        """The docs that a line adds."""
        if isinstance(line, Damage) or isinstance(line.entry, Header | Outer):
            return []
        entry = line.entry
        before = self._last_seq
        seq = entry.seq if 0 < entry.seq <= LARGEST else before + 1
        self._last_seq = seq
        if isinstance(entry, PartialEntry | ToolResultEntry):
            if not self._pending:
                self._settled = self._mark(line.start, before)
            self._pending.append((seq, entry))
            return []
        made: list[Doc] = []
        if isinstance(entry, MessageEntry | RewindEntry):
            made = self._end_pending(entry)
        if (said := _said(entry)) is not None:
            role, text = said
            made.append(Doc(seq, entry.id, role, entry.timestamp, text))
        made = [doc for doc in made if doc.text.strip()]
        self._next += len(made)
        return made

    @property
    def settled(self) -> bool:
        """Whether nothing is open."""
        return not self._pending

    def finish(self, end: int) -> tuple[list[Doc], Taken]:
        """The docs of what is still open at the end of the log, and the mark to go on from."""
        if not self._pending:
            return [], self._mark(end, self._last_seq)
        return [doc for doc in self._flush(None) if doc.text.strip()], self._settled

    def _mark(self, start: int, last_seq: int) -> Taken:
        return Taken(start, self._next, self._next, last_seq)

    def _end_pending(self, entry: MessageEntry | RewindEntry) -> list[Doc]:
        docs = self._flush(entry)
        self._pending = []
        return docs

    def _flush(self, follower: MessageEntry | RewindEntry | None) -> list[Doc]:
        """The docs of what is open, less what the entry after it says again."""
        repeated: set[str] = set()
        voids = False
        if isinstance(follower, MessageEntry):
            voids = follower.message.role == "assistant"
            results = follower.message.said().tool_results
            repeated = {result.tool_use_id for result in results}
        docs: list[Doc] = []
        run: list[tuple[int, PartialEntry]] = []
        for seq, entry in self._pending:
            if isinstance(entry, PartialEntry):
                run.append((seq, entry))
            elif isinstance(entry, ToolResultEntry) and entry.tool_use_id not in repeated:
                docs.append(Doc(seq, entry.id, "tool", entry.timestamp, entry.content))
        if run and not voids:
            seq, first = run[0]
            text = _streamed([entry for _, entry in run])
            docs.append(Doc(seq, first.id, "assistant", first.timestamp, text))
        return sorted(docs)


def _streamed(run: list[PartialEntry]) -> str:
    """What arrived of an answer, its blocks put together."""
    blocks: dict[int, str] = {}
    for entry in run:
        for block in entry.content:
            blocks[block.index] = blocks.get(block.index, "") + block.thinking + block.text
    return "\n".join(text for _, text in sorted(blocks.items()))


def _said(entry: Entry) -> tuple[str, str] | None:
    """Whose words an entry has, and which."""
    match entry:
        case MessageEntry(message=message):
            return _role(message), "\n".join(filter(None, map(_block, message.content)))
        case TitleEntry(title=title):
            return "title", title
        case LabelEntry(label=label):
            return "label", label
        case CondensationEntry(summary=summary):
            return "summary", summary_text(summary)
        case ImportEntry(messages=messages) if messages:
            return "import", import_text(entry)
        case NoteEntry(text=text):
            return "note", text
    return None


def _role(message: LoggedMessage) -> str:
    return "tool" if message.role == "user" and not is_prompt(message.said()) else message.role


def _block(block: object) -> str:
    match block:
        case Text(text=text):
            return text
        case Thinking(thinking=thinking):
            return thinking
        case ToolUse(name=name, input=given):
            return f"{name} {given}{_unescaped(given)}"
        case ToolResult(content=content):
            return content
        case Opaque(raw=raw):
            return raw
        case Image() | RedactedThinking():
            return ""
    return ""


def _unescaped(given: str) -> str:
    """The strings in a call's input as people wrote them, where JSON writes them otherwise."""
    if "\\" not in given:
        return ""
    try:
        return "\n" + "\n".join(_strings(json.loads(given)))
    except (ValueError, RecursionError):
        return ""


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)
