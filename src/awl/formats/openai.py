"""Messages as OpenAI's Chat Completions API has them: an array in a JSON file, bare or as the
member `messages` of an object (a request's body), or one message a line. Of a file with a body a
line, as models are trained with, each is a conversation of its own: a branch.

system, developer  instructions; the last one counts.
user               content is a text, or parts: text, image_url (kept where it is a data URL).
assistant          content, or a refusal, or the transcript of what was said aloud; and tool_calls
                   {id, function {name, arguments: the text of a JSON value}} or {id, custom {name,
                   input: any text}}. Some servers put the reasoning into reasoning_content or
                   reasoning. An early form is function_call {name, arguments}.
tool               the result of a call by its tool_call_id; an early form is the role function.

The Responses API has an array of items, `input` in a body: messages, and beside them function_call,
function_call_output and reasoning.

There are no times, no models and no ids of messages. Nothing marks a result as an error.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from awl.conversation import (
    ContentBlock,
    Image,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import (
    CondensationEntry,
    Entry,
    ImportEntry,
    LoggedMessage,
    MessageEntry,
    NoteEntry,
    TitleEntry,
    ToolResultEntry,
    UnknownEntry,
)
from awl.formats.chain import Chain
from awl.formats.documents import Document
from awl.formats.format import Facts, Format, Head, Imported, Keep, Report, Source
from awl.formats.payloads import from_data_url, to_data_url
from awl.formats.records import Lines, Parts, Records, head_of, kept, lenient, size_of
from awl.log.blobs import BlobDamaged
from awl.state import import_text

NAME: Final = "openai"

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

_LONGEST_BODY: Final = 1 << 20
"""A file whose first line is longer is one body, not a body a line."""

_messages: Final = re.compile(rb'"(messages|input)"\s*:\s*\[\s*(?=\{)').search
_an_array: Final = re.compile(rb"\[\s*(?=\{)").match
_a_role: Final = re.compile(
    rb'"role"\s*:\s*"(?:system|developer|user|assistant|tool|function)"'
).search


def _recognise(head: Head) -> bool:
    if any(map(_is_message, head.objects)) or any(map(_is_body, head.objects)):
        return True
    start = head.data.lstrip(b"\xef\xbb\xbf \t\r\n")
    opening = _an_array(start) or (_messages(start) if start[:1] == b"{" else None)
    if opening is None:  # what tools there are can be told at any length before the messages
        words = (b'"model"', b'"tools"', b'"function"', b'"parameters"')
        return start[:1] == b"{" and all(word in start for word in words)
    first = start[opening.end() :]
    try:
        return _is_message(_decoder.raw_decode(first.decode(errors="replace"))[0])
    except (ValueError, RecursionError):  # it is longer than what is looked at
        return _a_role(first) is not None


_decoder: Final = json.JSONDecoder()


def _is_message(found: Any) -> bool:
    """Whether an object is a message; those of Google's API have a role too, and no content."""
    return (
        isinstance(found, dict)
        and isinstance(role := found.get("role"), str)
        and role in _ROLES
        and isinstance(found.get("content"), str | list | None)
        and ("content" in found or "tool_calls" in found or "function_call" in found)
    )


def _is_body(found: dict[str, Any]) -> bool:
    messages = found.get("messages")
    return isinstance(messages, list) and bool(messages) and _is_message(messages[0])


def _read(path: Path, keep: Keep) -> Imported:
    report = Report()
    facts = Facts(source=NAME, source_path=path, provider="openai")
    reader = Reader(NAME, report, Chain(""), keep)
    of_lines = _form_of_lines(path)
    if of_lines is not None:
        lines = Lines(path, report)
        return Imported(facts, of_lines(lines, reader), report, size_of(path), lambda: lines.end)
    document = Document(path, _array_in(path))
    next(document.elements(Report()), None)
    model = _member(document.members, "model")
    facts = msgspec.structs.replace(facts, model=model)
    entries = _of_document(document, reader, report)
    return Imported(facts, entries, report, size_of(path), lambda: document.at)


