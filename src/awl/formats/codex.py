"""Codex: `~/.codex/sessions/<year>/<month>/<day>/rollout-<time>-<id>.jsonl`, or `.jsonl.zst`.

A line is {timestamp, type, payload}; the file is linear. Sessions of early versions have the
payloads alone on their lines, without type and time; those of the first, in TypeScript, are one
document {session {id, timestamp}, items} in a file `.json`.

session_meta    the session's id, directory, provider and base instructions; in a fork the parent's
                follows among its lines.
turn_context    the model and the directory from here on.
response_item   what goes to the model and comes from it, as the Responses API has it: message (of
                user, assistant, developer), reasoning, function_call, custom_tool_call,
                local_shell_call, tool_search_call, their outputs, and others; a tool_search_call
                without a call_id is the server's own. An answer is written item by item.
compacted       the items so far are replaced; `message` is the summary. Where it is empty, the
                summary is encrypted, and nothing here can stand for it: then all is sent as it was.
event_msg       for the screen: the twins of the items. Only what the items do not say is taken:
                token counts, that turns were rolled back, a name.
token_usage_record, world_state and others: book-keeping; what is unknown is kept.

The names that people gave sessions are in `session_index.jsonl` beside the folder `sessions`, a
line each time one is given: {id, thread_name, updated_at}.

The arguments of a call are the text that the model wrote; those of custom_tool_call are no JSON. An
output says in its text whether the command failed; only early versions have a mark for it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from awl.conversation import (
    ContentBlock,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import (
    Entry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    TitleEntry,
    UnknownEntry,
    Usage,
)
from awl.formats.chain import Chain, Summaries
from awl.formats.documents import Document
from awl.formats.format import Facts, Format, Head, Imported, Keep, Place, Report
from awl.formats.payloads import from_base64, from_data_url
from awl.formats.records import Lines, Parts, Records, head_of, kept, size_of, time_of

NAME: Final = "codex"

_GLANCE: Final = 2000
_MOST_HELD: Final = 1000

_BOOKKEEPING: Final = "records of the program's own book-keeping"
_TWINS: Final = "events for the screen"
_INJECTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<skill>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
    "# AGENTS.md instructions",
)
"""Begin what the program says as the user, which is no turn of the person's."""

_FOLDERS: Final = ("sessions", "archived_sessions")

_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
"""With what a server's ids of items begin, by the item's type."""


_begins_document: Final = re.compile(rb'\s*\{\s*"session"\s*:\s*\{').match


def _recognise(head: Head) -> bool:
    return _is_document(head) or any(
        (isinstance(found.get("payload"), dict) and str(found.get("type")) in _WRAPPED)
        or ("record_type" in found and "type" not in found)
        or ({"id", "timestamp", "instructions"} <= found.keys() and "type" not in found)
        for found in head.objects
    )


