"""zeph: `<sessions>/<session id>/events.jsonl`, with `blobs/<sha256>` beside it.

A line is one event:

    {"seq":0,"ts_ms":1777138815990,"turn_id":1,"parent_seq":41,"kind":{"type":"user_message",…}}

``turn_id`` and ``parent_seq`` are left out when there is none; ``parent_seq`` stands on the first
line of a fork only. The file is linear: zeph cannot go back.

session_started    session_id, cwd, provider_name, model, forked_from? [id, seq]. In a fork the
                   parent's own follows among the copied events.
user_message       text, image_refs [sha256 of a blob].
assistant_message  parts, told apart by their ``kind``: text, tool_use (input is any JSON value),
                   tool_result, thinking_block, redacted_thinking_block; others are kept.
tool_call          id, name, input: the call starts. Where no ``tool_use`` part made it, it is the
                   call itself, and belongs to the answer before it.
tool_result        id, name, output, is_error, duration_ms.
condensation       replaced_seq_range [lo, hi], summary, tokens_before, tokens_after.
compaction         tier soft or hard, cleared_count, summary?. With a summary everything so far is
                   replaced by it, which in awl is a condensation.
fork_point, model_changed, session_ended; others are kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from awl.conversation import (
    BlobRef,
    ContentBlock,
    Image,
    Opaque,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    CwdChangeEntry,
    EndEntry,
    Entry,
    ForkPointEntry,
    ImportEntry,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    PartialEntry,
    RewindEntry,
    Summary,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
)
from awl.formats.chain import Chain
from awl.formats.format import TWICE, Facts, Format, Head, Imported, Keep, Place, Report, Source
from awl.formats.payloads import UNKNOWN, mime_type_of
from awl.formats.records import Block, Lines, Records, head_of, kept, lenient, size_of, time_of
from awl.state import CUT_SHORT, Item, entry_type, import_text, is_prompt

NAME: Final = "zeph"


def _recognise(head: Head) -> bool:
    return any(
        isinstance(found.get("seq"), int)
        and "ts_ms" in found
        and isinstance(kind := found.get("kind"), dict)
        and isinstance(kind.get("type"), str)
        for found in head.objects
    )


def _read(path: Path, keep: Keep) -> Imported:
    started = next(filter(None, map(_started, head_of(path).objects)), {})
    report = Report()
    lines = Lines(path, report)
    session_id = started.get("session_id") or path.parent.name
    facts = Facts(
        source=NAME,
        source_id=session_id,
        source_path=path,
        cwd=started.get("cwd", ""),
        provider=started.get("provider_name", ""),
        model=started.get("model", ""),
        created=started.get("created", ""),
    )
    reader = _Reader(lines, report, Chain(session_id), keep)
    return Imported(facts, iter(reader), report, size_of(path), lambda: lines.end)


def _started(event: dict[str, Any]) -> dict[str, str]:
    kind = event.get("kind")
    if not isinstance(kind, dict) or kind.get("type") != "session_started":
        return {}
    found = {key: value for key, value in kind.items() if isinstance(value, str)}
    return {**found, "created": time_of(event.get("ts_ms"))}


# -- reading ---------------------------------------------------------------------------------------


class _Kind(msgspec.Struct, frozen=True, gc=False):
    """All fields that an event's kind may have; each type uses some."""

    type: str
    text: str = ""
    image_refs: list[str] = []
    parts: msgspec.Raw = msgspec.Raw(b"[]")
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    output: str = ""
    is_error: bool = False
    duration_ms: int | None = None
    replaced_seq_range: tuple[int, int] = (0, 0)
    summary: msgspec.Raw = msgspec.Raw()
    tokens_before: int = 0
    tokens_after: int = 0
    tier: str = ""
    cleared_count: int = 0
    new_session_id: str = ""
    provider_name: str = ""
    model: str = ""
    reason: str = ""


class _Event(msgspec.Struct, frozen=True, gc=False):
    kind: _Kind
    seq: Annotated[int, msgspec.Meta(ge=-1, lt=1 << 62)] = -1
    ts_ms: int = 0


