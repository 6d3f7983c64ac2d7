"""opencode: what `opencode export ID` prints, one JSON document: {info, messages}.

`info` has the session's id, title, directory and times. A message is {info, parts}; its info has
role, time, and of an answer modelID, providerID, tokens, finish, error and whether it is a
``summary``. Parts are told apart by ``type``:

text        with ``synthetic``: put in by the program; with ``ignored``: not sent.
reasoning   with the provider's `metadata`.
tool        callID, tool, and `state`: status (pending, running, completed, error), input, output or
            error, time, attachments. `time.compacted`: the output is no longer sent.
file        mime and url.
step-start  begins one request's answer, of which a message may have several; step-finish has its
            tokens.
compaction  in a user's message: the answer behind it, a ``summary``, is sent for all that came
            before, or for what came before the message `tail_start_id`.
others      snapshots and the like, for the program.

The session's `revert` names the message (and the part) from which on all was undone.

The sessions themselves lie in a database.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from awl.conversation import (
    ContentBlock,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import (
    CompactionEntry,
    Entry,
    LoggedMessage,
    MessageEntry,
    TitleEntry,
    UnknownEntry,
    Usage,
)
from awl.formats.chain import Chain, Summaries
from awl.formats.documents import Document
from awl.formats.format import Facts, Format, Head, Imported, Keep, Report
from awl.formats.payloads import from_data_url
from awl.formats.records import Parts, json_text, kept, lenient, salvage, size_of, time_of

NAME: Final = "opencode"

_BOOKKEEPING: Final = "records of the program's own book-keeping"
_LEFT_OUT: Final = frozenset({"patch", "snapshot", "step-finish", "step-start"})


def _recognise(head: Head) -> bool:
    """The head of the document. Its messages may begin behind it: an `info` can hold diffs."""
    return all(word in head.data for word in (b'"info"', b'"directory"', b'"projectID"'))


def _read(path: Path, keep: Keep) -> Imported:
    report = Report()
    document = Document(path, "messages")
    next(document.elements(Report()), None)
    info = _info(document.members.get("info"))
    facts = Facts(
        source=NAME,
        source_id=info.id or path.stem,
        source_path=path,
        cwd=info.directory,
        provider=info.model.provider_id if info.model else "",
        model=(info.model.model_id or info.model.id) if info.model else "",
        created=time_of(info.time.created),
    )
    if not facts.model:
        facts = _with_first_model(facts, document)
    reader = _Reader(report, Chain(facts.source_id), keep, facts, info)
    entries = reader.entries(document)
    return Imported(facts, entries, report, size_of(path), lambda: document.at)


def _with_first_model(facts: Facts, document: Document) -> Facts:
    """The facts with the model of the first message that names one."""
    for raw in document.elements(Report()):
        message = _decoded(raw)
        if message is not None:
            provider, model = message.info.asked
            if model:
                return msgspec.structs.replace(facts, provider=provider, model=model)
    return facts


# -- records ---------------------------------------------------------------------------------------


class _Model(msgspec.Struct, frozen=True, gc=False):
    id: str = ""
    model_id: str = msgspec.field(default="", name="modelID")
    provider_id: str = msgspec.field(default="", name="providerID")


_NO_MODEL: Final = _Model()


class _Time(msgspec.Struct, frozen=True, gc=False):
    created: float = 0
    completed: float | None = None
    start: float | None = None
    end: float | None = None
    compacted: float | None = None


class _Revert(msgspec.Struct, frozen=True, gc=False):
    message_id: str = msgspec.field(default="", name="messageID")
    part_id: str | None = msgspec.field(default=None, name="partID")


class _Session(msgspec.Struct, frozen=True, gc=False):
    id: str = ""
    title: str = ""
    directory: str = ""
    model: _Model | None = None
    time: _Time = _Time()
    revert: _Revert | None = None


class _Cache(msgspec.Struct, frozen=True, gc=False):
    read: int = 0
    write: int = 0


class _Tokens(msgspec.Struct, frozen=True, gc=False):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: _Cache = _Cache()

    def entry(self) -> Usage:
        return Usage(
            input=self.input,
            output=self.output + self.reasoning,
            cache_read=self.cache.read or None,
            cache_write=self.cache.write or None,
        )


class _Error(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class _Info(msgspec.Struct, frozen=True, gc=False):
    role: str = ""
    id: str = ""
    time: _Time = _Time()
    model: _Model | None = None
    model_id: str = msgspec.field(default="", name="modelID")
    provider_id: str = msgspec.field(default="", name="providerID")
    tokens: _Tokens | None = None
    finish: str | None = None
    error: msgspec.Raw = msgspec.Raw()
    summary: msgspec.Raw = msgspec.Raw()

    @property
    def asked(self) -> tuple[str, str]:
        """The provider and the model that it was submitted to, or that answered."""
        model = self.model or _NO_MODEL
        return (self.provider_id or model.provider_id, self.model_id or model.model_id or model.id)


class _Attachment(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    url: str = ""


class _State(msgspec.Struct, frozen=True, gc=False):
    status: str = ""
    input: msgspec.Raw = msgspec.Raw()
    raw: str = ""
    output: str = ""
    error: str = ""
    time: _Time = _Time()
    attachments: list[msgspec.Raw] | None = None


class _Part(msgspec.Struct, frozen=True, gc=False):
    """All fields that a part may have; each type uses some."""

    type: str = ""
    text: str = ""
    ignored: bool | None = None
    metadata: msgspec.Raw = msgspec.Raw()
    call_id: str = msgspec.field(default="", name="callID")
    tool: str = ""
    state: _State | None = None
    url: str = ""
    tokens: _Tokens | None = None
    tail_start_id: str | None = None


_NO_PART: Final = _Part(type="unknown")
"""Stands for what is no part."""


class _Message(msgspec.Struct, frozen=True, gc=False):
    info: _Info = _Info()
    parts: list[_Part] = []


class _LooseMessage(msgspec.Struct, frozen=True, gc=False):
    """A message whose parts are read one by one, so that one which is odd costs no other."""

    info: _Info = _Info()
    parts: list[msgspec.Raw] = []


class _Signed(msgspec.Struct, frozen=True, gc=False):
    signature: str | None = None
    redacted_data: str | None = msgspec.field(default=None, name="redactedData")


class _Metadata(msgspec.Struct, frozen=True, gc=False):
    anthropic: _Signed = _Signed()


_PARTS: Final = Parts(_Part)
_ATTACHMENTS: Final = Parts(_Attachment)
_message: Final = msgspec.json.Decoder(_Message).decode
_LOOSE_MESSAGES: Final = Parts(_LooseMessage)


def _all_decoded(raws: list[bytes]) -> Sequence[_Message | None]:
    try:
        return list(map(_message, raws))
    except Exception:
        return list(map(_decoded, raws))


def _decoded(raw: bytes) -> _Message | None:
    try:
        return _message(raw)
    except Exception:
        loose = _LOOSE_MESSAGES.one(raw)
    if loose is None:
        return None
    return _Message(loose.info, [part or _NO_PART for _, part in _PARTS(loose.parts)])


def _info(raw: bytes | None) -> _Session:
    found = lenient(raw or b"{}")
    info = salvage(found, _Session) if isinstance(found, dict) else None
    return info or _Session()


# -- reading ---------------------------------------------------------------------------------------


class _Step:
    """One request's answer, in the making."""

    def __init__(self) -> None:
        self.content: list[ContentBlock] = []
        self.called = False
        self.results: list[tuple[ToolResult, bool]] = []  # and whether they are sent no more
        self.documents: list[msgspec.Raw] = []  # of the results, which hold no more than images
        self.tokens: _Tokens | None = None


