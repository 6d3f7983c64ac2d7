"""Claude, and every server that speaks Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from awl.config import ProviderSettings
from awl.conversation import (
    ContentBlock,
    Image,
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import Usage
from awl.providers import (
    Completed,
    Request,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
    ToolUseDelta,
)
from awl.providers.sdk import SdkProvider
from awl.providers.wire import NO_PICTURE, intact, picture, require, tool_input

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncStream
    from anthropic.types import RawContentBlockDelta, RawMessageStreamEvent

ENDPOINT: Final = "https://api.anthropic.com"
MAX_TOKENS: Final = 8192
STOP_REASONS: Final[Mapping[str, str]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "toolUse",
}
"""What is not a plain stop: end_turn, stop_sequence, refusal and pause_turn all are."""

CACHED: Final = {"type": "ephemeral"}


class AnthropicProvider(SdkProvider["AsyncAnthropic"]):
    """A model behind the Messages API."""

    def __init__(self, settings: ProviderSettings, api_key: str) -> None:
        require("anthropic", "the library for Anthropic's models")
        super().__init__(settings, ENDPOINT)
        self._api_key = api_key

    @property
    def max_answer(self) -> int:
        return self._max_tokens(thinking=True)

    def warm(self) -> None:
        import anthropic.resources.messages  # noqa: F401
        from anthropic.types import (
            RawContentBlockDeltaEvent,
            RawContentBlockStartEvent,
            RawMessageStartEvent,
        )

        # The SDK builds its types when it first needs them, which would delay the first word.
        message: Any = {"content": [], "usage": {}}
        block: Any = {"type": "text", "text": ""}
        delta: Any = {"type": "text_delta", "text": ""}
        RawMessageStartEvent.model_construct(message=message)
        RawContentBlockStartEvent.model_construct(content_block=block)
        RawContentBlockDeltaEvent.model_construct(delta=delta)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model. See `Provider.stream`."""
        answer = _Answer(self.ref.model)
        async with self._faults():
            body = await self._prepare(request)
            client = self._client(self._connect)
            events: AsyncStream[RawMessageStreamEvent]
            async with await client.messages.create(**body, stream=True) as events:
                async for raw in events:
                    for event in answer.take(raw):
                        yield event
        if not answer.whole:
            raise self._broken_off()
        yield answer.completed()

    def _connect(self) -> AsyncAnthropic:
        import anthropic

        # The SDK sends the key as a bearer token; servers of others may know the older header only.
        older = {"X-Api-Key": self._api_key} if self._settings.base_url else None
        return anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._endpoint,
            default_headers=older,
            max_retries=0,
        )

    def _body(self, request: Request) -> dict[str, Any]:
        settings = self._settings
        body: dict[str, Any] = {
            "model": settings.model,
            "max_tokens": self._max_tokens(thinking=False),
            "messages": [_message(message, request) for message in request.messages],
        }
        if request.system:
            system = {"type": "text", "text": request.system, "cache_control": CACHED}
            body["system"] = [system]
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if request.form is not None:
            body["tools"] = [_tool(request.form)]
            body["tool_choice"] = {"type": "tool", "name": request.form.name}
        if settings.thinking_budget > 0 and request.thinking and _may_think(request.messages):
            body["thinking"] = {"type": "enabled", "budget_tokens": settings.thinking_budget}
            body["max_tokens"] = self._max_tokens(thinking=True)
        _cache_up_to_here(body["messages"])
        return body

    def _max_tokens(self, *, thinking: bool) -> int:
        most, budget = self._settings.max_tokens or MAX_TOKENS, self._settings.thinking_budget
        return most + budget if thinking and most <= budget else most  # it counts as output


