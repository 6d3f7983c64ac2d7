"""The view: whatever happened to a session, what is sent is what a provider takes."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from histories import (
    ACCIDENTS,
    ANTHROPIC,
    ELSEWHERE,
    JUMPS,
    LOCAL,
    OPENAI,
    TALK,
    TARGETS,
    Step,
    examples,
    histories,
    replayed,
    story,
)
from hypothesis import example, given
from hypothesis import strategies as st
from rawlog import CHANGES, RawLog, changed, everything, result, state_of, text, use
from refusals import refusal_anthropic, refusal_chat, refusal_responses, sign

from awl.config import ProviderSettings
from awl.conversation import (
    Image,
    Message,
    ModelRef,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.errors import NotASession
from awl.providers import Request, connect
from awl.state import State
from awl.view import CLEARED, WORDLESS, View, view

CLAUDE = ModelRef("anthropic", "claude-1")
_FITS = re.compile(r"[A-Za-z0-9_-]{1,64}")


# -- the strict rules ----------------------------------------------------------------------------


def assert_valid(sent: View, state: State, target: ModelRef, *, thinking: bool = True) -> None:
    """Every rule that some provider holds its callers to."""
    assert sent.system is None or sent.system.strip()
    bound = _bound_blocks(state, target) if thinking else []
    ids: Counter[str] = Counter()
    calls: list[str] = []
    for index, message in enumerate(sent.messages):
        assert message.role == ("user", "assistant")[index % 2], "roles do not alternate"
        assert message.content, "an empty message"
        if message.role == "user":
            _assert_user(message, calls)
            calls = []
        else:
            assert not calls
            calls = _assert_answer(message, bound)
            ids.update(calls)
    assert not calls, "calls without results"
    assert max(ids.values(), default=1) == 1, "ids repeat"
    assert_idempotent(sent, state, target, thinking)


def _assert_user(message: Message, calls: list[str]) -> None:
    results = message.tool_results
    assert [block.tool_use_id for block in results] == calls, (
        "not each call answered once, in order"
    )
    assert list(message.content[: len(results)]) == results, "results do not come first"
    for block in message.content[len(results) :]:
        assert isinstance(block, Text | Image)
        assert not isinstance(block, Text) or block.text.strip(), "an empty text"


def _assert_answer(message: Message, bound: list[Any]) -> list[str]:
    assert any(isinstance(block, Text | ToolUse) for block in message.content), "only reasoning"
    for block in message.content:
        assert isinstance(block, Text | Thinking | RedactedThinking | ToolUse)
        if isinstance(block, Text):
            assert block.text.strip(), "an empty text"
        if isinstance(block, ToolUse):
            assert _FITS.fullmatch(block.id)
            assert _FITS.fullmatch(block.name)
            assert isinstance(msgspec.json.decode(block.input), dict), "input is not an object"
            assert isinstance(json.loads(block.input), dict)
        if isinstance(block, Thinking | RedactedThinking):
            assert block in bound, "reasoning that this model did not give in a whole answer"
            assert isinstance(block, RedactedThinking) or block.signature or block.provider_data
        elif block.provider_data is not None:
            assert any(other.provider_data == block.provider_data for other in bound)
    return [block.id for block in message.tool_uses]


def _bound_blocks(state: State, target: ModelRef) -> list[Any]:
    return [
        block
        for item in state.items
        if item.asked == target and item.stop_reason not in ("aborted", "error")
        for block in item.message.content
        if isinstance(block, Text | Thinking | RedactedThinking | ToolUse)
    ]


def assert_idempotent(sent: View, state: State, target: ModelRef, thinking: bool) -> None:
    assert view(state, target, thinking=thinking) == sent


REFUSALS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "anthropic": refusal_anthropic,
    "chat": refusal_chat,
    "responses": refusal_responses,
}


def assert_accepted(sent: View, *wires: str, thinking: bool = True) -> None:
    """What a wire makes of a view that ends in a prompt is what its server takes."""
    request = Request(system=sent.system, messages=sent.messages, thinking=thinking)
    for wire in wires or REFUSALS:
        settings = ProviderSettings(
            name=wire,
            type="anthropic" if wire == "anthropic" else "openai",
            model="m",
            base_url="http://127.0.0.1:1",
            wire="responses" if wire == "responses" else "chat",
            thinking_budget=2048,
        )
        provider: Any = connect(settings, {})
        body = provider._body(request)
        assert REFUSALS[wire]({**body, "stream": True}) is None
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


def check(state: State) -> None:
    for target in (*TARGETS, CLAUDE):
        for thinking in (True, False):
            sent = view(state, target, thinking=thinking)
            assert_valid(sent, state, target, thinking=thinking)


def sent_to(log: RawLog, target: ModelRef = CLAUDE, *, thinking: bool = True) -> View:
    """The view of a log, which is valid, and after one more prompt accepted on every wire."""
    state = log.state()
    check(state)
    asked = copy.deepcopy(log)
    asked.prompt("and now?")
    assert_accepted(view(asked.state(), target, thinking=thinking), thinking=thinking)
    return view(state, target, thinking=thinking)


def words(sent: View) -> list[str]:
    """What is sent, a string a message; results and calls by their ids."""
    return ["|".join(map(_word, message.content)) for message in sent.messages]


def _word(block: Any) -> str:
    match block:
        case Text():
            return str(block.text)
        case ToolUse():
            return f"<{block.id}>"
        case ToolResult():
            return f"{block.tool_use_id}={block.content}"
    return type(block).__name__


WIRES = {"anthropic": "anthropic", "openai": "responses", "local": "chat"}


# -- whatever happens ----------------------------------------------------------------------------


@examples(200)
@given(histories(*TALK, *TALK, *JUMPS, *ACCIDENTS, "import", "note", most=18))
def test_the_view_is_valid_for_every_model_whatever_happened(steps: list[Step]) -> None:
    with story() as told:
        told.play(steps)
        before = told.bytes()
        check(told.session.state)
        if told.session.born:
            check(replayed(told.session.path, lazily=True))
        assert told.bytes() == before, "a look changed the log"


@examples(150)
@given(histories(*TALK, *TALK, *JUMPS, *ACCIDENTS, "import", "note", most=18))
def test_the_next_prompt_is_accepted_on_every_wire_whatever_happened(steps: list[Step]) -> None:
    with story() as told:
        told.play([*steps, ("prompt", 1, "Hello")])
        for target in TARGETS:
            for thinking in (True, False):
                sent = view(told.session.state, target, thinking=thinking)
                assert sent.messages[-1].role == "user"
                assert_accepted(sent, WIRES[target.provider], thinking=thinking)


@examples(120)
@given(CHANGES)
def test_whatever_bytes_change_the_view_is_valid(changes: list[tuple[int, int, bytes]]) -> None:
    with contextlib.suppress(NotASession):
        check(state_of(changed(everything().data, changes)))


@examples(80)
@given(histories("prompt", "answer", "tools", most=8), st.integers(0, 100))
@example([("tools", 3, "Hello")], 50)
def test_a_session_killed_at_any_byte_goes_on(steps: list[Step], percent: int) -> None:
    with story() as told:
        told.play([("prompt", 1, "Hello"), *steps])
        before = told.bytes()
        told.play([("kill", len(before) * percent // 100, ""), ("reopen", 1, "")])
        if told.session.born:
            assert before.startswith(told.bytes().rstrip(b"\n"))
        told.play([("prompt", 1, "Go on")])
        check(told.session.state)
        last = view(told.session.state, ANTHROPIC).messages[-1]
        assert last.text.endswith("Go on")


HEALTHY = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=6)


@examples(60)
@given(HEALTHY)
def test_of_a_healthy_session_the_view_is_the_conversation(turns: list[tuple[int, int]]) -> None:
    log = RawLog()
    log.system("be brief")
    for turn, (rounds, wide) in enumerate(turns):
        log.prompt("go")
        for round_ in range(rounds):
            names = [f"call_{turn}_{round_}_{n}" for n in range(wide + 1)]
            signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
            log.answer(signed, "so", *(use(name, '{"a": 1}') for name in names), stop="toolUse")
            for name in names:
                log.started(name)
            for name in names[:-1]:
                log.ended(name)
            log.results(*(result(name, isError=True) for name in names))
        log.answer("done")
    state = log.state()
    sent = view(state, CLAUDE)
    assert sent.system == "be brief"
    assert sent.messages == state.conversation.messages[1:]
    assert sent.changes == ()


# -- interrupted calls ---------------------------------------------------------------------------


def test_an_unanswered_call_is_answered_with_what_is_known_of_it() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b", "c")
    log.started("a")
    log.started("b")
    log.ended("b", "its own result")
    log.prompt("y")
    sent = sent_to(log)
    first, second, third, said = sent.messages[2].content
    assert isinstance(first, ToolResult)
    assert (first.tool_use_id, first.is_error) == ("a", True)
    assert "may or may not have run" in first.content
    assert second == ToolResult(tool_use_id="b", content="its own result", duration_ms=5)
    assert isinstance(third, ToolResult)
    assert third.is_error
    assert "never started" in third.content
    assert said == Text(text="y")
    assert any("interrupted" in change and "(2 times)" in change for change in sent.changes)
    assert any("logged alone" in change for change in sent.changes)


def test_a_session_that_ends_in_an_open_call_can_be_sent_as_it_is() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a")
    sent = sent_to(log)
    assert [message.role for message in sent.messages] == ["user", "assistant", "user"]


def test_a_partial_batch_is_completed_and_a_late_result_replaces_what_was_made_up() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.results(result("b", "B"))
    assert words(sent_to(log))[2].startswith("a=[interrupted")
    log.prompt("y")
    log.answer("z")
    log.results(result("a", "A, late"))
    assert words(sent_to(log)) == ["x", "<a>|<b>", "a=A, late|b=B|y", "z"]


def test_results_are_sent_in_the_order_of_the_calls_and_before_words() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.results(text("by the way"), result("b", "B"), result("a", "A"))
    assert words(sent_to(log))[2] == "a=A|b=B|by the way"


def test_results_again_and_results_without_a_call_are_left_out() -> None:
    log = RawLog()
    log.prompt("x")
    log.results(result("never", "no call"))
    log.calls("a")
    log.results(result("a", "first"), result("a", "again"))
    log.answer("done")
    log.results(result("a", "and again"))
    sent = sent_to(log)
    assert words(sent) == ["x", "<a>", "a=first", "done"]
    assert any("without its call" in change and "(3 times)" in change for change in sent.changes)


def test_calls_of_an_answer_that_was_cut_short_are_left_out() -> None:
    for stop in ("aborted", "error"):
        log = RawLog()
        log.prompt("x")
        log.answer("so", use("a", '{"half'), stop=stop)
        log.prompt("y")
        assert words(sent_to(log)) == ["x", "so", "y"]
        only = RawLog()
        only.prompt("x")
        only.answer(use("a"), stop=stop)
        only.prompt("y")
        assert words(sent_to(only)) == ["x|y"]


def test_a_second_resume_sends_the_same() -> None:
    with story() as told:
        told.play([("prompt", 1, "Hello"), ("tools", 15 * 512 + 15, "x"), ("reopen", 0, "")])
        first = view(told.session.state, ANTHROPIC)
        told.play([("reopen", 1, "")])
        assert view(told.session.state, ANTHROPIC) == first


# -- ids, names and inputs that do not fit -------------------------------------------------------


def test_ids_that_repeat_are_renamed_call_and_result_alike() -> None:
    log = RawLog()
    for answer in ("one", "two", "three"):
        log.prompt("x")
        log.calls("same")
        log.results(result("same", answer))
    log.prompt("x")
    log.calls("same-2")
    log.results(result("same-2", "four"))
    sent = words(sent_to(log))
    assert [word for word in sent if "=" in word] == [
        "same=one|x",
        "same-2=two|x",
        "same-3=three|x",
        "same-2-2=four",
    ]
    assert sent[1::2] == ["<same>", "<same-2>", "<same-3>", "<same-2-2>"]


def test_two_calls_of_one_answer_with_one_id_both_have_a_result() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("same", "same")
    log.results(result("same", "one"), result("same", "two"))
    sent = sent_to(log)
    assert words(sent)[1] == "<same>|<same-2>"
    assert words(sent)[2] == "same=one|same-2=two"


@pytest.mark.parametrize(
    ("name", "to_its_own", "to_others"),
    [
        ("call.1:2", "call_1_2", "call_1_2"),
        ("", "call", "call"),
        ("\u00e9" * 3, "___", "___"),
        # Others take 40 characters at most; the model that gave a longer one takes it back.
        ("chatcmpl-tool-" + "f" * 32, "chatcmpl-tool-" + "f" * 32, "chatcmpl-tool-" + "f" * 18),
        ("x" * 65, "x" * 32, "x" * 32),
    ],
)
def test_ids_that_do_not_fit_are_renamed(name: str, to_its_own: str, to_others: str) -> None:
    log = RawLog()
    log.prompt("x")
    log.calls(name)
    log.results(result(name, "A"))
    assert words(sent_to(log))[2] == f"{to_its_own}=A"
    assert words(sent_to(log, OPENAI))[2] == f"{to_others}=A"
    assert sent_to(log, OPENAI).changes


@pytest.mark.parametrize(
    ("name", "sent"), [("read me", "read_me"), ("", "unknown"), ("x" * 70, "x" * 64)]
)
def test_tool_names_that_do_not_fit_are_changed_and_said(name: str, sent: str) -> None:
    log = RawLog()
    log.prompt("x")
    log.answer(use("a", name=name), stop="toolUse")
    seen = sent_to(log)
    assert seen.messages[1].tool_uses[0].name == sent
    assert any("name" in change for change in seen.changes)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        (" \n", "{}"),
        ("not json", '{"raw": "not json"}'),
        ('{"half', '{"raw": "{\\"half"}'),
        ("[1]", '{"raw": "[1]"}'),
        ("null", '{"raw": "null"}'),
        ('{"a": NaN}', '{"raw": "{\\"a\\": NaN}"}'),
        ('{"a": 1e999}', '{"raw": "{\\"a\\": 1e999}"}'),
        ('{"a": "\\ud800"}', '{"raw": "{\\"a\\": \\"\\\\ud800\\"}"}'),
        ('{"a": "line\nbreak"}', '{"raw": "{\\"a\\": \\"line\\nbreak\\"}"}'),
        ('{"a":' + "[" * 3000 + "]" * 3000 + "}", None),
        ('{"a":' + "9" * 5000 + "}", None),
    ],
)
def test_an_input_that_is_no_json_object_is_wrapped(given: str, sent: str | None) -> None:
    log = RawLog()
    log.prompt("x")
    log.answer(use("a", given), stop="toolUse")
    seen = sent_to(log)
    wrapped = seen.messages[1].tool_uses[0].input
    assert wrapped == (sent if sent is not None else json.dumps({"raw": given}))
    assert any("wrapped" in change for change in seen.changes) == (wrapped != given)


# -- reasoning -----------------------------------------------------------------------------------


def reasoned(*blocks: dict[str, Any], **fields: Any) -> RawLog:
    log = RawLog()
    log.prompt("x")
    log.answer(*blocks, "so", **fields)
    log.prompt("y")
    return log


SIGNED = {"type": "thinking", "thinking": " h\u2028m ", "signature": sign(" h\u2028m ")}


def first_answer(log: RawLog, target: ModelRef, **more: Any) -> list[str]:
    state = log.state()
    check(state)
    return words(view(state, target, **more))[1].split("|")


def test_reasoning_goes_back_to_the_model_that_was_asked_byte_for_byte() -> None:
    log = reasoned(
        SIGNED,
        {"type": "redactedThinking", "data": "r=="},
        inner={"provider": "anthropic", "model": "claude-1-20260101"},
    )
    sent = view(log.state(), CLAUDE)
    assert sent.messages[1].content[:2] == (
        Thinking(thinking=" h\u2028m ", signature=sign(" h\u2028m ")),
        RedactedThinking(data="r=="),
    )
    assert sent.changes == ()


@pytest.mark.parametrize(
    "other",
    [
        OPENAI,
        LOCAL,
        ModelRef("anthropic", "claude-1-20260101"),
        ModelRef("anthropic", "claude-1", "https://e.test"),
    ],
)
def test_no_other_model_or_endpoint_is_sent_it(other: ModelRef) -> None:
    log = reasoned(SIGNED, {"type": "redactedThinking", "data": "r=="}, inner={"model": "claude-1"})
    assert first_answer(log, other) == ["so"]
    assert any("reasoning" in change for change in view(log.state(), other).changes)


def test_switching_there_and_back_brings_it_back() -> None:
    log = reasoned(SIGNED)
    log.answer("z")
    log.prompt("and", provider="openai", model="gpt-5")
    log.answer("other")
    assert first_answer(log, OPENAI) == ["so"]
    log.prompt("back", provider="anthropic", model="claude-1")
    assert first_answer(log, CLAUDE) == ["Thinking", "so"]


def test_reasoning_behind_a_gap_may_be_another_models_and_is_not_sent() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer("y")
    log.bad(instead=True)  # a prompt, to whatever model
    log.answer(SIGNED, "so")
    assert words(sent_to(log))[-1] == "so"
    log.prompt("z")
    log.answer(SIGNED, "known")
    assert words(sent_to(log))[-1] == "Thinking|known"


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_reasoning_of_an_answer_that_was_cut_short_is_never_sent(stop: str) -> None:
    assert first_answer(reasoned(SIGNED, stop=stop), CLAUDE) == ["so"]


def test_unsigned_reasoning_is_never_sent() -> None:
    log = reasoned({"type": "thinking", "thinking": "hm"})
    assert first_answer(log, CLAUDE) == ["so"]


def test_the_retry_is_without_reasoning_and_without_what_is_bound_to_it() -> None:
    log = reasoned(
        {"type": "thinking", "thinking": "", "providerData": {"id": "rs_1"}},
        {"type": "text", "text": "bound", "providerData": {"id": "msg_1"}},
        use("a", providerData={"id": "fc_1"}),
        stop="toolUse",
    )
    whole = view(log.state(), CLAUDE).messages[1].content
    assert [getattr(block, "provider_data", None) for block in whole] == [
        {"id": "rs_1"},
        {"id": "msg_1"},
        {"id": "fc_1"},
        None,
    ]
    for bare in (view(log.state(), CLAUDE, thinking=False), view(log.state(), OPENAI)):
        content = bare.messages[1].content
        assert [type(block) for block in content] == [Text, ToolUse, Text]
        assert all(getattr(block, "provider_data", None) is None for block in content)


def test_an_answer_of_reasoning_alone_is_left_out() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer(SIGNED)
    log.prompt("y")
    assert words(sent_to(log)) == ["x|y"]


def test_two_answers_in_a_row_become_one_without_reasoning() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer(SIGNED, {"type": "text", "text": "one", "providerData": {"id": "msg_1"}})
    log.answer(SIGNED, "two", use("a", providerData={"id": "fc_1"}), stop="toolUse")
    log.results(result("a", "A"))
    sent = sent_to(log)
    assert words(sent) == ["x", "one|two|<a>", "a=A"]
    blocks: tuple[Any, ...] = sent.messages[1].content
    assert [block.provider_data for block in blocks] == [None, None, None]


# -- words ---------------------------------------------------------------------------------------


def test_answers_with_nothing_to_say_are_left_out() -> None:
    log = RawLog()
    log.prompt("x")
    log.answer()
    log.prompt("y")
    log.answer(" \n")
    log.prompt("z")
    assert words(sent_to(log)) == ["x|y|z"]


def test_a_message_without_words_still_stands_where_it_was() -> None:
    log = RawLog()
    log.said("user", {"type": "sound", "data": "..."})
    log.answer("what?")
    log.prompt("  ")
    sent = sent_to(log)
    assert words(sent) == [WORDLESS, "what?", WORDLESS]
    assert sent.changes


def test_blocks_of_unknown_type_are_never_sent() -> None:
    log = RawLog()
    log.said("user", text("see"), {"type": "sound", "data": "..."})
    log.answer({"type": "hologram"}, "I see")
    sent = sent_to(log)
    assert words(sent) == ["see", "I see"]
    assert any("unknown type" in change and "(2 times)" in change for change in sent.changes)


def test_the_last_system_text_is_sent_and_only_it() -> None:
    log = RawLog()
    log.system("old")
    log.prompt("x")
    log.system("new")
    sent = sent_to(log)
    assert sent.system == "new"
    assert words(sent) == ["x"]
    log.system("  ")
    assert sent_to(log).system is None


def test_what_had_streamed_before_a_kill_is_sent_as_what_was_shown() -> None:
    log = RawLog()
    log.prompt("x")
    log.partial("hm", 0, "thinking")
    log.partial("Hel", 1)
    log.partial("lo", 1)
    log.prompt("y")
    assert words(sent_to(log)) == ["x", "Hello", "y"]


# -- gaps ----------------------------------------------------------------------------------------


def test_a_gap_is_marked_where_it_is() -> None:
    log = RawLog()
    log.prompt("x")
    log.bad(instead=True)
    log.prompt("y")
    first, gap, last = words(sent_to(log))[0].split("|")
    assert (first, last) == ("x", "y")
    assert gap.startswith("[awl: line 3")


def test_a_gap_inside_a_batch_moves_behind_its_results() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.started("a")
    log.bad(instead=True)
    log.results(result("a", "A"), result("b", "B"))
    sent = words(sent_to(log))
    assert sent[1] == "<a>|<b>"
    assert sent[2].startswith("a=A|b=B|[awl: line 5")


def test_a_lost_message_of_calls_leaves_no_result_behind() -> None:
    log = RawLog()
    log.prompt("x")
    log.bad(instead=True)
    log.results(result("a", "A"))
    log.answer("done")
    sent = words(sent_to(log))
    assert sent[0].startswith("x|[awl: line 3")
    assert sent[1:] == ["done"]


def test_a_lost_first_prompt_is_marked_before_its_answer() -> None:
    log = RawLog()
    log.bad(instead=True)
    log.answer("done")
    sent = words(sent_to(log))
    assert sent[0].startswith("[awl: line 2")
    assert sent[1] == "done"


# -- condensation and compaction -----------------------------------------------------------------


def test_summaries_go_with_the_system_text_where_a_prompt_follows() -> None:
    log = RawLog()
    log.system("be brief")
    log.prompt("x")
    log.answer("y")
    log.condensed(2, 3, "letters")
    log.prompt("z")
    sent = sent_to(log)
    assert sent.system is not None
    assert sent.system.startswith("be brief\n\n")
    assert "Intent: letters" in sent.system
    assert words(sent) == ["z"]


def test_summaries_are_the_users_words_framed_as_a_record_where_none_follows() -> None:
    for follows in (False, True):
        log = RawLog()
        log.system("be brief")
        log.prompt("x")
        log.answer("y")
        if follows:
            log.answer("z")
        log.condensed(2, 3, "letters")
        sent = sent_to(log)
        assert sent.system == "be brief"
        assert words(sent)[0].startswith("[A record of what came before")
        assert "Intent: letters" in words(sent)[0]
        assert words(sent)[1:] == (["z"] if follows else [])


def test_a_range_that_cuts_between_a_call_and_its_result_still_gives_a_valid_view() -> None:
    log = RawLog()
    log.prompt("x")  # 1
    log.calls("a")  # 2
    log.results(result("a", "A"))  # 3
    log.answer("done")  # 4
    for lo, hi in ((1, 2), (3, 4), (2, 2), (3, 3)):
        log.condensed(lo, hi)
        sent_to(log)
        del log.lines[-1]


def test_legacy_texts_are_a_record() -> None:
    log = RawLog()
    log.add("import", source="legacy", messageCount=1, messages=[{"role": "user", "text": "hi"}])
    log.prompt("x")
    sent = sent_to(log)
    assert sent.system is not None
    assert sent.system.endswith("user: hi")


def test_cleared_output_is_no_longer_sent_and_said() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.results(result("a", "long", isError=True), result("b", "longer"))  # 3
    log.prompt("y")
    log.calls("c")
    log.results(result("c", "short"))
    log.add("compaction", tier="soft", clearedCount=1, cleared=[3])
    sent = sent_to(log)
    assert words(sent)[2] == f"a={CLEARED}|b={CLEARED}|y"
    assert sent.messages[2].tool_results[0].is_error
    assert words(sent)[4] == "c=short"
    assert any("old tool output" in change for change in sent.changes)


def test_an_empty_session_sends_nothing() -> None:
    assert view(RawLog().state(), ELSEWHERE) == View(None, (), ())


def test_images_stay_with_words_and_results() -> None:
    image = {"type": "image", "mimeType": "image/png", "blob": {"blob": "0" * 64, "size": 1}}
    log = RawLog()
    log.said("user", text("see"), image)
    log.calls("a")
    log.results(result("a", "A", images=[image]))
    sent = view(log.state(), CLAUDE)
    assert isinstance(sent.messages[0].content[1], Image)
    assert len(sent.messages[2].tool_results[0].images) == 1


def test_content_from_outside_is_sent_as_it_was_stored() -> None:
    hard = "nul \x00 esc \x1b[31m sep \u2028\u2029\x85 end"
    with story() as told:
        told.session.append_message(text_message("user", hard + "\ud800"))
        sent = view(told.session.state, ANTHROPIC)
        assert sent.messages[0].text == hard + "\ufffd"
        assert_accepted(sent)
