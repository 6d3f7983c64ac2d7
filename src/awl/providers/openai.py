"""OpenAI's models, and the many servers that speak its chat completions API.

`awl.providers.openai_responses` speaks the newer API of the same house.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final

from awl.config import ProviderSettings
from awl.conversation import ContentBlock, Image, Message, Text, Thinking, ToolResult, ToolUse
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
from awl.providers.wire import NO_PICTURE, data_url, require, tool_arguments

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.chat import ChatCompletionChunk

ENDPOINT: Final = "https://api.openai.com/v1"
STOP_REASONS: Final[Mapping[str, str]] = {
    "length": "length",
    "tool_calls": "toolUse",
    "function_call": "toolUse",
}
"""What is not a plain stop: stop and content_filter are."""


class OpenAIProvider(SdkProvider["AsyncOpenAI"]):
    """The part that both of OpenAI's APIs share: the client."""

    def __init__(self, settings: ProviderSettings, api_key: str) -> None:
        require("openai", "the library for OpenAI's models")
        super().__init__(settings, ENDPOINT)
        self._api_key = api_key

    def _connect(self) -> AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(api_key=self._api_key, base_url=self._endpoint, max_retries=0)


def json_schema(form: ToolSpec) -> dict[str, Any]:
    """A form as OpenAI's APIs take it: the answer is then JSON that fits."""
    return {"name": form.name, "schema": form.parameters, "strict": True}


class OpenAIChatProvider(OpenAIProvider):
    """A model behind the chat completions API."""

    def warm(self) -> None:
        import openai.resources.chat  # noqa: F401
        from openai.types.chat import ChatCompletionChunk

        # The SDK builds its types when it first needs them, which would delay the first word.
        choice: Any = {"index": 0, "delta": {"content": ""}, "finish_reason": None}
        ChatCompletionChunk.model_construct(id="", model="", created=0, choices=[choice])

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model. See `Provider.stream`."""
        answer = _Answer(self.ref.model)
        async with self._faults():
            body = await self._prepare(request)
            client = self._client(self._connect)
            chunks: AsyncStream[ChatCompletionChunk]
            async with await client.chat.completions.create(**body, stream=True) as chunks:
                async for chunk in chunks:
                    for event in answer.take(chunk):
                        yield event
        if not answer.whole:
            raise self._broken_off()
        yield answer.completed()

    def _body(self, request: Request) -> dict[str, Any]:
        settings = self._settings
        messages: list[dict[str, Any]] = []
        if request.system:
            messages.append({"role": "system", "content": request.system})
        for message in request.messages:
            messages += _messages(message, request)
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": messages,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        if request.form is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": json_schema(request.form),
            }
        if settings.max_tokens:
            # OpenAI renamed it; the servers that speak like OpenAI mostly know the old name.
            name = "max_tokens" if settings.base_url else "max_completion_tokens"
            body[name] = settings.max_tokens
        return body


class _Answer:
    """An answer that grows with each chunk. Its blocks are in the order of their beginnings."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._blocks: list[_Block] = []
        self._calls: dict[int, int] = {}  # the wire's index of a call -> its block's
        self._finish: str | None = None
        self._usage: Usage | None = None

    @property
    def whole(self) -> bool:
        return self._finish is not None

    def take(self, chunk: ChatCompletionChunk) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        self._model = chunk.model or self._model
        for choice in chunk.choices or ():
            delta = choice.delta
            if delta is not None:
                events += self._said(delta)
                for place, call in enumerate(delta.tool_calls or ()):
                    events.append(self._call(place if call.index is None else call.index, call))
            self._finish = choice.finish_reason or self._finish
        if chunk.usage is not None:
            self._usage = _usage(chunk.usage)
        return events

    def completed(self) -> Completed:
        stop_reason = STOP_REASONS.get(self._finish or "", "stop")
        if self._calls and stop_reason == "stop":
            stop_reason = "toolUse"  # Some servers finish with "stop" all the same.
        return Completed(
            content=tuple(block.finished() for block in self._blocks),
            stop_reason=stop_reason,
            model=self._model,
            usage=self._usage,
        )

    def _said(self, delta: Any) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        # Not OpenAI's own: compatible servers send reasoning under one of these names.
        thinking = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if isinstance(thinking, str) and thinking:
            events.append(ThinkingDelta(self._grow("thinking", thinking), thinking))
        for text in (delta.content, delta.refusal):
            if text:
                events.append(TextDelta(self._grow("text", text), text))
        return events

    def _grow(self, kind: str, piece: str) -> int:
        if not self._blocks or self._blocks[-1].kind != kind:
            self._blocks.append(_Block(kind))
        self._blocks[-1].parts.append(piece)
        return len(self._blocks) - 1

    def _call(self, number: int, call: Any) -> StreamEvent:
        place = self._calls.get(number)
        # Some servers number all calls 0, and tell them apart by their ids alone.
        if place is None or (call.id and call.id != self._blocks[place].id):
            place = self._calls[number] = len(self._blocks)
            self._blocks.append(_Block("tool", id=call.id or f"call_{secrets.token_hex(8)}"))
        block = self._blocks[place]
        if call.function is not None:
            block.name += call.function.name or ""
            block.parts.append(call.function.arguments or "")
        return ToolUseDelta(place, block.name)


