"""A turn: what the log holds after each step of it, and what happens when a step fails."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import time
from typing import Any

import pytest
from acting import Stage
from running import call, kind, say

from awl import agent as agent_module
from awl.conversation import RedactedThinking, Thinking
from awl.errors import NotSaved
from awl.events import (
    AgentEvent,
    AnswerCompleted,
    AnswerText,
    Notice,
    Retrying,
    Saved,
    ToolStarted,
    TurnEnded,
    Unsaved,
)
from awl.log.file import LogFile
from awl.replay import read

COMMON = {"type", "id", "parentId", "timestamp", "seq"}


class Disk:
    """The disk below a session's log, which can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        self.only = b""
        begin, create = LogFile.begin, LogFile.create

        def appended(log: LogFile, lines: bytes) -> int:
            self._check(lines)
            return begin(log, lines)

        def created(path: Any, first: bytes) -> LogFile:
            self._check(first)
            return create(path, first)

        monkeypatch.setattr(LogFile, "begin", appended)
        monkeypatch.setattr(LogFile, "create", created)

    def fill(self, only: bytes = b"") -> None:
        """From here on the disk is full, for lines that hold `only`."""
        self.error, self.only = OSError(errno.ENOSPC, "No space left on device"), only

    def free(self) -> None:
        self.error = None

    def _check(self, lines: bytes) -> None:
        if self.error is not None and self.only in lines:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(agent_module, "SAVE_EVERY", 0.05)
    return Disk(monkeypatch)


# -- what a turn leaves in the log -----------------------------------------------------------------


def two_reads(stage: Stage) -> None:
    (stage.cwd / "a.txt").write_text("alpha\n")
    (stage.cwd / "b.txt").write_text("beta\n")
    stage.set(
        [
            {"thinking": "Two files.", "signature": "c2ln"},
            say("Let me look."),
            call("read", "t1", path="a.txt"),
            call("read", "t2", path="b.txt"),
            {"usage": {"input": 10, "output": 5}},
        ],
        [say("alpha and beta"), {"model": "model-1-dated"}, {"usage": {"input": 30, "output": 7}}],
    )
    stage.prompt("What is in them?")


def test_a_turn_with_two_parallel_calls_is_logged_in_order(stage: Stage) -> None:
    two_reads(stage)
    kinds = stage.kinds
    assert kinds[:4] == ["session", "system", "user", "assistant"]
    # Side by side: the first result may be there before the second call has started.
    assert kinds[4] == "toolCall"
    assert sorted(kinds[5:7]) == ["toolCall", "toolResult"]
    assert kinds[7:] == ["user", "assistant"]
    header, system, prompt, asks, *batch, results, answer = stage.log
    first, second = (entry for entry in batch if entry["type"] == "toolCall")
    (recorded,) = (entry for entry in batch if entry["type"] == "toolResult")
    assert batch.index(recorded) > [e["toolUseId"] for e in batch].index(recorded["toolUseId"])
    assert header.keys() == {"type", "version", "id", "timestamp", "cwd", "provider", "model"}
    assert (header["version"], header["cwd"]) == (1, str(stage.cwd))
    assert system.keys() == COMMON | {"message"}
    assert prompt.keys() == COMMON | {"turnId", "message", "provider", "model"}
    assert asks.keys() == COMMON | {"turnId", "message"}
    assert asks["message"].keys() == {
        "role",
        "content",
        "provider",
        "model",
        "stopReason",
        "usage",
    }
    assert asks["message"]["content"] == [
        {"type": "thinking", "thinking": "Two files.", "signature": "c2ln"},
        {"type": "text", "text": "Let me look."},
        {"type": "toolUse", "id": "t1", "name": "read", "input": '{"path":"a.txt"}'},
        {"type": "toolUse", "id": "t2", "name": "read", "input": '{"path":"b.txt"}'},
    ]
    assert asks["message"]["stopReason"] == "toolUse"
    assert asks["message"]["usage"] == {"input": 10, "output": 5}
    for started in (first, second):
        assert started.keys() == COMMON | {"turnId", "toolUseId", "name"}
        assert started["name"] == "read"
    assert {first["toolUseId"], second["toolUseId"]} == {"t1", "t2"}
    assert recorded.keys() == COMMON | {
        "turnId",
        "toolUseId",
        "name",
        "content",
        "isError",
        "durationMs",
    }
    assert results.keys() == COMMON | {"turnId", "message", "provider", "model"}
    blocks = results["message"]["content"]
    assert [block["toolUseId"] for block in blocks] == ["t1", "t2"]
    assert "alpha" in blocks[0]["content"]
    assert "beta" in blocks[1]["content"]
    assert answer["message"]["model"] == "model-1-dated"
    assert answer["message"]["stopReason"] == "stop"