class _Answer:
    """An answer that grows with each event."""

    def __init__(self, model: str) -> None:
        self.whole = False
        self._model = model
        self._blocks: dict[int, ContentBlock] = {}  # by the wire's index
        self._parts: dict[int, list[str]] = {}
        self._signatures: dict[int, str] = {}
        self._stop_reason = "stop"
        self._usage: dict[str, int] = {}

    def take(self, event: RawMessageStreamEvent) -> list[StreamEvent]:
        match event.type:
            case "message_start":
                self._model = event.message.model or self._model
                self._count(event.message.usage)
            case "content_block_start":
                return self._start(event.index, event.content_block.to_dict())
            case "content_block_delta":
                return self._grow(event.index, event.delta)
            case "message_delta":
                reason = event.delta.stop_reason or ""
                self._stop_reason = STOP_REASONS.get(reason, self._stop_reason)
                self._count(event.usage)
            case "message_stop":
                self.whole = True
        return []

    def completed(self) -> Completed:
        blocks = [self._finished(index) for index in sorted(self._blocks)]
        usage = self._usage
        return Completed(
            # A block that was opened and never filled says nothing, and could not be sent back.
            content=tuple(block for block in blocks if block != Text(text="")),
            stop_reason=self._stop_reason,
            model=self._model,
            usage=Usage(
                input=usage.get("input_tokens", 0),
                output=usage.get("output_tokens", 0),
                cache_read=usage.get("cache_read_input_tokens"),
                cache_write=usage.get("cache_creation_input_tokens"),
            )
            if usage
            else None,
        )

    def _start(self, index: int, block: Mapping[str, Any]) -> list[StreamEvent]:
        match block.get("type"):
            case "text":
                text = block.get("text") or ""
                self._blocks[index] = Text(text=text)
                return [TextDelta(index, text)] if text else []
            case "thinking":
                thinking = block.get("thinking") or ""
                signature = block.get("signature") or None
                self._blocks[index] = Thinking(thinking=thinking, signature=signature)
                return [ThinkingDelta(index, thinking)] if thinking else []
            case "redacted_thinking":
                self._blocks[index] = RedactedThinking(data=block["data"])
            case "tool_use":
                # Some servers send the input here at once, and no deltas.
                given = msgspec.json.encode(block.get("input") or {}).decode()
                self._blocks[index] = ToolUse(id=block["id"], name=block["name"], input=given)
                return [ToolUseDelta(index, block["name"])]
            case kind:
                raw = msgspec.json.encode(block).decode()
                self._blocks[index] = Opaque(kind=str(kind), raw=raw)
        return []

    def _grow(self, index: int, delta: RawContentBlockDelta) -> list[StreamEvent]:
        parts = self._parts.setdefault(index, [])
        match delta.type:
            case "text_delta":
                parts.append(delta.text)
                return [TextDelta(index, delta.text)]
            case "thinking_delta":
                parts.append(delta.thinking)
                return [ThinkingDelta(index, delta.thinking)]
            case "signature_delta":
                self._signatures[index] = self._signatures.get(index, "") + delta.signature
            case "input_json_delta":
                parts.append(delta.partial_json)
                block = self._blocks[index]
                return [ToolUseDelta(index, block.name)] if isinstance(block, ToolUse) else []
        return []

    def _finished(self, index: int) -> ContentBlock:
        text = "".join(self._parts.get(index, ()))
        match self._blocks[index]:
            case Text() as block:
                return Text(text=block.text + text)
            case Thinking() as block:
                signature = (block.signature or "") + self._signatures.get(index, "")
                thinking = block.thinking + text
                signed = bool(signature) and intact(thinking)
                return Thinking(thinking=thinking, signature=signature if signed else None)
            case ToolUse() as block:
                return ToolUse(id=block.id, name=block.name, input=text or block.input)
            case block:
                return block

    def _count(self, usage: Any) -> None:
        """Counts are cumulative: the last one that is told holds."""
        for name in (
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
        ):
            count = getattr(usage, name, None)
            if count is not None:
                self._usage[name] = count


def _may_think(messages: Sequence[Message]) -> bool:
    """Whether thinking can be asked for: a turn that is under way must have begun with a thought.

    It has not when the turn's beginning came from another model, or from this one without thinking.
    """
    begun: Message | None = None
    for message in messages:
        if message.role != "assistant" and not message.tool_results:
            begun = None
        elif message.role == "assistant":
            begun = begun or message
    if begun is None:
        return True
    first = begun.content[0] if begun.content else None
    return isinstance(first, RedactedThinking) or (
        isinstance(first, Thinking) and first.signature is not None
    )


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _message(message: Message, request: Request) -> dict[str, Any]:
    role = "assistant" if message.role == "assistant" else "user"
    blocks = [_block(block, request) for block in message.content]
    return {"role": role, "content": [block for block in blocks if block is not None]}


def _block(block: ContentBlock, request: Request) -> dict[str, Any] | None:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking(signature=None):
            return None
        case Thinking():
            return {
                "type": "thinking",
                "thinking": block.thinking,
                "signature": block.signature,
            }
        case RedactedThinking():
            return {"type": "redacted_thinking", "data": block.data}
        case ToolUse():
            return {
                "type": "tool_use",
                "id": block.id,
                "name": block.name,
                "input": tool_input(block.input),
            }
        case ToolResult():
            return _tool_result(block, request)
        case Image():
            return _image(block, request)
        case _:
            return None


def _tool_result(result: ToolResult, request: Request) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = result.content
    if result.images:
        words = [{"type": "text", "text": result.content}] if result.content.strip() else []
        content = [*words, *(_image(image, request) for image in result.images)]
    sent = {"type": "tool_result", "tool_use_id": result.tool_use_id, "content": content}
    return {**sent, "is_error": True} if result.is_error else sent


def _image(image: Image, request: Request) -> dict[str, Any]:
    data = picture(image, request)
    if data is None:
        return {"type": "text", "text": NO_PICTURE}
    source = {"type": "base64", "media_type": image.mime_type, "data": data}
    return {"type": "image", "source": source}


def _cache_up_to_here(messages: list[dict[str, Any]]) -> None:
    """Ask the server to keep the conversation's beginning, so that the next turn is cheap."""
    last = messages[-1]["content"][-1:] if messages else []
    for block in cast("list[dict[str, Any]]", last):
        if block["type"] in ("text", "tool_result", "image"):
            block["cache_control"] = CACHED
