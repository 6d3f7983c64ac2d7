"""OpenAI's Responses API: the wire on which its reasoning models keep their thoughts.

Nothing is stored at OpenAI (`store` is false), so an answer's items come back to it with the next
request: reasoning unchanged, its encrypted content as the block's signature and the rest of the
item in `provider_data`; ids of messages and calls in `provider_data` too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Final

from awl.conversation import (
    ContentBlock,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import Usage
from awl.errors import ProviderError
from awl.providers import (
    Completed,
    Request,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolUseDelta,
)
from awl.providers.faults import fault_of, one_line
from awl.providers.openai import OpenAIProvider, json_schema
from awl.providers.wire import NO_PICTURE, data_url, intact, tool_arguments

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.responses import ResponseStreamEvent

ENCRYPTED: Final = "reasoning.encrypted_content"


class OpenAIResponsesProvider(OpenAIProvider):
    """A model behind the Responses API."""

    _encrypts = True  # until the model says that it has no reasoning to encrypt

    def warm(self) -> None:
        import openai.resources.responses  # noqa: F401
        from openai.types.responses import ResponseCreatedEvent, ResponseOutputItemAddedEvent

        # The SDK builds its types when it first needs them, which would delay the first word.
        response: Any = {"output": [], "tools": []}
        item: Any = {"type": "message", "content": []}
        ResponseCreatedEvent.model_construct(response=response)
        ResponseOutputItemAddedEvent.model_construct(item=item)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model. See `Provider.stream`."""
        answer = _Answer(self.ref.model)
        async with self._faults():
            body = await self._prepare(request)
            client = self._client(self._connect)
            async with await self._create(client, body) as events:
                async for raw in events:
                    for event in answer.take(raw):
                        yield event
        if not answer.whole:
            raise self._broken_off()
        yield answer.completed()

    async def _create(
        self, client: AsyncOpenAI, body: dict[str, Any]
    ) -> AsyncStream[ResponseStreamEvent]:
        from openai import BadRequestError

        create: Any = client.responses.create
        events: AsyncStream[ResponseStreamEvent]
        if self._encrypts:
            try:
                events = await create(**body, include=[ENCRYPTED], stream=True)
                return events
            except BadRequestError as error:
                # Models that do not reason refuse to be asked for it; no list tells which they are.
                if "encrypted content" not in str(error).lower():
                    raise
                self._encrypts = False
        events = await create(**body, stream=True)
        return events

    def _body(self, request: Request) -> dict[str, Any]:
        settings = self._settings
        items = [item for message in request.messages for item in _items(message, request)]
        body: dict[str, Any] = {"model": settings.model, "input": items, "store": False}
        if request.system:
            body["instructions"] = request.system
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if request.form is not None:
            body["text"] = {"format": {"type": "json_schema", **json_schema(request.form)}}
        if settings.max_tokens:
            body["max_output_tokens"] = settings.max_tokens
        if settings.thinking_budget > 0:
            body["reasoning"] = {"summary": "auto"}
        return body


class _Answer:
    """An answer that grows with each event. Its items count only once they are done.

    Deltas are told apart by their item's id: not every server numbers its items.
    """

    def __init__(self, model: str) -> None:
        self.whole = False
        self._model = model
        self._places: dict[tuple[str, int], int] = {}  # item and part -> the block's index
        self._names: dict[str, str] = {}
        self._items: list[dict[str, Any]] = []
        self._stop_reason = "stop"
        self._usage: Usage | None = None

    def take(self, event: ResponseStreamEvent) -> list[StreamEvent]:
        match event.type:
            case "response.output_item.added":
                item = event.item
                if item.type == "reasoning":
                    self._place(item.id)  # even if none of it is shown
                elif item.type == "function_call":
                    self._names[item.id or ""] = item.name
                    return [ToolUseDelta(self._place(item.id or ""), item.name)]
            case "response.output_text.delta" | "response.refusal.delta":
                return [TextDelta(self._place(event.item_id, event.content_index), event.delta)]
            case "response.reasoning_summary_part.added":
                # A summary has parts; they are shown as paragraphs of one thought.
                if event.summary_index:
                    return [ThinkingDelta(self._place(event.item_id), "\n\n")]
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [ThinkingDelta(self._place(event.item_id), event.delta)]
            case "response.function_call_arguments.delta":
                name = self._names.get(event.item_id, "")
                return [ToolUseDelta(self._place(event.item_id), name)]
            case "response.output_item.done":
                self._items.append(event.item.to_dict())
            case "response.completed" | "response.incomplete":
                self._end(event.response)
            case "response.failed":
                failure = event.response.error
                raise _failure(
                    failure.code if failure else None, failure.message if failure else None
                )
            case "error":
                raise _failure(event.code, event.message)
        return []

    def completed(self) -> Completed:
        content = [block for item in self._items for block in _blocks(item)]
        called = any(isinstance(block, ToolUse) for block in content)
        stop = "toolUse" if called and self._stop_reason == "stop" else self._stop_reason
        return Completed(
            content=tuple(content), stop_reason=stop, model=self._model, usage=self._usage
        )

    def _place(self, item: str, part: int | None = None) -> int:
        return self._places.setdefault((item, part or 0), len(self._places))

    def _end(self, response: Any) -> None:
        self.whole = True
        self._model = response.model or self._model
        details = response.incomplete_details
        if details is not None and details.reason == "max_output_tokens":
            self._stop_reason = "length"
        if response.usage is not None:
            self._usage = _usage(response.usage)