def test_entries_form_one_chain_with_seqs_ids_times_and_turns(stage: Stage) -> None:
    two_reads(stage)
    before = None
    for seq, entry in enumerate(stage.log[1:], 1):
        assert entry["seq"] == seq
        assert re.fullmatch("[0-9a-f]{8}", entry["id"])
        assert entry["parentId"] == before
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", entry["timestamp"])
        assert entry.get("turnId") == (None if kind(entry) == "system" else 1)
        before = entry["id"]


def test_the_replayed_conversation_equals_the_live_one(stage: Stage) -> None:
    two_reads(stage)
    assert read(stage.session.path).conversation == stage.session.conversation


def test_the_prompt_is_in_the_log_before_the_model_is_asked_and_results_too(stage: Stage) -> None:
    stage.set([call("bash", "t1", command="echo one")], [say("done")])
    found: list[str] = []
    stage.model.asked = lambda: found.append(stage.kinds[-1])
    stage.prompt("go")
    assert found == ["user", "user"]
    assert stage.results()[0]["content"] == "one\n"


def test_usage_is_summed_over_a_turn_and_told_at_its_end(stage: Stage) -> None:
    two_reads(stage)
    assert stage.ended.usage is not None
    assert (stage.ended.usage.input, stage.ended.usage.output) == (40, 12)
    assert stage.ended.text == "alpha and beta"


def test_the_system_text_is_logged_once_and_again_when_it_changes(stage: Stage) -> None:
    stage.set([say("a")], [say("b")], [say("c")], system="First.")
    stage.prompt("one", "two")
    stage.set([say("a")], [say("b")], [say("c")], system="Second.", session=stage.session)
    stage.prompt("three")
    assert [k for k in stage.kinds if k != "session"] == [
        *("system", "user", "assistant"),
        *("user", "assistant"),
        *("system", "user", "assistant"),
    ]
    assert stage.model.requests[-1].system == "Second."


# -- switching the model ---------------------------------------------------------------------------


def test_a_switched_model_shows_on_every_later_user_message(stage: Stage) -> None:
    turns = ([say("a")], [say("b")], [call("bash", "t1", command="true")], [say("c")])
    agent = stage.set(*turns)
    other = stage.player("other", "model-2", *turns)

    async def scenario() -> None:
        await stage.turns("one", "two")
        await agent.switch(other)
        await stage.turns("three")

    stage.play(scenario())
    asked = [(e["provider"], e["model"]) for e in stage.log if kind(e) == "user"]
    assert asked == [("play", "model-1")] * 2 + [("other", "model-2")] * 2
    assert (stage.log[0]["provider"], stage.log[0]["model"]) == ("play", "model-1")
    (change,) = [entry for entry in stage.log if entry["type"] == "modelChange"]
    assert (change["provider"], change["model"]) == ("other", "model-2")
    assert read(stage.session.path).active_model == other.ref


def test_a_switch_before_the_first_prompt_is_in_the_header(stage: Stage) -> None:
    agent = stage.set([say("a")])
    other = stage.player("other", "model-2", [say("a")])

    async def scenario() -> None:
        await agent.switch(other)
        await stage.turns("one")

    stage.play(scenario())
    assert (stage.log[0]["provider"], stage.log[0]["model"]) == ("other", "model-2")
    assert "modelChange" not in stage.kinds


def test_a_switch_that_cannot_be_logged_does_not_happen(stage: Stage, disk: Disk) -> None:
    agent = stage.set([say("a")])
    other = stage.player("other", "model-2", [say("a")])

    async def scenario() -> None:
        await stage.turns("one")
        disk.fill()
        with pytest.raises(NotSaved):
            await agent.switch(other)

    stage.play(scenario())
    assert agent.model == stage.model.ref


# -- cancelling ------------------------------------------------------------------------------------


