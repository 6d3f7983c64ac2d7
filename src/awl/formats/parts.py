"""The parts of messages as Google's API has them, which several programs keep. Pure.

A part is an object of which one member says what it is: `text` (with ``thought`` it is reasoning),
`functionCall` {id?, name, args}, `functionResponse` {id?, name, response, parts?}, `inlineData`
{mimeType, data}, and others. A text alone may stand for a part that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from awl.conversation import ContentBlock, Image, Opaque, Text, Thinking, ToolResult, ToolUse
from awl.formats.format import Keep
from awl.formats.payloads import from_base64
from awl.formats.records import Parts, json_text


class InlineData(msgspec.Struct, frozen=True, rename="camel", gc=False):
    mime_type: str = ""
    data: str = ""


class FunctionCall(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()


class FunctionResponse(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    id: str | None = None
    response: msgspec.Raw = msgspec.Raw()
    parts: list[msgspec.Raw] = []


class Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part; the members that are None are not there."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None
    function_response: FunctionResponse | None = None
    inline_data: InlineData | None = None


class KnownPart(Part, frozen=True, rename="camel", gc=False):
    """A part of a kind that awl knows. The decoder refuses all others, whose bytes are to be
    kept."""

    def __post_init__(self) -> None:
        if (
            self.text is None
            and self.function_call is None
            and self.function_response is None
            and self.inline_data is None
        ):
            raise ValueError("a part of an unknown kind")


class _Texts(msgspec.Struct, frozen=True, gc=False):
    """Of a response, what the model reads."""

    output: str | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


PARTS: Final = Parts(Part)
_texts: Final = msgspec.json.Decoder(_Texts).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_either: Final = msgspec.json.Decoder(str | list[msgspec.Raw] | dict[str, Any]).decode


def parts_of(
    given: str | Sequence[KnownPart] | KnownPart | msgspec.Raw | None,
) -> Sequence[KnownPart | msgspec.Raw]:
    """The parts of a field that holds a text, a part, or a list of parts."""
    if not given:
        return ()
    if type(given) is list:
        return given
    if isinstance(given, KnownPart):
        return (given,)
    if isinstance(given, str):
        return (KnownPart(text=given),)
    assert isinstance(given, msgspec.Raw)
    try:
        found = _either(given)
    except msgspec.MsgspecError:
        return ()
    if isinstance(found, dict):
        return (given,)
    return parts_of(found)


def blocks_of(
    given: str | Sequence[KnownPart] | KnownPart | msgspec.Raw | None, source: str, keep: Keep
) -> tuple[ContentBlock, ...]:
    """The blocks of a field that holds a text, a part, or a list of parts."""
    if type(given) is str:
        return (Text(text=given),) if given else ()
    return blocks(given if type(given) is list else parts_of(given), source, keep)


def blocks(
    given: Sequence[KnownPart | msgspec.Raw], source: str, keep: Keep
) -> tuple[ContentBlock, ...]:
    """The blocks of a message's parts. Pictures beside a result are the result's."""
    if len(given) == 1 and type(part := given[0]) is not msgspec.Raw:  # as nearly all have
        block = _block(part, keep)
        if block is not None:
            return (block,)
    found: list[ContentBlock] = []
    for part in given:
        block = _of_raw(part, source, keep) if type(part) is msgspec.Raw else _block(part, keep)
        if block is None:  # a picture that is none
            block = _opaque(msgspec.json.encode(part), source)
        if type(block) is Image and found and type(found[-1]) is ToolResult:
            last = found[-1]
            found[-1] = msgspec.structs.replace(last, images=(*last.images, block))
        else:
            found.append(block)
    return tuple(found)


def _of_raw(raw: msgspec.Raw, source: str, keep: Keep) -> ContentBlock:
    ((_, part),) = PARTS((raw,))
    if part is None and bytes(raw).startswith(b'"'):
        return Text(text=_text(raw))
    block = None if part is None else _block(part, keep)
    return block or _opaque(raw, source)


def _opaque(raw: bytes | msgspec.Raw, source: str) -> Opaque:
    return Opaque(kind=f"{source}:part", raw=str(raw, "utf-8"))


def _block(part: Part, keep: Keep) -> ContentBlock | None:
    if part.function_call is not None:
        call = part.function_call
        data = {"thoughtSignature": part.thought_signature} if part.thought_signature else None
        return use(call.id or call.name, call.name, call.args, data)
    if part.function_response is not None:
        return result(part.function_response, keep)
    if part.inline_data is not None:
        return from_base64(part.inline_data.data, part.inline_data.mime_type, keep)
    if part.text is None:
        return None
    if part.thought:
        data = {"thoughtSignature": part.thought_signature} if part.thought_signature else None
        return Thinking(thinking=part.text, provider_data=data)
    return Text(text=part.text)


def use(name: str, tool: str, args: msgspec.Raw, data: dict[str, Any] | None = None) -> ToolUse:
    """A call; `args` are kept as they stand there."""
    return ToolUse(id=name, name=tool, input=json_text(args), provider_data=data)


def result(response: FunctionResponse, keep: Keep) -> ToolResult:
    """A result. The response's `output` or `error` is what the model reads; else all of it."""
    text, failed = output_of(response.response)
    said = blocks(response.parts, "", keep) if response.parts else ()
    return ToolResult(
        tool_use_id=response.id or response.name,
        content=text,
        images=tuple([block for block in said if isinstance(block, Image)]) if said else (),
        is_error=failed,
    )


def output_of(response: msgspec.Raw) -> tuple[str, bool]:
    """What a response says, and whether it tells of an error."""
    try:
        texts = _texts(response)
    except msgspec.MsgspecError:
        return _odd_output_of(response)
    if texts.error is not msgspec.UNSET:
        said = (texts.error,) if texts.output is msgspec.UNSET else (texts.output, texts.error)
        return "\n".join(said), True
    return str(response, "utf-8") if texts.output is msgspec.UNSET else texts.output, False


def _odd_output_of(response: msgspec.Raw) -> tuple[str, bool]:
    """The same of one whose `output` or `error` is no text."""
    try:
        members = _members(response)
    except msgspec.MsgspecError:
        return str(response, "utf-8"), False
    said = [_text(members[name]) for name in ("output", "error") if name in members]
    return "\n".join(said) if said else str(response, "utf-8"), "error" in members


def _text(raw: msgspec.Raw) -> str:
    try:
        found: str = msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        return str(raw, "utf-8")
    return found
