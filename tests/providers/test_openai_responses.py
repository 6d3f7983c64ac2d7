"""What only the Responses API has: items, and reasoning that goes round sealed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from asking import HELLO, answer, as_message, ask, failure, provider_for, results
from standin import Answer, Call, Fail, Redacted, Say, StandIn, StreamError, Think

from awl.conversation import (
    Message,
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


def test_reasoning_and_what_it_led_to_come_back_unchanged(server: StandIn) -> None:
    server.plays(
        [Think("Hm, I see."), Say("Let me look."), Call("read", {"a": 1})],
        [Redacted("hidden"), Call("read", {"a": 2})],
        [Say("Done.")],
    )
    provider = provider_for("responses", server)
    *deltas, first = ask(provider)
    assert isinstance(first, Completed)
    assert "".join(d.thinking for d in deltas if isinstance(d, ThinkingDelta)) == "Hm, I see."
    thought, said, call = first.content
    assert isinstance(thought, Thinking)
    assert thought.thinking == "Hm, I see."
    assert thought.signature
    assert isinstance(said, Text)
    assert isinstance(call, ToolUse)
    # As a log keeps it: through JSON and back. The stand-in verifies ids and seals.
    kept = msgspec.json.decode(msgspec.json.encode(as_message(first)), type=Message)
    second = answer(provider, HELLO, kept, results(first, "A"))
    assert isinstance(second.content[0], RedactedThinking)
    third = answer(
        provider, HELLO, kept, results(first, "A"), as_message(second), results(second, "B")
    )
    assert as_message(third).text == "Done."
    reasoning = [i for i in server.bodies[2]["input"] if i.get("type") == "reasoning"]
    assert len(reasoning) == 2
    assert server.bodies[0]["store"] is False
    assert server.bodies[0]["include"] == ["reasoning.encrypted_content"]


def test_indices_of_deltas_match_the_blocks(server: StandIn) -> None:
    server.plays([Redacted("hidden"), Say("words"), Call("read")])
    *deltas, said = ask(provider_for("responses", server))
    assert isinstance(said, Completed)
    kinds = {type(said.content[d.index]).__name__ for d in deltas if hasattr(d, "index")}
    assert kinds == {"Text", "ToolUse"}


def test_without_the_reasoning_no_ids_are_sent(server: StandIn) -> None:
    server.plays([Think("Hm."), Say("x"), Call("read")], [Say("ok")])
    provider = provider_for("responses", server)
    first = answer(provider)
    bare = Message("assistant", first.content[1:])
    answer(provider, HELLO, bare, results(first, "A"))
    assert all("id" not in item for item in server.bodies[1]["input"])


def test_reasoning_that_led_to_nothing_is_not_sent(server: StandIn) -> None:
    server.plays(Answer([Think("Hm.")], stop="max_output_tokens"), [Say("ok")])
    provider = provider_for("responses", server)
    first = answer(provider)
    assert first.stop_reason == "length"
    said = Message("assistant", (Text(text="earlier"), *first.content))
    answer(provider, HELLO, said, GO_ON)
    assert "reasoning" not in [item.get("type") for item in server.bodies[1]["input"]]


def test_what_other_programs_kept_with_words_and_calls_is_not_sent(server: StandIn) -> None:
    server.plays([Say("ok")])
    words = Text(text="hm", provider_data={"textSignature": '{"id":"msg_1"}'})
    call = ToolUse(id="a", name="f", input="{}", provider_data={"openai": {"itemId": "fc_1"}})
    said = Message("assistant", (words, call))
    done = Message("user", (ToolResult(tool_use_id="a", content="x"),))
    assert as_message(answer(provider_for("responses", server), HELLO, said, done)).text == "ok"


def test_a_changed_thought_is_refused(server: StandIn) -> None:
    server.plays([Think("Hm."), Say("x")], [Say("never")])
    provider = provider_for("responses", server)
    thought, *rest = answer(provider).content
    assert isinstance(thought, Thinking)
    changed = msgspec.structs.replace(thought, signature="0.forged")
    error = failure(provider, HELLO, Message("assistant", (changed, *rest)), GO_ON)
    assert error.fault == "refused"


def test_a_model_that_does_not_reason_is_asked_again_without(server: StandIn) -> None:
    server.plays(
        Fail(400, "Encrypted content is not supported with this model."), [Say("a")], [Say("b")]
    )
    provider = provider_for("responses", server)
    assert as_message(answer(provider)).text == "a"
    assert as_message(answer(provider)).text == "b"
    assert ["include" in body for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("server_error", "overloaded"),
        ("rate_limit_exceeded", "rate_limit"),
        ("context_length_exceeded", "context_length"),
        ("invalid_prompt", "refused"),
    ],
)
def test_errors_in_the_stream(server: StandIn, code: str, fault: str, failed: bool) -> None:
    server.plays([Say("half"), StreamError(code, "sorry", failed=failed)])
    assert failure(provider_for("responses", server)).fault == fault


def test_system_text_goes_into_the_instructions(server: StandIn) -> None:
    server.plays([Say("x")])
    answer(provider_for("responses", server), system="Be brief.")
    assert server.bodies[0]["instructions"] == "Be brief."


def test_summaries_are_asked_for_when_thinking_is_wanted(server: StandIn) -> None:
    server.plays([Say("x")])
    answer(provider_for("responses", server, thinking_budget=1))
    assert server.bodies[0]["reasoning"] == {"summary": "auto"}