def cancel_on(stage: Stage, event_type: type[AgentEvent]) -> None:
    def on(event: AgentEvent) -> None:
        if isinstance(event, event_type):
            stage.agent.cancel()

    stage.on = on


def test_a_cancelled_answer_is_logged_as_far_as_it_was_shown(stage: Stage) -> None:
    stage.set([say("Hello", chunk=5), {"delay": 60}, say(" world")])
    cancel_on(stage, AnswerText)
    stage.prompt("go")
    assert stage.ended.stop_reason == "aborted"
    assert stage.kinds == ["session", "system", "user", "assistant"]
    message = stage.log[-1]["message"]
    assert message["content"] == [{"type": "text", "text": "Hello"}]
    assert message["stopReason"] == "aborted"
    assert (message["provider"], message["model"]) == ("play", "model-1")


def test_a_turn_cancelled_before_anything_was_shown_logs_nothing(stage: Stage) -> None:
    agent = stage.set([{"delay": 60}, say("never")])

    async def scenario() -> None:
        asyncio.get_running_loop().call_later(0.1, agent.cancel)
        await stage.turns("go")

    stage.play(scenario())
    assert stage.ended.stop_reason == "aborted"
    assert stage.kinds == ["session", "system", "user"]


def test_after_a_cancelled_turn_the_next_prompt_works(stage: Stage) -> None:
    stage.set([say("Hello", chunk=5), {"delay": 60}], [say("Second.")])
    cancel_on(stage, AnswerText)
    stage.prompt("one")
    stage.on = lambda event: None
    stage.prompt("two")
    assert stage.ended.stop_reason == "stop"
    assert [m.role for m in stage.model.requests[-1].messages] == ["user", "assistant", "user"]


def test_cancelling_ends_the_wait_between_attempts_and_asks_no_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "RETRIES", (60.0,))
    stage.set([{"error": {"fault": "overloaded"}}])
    cancel_on(stage, Retrying)
    stage.prompt("go")
    assert stage.ended.stop_reason == "aborted"
    assert len(stage.model.requests) == 1


# -- providers that fail ---------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "RETRIES", (0.0, 0.0, 0.0))


@pytest.mark.parametrize("fault", ["rate_limit", "overloaded", "connection"])
def test_a_passing_fault_is_retried(stage: Stage, at_once: None, fault: str) -> None:
    stage.set([{"error": {"fault": fault, "times": 2}}, say("There.")])
    stage.prompt("go")
    assert stage.ended.stop_reason == "stop"
    assert len(stage.seen(Retrying)) == 2
    assert stage.kinds == ["session", "system", "user", "assistant"]


def test_retries_end(stage: Stage, at_once: None) -> None:
    stage.set([{"error": {"fault": "overloaded", "message": "too busy"}}])
    stage.prompt("go")
    assert (stage.ended.stop_reason, stage.ended.error) == ("error", "too busy")
    assert len(stage.model.requests) == 4


@pytest.mark.parametrize("fault", ["auth", "refused", "model"])
def test_a_fault_that_lasts_is_not_retried(stage: Stage, at_once: None, fault: str) -> None:
    stage.set([{"error": {"fault": fault, "message": "no"}}])
    stage.prompt("go")
    assert (stage.ended.stop_reason, stage.ended.error) == ("error", "no")
    assert len(stage.model.requests) == 1


def test_a_prompt_that_is_too_long_is_taken_back_and_stays_in_the_log(stage: Stage) -> None:
    too_long = {"error": {"fault": "context_length", "message": "too long"}}
    stage.set({"when": "long", "steps": [too_long]}, [say("One.")], [say("Two.")])
    stage.prompt("first", "long", "next")
    refused = stage.seen(TurnEnded)[1]
    assert refused.prompt_refused
    assert refused.error is not None
    assert refused.error.startswith("too long; your prompt was taken back")
    assert "rewind" in stage.kinds
    asked = [message.text for message in stage.model.requests[-1].messages]
    assert asked == ["first", "One.", "next"]
    assert stage.ended.text == "Two."


def test_a_first_prompt_that_is_too_long_leaves_an_empty_session(stage: Stage) -> None:
    too_long = {"error": {"fault": "context_length", "message": "too long"}}
    stage.set({"when": "long", "steps": [too_long]}, [say("One.")])
    stage.prompt("long", "next")
    request = stage.model.requests[-1]
    assert [message.text for message in request.messages] == ["next"]
    assert request.system == "You are a test."


