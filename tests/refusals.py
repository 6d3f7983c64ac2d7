"""What real model servers refuse, as plain functions: a request's body -> why not, or None.

They are stricter than the servers where those forgive: whoever passes here passes there. What a
server has issued (signatures, sealed reasoning, ids) carries a MAC, so that it can be recognised
without remembering anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_KEY = b"what the stand-in signs with"

JSON = dict[str, Any]


def _mac(*parts: str) -> str:
    return hmac.new(
        _KEY, "\0".join(parts).encode("utf-8", "surrogatepass"), hashlib.sha256
    ).hexdigest()


# What the stand-in issues


def sign(thinking: str) -> str:
    """The signature of a thinking block with this text."""
    return base64.b64encode(bytes.fromhex(_mac("thinking", thinking))).decode()


def seal(secret: str) -> str:
    """The data of a redacted thinking block."""
    body = base64.b64encode(secret.encode()).decode()
    return f"{body}.{_mac('redacted', body)[:32]}"


def reasoning_item(words: str, number: int = 0) -> JSON:
    """A reasoning item of the Responses API whose summary is `words` (or empty)."""
    name = f"rs_{_mac('id', words, str(number))[:24]}"
    summary = [{"type": "summary_text", "text": words}] if words else []
    sealed = f"{number}.{_mac('reasoning', name, words)}"
    return {"id": name, "type": "reasoning", "summary": summary, "encrypted_content": sealed}


def item_id(prefix: str, number: int, reasoning: str | None) -> str:
    """The id of a message (msg) or call (fc) that followed the reasoning item with this id."""
    after = reasoning.removeprefix("rs_") if reasoning else "0"
    return f"{prefix}_{number}x{after}x{_mac(prefix, str(number), after)[:12]}"


def _issued_item(name: str) -> tuple[bool, str | None]:
    """Whether an item's id was issued, and the reasoning item that must come before it."""
    match = re.fullmatch(r"(msg|fc)_(\d+)x([0-9a-f]+)x([0-9a-f]{12})", name)
    if match is None:
        return False, None
    prefix, number, after, mac = match.groups()
    issued = mac == _mac(prefix, number, after)[:12]
    return issued, None if after == "0" else f"rs_{after}"


# Anthropic Messages