_WRAPPED: Final = frozenset(
    {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
)


def _of_subagent(head: Head) -> bool:
    """A session that another one started is none that a person did."""
    for found in head.objects:
        payload = found.get("payload")
        if found.get("type") == "session_meta" and isinstance(payload, dict):
            source = payload.get("source")
            return isinstance(source, dict) and "subagent" in source
    return False


def _is_document(head: Head) -> bool:
    return head.path.suffix == ".json" and _begins_document(head.data) is not None


def _read(path: Path, keep: Keep) -> Imported:
    if path.suffix == ".json" and _is_document(head_of(path)):
        return _read_document(path, keep)
    glance = _glance(path)
    report = Report()
    lines = Lines(path, report)
    source_id = glance.session_id or path.name.partition(".")[0][-36:]
    facts = Facts(
        source=NAME,
        source_id=source_id,
        source_path=path,
        cwd=glance.cwd,
        provider=glance.provider or "openai",
        model=glance.model,
        created=glance.created,
        title=_name_of(source_id, path),
    )
    reader = _Reader(report, Chain(source_id), keep, facts)
    return Imported(facts, reader.entries(lines), report, size_of(path), lambda: lines.end)


def _read_document(path: Path, keep: Keep) -> Imported:
    document, report = Document(path, "items"), Report()
    next(document.elements(Report()), None)  # what stands before them is known then
    session = _early_payload(document.members.get("session", b"{}")) or _Payload()
    facts = Facts(
        source=NAME,
        source_id=session.id or path.stem[-36:],
        source_path=path,
        provider="openai",
        created=time_of(session.timestamp),
    )
    reader = _Reader(report, Chain(facts.source_id), keep, facts)
    entries = reader.document(document)
    return Imported(facts, entries, report, size_of(path), lambda: document.at)


def _name_of(session_id: str, path: Path) -> str:
    """The name that a person gave a session; none, if it does not lie where Codex has it."""
    homes = (place.parent for place in path.parents if place.name in _FOLDERS)
    home = next(homes, None)
    return "" if home is None else _names_in(home).get(session_id, "")


@functools.lru_cache(maxsize=8)
def _names_in(home: Path) -> dict[str, str]:
    """The names of sessions, by their ids. The last that was given counts."""
    try:
        lines = (home / "session_index.jsonl").read_bytes().splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            named = msgspec.json.decode(line, type=_Named)
            found[named.id] = named.thread_name.strip()
    return found


# -- records ---------------------------------------------------------------------------------------


class _Named(msgspec.Struct, frozen=True, gc=False):
    id: str
    thread_name: str


class _Tokens(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0

    def entry(self) -> Usage:
        """Cached tokens are counted apart in awl."""
        return Usage(
            input=max(0, self.input_tokens - self.cached_input_tokens),
            output=self.output_tokens,
            cache_read=self.cached_input_tokens or None,
        )


class _Info(msgspec.Struct, frozen=True, gc=False):
    last_token_usage: _Tokens | None = None


class _Part(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    text: str = ""
    image_url: str | None = None


class _OldOutput(msgspec.Struct, frozen=True, gc=False):
    content: str = ""
    success: bool | None = None


class _Payload(msgspec.Struct, frozen=True, gc=False):
    """All fields that a payload may have; each type uses some."""

    type: str = ""
    id: str | None = None
    role: str = ""
    content: str | list[msgspec.Raw] | None = None
    phase: str | None = None
    summary: msgspec.Raw = msgspec.Raw()
    encrypted_content: str | None = None
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw()
    input: str = ""
    call_id: str | None = None
    action: msgspec.Raw = msgspec.Raw()
    output: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    result: str | None = None
    message: msgspec.Raw = msgspec.Raw()
    usage: _Tokens | None = None
    info: _Info | None = None
    num_turns: int = 0
    thread_name: str | None = None
    cwd: str = ""
    model: str | None = None
    model_provider: str | None = None
    session_id: str | None = None
    timestamp: str = ""
    replacement_history: msgspec.Raw = msgspec.Raw()


class _Record(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    timestamp: str = ""
    payload: _Payload | None = None


_CONTENT: Final = Parts(_Part)
_early: Final = msgspec.json.Decoder(_Payload).decode


@dataclass
class _Glance:
    """What the first records tell of the session."""

    session_id: str = ""
    cwd: str = ""
    provider: str = ""
    model: str = ""
    created: str = ""


def _glance(path: Path) -> _Glance:
    found = _Glance()
    for number, (line, record) in enumerate(Records(Lines(path, Report()), _Record)):
        if record is not None:
            found.created = found.created or time_of(record.timestamp)
            payload = record.payload or (_early_payload(line) if number == 0 else None)
            if payload is not None and (record.type == "session_meta" or number == 0):
                found.session_id = found.session_id or payload.id or payload.session_id or ""
                found.provider = found.provider or payload.model_provider or ""
                found.created = time_of(payload.timestamp) or found.created
            if payload is not None:
                found.cwd = found.cwd or payload.cwd
                if record.type == "turn_context":
                    found.model = payload.model or ""
        if found.model or number == _GLANCE:
            break
    return found


def _early_payload(line: bytes) -> _Payload | None:
    """The payload of an early version, which stands alone on its line."""
    try:
        return _early(line)
    except Exception:
        return None


# -- reading ---------------------------------------------------------------------------------------


@dataclass
class _Answer:
    """An answer in the making: its blocks so far, and what came behind it in the file."""

    timestamp: str
    content: list[ContentBlock] = field(default_factory=list)
    usage: Usage | None = None
    behind: list[tuple[str, ToolResult]] = field(default_factory=list)


class _Reader:
    """The entries of a file."""

    def __init__(self, report: Report, chain: Chain, keep: Keep, facts: Facts) -> None:
        self._report = report
        self._chain = chain
        self._keep = keep
        self._time = facts.created
        self._provider = facts.provider
        self._model = facts.model
        self._answer: _Answer | None = None
        self._turns: list[int] = []  # the number of the entry before each prompt
        self._summaries = Summaries(chain)
        self._metas = 0

    def document(self, document: Document) -> Iterator[Entry]:
        for raw in document.elements(self._report):
            yield from self._early(raw)
        yield from self._settled()

    def entries(self, lines: Lines) -> Iterator[Entry]:
        for line, record in Records(lines, _Record):
            if record is None:
                yield from self._settled()
                yield self._opaque("unknown", line)
                continue
            self._time = time_of(record.timestamp) or self._time
            yield from self._record(record, line)
        yield from self._settled()

    def _record(self, record: _Record, line: bytes) -> Iterator[Entry]:
        payload = record.payload
        match record.type:
            case "response_item" if payload is not None:
                yield from self._item(payload, line)
            case "event_msg" if payload is not None:
                yield from self._event(payload)
            case "token_usage_record" if payload is not None:
                self._used(payload.usage)
            case "turn_context" if payload is not None:
                yield from self._context(payload)
            case "compacted" if payload is not None:
                yield from self._settled()
                yield self._compacted(payload, line)
            case "session_meta":
                yield from self._settled()
                self._metas += 1
                yield self._opaque(record.type, line)
            case "world_state":
                self._report.left_out[_BOOKKEEPING] += 1
            case _ if payload is None:
                yield from self._early(line)
            case _:
                yield from self._settled()
                yield self._opaque(record.type, line)

    def _early(self, line: bytes) -> Iterator[Entry]:
        """A line of an early version."""
        payload = _early_payload(line)
        if payload is None or not payload.type:
            self._report.left_out[_BOOKKEEPING] += 1
            return
        yield from self._item(payload, line)

    # -- items -------------------------------------------------------------------------------------

    def _item(self, item: _Payload, line: bytes) -> Iterator[Entry]:
        match item.type:
            case "message" if item.role == "assistant":
                yield from self._say(self._assistant(item))
            case "message" if item.role == "user":
                yield from self._settled()
                yield self._user(item)
            case "reasoning":
                yield from self._say([_thought(item)])
            case "function_call":
                yield from self._say([_call(item, _text_of(item.arguments))])
            case "custom_tool_call":
                yield from self._say([_call(item, item.input)])
            case "local_shell_call":
                given = str(item.action, "utf-8")
                yield from self._say([_call(item, given, name="local_shell")])
            case "tool_search_call" if item.call_id:
                yield from self._say([_call(item, _text_of(item.arguments), name="tool_search")])
            case "function_call_output" | "custom_tool_call_output":
                yield from self._result(item, *self._output(item.output))
            case "tool_search_output" if item.call_id:
                yield from self._result(item, _text_of(item.tools))
            case "image_generation_call" if item.result:
                image = from_base64(item.result, "", self._keep)
                yield from self._say([image or _unknown(item.type, line)])
            case "web_search_call" | "tool_search_call" | "image_generation_call":
                yield from self._say([_unknown(item.type, line)])
            case "ghost_snapshot":
                self._report.left_out[_BOOKKEEPING] += 1
            case _:
                yield from self._settled()
                kind = item.role if item.type == "message" else item.type
                yield self._opaque(kind or "unknown", line)

    def _say(self, content: list[ContentBlock]) -> Iterator[Entry]:
        """Blocks of an answer: the one that is being made, or one that begins."""
        if self._answer is not None and (self._answer.behind or self._answer.usage):
            yield from self._settled()
        if self._answer is None:
            self._answer = _Answer(self._time)
        self._answer.content += content

    def _settled(self) -> Iterator[Entry]:
        """The answer that was being made, and what stood behind it."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        called = any(isinstance(block, ToolUse) for block in answer.content)
        logged = LoggedMessage(
            role="assistant",
            content=tuple(answer.content),
            provider=self._provider,
            model=self._model or None,
            stop_reason="toolUse" if called else "stop",
            usage=answer.usage,
        )
        yield MessageEntry(id=self._chain.draw(), timestamp=answer.timestamp, message=logged)
        for timestamp, result in answer.behind:
            yield self._message(LoggedMessage(role="user", content=(result,)), timestamp)

    def _message(self, message: LoggedMessage, timestamp: str) -> MessageEntry:
        return MessageEntry(id=self._chain.draw(), timestamp=timestamp, message=message)

    def _assistant(self, item: _Payload) -> list[ContentBlock]:
        extras = {"id": _known_id(item), "phase": item.phase}
        data = {name: value for name, value in extras.items() if value} or None
        return [
            msgspec.structs.replace(block, provider_data=data) if isinstance(block, Text) else block
            for block in self._content(item.content)
        ]

    def _user(self, item: _Payload) -> MessageEntry:
        content = tuple(self._content(item.content))
        first = content[0] if content else None
        if not (isinstance(first, Text) and first.text.lstrip().startswith(_INJECTED)):
            self._turns.append(self._chain.count)
        return self._message(LoggedMessage(role="user", content=content), self._time)

    def _content(self, content: str | list[msgspec.Raw] | None) -> Iterator[ContentBlock]:
        if isinstance(content, str):
            yield Text(text=content)
            return
        for raw, part in _CONTENT(content or ()):
            image = self._image(part)
            if part is not None and part.type.endswith("text"):
                yield Text(text=part.text)
            elif image is not None:
                yield image
            else:
                kind = part.type if part else "unknown"
                yield Opaque(kind=f"{NAME}:{kind}", raw=str(raw, "utf-8"))

    def _image(self, part: _Part | None) -> Image | None:
        if part is None or part.type != "input_image" or not part.image_url:
            return None
        return from_data_url(part.image_url, self._keep)

    def _result(
        self, item: _Payload, text: str, images: tuple[Image, ...] = (), failed: bool = False
    ) -> Iterator[Entry]:
        result = ToolResult(
            tool_use_id=item.call_id or item.id or "",
            content=text,
            images=images,
            is_error=failed,
        )
        if self._answer is not None and len(self._answer.behind) < _MOST_HELD:
            self._answer.behind.append((self._time, result))
            return
        yield from self._settled()
        yield self._message(LoggedMessage(role="user", content=(result,)), self._time)

    def _output(self, raw: msgspec.Raw) -> tuple[str, tuple[Image, ...], bool]:
        """An output's words, its images, and whether it is marked as failed."""
        try:
            found = msgspec.json.decode(raw, type=str | list[msgspec.Raw] | _OldOutput)
        except msgspec.MsgspecError:
            return _text_of(raw), (), False
        if isinstance(found, str):
            return found, (), False
        if isinstance(found, _OldOutput):
            return found.content, (), found.success is False
        return self._output_parts(found)

    def _output_parts(self, parts: list[msgspec.Raw]) -> tuple[str, tuple[Image, ...], bool]:
        blocks = list(self._content(parts))
        lost = sum(isinstance(block, Opaque) for block in blocks)
        self._report.left_out["parts of results that are no text and no image"] += lost
        texts = "\n".join(block.text for block in blocks if isinstance(block, Text))
        return texts, tuple(block for block in blocks if isinstance(block, Image)), False

    # -- what is no item ---------------------------------------------------------------------------

    def _event(self, event: _Payload) -> Iterator[Entry]:
        match event.type:
            case "token_count":
                self._used(event.info.last_token_usage if event.info else None)
            case "thread_rolled_back":
                yield from self._settled()
                yield from self._rolled_back(event.num_turns)
            case "thread_name_updated" if event.thread_name:
                yield from self._settled()
                yield TitleEntry(
                    id=self._chain.draw(), timestamp=self._time, title=event.thread_name
                )
            case "task_complete" | "turn_complete" | "turn_aborted":
                yield from self._settled()
        self._report.left_out[_TWINS] += 1

    def _used(self, tokens: _Tokens | None) -> None:
        """Token counts come behind the answer that they are for."""
        if self._answer is not None and self._answer.usage is None and tokens is not None:
            self._answer.usage = tokens.entry()

    def _rolled_back(self, turns: int) -> Iterator[Entry]:
        if turns <= 0 or not self._turns:
            return
        at = self._turns[-turns] if turns <= len(self._turns) else self._turns[0]
        del self._turns[-turns:]
        rewind = self._chain.back_to(at, self._time)
        if rewind is not None:
            yield rewind

    def _context(self, context: _Payload) -> Iterator[Entry]:
        if context.model and context.model != self._model:
            yield from self._settled()
            first, self._model = not self._model, context.model
            if not first:
                yield ModelChangeEntry(
                    id=self._chain.draw(),
                    timestamp=self._time,
                    provider=self._provider,
                    model=context.model,
                )
        self._report.left_out[_BOOKKEEPING] += 1

    def _compacted(self, payload: _Payload, line: bytes) -> Entry:
        summary = _text_of(payload.message)
        entry = None
        if summary:
            entry = self._summaries.condensation(self._chain.count, summary, self._time)
        return entry or self._opaque("compacted", line)

    def _opaque(self, kind: str, line: bytes) -> UnknownEntry:
        return UnknownEntry(
            id=self._chain.draw(),
            timestamp=self._time,
            kind=f"{NAME}:{kind}",
            raw={"record": kept(line)},
        )


def _call(item: _Payload, given: str, name: str = "") -> ToolUse:
    known = _known_id(item)
    return ToolUse(
        id=item.call_id or item.id or "",
        name=item.name or name,
        input=given,
        provider_data={"id": known} if known else None,
    )


def _known_id(item: _Payload) -> str | None:
    """The id of an item for its server, which refuses one that does not begin as those of its type
    do: what is no function_call goes back as one, and some versions made up ids of messages."""
    prefix = _PREFIXES.get(item.type)
    return item.id if item.id and prefix and item.id.startswith(prefix) else None


def _thought(item: _Payload) -> ContentBlock:
    """A reasoning item; but for its encrypted content it goes back as it came."""
    summary = _decoded(item.summary)
    summary = summary if isinstance(summary, list) else []
    rest: dict[str, Any] = {"type": "reasoning", "summary": summary}
    if known := _known_id(item):
        rest["id"] = known
    content = item.content if isinstance(item.content, list) else []
    if content:
        rest["content"] = [_decoded(raw) for raw in content]
    parts = [*rest["summary"], *rest.get("content", ())]
    words = "\n\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
    if words or not item.encrypted_content:
        return Thinking(thinking=words, signature=item.encrypted_content, provider_data=rest)
    return RedactedThinking(data=item.encrypted_content, provider_data=rest)


def _decoded(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return None


def _text_of(raw: msgspec.Raw) -> str:
    """What a field says that is a text, or the JSON text of what it is instead."""
    found = _decoded(raw)
    if isinstance(found, str):
        return found
    return "" if found is None else str(raw, "utf-8")


def _unknown(kind: str, line: bytes) -> Opaque:
    return Opaque(kind=f"{NAME}:{kind}", raw=str(kept(line), "utf-8"))


FORMAT: Final = Format(
    name=NAME,
    title="Codex",
    recognise=_recognise,
    read=_read,
    of_subagent=_of_subagent,
    places=tuple(Place(variable="CODEX_HOME", default=".codex", below=one) for one in _FOLDERS),
)