def test_system_text_that_is_no_utf8_is_logged_once(stage: Stage) -> None:
    stage.set([say("One.")], [say("Two.")], system="in caf\udce9")
    stage.prompt("a", "b")
    assert stage.kinds.count("system") == 1


def test_a_stream_that_breaks_after_output_is_logged_and_not_retried(
    stage: Stage, at_once: None
) -> None:
    stage.set([say("So far"), {"error": {"fault": "connection", "message": "gone"}}])
    stage.prompt("go")
    assert (stage.ended.stop_reason, stage.ended.error) == ("error", "gone")
    assert len(stage.model.requests) == 1
    message = stage.log[-1]["message"]
    assert (message["stopReason"], message["content"][0]["text"]) == ("error", "So far")


def test_a_refused_request_is_sent_once_more_without_reasoning(stage: Stage, at_once: None) -> None:
    thought = {"thinking": "Hm.", "signature": "c2ln"}
    stage.set(
        [thought, say("One.")],
        [{"error": {"fault": "refused", "times": 1}}, say("Two.")],
    )
    stage.prompt("a", "b")
    assert stage.ended.stop_reason == "stop"
    first, refused, again = stage.model.requests
    assert first.thinking
    assert refused.thinking
    assert not again.thinking
    reasoning = [
        block
        for message in again.messages
        for block in message.content
        if isinstance(block, Thinking | RedactedThinking)
    ]
    assert not reasoning
    assert any(isinstance(b, Thinking) for m in refused.messages for b in m.content)


def test_a_refused_request_without_reasoning_is_not_sent_again(stage: Stage, at_once: None) -> None:
    stage.set([say("One.")], [{"error": {"fault": "refused", "message": "no"}}])
    stage.prompt("a", "b")
    assert stage.ended.error == "no"
    assert len(stage.model.requests) == 2


@pytest.mark.parametrize(
    "nothing", [[], [say("", chunk=1)], [{"thinking": ""}], [say(""), {"thinking": ""}]]
)
def test_an_empty_answer_is_never_logged(stage: Stage, nothing: list[Any]) -> None:
    stage.set([*nothing, {"stopReason": "stop"}], [say("Now.")])
    stage.prompt("go")
    assert stage.kinds == ["session", "system", "user"]
    assert stage.ended.stop_reason == "stop"
    assert "the model answered nothing" in [notice.text for notice in stage.seen(Notice)]


def test_a_prompt_may_take_only_so_many_answers(stage: Stage) -> None:
    stage.set(
        [call("bash", "t1", command="true")],
        [call("bash", "t2", command="true")],
        [say("never")],
        max_turns=2,
    )
    stage.prompt("go")
    assert stage.ended.stop_reason == "max_turns"
    assert "2 answers" in (stage.ended.error or "")
    assert stage.kinds[-1] == "user"
    assert len(stage.model.requests) == 2


# -- partials --------------------------------------------------------------------------------------


def test_an_answer_that_stalls_after_its_first_words_is_logged_within_a_second(
    stage: Stage,
) -> None:
    stage.set([say("Hello", chunk=5), {"delay": 1.3}, say(" world", chunk=6)])
    stage.prompt("go")
    partials = [entry for entry in stage.log if entry["type"] == "partial"]
    assert [entry["content"] for entry in partials] == [
        [{"type": "text", "index": 0, "text": "Hello"}]
    ]
    assert partials[0].keys() == COMMON | {"turnId", "content"}
    assert stage.session.conversation.messages[-1].text == "Hello world"
    assert read(stage.session.path).conversation == stage.session.conversation


def test_a_streaming_answer_is_logged_every_second_and_nothing_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awl.answer.PARTIAL_EVERY", 0.1)
    words = "".join(f"word{n} " for n in range(30))
    stage.set([{"thinking": "Hm, well."}, say(words, chunk=6, delay=0.02), {"delay": 0.2}])
    stage.prompt("go")
    partials = [entry for entry in stage.log if entry["type"] == "partial"]
    assert len(partials) >= 3
    blocks = [block for entry in partials for block in entry["content"]]
    assert "".join(block.get("text", "") for block in blocks) == words
    assert "".join(block.get("thinking", "") for block in blocks) == "Hm, well."
    assert {(b["type"], b["index"]) for b in blocks} == {("thinking", 0), ("text", 1)}