class _Block:
    """A content block that is still growing."""

    def __init__(self, kind: str, id: str = "") -> None:
        self.kind, self.id, self.name = kind, id, ""
        self.parts: list[str] = []

    def finished(self) -> ContentBlock:
        text = "".join(self.parts)
        match self.kind:
            case "text":
                return Text(text=text)
            case "thinking":
                return Thinking(thinking=text)
        return ToolUse(id=self.id, name=self.name, input=text or "{}")


def _usage(usage: Any) -> Usage:
    """OpenAI counts cached tokens within the prompt's; awl counts them apart."""
    details = usage.prompt_tokens_details
    read = getattr(details, "cached_tokens", None)
    write = getattr(details, "cache_write_tokens", None)
    return Usage(
        input=max(0, (usage.prompt_tokens or 0) - (read or 0) - (write or 0)),
        output=usage.completion_tokens or 0,
        cache_read=read,
        cache_write=write,
    )


def _messages(message: Message, request: Request) -> list[dict[str, Any]]:
    """A message as the wire has it: tool results are messages of their own, before all else."""
    if message.role == "assistant":
        return [_assistant(message)]
    if message.role == "system":
        return [{"role": "system", "content": message.text}]
    results = message.tool_results
    sent: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.tool_use_id, "content": result.content}
        for result in results
    ]
    # A result can hold words only, so its pictures follow with what the user says.
    shown: list[ContentBlock] = [image for result in results for image in result.images]
    shown += [block for block in message.content if not isinstance(block, ToolResult)]
    content = _user_content(shown, request)
    return [*sent, {"role": "user", "content": content}] if content else sent


def _user_content(
    blocks: list[ContentBlock], request: Request
) -> str | list[dict[str, Any]] | None:
    texts = [block.text for block in blocks if isinstance(block, Text)]
    if not any(isinstance(block, Image) for block in blocks):
        return "\n\n".join(texts) or None  # a plain string: what every server understands
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if isinstance(block, Text):
            parts.append({"type": "text", "text": block.text})
        elif isinstance(block, Image):
            url = data_url(block, request)
            parts.append(
                {"type": "image_url", "image_url": {"url": url}}
                if url
                else {"type": "text", "text": NO_PICTURE}
            )
    return parts


def _assistant(message: Message) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": tool_arguments(call.input)},
        }
        for call in message.tool_uses
    ]
    texts = [block.text for block in message.content if isinstance(block, Text)]
    sent: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
    return {**sent, "tool_calls": calls} if calls else sent
