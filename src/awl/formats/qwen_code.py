"""Qwen Code: `~/.qwen/projects/<path>/chats/<session id>.jsonl`.

A line is a record: ``uuid``, ``parentUuid``, ``sessionId``, ``timestamp``, ``type``, ``cwd``. The
records are a tree, as taking back a turn goes on from an earlier record; where the file ends
counts.

user, assistant, tool_result  `message` {role, parts}, the parts as Google's API has them. One
                              assistant record is one answer, with `model` and `usageMetadata`.
system                        told apart by ``subtype``: chat_compression, whose
                              `compressedHistory` is what the model is sent from here on, a summary
                              and often the last messages again; custom_title; session_model; others
                              for the screen and for book-keeping. A title is written again and
                              again, so that it is near the end; what comes next may follow the
                              record before it.

The conversations of subagents are in ``subagents/<session id>/agent-<name>.jsonl`` beside `chats`,
with the ``sessionId`` of the session that started them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from awl.conversation import ContentBlock, ToolResult, ToolUse
from awl.entries import (
    CondensationEntry,
    Entry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    Summary,
    TitleEntry,
    UnknownEntry,
    Usage,
)
from awl.formats import parts
from awl.formats.chain import Chain, Summaries
from awl.formats.format import TWICE, Facts, Format, Head, Imported, Keep, Place, Report
from awl.formats.records import Lines, Parts, Records, kept, size_of, time_of

NAME: Final = "qwen-code"
PROVIDER: Final = "qwen"

_GLANCE: Final = 2000
_RECENT: Final = 256
_BOOKKEEPING: Final = "records of the program's own book-keeping"
_ASIDE: Final = frozenset(
    {
        "attribution_snapshot",
        "branch_checkpoint",
        "file_history_snapshot",
        "session_source",
        "ui_telemetry",
    }
)
_BESIDE: Final = frozenset(
    {
        "custom_title",
        "session_artifact_event",
        "session_artifact_snapshot",
        "session_sources_snapshot",
    }
)
"""Records that the next one does not have to follow."""


def _recognise(head: Head) -> bool:
    return any(map(is_record, head.objects))


def is_record(found: dict[str, Any]) -> bool:
    """Whether an object is a record of Qwen Code, which look much like those of Claude Code."""
    message = found.get("message")
    has_parts = isinstance(message, dict) and isinstance(message.get("parts"), list)
    return (
        isinstance(found.get("sessionId"), str)
        and isinstance(found.get("uuid"), str)
        and (has_parts or "systemPayload" in found)
    )


def _of_subagent(head: Head) -> bool:
    return is_of_subagent(head.path) and _recognise(head) and b'"isSidechain":true' in head.data


def is_of_subagent(path: Path) -> bool:
    """Whether a file is named as a subagent's conversation is, here and in Claude Code."""
    return path.name.startswith("agent-")


def _read(path: Path, keep: Keep) -> Imported:
    facts = _glance(path)
    report = Report()
    lines = Lines(path, report)
    folder = path.parent.parent / "subagents" / facts.source_id
    count = sum(1 for _ in folder.glob("agent-*.jsonl"))
    report.left_out[f"conversations of subagents, in {folder}"] += count
    reader = _Reader(lines, report, Chain(facts.source_id), keep, facts)
    return Imported(facts, reader.entries(), report, size_of(path), lambda: lines.end)


# -- records ---------------------------------------------------------------------------------------


class _LooseContent(msgspec.Struct, frozen=True, gc=False):
    role: str = ""
    parts: list[msgspec.Raw] = []


class _Content(_LooseContent, frozen=True, gc=False):
    """What is said in parts of known kinds alone."""

    parts: list[parts.KnownPart] = []  # type: ignore[assignment]


_Part = parts.KnownPart | msgspec.Raw
_KNOWN: Final = Parts(parts.KnownPart)