class _Reader:
    """The entries of an export."""

    def __init__(
        self, report: Report, chain: Chain, keep: Keep, facts: Facts, info: _Session
    ) -> None:
        self._report = report
        self._chain = chain
        self._keep = keep
        self._title = info.title
        self._undone_from = info.revert or _Revert()
        self._time = facts.created
        self._summaries = Summaries(chain)
        self._compacting = False
        self._tail: str | None = None
        # How many entries there were before each message, and before the one that compacts.
        self._before: dict[str, int] = {}
        self._before_compacting = 0
        # Of the message that is read: its bytes, and those of its parts once one was asked for.
        self._raw = b""
        self._raws: Sequence[msgspec.Raw] = ()

    def entries(self, document: Document) -> Iterator[Entry]:
        blocks = map(self._messages, document.blocks(self._report))
        return chain(self._titled(), chain.from_iterable(blocks), self._undone())

    def _titled(self) -> Iterator[Entry]:
        if self._title:
            yield TitleEntry(id=self._chain.draw(), timestamp=self._time, title=self._title)

    def _undone(self) -> Iterator[Entry]:
        undone = self._before.get(self._undone_from.message_id)
        if undone is not None and self._undone_from.part_id is None:
            rewind = self._chain.closing_at(undone, self._time)
            if rewind is not None:
                yield rewind

    def _messages(self, raws: list[bytes]) -> list[Entry]:
        found: list[Entry] = []
        for raw, message in zip(raws, _all_decoded(raws), strict=True):
            if message is None:
                found.append(self._opaque("unknown", raw))
                continue
            self._raw, self._raws = raw, ()
            info = message.info
            self._time = time_of(info.time.created) or self._time
            if info.id:
                self._before[info.id] = self._chain.count
            if info.role == "user":
                found.append(self._prompt(message))
            elif info.role == "assistant":
                found += self._answer(message)
            else:
                found.append(self._opaque(info.role or "unknown", raw))
        return found

    def _logged(
        self, message: LoggedMessage, provider: str | None = None, model: str | None = None
    ) -> MessageEntry:
        return MessageEntry(
            id=self._chain.draw(),
            timestamp=self._time,
            provider=provider,
            model=model,
            message=message,
        )

    def _prompt(self, message: _Message) -> MessageEntry:
        content = []
        for at, part in enumerate(message.parts):
            if part.type == "compaction":
                self._compacting, self._tail = True, part.tail_start_id
                self._before_compacting = self._chain.count
            block = self._block(at, part)
            if block is not None:
                content.append(block)
        provider, model = message.info.asked
        logged = LoggedMessage(role="user", content=tuple(content))
        return self._logged(logged, provider or None, model or None)

    def _answer(self, message: _Message) -> Sequence[Entry]:
        info = message.info
        steps = self._steps(message.parts)
        failed = _is_there(info.error)
        if failed:
            raw = str(info.error, "utf-8")
            steps[-1].content.append(Opaque(kind=f"{NAME}:error", raw=raw))
        found: list[Entry] = []
        for step in steps:
            found += self._one_answer(info, step, step.tokens if len(steps) > 1 else info.tokens)
        if self._compacting and bytes(info.summary) == b"true":
            self._compacting = False
            said = (block for step in steps for block in step.content)
            text = "\n".join(block.text for block in said if isinstance(block, Text))
            if text and info.finish and not failed:
                found += self._compacted(text)
        return found

    def _compacted(self, summary: str) -> Iterator[Entry]:
        """The summary that was said. If messages before it are sent behind it, they go on, and what
        was said to make it is a branch."""
        hi = self._chain.count
        kept_from = self._before.get(self._tail or "")
        if kept_from is not None and kept_from < self._before_compacting:
            rewind = self._chain.back_to(self._before_compacting, self._time)
            if rewind is not None:
                yield rewind
            hi = kept_from
        condensation = self._summaries.condensation(hi, summary, self._time)
        if condensation is not None:
            yield condensation

    def _one_answer(self, info: _Info, step: _Step, tokens: _Tokens | None) -> Sequence[Entry]:
        provider, model = info.asked
        stop = "toolUse" if step.called else _STOPS.get(info.finish or "", info.finish)
        if _is_there(info.error) and not step.results:
            stop = "aborted" if "Abort" in _error_name(info.error) else "error"
        logged = LoggedMessage(
            role="assistant",
            content=tuple(step.content),
            provider=provider or None,
            model=model or None,
            stop_reason=stop,
            usage=None if tokens is None else tokens.entry(),
        )
        found: list[Entry] = [self._logged(logged)]
        for result, compacted in step.results:
            found.append(self._logged(LoggedMessage(role="user", content=(result,))))
            if compacted:
                number = self._chain.count
                cleared = CompactionEntry(
                    id=self._chain.draw(),
                    timestamp=self._time,
                    tier="soft",
                    cleared_count=1,
                    cleared=(number,),
                )
                found.append(cleared)
        for raw in step.documents:
            found.append(self._opaque("attachment", bytes(raw)))
        return found

    def _steps(self, parts: Sequence[_Part]) -> list[_Step]:
        """The answers in a message: one a request."""
        step = _Step()
        steps = [step]
        for at, part in enumerate(parts):
            kind = part.type
            if kind == "step-start" and step.content:
                step = _Step()
                steps.append(step)
            elif kind == "step-finish" and part.tokens is not None:
                step.tokens = part.tokens
            elif kind == "tool" and part.state is not None:
                step.content.append(_use(part, part.state))
                step.called = True
                result = self._result(part, part.state, step)
                if result is not None:
                    step.results.append((result, part.state.time.compacted is not None))
            else:
                block = self._block(at, part)
                if block is not None:
                    step.content.append(block)
        return steps

    def _result(self, part: _Part, state: _State, step: _Step) -> ToolResult | None:
        """A call's result; None while it has none."""
        if state.status not in ("completed", "error"):
            return None
        images = []
        for raw, attached in _ATTACHMENTS(state.attachments) if state.attachments else ():
            image = from_data_url(attached.url, self._keep) if attached else None
            if image is not None:
                images.append(image)
            else:
                step.documents.append(raw)
        start, end = state.time.start, state.time.end
        failed = state.status == "error"
        return ToolResult(
            tool_use_id=part.call_id,
            content=state.error if failed else state.output,
            images=tuple(images),
            is_error=failed,
            duration_ms=round(end - start) if start is not None and end is not None else None,
        )

    def _block(self, at: int, part: _Part) -> ContentBlock | None:
        """The block of a part; None for what is only for the program."""
        kind = part.type
        if kind == "text" and not part.ignored:
            return Text(text=part.text)
        if kind in _LEFT_OUT:
            self._report.left_out[_BOOKKEEPING] += 1
            return None
        if kind == "reasoning":
            return _thought(part)
        image = from_data_url(part.url, self._keep) if kind == "file" else None
        return image or Opaque(kind=f"{NAME}:{kind}", raw=self._raw_part(at))

    def _raw_part(self, at: int) -> str:
        """A part of the message as it stands there."""
        if not self._raws:
            message = _LOOSE_MESSAGES.one(self._raw)
            assert message is not None  # as it was read
            self._raws = message.parts
        return str(self._raws[at], "utf-8")

    def _opaque(self, kind: str, raw: bytes) -> UnknownEntry:
        record = kept(raw) if isinstance(lenient(raw), dict) else raw.decode(errors="replace")
        return UnknownEntry(
            id=self._chain.draw(),
            timestamp=self._time,
            kind=f"{NAME}:{kind}",
            raw={"record": record},
        )


