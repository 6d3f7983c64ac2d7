"""Kimi CLI: a folder `~/.kimi/sessions/<MD5 of the directory>/<session id>/`.

wire.jsonl     what happened, for ever: {timestamp, message: {type, payload}} a line, the first one
               {type: metadata, protocol_version}. TurnBegin has what the person said (a slash
               command too), SteerInput what was said in between; StepBegin begins a request, whose
               answer comes as ContentPart, ToolCall and, piecewise, ToolCallPart; StatusUpdate has
               its tokens; ToolResult a result as the tool gave it. StepRetry: the request failed,
               and what had come of its answer comes again. CompactionBegin and -End stand around a
               compaction, without what it made. Others are for the screen.
context.jsonl  what the model is sent now: messages as the Chat Completions API has them, and
               between them _system_prompt, _checkpoint and _usage.
context_N      the same before the N-th time that it was begun anew. After a compaction it begins
               with a message of the user's that has the summary, and some messages stay behind it.

So the wire tells the story; a result is what the context says that the model was shown, and the
summary of a compaction is the beginning of the next context. Early sessions have a context alone.
The directory's name is in `kimi.json`, by its MD5, and the title in `state.json`. There is no name
of the model. Subagents have folders of their own, `subagents/<id>/`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from awl.conversation import ContentBlock, Text, ToolResult, ToolUse
from awl.entries import (
    Entry,
    LoggedMessage,
    MessageEntry,
    UnknownEntry,
    Usage,
)
from awl.formats import openai
from awl.formats.chain import Chain, Summaries
from awl.formats.format import Facts, Format, Head, Imported, Keep, Place, Report
from awl.formats.openai import ChatMessage
from awl.formats.records import LONGEST, Lines, Parts, Records, kept, size_of, time_of

NAME: Final = "kimi-cli"

_MOST_HELD: Final = 1000
_MOST_BYTES: Final = 16 << 20
"""Of results that are held."""
_ROTATED: Final = re.compile(r"context_(\d+)\.jsonl")
_LATEST: Final = 1e14
"""Milliseconds since 1970 that are a time for certain."""
_is_clearing: Final = re.compile(r"/(clear|reset)\b").match
_CLEARED: Final = "The context was cleared here: what was said before is no longer part of it."
_COMPACTED: Final = "<system>Previous context has been compacted."
_SCREEN: Final = "events for the screen"
_SUBAGENTS: Final = "events of subagents"
_INSIDE: Final = "subagents"
_INNER: Final = frozenset({"_system_prompt", "_checkpoint", "_usage"})


def _recognise(head: Head) -> bool:
    return any(_is_wire(found) or str(found.get("role")) in _INNER for found in head.objects)


def _is_wire(found: dict[str, Any]) -> bool:
    message = found.get("message")
    if found.get("type") == "metadata":
        # With a time it begins a log of Kimi Code, which is another program.
        return isinstance(found.get("protocol_version"), str) and "created_at" not in found
    return (
        isinstance(message, dict)
        and isinstance(message.get("type"), str)
        and isinstance(message.get("payload"), dict)
        and isinstance(found.get("timestamp"), int | float)
    )


def _belongs(head: Head) -> bool:
    """A context and the state belong to the wire beside them, what subagents did to the session
    that they worked in, and `kimi.json` to all."""
    path = head.path
    if path.parent.parent.name == _INSIDE or path.name == "kimi.json":
        return True
    return path.name.startswith(("context", "state")) and (path.parent / "wire.jsonl").is_file()


def _read(path: Path, keep: Keep) -> Imported:
    beside = path.with_name("wire.jsonl")
    if path.name.startswith("context") and beside.is_file():
        path = beside
    report = Report()
    lines = Lines(path, report)
    is_wire = not any(
        record is not None and record.role
        for _, record in _first(Records(Lines(path, Report()), ChatMessage))
    )
    named = path.name.startswith(("wire", "context"))
    facts = Facts(
        source=NAME,
        source_id=path.parent.name if named else path.stem,
        source_path=path,
        cwd=_directory(path.parent.parent if named else path.parent),
        title=_title(path.parent) if named else "",
        provider="kimi",
    )
    inside = path.parent / _INSIDE
    if named and inside.is_dir():
        count = sum(1 for _ in inside.glob("*/context.jsonl"))
        report.left_out[f"conversations of subagents, in {inside}"] += count
    if is_wire:
        facts = msgspec.structs.replace(facts, created=_begun(path))
        reader = _Reader(lines, report, Chain(facts.source_id), keep)
        return Imported(facts, reader.entries(), report, size_of(path), lambda: lines.end)
    chat = openai.Reader(NAME, report, Chain(facts.source_id), keep)
    entries = _of_context(lines, chat, report)
    return Imported(facts, entries, report, size_of(path), lambda: lines.end)


def _first(records: Records[ChatMessage]) -> Iterator[tuple[bytes, ChatMessage | None]]:
    for _, item in zip(range(3), records, strict=False):
        yield item


def _begun(path: Path) -> str:
    for _, record in Records(Lines(path, Report()), _Record):
        if record is not None and record.timestamp:
            return time_of(record.timestamp)
    return ""


def _directory(folder: Path) -> str:
    """The directory that a folder of sessions is for."""
    try:
        found = msgspec.json.decode((folder.parent.parent / "kimi.json").read_bytes(), type=_Home)
    except (OSError, msgspec.MsgspecError):
        return ""
    for one in found.work_dirs:
        if hashlib.md5(one.path.encode(), usedforsecurity=False).hexdigest() == folder.name:
            return one.path
    for one in found.work_dirs:
        if one.last_session_id and (folder / one.last_session_id).is_dir():
            return one.path
    return ""


def _title(folder: Path) -> str:
    """The title that the person gave a session."""
    try:
        found = msgspec.json.decode((folder / "state.json").read_bytes(), type=_State)
    except (OSError, msgspec.MsgspecError):
        return ""
    return found.custom_title or ""


def _of_context(lines: Lines, chat: openai.Reader, report: Report) -> Iterator[Entry]:
    for line, message in Records(lines, ChatMessage):
        if message is not None and message.role in _INNER:
            report.left_out["records of the program's own book-keeping"] += 1
        else:
            yield chat.entry(message, line)


# -- records ---------------------------------------------------------------------------------------


class _WorkDir(msgspec.Struct, frozen=True, gc=False):
    path: str = ""
    last_session_id: str | None = None


class _Home(msgspec.Struct, frozen=True, gc=False):
    work_dirs: list[_WorkDir] = []


class _State(msgspec.Struct, frozen=True, gc=False):
    custom_title: str | None = None


class _Tokens(msgspec.Struct, frozen=True, gc=False):
    input_other: int = 0
    output: int = 0
    input_cache_read: int = 0
    input_cache_creation: int = 0

    def entry(self) -> Usage:
        return Usage(
            input=self.input_other,
            output=self.output,
            cache_read=self.input_cache_read or None,
            cache_write=self.input_cache_creation or None,
        )


class _Returned(msgspec.Struct, frozen=True, gc=False):
    is_error: bool = False
    output: str | list[msgspec.Raw] | None = None
    message: str = ""


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    arguments: str | None = None


class _Payload(openai.Part, frozen=True, gc=False):
    """All fields that a payload may have; each type uses some. Of a ContentPart, it is the part."""

    user_input: str | list[msgspec.Raw] | None = None
    id: str = ""
    function: _Function | None = None
    extras: dict[str, Any] | None = None
    arguments_part: str | None = None
    tool_call_id: str = ""
    return_value: _Returned | None = None
    result: _Returned | None = None
    token_usage: _Tokens | None = None


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    payload: _Payload | None = None


class _RawEvent(msgspec.Struct, frozen=True, gc=False):
    payload: msgspec.Raw = msgspec.Raw()


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    timestamp: float = 0


class _Record(_Line, frozen=True, gc=False):
    message: _Event | None = None


class _RawRecord(_Line, frozen=True, gc=False):
    """A line whose payload is to be kept as it stands there."""

    message: _RawEvent = _RawEvent()


_Content = str | list[msgspec.Raw] | None


class _Shown(msgspec.Struct, frozen=True, gc=False):
    """Of a message of a context, what the wire does not tell."""

    role: str = ""
    content: _Content = None
    tool_call_id: str | None = None


_RAW_RECORDS: Final = Parts(_RawRecord)


# -- contexts --------------------------------------------------------------------------------------


class _Contexts:
    """What the contexts beside a wire say: the results as the model was shown them, and for each
    compaction its summary and how many messages stayed behind it."""

    def __init__(self, folder: Path, keep: Keep) -> None:
        self.compactions: list[tuple[str, int]] = []
        self.system = b""
        self._keep = keep
        self._aside = Report()  # the wire's own tells what is left out
        self._open: BinaryIO = BytesIO()  # the context that was read from last
        self._open_path: Path | None = None
        # What each result says; behind the first ones, where it stands: they are as much as the
        # session itself.
        self._results: dict[str, _Content | tuple[Path, int]] = {}
        self._held = 0
        before: list[int] = []
        for path in _contexts_in(folder):
            first, digests = self._walk(path)
            # One that begins as the context before it was taken back to an earlier point of it.
            if digests[:2] != before[:2] and first.startswith(_COMPACTED):
                summary = first.partition("</system>")[2].strip("\n")
                self.compactions.append((summary, _stayed(before, digests[1:])))
            before = digests

    def _walk(self, path: Path) -> tuple[str, list[int]]:
        """The text of a context's first message, and a digest of each."""
        first = ""
        digests: list[int] = []
        for block in Records(Lines(path, Report()), _Shown).blocks():
            for start, line, message in zip(*block, strict=True):
                if message is None:
                    continue
                if message.role in _INNER:
                    if message.role == "_system_prompt":
                        self.system = self.system or line
                    continue
                if message.role == "tool" and message.tool_call_id:
                    self._held += len(line)
                    held = message.content if self._held < _MOST_BYTES else (path, start)
                    self._results.setdefault(message.tool_call_id, held)
                first = first if digests else self._text(message.content)
                digests.append(hash(line.strip()))
        return first, digests

    def shown(self, name: str) -> str | None:
        """What the model was shown of a call's result; None if no context has it."""
        if name not in self._results:
            return None
        found = self._results[name]
        return self._text(self._content_at(*found) if isinstance(found, tuple) else found)

    def _content_at(self, path: Path, start: int) -> _Content:
        if path != self._open_path:
            self.close()
            self._open, self._open_path = path.open("rb"), path
        self._open.seek(start)
        message = openai.MESSAGES.one(self._open.readline(LONGEST))
        return None if message is None else message.content

    def close(self) -> None:
        """Close the context that a result was read from."""
        self._open.close()

    def _text(self, content: _Content) -> str:
        return openai.result(content, NAME, self._keep, self._aside)[0]


