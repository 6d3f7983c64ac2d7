"""pi: `~/.pi/agent/sessions/--<path>--/<timestamp>_<session id>.jsonl`, versions 1 to 3.

The first line is the header; every other is an entry with ``id`` (mostly 8 hex digits),
``parentId`` (null for a root; several roots are possible) and ``timestamp``. The entry in which a
path ends is the last one of the file. Version 1 has no ids and is linear; its ``compaction`` names
an index among the lines. Version 2 calls the role ``custom`` ``hookMessage``.

message                 `message` by role. user and assistant: content is text or blocks (text,
                        thinking, toolCall, image). toolResult: one message a result. system: the
                        prompt in `sections`. bashExecution: a command that the person ran; it goes
                        to the model as the user's words unless ``excludeFromContext``. custom.
model_change            the selected model. thinking_level_change
compaction              the entries on the path before ``firstKeptEntryId`` are sent as `summary`.
branch_summary          what the branch that was left had come to; sent as the user's words.
custom_message          of an extension; sent as the user's words. custom: never sent.
context_edit            the target is sent with other content, or (null) not at all.
label, session_info     names of an entry and of the session; empty takes them back.
usage                   of requests that are no answers.

Signatures of thinking are opaque. Those of Anthropic's API are sent back as they are; the others
have a form of pi's own and are kept for pi alone. Ids of entries are kept, so that a session which
goes back to pi has the ones that it had.
"""

from __future__ import annotations

import base64
import hashlib
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
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
    parse_input,
)
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    Entry,
    ImportEntry,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    RewindEntry,
    Summary,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    Usage,
)
from awl.formats.chain import Chain
from awl.formats.format import TWICE, Facts, Format, Head, Imported, Keep, Place, Report, Source
from awl.formats.payloads import from_base64
from awl.formats.records import Lines, Records, head_of, json_text, kept, lenient, size_of, time_of
from awl.log.blobs import BlobDamaged
from awl.state import ROOT, import_text, is_prompt, summary_text

NAME: Final = "pi"
VERSION: Final = 3

_SIGNED: Final = frozenset({"anthropic-messages", "bedrock-converse-stream"})
"""The APIs whose signatures are the provider's own."""


def _recognise(head: Head) -> bool:
    """pi's header looks like awl's, which names a provider; early ones do too, without version."""
    return any(
        found.get("type") == "session"
        and isinstance(found.get("id"), str)
        and "cwd" in found
        and not ("model" in found and "version" in found)
        for found in head.objects
    )


def _read(path: Path, keep: Keep) -> Imported:
    header: dict[str, Any] = {}
    model: tuple[str, str] | None = None
    for found in head_of(path).objects:
        if found.get("type") == "session" and not header:
            header = found
        model = model or _model_in(found)
    report = Report()
    lines = Lines(path, report)
    source_id = _text(header.get("id")) or path.stem.rpartition("_")[2]
    provider, name = model or ("", "")
    facts = Facts(
        source=NAME,
        source_id=source_id,
        source_path=path,
        cwd=_text(header.get("cwd")),
        provider=provider,
        model=name,
        created=time_of(header.get("timestamp")),
    )
    reader = _Reader(lines, report, Chain(source_id, keep=True), keep, facts)
    return Imported(facts, iter(reader), report, size_of(path), lambda: lines.end)


def _model_in(found: dict[str, Any]) -> tuple[str, str] | None:
    """The model that a line names."""
    message = found.get("message")
    if isinstance(message, dict) and message.get("role") == "assistant":
        named = message.get("provider"), message.get("model")
    else:
        named = found.get("provider"), found.get("modelId")
    provider, model = map(_text, named)
    return (provider, model) if provider and model else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# -- reading ---------------------------------------------------------------------------------------


class _Usage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def entry(self) -> Usage:
        return Usage(
            input=self.input,
            output=self.output,
            cache_read=self.cache_read or None,
            cache_write=self.cache_write or None,
        )


_NOTHING: Final = msgspec.Raw()


