"""What only chat completions have: tool messages, reasoning of compatible servers, two limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from asking import HELLO, answer, as_message, ask, failure, provider_for, results
from standin import Answer, Call, Fail, Say, StandIn, StreamError, Think

from awl.config import ProviderSettings
from awl.conversation import BlobRef, Image, Message, Text, Thinking, ToolResult, ToolUse
from awl.providers import Completed, Request, ThinkingDelta
from awl.providers.openai import OpenAIChatProvider

PICTURE = Image(mime_type="image/png", blob=BlobRef("0" * 64, 4))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


def test_results_are_messages_of_their_own_and_pictures_follow_them(server: StandIn) -> None:
    server.plays([Call("a"), Call("b")], [Say("ok")])
    provider = provider_for("chat", server)
    first = answer(provider)
    one, two = as_message(first).tool_uses
    user = Message(
        "user",
        (
            ToolResult(tool_use_id=one.id, content="A", images=(PICTURE,)),
            ToolResult(tool_use_id=two.id, content=""),
            Text(text="and now?"),
        ),
    )
    answer(provider, HELLO, as_message(first), user, read_blob=lambda ref: b"png!")
    sent = server.bodies[1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert sent[1]["content"] is None
    assert [message["content"] for message in sent[2:4]] == ["A", ""]
    assert [part["type"] for part in sent[4]["content"]] == ["image_url", "text"]


def test_reasoning_of_compatible_servers_is_shown_and_never_sent(server: StandIn) -> None:
    server.plays([Think("Hm, well."), Say("Hello!")], [Say("ok")])
    provider = provider_for("chat", server)
    *deltas, first = ask(provider)
    assert isinstance(first, Completed)
    assert "".join(d.thinking for d in deltas if isinstance(d, ThinkingDelta)) == "Hm, well."
    assert first.content == (Thinking(thinking="Hm, well."), Text(text="Hello!"))
    answer(provider, HELLO, as_message(first), HELLO)
    assert "Hm, well." not in json.dumps(server.bodies[1])


def test_calls_are_calls_even_if_the_server_says_stop(server: StandIn) -> None:
    server.plays(Answer([Call("read")], stop="stop"))
    assert answer(provider_for("chat", server)).stop_reason == "toolUse"


@pytest.mark.parametrize(
    ("stop", "reason"), [("content_filter", "stop"), ("length", "length"), ("new", "stop")]
)
def test_stop_reasons(server: StandIn, stop: str, reason: str) -> None:
    server.plays(Answer([Say("x")], stop=stop))
    assert answer(provider_for("chat", server)).stop_reason == reason


def test_a_call_cut_by_the_limit_is_not_called_a_tool_use(server: StandIn) -> None:
    server.plays(Answer([Call("read", '{"path": "a')], stop="length"))
    assert answer(provider_for("chat", server)).stop_reason == "length"


def test_the_limit_has_the_name_that_the_server_knows() -> None:
    def names(base_url: str) -> set[str]:
        settings = ProviderSettings(
            name="o", type="openai", model="m", max_tokens=9, base_url=base_url
        )
        body = OpenAIChatProvider(settings, "k")._body(Request(system=None, messages=[HELLO]))
        return {name for name in body if name.startswith("max")}

    assert names("") == {"max_completion_tokens"}
    assert names("http://127.0.0.1:1/v1") == {"max_tokens"}


@pytest.mark.parametrize(
    ("fail", "fault"),
    [
        (Fail(400, "too much", code="context_length_exceeded"), "context_length"),
        (Fail(400, "no such model", code="model_not_found"), "model"),
        (Fail(429, "You exceeded your current quota", code="insufficient_quota"), "refused"),
        (
            Fail(429, "Request too large for m-1 on tokens per min", code="rate_limit_exceeded"),
            "context_length",
        ),
        (
            Fail(
                400, "the request exceeds the available context size", "exceed_context_size_error"
            ),
            "context_length",
        ),
    ],
)
def test_codes_count_before_the_status(server: StandIn, fail: Fail, fault: str) -> None:
    server.plays(fail)
    assert failure(provider_for("chat", server)).fault == fault


def test_an_error_in_the_stream_with_a_code_of_the_request_is_a_refusal(server: StandIn) -> None:
    server.plays([Say("half"), StreamError("invalid_request_error", "bad")])
    assert failure(provider_for("chat", server)).fault == "refused"


def test_raw_arguments_of_the_model_are_sent_as_they_came(server: StandIn) -> None:
    server.plays([Call("read", '{ "b":1,\t"a" : 2 }')], [Say("ok")])
    provider = provider_for("chat", server)
    first = answer(provider)
    assert [block.input for block in first.content if isinstance(block, ToolUse)] == [
        '{ "b":1,\t"a" : 2 }'
    ]
    answer(provider, HELLO, as_message(first), results(first, "A"))
    sent = server.bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == '{ "b":1,\t"a" : 2 }'