def _stayed(before: list[int], now: list[int]) -> int:
    """How many of the last messages of a context are the first ones of the next."""
    last = before[-1:]
    known = (n for n in range(len(now), 0, -1) if now[n - 1 : n] == last)
    return next((n for n in known if before[-n:] == now[:n]), 0)


def _contexts_in(folder: Path) -> list[Path]:
    """The contexts of a session, in the order of time."""
    found = []
    for path in folder.glob("context_*.jsonl"):
        match = _ROTATED.fullmatch(path.name)
        if match is not None:
            found.append((int(match[1]), path))
    last = folder / "context.jsonl"
    return [path for _, path in sorted(found)] + ([last] if last.is_file() else [])


# -- reading ---------------------------------------------------------------------------------------


class _Step(msgspec.Struct):
    """A request's answer in the making, and the results that came meanwhile."""

    timestamp: str
    content: list[ContentBlock] = []
    usage: Usage | None = None
    results: list[tuple[str, ToolResult]] = []


class _Reader:
    """The entries of a wire."""

    def __init__(self, lines: Lines, report: Report, chain: Chain, keep: Keep) -> None:
        self._lines = lines
        self._report = report
        self._chain = chain
        self._keep = keep
        self._last_time = ""
        self._next_time = 0.0  # as it stands there; few of them are asked for
        self._step: _Step | None = None
        self._made: list[Entry] = []  # of the lines that were read last
        self._contexts: _Contexts
        self._sent: list[int] = []  # the numbers of what was in the context
        self._compactions = 0
        self._command = 0  # the number of a command that made no request so far
        self._clearing = False  # the turn is the command that clears the context
        self._summaries = Summaries(chain)

    def entries(self) -> Iterator[Entry]:
        self._contexts = _Contexts(self._lines.path.parent, self._keep)
        with closing(self._contexts):
            if self._contexts.system:
                self._add_opaque("system_prompt", self._contexts.system)
            for block in Records(self._lines, _Record).blocks():
                for line, record in zip(block.lines, block.records, strict=True):
                    if record is None or (record.message is None and record.type != "metadata"):
                        self._settle()
                        self._add_opaque("unknown", line)
                    elif record.message is not None:
                        if 0 < record.timestamp < _LATEST:
                            self._next_time = record.timestamp
                        else:  # it may be no time
                            self._last_time = time_of(record.timestamp) or self._time
                            self._next_time = 0.0
                        self._event(record.message, line)
                yield from self._made
                self._made.clear()
            self._settle()
            yield from self._made

    @property
    def _time(self) -> str:
        if self._next_time:
            self._last_time, self._next_time = time_of(self._next_time), 0.0
        return self._last_time

    def _event(self, event: _Event, line: bytes) -> None:
        payload = event.payload or _Payload()
        match event.type:
            case "TurnBegin" | "SteerInput":
                self._settle()
                self._add_prompt(payload)
            case "StepBegin":
                self._settle()
                if self._command:
                    self._sent.append(self._command)  # it was one for the model
                    self._command = 0
            case "TurnEnd":
                self._settle()
                if self._clearing:
                    self._add_clearing()
            case "StepInterrupted":
                self._settle(interrupted=True)
            case "StepRetry":
                self._take_back()
            case "ContentPart":
                block = openai.block(payload, self._keep) or self._odd_part(line)
                self._open().content.append(block)
            case "ToolCall":
                function = payload.function or _Function()
                given = function.arguments or ""
                use = ToolUse(
                    id=payload.id, name=function.name, input=given, provider_data=payload.extras
                )
                self._open().content.append(use)
            case "ToolCallPart":
                self._more(payload.arguments_part or "")
            case "StatusUpdate":
                if self._step is not None and payload.token_usage is not None:
                    self._step.usage = payload.token_usage.entry()
            case "ToolResult":
                self._result(payload)
            case "CompactionEnd":
                self._settle()
                self._add_compaction(line)
            case "SubagentEvent":
                self._report.left_out[_SUBAGENTS] += 1
            case kind if kind in _FOR_SCREEN:
                self._report.left_out[_SCREEN] += 1
            case kind:
                self._settle()
                self._add_opaque(kind or "unknown", line)

    def _odd_part(self, line: bytes) -> ContentBlock:
        """The part on a line that is of an unknown kind."""
        ((_, record),) = _RAW_RECORDS((msgspec.Raw(line),))
        raw = record.message.payload if record else msgspec.Raw()
        (block,) = openai.parts([raw], NAME, self._keep)
        return block

    def _open(self) -> _Step:
        if self._step is None:
            self._step = _Step(self._time)
        return self._step

    def _more(self, arguments: str) -> None:
        """More of the arguments of the last call."""
        step = self._open()
        last = step.content[-1] if step.content else None
        if isinstance(last, ToolUse):
            step.content[-1] = msgspec.structs.replace(last, input=last.input + arguments)

    def _settle(self, *, interrupted: bool = False) -> None:
        """Make the answer that was being made, and its results."""
        step, self._step = self._step, None
        if step is None:
            return
        if step.content:
            called = ToolUse in map(type, step.content)
            stop = "toolUse" if called else "aborted" if interrupted else "stop"
            self._add_message(
                LoggedMessage(
                    role="assistant",
                    content=tuple(step.content),
                    provider="kimi",
                    stop_reason=stop,
                    usage=step.usage,
                ),
                step.timestamp,
            )
            if self._command:
                self._sent.pop()  # the program said it, not the model
        for timestamp, result in step.results:
            self._add_message(LoggedMessage(role="user", content=(result,)), timestamp)

    def _take_back(self) -> None:
        """Leave the answer that failed on a branch: the model was never shown what it had said."""
        before, sent = self._chain.count, len(self._sent)
        self._settle(interrupted=True)
        del self._sent[sent:]
        rewind = self._chain.back_to(before, self._time)
        if rewind is not None:
            self._made.append(rewind)
        self._report.left_out[_SCREEN] += 1

    def _add_message(self, message: LoggedMessage, timestamp: str) -> None:
        entry = MessageEntry(id=self._chain.draw(), timestamp=timestamp, message=message)
        self._made.append(entry)
        self._sent.append(self._chain.count)

    def _add_prompt(self, payload: _Payload) -> None:
        content = openai.parts(payload.user_input, NAME, self._keep)
        self._add_message(LoggedMessage(role="user", content=content), self._time)
        first = content[0] if content else None
        self._clearing, self._command = False, 0
        if isinstance(first, Text) and first.text.startswith("/"):
            self._command = self._sent.pop()  # it is not in the context
            self._clearing = _is_clearing(first.text) is not None

    def _result(self, payload: _Payload) -> None:
        returned = payload.return_value or payload.result or _Returned()
        given, images = openai.result(returned.output, NAME, self._keep, self._report)
        shown = self._contexts.shown(payload.tool_call_id)
        if shown is None:
            words = [f"<system>{returned.message}</system>"] if returned.message else []
            shown = "\n".join((*words, *filter(None, (given,))))
        result = ToolResult(
            tool_use_id=payload.tool_call_id,
            content=shown,
            images=images,
            is_error=returned.is_error,
        )
        if self._step is not None and len(self._step.results) < _MOST_HELD:
            self._step.results.append((self._time, result))
        else:
            self._add_message(LoggedMessage(role="user", content=(result,)), self._time)

    def _add_compaction(self, line: bytes) -> None:
        index, self._compactions = self._compactions, self._compactions + 1
        known = self._contexts.compactions
        if index >= len(known):
            self._add_opaque("CompactionEnd", line)
            return
        summary, stayed = known[index]
        sent = self._sent[: len(self._sent) - stayed]
        self._sent = self._sent[len(sent) :]
        if not self._add_summary(summary, sent[-1] if sent else 0):
            self._add_opaque("CompactionEnd", line)

    def _add_clearing(self) -> None:
        """Nothing from before is sent; there is no summary that would stand for it."""
        self._clearing = False
        self._sent.clear()
        self._add_summary(_CLEARED, self._chain.count)

    def _add_summary(self, summary: str, hi: int) -> bool:
        """Make a summary of all up to an entry; False if nothing is left for it to stand for."""
        entry = self._summaries.condensation(hi, summary, self._time)
        if entry is not None:
            self._made.append(entry)
        return entry is not None

    def _add_opaque(self, kind: str, line: bytes) -> None:
        entry = UnknownEntry(
            id=self._chain.draw(),
            timestamp=self._time,
            kind=f"{NAME}:{kind}",
            raw={"record": kept(line)},
        )
        self._made.append(entry)


_FOR_SCREEN: Final = frozenset(
    {
        "ApprovalRequest",
        "ApprovalRequestResolved",
        "ApprovalResponse",
        "CompactionBegin",
        "HookResolved",
        "HookTriggered",
        "MCPLoadingBegin",
        "MCPLoadingEnd",
        "Notification",
        "QuestionRequest",
        "ToolCallRequest",
    }
)


FORMAT: Final = Format(
    name=NAME,
    title="Kimi CLI",
    recognise=_recognise,
    read=_read,
    belongs=_belongs,
    places=(Place(variable="KIMI_SHARE_DIR", default=".kimi", below="sessions"),),
)