_STOPS: Final = {"stop": "stop", "tool-calls": "toolUse", "length": "length", "error": "error"}


def _is_there(raw: msgspec.Raw) -> bool:
    return bool(raw) and bytes(raw) != b"null"


def _error_name(raw: msgspec.Raw) -> str:
    found = lenient(bytes(raw))
    error = salvage(found, _Error) if isinstance(found, dict) else None
    return error.name if error else ""


def _use(part: _Part, state: _State) -> ToolUse:
    """A call; one that was still being written has the beginning of its arguments' text."""
    given = state.raw if state.status == "pending" and state.raw else json_text(state.input)
    return ToolUse(id=part.call_id, name=part.tool, input=given, provider_data=_provider_data(part))


def _provider_data(part: _Part) -> dict[str, Any] | None:
    """What a provider wants back with a part, by its name: ids and signatures of its own form."""
    found = lenient(bytes(part.metadata)) if part.metadata else None
    return found if isinstance(found, dict) and found else None


def _thought(part: _Part) -> Thinking | RedactedThinking:
    if not part.metadata:
        return Thinking(thinking=part.text)
    try:
        signed = msgspec.json.decode(part.metadata, type=_Metadata).anthropic
    except msgspec.MsgspecError:
        signed = _Signed()
    if signed.redacted_data:
        return RedactedThinking(data=signed.redacted_data)
    if signed.signature:
        return Thinking(thinking=part.text, signature=signed.signature)
    return Thinking(thinking=part.text, provider_data=_provider_data(part))


FORMAT: Final = Format(
    name=NAME,
    title="opencode",
    recognise=_recognise,
    read=_read,
)
