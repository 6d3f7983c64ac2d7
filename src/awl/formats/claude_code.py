"""Claude Code: `~/.claude/projects/<path>/<session id>.jsonl`.

A line is a record: ``type``, ``uuid``, ``parentUuid`` (null for a root), ``timestamp``, and in most
the ``cwd`` and the ``sessionId``. The conversation is a tree of these; which branch counts is where
the file ends. A session that was resumed may begin with the records of the one before it, under
that one's ``sessionId``: which session it is, the file's name says.

user, assistant   ``message`` as the Messages API has it. An answer is written block by block: one
                  record a content block, all with the same ``message.id``, the usage repeated, and
                  results of its first calls between them. Each result of a parallel batch follows
                  the record of its own call, so that a walk from the leaf misses all but one: here
                  a batch is one answer and then its results. ``isMeta``: put in by the program.
sidechain         records of a subagent (``isSidechain``), in this file or, newer, in
                  ``<session id>/subagents/``. They are a branch of their own.
compact_boundary  of type system: a root, whose ``logicalParentUuid`` it follows; the user record
                  with ``isCompactSummary`` behind it has the summary of what came before, but for
                  a ``preservedSegment``: the last messages, or the first ones if they follow the
                  boundary itself. microcompact_boundary: results that are no longer sent.
attachment        what the program told the model besides; ``queued_command`` is what the person
                  said while an answer was on its way.
summary           a title, for the conversation that ends in ``leafUuid``, which may be another
                  file's. custom-title, ai-title: the session's own.
others            are kept, but for the program's book-keeping and copies of its requests.

Long outputs lie whole in ``<session id>/tool-results/``; the record has what the model was shown.
The model of an answer that the program made itself is ``<synthetic>``.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from awl.conversation import (
    BlobRef,
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
    CompactionEntry,
    CondensationEntry,
    Entry,
    LoggedMessage,
    MessageEntry,
    NoteEntry,
    Summary,
    TitleEntry,
    UnknownEntry,
    Usage,
)
from awl.errors import AwlError
from awl.formats.chain import Chain, Replaced, Summaries
from awl.formats.format import TWICE, Facts, Format, Head, Imported, Keep, Place, Report
from awl.formats.payloads import from_base64
from awl.formats.qwen_code import is_of_subagent
from awl.formats.qwen_code import is_record as is_of_qwen
from awl.formats.records import (
    Lines,
    Parts,
    Records,
    head_of,
    json_text,
    kept,
    size_of,
    time_of,
)

NAME: Final = "claude-code"
PROVIDER: Final = "anthropic"
SYNTHETIC: Final = "<synthetic>"

_MOST_HELD: Final = 1000
"""Records that wait for the end of an answer or for the model of the next."""

_GLANCE: Final = 5000
"""Records that are looked at for the facts."""

_COPIES: Final = "copies of requests"
_BOOKKEEPING: Final = "records of the program's own book-keeping"
_LEFT_OUT: Final = {
    "api-request": _COPIES,
    "api-request-blob": _COPIES,
    "api-request-shape": _COPIES,
    "atis-latch": _BOOKKEEPING,
    "cost-state": _BOOKKEEPING,
    "file-history-snapshot": _BOOKKEEPING,
    "last-prompt": _BOOKKEEPING,
    "mode": _BOOKKEEPING,
    "permission-mode": _BOOKKEEPING,
    "progress": _BOOKKEEPING,
    "queue-operation": _BOOKKEEPING,
    "tools-used": _BOOKKEEPING,
}


_is_session_id: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z").match


def _recognise(head: Head) -> bool:
    return any(map(_is_record, head.objects)) and not any(map(is_of_qwen, head.objects))


def _is_record(found: dict[str, Any]) -> bool:
    kind = found.get("type")
    if kind == "summary":
        return isinstance(found.get("leafUuid"), str)
    return (
        isinstance(found.get("sessionId"), str)
        and isinstance(kind, str)
        and ("uuid" in found or kind in _LEFT_OUT)
    )


def _of_subagent(head: Head) -> bool:
    return (
        is_of_subagent(head.path)
        and b'"isSidechain":true' in head.data
        and not any(map(is_of_qwen, head.objects))
    )


def _read(path: Path, keep: Keep) -> Imported:
    glance = _glance(path)
    report = Report()
    lines = Lines(path, report)
    named = _is_session_id(path.stem) or is_of_subagent(path)
    source_id = path.stem if named else glance.session_id or path.stem
    facts = Facts(
        source=NAME,
        source_id=source_id,
        source_path=path,
        cwd=glance.cwd,
        provider=PROVIDER,
        model=glance.model,
        created=glance.created,
    )
    beside = path.with_name(path.stem)
    if (beside / "subagents").is_dir():
        count = sum(1 for _ in (beside / "subagents").rglob("agent-*.jsonl"))
        report.left_out[f"conversations of subagents, in {beside / 'subagents'}"] += count
    elif not is_of_subagent(path) and (count := _subagents_in(path.parent)[source_id]):
        report.left_out[f"conversations of subagents, in {path.parent}/agent-*.jsonl"] += count
    reader = _Reader(lines, report, Chain(source_id), keep, facts)
    return Imported(facts, reader.entries(), report, size_of(path), lambda: lines.end)


@functools.lru_cache(maxsize=8)
def _subagents_in(folder: Path) -> Counter[str]:
    """How many conversations of subagents lie in a folder of sessions, by the id of the session: so
    some versions have it."""
    found: Counter[str] = Counter()
    for path in folder.glob("agent-*.jsonl"):
        with contextlib.suppress(AwlError, OSError):
            names = {one.get("sessionId") for one in head_of(path).objects}
            found.update(name for name in names if isinstance(name, str))
    return found


# -- records ---------------------------------------------------------------------------------------


class _ImageSource(msgspec.Struct, frozen=True, gc=False):
    media_type: str = ""
    data: str = ""


class _Part(msgspec.Struct, frozen=True, gc=False):
    """A block inside a result."""

    type: str
    text: str = ""
    source: _ImageSource | None = None


class _Block(msgspec.Struct, frozen=True, gc=False):
    """All fields that a block may have; each type uses some."""

    type: str
    text: str = ""
    thinking: str = ""
    signature: str | None = None
    data: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None
    source: _ImageSource | None = None


_BLOCKS: Final = Parts(_Block)
_PARTS: Final = Parts(_Part)


class _Usage(msgspec.Struct, frozen=True, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None

    def entry(self) -> Usage:
        return Usage(
            input=self.input_tokens,
            output=self.output_tokens,
            cache_read=self.cache_read_input_tokens or None,
            cache_write=self.cache_creation_input_tokens or None,
        )


class _Message(msgspec.Struct, frozen=True, gc=False):
    role: str = ""
    content: str | list[msgspec.Raw] | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Segment(msgspec.Struct, frozen=True, rename="camel", gc=False):
    head_uuid: str = ""
    anchor_uuid: str = ""
    tail_uuid: str = ""


class _Compaction(msgspec.Struct, frozen=True, rename="camel", gc=False):
    pre_tokens: int = 0
    post_tokens: int = 0
    preserved_segment: _Segment | None = None
    compacted_tool_ids: list[str] = []


class _Attachment(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    prompt: str | list[msgspec.Raw] | None = None


class _Record(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """All fields that a line may have; each type uses some."""

    type: str
    uuid: str | None = None
    parent_uuid: str | msgspec.UnsetType | None = msgspec.UNSET
    logical_parent_uuid: str | None = None
    is_sidechain: bool = False
    timestamp: str = ""
    subtype: str = ""
    message: _Message | None = None
    is_compact_summary: bool = False
    is_meta: bool = False
    is_api_error_message: bool = False
    cwd: str = ""
    session_id: str = ""
    summary: str = ""
    leaf_uuid: str = ""
    custom_title: str = ""
    ai_title: str = ""
    compact_metadata: _Compaction | None = None
    microcompact_metadata: _Compaction | None = None
    attachment: _Attachment | None = None
    tool_use_result: msgspec.Raw = msgspec.Raw()

    @property
    def answer_id(self) -> str | None:
        """The id of the answer that an assistant record is a piece of."""
        return self.message.id if self.type == "assistant" and self.message else None

    @property
    def asked(self) -> str | None:
        """The model that an assistant record of the conversation comes from."""
        if self.type != "assistant" or self.is_sidechain or self.message is None:
            return None
        return None if self.message.model == SYNTHETIC else self.message.model


class _Stored(msgspec.Struct, frozen=True, rename="camel", gc=False):
    persisted_output_path: str | None = None


@dataclass
class _Glance:
    """What the first records tell of the session."""

    cwd: str = ""
    session_id: str = ""
    created: str = ""
    model: str = ""


def _glance(path: Path) -> _Glance:
    found = _Glance()
    lines = Lines(path, Report())
    for number, (_, record) in enumerate(Records(lines, _Record)):
        if record is not None:
            found.cwd = found.cwd or record.cwd
            found.session_id = found.session_id or record.session_id
            found.created = found.created or time_of(record.timestamp)
            found.model = record.asked or ""
        if found.model or number == _GLANCE:
            break
    return found


# -- reading ---------------------------------------------------------------------------------------


@dataclass
class _Step:
    """A record of the conversation, with what stands behind it in the file: an answer has the
    records of its `more` blocks; a prompt the model that `asked` names."""

    line: bytes
    record: _Record
    more: list[_Record] = field(default_factory=list)
    asked: str | None = None
    is_prompt: bool = False

    @property
    def begins(self) -> bool:
        """Whether it begins a turn. What the program puts in may come with a result that stands
        between the pieces of an answer."""
        return self.is_prompt and not self.record.is_meta


@dataclass
class _Lane:
    """A line of talk: the main one or a subagent's. `batch` are the records since its last answer
    began, `last` is the one that stands last among them."""

    batch: set[str] = field(default_factory=set)
    last: str | None = None


class _Reader:
    """The entries of a file."""

    def __init__(
        self, lines: Lines, report: Report, chain: Chain, keep: Keep, facts: Facts
    ) -> None:
        self._lines = lines
        self._report = report
        self._chain = chain
        self._keep = keep
        self._beside = lines.path.with_name(lines.path.stem)
        self._time = facts.created
        self._asked = facts.model
        self._main = _Lane()
        self._lanes: dict[str, _Lane] = {}  # of subagents, by record
        self._boundary: _Record | None = None
        self._summaries = Summaries(chain)
        self._results: dict[str, int] = {}
        self._titles: dict[str, str] = {}  # by the leaf that they are for
        self._aside: dict[str, str] = {}  # records that are left out, and what theirs follow
        self._title = ""
        self._named = False

    def entries(self) -> Iterator[Entry]:
        for step in _with_models(_whole(self._records())):
            yield from self._step(step)
        if self._main.last is not None:
            closing = self._chain.closing(self._main.last, self._time)
            if closing is not None:
                yield closing
        self._report.left_out["titles of other sessions"] += len(self._titles)

    def _records(self) -> Iterator[_Step]:
        for line, record in Records(self._lines, _Record):
            if record is None:
                yield _Step(line, _Record(type="unknown"))
            elif record.type not in _LEFT_OUT:
                yield _Step(line, record, is_prompt=_is_prompt(record))
            else:
                self._report.left_out[_LEFT_OUT[record.type]] += 1
                if record.uuid and record.parent_uuid:
                    parent = record.parent_uuid
                    self._aside[record.uuid] = self._aside.get(parent, parent)

    def _step(self, step: _Step) -> Iterator[Entry]:
        record, line = step.record, step.line
        self._time = time_of(record.timestamp) or self._time
        if record.type in ("summary", "custom-title", "ai-title"):
            yield from self._titled(record)
            return
        if record.uuid is None:
            yield self._opaque(None, record.type, line)
            return
        if self._chain.id_of(record.uuid) is not None:
            self._report.left_out[TWICE] += 1
            return
        lane = self._lane(record)
        rewind = self._jump(record, lane)
        if rewind is not None:
            yield rewind
        if record.subtype == "compact_boundary" and not record.is_sidechain:
            self._boundary = record
            if lane.last is not None:
                self._chain.alias(record.uuid, lane.last)
                lane.batch.add(record.uuid)
            return
        yield self._entry(step)
        self._placed(step, lane)
        if (title := self._titles.pop(record.uuid, None)) is not None:
            yield from self._name(title, own=False)

    # -- where a record stands ---------------------------------------------------------------------

    def _lane(self, record: _Record) -> _Lane:
        if not record.is_sidechain:
            return self._main
        parent = record.parent_uuid
        lane = self._lanes.get(parent) if isinstance(parent, str) else None
        return lane or _Lane()

    def _jump(self, record: _Record, lane: _Lane) -> Entry | None:
        parent = record.parent_uuid
        if parent is msgspec.UNSET:
            return None
        if isinstance(parent, str):
            parent = self._aside.get(parent, parent)
        begins_anew = parent is None and (
            record.subtype == "compact_boundary" or record.is_compact_summary
        )
        if begins_anew:
            parent = record.logical_parent_uuid or lane.last
        if parent is not None and (parent in lane.batch or self._chain.id_of(parent) is None):
            parent = lane.last or parent
        return self._chain.jump(parent, self._time)

    def _placed(self, step: _Step, lane: _Lane) -> None:
        """Note where the entry of a record stands."""
        record = step.record
        assert record.uuid is not None
        if record.type == "assistant" or step.begins:
            lane.batch = set()
        lane.batch.add(record.uuid)
        lane.last = record.uuid
        for piece in step.more:
            if piece.uuid is not None:
                self._chain.alias(piece.uuid, record.uuid)
                lane.batch.add(piece.uuid)
        if record.is_sidechain:
            for name in lane.batch:
                self._lanes[name] = lane

    # -- what a record says ------------------------------------------------------------------------

    def _entry(self, step: _Step) -> Entry:
        record, line = step.record, step.line
        message = record.message
        if record.type == "assistant" and message is not None:
            return self._answer(step, message)
        if record.type == "user" and message is not None:
            if record.is_compact_summary:
                return self._condensation(record, message)
            return self._said(step, message)
        if record.subtype == "microcompact_boundary" and record.microcompact_metadata:
            return self._cleared(record, record.microcompact_metadata)
        attachment = record.attachment
        if attachment is not None:
            if attachment.type == "queued_command" and attachment.prompt:
                return self._note(record, attachment.prompt, line)
            return self._opaque(record.uuid, f"attachment:{attachment.type}", line)
        return self._opaque(record.uuid, record.subtype or record.type, line)

    def _stamps(self, key: str | None) -> dict[str, Any]:
        return {"id": self._chain.draw(key), "timestamp": self._time}

    def _answer(self, step: _Step, message: _Message) -> MessageEntry:
        blocks = list(self._blocks(message.content))
        last = message
        for piece in step.more:
            if piece.message is not None:
                last = piece.message
                blocks += self._blocks(last.content)
        failed = step.record.is_api_error_message
        logged = LoggedMessage(
            role="assistant",
            content=tuple(blocks),
            provider=PROVIDER,
            model=message.model,
            stop_reason="error" if failed else _STOPS.get(last.stop_reason or "", last.stop_reason),
            usage=last.usage.entry() if last.usage and message.model != SYNTHETIC else None,
        )
        return MessageEntry(**self._stamps(step.record.uuid), message=logged)

    def _said(self, step: _Step, message: _Message) -> MessageEntry:
        stored = self._stored(step.record)
        content = tuple(self._blocks(message.content, stored))
        entry = MessageEntry(
            **self._stamps(step.record.uuid),
            provider=PROVIDER if step.asked else None,
            model=step.asked,
            message=LoggedMessage(role="user", content=content),
        )
        for block in content:
            if isinstance(block, ToolResult):
                self._results[block.tool_use_id] = self._chain.count
        return entry

    def _blocks(
        self, content: str | list[msgspec.Raw] | None, stored: BlobRef | None = None
    ) -> Iterator[ContentBlock]:
        if isinstance(content, str):
            yield Text(text=content)
            return
        for raw, block in _BLOCKS(content or ()):
            known = None if block is None else self._block(block, stored)
            kind = f"{NAME}:{block.type if block else 'unknown'}"
            yield known or Opaque(kind=kind, raw=bytes(raw).decode())

    def _block(self, block: _Block, stored: BlobRef | None) -> ContentBlock | None:
        match block.type:
            case "text":
                return Text(text=block.text)
            case "thinking":
                return Thinking(thinking=block.thinking, signature=block.signature or None)
            case "redacted_thinking":
                return RedactedThinking(data=block.data)
            case "tool_use":
                return ToolUse(id=block.id, name=block.name, input=json_text(block.input))
            case "tool_result":
                return self._result(block, stored)
            case "image":
                return self._image(block.source)
        return None

    def _image(self, source: _ImageSource | None) -> Image | None:
        return from_base64(source.data, source.media_type, self._keep) if source else None

    def _result(self, block: _Block, stored: BlobRef | None) -> ToolResult:
        texts: list[str] = []
        images: list[Image] = []
        if isinstance(block.content, str):
            texts.append(block.content)
        for _, part in _PARTS(block.content if isinstance(block.content, list) else ()):
            image = self._image(part.source) if part and part.type == "image" else None
            if part is not None and part.type == "text":
                texts.append(part.text)
            elif image is not None:
                images.append(image)
            else:
                self._report.left_out["parts of results that are no text and no image"] += 1
        return ToolResult(
            tool_use_id=block.tool_use_id,
            content="\n".join(texts),
            images=tuple(images),
            is_error=bool(block.is_error),
            output=stored,
        )

    def _stored(self, record: _Record) -> BlobRef | None:
        """The whole output of a tool, where it was too long for the record."""
        raw = record.tool_use_result
        if b"persistedOutputPath" not in bytes(raw):
            return None
        try:
            path = msgspec.json.decode(raw, type=_Stored).persisted_output_path
            return self._keep((self._beside / "tool-results" / Path(path or "").name).read_bytes())
        except (OSError, ValueError):
            self._report.left_out["whole outputs whose files are missing"] += 1
            return None

    def _condensation(self, record: _Record, message: _Message) -> CondensationEntry:
        blocks = self._blocks(message.content)
        text = "\n".join(block.text for block in blocks if isinstance(block, Text))
        boundary, self._boundary = self._boundary, None
        facts = boundary.compact_metadata if boundary else None
        # Where nothing is left to stand for, the summary takes the place of the import itself.
        replaced = self._summed_up(boundary, facts) or Replaced(0, 0, ())
        stamps = self._stamps(record.uuid)
        self._summaries.told(replaced)
        return CondensationEntry(
            **stamps,
            replaced=(replaced.lo, replaced.hi),
            absorbs=replaced.absorbs,
            summary=Summary(session_intent=text),
            tokens_before=facts.pre_tokens if facts else 0,
            tokens_after=facts.post_tokens if facts else 0,
        )

    def _summed_up(self, boundary: _Record | None, facts: _Compaction | None) -> Replaced | None:
        """What a summary stands for: all before it but for the segment that is kept."""
        hi = self._chain.count
        kept = facts.preserved_segment if facts else None
        if boundary is not None and kept is not None:
            head, tail = map(self._on_path, (kept.head_uuid, kept.tail_uuid))
            if kept.anchor_uuid == boundary.uuid and tail is not None and tail < hi:
                left = self._summaries.up_to(hi)
                return Replaced(tail + 1, hi, ()) if left and left.lo <= tail else left
            hi = hi if head is None else head - 1
        return self._summaries.up_to(hi)

    def _on_path(self, name: str) -> int | None:
        """The number of the entry of a record; None if there is none on the path."""
        number = self._chain.number_of(name)
        return number if number is not None and self._chain.on_path(number) else None

    def _cleared(self, record: _Record, facts: _Compaction) -> CompactionEntry:
        names = facts.compacted_tool_ids
        cleared = tuple(self._results[name] for name in names if name in self._results)
        return CompactionEntry(
            **self._stamps(record.uuid), tier="soft", cleared_count=len(names), cleared=cleared
        )

    def _note(self, record: _Record, prompt: str | list[msgspec.Raw], line: bytes) -> NoteEntry:
        blocks = list(self._blocks(prompt))
        return NoteEntry(
            **self._stamps(record.uuid),
            kind=f"{NAME}:queued_command",
            text="\n".join(block.text for block in blocks if isinstance(block, Text)),
            images=tuple(block for block in blocks if isinstance(block, Image)),
            record=kept(line),
        )

    def _titled(self, record: _Record) -> Iterator[Entry]:
        if record.type == "custom-title":
            yield from self._name(record.custom_title, own=True)
        elif record.type == "ai-title":
            yield from self._name(record.ai_title, own=False)
        elif self._chain.id_of(record.leaf_uuid) is not None:
            yield from self._name(record.summary, own=False)
        else:
            self._titles[record.leaf_uuid] = record.summary

    def _name(self, title: str, *, own: bool) -> Iterator[Entry]:
        """The title, unless the session has it or the person gave it another."""
        if title and title != self._title and (own or not self._named):
            self._title, self._named = title, self._named or own
            yield TitleEntry(**self._stamps(None), title=title)

    def _opaque(self, key: str | None, kind: str, line: bytes) -> UnknownEntry:
        raw = {"record": kept(line)}
        return UnknownEntry(**self._stamps(key), kind=f"{NAME}:{kind}", raw=raw)


_STOPS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "toolUse",
    "max_tokens": "length",
}


def _is_prompt(record: _Record) -> bool:
    """Whether a record says more than the results of tools."""
    if record.type != "user" or record.message is None:
        return False
    content = record.message.content
    return not isinstance(content, list) or any(
        b'"tool_result"' not in bytes(raw) for raw in content
    )


def _whole(steps: Iterator[_Step]) -> Iterator[_Step]:
    """The records with those of one answer together; what stood between them comes behind it."""
    answer: _Step | None = None
    pieces: set[str | None] = set()
    behind: list[_Step] = []
    for step in steps:
        record = step.record
        if answer is not None:
            if record.answer_id is not None and record.answer_id == answer.record.answer_id:
                waits = record.uuid in pieces  # it is there twice
                if not waits:
                    pieces.add(record.uuid)
                    answer.more.append(record)
                    continue
            else:
                waits = record.type != "assistant" and not step.begins
            if waits and len(behind) < _MOST_HELD:
                behind.append(step)
                continue
            yield answer
            yield from behind
            answer, behind = None, []
        if record.answer_id is not None:
            answer, pieces = step, {record.uuid}
        else:
            yield step
    if answer is not None:
        yield answer
    yield from behind


def _with_models(steps: Iterator[_Step]) -> Iterator[_Step]:
    """The records; prompts say which model was asked, as the answer behind them does."""
    held: list[_Step] = []
    for step in steps:
        if held:
            held.append(step)
            asked = step.record.asked
            if asked is None and len(held) < _MOST_HELD:
                continue
            for one in held:
                if asked is not None and one.is_prompt and not one.record.is_sidechain:
                    one.asked = asked
            yield from held
            held = []
        elif step.is_prompt and not step.record.is_sidechain:
            held = [step]
        else:
            yield step
    yield from held


FORMAT: Final = Format(
    name=NAME,
    title="Claude Code",
    recognise=_recognise,
    read=_read,
    of_subagent=_of_subagent,
    places=(
        Place(variable="CLAUDE_CONFIG_DIR", default=".claude", below="projects"),
        Place(variable="", default=".config/claude", below="projects"),
    ),
)