class _Call(
    msgspec.Struct, frozen=True, rename="camel", gc=False, tag_field="type", tag="toolCall"
):
    id: str
    name: str
    arguments: msgspec.Raw = _NOTHING
    thought_signature: str | None = None
    namespace: str | None = None
    arguments_error: str | None = None

    def data(self) -> dict[str, Any] | None:
        """What pi and the provider want back with the call."""
        found = {
            "thoughtSignature": self.thought_signature,
            "namespace": self.namespace,
            "argumentsError": self.arguments_error,
        }
        return {name: value for name, value in found.items() if value is not None} or None


_OF_CALLS: Final[tuple[str, ...]] = ("thoughtSignature", "namespace", "argumentsError")


class _Thought(
    msgspec.Struct, frozen=True, rename="camel", gc=False, tag_field="type", tag="thinking"
):
    thinking: str = ""
    thinking_signature: str | None = None
    redacted: bool = False


class _Text(msgspec.Struct, frozen=True, rename="camel", gc=False, tag_field="type", tag="text"):
    text: str
    text_signature: Any = None


class _Image(msgspec.Struct, frozen=True, rename="camel", gc=False, tag_field="type", tag="image"):
    data: str
    mime_type: str = ""


_Block = _Text | _Call | _Thought | _Image
_block: Final = msgspec.json.Decoder(_Block).decode


class _LooseMessage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """All fields that a message may have; each role uses some."""

    role: str
    content: str | list[msgspec.Raw] | None = None
    api: str = ""
    provider: str | None = None
    model: str | None = None
    response_model: str | None = None
    usage: _Usage | None = None
    stop_reason: str | None = None
    error_message: str | None = None
    tool_call_id: str = ""
    is_error: bool = False
    duration_ms: float | None = None
    details: msgspec.Raw = _NOTHING
    command: str = ""
    output: str = ""
    exit_code: int | None = None
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = None
    exclude_from_context: bool = False


class _Message(_LooseMessage, frozen=True, rename="camel", gc=False):
    """A message whose blocks are all of a known kind."""

    content: str | list[_Block] | None = None  # type: ignore[assignment]


class _Details(msgspec.Struct, frozen=True, rename="camel", gc=False):
    modified_files: list[str] = []


