"""Providers of awl at the stand-in, and what a request told a model, whatever its wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from running import Awl
from standin import StandIn

JSON = dict[str, Any]
NAMES = ("claude", "chat", "responses")
"""The providers that `configure` sets up, one a wire."""

THINKING_BUDGET = 1024


def configure(awl: Awl, server: StandIn, more: str = "", *, first: str = "claude") -> None:
    """Let awl talk to the stand-in on all wires."""
    sections = [
        f'name = "{name}"\ntype = "{"anthropic" if name == "claude" else "openai"}"\n'
        f'model = "{name}-1"\n'
        f'base_url = "{server.anthropic_url if name == "claude" else server.openai_url}"\n'
        f"thinking_budget = {0 if name == 'chat' else THINKING_BUDGET}\n"
        + (f'wire = "{name}"\n' if name != "claude" else "")
        for name in NAMES
    ]
    providers = "".join(f"[[llm.providers]]\n{section}" for section in (*sections, more) if section)
    awl.config.write_text(f'[agent]\nprovider = "{first}"\n{providers}')


def told(body: JSON) -> list[tuple[str, str]]:
    """What a request told: user, assistant, thought, call and result, each with its words.

    System text is left out. A call's words are its command.
    """
    if "input" in body:
        return list(_told_responses(body["input"]))
    if any(isinstance(m["content"], list) for m in body["messages"]) and "max_tokens" in body:
        return list(_told_anthropic(body["messages"]))
    return list(_told_chat(body["messages"]))


def _told_anthropic(messages: list[JSON]) -> Iterator[tuple[str, str]]:
    for message in messages:
        for block in message["content"]:
            match block["type"]:
                case "text":
                    yield message["role"], block["text"]
                case "thinking" | "redacted_thinking":
                    yield "thought", json.dumps(block)
                case "tool_use":
                    yield "call", _command(block["input"])
                case "tool_result":
                    yield "result", _words(block["content"])
                case kind:
                    yield kind, ""


def _told_chat(messages: list[JSON]) -> Iterator[tuple[str, str]]:
    for message in messages:
        match message["role"]:
            case "user" | "assistant" as role:
                content = message["content"]
                parts = content if isinstance(content, list) else [{"text": content}]
                for part in parts:
                    for text in (part.get("text") or "").split("\n\n"):
                        if text or "image_url" in part:
                            yield role, text or "picture"
                for call in message.get("tool_calls", ()):
                    yield "call", _command(json.loads(call["function"]["arguments"]))
            case "tool":
                yield "result", message["content"]


def _told_responses(items: list[JSON]) -> Iterator[tuple[str, str]]:
    for item in items:
        match item.get("type", "message"):
            case "message":
                for part in item["content"]:
                    yield str(item["role"]), str(part.get("text", part["type"]))
            case "reasoning":
                yield "thought", json.dumps(item)
            case "function_call":
                yield "call", _command(json.loads(item["arguments"]))
            case "function_call_output":
                yield "result", _words(item["output"])


def _command(input: JSON) -> str:
    return str(input.get("command", input))


def _words(content: str | list[JSON]) -> str:
    if isinstance(content, str):
        return content
    return "|".join(str(part.get("text", part["type"])) for part in content)
