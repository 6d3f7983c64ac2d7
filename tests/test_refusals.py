"""The stand-in refuses what the real servers refuse, and lets pass what they let pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from refusals import (
    item_id,
    reasoning_item,
    refusal_anthropic,
    refusal_chat,
    refusal_responses,
    seal,
    sign,
)

JSON = dict[str, Any]


def user(*blocks: JSON) -> JSON:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: JSON) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> JSON:
    return {"type": "text", "text": words}


def use(name: str, **given: Any) -> JSON:
    return {"type": "tool_use", "id": name, "name": "read", "input": {}, **given}


def result(name: str) -> JSON:
    return {"type": "tool_result", "tool_use_id": name, "content": "x"}


def thought(words: str) -> JSON:
    return {"type": "thinking", "thinking": words, "signature": sign(words)}


def anthropic(*messages: JSON, **fields: Any) -> str | None:
    return refusal_anthropic(
        {"model": "m", "max_tokens": 9000, "messages": list(messages), **fields}
    )


THINKING = {"type": "enabled", "budget_tokens": 2000}
HI = user(text("hi"))
GOOD_ROUND = (HI, assistant(text("ok"), use("a"), use("b")), user(result("b"), result("a")))


def test_anthropic_accepts_what_is_valid() -> None:
    assert anthropic(HI) is None
    assert anthropic({"role": "user", "content": "hi"}) is None
    assert anthropic(*GOOD_ROUND) is None
    redacted = {"type": "redacted_thinking", "data": seal("x")}
    said = assistant(thought("hm"), redacted, text("ok"), use("a"))
    assert anthropic(HI, said, user(result("a"), text("go on")), thinking=THINKING) is None
    # Between the calls of one turn nobody needs to think again.
    more = (assistant(use("b")), user(result("b")))
    assert anthropic(HI, said, user(result("a")), *more, thinking=THINKING) is None


@pytest.mark.parametrize(
    ("messages", "fields", "words"),
    [
        ((HI,), {"model": ""}, "model"),
        ((HI,), {"max_tokens": 0}, "max_tokens"),
        ((HI,), {"frequency": 1}, "Extra inputs"),
        ((HI,), {"system": " "}, "system"),
        ((HI,), {"thinking": {"type": "enabled", "budget_tokens": 9000}}, "greater than"),
        ((), {}, "at least one message"),
        ((assistant(text("x")), HI), {}, "first message"),
        ((HI, HI), {}, "alternate"),
        ((HI, assistant(text("x"))), {}, "prefill"),
        (({"role": "system", "content": "x"},), {}, "role"),
        ((user(),), {}, "non-empty content"),
        ((user(text("")),), {}, "non-empty"),
        ((user(text(" \n")),), {}, "non-whitespace"),
        ((user({"type": "video"}),), {}, "video"),
        ((user(use("a")),), {}, "tool_use"),
        ((HI, assistant(use("a")), HI), {}, "without `tool_result`"),
        ((HI, assistant(use("a"), use("b")), user(result("a"))), {}, "b"),
        ((user(result("a")),), {}, "unexpected `tool_use_id`"),
        ((*GOOD_ROUND, assistant(text("x")), user(result("a"))), {}, "unexpected `tool_use_id`"),
        ((HI, assistant(use("a")), user(result("a"), result("a"))), {}, "multiple"),
        ((HI, assistant(use("a")), user(text("x"), result("a"))), {}, "come first"),
        ((HI, assistant(use("a"), use("a")), user(result("a"))), {}, "unique"),
        ((*GOOD_ROUND, assistant(use("a")), user(result("a"))), {}, "unique"),
        ((HI, assistant(use("a", input="{}")), user(result("a"))), {}, "dictionary"),
        ((HI, assistant({**thought("hm"), "thinking": "ho"}, text("x")), HI), {}, "signature"),
        ((HI, assistant({**thought("hm"), "signature": ""}, text("x")), HI), {}, "signature"),
        ((HI, assistant({"type": "redacted_thinking", "data": "x"}), HI), {}, "redacted"),
        ((HI, assistant(text("x"), thought("hm")), HI), {"thinking": THINKING}, "come first"),
        ((HI, assistant(use("a")), user(result("a"))), {"thinking": THINKING}, "Expected"),
    ],
)
def test_anthropic_refuses(messages: tuple[JSON, ...], fields: JSON, words: str) -> None:
    refusal = anthropic(*messages, **fields)
    assert refusal is not None
    assert words in refusal


def chat(*messages: JSON, **fields: Any) -> str | None:
    return refusal_chat({"model": "m", "messages": list(messages), **fields})


def said(content: str | None, *names: str, arguments: Any = "{}") -> JSON:
    calls = [
        {"id": name, "type": "function", "function": {"name": "read", "arguments": arguments}}
        for name in names
    ]
    message: JSON = {"role": "assistant", "content": content}
    return {**message, "tool_calls": calls} if calls else message


def tool(name: str) -> JSON:
    return {"role": "tool", "tool_call_id": name, "content": ""}


SYSTEM = {"role": "system", "content": "be kind"}
ASK = {"role": "user", "content": "hi"}


def test_chat_accepts_what_is_valid() -> None:
    assert chat(ASK) is None
    assert chat(SYSTEM, ASK, said("x"), ASK) is None
    assert chat(SYSTEM, ASK, said(None, "a", "b"), tool("b"), tool("a")) is None
    assert chat(ASK, said("x", "a"), tool("a"), ASK, said("y"), ASK) is None
    assert chat(ASK, said("x", "a"), tool("a"), said(None, "b"), tool("b")) is None


@pytest.mark.parametrize(
    ("messages", "fields", "words"),
    [
        ((ASK,), {"model": ""}, "model"),
        ((ASK,), {"system": "x"}, "system"),
        ((), {}, "messages"),
        ((said("x"), ASK), {}, "first message"),
        ((ASK, ASK), {}, "alternate"),
        ((ASK, said("x"), said("y"), ASK), {}, "alternate"),
        ((ASK, said("x")), {}, "last message"),
        (({"role": "narrator", "content": "x"},), {}, "narrator"),
        (({"role": "user", "content": ""},), {}, "content"),
        (({"role": "user", "content": []},), {}, "empty array"),
        (({"role": "user", "content": [{"type": "sound"}]},), {}, "sound"),
        ((ASK, said(None), ASK), {}, "content"),
        ((ASK, said(""), ASK), {}, "content"),
        ((ASK, {**said("x"), "reasoning_content": "hm"}, ASK), {}, "reasoning_content"),
        ((ASK, said("x", "a"), ASK), {}, "did not have response messages: a"),
        ((ASK, said("x", "a", "b"), tool("a")), {}, "did not have response messages: b"),
        ((ASK, said("x", "a"), tool("a"), tool("a")), {}, "preceeding message"),
        ((ASK, tool("a")), {}, "preceeding message"),
        ((ASK, said("x", "a"), tool("a"), said("y"), tool("a")), {}, "preceeding message"),
        ((ASK, said("x", "a", "a"), tool("a"), tool("a")), {}, "unique"),
        ((ASK, said("x", "a"), tool("a"), said("x", "a"), tool("a")), {}, "unique"),
        ((ASK, said("x", "a", arguments={}), tool("a")), {}, "expected a string"),
        ((ASK, said("x", "a", arguments="[]"), tool("a")), {}, "not a JSON object"),
    ],
)
def test_chat_refuses(messages: tuple[JSON, ...], fields: JSON, words: str) -> None:
    refusal = chat(*messages, **fields)
    assert refusal is not None
    assert words in refusal


def responses(*items: JSON, **fields: Any) -> str | None:
    return refusal_responses({"model": "m", "input": list(items), **fields})


def call(name: str, reasoning: str | None = None, **given: Any) -> JSON:
    item = {"type": "function_call", "call_id": name, "name": "read", "arguments": "{}", **given}
    return {**item, "id": item_id("fc", 1, reasoning)} if reasoning else item


def output(name: str) -> JSON:
    return {"type": "function_call_output", "call_id": name, "output": "x"}


def message(words: str, reasoning: str | None = None) -> JSON:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    item: JSON = {"type": "message", "role": "assistant", "content": content}
    return {**item, "id": item_id("msg", 1, reasoning)} if reasoning else item


REASONING = reasoning_item("hm")
RS = REASONING["id"]


def test_responses_accept_what_is_valid() -> None:
    assert responses(ASK) is None
    assert responses(ASK, message("x"), ASK) is None
    assert responses(ASK, message("x"), call("a"), call("b"), output("b"), output("a")) is None
    assert responses(ASK, REASONING, message("x", RS), call("a", RS), output("a"), ASK) is None


FORGED = copy.deepcopy(REASONING)
FORGED["summary"][0]["text"] = "ho"


@pytest.mark.parametrize(
    ("items", "fields", "words"),
    [
        ((ASK,), {"model": ""}, "model"),
        ((ASK,), {"messages": []}, "messages"),
        ((), {}, "input"),
        ((message("x"), ASK), {}, "first message"),
        ((ASK, ASK), {}, "alternate"),
        ((ASK, message("x")), {}, "last message"),
        ((ASK, message(" "), ASK), {}, "empty"),
        ((ASK, {"type": "item_reference", "id": "x"}), {}, "item_reference"),
        ((ASK, call("a"), ASK), {}, "No tool output found for function call a"),
        ((ASK, output("a")), {}, "No tool call found"),
        ((ASK, call("a"), output("a"), output("a")), {}, "No tool call found"),
        ((ASK, call("a"), ASK, output("a")), {}, "No tool output found"),
        ((ASK, call("a"), output("a"), call("a"), output("a")), {}, "Duplicate"),
        ((ASK, call("a", arguments="{"), output("a")), {}, "not a JSON object"),
        ((ASK, {**message("x"), "id": "msg_1"}, ASK), {}, "not found"),
        ((ASK, message("x", RS), ASK), {}, "without its required 'reasoning' item"),
        ((ASK, REASONING, ASK), {}, "without its required following item"),
        ((ASK, FORGED, message("x", RS), ASK), {}, "not found"),
        (
            (ASK, {**REASONING, "encrypted_content": "0.x"}, message("x", RS), ASK),
            {},
            "could not be verified",
        ),
    ],
)
def test_responses_refuse(items: tuple[JSON, ...], fields: JSON, words: str) -> None:
    refusal = responses(*items, **fields)
    assert refusal is not None
    assert words in refusal