class _LooseRecord(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """All fields that a line may have; each type uses some."""

    type: str
    id: str | None = None
    parent_id: str | msgspec.UnsetType | None = msgspec.UNSET
    timestamp: str | float = ""
    message: _LooseMessage | None = None
    provider: str = ""
    model_id: str = ""
    thinking_level: str = ""
    name: str | None = None
    target_id: str = ""
    label: str | None = None
    summary: str = ""
    first_kept_entry_id: str | None = None
    first_kept_entry_index: int | None = None
    tokens_before: int = 0
    usage: _Usage | None = None
    details: msgspec.Raw = _NOTHING
    content: str | list[msgspec.Raw] | None = None
    replacement: msgspec.Raw = _NOTHING
    parent_session: msgspec.Raw = _NOTHING


class _Record(_LooseRecord, frozen=True, rename="camel", gc=False):
    """A line whose message has blocks of known kinds alone."""

    message: _Message | None = None


class _Settings(msgspec.Struct, frozen=True):
    """What holds at an entry: the model, the thinking level, and the numbers of the last entry that
    a summary stands for and of that summary."""

    provider: str
    model: str
    level: str | None = None
    condensed: int = 0
    summary: int = 0


class _Reader:
    """The entries of a file."""

    def __init__(
        self, lines: Lines, report: Report, chain: Chain, keep: Keep, facts: Facts
    ) -> None:
        self._lines = lines
        self._report = report
        self._chain = chain
        self._keep = keep
        self._time = facts.created
        self._settings = _Settings(facts.provider, facts.model)
        # From which number on which hold, up to the next.
        self._since = array("Q", [0])
        self._held = [self._settings]
        self._results: set[int] = set()

    def __iter__(self) -> Iterator[Entry]:
        last: str | None = None
        records = Records(self._lines, _Record, _LooseRecord).timed()
        for index, (line, record, time) in enumerate(records):
            if record is None:
                yield self._opaque(None, "unknown", line)
                continue
            self._time = time or self._time
            if record.type == "session":
                if index or record.parent_session:
                    yield self._opaque(None, record.type, line)
                continue
            if record.id and self._chain.number_of(record.id) is not None:
                self._report.left_out[TWICE] += 1
                continue
            parent = record.parent_id
            if parent != last and parent is not msgspec.UNSET:
                rewind = self._chain.jump(parent, self._time)
                if rewind is not None:
                    self._go_to(self._chain.number_of(parent) if parent else 0)
                    yield rewind
            last = record.id or f"#{index}"
            if record.message is not None and record.type == "message":
                yield self._message(record.message, last, line)
            else:
                yield self._entry(record, last, line)

    def _go_to(self, number: int | None) -> None:
        """Go back to the settings that held at an entry."""
        self._settings = self._held[bisect_right(self._since, number or 0) - 1]
        self._hold(self._chain.count)

    def _set(self, **changed: Any) -> None:
        """Change settings from the next entry on."""
        self._settings = msgspec.structs.replace(self._settings, **changed)
        self._hold(self._chain.count + 1)

    def _hold(self, since: int) -> None:
        self._since.append(since)
        self._held.append(self._settings)

    def _entry(self, record: _LooseRecord, key: str, line: bytes) -> Entry:
        match record.type:
            case "model_change":
                self._set(provider=record.provider, model=record.model_id)
                return self._switch(key)
            case "thinking_level_change":
                self._set(level=record.thinking_level)
                return self._switch(key)
            case "compaction":
                return self._compaction(record, key)
            case "branch_summary" if record.summary:
                text = f"{_BRANCH_SUMMARY}{record.summary}</summary>"
                return self._note(key, record.type, text, (), line)
            case "custom_message":
                texts, images = self._said(record.content)
                return self._note(key, record.type, texts, images, line)
            case "context_edit" if bytes(record.replacement) == b"null":
                number = self._chain.number_of(record.target_id)
                if number in self._results:
                    return self._cleared(key, number)
            case "label":
                target = self._chain.id_of(record.target_id)
                if target is not None:
                    label = record.label or ""
                    return LabelEntry(**self._stamps(key), target_id=target, label=label)
            case "session_info":
                return TitleEntry(**self._stamps(key), title=record.name or "")
        return self._opaque(key, record.type, line)

    def _stamps(self, key: str | None) -> dict[str, Any]:
        return {"id": self._chain.draw(key), "timestamp": self._time}

    def _message(self, message: _LooseMessage, key: str, line: bytes) -> Entry:
        match message.role:
            case "user":
                return self._logged(key, LoggedMessage(role="user", content=self._prompt(message)))
            case "assistant":
                return self._answer(message, key)
            case "toolResult":
                return self._result(message, key)
            case "bashExecution" if not message.exclude_from_context:
                return self._note(key, message.role, _shell_text(message), (), line)
            case "custom" | "hookMessage":
                texts, images = self._said(message.content)
                return self._note(key, message.role, texts, images, line)
        return self._opaque(key, message.role, line)

    def _logged(self, key: str, message: LoggedMessage) -> MessageEntry:
        return MessageEntry(id=self._chain.draw(key), timestamp=self._time, message=message)

    def _prompt(self, message: _LooseMessage) -> tuple[ContentBlock, ...]:
        content = message.content
        if isinstance(content, str):
            return (Text(text=content),)
        return self._blocks(content or ())

    def _answer(self, message: _LooseMessage, key: str) -> MessageEntry:
        content = message.content
        blocks: tuple[ContentBlock, ...]
        if isinstance(content, str):
            blocks = (Text(text=content),)
        else:
            signed = message.api in _SIGNED or not message.api
            blocks = self._blocks(content or (), signed)
        if message.error_message is not None:
            raw = msgspec.json.encode({"errorMessage": message.error_message}).decode()
            blocks = (*blocks, Opaque(kind=f"{NAME}:error", raw=raw))
        logged = LoggedMessage(
            role="assistant",
            content=blocks,
            provider=message.provider,
            model=message.response_model or message.model,
            stop_reason=message.stop_reason,
            usage=message.usage.entry() if message.usage else None,
        )
        return self._logged(key, logged)

    def _blocks(
        self, content: Sequence[_Block | msgspec.Raw], signed: bool = True
    ) -> tuple[ContentBlock, ...]:
        return tuple(
            [
                Text(text=block.text)
                if type(block) is _Text and block.text_signature is None  # as nearly all are
                else self._block(block, signed)
                for block in content
            ]
        )

    def _block(self, block: _Block | msgspec.Raw, signed: bool) -> ContentBlock:
        if isinstance(block, msgspec.Raw):
            try:
                return self._block(_block(block), signed)
            except Exception:
                return Opaque(kind=f"{NAME}:{_type_of(block)}", raw=str(block, "utf-8"))
        if isinstance(block, _Call):
            given, data = json_text(block.arguments), None
            if block.thought_signature or block.namespace or block.arguments_error:
                data = block.data()
            return ToolUse(id=block.id, name=block.name, input=given, provider_data=data)
        if isinstance(block, _Thought):
            return _thinking(block, signed)
        if isinstance(block, _Image):
            image = from_base64(block.data, block.mime_type, self._keep)
            return image or Opaque(kind=f"{NAME}:image", raw=msgspec.json.encode(block).decode())
        sealed = block.text_signature if isinstance(block.text_signature, str) else None
        data = {"textSignature": sealed} if sealed else None  # what providers want back
        return Text(text=block.text, provider_data=data)

    def _said(
        self, content: str | Sequence[_Block | msgspec.Raw] | None
    ) -> tuple[str, tuple[Image, ...]]:
        """The words and the images of a message that can hold nothing else."""
        if content is None or isinstance(content, str):
            return content or "", ()
        if len(content) == 1 and type(content[0]) is _Text:  # as nearly all are
            return content[0].text, ()
        blocks = self._blocks(content)
        texts = "\n".join(block.text for block in blocks if isinstance(block, Text))
        return texts, tuple(block for block in blocks if isinstance(block, Image))

    def _result(self, message: _LooseMessage, key: str) -> MessageEntry:
        texts, images = self._said(message.content)
        if message.details:
            self._report.left_out["details of results"] += 1
        duration = message.duration_ms
        result = ToolResult(
            tool_use_id=message.tool_call_id,
            content=texts,
            images=images,
            is_error=message.is_error,
            duration_ms=None if duration is None else round(duration),
        )
        entry = self._logged(key, LoggedMessage(role="user", content=(result,)))
        self._results.add(self._chain.count)
        return entry

    def _note(
        self, key: str, kind: str, text: str, images: tuple[Image, ...], line: bytes
    ) -> NoteEntry:
        return NoteEntry(
            **self._stamps(key),
            kind=f"{NAME}:{kind}",
            text=text,
            images=images,
            record=kept(line),
        )

    def _switch(self, key: str) -> ModelChangeEntry:
        settings = self._settings
        return ModelChangeEntry(
            **self._stamps(key),
            provider=settings.provider,
            model=settings.model,
            thinking_level=settings.level,
        )

    def _compaction(self, record: _LooseRecord, key: str) -> CondensationEntry:
        kept = record.first_kept_entry_id or f"#{record.first_kept_entry_index}"
        first_kept = self._chain.number_of(kept)
        if first_kept is None or not self._chain.on_path(first_kept):
            first_kept = self._chain.count + 1
        lo, hi = self._settings.condensed + 1, first_kept - 1
        # Where nothing is left to stand for, the summary takes the place of the import itself.
        replaced = (lo, hi) if lo <= hi else (0, 0)
        before = self._settings.summary
        summary = self._chain.count + 1
        self._set(condensed=max(hi, self._settings.condensed), summary=summary)
        return CondensationEntry(
            **self._stamps(key),
            replaced=replaced,
            absorbs=(before,) if before else (),
            summary=Summary(
                session_intent=record.summary, files_modified=tuple(_modified(record.details))
            ),
            tokens_before=record.tokens_before,
            tokens_after=0,
            usage=record.usage.entry() if record.usage else None,
        )

    def _cleared(self, key: str, number: int) -> CompactionEntry:
        return CompactionEntry(**self._stamps(key), tier="soft", cleared_count=1, cleared=(number,))

    def _opaque(self, key: str | None, kind: str, line: bytes) -> UnknownEntry:
        raw = {"record": kept(line)}
        return UnknownEntry(**self._stamps(key), kind=f"{NAME}:{kind}", raw=raw)


_BRANCH_SUMMARY: Final = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n"
)


