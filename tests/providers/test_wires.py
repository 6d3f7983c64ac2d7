"""What holds for every wire, against a server as strict as the real ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from asking import HELLO, WIRES, answer, as_message, ask, failure, provider_for, results
from standin import LIMIT, Answer, Call, Drop, End, Fail, Hold, Say, StandIn, StreamError

from awl.conversation import (
    BlobRef,
    Image,
    Message,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.errors import ProviderError, ProviderFault
from awl.providers import (
    Completed,
    Provider,
    Request,
    TextDelta,
    ToolSpec,
    ToolUseDelta,
)

READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {}})
PICTURE = Image(mime_type="image/png", blob=BlobRef("0" * 64, 4))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


def text_of(said: Completed) -> str:
    return as_message(said).text


def test_text_is_streamed_piece_by_piece_and_then_completed(wire: str, server: StandIn) -> None:
    server.plays(Answer([Say("Grüße, world! 🦉 done", chunk=3)], model="m-1-2026"))
    *deltas, last = ask(provider_for(wire, server))
    assert len(deltas) == 7
    assert all(isinstance(delta, TextDelta) and delta.index == 0 for delta in deltas)
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "Grüße, world! 🦉 done"
    assert isinstance(last, Completed)
    assert text_of(last) == "Grüße, world! 🦉 done"
    assert last.stop_reason == "stop"
    assert last.model == "m-1-2026"


def test_usage_counts_cached_tokens_apart(wire: str, server: StandIn) -> None:
    server.plays(Answer([Say("x")], input_tokens=20, output_tokens=7, cache_read=4))
    usage = answer(provider_for(wire, server)).usage
    assert usage is not None
    assert (usage.input, usage.output, usage.cache_read) == (20, 7, 4)


def test_system_text_and_tools_are_sent(wire: str, server: StandIn) -> None:
    server.plays([Say("ok")])
    answer(provider_for(wire, server), system="Be brief.", tools=[READ])
    body = str(server.bodies[0])
    assert "Be brief." in body
    assert "Read a file." in body


def test_a_tool_round_goes_there_and_back(wire: str, server: StandIn) -> None:
    server.plays(
        [
            Say("Let me look."),
            Call("read", {"path": "a.py", "deep": {"x": [1, 2]}}),
            Call("read", {"path": "b.py"}),
        ],
        [Say("Both are fine.")],
    )
    provider = provider_for(wire, server)
    *deltas, first = ask(provider, HELLO, tools=[READ])
    assert isinstance(first, Completed)
    assert first.stop_reason == "toolUse"
    assert {d.index for d in deltas if isinstance(d, ToolUseDelta) and d.name == "read"} == {1, 2}
    text, one, two = first.content
    assert isinstance(text, Text)
    assert isinstance(one, ToolUse)
    assert isinstance(two, ToolUse)
    assert one.input == '{"path": "a.py", "deep": {"x": [1, 2]}}'
    assert two.input == '{"path": "b.py"}'
    second = answer(provider, HELLO, as_message(first), results(first, "A", "B"), tools=[READ])
    assert text_of(second) == "Both are fine."
    assert second.stop_reason == "stop"


def test_a_call_without_input_is_an_empty_object(wire: str, server: StandIn) -> None:
    server.plays([Call("read", "")], [Say("ok")])
    provider = provider_for(wire, server)
    first = answer(provider)
    assert [block.input for block in as_message(first).tool_uses] == ["{}"]
    answer(provider, HELLO, as_message(first), results(first, "A"))


@pytest.mark.parametrize("text", ['{"path": "a', "[1]", "null", "not JSON", '{"a": NaN}'])
def test_input_that_is_no_object_is_kept_raw_and_sent_wrapped(
    wire: str, server: StandIn, text: str
) -> None:
    server.plays([Call("read", text)], [Say("ok")])
    provider = provider_for(wire, server)
    first = answer(provider)
    assert [block.input for block in as_message(first).tool_uses] == [text]
    answer(provider, HELLO, as_message(first), results(first, "A"))
    assert "raw" in str(server.bodies[1])


def test_an_empty_answer_is_complete_and_empty(wire: str, server: StandIn) -> None:
    server.plays([])
    events = ask(provider_for(wire, server))
    assert len(events) == 1
    assert isinstance(events[0], Completed)
    assert events[0].content == ()
    assert events[0].stop_reason == "stop"


def test_an_answer_cut_by_the_limit_says_so(wire: str, server: StandIn) -> None:
    stop = {"anthropic": "max_tokens", "chat": "length", "responses": "max_output_tokens"}[wire]
    server.plays(Answer([Say("half of")], stop=stop))
    assert answer(provider_for(wire, server)).stop_reason == "length"


def test_pictures_of_users_and_of_tools_are_sent(wire: str, server: StandIn) -> None:
    server.plays([Call("read", {})], [Say("A picture.")])
    provider = provider_for(wire, server)
    asked = Message("user", (Text(text="Look:"), PICTURE))
    first = answer(provider, asked, read_blob=lambda ref: b"png!")
    [call] = as_message(first).tool_uses
    shown = ToolResult(tool_use_id=call.id, content="see", images=(PICTURE,))
    said = answer(
        provider, asked, as_message(first), Message("user", (shown,)), read_blob=lambda ref: b"png!"
    )
    assert text_of(said) == "A picture."
    assert str(server.bodies[1]).count("cG5nIQ==") == 2


def test_a_lost_picture_does_not_stop_the_conversation(wire: str, server: StandIn) -> None:
    def lost(ref: BlobRef) -> bytes:
        raise FileNotFoundError(ref.blob)

    server.plays([Say("ok")])
    answer(provider_for(wire, server), Message("user", (PICTURE,)), read_blob=lost)
    assert "picture not available" in str(server.bodies[0])


@pytest.mark.parametrize("kind", ["application/pdf", "image/svg+xml", "image/heic", ""])
def test_a_picture_of_a_kind_that_servers_refuse_does_not_stop_the_conversation(
    wire: str, server: StandIn, kind: str
) -> None:
    server.plays([Say("I see.")])
    picture = Image(mime_type=kind, blob=PICTURE.blob)
    question = Message("user", (Text(text="What is this?"), picture))
    said = answer(provider_for(wire, server), question, read_blob=lambda ref: b"%PDF")
    assert text_of(said) == "I see."
    assert "[picture not available]" in str(server.bodies[0])


def test_unsigned_reasoning_is_never_sent(wire: str, server: StandIn) -> None:
    server.plays([Say("ok")])
    mixed = Message("assistant", (Thinking(thinking="a secret thought"), Text(text="words")))
    answer(provider_for(wire, server), HELLO, mixed, text_message("user", "go on"))
    assert "secret" not in str(server.bodies[0])


FAILS: list[tuple[Fail, ProviderFault]] = [
    (Fail(401, "invalid x-api-key"), "auth"),
    (Fail(403, "not allowed"), "auth"),
    (Fail(404, "model: m-1"), "model"),
    (Fail(413, "Request exceeds the maximum size"), "context_length"),
    (Fail(400, "prompt is too long: 210000 tokens > 200000 maximum"), "context_length"),
    (
        Fail(400, "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"),
        "context_length",
    ),
    (
        Fail(400, "This model's maximum context length is 8192 tokens.", code="string_above_max"),
        "context_length",
    ),
    (Fail(400, "temperature: wrong"), "refused"),
    (Fail(422, "unprocessable"), "refused"),
    (Fail(429, "slow down"), "rate_limit"),
    (Fail(500, "oops"), "overloaded"),
    (Fail(503, "later", type="unavailable_error"), "overloaded"),
    (Fail(529, "Overloaded"), "overloaded"),
    (Fail(502, body="<html><h1>Bad gateway</h1></html>"), "overloaded"),
]


@pytest.mark.parametrize(("fail", "fault"), FAILS, ids=lambda value: str(value)[:40])
def test_http_errors_become_faults(
    wire: str, server: StandIn, fail: Fail, fault: ProviderFault
) -> None:
    server.plays(fail)
    error = failure(provider_for(wire, server))
    assert error.fault == fault
    assert error.status == fail.status
    assert len(server.requests) == 1, "the agent retries, not the SDK"
    assert "\n" not in str(error)


def test_a_message_is_one_line_without_control_characters(wire: str, server: StandIn) -> None:
    server.plays(Fail(400, "bad\n\x1b[31mred\x07\u2028line\u202e " + "x" * 2000))
    message = str(failure(provider_for(wire, server)))
    assert message.isprintable()
    assert len(message) < 500
    assert "bad [31mred line" in message


@pytest.mark.parametrize("part", [Drop(), End()], ids=["dropped", "ended early"])
def test_a_stream_that_breaks_off_is_a_connection_fault(
    wire: str, server: StandIn, part: Drop | End
) -> None:
    server.plays([Say("half an ans"), part])
    assert failure(provider_for(wire, server)).fault == "connection"


def test_a_stream_that_breaks_off_in_a_tool_call_gives_no_call(wire: str, server: StandIn) -> None:
    server.plays([Call("read", {"path": "a.py"}), Drop()])
    assert failure(provider_for(wire, server)).fault == "connection"


def test_an_error_inside_the_stream_is_told_by_its_type(wire: str, server: StandIn) -> None:
    kind = "overloaded_error" if wire == "anthropic" else "server_error"
    server.plays([Say("half"), StreamError(kind, "Overloaded, \x1b[1msorry")])
    error = failure(provider_for(wire, server))
    assert error.fault == "overloaded"
    assert error.transient
    assert "Overloaded, [1msorry" in str(error)


def test_a_server_that_is_not_there_is_a_connection_fault(wire: str) -> None:
    with StandIn() as server:
        provider = provider_for(wire, server)
    error = failure(provider)
    assert error.fault == "connection"
    assert "127.0.0.1" in str(error)


def test_what_the_server_refuses_is_a_refusal_that_quotes_it(wire: str, server: StandIn) -> None:
    server.plays([Say("never")])
    stray = Message("user", (ToolResult(tool_use_id="gone", content="x"),))
    error = failure(provider_for(wire, server), stray)
    assert error.fault == "refused"
    assert error.status == 400
    assert "tool" in str(error).lower()


def test_a_prompt_beyond_the_servers_context_is_a_context_length_fault(wire: str) -> None:
    with StandIn(context_tokens=500) as server:
        server.plays([Say("never")])
        error = failure(provider_for(wire, server), text_message("user", "word " * 1000))
    assert error.fault == "context_length"
    assert "takes more" in str(error)


def _held(provider: Provider, server: StandIn, leave: str) -> list[str]:
    """Hear the first words of an answer that then stands still, and leave."""
    heard: list[str] = []

    async def listen() -> None:
        request = Request(system=None, messages=[HELLO])
        async with contextlib.aclosing(provider.stream(request)) as events:
            async for event in events:
                assert isinstance(event, TextDelta)
                heard.append(event.text)
                if leave == "close":
                    return

    async def run() -> None:
        task = asyncio.create_task(listen())
        if leave == "cancel":
            assert await asyncio.to_thread(server.holding.wait, LIMIT)
            task.cancel()
        await asyncio.wait([task])
        # The connection must go at once, not when the client is closed.
        assert await asyncio.to_thread(server.hung_up.wait, LIMIT)
        await provider.close()

    asyncio.run(run())
    return heard


@pytest.mark.parametrize("leave", ["cancel", "close"])
def test_leaving_in_the_middle_of_an_answer_closes_the_connection(
    wire: str, server: StandIn, leave: str
) -> None:
    server.plays([Say("Hello", chunk=5), Hold(), Say("never heard")])
    heard = _held(provider_for(wire, server), server, leave)
    assert heard in ([], ["Hello"])
    assert "never heard" not in "".join(heard)


def test_a_provider_can_be_asked_from_one_event_loop_after_another(
    wire: str, server: StandIn
) -> None:
    async def once(provider: Provider) -> None:
        async for _ in provider.stream(Request(system=None, messages=[HELLO])):
            pass

    provider = provider_for(wire, server)
    server.plays([Say("one")], [Say("two")])
    asyncio.run(once(provider))
    asyncio.run(once(provider))
    assert len(server.requests) == 2


def test_max_tokens_are_sent_when_they_are_set(wire: str, server: StandIn) -> None:
    server.plays([Say("x")])
    answer(provider_for(wire, server, max_tokens=77))
    assert 77 in server.bodies[0].values()


def test_the_ref_names_the_endpoint(wire: str, server: StandIn) -> None:
    ref = provider_for(wire, server).ref
    assert (ref.provider, ref.model) == (wire, "m-1")
    assert ref.endpoint == (server.anthropic_url if wire == "anthropic" else server.openai_url)


def test_no_model_is_told_before_anything_is_asked(wire: str, server: StandIn) -> None:
    with pytest.raises(ProviderError) as caught:
        provider_for(wire, server, model="")
    assert caught.value.fault == "model"