def test_partials_become_the_answer_when_nothing_follows_them(stage: Stage) -> None:
    stage.set([say("Hello", chunk=5), {"delay": 1.3}, say(" world", chunk=6)])
    stage.prompt("go")
    path = stage.session.path
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-2])["type"] == "partial"
    stage.session.close()
    path.write_bytes(b"".join(lines[:-1]))
    state = read(path)
    assert state.conversation.messages[-1].text == "Hello"
    assert state.interrupted


def test_a_partial_that_could_not_be_logged_is_told_and_goes_into_the_next_one(
    stage: Stage, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awl.answer.PARTIAL_EVERY", 0.05)
    stage.set([say("abcdef", chunk=1, delay=0.04), {"delay": 0.2}])

    def on(event: AgentEvent) -> None:
        if isinstance(event, AnswerText) and event.text == "a":
            disk.fill(b'"partial"')
        elif isinstance(event, Unsaved):
            disk.free()

    stage.on = on
    stage.prompt("go")
    assert stage.ended.stop_reason == "stop"
    assert len(stage.seen(Unsaved)) == 1
    partials = [entry for entry in stage.log if entry["type"] == "partial"]
    assert "".join(b["text"] for entry in partials for b in entry["content"]) == "abcdef"


# -- a disk that is full ---------------------------------------------------------------------------


def test_a_prompt_that_cannot_be_logged_is_refused_and_the_model_not_asked(
    stage: Stage, disk: Disk
) -> None:
    stage.set([say("never")])
    disk.fill()
    stage.prompt("go")
    assert stage.ended.stop_reason == "unsaved"
    assert stage.ended.prompt_refused
    (told,) = stage.seen(Unsaved)
    assert "NOT SAVED" in told.message
    assert "No space left" in told.message
    assert told.waiting == 0
    assert not stage.model.requests
    assert not stage.session.path.exists()


def test_an_answer_that_cannot_be_logged_is_queued_told_and_saved_later(
    stage: Stage, disk: Disk
) -> None:
    agent = stage.set([say("One.")], [say("Two.")])
    told: list[AgentEvent] = []
    agent.notify = told.append

    async def scenario() -> None:
        disk.fill(b'"assistant"')
        await stage.turns("a")
        assert stage.ended.stop_reason == "unsaved"
        assert not stage.ended.prompt_refused
        assert stage.seen(Unsaved)[-1].waiting == 1
        assert stage.session.unsaved == 1
        assert stage.kinds == ["session", "system", "user"]
        disk.free()
        await wait_for(lambda: bool(told))
        assert told == [Saved(1)]
        await stage.turns("b")

    stage.play(scenario())
    assert stage.kinds == ["session", "system", "user", "assistant", "user", "assistant"]
    assert [entry["seq"] for entry in stage.log[1:]] == [1, 2, 3, 4, 5]
    assert read(stage.session.path).conversation == stage.session.conversation


def test_while_something_is_queued_the_model_is_not_asked(stage: Stage, disk: Disk) -> None:
    agent = stage.set([say("One.")], [say("Two.")])

    async def scenario() -> None:
        disk.fill(b'"assistant"')
        await stage.turns("a")
        await agent.close()
        await stage.turns("b")
        assert stage.ended.prompt_refused
        assert len(stage.model.requests) == 1
        disk.free()
        await stage.turns("b")

    stage.play(scenario())
    assert stage.kinds == ["session", "system", "user", "assistant", "user", "assistant"]


def test_the_tool_calls_of_a_queued_answer_are_not_run(stage: Stage, disk: Disk) -> None:
    stage.set([say("Let me."), call("bash", "t1", command="touch ran")], [say("ok")])
    disk.fill(b'"assistant"')
    stage.prompt("go")
    assert stage.ended.stop_reason == "unsaved"
    assert not stage.seen(ToolStarted)
    assert not (stage.cwd / "ran").exists()


def test_after_a_queued_answer_with_calls_the_session_goes_on(stage: Stage, disk: Disk) -> None:
    stage.set([say("Let me."), call("bash", "t1", command="touch ran")], [say("ok")])

    async def scenario() -> None:
        disk.fill(b'"assistant"')
        await stage.turns("go")
        disk.free()
        await stage.turns("and now?")

    stage.play(scenario())
    assert stage.ended.stop_reason == "stop"
    results = stage.model.requests[-1].messages[-1].tool_results
    assert [r.tool_use_id for r in results] == ["t1"]
    assert "never started" in results[0].content


def test_a_tool_whose_intent_cannot_be_logged_does_not_run(stage: Stage, disk: Disk) -> None:
    stage.set(
        [call("bash", "t1", command="touch one"), call("bash", "t2", command="touch two")],
        [say("never")],
    )
    disk.fill(b'"toolCall"')
    stage.prompt("go")
    assert stage.ended.stop_reason == "unsaved"
    assert list(stage.cwd.iterdir()) == []
    assert stage.seen(Unsaved)
    assert all("could not be saved" in result["content"] for result in stage.results())
    assert len(stage.model.requests) == 1


def test_results_that_cannot_be_logged_are_queued_and_keep_their_order(
    stage: Stage, disk: Disk
) -> None:
    stage.set(
        [
            call("bash", "t1", command="echo one"),
            call("bash", "t2", command="touch two"),
        ],
        [say("then")],
    )

    async def scenario() -> None:
        disk.fill(b'"toolResult"')
        await stage.turns("go")
        assert stage.ended.stop_reason == "unsaved"
        assert not (stage.cwd / "two").exists()  # it was not started once something was unsaved
        assert stage.session.unsaved == 2
        disk.free()
        await wait_for(lambda: not stage.session.unsaved)
        await stage.turns("next")

    stage.play(scenario())
    assert stage.kinds == [
        *("session", "system", "user", "assistant", "toolCall"),
        *("toolResult", "user", "user", "assistant"),
    ]
    one, two = stage.results()
    assert one["content"] == "one\n"
    assert two["isError"]


def test_the_background_keeps_trying_and_tells_nothing_until_it_worked(
    stage: Stage, disk: Disk
) -> None:
    agent = stage.set([say("One.")])
    told: list[AgentEvent] = []
    agent.notify = told.append

    async def scenario() -> None:
        disk.fill(b'"assistant"')
        await stage.turns("a")
        await asyncio.sleep(0.3)  # several attempts
        assert not told
        assert stage.session.unsaved == 1
        disk.free()
        await wait_for(lambda: bool(told))

    stage.play(scenario())
    assert stage.kinds[-1] == "assistant"


async def wait_for(holds: Any) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_the_last_event_of_every_turn_says_how_it_ended(stage: Stage) -> None:
    two_reads(stage)
    assert [type(event) for event in stage.events].count(TurnEnded) == 1
    completed = stage.seen(AnswerCompleted)
    assert [event.stop_reason for event in completed] == ["toolUse", "stop"]
    assert [event.entry_id for event in completed] == [
        entry["id"] for entry in stage.log if kind(entry) == "assistant"
    ]


def test_a_rewind_behind_a_switch_logs_the_model_again(stage: Stage) -> None:
    stage.set([say("One.")], [say("Two.")])
    stage.prompt("a")
    before = stage.session.leaf_id
    other = stage.player("other", "model-2", [say("One.")], [say("Two.")])
    stage.play(stage.agent.switch(other))
    stage.session.rewind(before)
    stage.prompt("b")
    assert stage.session.active_model == other.ref
    assert stage.kinds[-3:] == ["modelChange", "user", "assistant"]


def test_taking_back_goes_no_further_than_the_prompt(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    too_long = {"error": {"fault": "context_length", "message": "too long"}}
    stage.set({"when": "long", "steps": [too_long]}, [say("One.")], [say("Two.")])
    begin = LogFile.begin

    def failing_for_answers(log: LogFile, lines: bytes) -> int:
        if b"One." in lines and full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return begin(log, lines)

    full = [True]
    monkeypatch.setattr(LogFile, "begin", failing_for_answers)

    async def talk() -> None:
        await stage.turns("first")
        full.clear()  # there is space again, and the next prompt is quicker than the retry
        await stage.turns("long", "next")

    stage.play(talk())
    asked = [message.text for message in stage.model.requests[-1].messages]
    assert asked == ["first", "One.", "next"]