def _thinking(block: _Thought, signed: bool) -> ContentBlock:
    signature = block.thinking_signature or None
    if not signed and signature:
        data = {"thinkingSignature": signature, **({"redacted": True} if block.redacted else {})}
        return Thinking(thinking=block.thinking, provider_data=data)
    if block.redacted and signature:
        return RedactedThinking(data=signature)
    return Thinking(thinking=block.thinking, signature=signature)


def _type_of(raw: msgspec.Raw) -> str:
    found = lenient(bytes(raw))
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else "unknown"


def _shell_text(message: _LooseMessage) -> str:
    """A command that the person ran, as pi tells it to the model."""
    said = f"```\n{message.output}\n```" if message.output else "(no output)"
    text = f"Ran `{message.command}`\n{said}"
    if message.cancelled:
        text += "\n\n(command cancelled)"
    elif message.exit_code:
        text += f"\n\nCommand exited with code {message.exit_code}"
    if message.truncated and message.full_output_path:
        text += f"\n\n[Output truncated. Full output: {message.full_output_path}]"
    return text


def _modified(details: msgspec.Raw) -> list[str]:
    try:
        return msgspec.json.decode(details, type=_Details).modified_files
    except Exception:
        return []


# -- writing ---------------------------------------------------------------------------------------


def _write(source: Source) -> Iterator[bytes]:
    return _Writer(source).lines()