class _Usage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    prompt_token_count: int = 0
    candidates_token_count: int = 0
    thoughts_token_count: int = 0
    cached_content_token_count: int = 0

    def entry(self) -> Usage:
        """Cached tokens are counted apart in awl, and reasoning with the rest."""
        cached = self.cached_content_token_count
        fresh = self.prompt_token_count - cached
        return Usage(
            input=fresh if fresh > 0 else 0,
            output=self.candidates_token_count + self.thoughts_token_count,
            cache_read=cached or None,
        )


class _CompressionInfo(msgspec.Struct, frozen=True, rename="camel", gc=False):
    original_token_count: int = 0
    new_token_count: int = 0


class _Payload(msgspec.Struct, frozen=True, rename="camel", gc=False):
    info: _CompressionInfo | None = None
    compressed_history: list[_LooseContent] | None = None
    custom_title: str = ""
    model_id: str = ""


class _CallResult(msgspec.Struct, frozen=True, gc=False):
    status: str | None = None


class _LooseRecord(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """All fields that a line may have; each type uses some."""

    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | msgspec.UnsetType | None = msgspec.UNSET
    session_id: str = ""
    timestamp: str = ""
    cwd: str = ""
    message: _LooseContent | None = None
    usage_metadata: _Usage | None = None
    model: str | None = None
    tool_call_result: _CallResult | None = None
    system_payload: _Payload | None = None


class _Record(_LooseRecord, frozen=True, rename="camel", gc=False):
    """A line whose message has parts of known kinds alone."""

    message: _Content | None = None


def _glance(path: Path) -> Facts:
    """What the first records tell of the session."""
    found = {"session_id": "", "cwd": "", "created": "", "model": ""}
    for number, (_, record) in enumerate(Records(Lines(path, Report()), _Record, _LooseRecord)):
        if record is not None:
            found["session_id"] = found["session_id"] or record.session_id
            found["cwd"] = found["cwd"] or record.cwd
            found["created"] = found["created"] or time_of(record.timestamp)
            found["model"] = record.model or ""
        if found["model"] or number == _GLANCE:
            break
    return Facts(
        source=NAME,
        source_id=path.stem if is_of_subagent(path) else found["session_id"] or path.stem,
        source_path=path,
        cwd=found["cwd"],
        provider=PROVIDER,
        model=found["model"],
        created=found["created"],
    )


# -- reading ---------------------------------------------------------------------------------------


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
        self._model = facts.model
        self._aside: dict[str, str] = {}  # records that stand aside, and what theirs follow
        self._title = ""
        self._summaries = Summaries(chain)
        # The last messages, and the number of the entry before each.
        self._recent: deque[tuple[int, Sequence[_Part]]] = deque(maxlen=_RECENT)

    def entries(self) -> Iterator[Entry]:
        number_of = self._chain.number_of
        for line, record, time in Records(self._lines, _Record, _LooseRecord).timed():
            if record is None:
                yield self._opaque(None, "unknown", line)
                continue
            if record.uuid and number_of(record.uuid) is not None:
                self._report.left_out[TWICE] += 1
                continue
            self._time = time or self._time
            parent = record.parent_uuid
            if isinstance(parent, str):
                parent = self._aside.get(parent, parent)
            if record.uuid and (record.subtype in _ASIDE or record.subtype in _BESIDE):
                if record.uuid in self._aside:
                    self._report.left_out[TWICE] += 1
                    continue
                if isinstance(parent, str):
                    self._aside[record.uuid] = parent
                if record.subtype in _ASIDE:
                    self._report.left_out[_BOOKKEEPING] += 1
                else:
                    yield from self._beside(record, line)
                continue
            if parent is not msgspec.UNSET:
                rewind = self._chain.jump(parent, self._time)
                if rewind is not None:
                    self._recent.clear()
                    yield rewind
            yield self._entry(record, line)

    def _beside(self, record: _LooseRecord, line: bytes) -> Iterator[Entry]:
        title = record.system_payload.custom_title if record.system_payload else ""
        if record.subtype == "custom_title" and title and title != self._title:
            self._title = title
            yield TitleEntry(**self._stamps(None), title=title)
        elif title:
            self._report.left_out[_BOOKKEEPING] += 1
        else:
            yield self._opaque(None, record.subtype or "unknown", line)

    def _entry(self, record: _LooseRecord, line: bytes) -> Entry:
        payload = record.system_payload
        if record.message is not None and record.type in ("user", "assistant", "tool_result"):
            return self._message(record, record.message)
        if payload is not None:
            if record.subtype == "chat_compression" and payload.compressed_history:
                entry = self._compressed(record, payload, payload.compressed_history)
                if entry is not None:
                    return entry
            if record.subtype == "session_model" and payload.model_id:
                self._model = payload.model_id
                return ModelChangeEntry(
                    **self._stamps(record.uuid), provider=PROVIDER, model=payload.model_id
                )
        return self._opaque(record.uuid, record.subtype or record.type or "unknown", line)

    def _stamps(self, key: str | None) -> dict[str, Any]:
        return {"id": self._chain.draw(key), "timestamp": self._time}

    def _message(self, record: _LooseRecord, said: _LooseContent) -> MessageEntry:
        self._recent.append((self._chain.count, said.parts))
        content = parts.blocks(said.parts, NAME, self._keep)
        if record.type != "assistant":
            logged = LoggedMessage(role="user", content=self._marked(record, content))
            return self._logged(record.uuid, logged)
        called = ToolUse in map(type, content)
        logged = LoggedMessage(
            role="assistant",
            content=content,
            provider=PROVIDER,
            model=record.model,
            stop_reason="toolUse" if called else "stop",
            usage=record.usage_metadata.entry() if record.usage_metadata else None,
        )
        return self._logged(record.uuid, logged)

    def _logged(self, key: str | None, message: LoggedMessage) -> MessageEntry:
        return MessageEntry(id=self._chain.draw(key), timestamp=self._time, message=message)

    def _marked(
        self, record: _LooseRecord, content: tuple[ContentBlock, ...]
    ) -> tuple[ContentBlock, ...]:
        """Results, marked as errors where the record says so."""
        status = record.tool_call_result.status if record.tool_call_result else None
        if status not in ("error", "cancelled"):
            return content
        return tuple(
            msgspec.structs.replace(block, is_error=True)
            if isinstance(block, ToolResult)
            else block
            for block in content
        )

    def _compressed(
        self, record: _LooseRecord, payload: _Payload, history: list[_LooseContent]
    ) -> CondensationEntry | None:
        hi = self._chain.count
        while history and self._recent:
            before, last = self._recent[-1]
            if list(map(_bare, history[-1].parts)) != list(map(_bare, last)):
                break
            hi = before  # it is sent still, as it was
            history = history[:-1]
            self._recent.pop()
        replaced = self._summaries.up_to(hi)
        texts = [
            part.text
            for said in history
            if said.role == "user"
            for _, part in parts.PARTS(said.parts)
            if part is not None and part.text
        ]
        if replaced is None or not texts:
            return None
        info = payload.info or _CompressionInfo()
        stamps = self._stamps(record.uuid)
        self._summaries.told(replaced)
        return CondensationEntry(
            **stamps,
            replaced=(replaced.lo, replaced.hi),
            absorbs=replaced.absorbs,
            summary=Summary(session_intent="\n\n".join(texts)),
            tokens_before=info.original_token_count,
            tokens_after=info.new_token_count,
        )

    def _opaque(self, key: str | None, kind: str, line: bytes) -> UnknownEntry:
        raw = {"record": kept(line)}
        return UnknownEntry(**self._stamps(key), kind=f"{NAME}:{kind}", raw=raw)


def _bare(part: _Part) -> parts.KnownPart | bytes:
    """A part as it is compared: by what it says, where that is known."""
    if isinstance(part, msgspec.Raw):
        ((_, known),) = _KNOWN((part,))
        return known or bytes(part)
    return part


FORMAT: Final = Format(
    name=NAME,
    title="Qwen Code",
    recognise=_recognise,
    read=_read,
    of_subagent=_of_subagent,
    places=(
        Place(variable="QWEN_RUNTIME_DIR", default=".qwen", below="projects"),
        Place(variable="QWEN_HOME", default=".qwen", below="projects"),
    ),
)