class _Part(msgspec.Struct, frozen=True, gc=False):
    kind: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str = ""
    is_error: bool = False
    thinking: str = ""
    signature: str = ""
    data: str = ""


class _KnownPart(_Part, frozen=True, gc=False):
    """A part of a kind that awl knows. The decoder refuses all others, whose bytes are to be
    kept."""

    kind: Literal["redacted_thinking_block", "text", "thinking_block", "tool_result", "tool_use"]


class _Summary(msgspec.Struct, frozen=True, gc=False):
    session_intent: str = ""
    files_modified: list[str] = []
    decisions_made: list[str] = []
    open_questions: list[str] = []
    next_steps: list[str] = []

    def entry(self) -> Summary:
        return Summary(
            session_intent=self.session_intent,
            files_modified=tuple(self.files_modified),
            decisions_made=tuple(self.decisions_made),
            open_questions=tuple(self.open_questions),
            next_steps=tuple(self.next_steps),
        )


_part: Final = msgspec.json.Decoder(_Part).decode
_known_part: Final = msgspec.json.Decoder(_KnownPart).decode
_known_parts: Final = msgspec.json.Decoder(list[_KnownPart]).decode
_raws: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Reader:
    """The entries of a file of events."""

    def __init__(self, lines: Lines, report: Report, chain: Chain, keep: Keep) -> None:
        self._lines = lines
        self._report = report
        self._chain = chain
        self._keep = keep
        self._blobs = lines.path.parent / "blobs"
        self._begun = False
        self._ts_ms: int | None = None  # of the event before
        self._time = ""
        self._readers = {
            "session_started": self._session_started,
            "user_message": self._prompt,
            "assistant_message": self._answer,
            "tool_call": self._call,
            "tool_result": self._result,
            "condensation": self._condensed_by,
            "compaction": self._compaction,
            "fork_point": self._fork_point,
            "model_changed": self._switch,
            "session_ended": self._ended,
        }
        # Since the last prompt, by id: how much more often a part has told of a call or a result
        # than an event, which may tell of the same again; below zero, the other way round.
        self._calls: dict[str, int] = {}
        self._results: dict[str, int] = {}
        self._condensed = 0
        self._last_summary = 0
        # For each event, in order of seq: its seq, and how many entries it and those before gave.
        # Before them all there is one that gave none.
        self._seqs = array("q", [-2])
        self._counts = array("q", [0])

    def __iter__(self) -> Iterator[Entry]:
        return chain.from_iterable(map(self._entries, Records(self._lines, _Event).blocks()))

    def _entries(self, block: Block[_Event]) -> list[Entry]:
        found: list[Entry] = []
        for line, event in zip(block.lines, block.records, strict=True):
            if event is None:
                found.append(self._opaque("unknown", line))
                continue
            is_next = event.seq > self._seqs[-1]
            if not is_next and self._is_known(event):
                self._report.left_out[TWICE] += 1
                continue
            if event.ts_ms != self._ts_ms:
                self._ts_ms = event.ts_ms
                self._time = time_of(event.ts_ms) or self._time
            kind = event.kind
            found += self._readers.get(kind.type, self._unknown)(kind, line)
            if is_next:
                self._seqs.append(event.seq)
                self._counts.append(self._chain.count)
            else:
                self._counts[-1] = self._chain.count
        return found

    def _is_known(self, event: _Event) -> bool:
        """Whether an event with this seq was there; in a fork the parent's start follows."""
        if event.kind.type == "session_started":
            return False
        at = bisect_left(self._seqs, event.seq)
        return self._seqs[at] == event.seq >= 0

    def _unknown(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        return (self._opaque(kind.type, line),)

    def _session_started(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        first, self._begun = not self._begun, True
        if first and "forked_from" not in (lenient(line) or {}).get("kind", {}):  # type: ignore[attr-defined]
            return ()
        return self._unknown(kind, line)

    def _message(
        self, role: Role, content: Sequence[ContentBlock], stop_reason: str | None = None
    ) -> MessageEntry:
        logged = LoggedMessage(role=role, content=tuple(content), stop_reason=stop_reason)
        return MessageEntry(id=self._chain.draw(), timestamp=self._time, message=logged)

    def _prompt(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        self._calls, self._results = {}, {}
        content: list[ContentBlock] = []
        if kind.text or not kind.image_refs:
            content.append(Text(text=kind.text))
        content.extend(map(self._image, kind.image_refs))
        return (self._message("user", content),)

    def _call(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        found: list[Entry] = []
        if not _match(self._calls, kind.id, -1):
            use = _use(kind.id, kind.name, kind.input)
            found.append(self._message("assistant", (use,), _TOLD_BY_EVENT))
        name, at = self._chain.draw(), self._time
        found.append(ToolCallEntry(id=name, timestamp=at, tool_use_id=kind.id, name=kind.name))
        return found

    def _result(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        if _match(self._results, kind.id, -1):
            return self._unknown(kind, line)
        result = ToolResult(
            tool_use_id=kind.id,
            content=kind.output,
            is_error=kind.is_error,
            duration_ms=kind.duration_ms,
        )
        return (self._message("user", (result,)),)

    def _fork_point(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        at = self._chain.count
        name, child = self._chain.draw(), kind.new_session_id
        return (ForkPointEntry(id=name, timestamp=self._time, new_session_id=child, at=at),)

    def _switch(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        change = ModelChangeEntry(
            id=self._chain.draw(),
            timestamp=self._time,
            provider=kind.provider_name,
            model=kind.model,
        )
        return (change,)

    def _ended(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        return (EndEntry(id=self._chain.draw(), timestamp=self._time, reason=kind.reason),)

    def _image(self, name: str) -> Image:
        try:
            data = (self._blobs / Path(name).name).read_bytes()
        except (OSError, ValueError):
            self._report.left_out["images whose files are missing"] += 1
            return Image(mime_type=UNKNOWN, blob=BlobRef(blob=name, size=0))
        return Image(mime_type=mime_type_of(data), blob=self._keep(data))

    def _answer(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        """An answer; results among its parts divide it, as calls are answered before it goes on."""
        found: list[Entry] = []
        content: list[ContentBlock] = []
        parts = _parts_of(kind.parts)
        for part in parts:
            block = part if isinstance(part, Opaque) else self._block(part)
            if not isinstance(block, ToolResult):
                if block is not None:
                    content.append(block)
                continue
            if content:
                found.append(self._message("assistant", content))
                content = []
            found.append(self._message("user", (block,)))
        if content or not parts:
            found.append(self._message("assistant", content))
        return found

    def _block(self, part: _KnownPart) -> ContentBlock | None:
        """A part's block; None for what an event has said already."""
        match part.kind:
            case "text":
                return Text(text=part.text)
            case "tool_use":
                if _match(self._calls, part.id, 1):
                    return None
                return _use(part.id, part.name, part.input)
            case "tool_result":
                if _match(self._results, part.tool_use_id, 1):
                    return None
                return ToolResult(
                    tool_use_id=part.tool_use_id, content=part.content, is_error=part.is_error
                )
            case "thinking_block":
                return Thinking(thinking=part.thinking, signature=part.signature or None)
            case "redacted_thinking_block":
                return RedactedThinking(data=part.data)

    def _condensation(
        self,
        replaced: tuple[int, int],
        summary: Summary,
        before: int,
        after: int,
        absorbs: tuple[int, ...] = (),
    ) -> CondensationEntry:
        self._condensed = max(self._condensed, replaced[1])
        name = self._chain.draw()
        self._last_summary = self._chain.count
        return CondensationEntry(
            id=name,
            timestamp=self._time,
            replaced=replaced,
            absorbs=absorbs,
            summary=summary,
            tokens_before=before,
            tokens_after=after,
        )

    def _condensed_by(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        """A condensation. Of what a hard compaction replaced before it, it replaces nothing again:
        then the event itself is kept, too."""
        found: list[Entry] = []
        first, last = self._range(*kind.replaced_seq_range)
        if self._condensed and first <= self._condensed:
            found.append(self._opaque(kind.type, line))
            first = self._condensed + 1
            if first > last:
                return found
        summary = _summary(kind.summary)
        before, after = kind.tokens_before, kind.tokens_after
        found.append(self._condensation((first, last), summary, before, after))
        return found

    def _compaction(self, kind: _Kind, line: bytes) -> Sequence[Entry]:
        if not kind.summary or bytes(kind.summary) == b"null":
            cleared = CompactionEntry(
                id=self._chain.draw(),
                timestamp=self._time,
                tier=kind.tier,
                cleared_count=kind.cleared_count,
            )
            return (cleared,)
        last = self._chain.count
        event = self._opaque(kind.type, line)
        first = min(self._condensed + 1, last)
        absorbs = (self._last_summary,) if self._last_summary else ()
        summary = _summary(kind.summary)
        return (event, self._condensation((first, last), summary, 0, 0, absorbs))

    def _range(self, lo: int, hi: int) -> tuple[int, int]:
        """The numbers of the entries that the events of a range gave; that of the `import` entry,
        0, where they gave none."""
        before = bisect_left(self._seqs, lo)
        until = bisect_right(self._seqs, hi)
        first = (self._counts[before - 1] if before else 0) + 1
        last = self._counts[until - 1] if until else 0
        return (first, last) if first <= last else (last, last)

    def _opaque(self, kind: str, line: bytes) -> UnknownEntry:
        return UnknownEntry(
            id=self._chain.draw(),
            timestamp=self._time,
            kind=f"{NAME}:{kind}",
            raw={"record": kept(line)},
        )


def _match(told: dict[str, int], name: str, by: int) -> bool:
    """Count what a part (1) or an event (-1) tells, and whether the other one told it already.

    Ids may come again for other calls: each telling is matched once.
    """
    before = told.get(name, 0)
    told[name] = before + by
    return before * by < 0


def _parts_of(given: msgspec.Raw) -> Sequence[_KnownPart | Opaque]:
    """An answer's parts; what awl knows no kind of is a block already, as it stands there."""
    try:
        return _known_parts(given)
    except Exception:
        return list(map(_known_or_kept, _raws_of(given)))


def _raws_of(given: msgspec.Raw) -> list[msgspec.Raw]:
    try:
        return _raws(given)
    except Exception:
        return []  # it is no list


def _known_or_kept(raw: msgspec.Raw) -> _KnownPart | Opaque:
    try:
        return _known_part(raw)
    except Exception:
        return Opaque(kind=_kind_of_part(raw), raw=bytes(raw).decode(errors="replace"))


def _kind_of_part(raw: msgspec.Raw) -> str:
    try:
        return f"{NAME}:{_part(raw).kind}"
    except Exception:
        return NAME


def _use(call_id: str, name: str, value: msgspec.Raw) -> ToolUse:
    return ToolUse(id=call_id, name=name, input=_input_text(value))


def _summary(raw: msgspec.Raw) -> Summary:
    try:
        return msgspec.json.decode(raw, type=_Summary).entry()
    except Exception:
        return Summary(session_intent=bytes(raw).decode(errors="replace"))


def _input_text(value: msgspec.Raw) -> str:
    """A call's input as the model wrote it: a JSON value, or the text that was none."""
    text = str(value, "utf-8")
    if text.startswith('"'):
        try:
            inner = str(msgspec.json.decode(value))
        except Exception:
            return text
        return text if _is_json(inner) else inner
    return text


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except Exception:
        return False
    return True


_TOLD_BY_EVENT: Final = "toolUse"
"""Why an answer stopped that a `tool_call` alone told of. No other answer of zeph says why."""


# -- writing ---------------------------------------------------------------------------------------


def _write(source: Source) -> Iterator[bytes]:
    return _Writer(source).lines()


class _Writer:
    """The events of the current path of a session."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._state = source.state
        self._lost = source.left_out
        self._seq = 0
        self._turn = 0
        self._model = ("", "")
        self._uses: dict[str, ToolUse] = {}
        self._recorded: Counter[str] = Counter()  # results of this batch that have an event
        self._event_of_next: Any = None  # what the condensation that comes next was in zeph
        self._partials: dict[int, Item] = {}
        # For each entry of the path, in order: its seq, and how many events there were after it.
        self._seqs = array("q")
        self._counts = array("q")

    def lines(self) -> Iterator[bytes]:
        state = self._state
        header = state.header
        assert header is not None
        self._model = (header.provider, header.model)
        self._partials = {item.position: item for item in state.items if item.kind == "partial"}
        started: dict[str, Any] = {
            "type": "session_started",
            "session_id": header.id,
            "cwd": state.cwd,
            "provider_name": header.provider,
            "model": header.model,
        }
        forked = self._forked_from()
        if forked is not None:
            started["forked_from"] = forked
        yield self._event(header.timestamp, started, parent=forked[1] if forked else None)
        path = state.path
        for position, following in zip_longest(path, path[1:]):
            entry = state.body(position)
            if following is None or not self._is_told(entry, state.body(following)):
                yield from self._entry(position, entry)
            self._seqs.append(state.seqs[position])
            self._counts.append(self._seq)
        off = len(state.entries) - len(path)
        self._lose("entries that were gone back from", off)
        self._lose("damaged lines", len(state.damage))

    def _is_told(self, entry: Entry, following: Entry) -> bool:
        """Whether an answer was one event in zeph: the call that follows it."""
        if (
            not isinstance(entry, MessageEntry)
            or not isinstance(following, ToolCallEntry)
            or entry.turn_id is not None
            or entry.message.stop_reason != _TOLD_BY_EVENT
            or [use.id for use in entry.message.said().tool_uses] != [following.tool_use_id]
        ):
            return False
        self._uses.update((use.id, use) for use in entry.message.said().tool_uses)
        self._recorded.clear()
        return True

    def _forked_from(self) -> list[Any] | None:
        """The session and event that this one was forked from, in awl or in zeph."""
        header = self._state.header
        if header is not None and header.forked_from is not None:
            return [header.forked_from.session_id, header.forked_from.seq]
        for position in self._state.path[:2]:
            entry = self._state.body(position)
            if isinstance(entry, UnknownEntry) and entry.kind == f"{NAME}:session_started":
                found = _kind_of(entry).get("forked_from")
                if isinstance(found, list) and len(found) == 2:
                    return found
        return None

    def _entry(self, position: int, entry: Entry) -> Iterator[bytes]:
        at = entry.timestamp
        if position in self._partials:
            yield from self._answer(at, self._partials[position].message.content)
        match entry:
            case MessageEntry():
                yield from self._message(entry)
            case ToolCallEntry() if entry.turn_id is not None:
                # zeph would take it for another call beside the one in the answer's parts.
                self._lose("moments at which calls started")
            case ToolCallEntry():
                use = self._uses.get(entry.tool_use_id)
                value = _json_value(use.input) if use else {}
                call = {"type": "tool_call", "id": entry.tool_use_id, "name": entry.name}
                yield self._event(at, {**call, "input": value}, self._turn)
            case ToolResultEntry():
                self._recorded[entry.tool_use_id] += 1
                yield self._result(at, entry, entry.name)
            case CondensationEntry():
                yield self._condensation(entry)
            case CompactionEntry():
                self._lose("lists of the outputs that were cleared", bool(entry.cleared))
                kind = {"type": "compaction", "tier": entry.tier}
                yield self._event(at, {**kind, "cleared_count": entry.cleared_count})
            case ForkPointEntry():
                yield self._event(
                    at, {"type": "fork_point", "new_session_id": entry.new_session_id}
                )
            case ModelChangeEntry():
                yield self._switch(at, entry.provider, entry.model)
            case EndEntry():
                yield self._event(at, {"type": "session_ended", "reason": entry.reason})
            case ImportEntry() if entry.source == "legacy":
                yield self._event(at, _legacy(entry))
            case UnknownEntry() if entry.kind.startswith(f"{NAME}:"):
                yield from self._unknown(position, entry)
            case PartialEntry() | ImportEntry() | RewindEntry():
                pass
            case _:
                self._lose(_PHRASES.get(type(entry), "entries of other kinds"))

    def _message(self, entry: MessageEntry) -> Iterator[bytes]:
        message, at = entry.message, entry.timestamp
        if message.role == "system":
            self._lose("system texts")
        elif message.role == "assistant":
            self._lose("token counts of answers", message.usage is not None)
            self._lose("marks of answers that were cut short", message.stop_reason in CUT_SHORT)
            yield from self._answer(at, message.content)
        else:
            model = (entry.provider or self._model[0], entry.model or self._model[1])
            if model != self._model:
                yield self._switch(at, *model)
            yield from self._said(at, message)

    def _answer(self, at: str, content: tuple[ContentBlock, ...]) -> Iterator[bytes]:
        self._recorded.clear()
        parts = [part for part in map(self._part, content) if part is not None]
        yield self._event(at, {"type": "assistant_message", "parts": parts}, self._turn)

    def _part(self, block: ContentBlock) -> Any:
        match block:
            case Text():
                return {"kind": "text", "text": block.text}
            case Thinking():
                signature = block.signature or ""
                return {
                    "kind": "thinking_block",
                    "thinking": block.thinking,
                    "signature": signature,
                }
            case RedactedThinking():
                return {"kind": "redacted_thinking_block", "data": block.data}
            case ToolUse():
                self._uses[block.id] = block
                use = {"kind": "tool_use", "id": block.id, "name": block.name}
                return {**use, "input": _json_value(block.input)}
            case Opaque() if block.kind.startswith(NAME):
                return lenient(block.raw.encode())
        self._lose("blocks of other kinds")
        return None

    def _said(self, at: str, message: LoggedMessage) -> Iterator[bytes]:
        """What a user message says: results, each of which is an event, and then words."""
        texts: list[str] = []
        images: list[str] = []
        others = 0
        for block in message.content:
            if isinstance(block, ToolResult):
                if self._recorded[block.tool_use_id] > 0:
                    self._recorded[block.tool_use_id] -= 1
                else:
                    use = self._uses.get(block.tool_use_id)
                    yield self._result(at, block, use.name if use else "")
            elif isinstance(block, Text):
                texts.append(block.text)
            elif isinstance(block, Image):
                self._source.blobs[block.blob.blob] = block.blob
                images.append(block.blob.blob)
            else:
                others += 1
        self._lose("blocks of other kinds", others)
        if is_prompt(message.said()):
            self._turn += 1
            said = {"type": "user_message", "text": "\n".join(texts), "image_refs": images}
            yield self._event(at, said, self._turn)

    def _result(self, at: str, result: ToolResult | ToolResultEntry, name: str) -> bytes:
        self._lose("images in results", len(result.images))
        self._lose("uncut outputs of tools", result.output is not None)
        kind = {
            "type": "tool_result",
            "id": result.tool_use_id,
            "name": name,
            "output": result.content,
            "is_error": result.is_error,
            "duration_ms": result.duration_ms or 0,
        }
        return self._event(at, kind, self._turn)

    def _condensation(self, entry: CondensationEntry) -> bytes:
        replaced = self._range(*entry.replaced)
        if self._event_of_next is not None:
            kind, self._event_of_next = self._event_of_next, None
            if kind["type"] == "condensation" and not _ends_at(kind, replaced[1]):
                kind = {**kind, "replaced_seq_range": replaced}  # its numbers were others
            return self._event(entry.timestamp, kind)
        self._lose("token counts of condensations", entry.usage is not None)
        self._lose("lists of the summaries that a later one takes in", bool(entry.absorbs))
        kind = {
            "type": "condensation",
            "replaced_seq_range": replaced,
            "summary": msgspec.to_builtins(_snake(entry.summary)),
            "tokens_before": entry.tokens_before,
            "tokens_after": entry.tokens_after,
        }
        return self._event(entry.timestamp, kind)

    def _range(self, lo: int, hi: int) -> tuple[int, int]:
        """The seqs of the events that the entries of a range became."""
        before = bisect_left(self._seqs, lo)
        until = bisect_right(self._seqs, hi)
        first = self._counts[before - 1] if before else 1
        last = (self._counts[until - 1] if until else 1) - 1
        return (first, last) if first <= last else (0, 0)

    def _unknown(self, position: int, entry: UnknownEntry) -> Iterator[bytes]:
        kind = _kind_of(entry)
        if kind.get("type") in ("compaction", "condensation") and self._is_condensed(position + 1):
            self._event_of_next = kind
        elif kind and not (self._seq == 1 and kind.get("forked_from")):
            yield self._event(entry.timestamp, kind)

    def _is_condensed(self, position: int) -> bool:
        entries = self._state.entries
        return position < len(entries) and entry_type(entries[position]) == "condensation"

    def _switch(self, at: str, provider: str, model: str) -> bytes:
        self._model = (provider, model)
        return self._event(at, {"type": "model_changed", "provider_name": provider, "model": model})

    def _event(self, at: str, kind: Any, turn: int = 0, parent: int | None = None) -> bytes:
        event: dict[str, Any] = {"seq": self._seq, "ts_ms": _milliseconds(at)}
        if turn:
            event["turn_id"] = turn
        if parent is not None:
            event["parent_seq"] = parent
        event["kind"] = kind
        self._seq += 1
        return msgspec.json.encode(event) + b"\n"

    def _lose(self, what: str, count: int = 1) -> None:
        if count:
            self._source.left_out[what] += count


_PHRASES: Final[dict[type, str]] = {
    TitleEntry: "titles",
    LabelEntry: "labels",
    CwdChangeEntry: "changes of the directory",
    UnknownEntry: "records of other programs",
}


def _kind_of(entry: UnknownEntry) -> dict[str, Any]:
    """The kind of an event that was kept as it was."""
    record = entry.raw.get("record")
    kind = record.get("kind") if isinstance(record, dict) else None
    return kind if isinstance(kind, dict) else {}


def _ends_at(kind: dict[str, Any], seq: int) -> bool:
    """Whether the range of a condensation, as it was kept, ends with this event."""
    replaced = kind.get("replaced_seq_range")
    return isinstance(replaced, list) and len(replaced) == 2 and replaced[1] == seq


def _legacy(entry: ImportEntry) -> dict[str, Any]:
    summary = _Summary(session_intent=import_text(entry))
    return {
        "type": "condensation",
        "replaced_seq_range": (0, 0),
        "summary": msgspec.to_builtins(summary),
        "tokens_before": 0,
        "tokens_after": 0,
    }


def _snake(summary: Summary) -> _Summary:
    return _Summary(
        session_intent=summary.session_intent,
        files_modified=list(summary.files_modified),
        decisions_made=list(summary.decisions_made),
        open_questions=list(summary.open_questions),
        next_steps=list(summary.next_steps),
    )


def _json_value(text: str) -> Any:
    """A call's input as a JSON value: as the model wrote it, or as a string if it is none."""
    if not text.strip():
        return {}
    if not _is_json(text):
        return text
    return msgspec.json.decode(text) if "\n" in text or "\r" in text else msgspec.Raw(text.encode())


def _milliseconds(at: str) -> int:
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


FORMAT: Final = Format(
    name=NAME,
    title="zeph",
    recognise=_recognise,
    read=_read,
    places=(
        Place(variable="", default=".zeph/sessions", here=True),
        Place(variable="", default=".zeph/sessions"),
    ),
    write=_write,
    blobs="blobs",
    cannot_carry=(
        "turns that were gone back from",
        "system texts, titles and labels",
        "token counts, and which model answered",
        "which earlier summaries a later one takes in",
        "images in the results of tools, and their uncut outputs",
        "the moments at which calls started that awl recorded",
        "records of other programs",
    ),
)