_APIS: Final = {
    "amazon-bedrock": "bedrock-converse-stream",
    "anthropic": "anthropic-messages",
    "azure": "azure-openai-responses",
    "google": "google-generative-ai",
    "google-vertex": "google-vertex",
    "mistral": "mistral-conversations",
    "openai": "openai-responses",
    "openai-codex": "openai-codex-responses",
    "xai": "openai-responses",
}
"""Of the providers that have one. pi takes reasoning back only where provider, API and model are
those that it came from."""
_NO_COST: Final = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
_AWL: Final = "awl."
"""Begins the `customType` of entries that pi has no place for."""

_Records = Iterator[dict[str, Any]]


class _Writer:
    """The lines of a session, all branches of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._state = source.state
        self._lost = source.left_out
        self._names: dict[str, str] = {}  # of tools, by the id of the call
        self._recorded: Counter[str] = Counter()  # results of the batch that were written already
        self._partials = {
            item.position: item.message.content
            for item in self._state.items
            if item.kind == "partial"
        }
        # By position: the record in which an entry begins and the one in which it ends.
        self._begins: list[str | None] = []
        self._ends: list[str | None] = []
        self._settings: list[_Settings] = []
        self._results: dict[int, list[str]] = {}  # by seq

    def lines(self) -> Iterator[bytes]:
        state = self._state
        header = state.header
        assert header is not None
        first = {
            "type": "session",
            "version": VERSION,
            "id": header.id,
            "timestamp": header.timestamp,
            "cwd": state.cwd,
            **self._parent_session(),
        }
        yield _line(first)
        start = _Settings(header.provider, header.model)
        root: str | None = None
        if not self._is_from_pi():
            root = _id_of(header.id, 0)
            change = {"type": "model_change", "provider": start.provider, "modelId": start.model}
            yield _line(_stamped(change, root, None, header.timestamp))
        for position in range(len(state.entries)):
            entry = state.body(position)
            parent = state.parents[position]
            before = root if parent == ROOT else self._ends[parent]
            self._settings.append(start if parent == ROOT else self._settings[parent])
            begin = end = None
            for number, record in enumerate(self._records(position, entry)):
                name = entry.id if number == 0 else _id_of(entry.id, number)
                if record.get("type") == "message" and "toolCallId" in record["message"]:
                    self._results.setdefault(state.seqs[position], []).append(name)
                yield _line(_stamped(record, name, end or before, entry.timestamp))
                begin, end = begin or name, name
            self._begins.append(begin or before)
            self._ends.append(end or before)
        self._lose("damaged lines", len(state.damage))

    def _is_from_pi(self) -> bool:
        return any(
            isinstance(entry, ImportEntry) and entry.source == NAME
            for entry in map(self._state.body, range(min(1, len(self._state.entries))))
        )

    def _parent_session(self) -> dict[str, Any]:
        """Which session this one was forked from, in awl or in pi."""
        header = self._state.header
        if header is not None and header.forked_from is not None:
            return {"parentSession": header.forked_from.session_id}
        for entry in map(self._state.body, range(min(2, len(self._state.entries)))):
            if isinstance(entry, UnknownEntry) and entry.kind == f"{NAME}:session":
                found = _record_of(entry.raw.get("record")).get("parentSession")
                return {"parentSession": found} if found else {}
        return {}

    def _records(self, position: int, entry: Entry) -> _Records:
        at = entry.timestamp
        if position in self._partials:
            logged = LoggedMessage(
                role="assistant", content=self._partials[position], stop_reason="aborted"
            )
            yield self._answer(at, logged)
        match entry:
            case MessageEntry():
                yield from self._message(entry)
            case ToolResultEntry():
                self._recorded[entry.tool_use_id] += 1
                yield self._result(at, entry)
            case ModelChangeEntry():
                level = entry.thinking_level
                yield from self._switch(_Settings(entry.provider, entry.model, level))
            case CondensationEntry():
                yield self._compaction(position, entry)
            case CompactionEntry():
                targets = [name for seq in entry.cleared for name in self._results.get(seq, ())]
                for target in targets:
                    yield {"type": "context_edit", "targetId": target, "replacement": None}
                if not targets:
                    yield _custom(entry)
            case TitleEntry():
                yield {"type": "session_info", "name": entry.title}
            case LabelEntry():
                yield self._label(entry)
            case NoteEntry():
                yield self._note(entry)
            case UnknownEntry():
                yield from self._unknown(entry)
            case ImportEntry():
                if entry.source == "legacy":
                    yield _message_of("import", import_text(entry))
                elif entry.source != NAME:
                    yield _custom(entry)
            case RewindEntry() if position == self._state.leaf:
                yield _custom(entry)
            case ToolCallEntry() | PartialEntry() | RewindEntry():
                pass
            case _:
                yield _custom(entry)

    def _message(self, entry: MessageEntry) -> _Records:
        message, at = entry.message, entry.timestamp
        if message.role == "assistant":
            self._recorded.clear()
            yield self._answer(at, message)
            return
        if message.role == "system":
            said = {"role": "system", "content": message.said().text, "timestamp": _ms(at)}
            yield {"type": "message", "message": said}
            return
        before = self._settings[-1]
        asked = entry.provider or before.provider, entry.model or before.model
        if asked != (before.provider, before.model):
            yield from self._switch(_Settings(*asked, level=before.level))
        for result in message.said().tool_results:
            if self._recorded[result.tool_use_id] > 0:
                self._recorded[result.tool_use_id] -= 1
            else:
                yield self._result(at, result)
        if is_prompt(message.said()):
            rest = (block for block in message.content if not isinstance(block, ToolResult))
            content = list(filter(None, map(self._block, rest)))
            said = {"role": "user", "content": content, "timestamp": _ms(at)}
            yield {"type": "message", "message": said}

    def _answer(self, at: str, message: LoggedMessage) -> dict[str, Any]:
        settings = self._settings[-1]
        provider = message.provider or settings.provider
        asked = settings.model if provider == settings.provider else message.model
        said: dict[str, Any] = {
            "role": "assistant",
            "content": list(filter(None, map(self._block, message.content))),
            "api": _APIS.get(provider) or _api_of(message.content),
            "provider": provider,
            "model": asked or "",
            "usage": _usage_record(message.usage or Usage(input=0, output=0)),
            "stopReason": message.stop_reason or "stop",
            "timestamp": _ms(at),
        }
        if message.model and message.model != asked:
            said["responseModel"] = message.model
        for block in message.content:
            if isinstance(block, Opaque) and block.kind == f"{NAME}:error":
                said.update(_record_of(lenient(block.raw.encode())))
        return {"type": "message", "message": said}

    def _block(self, block: ContentBlock) -> dict[str, Any] | None:
        match block:
            case Text():
                signed = _picked(block.provider_data, ("textSignature",))
                return {"type": "text", "text": block.text, **signed}
            case Thinking():
                return _thinking_block(block)
            case RedactedThinking():
                sealed = {"thinkingSignature": block.data, "redacted": True}
                return {"type": "thinking", "thinking": "", **sealed}
            case ToolUse():
                self._names[block.id] = block.name
                given = self._arguments(block.input)
                call = {"type": "toolCall", "id": block.id, "name": block.name, "arguments": given}
                return {**call, **_picked(block.provider_data, _OF_CALLS)}
            case Image():
                return self._image(block)
            case Opaque() if block.kind.startswith(f"{NAME}:"):
                found = None if block.kind == f"{NAME}:error" else lenient(block.raw.encode())
                return _record_of(found) or None
        self._lose("blocks of other kinds")
        return None

    def _arguments(self, text: str) -> Any:
        parsed = parse_input(text)
        if parsed is None:
            self._lose("arguments that are no JSON object, which stand under `raw`")
            return {"raw": text}
        return msgspec.Raw(text.encode()) if parsed and "\n" not in text else parsed

    def _image(self, image: Image) -> dict[str, Any]:
        try:
            data = self._source.blob(image.blob)
        except BlobDamaged:
            self._lose("images whose files are missing")
            return {"type": "text", "text": "[picture not available]"}
        encoded = base64.b64encode(data).decode()
        return {"type": "image", "data": encoded, "mimeType": image.mime_type}

    def _result(self, at: str, result: ToolResult | ToolResultEntry) -> dict[str, Any]:
        name = result.name if isinstance(result, ToolResultEntry) else ""
        self._lose("uncut outputs of tools", result.output is not None)
        words = [{"type": "text", "text": result.content}] if result.content else []
        said: dict[str, Any] = {
            "role": "toolResult",
            "toolCallId": result.tool_use_id,
            "toolName": name or self._names.get(result.tool_use_id, ""),
            "content": [*words, *map(self._image, result.images)],
            "isError": result.is_error,
        }
        if result.duration_ms is not None:
            said["durationMs"] = result.duration_ms
        return {"type": "message", "message": {**said, "timestamp": _ms(at)}}

    def _switch(self, to: _Settings) -> _Records:
        before = self._settings[-1]
        self._settings[-1] = to
        level = to.level if to.level != before.level else None
        if (to.provider, to.model) != (before.provider, before.model) or level is None:
            yield {"type": "model_change", "provider": to.provider, "modelId": to.model}
        if level is not None:
            yield {"type": "thinking_level_change", "thinkingLevel": level}

    def _compaction(self, position: int, entry: CondensationEntry) -> dict[str, Any]:
        kept = None
        for at in self._state.path_to(position)[:-1]:
            begins = self._begins[at]
            if self._state.seqs[at] > entry.replaced[1] and begins != self._before(at):
                kept = begins
                break
        summary = entry.summary
        structured = summary.decisions_made or summary.open_questions or summary.next_steps
        record: dict[str, Any] = {
            "type": "compaction",
            "summary": summary_text(summary) if structured else summary.session_intent,
            "firstKeptEntryId": kept or entry.id,
            "tokensBefore": entry.tokens_before,
            "details": {"readFiles": [], "modifiedFiles": summary.files_modified},
        }
        if entry.usage is not None:
            record["usage"] = _usage_record(entry.usage)
        return record

    def _before(self, position: int) -> str | None:
        parent = self._state.parents[position]
        return None if parent == ROOT else self._ends[parent]

    def _label(self, entry: LabelEntry) -> dict[str, Any]:
        position = self._state.find(entry.target_id)
        target = None if position is None else self._begins[position]
        record = {"type": "label", "targetId": target or entry.target_id}
        return {**record, "label": entry.label} if entry.label else record

    def _note(self, entry: NoteEntry) -> dict[str, Any]:
        if entry.kind.startswith(f"{NAME}:"):
            return _record_of(entry.record)
        record = _message_of(entry.kind, entry.text)
        if entry.images:
            images = map(self._image, entry.images)
            record["content"] = [{"type": "text", "text": entry.text}, *images]
        return record

    def _unknown(self, entry: UnknownEntry) -> _Records:
        if not entry.kind.startswith(f"{NAME}:"):
            yield {"type": "custom", "customType": entry.kind, "data": entry.raw}
        elif entry.kind != f"{NAME}:session":
            record = _record_of(entry.raw.get("record"))
            if record.get("type") == "message" and not isinstance(record.get("message"), dict):
                # pi opens no file with such a message.
                record = {"type": "custom", "customType": entry.kind, "data": record}
            yield record

    def _lose(self, what: str, count: int = 1) -> None:
        if count:
            self._lost[what] += count


def _usage_record(usage: Usage) -> dict[str, Any]:
    cached, written = usage.cache_read or 0, usage.cache_write or 0
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": cached,
        "cacheWrite": written,
        "totalTokens": usage.input + usage.output + cached + written,
        "cost": _NO_COST,
    }


def _picked(data: dict[str, Any] | None, names: Sequence[str]) -> dict[str, Any]:
    return {name: data[name] for name in names if name in data} if data else {}


def _custom(entry: Entry) -> dict[str, Any]:
    """An entry that pi has no place for, as one that it keeps and never sends."""
    fields = msgspec.to_builtins(entry)
    kind = fields.pop("type")
    for stamp in ("id", "parentId", "timestamp", "seq", "turnId"):
        fields.pop(stamp, None)
    return {"type": "custom", "customType": f"{_AWL}{kind}", "data": fields}


def _message_of(kind: str, text: str) -> dict[str, Any]:
    return {"type": "custom_message", "customType": kind, "content": text, "display": True}


def _api_of(content: Sequence[ContentBlock]) -> str:
    """The API that an answer came from, by the form of its reasoning's signatures."""
    for block in content:
        if isinstance(block, RedactedThinking) or (isinstance(block, Thinking) and block.signature):
            return "openai-responses" if block.provider_data else "anthropic-messages"
        if isinstance(block, Thinking) and block.provider_data:
            signature = str(block.provider_data.get("thinkingSignature"))
            return "openai-responses" if signature.startswith("{") else "openai-completions"
    return "openai-completions"


