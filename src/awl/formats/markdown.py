"""A session as Markdown for people: prompts and answers in order, tool calls and reasoning folded.

All that was said is there, in the order of the log; what is not on the current path says so. Fences
are longer than any run of backticks in what they hold, so nothing can end one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from awl.conversation import Image, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    CwdChangeEntry,
    Entry,
    ForkPointEntry,
    ImportEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    RewindEntry,
    TitleEntry,
    ToolResultEntry,
    UnknownEntry,
)
from awl.formats.format import Format, Source
from awl.printing import one_line, safe
from awl.state import State, import_text, is_prompt, summary_text

_LINE: Final = 100

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_CODE: Final = re.compile(r"(`[^`]+`)")

_ENDED: Final = {"aborted": "cancelled", "error": "broke off", "length": "cut at the limit"}


def write(source: Source) -> Iterator[bytes]:
    """The document, in pieces."""
    for piece in _document(source.state):
        yield safe(piece).encode()


def _document(state: State) -> Iterator[str]:
    header = state.header
    assert header is not None
    model = state.active_model
    yield f"# {_escaped(state.given_title or _first_words(state) or header.id)}\n\n"
    for name, value in (
        ("Session", header.id),
        ("Directory", state.cwd),
        ("Model", f"{model.provider}/{model.model}"),
        ("Begun", header.timestamp),
        ("Messages", str(state.message_count)),
    ):
        yield f"- {name}: {_code(value)}\n"
    if header.forked_from is not None:
        yield f"- Fork of {_code(header.forked_from.session_id)} at {header.forked_from.seq}\n"
    for damage in state.damage:
        yield f"- Damaged: line {damage.line}, {_escaped(damage.reason)}; only this line is lost\n"
    yield "\n"
    on_path = set(state.path)
    results = _Results(state)
    for position in range(len(state.entries)):
        entry = state.body(position)
        mark = "" if position in on_path else " (not on the current path)"
        yield from _entry(entry, state.seqs[position], position, mark, results)


def _entry(entry: Entry, seq: int, position: int, mark: str, results: _Results) -> Iterator[str]:
    match entry:
        case MessageEntry():
            yield from _message(entry, seq, position, mark, results)
        case PartialEntry() if not results.void(position):
            words = "".join(block.text for block in entry.content)
            if words:
                yield f"*interrupted answer, so far:*{mark}\n\n{_words(words)}\n\n"
        case CondensationEntry():
            lo, hi = entry.replaced
            text = f"From here on the model reads entries {lo}-{hi} as a summary"
            yield f"---\n\n*{text}.*{mark}\n\n"
            yield _folded("the summary", _words(summary_text(entry.summary)))
        case CompactionEntry():
            yield f"*{entry.cleared_count} old tool outputs are no longer sent.*\n\n"
        case RewindEntry():
            yield "---\n\n*Went back from here.*\n\n"
        case ModelChangeEntry():
            yield f"*Switched to {_code(f'{entry.provider}/{entry.model}')}.*\n\n"
        case CwdChangeEntry():
            yield f"*Moved to {_code(entry.cwd)}.*\n\n"
        case TitleEntry():
            yield f"*Named: {_escaped(one_line(entry.title, _LINE))}.*\n\n"
        case ForkPointEntry():
            yield f"*Forked at {entry.at} as {_code(entry.new_session_id)}.*\n\n"
        case ImportEntry() if entry.source == "legacy":
            yield _folded(
                f"{entry.message_count} messages before the log", _words(import_text(entry))
            )
        case ImportEntry():
            yield f"*Imported from {_escaped(entry.source)}.*\n\n"
        case ToolResultEntry() if results.is_orphan(position, entry.tool_use_id):
            yield _orphan(entry)
        case NoteEntry():
            body = _fence(entry.text) + "".join(map(_picture, entry.images))
            yield _folded(f"told the model: {one_line(entry.kind, _LINE)}", body)
        case UnknownEntry():
            raw = msgspec.json.format(msgspec.json.encode(entry.raw)).decode()
            yield _folded(f"an entry of type {one_line(entry.kind, _LINE)}", _fence(raw))


def _message(
    entry: MessageEntry, seq: int, position: int, mark: str, results: _Results
) -> Iterator[str]:
    logged = entry.message
    said = logged.said()
    orphans = [one for one in said.tool_results if results.is_orphan(position, one.tool_use_id)]
    if logged.role == "user" and not is_prompt(said):
        yield from map(_orphan, orphans)
        return
    who = {"user": "Prompt", "system": "System text"}.get(
        logged.role, one_line(logged.model or "Answer", _LINE)
    )
    ended = _ENDED.get(logged.stop_reason or "")
    facts = f"{seq}, {one_line(entry.timestamp, _LINE)}" + (f", {ended}" if ended else "")
    level = "##" if logged.role == "user" else "###"
    yield f"{level} {_escaped(who)}{mark}\n\n<sub>{_escaped(facts)}</sub>\n\n"
    for block in logged.content:
        match block:
            case Text():
                yield f"{_words(block.text)}\n\n"
            case Thinking() if block.thinking.strip():
                yield _folded("thinking", _words(block.thinking))
            case RedactedThinking():
                yield "*[reasoning, encrypted]*\n\n"
            case Image():
                yield f"*[image, {_escaped(block.mime_type)}, {block.blob.size} bytes]*\n\n"
            case ToolUse():
                yield _call(block, results.of(position, block.id))
            case Opaque():
                yield _folded(f"a block of type {one_line(block.kind, 40)}", _fence(block.raw))
    yield from map(_orphan, orphans)


def _call(use: ToolUse, result: ToolResult | ToolResultEntry | None) -> str:
    first = one_line(use.input, _LINE)
    facts = ""
    body = _fence(use.input)
    if result is None:
        facts = " (no result was recorded)"
    else:
        took = "" if result.duration_ms is None else f" {result.duration_ms / 1000:.1f} s"
        facts = f"{took}{' (error)' if result.is_error else ''}"
        body += "\n" + _fence(result.content) + "".join(map(_picture, result.images))
    return _folded(f"{one_line(use.name, 40)} {first}{facts}", body)


def _orphan(result: ToolResult | ToolResultEntry) -> str:
    body = _fence(result.content) + "".join(map(_picture, result.images))
    facts = " (error)" if result.is_error else ""
    name = one_line(result.tool_use_id, 40)
    return _folded(f"the result of a call that is not here: {name}{facts}", body)


def _picture(image: Image) -> str:
    return f"\n*[image, {_escaped(image.mime_type)}, {image.blob.size} bytes]*\n"


def _words(text: str) -> str:
    """What was said, as Markdown that ends where it ends: an open fence is closed, and markup that
    a viewer might act on stands as text."""
    lines = []
    fence = ""
    for line in text.strip().split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
        else:
            parts = _CODE.split(line)
            line = "".join(
                part if place % 2 else part.replace("<", "&lt;") for place, part in enumerate(parts)
            )
        lines.append(line)
    return "\n".join([*lines, fence] if fence else lines)


def _folded(title: str, body: str) -> str:
    return (
        f"<details>\n<summary>{html.escape(title)}</summary>\n\n{body.rstrip()}\n\n</details>\n\n"
    )


def _fence(text: str) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _code(text: str) -> str:
    line = one_line(text, 1000)
    return f"`{line}`" if "`" not in line else _escaped(line)


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text.replace("\n", " "))


def _first_words(state: State) -> str:
    return next((one_line(words, 80) for words in state.prompts() if words.strip()), "")


class _Results:
    """Which result answers a call, and which partials an answer made void; in one pass."""

    def __init__(self, state: State) -> None:
        self._of: dict[tuple[int, str], list[ToolResult | ToolResultEntry]] = {}
        self._taken: dict[tuple[int, str], int] = {}
        self._void: set[int] = set()
        self._orphans: set[tuple[int, str]] = set()
        calls: dict[str, int] = {}
        alone: set[tuple[int, str]] = set()
        partials: list[int] = []
        for position in range(len(state.entries)):
            entry = state.body(position)
            if isinstance(entry, PartialEntry):
                partials.append(position)
            elif isinstance(entry, ToolResultEntry) and entry.tool_use_id not in calls:
                self._orphans.add((position, entry.tool_use_id))
            elif isinstance(entry, ToolResultEntry):
                key = (calls[entry.tool_use_id], entry.tool_use_id)
                self._of.setdefault(key, []).append(entry)
                alone.add(key)
            elif isinstance(entry, MessageEntry):
                said = entry.message.said()
                if said.role == "assistant":
                    self._void.update(partials)
                partials = []
                for use in said.tool_uses:
                    calls[use.id] = position
                for result in said.tool_results:
                    if result.tool_use_id not in calls:
                        self._orphans.add((position, result.tool_use_id))
                        continue
                    key = (calls[result.tool_use_id], result.tool_use_id)
                    if key in alone:  # the same, as the model was shown it
                        alone.discard(key)
                        self._of[key] = []
                    self._of.setdefault(key, []).append(result)

    def of(self, position: int, tool_use_id: str) -> ToolResult | ToolResultEntry | None:
        """The next result of a call with this id in the message at `position`."""
        key = (position, tool_use_id)
        found = self._of.get(key, [])
        place = self._taken.get(key, 0)
        self._taken[key] = place + 1
        return found[place] if place < len(found) else None

    def is_orphan(self, position: int, tool_use_id: str) -> bool:
        """Whether no call with this id came before the result at `position`."""
        return (position, tool_use_id) in self._orphans

    def void(self, position: int) -> bool:
        return position in self._void


FORMAT: Final = Format(
    name="markdown",
    title="Markdown for people",
    write=write,
    cannot_carry=("pictures and uncut tool output: they are named, with their sizes",),
)
