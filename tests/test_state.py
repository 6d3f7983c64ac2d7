"""The fold: what each entry does, what damage does not do, and that all ways to fold agree."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from histories import (
    ACCIDENTS,
    ANTHROPIC,
    CWD,
    FORKS,
    JUMPS,
    NAMING,
    TALK,
    TARGETS,
    Step,
    examples,
    facts,
    histories,
    read_line_by_line,
    replayed,
    spoil,
    story,
)
from hypothesis import given
from hypothesis import strategies as st
from rawlog import CHANGES, RawLog, changed, everything, result, said, state_of, text, use

from awl.conversation import Message, ModelRef, Text, Thinking, text_message
from awl.entries import MessageEntry, ToolCallEntry, UnknownEntry
from awl.errors import NotASession
from awl.replay import damage_notices, read
from awl.session import Session
from awl.state import NO_MODEL, State, summary_text
from awl.view import View, view

GAP = "[awl: "
MISSING = "[awl: an entry is missing from the log here]"


def seqs(state: State) -> list[int]:
    return [state.seqs[position] for position in state.path]


# -- what each entry does ------------------------------------------------------------------------


def test_an_empty_session_has_its_headers_model_and_nothing_else() -> None:
    state = RawLog(endpoint="https://e.test").state()
    assert state.active_model == ModelRef("anthropic", "claude-1", "https://e.test")
    assert (state.conversation.messages, state.leaf_id, state.next_seq) == ((), None, 1)
    assert not state.interrupted


def test_the_conversation_is_what_was_said_in_order() -> None:
    log = RawLog()
    log.system("be brief")
    log.prompt("hello")
    log.answer("hi")
    assert log.state().conversation.messages == (
        text_message("system", "be brief"),
        text_message("user", "hello"),
        text_message("assistant", "hi"),
    )


def test_the_last_system_message_on_the_path_is_in_force_and_all_are_kept() -> None:
    log = RawLog()
    log.system("old")
    log.prompt("hello")
    log.system("new")
    assert said(log.state()) == ["old", "hello", "new"]


@pytest.mark.parametrize(
    ("changes", "active"),
    [
        ([("prompt", "openai", "gpt")], ModelRef("openai", "gpt")),
        (
            [("change", "openai", "gpt", "https://e.test")],
            ModelRef("openai", "gpt", "https://e.test"),
        ),
        (
            # A user message says nothing of the endpoint: it stays while the provider does.
            [("change", "openai", "gpt", "https://e.test"), ("prompt", "openai", "gpt-2")],
            ModelRef("openai", "gpt-2", "https://e.test"),
        ),
        (
            [("change", "openai", "gpt", "https://e.test"), ("prompt", "local", "smol")],
            ModelRef("local", "smol"),
        ),
        ([("prompt", "openai", "gpt"), ("prompt", None, None)], ModelRef("openai", "gpt")),
        ([("prompt", None, None)], ModelRef("anthropic", "claude-1")),
    ],
)
def test_the_active_model_is_the_last_user_message_or_a_later_change(
    changes: list[tuple[str | None, ...]], active: ModelRef
) -> None:
    log = RawLog()
    for kind, *values in changes:
        if kind == "change":
            provider, model, endpoint = values
            log.add("modelChange", provider=provider, model=model, endpoint=endpoint)
        else:
            log.prompt("x", provider=values[0] or "drop", model=values[1] or "drop")
    assert log.state().active_model == active


def test_a_header_endpoint_holds_while_its_provider_does() -> None:
    log = RawLog(endpoint="https://e.test")
    log.prompt("x")
    assert log.state().active_model == ModelRef("anthropic", "claude-1", "https://e.test")
    log.prompt("x", provider="openai", model="gpt")
    assert log.state().active_model == ModelRef("openai", "gpt")


def test_a_rewind_takes_the_model_back_with_it() -> None:
    log = RawLog()
    first = log.prompt("x")
    log.add("modelChange", provider="openai", model="gpt", thinkingLevel="high")
    log.prompt("y", provider="openai", model="gpt")
    assert log.state().thinking_level == "high"
    log.add("rewind", parentId=first)
    assert log.state().active_model == ModelRef("anthropic", "claude-1")
    assert log.state().thinking_level is None


def test_an_answer_belongs_to_the_model_that_was_asked_not_to_the_one_switched_to_since() -> None:
    log = RawLog()
    log.prompt("x")
    log.add("modelChange", provider="openai", model="gpt")
    log.answer("late", inner={"provider": "else", "model": "else-2"})
    assert log.state().items[-1].asked == ModelRef("anthropic", "claude-1")


def test_title_label_and_cwd_count_wherever_they_stand() -> None:
    log = RawLog()
    first = log.prompt("x")
    log.add("title", title="one")
    log.add("title", title="two")
    log.add("label", targetId=first, label="start")
    log.add("cwdChange", cwd="/elsewhere")
    log.add("rewind", parentId=first)
    state = log.state()
    assert (state.given_title, state.labels, state.cwd) == ("two", {first: "start"}, "/elsewhere")


def test_the_directory_is_the_headers_in_bytes_where_its_name_is_not_utf8() -> None:
    assert RawLog(cwd="/a/\ufffd", cwdBytes="L2Ev/w==").state().cwd == "/a/\udcff"
    assert RawLog(cwd="/a", cwdBytes="not base64!").state().cwd == "/a"


def test_usage_counts_every_own_turn_and_a_forks_inherited_ones_apart() -> None:
    log = RawLog(forkedFrom={"sessionId": "x", "seq": 3})
    first = log.prompt("x")
    log.answer("a", inner={"usage": {"input": 100, "output": 10}})
    log.condensed(1, 2, usage={"input": 7, "output": 1})
    log.answer("b", inner={"usage": {"input": 50, "output": 5}})
    log.add("rewind", parentId=first)
    log.answer("c", inner={"usage": {"input": 1, "output": 1}})
    tokens = log.state().tokens
    assert (tokens.own_input, tokens.own_output) == (51, 6)
    assert (tokens.inherited_input, tokens.inherited_output) == (107, 11)


def test_only_a_message_has_usage_whatever_another_line_pretends() -> None:
    log = RawLog()
    log.partial("x", message={"role": "user", "content": [], "usage": {"input": 1, "output": 1}})
    assert log.state().tokens.own_input == 0


def test_updated_is_the_last_thing_that_happened_not_the_last_name_given() -> None:
    log = RawLog()
    log.prompt("x", timestamp="2026-05-01T00:00:00.000Z")
    log.add("title", title="t", timestamp="2026-06-01T00:00:00.000Z")
    log.add("forkPoint", newSessionId="y", at=1, timestamp="2026-06-02T00:00:00.000Z")
    log.add("end", reason="user_quit", timestamp="2026-06-03T00:00:00.000Z")
    assert log.state().updated == "2026-05-01T00:00:00.000Z"
    log.add("rewind", parentId="e1", timestamp="2026-05-02T00:00:00.000Z")
    assert log.state().updated == "2026-05-02T00:00:00.000Z"


def test_clocks_that_jump_change_no_order() -> None:
    log = RawLog()
    log.prompt("first", timestamp="2099-01-01T00:00:00.000Z")
    log.answer("second", timestamp="1970-01-01T00:00:00.000Z")
    log.prompt("third", timestamp="no time at all")
    assert said(log.state()) == ["first", "second", "third"]


def test_the_turn_is_the_last_in_the_file_also_off_the_path() -> None:
    log = RawLog()
    log.prompt("x")
    log.prompt("y")
    log.add("rewind", parentId=None)
    assert log.state().turn == 2
    assert state_of(log.data.replace(b'"turnId":2', b'"turnId":99999999999999999')).turn == 1


def test_an_unknown_entry_takes_part_in_the_chain_and_says_nothing() -> None:
    log = RawLog()
    log.prompt("x")
    log.add("hologram", depth=3)
    log.answer("y")
    state = log.state()
    assert said(state) == ["x", "y"]
    assert seqs(state) == [1, 2, 3]
    assert isinstance(state.body(1), UnknownEntry)
    assert not state.all_findings


def test_a_rewind_goes_back_and_a_rewind_to_nothing_begins_anew() -> None:
    log = RawLog()
    first = log.prompt("one")
    log.answer("two")
    log.add("rewind", parentId=first)
    log.answer("three")
    assert said(log.state()) == ["one", "three"]
    log.add("rewind", parentId=None)
    assert said(log.state()) == []
    log.prompt("four")
    assert said(log.state()) == ["four"]
    assert log.state().message_count == 4


def test_compaction_names_what_is_no_longer_sent_and_leaves_what_was_said() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a")
    log.results(result("a", "long output"))
    before = log.state().conversation
    log.add("compaction", tier="soft", clearedCount=1, cleared=[3])
    assert log.state().cleared == {3}
    assert log.state().conversation == before


# -- partials ------------------------------------------------------------------------------------


def test_what_had_streamed_becomes_an_aborted_answer_joined_by_index() -> None:
    log = RawLog()
    log.prompt("x")
    log.partial("hm", 0, "thinking")
    log.partial("Hel", 1)
    log.partial(" hm", 0, "thinking")
    log.partial("lo", 1)
    item = log.state().items[-1]
    assert item.message.content == (Thinking(thinking="hm hm"), Text(text="Hello"))
    assert (item.kind, item.stop_reason, item.seq) == ("partial", "aborted", 2)
    assert log.state().interrupted


def test_an_answer_voids_what_had_streamed_and_any_other_message_keeps_it() -> None:
    for role, expected in (
        ("assistant", ["x", "whole"]),
        ("user", ["x", "Hel", "whole"]),
        ("system", ["x", "Hel", "whole"]),
    ):
        log = RawLog()
        log.prompt("x")
        log.partial("Hel")
        log.said(role, text("whole"))
        assert said(log.state()) == expected, role


# -- condensation and import ---------------------------------------------------------------------


def condensed() -> RawLog:
    log = RawLog()
    log.system("be brief")  # 1
    log.prompt("one")  # 2
    log.answer("two")  # 3
    log.prompt("three")  # 4
    log.answer("four")  # 5
    return log


def test_a_condensation_replaces_its_range_where_that_stood_and_system_text_stays() -> None:
    log = condensed()
    log.condensed(1, 3, "numbers")
    log.prompt("five")
    state = log.state()
    kinds = [item.kind for item in state.items]
    assert kinds == ["message", "summary", "message", "message", "message"]
    assert said(state)[0] == "be brief"
    assert "numbers" in said(state)[1]
    assert said(state)[2:] == ["three", "four", "five"]


def test_a_summary_is_a_record_with_all_its_parts() -> None:
    log = condensed()
    log.add(
        "condensation",
        replaced=[2, 3],
        summary={
            "sessionIntent": "count",
            "filesModified": ["a.py"],
            "decisionsMade": ["use ints"],
            "openQuestions": ["why?"],
            "nextSteps": ["go on"],
        },
        tokensBefore=1,
        tokensAfter=1,
    )
    words = said(log.state())[1]
    assert "not a task" in words
    for part in ("count", "- a.py", "- use ints", "- why?", "- go on"):
        assert part in words


def test_a_second_condensation_replaces_what_the_first_left() -> None:
    log = condensed()
    log.condensed(2, 3, "first")  # 6
    log.condensed(4, 6, "second")  # the first one's entry lies in this range: it stays
    words = said(log.state())
    assert len(words) == 3
    assert "first" in words[1]
    assert "second" in words[2]


@pytest.mark.parametrize(
    ("lo", "hi", "why"),
    [
        (3, 4, "overlaps"),
        (2, 3, "overlaps"),
        (1, 9, "covers nothing"),
        (4, 3, "covers nothing"),
        (0, 0, "covers nothing"),
    ],
)
def test_a_range_that_overlaps_or_covers_nothing_is_ignored_and_reported(
    lo: int, hi: int, why: str
) -> None:
    log = condensed()
    log.condensed(2, 3, "first")
    before = said(log.state())
    log.condensed(lo, hi, "wrong")
    state = log.state()
    assert said(state) == before
    assert [finding.line for finding in state.all_findings] == [8]
    assert why in state.all_findings[0].text


def test_a_summary_that_a_later_one_absorbs_is_not_told_beside_it() -> None:
    log = condensed()
    log.condensed(2, 3, "first")  # 6
    log.condensed(4, 5, "both", absorbs=[6])  # 7
    (summary,) = (item for item in log.state().items if item.kind == "summary")
    assert "both" in summary.message.text
    assert [found[:2] for found in log.state().condensed] == [(2, 3), (4, 5)]
    assert not log.state().all_findings
    log.add("rewind", parentId="e6")
    (summary,) = (item for item in log.state().items if item.kind == "summary")
    assert "first" in summary.message.text


@pytest.mark.parametrize(
    ("replaced", "absorbs"), [((4, 5), [99, 2, -1]), ((6, 6), [6]), ((2, 3), [6])]
)
def test_a_summary_is_absorbed_only_by_one_that_stands_in_the_conversation(
    replaced: tuple[int, int], absorbs: list[int]
) -> None:
    log = condensed()
    log.condensed(2, 3, "first")  # 6
    log.condensed(*replaced, "other", absorbs=absorbs)
    summaries = [item.message.text for item in log.state().items if item.kind == "summary"]
    assert any("first" in text for text in summaries)


def test_what_streamed_before_a_condensed_range_stands_where_its_first_message_was() -> None:
    log = RawLog()
    log.prompt("one")
    log.partial("streamed")  # 2
    log.started("a")
    log.prompt("two")
    log.answer("three")
    log.condensed(3, 4)
    assert [item.kind for item in log.state().items] == [
        "message",
        "summary",
        "partial",
        "message",
    ]


def test_what_streamed_before_a_condensed_answer_is_void() -> None:
    log = RawLog()
    log.prompt("one")
    log.partial("streamed")  # 2
    log.started("a")
    log.answer("whole")
    log.prompt("two")
    log.answer("three")
    log.condensed(3, 5)
    assert [item.kind for item in log.state().items] == ["message", "summary", "message"]


def test_a_condensation_off_the_path_does_nothing() -> None:
    log = condensed()
    log.condensed(2, 3, "gone")
    log.add("rewind", parentId="e5")
    log.condensed(2, 3, "here")
    words = said(log.state())
    assert "here" in words[1]
    assert not any("gone" in word for word in words)
    assert not log.state().all_findings


def test_what_is_no_message_holds_although_it_is_condensed() -> None:
    log = condensed()
    log.add("modelChange", provider="openai", model="gpt", thinkingLevel="low")  # 6
    log.add("compaction", tier="soft", clearedCount=1, cleared=[3])  # 7
    log.condensed(6, 7)
    state = log.state()
    other = condensed()
    other.prompt("to another", provider="local", model="smol")
    other.condensed(2, 6)
    assert other.state().active_model == ModelRef("local", "smol")
    assert state.active_model == ModelRef("openai", "gpt")
    assert state.thinking_level == "low"
    assert state.cleared == {3}
    assert said(state)[:-1] == ["be brief", "one", "two", "three", "four"]
    assert state.items[-1].kind == "summary"


def test_a_condensed_answer_voids_what_had_streamed_of_it() -> None:
    log = RawLog()
    log.prompt("x")  # 1
    log.partial("Hel")  # 2
    log.answer("Hello")  # 3
    log.condensed(3, 3)
    log.prompt("y")
    assert [item.kind for item in log.state().items] == ["message", "summary", "message"]


def test_a_legacy_import_is_one_system_message_with_its_texts() -> None:
    log = RawLog()
    texts = [{"role": "user", "text": "hi"}, {"role": "assistant", "text": "hello"}]
    log.add("import", source="legacy", messageCount=2, messages=texts)
    log.prompt("x")
    state = log.state()
    first = "This session had 2 prior messages before durable logging existed."
    assert said(state) == [f"{first}\n\nuser: hi\n\nassistant: hello", "x"]
    assert state.items[0].message.role == "system"
    log.condensed(1, 2, "all")
    assert [item.kind for item in log.state().items] == ["summary"]


def test_another_programs_import_says_nothing_by_itself() -> None:
    log = RawLog()
    log.add("import", source="claude", messageCount=2)
    log.prompt("x")
    assert said(log.state()) == ["x"]


# -- tool calls ----------------------------------------------------------------------------------


def test_a_call_is_open_until_a_user_message_answers_it() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.started("a")
    log.ended("a")
    state = log.state()
    assert [call.use.id for call in state.open_calls] == ["a", "b"]
    assert state.interrupted
    log.results(result("a"), result("b"))
    assert log.state().open_calls == []
    assert log.state().interrupted, "the model has not answered"
    log.answer("done")
    assert not log.state().interrupted


@pytest.mark.parametrize("stop", ["aborted", "error"])
def test_an_answer_that_was_cut_short_calls_nothing_and_is_not_finished(stop: str) -> None:
    log = RawLog()
    log.prompt("x")
    log.answer("so", use("a"), stop=stop)
    state = log.state()
    assert state.open_calls == []
    assert state.interrupted


def test_a_result_belongs_to_the_nearest_earlier_call_that_is_unanswered() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("same")  # 2
    log.prompt("y")
    log.calls("same")  # 4
    log.results(result("same", "of the second"))
    log.results(result("same", "of the first, late"))
    log.results(result("same", "of none"))
    calls = [call for item in log.state().items for call in item.calls]
    assert [call.result.content for call in calls if call.result] == [
        "of the first, late",
        "of the second",
    ]


def test_the_result_that_the_model_saw_counts_before_the_one_logged_alone() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    log.ended("a", "alone", isError=True, durationMs=7)
    call = log.state().open_calls[0]
    alone = call.answer()
    assert alone is not None
    assert (alone.content, alone.is_error, alone.duration_ms) == ("alone", True, 7)
    assert call.answered_seq == 3
    log.results(result("a", "seen"), result("b"))
    call = log.state().items[1].calls[0]
    seen = call.answer()
    assert seen is not None
    assert (seen.content, call.answered_seq) == ("seen", 4)


def test_results_logged_alone_under_one_id_go_to_its_calls_in_order() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("same", "same", "other")
    log.ended("same", "one")
    log.ended("same", "two")
    log.ended("same", "of none")
    answers = [call.answer() for call in log.state().open_calls]
    assert [answer and answer.content for answer in answers] == ["one", "two", None]


def interrupted() -> RawLog:
    log = RawLog()
    log.prompt("x")
    log.calls("a", "b")
    return log


def status(log: RawLog) -> list[str]:
    state = log.state()
    return [state.call_status(call) for call in state.open_calls]


def test_not_started_is_said_of_calls_whose_turn_is_readable_to_its_end() -> None:
    log = interrupted()
    assert status(log) == ["not_started", "not_started"]
    log.started("a")
    assert status(log) == ["unknown", "not_started"]
    log.ended("a")
    assert status(log) == ["finished", "not_started"]
    log.prompt("y")
    log.answer("z")
    assert status(log) == ["finished", "not_started"]


def test_not_started_needs_a_turn_that_awl_recorded() -> None:
    log = RawLog(stamped=False)
    log.prompt("x")
    log.calls("a")
    assert status(log) == ["unknown"]


@pytest.mark.parametrize("seen", [b"garbage", b'{"type":"toolCall"'])
def test_not_started_needs_every_line_up_to_the_next_prompt(seen: bytes) -> None:
    log = interrupted()
    log.bad(seen)
    log.prompt("y")
    assert status(log) == ["unknown", "unknown"]
    after = interrupted()
    after.prompt("y")
    after.bad(seen)
    after.answer("z")
    assert status(after) == ["not_started", "not_started"]


def test_what_a_repair_could_not_read_is_a_gap_and_proves_nothing() -> None:
    log = RawLog()
    log.prompt("x")
    log.calls("a")
    log.add("gap", lines=1, size=30)
    log.add("revision", reason="repair", sourceId="other", changes=["a line could not be read"])
    state = log.state()
    assert state.items[-1].kind == "gap"
    assert said(state)[-1] == (
        "[awl: a line of the log (30 bytes) could not be repaired; what was said there is missing"
        " here]"
    )
    assert [state.call_status(call) for call in state.open_calls] == ["unknown"]


def test_not_started_needs_every_seq_up_to_the_next_prompt() -> None:
    log = interrupted()
    log.prompt("y", seq=4, parentId="e3")
    assert status(log) == ["unknown", "unknown"]


def test_a_fragment_at_the_end_was_never_acknowledged_so_no_tool_started_on_it() -> None:
    log = interrupted()
    state = state_of(log.data + b'{"type":"toolCall","id":"e3"')
    assert [state.call_status(call) for call in state.open_calls] == ["not_started"] * 2
    state = state_of(log.data + b'{"type":"toolCall","id":"e3"\n')
    assert [state.call_status(call) for call in state.open_calls] == ["unknown"] * 2


def test_a_start_anywhere_in_the_file_counts_also_off_the_path() -> None:
    log = interrupted()
    log.started("a")
    log.add("rewind", parentId="e2")
    assert status(log) == ["unknown", "unknown"], "the rewind cut the batch"


def test_a_rewind_into_a_batch_cuts_it() -> None:
    log = interrupted()
    log.results(result("a"), result("b"))
    log.add("rewind", parentId="e2")
    log.prompt("y")
    assert status(log) == ["unknown", "unknown"]


def test_a_fork_cuts_the_batch_that_its_parent_may_have_gone_on_with() -> None:
    forked = {"sessionId": "parent", "seq": 2}
    log = RawLog(forkedFrom=forked)
    log.prompt("x")
    log.calls("a")
    assert status(log) == ["unknown"]
    log.prompt("y")
    assert status(log) == ["unknown"]
    log.calls("b")
    assert status(log) == ["unknown", "not_started"]


def test_a_batch_that_ended_before_the_fork_is_not_cut() -> None:
    log = RawLog(forkedFrom={"sessionId": "parent", "seq": 3})
    log.prompt("x")
    log.calls("a")
    log.prompt("y")
    log.answer("z")
    assert status(log) == ["not_started"]


def test_lines_that_recovery_cut_leave_open_calls_unknown_to_readers_too(tmp_path: Path) -> None:
    path = interrupted().write(tmp_path)
    assert [read(path).call_status(call) for call in read(path).open_calls] == ["not_started"] * 2
    path.with_name(path.name + ".torn-2026-04-25T17-40-15-990Z").write_bytes(b"garbage\nrest")
    state = read(path)
    assert [state.call_status(call) for call in state.open_calls] == ["unknown"] * 2


# -- damage --------------------------------------------------------------------------------------


def test_a_bad_line_costs_itself_and_is_marked_where_it_was() -> None:
    for spoiled in (b"garbage", b"\0" * 40, b'{"type":"message","id":"e2"', b"[1]", b"\xff{}"):
        log = RawLog()
        log.prompt("one")
        log.bad(spoiled, instead=True)
        log.prompt("three")
        state = log.state()
        words = said(state)
        assert (words[0], words[2], len(words)) == ("one", "three", 3)
        assert words[1].startswith(f"{GAP}line 3 of the log ({len(spoiled)} bytes) is damaged")
        assert state.items[1].kind == "gap"
        assert [(bad.line, bad.acknowledged) for bad in state.damage] == [(3, True)]
        assert state.next_seq == 4


def test_an_inserted_line_that_explains_nothing_is_reported_and_marked_nowhere() -> None:
    log = RawLog()
    log.prompt("one")
    log.bad()
    log.answer("two")
    state = log.state()
    assert said(state) == ["one", "two"]
    assert len(state.damage) == 1
    assert not state.all_findings


def test_a_missing_line_hides_nothing_before_it_and_is_told() -> None:
    log = RawLog()
    for words in ("one", "two", "three", "four"):
        log.prompt(words)
    del log.lines[2]
    state = log.state()
    assert said(state) == ["one", MISSING, "three", "four"]
    assert [finding.line for finding in state.all_findings] == [3]
    notices = damage_notices(Path("x.jsonl"), state)
    assert "missing" in notices[0]
    assert "rewind" in notices[-1]


def test_a_missing_line_is_not_looked_for_in_damage_before_the_entry_that_precedes_it() -> None:
    log = RawLog()
    log.prompt("one")
    log.bad()
    log.prompt("two")
    log.prompt("three")
    log.prompt("four")
    del log.lines[4]
    assert said(log.state()) == ["one", "two", MISSING, "four"]


def test_every_line_may_be_lost_and_all_others_are_there() -> None:
    log = RawLog()
    for n in range(6):
        log.prompt(f"<{n}>")
    for lost in range(1, 6):
        for line in (b"garbage", None):
            lines = [*log.lines[: 1 + lost], *([line] if line else []), *log.lines[2 + lost :]]
            words = said(state_of(b"".join(line + b"\n" for line in lines)))
            expected = [f"<{n}>" for n in range(6) if n != lost]
            assert [word for word in words if not word.startswith(GAP)] == expected
            assert len(words) == (5 if lost == 5 else 6)


def test_a_child_of_a_lost_entry_later_in_the_file_is_attached_where_that_was() -> None:
    log = RawLog()
    log.prompt("one")
    log.bad(instead=True)  # e2
    log.answer("three")
    log.add("rewind", parentId="e2")
    log.answer("five")
    words = said(log.state())
    assert words[0] == "one"
    assert words[-1] == "five"
    assert "three" not in words


def test_a_rewind_to_a_lost_line_goes_before_that_line() -> None:
    log = RawLog()
    log.prompt("one")
    log.answer("two")
    log.bad(instead=True)  # e3, which nothing but the rewind names
    log.add("rewind", parentId="e3")
    log.answer("after")
    words = said(log.state())
    assert words[:2] == ["one", "two"]
    assert words[-1] == "after"


def test_a_lost_target_is_looked_for_in_damage_that_nothing_else_explains() -> None:
    log = RawLog()
    log.prompt("one")
    log.answer("two")
    log.bad(instead=True)  # e3
    log.add("rewind", parentId="e1")
    log.answer("other")
    log.add("rewind", parentId="e3")
    log.answer("after")
    words = said(log.state())
    assert (words[:2], words[-1], len(words)) == (["one", "two"], "after", 4)


def test_a_rewind_whose_target_has_no_place_goes_before_the_last_prompt() -> None:
    log = RawLog()
    log.prompt("one")
    log.answer("two")
    log.prompt("three")
    log.answer("four")
    log.add("rewind", parentId="lost")
    log.prompt("five")
    state = log.state()
    words = said(state)
    assert words[:2] == ["one", "two"]
    assert words[2].startswith("[awl: the point gone back to is missing")
    assert words[3:] == ["five"]
    assert "goes back to" in state.all_findings[0].text


def test_damage_that_is_accounted_for_is_not_where_a_lost_target_was() -> None:
    log = RawLog()
    log.prompt("one")
    log.bad(instead=True)
    log.answer("three")  # its parent was in the bad line
    log.prompt("four")
    log.add("rewind", parentId="lost")
    assert said(log.state())[-1].startswith("[awl: the point gone back to")
    assert "three" in said(log.state())


def test_a_person_is_told_that_damage_may_hide_a_rewind() -> None:
    log = RawLog()
    log.prompt("one")
    log.bad(instead=True)
    log.answer("three")
    notices = damage_notices(Path("x.jsonl"), log.state())
    assert "x.jsonl: line 3 (bytes " in notices[0]
    assert "rewind" in notices[-1]
    assert damage_notices(Path("x.jsonl"), RawLog().state()) == []


def test_a_parent_of_another_session_or_a_later_line_or_itself_is_bridged() -> None:
    for parent in ("deadbeef", "e3", "e2"):
        log = RawLog()
        log.prompt("one")
        log.answer("two", parentId=parent)  # e2
        log.prompt("three")  # e3
        words = said(log.state())
        assert [words[0], *words[-2:]] == ["one", "two", "three"], parent
        assert words[1] == MISSING


def test_parents_always_lie_before_so_nothing_can_go_in_circles() -> None:
    log = RawLog()
    log.prompt("one", name="x", parentId="z")
    log.prompt("two", name="y", parentId="x")
    log.prompt("three", name="z", parentId="y")
    log.prompt("four", name="x", seq=4, parentId="z")
    state = log.state()
    assert all(parent < position for position, parent in enumerate(state.parents))
    assert [word for word in said(state) if word != MISSING] == ["one", "two", "three", "four"]


def test_a_parent_means_the_nearest_earlier_entry_with_that_id() -> None:
    log = RawLog()
    log.prompt("old", name="same")
    log.prompt("between", name="other")
    log.prompt("new", name="same")
    log.add("rewind", parentId="same")
    assert said(log.state()) == ["old", "between", "new"]
    assert log.state().find("same") == 2


def test_a_line_seen_before_is_ignored_and_reported() -> None:
    log = RawLog()
    log.prompt("one")
    log.answer("two")
    log.lines.append(log.lines[2])
    log.prompt("three")
    state = log.state()
    assert said(state) == ["one", "two", "three"]
    assert (state.message_count, state.next_seq) == (3, 4)
    assert [(finding.line, "again" in finding.text) for finding in state.findings] == [(4, True)]


def test_a_doubled_stretch_of_the_file_is_ignored_whole() -> None:
    log = RawLog()
    for words in ("one", "two", "three"):
        log.prompt(words, name="same" if words != "two" else "other")
    log.lines.extend(log.lines[1:])
    state = log.state()
    assert said(state) == ["one", "two", "three"]
    assert (state.message_count, len(state.findings)) == (3, 3)


def test_a_seq_that_does_not_grow_is_reported_and_read() -> None:
    log = RawLog()
    log.prompt("one")
    log.answer("two")
    log.prompt("three", seq=2)
    state = log.state()
    assert said(state) == ["one", "two", "three"]
    assert [(finding.line, "grow" in finding.text) for finding in state.findings] == [(4, True)]
    assert state.next_seq == 3


def test_seqs_that_nobody_can_hold_are_not_believed() -> None:
    for seq in (-5, 0, 1 << 60, 1 << 70, "7", None, 1.5):
        log = RawLog()
        log.prompt("one")
        log.answer("two", seq=seq)
        assert log.state().seqs == [1, 2], seq


def test_a_second_header_is_reported_and_ignored() -> None:
    log = RawLog()
    log.prompt("one")
    log.lines.append(RawLog(cwd="/other", model="m2").lines[0])
    log.answer("two")
    state = log.state()
    assert (said(state), state.cwd) == (["one", "two"], "/home/dev/awl")
    assert [finding.line for finding in state.findings] == [3]


# -- the next seq --------------------------------------------------------------------------------


def test_the_next_seq_passes_over_every_line_that_may_have_been_acknowledged() -> None:
    log = RawLog()
    log.prompt("one")
    assert state_of(log.data + b"garbage\n\0\0\n\n  \nfragment").next_seq == 4
    assert state_of(log.data + b"fragment").next_seq == 2


def test_a_log_without_seqs_counts_its_bad_lines() -> None:
    log = RawLog(stamped=False)
    log.prompt("one")
    log.bad(instead=True)
    log.prompt("three")
    assert log.state().seqs == [1, 3]
    assert log.state().next_seq == 4


def lost_after(log: RawLog, lost_lines: int) -> int:
    state = log.state()
    state.settle(lost_lines)
    return state.next_seq


def test_lines_that_recovery_cut_are_passed_over_once() -> None:
    log = RawLog()
    log.prompt("one")
    assert lost_after(log, 2) == 4, "the process ended between recovery and the next append"
    log.prompt("two", seq=4)
    assert lost_after(log, 2) == 5, "the append after recovery passed over them"
    assert lost_after(log, 3) == 6, "one more was cut since"


def test_a_line_that_vanished_is_not_taken_for_one_that_recovery_cut() -> None:
    log = RawLog()
    for words in ("one", "two", "three"):
        log.prompt(words)
    del log.lines[2]
    assert lost_after(log, 1) == 5


def test_a_crash_between_recovery_and_the_next_append_uses_no_seq_twice(tmp_path: Path) -> None:
    log = RawLog(cwd=CWD)
    log.prompt("one")
    path = log.write(tmp_path, CWD)
    path.write_bytes(log.data + b"garbage that was acknowledged\n")
    for _ in range(2):
        session = Session.open(path)
        assert session.state.next_seq == 3
        session.close()
    session = Session.open(path)
    session.append_message(text_message("assistant", "two"))
    session.close()
    seqs = [json.loads(line).get("seq") for line in path.read_bytes().splitlines()]
    assert seqs == [None, 1, 3, 4]
    again = Session.open(path)
    assert again.state.next_seq == 5
    again.close()


# -- bodies left on disk -------------------------------------------------------------------------


def test_only_what_the_fold_needs_is_decoded(tmp_path: Path) -> None:
    log = condensed()
    log.condensed(2, 3)
    state = replayed(log.write(tmp_path), lazily=True)
    decoded = [isinstance(entry, MessageEntry) for entry in state.entries[:5]]
    assert decoded == [True, False, False, True, True]
    body = state.body(1)
    assert isinstance(body, MessageEntry)
    assert body.message.said() == text_message("user", "one")
    assert not isinstance(state.entries[1], MessageEntry), "a look keeps nothing"


def test_a_state_without_its_file_says_so() -> None:
    with pytest.raises(LookupError):
        State().read(0, 1)


def test_entries_between_seqs_come_in_file_order() -> None:
    log = condensed()
    bodies = list(log.state().between(2, 3))
    assert [body.seq for body in bodies] == [2, 3]


# -- all ways to fold agree ----------------------------------------------------------------------


def agree(steps: list[Step]) -> None:
    with story() as told:
        told.play(steps)
        if not told.session.born:
            return
        live, before = facts(told.session.state), told.bytes()
        eager = facts(replayed(told.session.path))
        lazy = facts(replayed(told.session.path, lazily=True))
        for fact, value in eager.items():
            assert live[fact] == value, f"live and replayed differ: {fact}"
            assert lazy[fact] == value, f"bodies on disk change: {fact}"
        assert facts(replayed(told.session.path)) == eager
        assert told.bytes() == before


@examples(120)
@given(histories(*TALK, *NAMING, *JUMPS))
def test_the_replayed_state_is_the_live_one(steps: list[Step]) -> None:
    agree(steps)


@examples(120)
@given(histories(*TALK, *JUMPS, *ACCIDENTS, *ACCIDENTS, most=20))
def test_the_replayed_state_is_the_live_one_whatever_happened_to_the_file(
    steps: list[Step],
) -> None:
    agree(steps)


@examples(100)
@given(
    histories(*TALK, *NAMING, *JUMPS, *JUMPS, *FORKS, *ACCIDENTS, least=8, most=20),
    st.sampled_from([1, 150, 500, 2000]),
)
def test_however_a_log_is_read_it_is_the_same_session(steps: list[Step], chunk: int) -> None:
    """At once or line by line, in pieces of any size, with all bodies, or only those needed."""
    with story() as told:
        told.play(steps)
        path = told.session.path
        if not path.exists() or read(path).header is None:
            return
        ways = {
            "live": told.session.state,
            "eager": replayed(path),
            "lazy": replayed(path, lazily=True),
            "as awl does it": replayed(path, lazily=None),
            "in pieces": replayed(path, chunk=chunk),
            "lazy, in pieces": replayed(path, lazily=True, chunk=chunk),
            "as awl does it, in pieces": replayed(path, lazily=None, chunk=chunk),
        }
        slow = read_line_by_line(path)
        if slow.header is not None:
            ways["line by line"] = slow
        expected = facts(ways.pop("live")), views(told.session.state)
        for way, state in ways.items():
            found = facts(state)
            for fact, value in expected[0].items():
                assert found[fact] == value, f"{way}: {fact}"
            assert views(state) == expected[1], way


@pytest.mark.parametrize("chunk", [1, 500, 1 << 20])
def test_a_last_line_that_lacks_its_newline_is_read_whole_in_every_way(
    tmp_path: Path, chunk: int
) -> None:
    log = RawLog()
    for n in range(3):
        log.prompt(f"question {n}")
        log.answer(f"answer {n}")
    path = log.write(tmp_path)
    path.write_bytes(log.data[:-1])
    expected = facts(read_line_by_line(path))
    assert expected["places"][-1][2] == path.stat().st_size
    for lazily in (False, True, None):
        assert facts(replayed(path, lazily=lazily, chunk=chunk)) == expected


def views(state: State) -> list[View]:
    return [view(state, target) for target in TARGETS]


@examples(60)
@given(histories(*TALK, *NAMING, *JUMPS), st.integers(0, 9999), st.integers(0, 7))
def test_a_damaged_line_hides_no_other(steps: list[Step], at: int, how: int) -> None:
    """Every entry that is still in the file is still in the state, and of a linear path still on
    it."""
    with story() as told:
        told.play([("prompt", 1, "Hello"), *steps])
        lines = told.bytes().split(b"\n")[1:-1]
        ids = [json.loads(line)["id"] for line in lines]
        header = told.bytes().split(b"\n")[0]
        at %= len(lines)
        spoil(lines, at, how)
        state = state_of(b"".join(line + b"\n" for line in (header, *lines)))
        kept = {entry.id for entry in state.entries}
        assert kept >= set(ids) - {ids[at]}
        if not any(kind == "rewind" for kind, _, _ in steps):
            assert len(state.path) == len(state.entries)


@examples(250)
@given(CHANGES)
def test_whatever_bytes_change_a_log_is_read_and_the_same_lazily(
    changes: list[tuple[int, int, bytes]],
) -> None:
    with contextlib.suppress(NotASession):
        state = state_of(changed(everything().data, changes))
        assert all(parent < position for position, parent in enumerate(state.parents))
        assert state.next_seq > max(state.seqs, default=0)


def test_a_last_line_without_its_newline_is_whole_where_its_body_is_left_on_disk() -> None:
    """The writer was killed before the newline got to the disk."""
    state = state_of(condensed().data.removesuffix(b"\n"))
    assert said(state)[-1] == "four"


def test_an_unkept_sessions_state_is_the_same_fold() -> None:
    session = Session.unkept(CWD, ANTHROPIC)
    session.append_message(text_message("user", "x"))
    session.append(ToolCallEntry(tool_use_id="a", name="bash"))
    assert session.state.started == {"a"}
    assert session.conversation.messages == (Message("user", (Text(text="x"),)),)


def test_names_of_no_model_and_summaries_without_words_are_harmless() -> None:
    state = State()
    state.settle()
    assert state.active_model == NO_MODEL
    log = condensed()
    log.condensed(2, 3, "")
    entry = log.state().body(5)
    assert summary_text(entry.summary).endswith("not a task.")  # type: ignore[union-attr]