def _thinking_block(block: Thinking) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "thinking", "thinking": block.thinking}
    data = block.provider_data or {}
    if "thinkingSignature" in data:
        return {**found, **data}
    if data:  # an item of the Responses API, which pi keeps as its JSON text
        item = {**data, "encrypted_content": block.signature}
        return {**found, "thinkingSignature": msgspec.json.encode(item).decode()}
    return {**found, "thinkingSignature": block.signature} if block.signature else found


def _record_of(found: Any) -> dict[str, Any]:
    return dict(found) if isinstance(found, dict) else {}


def _stamped(
    record: dict[str, Any], name: str, parent: str | None, timestamp: str
) -> dict[str, Any]:
    own = ("type", "id", "parentId", "timestamp")
    stamps = {"type": record.get("type", "custom"), "id": name, "parentId": parent}
    rest = {key: value for key, value in record.items() if key not in own}
    return {**stamps, "timestamp": timestamp, **rest}


def _line(record: dict[str, Any]) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _id_of(name: str, number: int) -> str:
    return hashlib.sha256(f"{name}/{number}".encode()).hexdigest()[:8]


def _ms(at: str) -> int:
    try:
        return round(datetime.fromisoformat(at).timestamp() * 1000)
    except ValueError:
        return 0


FORMAT: Final = Format(
    name=NAME,
    title="pi",
    recognise=_recognise,
    read=_read,
    places=(
        Place(variable="PI_CODING_AGENT_DIR", default=".pi/agent", below="sessions"),
        Place(variable="PI_CODING_AGENT_SESSION_DIR", default=".pi/agent/sessions"),
    ),
    write=_write,
    cannot_carry=(
        "the moments at which calls started",
        "what had streamed of answers that were gone back from",
        "uncut outputs of tools",
        "what was paid, ids of requests, and the system text of a compaction",
    ),
)
