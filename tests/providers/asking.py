"""Ask a provider in a test, and have all that it said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from standin import StandIn

from awl.config import ProviderSettings
from awl.conversation import Message, ToolResult, text_message
from awl.errors import ProviderError
from awl.providers import Completed, Provider, Request, StreamEvent, connect

HELLO = text_message("user", "Hello")
WIRES = ("anthropic", "chat", "responses")


def provider_for(wire: str, server: StandIn, **settings: Any) -> Provider:
    """A provider of this wire that is connected to the stand-in."""
    kind = "anthropic" if wire == "anthropic" else "openai"
    url = server.anthropic_url if wire == "anthropic" else server.openai_url
    given = {"name": wire, "type": kind, "model": "m-1", "base_url": url, **settings}
    if kind == "openai":
        given["wire"] = wire
    return connect(ProviderSettings(**given), {})


def ask(provider: Provider, *messages: Message, **request: Any) -> list[StreamEvent]:
    """Every event of one answer."""

    async def asking() -> list[StreamEvent]:
        try:
            asked = Request(**{"system": None, "messages": messages or (HELLO,), **request})
            return [event async for event in provider.stream(asked)]
        finally:
            await provider.close()

    return asyncio.run(asking())


def answer(provider: Provider, *messages: Message, **request: Any) -> Completed:
    """The last event of one answer."""
    last = ask(provider, *messages, **request)[-1]
    assert isinstance(last, Completed)
    return last


def failure(provider: Provider, *messages: Message, **request: Any) -> ProviderError:
    """The error of one answer."""
    with pytest.raises(ProviderError) as caught:
        ask(provider, *messages, **request)
    return caught.value


def results(said: Completed, *contents: str) -> Message:
    """A user message that answers the calls of `said`, in order."""
    calls = Message("assistant", said.content).tool_uses
    pairs: Sequence[tuple[Any, str]] = list(zip(calls, contents, strict=True))
    blocks = tuple(ToolResult(tool_use_id=call.id, content=content) for call, content in pairs)
    return Message("user", blocks)


def as_message(said: Completed) -> Message:
    return Message("assistant", said.content)
