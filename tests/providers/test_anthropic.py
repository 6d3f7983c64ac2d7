"""What only Anthropic's wire has: thinking that is signed, sealed data, and cache marks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asking import HELLO, answer, as_message, ask, failure, provider_for, results
from standin import Answer, Call, Redacted, Say, StandIn, StreamError, Think, seal, sign

from awl.conversation import (
    Message,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.providers import Completed, ThinkingDelta

GO_ON = text_message("user", "go on")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


def test_thinking_comes_back_to_the_server_byte_for_byte(server: StandIn) -> None:
    thought = 'Hm…\n\tlet me "see" \\ 🦉 \u2028 '
    server.plays([Think(thought), Redacted("hidden"), Say("Look:"), Call("read")], [Say("Done.")])
    provider = provider_for("anthropic", server, thinking_budget=2000)
    *deltas, first = ask(provider)
    assert isinstance(first, Completed)
    assert "".join(d.thinking for d in deltas if isinstance(d, ThinkingDelta)) == thought
    assert first.content[:3] == (
        Thinking(thinking=thought, signature=sign(thought)),
        RedactedThinking(data=seal("hidden")),
        Text(text="Look:"),
    )
    # The stand-in verifies the signature and the seal.
    second = answer(provider, HELLO, as_message(first), results(first, "A"))
    assert as_message(second).text == "Done."


def test_a_changed_thought_is_refused(server: StandIn) -> None:
    server.plays([Say("never")])
    changed = Thinking(thinking="other words", signature=sign("the words"))
    said = Message("assistant", (changed, Text(text="x")))
    error = failure(provider_for("anthropic", server, thinking_budget=2000), HELLO, said, GO_ON)
    assert error.fault == "refused"
    assert "signature" in str(error)


def test_a_thought_that_is_not_shown_is_kept_for_its_signature(server: StandIn) -> None:
    server.plays([Think(""), Say("x")])
    said = answer(provider_for("anthropic", server, thinking_budget=2000))
    assert said.content[0] == Thinking(thinking="", signature=sign(""))


def test_the_budget_fits_into_the_limit_of_tokens(server: StandIn) -> None:
    server.plays([Say("x")], [Say("x")], [Say("x")])
    answer(provider_for("anthropic", server))
    answer(provider_for("anthropic", server, thinking_budget=10_000))
    answer(provider_for("anthropic", server, thinking_budget=2000, max_tokens=3000))
    plain, thinking, limited = server.bodies
    assert plain["max_tokens"] == 8192
    assert "thinking" not in plain
    assert thinking["thinking"] == {"type": "enabled", "budget_tokens": 10_000}
    assert thinking["max_tokens"] == 18_192
    assert limited["max_tokens"] == 3000


def test_a_turn_that_began_without_a_thought_goes_on_without_one(server: StandIn) -> None:
    server.plays([Say("one")], [Say("two")])
    call = Message("assistant", (ToolUse(id="t1", name="read", input="{}"),))
    result = Message("user", (ToolResult(tool_use_id="t1", content="x"),))
    provider = provider_for("anthropic", server, thinking_budget=2000)
    said = answer(provider, HELLO, call, result)
    answer(provider, HELLO, call, result, as_message(said), GO_ON)
    assert "thinking" not in server.bodies[0]
    assert "thinking" in server.bodies[1]


def test_errors_of_tools_are_marked(server: StandIn) -> None:
    server.plays([Say("ok")])
    call = Message("assistant", (ToolUse(id="t1", name="read", input="{}"),))
    result = ToolResult(tool_use_id="t1", content="no such file", is_error=True)
    answer(provider_for("anthropic", server), HELLO, call, Message("user", (result,)))
    assert server.bodies[0]["messages"][2]["content"][0]["is_error"] is True


def test_the_conversations_beginning_is_cached(server: StandIn) -> None:
    server.plays([Say("ok")])
    answer(provider_for("anthropic", server), HELLO, system="Be brief.")
    [body] = server.bodies
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


def test_what_was_written_to_the_cache_is_counted(server: StandIn) -> None:
    server.plays(Answer([Say("x")], cache_write=11))
    usage = answer(provider_for("anthropic", server)).usage
    assert usage is not None
    assert usage.cache_write == 11


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("refusal", "stop"),
        ("pause_turn", "stop"),
        ("something_new", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "toolUse"),
    ],
)
def test_stop_reasons(server: StandIn, stop: str, reason: str) -> None:
    server.plays(Answer([Say("x")], stop=stop))
    assert answer(provider_for("anthropic", server)).stop_reason == reason


def test_an_empty_text_block_is_left_out(server: StandIn) -> None:
    server.plays([Say(""), Call("read")])
    said = answer(provider_for("anthropic", server))
    assert [type(block) for block in said.content] == [ToolUse]


def test_unknown_blocks_are_never_sent(server: StandIn) -> None:
    server.plays([Say("ok")])
    said = Message("assistant", (Opaque(kind="new", raw='{"type":"new"}'), Text(text="x")))
    answer(provider_for("anthropic", server), HELLO, said, GO_ON)
    assert [block["type"] for block in server.bodies[0]["messages"][1]["content"]] == ["text"]


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("overloaded_error", "overloaded"),
        ("api_error", "overloaded"),
        ("rate_limit_error", "rate_limit"),
        ("authentication_error", "auth"),
        ("timeout_error", "connection"),
        ("invalid_request_error", "refused"),
    ],
)
def test_errors_in_the_stream(server: StandIn, kind: str, fault: str) -> None:
    server.plays([Say("half"), StreamError(kind, "sorry")])
    assert failure(provider_for("anthropic", server)).fault == fault


def test_both_headers_carry_the_key_to_servers_of_others(server: StandIn) -> None:
    server.plays([Say("x")])
    answer(provider_for("anthropic", server))
    headers = server.requests[0].headers
    assert headers["x-api-key"] == "none"
    assert headers["authorization"] == "Bearer none"