def _form_of_lines(path: Path) -> Callable[[Lines, Reader], Iterator[Entry]] | None:
    """How the lines are to be read; None where they are a document that is written on several."""
    with path.open("rb") as file:
        start = file.read(_LONGEST_BODY).lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[":
        return None
    first, _, more = start.partition(b"\n")
    if b'"messages"' in first:
        found = lenient(first) if more.strip() else None
        return _of_bodies if isinstance(found, dict) and _is_body(found) else None
    for _, record in Records(Lines(path, Report()), ChatMessage):
        return _of_lines if record is not None and record.role in _ROLES else None
    return None


def _array_in(path: Path) -> str | None:
    start = head_of(path).data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[":
        return None
    named = _messages(start)
    return named[1].decode() if named is not None else "messages"


def _member(members: dict[str, bytes], name: str) -> str:
    found = lenient(members.get(name, b'""'))
    return found if isinstance(found, str) else ""


def _of_lines(lines: Lines, reader: Reader) -> Iterator[Entry]:
    for block in Records(lines, ChatMessage).blocks():
        yield from map(reader.entry, block.records, block.lines)


def _of_bodies(lines: Lines, reader: Reader) -> Iterator[Entry]:
    for line, body in Records(lines, _Body):
        yield from reader.conversation(body, line)


def _of_document(document: Document, reader: Reader, report: Report) -> Iterator[Entry]:
    for raws in document.blocks(report):
        yield from map(reader.entry, MESSAGES.all(raws), raws)


# -- messages --------------------------------------------------------------------------------------


class _Function(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    arguments: str | None = None


class _Custom(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    input: str = ""


class ChatCall(msgspec.Struct, frozen=True, gc=False):
    """A call of an assistant message."""

    id: str = ""
    function: _Function = _Function()
    custom: _Custom | None = None


class _Audio(msgspec.Struct, frozen=True, gc=False):
    transcript: str = ""


class ChatMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of the API; each role uses some of the fields."""

    role: str = ""
    content: str | list[msgspec.Raw] | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: _Function | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    audio: _Audio | None = None


class _Body(msgspec.Struct, frozen=True, gc=False):
    """A request, as far as it holds a conversation."""

    messages: list[msgspec.Raw] | None = None


class _Words(msgspec.Struct, frozen=True, gc=False):
    text: str = ""


class _Item(msgspec.Struct, frozen=True, gc=False):
    """An item of the Responses API that is no message."""

    type: str
    id: str = ""
    call_id: str = ""
    name: str = ""
    arguments: str | None = None
    input: str | None = None
    output: str | list[msgspec.Raw] | None = None
    summary: list[_Words] = []
    encrypted_content: str | None = None


class _Url(msgspec.Struct, frozen=True, gc=False):
    url: str = ""


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a message's content."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    think: str | None = None
    encrypted: str | None = None
    image_url: _Url | str | None = None


_PARTS: Final = Parts(Part)
MESSAGES: Final = Parts(ChatMessage)
_item: Final = msgspec.json.Decoder(_Item).decode


def parts(
    content: str | list[msgspec.Raw] | None, source: str, keep: Keep
) -> tuple[ContentBlock, ...]:
    """The blocks of a message's content."""
    if not content:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    found: list[ContentBlock] = []
    for raw, part in _PARTS(content):
        known = None if part is None else block(part, keep)
        if known is None:
            kind = "part" if part is None else part.type
            known = Opaque(kind=f"{source}:{kind}", raw=str(raw, "utf-8"))
        found.append(known)
    return tuple(found)


def result(
    content: str | list[msgspec.Raw] | None, source: str, keep: Keep, report: Report
) -> tuple[str, tuple[Image, ...]]:
    """What a result says, and its pictures."""
    if isinstance(content, str):
        return content, ()
    blocks = parts(content, source, keep)
    texts = [block.text for block in blocks if isinstance(block, Text)]
    images = tuple([block for block in blocks if isinstance(block, Image)])
    others = len(blocks) - len(texts) - len(images)
    if others:
        report.left_out["parts of results that are no text and no image"] += others
    return "\n".join(texts), images


def block(part: Part, keep: Keep) -> ContentBlock | None:
    """The block of a part; None where it is of an unknown kind."""
    if part.image_url is not None:
        url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
        return from_data_url(url, keep)
    if part.think is not None:
        return Thinking(thinking=part.think, signature=part.encrypted or None)
    text = part.text if part.text is not None else part.refusal
    return Text(text=text) if text is not None else None


def uses(message: ChatMessage) -> list[ToolUse]:
    """The calls of an answer; their arguments are the text that the model wrote."""
    found = [
        _use(call.id, call.function)
        if call.custom is None
        else ToolUse(id=call.id, name=call.custom.name, input=call.custom.input)
        for call in message.tool_calls or ()
    ]
    early = message.function_call
    if early is not None and early.name:
        found.append(_use(early.name, early))
    return found


def _use(name: str, function: _Function) -> ToolUse:
    return ToolUse(id=name, name=function.name, input=function.arguments or "{}")


class Reader:
    """The entries of messages."""

    def __init__(self, source: str, report: Report, chain: Chain, keep: Keep) -> None:
        self._source = source
        self._report = report
        self._chain = chain
        self._keep = keep

    def entry(self, message: ChatMessage | None, raw: bytes) -> Entry:
        """The entry of a message; what is none is kept."""
        logged = (None if message is None else self._logged(message)) or self._said_by(raw)
        if logged is None:
            return self._opaque(raw)
        return MessageEntry(id=self._chain.draw(), message=logged)

    def conversation(self, body: _Body | None, raw: bytes) -> Iterator[Entry]:
        """The entries of a body, which begin anew; what is none is kept."""
        if body is None or not body.messages:
            yield self._opaque(raw)
            return
        rewind = self._chain.back_to(0, "")
        if rewind is not None:
            yield rewind
        for message in map(bytes, body.messages):
            yield self.entry(MESSAGES.one(message), message)

    def _said_by(self, raw: bytes) -> LoggedMessage | None:
        """What an item says that is no message; None if it is no such item."""
        try:
            item = _item(raw)
        except Exception:
            return None
        match item.type:
            case "function_call" | "custom_tool_call":
                given = (item.input if item.arguments is None else item.arguments) or "{}"
                use = ToolUse(id=item.call_id or item.id, name=item.name, input=given)
                return LoggedMessage(role="assistant", content=(use,), stop_reason="toolUse")
            case "function_call_output" | "custom_tool_call_output":
                text, images = result(item.output, self._source, self._keep, self._report)
                block = ToolResult(tool_use_id=item.call_id, content=text, images=images)
                return LoggedMessage(role="user", content=(block,))
            case "reasoning":
                words = "\n\n".join(part.text for part in item.summary)
                thought = Thinking(thinking=words, signature=item.encrypted_content)
                return LoggedMessage(role="assistant", content=(thought,), stop_reason="stop")
        return None

    def _logged(self, message: ChatMessage) -> LoggedMessage | None:
        if message.role in ("tool", "function"):
            text, images = result(message.content, self._source, self._keep, self._report)
            name = message.tool_call_id or message.name or ""
            block = ToolResult(tool_use_id=name, content=text, images=images)
            return LoggedMessage(role="user", content=(block,))
        content = parts(message.content, self._source, self._keep)
        match message.role:
            case "assistant":
                calls = uses(message)
                thought = message.reasoning_content or message.reasoning
                if thought:
                    content = (Thinking(thinking=thought), *content)
                if message.refusal:
                    content = (*content, Text(text=message.refusal))
                if message.audio is not None and message.audio.transcript:
                    content = (*content, Text(text=message.audio.transcript))
                stop = "toolUse" if calls else "stop"
                return LoggedMessage(role="assistant", content=(*content, *calls), stop_reason=stop)
            case "user":
                return LoggedMessage(role="user", content=content)
            case "system" | "developer":
                return LoggedMessage(role="system", content=content)
        return None

    def _opaque(self, raw: bytes) -> UnknownEntry:
        record = kept(raw) if isinstance(lenient(raw), dict) else raw.decode(errors="replace")
        return UnknownEntry(
            id=self._chain.draw(), kind=f"{self._source}:unknown", raw={"record": record}
        )


# -- writing ---------------------------------------------------------------------------------------


def _write(source: Source) -> Iterator[bytes]:
    """The messages of the current path, as they were said: those too that a summary stands for."""
    state = source.state
    writer = _Writer(source)
    begun = False
    for position in state.path:
        for message in writer.messages(position, state.body(position)):
            yield (b",\n" if begun else b"[\n") + msgspec.json.encode(message)
            begun = True
    yield b"\n]\n" if begun else b"[]\n"
    writer.lose("entries that were gone back from", len(state.entries) - len(state.path))
    writer.lose("damaged lines", len(state.damage))


class _Writer:
    """The messages that entries become."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._recorded: Counter[str] = Counter()  # results of the batch that were written already
        self._partials = {
            item.position: item.message for item in source.state.items if item.kind == "partial"
        }

    def lose(self, what: str, count: int = 1) -> None:
        if count:
            self._source.left_out[what] += count

    def messages(self, position: int, entry: Entry) -> Iterator[dict[str, Any]]:
        if position in self._partials:
            yield self._answer(self._partials[position])
        match entry:
            case MessageEntry():
                yield from self._message(entry.message.said())
            case ToolResultEntry():
                self._recorded[entry.tool_use_id] += 1
                yield self._result(entry)
            case NoteEntry():
                content = self._content([Text(text=entry.text), *entry.images])
                yield {"role": "user", "content": content}
            case ImportEntry() if entry.source == "legacy":
                yield {"role": "system", "content": import_text(entry)}
            case CondensationEntry():
                self.lose("summaries")
            case TitleEntry():
                self.lose("titles")
            case UnknownEntry():
                self.lose("records of other programs")

    def _message(self, message: Message) -> Iterator[dict[str, Any]]:
        if message.role == "system":
            yield {"role": "system", "content": message.text}
        elif message.role == "assistant":
            self._recorded.clear()
            yield self._answer(message)
        else:
            for result in message.tool_results:
                if self._recorded[result.tool_use_id] > 0:
                    self._recorded[result.tool_use_id] -= 1
                else:
                    yield self._result(result)
            rest = [block for block in message.content if not isinstance(block, ToolResult)]
            if rest or not message.content:
                yield {"role": "user", "content": self._content(rest)}

    def _answer(self, message: Message) -> dict[str, Any]:
        texts = [block.text for block in message.content if isinstance(block, Text)]
        calls = message.tool_uses
        self.lose("reasoning", len(message.content) - len(texts) - len(calls))
        found: dict[str, Any] = {"role": "assistant", "content": None}
        if len(texts) == 1:
            found["content"] = texts[0]
        elif texts:
            found["content"] = [{"type": "text", "text": text} for text in texts]
        if calls:
            found["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.input},
                }
                for call in calls
            ]
        return found

    def _result(self, result: ToolResult | ToolResultEntry) -> dict[str, Any]:
        self.lose("marks of errors", result.is_error)
        self.lose("uncut outputs of tools", result.output is not None)
        content: Any = result.content
        if result.images:
            text = [Text(text=result.content)] if result.content else []
            content = self._content([*text, *result.images])
        return {"role": "tool", "tool_call_id": result.tool_use_id, "content": content}

    def _content(self, blocks: Sequence[ContentBlock]) -> Any:
        if all(isinstance(block, Text) for block in blocks) and len(blocks) <= 1:
            return "".join(block.text for block in blocks if isinstance(block, Text))
        return [part for part in map(self._part, blocks) if part is not None] or ""

    def _part(self, block: ContentBlock) -> dict[str, Any] | None:
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        if isinstance(block, Image):
            try:
                url = to_data_url(block.mime_type, self._source.blob(block.blob))
            except BlobDamaged:
                self.lose("images whose files are missing")
                return {"type": "text", "text": "[picture not available]"}
            return {"type": "image_url", "image_url": {"url": url}}
        if isinstance(block, Opaque) and block.kind.startswith(f"{NAME}:"):
            found = lenient(block.raw.encode())
            return found if isinstance(found, dict) else None
        self.lose("blocks of other kinds")
        return None


FORMAT: Final = Format(
    name=NAME,
    title="a messages array",
    recognise=_recognise,
    read=_read,
    write=_write,
    cannot_carry=(
        "times, models, token counts and ids of messages",
        "reasoning",
        "turns that were gone back from",
        "which results are errors",
        "titles, labels and records of other programs",
    ),
)