def _failure(code: str | None, message: str | None) -> ProviderError:
    facts = {"code": code or "", "message": message or ""}
    said = one_line(message or code or "it did not say why")
    return ProviderError(
        f"the model failed: {said}; try again", fault=fault_of(None, facts) or "overloaded"
    )


def _usage(usage: Any) -> Usage:
    """OpenAI counts cached tokens within the input's; awl counts them apart."""
    read = getattr(usage.input_tokens_details, "cached_tokens", None)
    write = getattr(usage.input_tokens_details, "cache_write_tokens", None)
    return Usage(
        input=max(0, usage.input_tokens - (read or 0) - (write or 0)),
        output=usage.output_tokens,
        cache_read=read,
        cache_write=write,
    )


# From items to blocks and back


def _blocks(item: dict[str, Any]) -> list[ContentBlock]:
    """An item of an answer as content blocks."""
    match item["type"]:
        case "message":
            extras = {name: item[name] for name in ("id", "phase") if item.get(name)}
            return [_text(part, extras) for part in item["content"]]
        case "function_call":
            return [
                ToolUse(
                    id=item["call_id"],
                    name=item["name"],
                    input=item["arguments"] or "{}",
                    provider_data={"id": item["id"]} if item.get("id") else None,
                )
            ]
        case "reasoning":
            return [_thought(item)]
    return []


def _text(part: dict[str, Any], extras: dict[str, Any]) -> Text:
    if part["type"] == "refusal":
        return Text(text=part["refusal"], provider_data={**extras, "refusal": True})
    return Text(text=part["text"], provider_data=extras or None)


def _thought(item: dict[str, Any]) -> Thinking | RedactedThinking:
    """A reasoning item. All of it but its encrypted content is kept as it came."""
    rest = {name: value for name, value in item.items() if value is not None}
    sealed = rest.pop("encrypted_content", None)
    parts = [*item.get("summary", ()), *(item.get("content") or ())]
    words = "\n\n".join(part["text"] for part in parts)
    if not intact(words):
        return Thinking(thinking=words)
    if words or not sealed:
        return Thinking(thinking=words, signature=sealed, provider_data=rest)
    return RedactedThinking(data=sealed, provider_data=rest)


def _items(message: Message, request: Request) -> list[dict[str, Any]]:
    """A message as input items."""
    if message.role == "assistant":
        return _said(message.content)
    items: list[dict[str, Any]] = [
        {
            "type": "function_call_output",
            "call_id": result.tool_use_id,
            "output": _output(result, request),
        }
        for result in message.tool_results
    ]
    parts = [
        _input(block, request) for block in message.content if isinstance(block, (Text, Image))
    ]
    return [*items, {"role": message.role, "content": parts}] if parts else items


def _input(block: Text | Image, request: Request) -> dict[str, Any]:
    if isinstance(block, Text):
        return {"type": "input_text", "text": block.text}
    url = data_url(block, request)
    if url is None:
        return {"type": "input_text", "text": NO_PICTURE}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def _output(result: ToolResult, request: Request) -> str | list[dict[str, Any]]:
    if not result.images:
        return result.content
    words = [{"type": "input_text", "text": result.content}] if result.content.strip() else []
    return [*words, *(_input(image, request) for image in result.images)]


def _said(content: Sequence[ContentBlock]) -> list[dict[str, Any]]:
    """An answer as the items that it came in.

    Reasoning is refused without the item that it led to, and that item's id without the reasoning:
    they are sent together or not at all.
    """
    items: list[dict[str, Any]] = []
    for block in content:
        match block:
            case Text():
                _join(items, block)
            case ToolUse():
                item = {
                    "type": "function_call",
                    "call_id": block.id,
                    "name": block.name,
                    "arguments": tool_arguments(block.input),
                }
                items.append(_with_id(item, block.provider_data))
            case Thinking(signature=str() as sealed) | RedactedThinking(data=sealed):
                if block.provider_data:
                    items.append({**block.provider_data, "encrypted_content": sealed})
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    if not any(item["type"] == "reasoning" for item in items):
        for item in items:
            item.pop("id", None)
    return items


def _join(items: list[dict[str, Any]], text: Text) -> None:
    """Add a text to the message that it is a part of, or begin one."""
    data = text.provider_data or {}
    extras: dict[str, Any] = {name: data[name] for name in ("id", "phase") if name in data}
    refused = data.get("refusal", False)
    part = (
        {"type": "refusal", "refusal": text.text}
        if refused
        else {"type": "output_text", "text": text.text, "annotations": []}
    )
    last = items[-1] if items else {}
    if extras.get("id") and last.get("id") == extras["id"]:
        last["content"].append(part)
        return
    items.append(
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
            **extras,
        }
    )


def _with_id(item: dict[str, Any], extras: dict[str, Any] | None) -> dict[str, Any]:
    return {**item, "id": extras["id"]} if extras and "id" in extras else item