_MESSAGES_FIELDS = {
    "model", "messages", "max_tokens", "system", "tools", "tool_choice", "thinking", "stream",
    "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier",
}  # fmt: skip
_BLOCK_FIELDS: dict[str, dict[str, set[str]]] = {
    "user": {
        "text": {"type", "text", "cache_control"},
        "image": {"type", "source", "cache_control"},
        "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    },
    "assistant": {
        "text": {"type", "text", "cache_control", "citations"},
        "thinking": {"type", "thinking", "signature"},
        "redacted_thinking": {"type", "data"},
        "tool_use": {"type", "id", "name", "input", "cache_control"},
    },
}
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_THOUGHTS = ("thinking", "redacted_thinking")


def refusal_anthropic(body: JSON) -> str | None:
    """Why the Messages API refuses this request, as it would say it, or None."""
    return next(_anthropic(body), None)


def _anthropic(body: JSON) -> Iterator[str]:
    for field in body.keys() - _MESSAGES_FIELDS:
        yield f"{field}: Extra inputs are not permitted"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: Field required"
        return
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "enabled":
        if thinking.get("budget_tokens", 0) < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        if thinking["budget_tokens"] >= limit:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    yield from _anthropic_system(body.get("system"))
    yield from _anthropic_tools(body.get("tools"))
    yield from _anthropic_choice(body, thinking)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    for index, message in enumerate(messages):
        yield from _anthropic_message(f"messages.{index}", index, message)
    if messages[-1]["role"] != "user":
        yield "This model does not support assistant message prefill."
    yield from _anthropic_calls(messages)
    if thinking["type"] == "enabled":
        yield from _anthropic_thinking(messages)
    if json.dumps(body).count('"cache_control"') > 4:
        yield "A maximum of 4 blocks with cache_control may be provided."


def _anthropic_system(system: Any) -> Iterator[str]:
    if system is None:
        return
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    if not blocks:
        yield "system: at least one block is required"
    for index, block in enumerate(blocks):
        if block.get("type") != "text" or not str(block.get("text", "")).strip():
            yield f"system.{index}: text content blocks must contain non-whitespace text"


def _anthropic_tools(tools: Any) -> Iterator[str]:
    names = [tool.get("name") for tool in tools or ()]
    for index, tool in enumerate(tools or ()):
        if not _NAME.fullmatch(str(tool.get("name", ""))):
            yield f"tools.{index}.custom.name: String should match pattern"
        if tool.get("input_schema", {}).get("type") != "object":
            yield f"tools.{index}.custom.input_schema.type: Field required"
    if len(set(names)) != len(names):
        yield "tools: Tool names must be unique."


def _anthropic_choice(body: JSON, thinking: JSON) -> Iterator[str]:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if choice.get("type") not in ("auto", "any", "tool", "none"):
        yield f"tool_choice: Input tag '{choice.get('type')}' does not match the expected tags"
    names = [tool.get("name") for tool in body.get("tools") or ()]
    if choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"tool_choice: Tool '{choice.get('name')}' not found in provided tools"
    if choice.get("type") in ("any", "tool") and thinking["type"] == "enabled":
        yield "Thinking may not be enabled when tool_choice forces tool use."


def _anthropic_message(where: str, index: int, message: Any) -> Iterator[str]:
    role = message.get("role")
    if role not in ("user", "assistant"):
        yield f"{where}.role: Input should be 'user' or 'assistant'"
        return
    expected = "assistant" if index % 2 else "user"
    if role != expected:
        yield (
            'messages: first message must use the "user" role'
            if index == 0
            else 'messages: roles must alternate between "user" and "assistant"'
        )
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        yield f"{where}: all messages must have non-empty content"
        return
    for place, block in enumerate(content):
        yield from _anthropic_block(f"{where}.content.{place}", role, block)


def _anthropic_block(where: str, role: str, block: Any) -> Iterator[str]:
    kind = block.get("type")
    allowed = _BLOCK_FIELDS[role].get(kind)
    if allowed is None:
        yield f"{where}: Input tag '{kind}' does not match any of the expected tags"
        return
    for field in block.keys() - allowed:
        yield f"{where}.{kind}.{field}: Extra inputs are not permitted"
    match kind:
        case "text":
            if not isinstance(block.get("text"), str):
                yield f"{where}.text.text: Input should be a valid string"
            elif not block["text"]:
                yield "messages: text content blocks must be non-empty"
            elif not block["text"].strip():
                yield "messages: text content blocks must contain non-whitespace text"
        case "thinking":
            if block.get("signature") != sign(str(block.get("thinking"))):
                yield f"{where}: Invalid `signature` in `thinking` block"
        case "redacted_thinking":
            data, _, mac = str(block.get("data")).partition(".")
            if mac != _mac("redacted", data)[:32]:
                yield f"{where}: Invalid `data` in `redacted_thinking` block"
        case "tool_use":
            if not isinstance(block.get("input"), dict):
                yield f"{where}.tool_use.input: Input should be a valid dictionary"
            for field, pattern in (("id", _ID), ("name", _NAME)):
                if not pattern.fullmatch(str(block.get(field, ""))):
                    yield f"{where}.tool_use.{field}: should match '{pattern.pattern}'"
        case "tool_result":
            yield from _anthropic_result(where, block)
        case "image":
            yield from _anthropic_image(where, block)


def _anthropic_result(where: str, block: JSON) -> Iterator[str]:
    content = block.get("content", "")
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        yield f"{where}.tool_result.content: Input should be a valid string"
        return
    for place, part in enumerate(content):
        if part.get("type") not in ("text", "image"):
            yield f"{where}.tool_result.content.{place}: Input tag '{part.get('type')}' is unknown"
        else:
            yield from _anthropic_block(f"{where}.tool_result.content.{place}", "user", part)


def _anthropic_image(where: str, block: JSON) -> Iterator[str]:
    source = block.get("source", {})
    kinds = ("image/jpeg", "image/png", "image/gif", "image/webp")
    if source.get("type") != "base64" or source.get("media_type") not in kinds:
        yield f"{where}.image.source.base64.media_type: Input should be one of {kinds}"
    try:
        if not base64.b64decode(source.get("data", ""), validate=True):
            yield f"{where}.image.source.base64: image cannot be empty"
    except ValueError:
        yield f"{where}.image.source.base64.data: invalid base64 data"


def _blocks(message: JSON, kind: str) -> list[JSON]:
    content = message["content"]
    return [b for b in content if b.get("type") == kind] if isinstance(content, list) else []


def _anthropic_calls(messages: Sequence[JSON]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        results = [block.get("tool_use_id") for block in _blocks(message, "tool_result")]
        for name in results:
            if name not in open_calls:
                yield (
                    f"messages.{index}.content: unexpected `tool_use_id` found in `tool_result`"
                    f" blocks: {name}. Each `tool_result` block must have a corresponding"
                    " `tool_use` block in the previous message."
                )
            if results.count(name) > 1:
                yield (
                    f"messages.{index}: each tool_use must have a single result."
                    f" Found multiple `tool_result` blocks with id: {name}"
                )
        for name in open_calls:
            if name not in results:
                yield (
                    f"messages.{index - 1}: `tool_use` ids were found without `tool_result` blocks"
                    f" immediately after: {name}. Each `tool_use` block must have a corresponding"
                    " `tool_result` block in the next message."
                )
        first = message["content"][: len(results)]
        if any(block["type"] != "tool_result" for block in first if results):
            yield f"messages.{index}: `tool_result` blocks must come first in a message"
        open_calls = [block["id"] for block in _blocks(message, "tool_use")]
        if len(set(open_calls)) != len(open_calls) or seen & set(open_calls):
            yield f"messages.{index}: `tool_use` ids must be unique"
        seen |= set(open_calls)
    if open_calls:
        yield f"messages: `tool_use` ids were found without `tool_result` blocks: {open_calls}"


def _anthropic_thinking(messages: Sequence[JSON]) -> Iterator[str]:
    """With thinking on: thoughts come first, and a turn that goes on must begin with one."""
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and isinstance(message["content"], list):
            thoughts = [block["type"] in _THOUGHTS for block in message["content"]]
            if thoughts != sorted(thoughts, reverse=True):
                yield f"messages.{index}: thinking blocks must come first in a message"
    begun = None
    for message in messages:
        if message["role"] == "user" and not _blocks(message, "tool_result"):
            begun = None
        elif message["role"] == "assistant" and begun is None:
            begun = message
    if begun is not None:
        content = begun["content"]
        first = content[0]["type"] if isinstance(content, list) else "text"
        if first not in _THOUGHTS:
            yield (
                f"messages: Expected `thinking` or `redacted_thinking`, but found `{first}`. When"
                " `thinking` is enabled, a final `assistant` message must start with a thinking"
                " block."
            )


# OpenAI chat completions

_CHAT_FIELDS = {
    "model", "messages", "tools", "tool_choice", "stream", "stream_options", "max_tokens",
    "max_completion_tokens", "temperature", "top_p", "parallel_tool_calls", "reasoning_effort",
    "response_format",
}  # fmt: skip
_CHAT_MESSAGE_FIELDS = {
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "refusal"},
    "tool": {"role", "content", "tool_call_id"},
}


def refusal_chat(body: JSON) -> str | None:
    """Why the chat completions API refuses this request, as it would say it, or None."""
    return next(_chat(body), None)


def _chat(body: JSON) -> Iterator[str]:
    for field in body.keys() - _CHAT_FIELDS:
        yield f"Unrecognized request argument supplied: {field}"
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "you must provide a model parameter"
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    if body.get("tools") == []:
        yield "Invalid 'tools': empty array. Expected an array with minimum length 1."
    if "response_format" in body:
        form = body["response_format"]
        if form.get("type") != "json_schema":
            yield f"Invalid value: '{form.get('type')}' for 'response_format.type'."
        yield from _json_schema("response_format.json_schema", form.get("json_schema", {}))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        yield "Invalid 'messages': empty array. Expected an array with minimum length 1."
        return
    for index, message in enumerate(messages):
        yield from _chat_message(f"messages[{index}]", message)
    yield from _chat_calls(messages)
    yield from _alternation(
        ["user" if m["role"] == "tool" else m["role"] for m in messages],
        [m["role"] == "tool" for m in messages],
    )


def _json_schema(where: str, form: JSON) -> Iterator[str]:
    """A form that the answer must fit; a strict one leaves nothing open."""
    if not _NAME.fullmatch(str(form.get("name", ""))):
        yield f"Missing required parameter: '{where}.name'."
    schema = form.get("schema")
    if not isinstance(schema, dict):
        yield f"Missing required parameter: '{where}.schema'."
    elif form.get("strict"):
        if schema.get("additionalProperties") is not False:
            yield f"Invalid schema for '{where}': 'additionalProperties' must be false."
        if sorted(schema.get("required", ())) != sorted(schema.get("properties", ())):
            yield f"Invalid schema for '{where}': 'required' must include every key in properties."


def _chat_message(where: str, message: Any) -> Iterator[str]:
    role = message.get("role")
    if role not in _CHAT_MESSAGE_FIELDS:
        yield (
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user',"
            " 'function', 'tool', and 'developer'."
        )
        return
    for field in message.keys() - _CHAT_MESSAGE_FIELDS[role]:
        yield f"Unknown parameter: '{where}.{field}'."
    content = message.get("content")
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls == []:
            yield f"Invalid '{where}.tool_calls': empty array."
        if not calls and not (isinstance(content, str) and content.strip()):
            yield f"Invalid value for 'content': expected a string, got {content!r}."
        if content is not None and not (isinstance(content, str) and content.strip()):
            yield f"Invalid '{where}.content': a string of words, or null with tool_calls"
        for place, call in enumerate(calls or ()):
            yield from _chat_call(f"{where}.tool_calls[{place}]", call)
    elif role == "tool":
        if not isinstance(content, str):
            yield f"Invalid type for '{where}.content': expected a string."
    elif isinstance(content, list):
        if not content:
            yield f"Invalid '{where}.content': empty array."
        for place, part in enumerate(content):
            yield from _chat_part(f"{where}.content[{place}]", part)
    elif not isinstance(content, str) or not content.strip():
        yield f"Invalid value for '{where}.content': expected a string, got {content!r}."


def _chat_call(where: str, call: JSON) -> Iterator[str]:
    function = call.get("function", {})
    if call.keys() - {"id", "type", "function"} or function.keys() - {"name", "arguments"}:
        yield f"Unknown parameter in '{where}'."
    if call.get("type") != "function" or not call.get("id"):
        yield f"Missing required parameter: '{where}.id'."
    if not _NAME.fullmatch(str(function.get("name", ""))):
        yield f"Invalid '{where}.function.name': string does not match pattern."
    yield from _arguments(f"{where}.function.arguments", function.get("arguments"))


def _arguments(where: str, arguments: Any) -> Iterator[str]:
    if not isinstance(arguments, str):
        yield f"Invalid type for '{where}': expected a string."
        return
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        yield f"Invalid '{where}': the string is not a JSON object."


def _chat_part(where: str, part: JSON) -> Iterator[str]:
    match part.get("type"):
        case "text":
            if not str(part.get("text", "")).strip():
                yield f"Invalid '{where}.text': empty string."
        case "image_url":
            url = part.get("image_url", {}).get("url", "")
            if not re.fullmatch(r"data:image/\w+;base64,[A-Za-z0-9+/=]+", url):
                yield f"Invalid '{where}.image_url': expected a base64-encoded data URL."
        case kind:
            yield f"Invalid value: '{kind}'. Supported values are: 'text', 'image_url'."


def _chat_calls(messages: Sequence[JSON]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            name = message.get("tool_call_id")
            if name not in open_calls:
                yield (
                    "Invalid parameter: messages with role 'tool' must be a response to a"
                    " preceeding message with 'tool_calls'."
                )
            else:
                open_calls.remove(name)
            continue
        if open_calls:
            break
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(open_calls)) != len(open_calls) or seen & set(open_calls):
            yield "Invalid 'tool_calls': ids must be unique."
        seen |= set(open_calls)
    if open_calls:
        yield (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to"
            " each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            + ", ".join(open_calls)
        )


def _alternation(roles: Sequence[str], is_result: Sequence[bool]) -> Iterator[str]:
    """User and assistant take turns; results, and words after them, are the user's turn."""
    before, result_before = "", False
    for role, result in zip(roles, is_result, strict=True):
        if role in ("system", "developer"):
            if before:
                yield "a system message comes first"
            continue
        if not before and role != "user":
            yield "the first message must be the user's"
        if role == before and not (role == "user" and result_before):
            yield "roles must alternate between user and assistant"
        before, result_before = role, result
    if before != "user":
        yield "the last message must be the user's, or a tool's"


# OpenAI Responses

_RESPONSES_FIELDS = {
    "model", "input", "instructions", "tools", "tool_choice", "stream", "store", "include",
    "max_output_tokens", "reasoning", "temperature", "top_p", "parallel_tool_calls", "text",
}  # fmt: skip
_ASSISTANT_ITEMS = ("reasoning", "function_call")


def refusal_responses(body: JSON) -> str | None:
    """Why the Responses API refuses this request, as it would say it, or None."""
    return next(_responses(body), None)


def _responses(body: JSON) -> Iterator[str]:
    for field in body.keys() - _RESPONSES_FIELDS:
        yield f"Unknown parameter: '{field}'."
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "Missing required parameter: 'model'."
    if "text" in body:
        form = body["text"].get("format", {})
        if form.get("type") not in ("text", "json_schema"):
            yield f"Invalid value: '{form.get('type')}' for 'text.format.type'."
        if form.get("type") == "json_schema":
            yield from _json_schema("text.format", form)
    items = body.get("input")
    if isinstance(items, str) and items.strip():
        return
    if not isinstance(items, list) or not items:
        yield "Missing required parameter: 'input'."
        return
    for index, item in enumerate(items):
        yield from _item(f"input[{index}]", item)
    yield from _responses_calls(items)
    yield from _responses_reasoning(items)
    yield from _responses_turns(items)


def _item(where: str, item: JSON) -> Iterator[str]:
    match item.get("type", "message"):
        case "message":
            yield from _message_item(where, item)
        case "function_call":
            if not item.get("call_id"):
                yield f"Missing required parameter: '{where}.call_id'."
            if not _NAME.fullmatch(str(item.get("name", ""))):
                yield f"Invalid '{where}.name': string does not match pattern."
            yield from _arguments(f"{where}.arguments", item.get("arguments"))
            if "id" in item and not _issued_item(str(item["id"]))[0]:
                yield f"Item with id '{item['id']}' not found."
        case "function_call_output":
            if not isinstance(item.get("output"), (str, list)) or item.get("output") == []:
                yield f"Invalid type for '{where}.output': expected a string or parts."
            for part in item["output"] if isinstance(item["output"], list) else ():
                yield from _input_part(f"{where}.output", part)
        case "reasoning":
            yield from _reasoning(where, item)
        case kind:
            yield f"Invalid value: '{kind}'. Supported values are: 'message', 'reasoning', ..."


def _message_item(where: str, item: JSON) -> Iterator[str]:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"Invalid value: '{role}' for '{where}.role'."
        return
    if "id" in item and not _issued_item(str(item["id"]))[0]:
        yield f"Item with id '{item['id']}' not found."
    content = item.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield f"Invalid '{where}.content': empty string."
        return
    if not isinstance(content, list) or not content:
        yield f"Invalid '{where}.content': empty array."
        return
    for part in content:
        if role != "assistant":
            yield from _input_part(f"{where}.content", part)
        elif part.get("type") not in ("output_text", "refusal"):
            yield f"Invalid value: '{part.get('type')}'. Supported: 'output_text' and 'refusal'."
        elif not str(part.get("text") or part.get("refusal") or "").strip():
            yield f"Invalid '{where}.content': empty text."


def _input_part(where: str, part: JSON) -> Iterator[str]:
    match part.get("type"):
        case "input_text":
            if not str(part.get("text", "")).strip():
                yield f"Invalid '{where}.text': empty string."
        case "input_image":
            url = str(part.get("image_url", ""))
            if not re.fullmatch(r"data:image/\w+;base64,[A-Za-z0-9+/=]+", url):
                yield f"Invalid '{where}.image_url': expected a base64-encoded data URL."
        case kind:
            yield f"Invalid value: '{kind}'. Supported: 'input_text', 'input_image'."


def _reasoning(where: str, item: JSON) -> Iterator[str]:
    if item.keys() - {"id", "type", "summary", "encrypted_content", "content", "status"}:
        yield f"Unknown parameter in '{where}'."
    words = "".join(part.get("text", "") for part in item.get("summary", ()))
    number, _, mac = str(item.get("encrypted_content")).partition(".")
    if item.get("id") != f"rs_{_mac('id', words, number)[:24]}":
        yield f"Item with id '{item.get('id')}' not found."
    elif mac != _mac("reasoning", item["id"], words):
        yield f"The encrypted content for item {item['id']} could not be verified."


def _responses_calls(items: Sequence[JSON]) -> Iterator[str]:
    seen: set[str] = set()
    open_calls: list[str] = []
    for item in items:
        match item.get("type", "message"):
            case "function_call":
                if item["call_id"] in seen:
                    yield f"Duplicate item found with call_id {item['call_id']}."
                seen.add(item["call_id"])
                open_calls.append(item["call_id"])
            case "function_call_output":
                name = item.get("call_id")
                if name not in open_calls:
                    yield f"No tool call found for function call output with call_id {name}."
                else:
                    open_calls.remove(name)
            case "message" if open_calls and item["role"] != "assistant":
                break
    if open_calls:
        yield f"No tool output found for function call {open_calls[0]}."


def _responses_reasoning(items: Sequence[JSON]) -> Iterator[str]:
    """Reasoning and what it led to come together, in one answer."""
    thoughts: set[str] = set()
    pending: str | None = None
    for item in [*items, {"type": "message", "role": "user"}]:
        kind = item.get("type", "message")
        if kind == "reasoning":
            thoughts.add(item["id"])
            pending = item["id"]
        elif kind == "function_call" or item.get("role") == "assistant":
            _, needed = _issued_item(str(item.get("id", "")))
            if needed is not None and needed not in thoughts:
                yield (
                    f"Item '{item['id']}' of type '{kind}' was provided without its required"
                    f" 'reasoning' item: '{needed}'."
                )
            pending = None
        else:
            if pending is not None:
                yield (
                    f"Item '{pending}' of type 'reasoning' was provided without its required"
                    " following item."
                )
            thoughts, pending = set(), None


def _responses_turns(items: Sequence[JSON]) -> Iterator[str]:
    roles: list[str] = []
    results: list[bool] = []
    for item in items:
        kind = item.get("type", "message")
        if kind in _ASSISTANT_ITEMS or item.get("role") == "assistant":
            # The items of one answer are one turn.
            if not roles or roles[-1] != "assistant":
                roles.append("assistant")
                results.append(False)
        else:
            roles.append("user" if kind == "function_call_output" else item["role"])
            results.append(kind == "function_call_output")
    yield from _alternation(roles, results)
