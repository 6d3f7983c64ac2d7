"""A batch of tool calls: permission, intent before the act, results, and every way to fail."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from acting import Stage
from running import call, kind, say

from awl import agent as agent_module
from awl.agent import Approval
from awl.conversation import ToolUse
from awl.errors import NotSaved
from awl.events import AgentEvent, Notice, ToolFinished, ToolOutput, ToolStarted
from awl.log.blobs import Blobs
from awl.providers import ToolSpec
from awl.session import Session
from awl.tools import MAX_SHOWN, ToolContext, ToolOutcome

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


class Fake:
    """A tool that does what a test says."""

    def __init__(self, name: str, does: Any, *, mutates: bool = False) -> None:
        self.spec = ToolSpec(name, "A tool of a test.", {"type": "object", "properties": {}})
        self.mutates = mutates
        self._does = does

    def describe(self, input: Mapping[str, Any]) -> str:
        return f"{self.spec.name} {dict(input)}"

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        found = self._does(context)
        if asyncio.iscoroutine(found):
            found = await found
        return found if isinstance(found, ToolOutcome) else ToolOutcome(content=str(found))


class Person:
    """Answers questions, and remembers them."""

    def __init__(self, *answers: Approval) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, use: ToolUse, summary: str) -> Approval:
        self.asked.append((use.name, summary))
        return self.answers.pop(0)


# -- order -----------------------------------------------------------------------------------------


def test_the_intent_is_in_the_log_before_the_tool_acts(stage: Stage) -> None:
    look = 'cp "$AWL_SESSION_FILE" seen-$(ls | wc -l)'
    stage.set([call("bash", "t1", command=look), call("bash", "t2", command=look)], [say("ok")])
    stage.prompt("go")
    first, second = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(stage.cwd.glob("seen-*"))
    )
    assert first[-1]["type"] == "toolCall"
    assert (first[-1]["toolUseId"], first[-1]["name"]) == ("t1", "bash")
    assert [entry["type"] for entry in second[-2:]] == ["toolResult", "toolCall"]
    assert (second[-2]["toolUseId"], second[-1]["toolUseId"]) == ("t1", "t2")


def test_calls_that_only_look_run_side_by_side_and_answer_in_their_order(stage: Stage) -> None:
    async def slow(context: ToolContext) -> str:
        while "toolResult" not in stage.kinds:
            await asyncio.sleep(0.01)
        return "slow"

    stage.set(
        [call("slow", "t1"), call("fast", "t2")],
        [say("ok")],
        tools=[Fake("slow", slow), Fake("fast", lambda context: "fast")],
    )
    stage.prompt("go")
    assert [event.tool_use_id for event in stage.seen(ToolFinished)] == ["t2", "t1"]
    assert [(r["toolUseId"], r["content"]) for r in stage.results()] == [
        ("t1", "slow"),
        ("t2", "fast"),
    ]
    (recorded,) = [entry for entry in stage.log if entry["type"] == "toolResult"]
    assert recorded["toolUseId"] == "t2"


def test_calls_that_change_something_run_one_by_one(stage: Stage) -> None:
    running: list[str] = []

    def act(name: str) -> Any:
        async def acts(context: ToolContext) -> str:
            assert not running, running
            running.append(name)
            await asyncio.sleep(0.05)
            running.remove(name)
            return name

        return Fake(name, acts, mutates=True)

    stage.set([call("a", "t1"), call("b", "t2")], [say("ok")], tools=[act("a"), act("b")])
    stage.prompt("go")
    assert [result["content"] for result in stage.results()] == ["a", "b"]


def test_every_result_but_the_last_has_a_line_of_its_own(stage: Stage) -> None:
    stage.set([call("bash", f"t{n}", command=f"echo {n}") for n in range(3)], [say("ok")])
    stage.prompt("go")
    recorded = [entry for entry in stage.log if entry["type"] == "toolResult"]
    assert [entry["toolUseId"] for entry in recorded] == ["t0", "t1"]
    assert [result["content"] for result in stage.results()] == ["0\n", "1\n", "2\n"]
    # What is said twice is the same both times.
    for entry, result in zip(recorded, stage.results(), strict=False):
        assert entry["content"] == result["content"]
        assert entry["durationMs"] == result["durationMs"]
        assert entry["isError"] == result.get("isError", False)


def test_a_result_is_in_the_log_before_it_is_told_to_be_there(stage: Stage) -> None:
    stage.set(
        [call("find", "t0", pattern="*"), call("read", "t1", path="x")]
        + [call("bash", f"t{n}", command=f"echo {n}") for n in (2, 3)],
        [call("bash", "t4", command="echo 4")],
        [say("ok")],
    )

    def on(event: AgentEvent) -> None:
        text = stage.session.path.read_text()
        if isinstance(event, ToolFinished):
            logged = f'"toolUseId":"{event.tool_use_id}","name"', "toolResult"
            alone = any(all(part in line for part in logged) for line in text.splitlines())
            block = f'{{"type":"toolResult","toolUseId":"{event.tool_use_id}"' in text
            assert alone or block
            seen.append(event.tool_use_id)

    seen: list[str] = []
    stage.on = on
    stage.prompt("go")
    assert sorted(seen) == ["t0", "t1", "t2", "t3", "t4"]


# -- calls that do not run -------------------------------------------------------------------------


def not_run(stage: Stage) -> str:
    """The one result of a call that was not run: the words that the model is shown."""
    (result,) = stage.results()
    assert result["isError"]
    assert "toolCall" not in stage.kinds
    assert not stage.seen(ToolStarted)
    (finished,) = stage.seen(ToolFinished)
    assert finished.is_error
    assert finished.content == result["content"]
    assert stage.ended.stop_reason == "stop"
    return str(result["content"])


def test_a_denied_call_does_not_run_and_the_model_is_told(stage: Stage) -> None:
    person = Person("deny")
    stage.set([call("bash", "t1", command="touch x")], [say("ok")], approve=person)
    stage.prompt("go")
    assert not_run(stage) == agent_module.DENIED
    assert person.asked == [("bash", "$ touch x")]
    assert not (stage.cwd / "x").exists()


def test_an_unknown_tool_is_answered_with_those_there_are(stage: Stage) -> None:
    stage.set([call("fly", "t1")], [say("ok")])
    stage.prompt("go")
    assert "no tool 'fly'" in (told := not_run(stage))
    assert "bash, read, write, edit, find, grep" in told


@pytest.mark.parametrize("text", ['{"command": ', "[1]", '"ls"', "null", "[" * 100_000])
def test_input_that_is_no_json_object_is_answered_and_logged_as_it_stands(
    stage: Stage, text: str
) -> None:
    use = {"toolUse": {"id": "t1", "name": "bash", "input": text}}
    stage.set([use], [say("ok")])
    stage.prompt("go")
    assert "not a JSON object" in not_run(stage)
    (asked,) = [e for e in stage.log if kind(e) == "assistant" and len(e["message"]["content"])][:1]
    assert asked["message"]["content"][0]["input"] == text


def test_no_input_at_all_is_an_empty_one(stage: Stage) -> None:
    stage.set(
        [{"toolUse": {"id": "t1", "name": "fine", "input": ""}}],
        [say("ok")],
        tools=[Fake("fine", lambda context: "fine")],
    )
    stage.prompt("go")
    assert stage.results()[0]["content"] == "fine"


def test_a_tool_that_raises_is_a_result_and_the_session_goes_on(stage: Stage) -> None:
    def fails(context: ToolContext) -> str:
        raise RuntimeError("out of luck")

    stage.set([call("fails", "t1")], [say("ok")], tools=[Fake("fails", fails)])
    stage.prompt("go")
    (result,) = stage.results()
    assert result["isError"]
    assert result["content"] == "The tool failed: RuntimeError: out of luck"
    assert stage.ended.stop_reason == "stop"


def test_approval_is_asked_of_tools_that_change_something_only(stage: Stage) -> None:
    person = Person("once", "once")
    stage.set(
        [call("find", "t1", pattern="*"), call("bash", "t2", command="true")],
        [call("bash", "t3", command="true")],
        [say("ok")],
        approve=person,
    )
    stage.prompt("go")
    assert [name for name, _ in person.asked] == ["bash", "bash"]


def test_always_means_this_tool_for_this_session(stage: Stage) -> None:
    person = Person("always", "once")
    stage.set(
        [call("bash", "t1", command="true"), call("bash", "t2", command="true")],
        [call("write", "t3", path="x", content="y")],
        [say("ok")],
        approve=person,
    )
    stage.prompt("go")
    assert [name for name, _ in person.asked] == ["bash", "write"]


# -- cancelling ------------------------------------------------------------------------------------


def test_a_cancelled_tool_has_a_result_with_its_output_and_its_processes_are_gone(
    stage: Stage,
) -> None:
    command = "sleep 300 & echo $! > child; echo $$ > shell; echo started; wait"
    stage.set([call("bash", "t1", command=command), call("bash", "t2", command="touch never")])

    def on(event: AgentEvent) -> None:
        if isinstance(event, ToolOutput):
            stage.agent.cancel()

    stage.on = on
    stage.prompt("go")
    assert stage.ended.stop_reason == "aborted"
    first, second = stage.results()
    assert first["isError"]
    assert first["content"] == "started\n[cancelled by the user]"
    assert second["isError"]
    assert "before it started" in second["content"]
    assert not (stage.cwd / "never").exists()
    assert stage.kinds[-1] == "user"
    for name in ("child", "shell"):
        assert gone(int((stage.cwd / name).read_text()))


def gone(pid: int) -> bool:
    """Whether a process ends in a moment (a zombie has ended)."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


def test_after_a_cancelled_tool_the_next_prompt_works(stage: Stage) -> None:
    agent = stage.set([call("bash", "t1", command="echo hi; sleep 300")], [say("Fine.")])

    async def scenario() -> None:
        stage.on = lambda e: agent.cancel() if isinstance(e, ToolOutput) else None
        await stage.turns("one")
        stage.on = lambda e: None
        await stage.turns("two")

    stage.play(scenario())
    assert stage.ended.text == "Fine."


def test_much_output_of_a_cancelled_tool_is_cut_for_the_model_and_kept_whole(stage: Stage) -> None:
    def loud(context: ToolContext) -> Any:
        async def waits() -> str:
            assert context.progress is not None
            context.progress("head\n" + "x" * 200_000 + "\ntail")
            await asyncio.sleep(300)
            return "never"

        return waits()

    agent = stage.set([call("loud", "t1")], tools=[Fake("loud", loud)])
    stage.on = lambda e: agent.cancel() if isinstance(e, ToolOutput) else None
    stage.prompt("go")
    (result,) = stage.results()
    assert len(result["content"]) < MAX_SHOWN + 200
    assert result["content"].startswith("head\n")
    assert result["content"].endswith("tail\n[cancelled by the user]")
    blob = stage.session.path.with_suffix(".blobs") / result["output"]["blob"]
    assert blob.stat().st_size == result["output"]["size"] == 200_010


def test_cancelling_does_not_wait_for_a_person_who_does_not_answer(stage: Stage) -> None:
    asked = asyncio.Event()

    async def silent(use: ToolUse, summary: str) -> Approval:
        asked.set()
        await asyncio.sleep(300)
        return "once"

    agent = stage.set([call("bash", "t1", command="touch x")], approve=silent)

    async def scenario() -> None:
        turn = asyncio.create_task(stage.turns("go"))
        await asked.wait()
        agent.cancel()
        await turn

    stage.play(scenario())
    assert stage.ended.stop_reason == "aborted"
    (result,) = stage.results()
    assert "cancelled" in result["content"]
    assert "toolCall" not in stage.kinds
    assert not (stage.cwd / "x").exists()


def test_a_call_is_not_started_once_it_was_denied_by_cancelling(stage: Stage) -> None:
    async def cancels(use: ToolUse, summary: str) -> Approval:
        stage.agent.cancel()
        return "once"

    stage.set([call("bash", "t1", command="touch x")], approve=cancels)
    stage.prompt("go")
    assert stage.ended.stop_reason == "aborted"
    assert "toolCall" not in stage.kinds
    assert not (stage.cwd / "x").exists()


# -- blobs and surroundings ------------------------------------------------------------------------


def test_uncut_output_lies_in_a_blob_before_a_line_names_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.set([call("bash", "t1", command="seq 1 20000"), call("bash", "t2", command="true")])
    append = Session.append
    named: list[str] = []

    def checking(session: Session, entry: Any) -> str:
        if (output := getattr(entry, "output", None)) is not None:
            blob = session.path.with_suffix(".blobs") / output.blob
            assert blob.stat().st_size == output.size
            assert stat.S_IMODE(blob.stat().st_mode) == 0o600
            named.append(output.blob)
        return append(session, entry)

    monkeypatch.setattr(Session, "append", checking)
    stage.prompt("go")
    (recorded, _) = stage.results()
    assert named == [recorded["output"]["blob"]]
    whole = stage.session.path.with_suffix(".blobs") / recorded["output"]["blob"]
    assert whole.read_text() == "".join(f"{n}\n" for n in range(1, 20001))
    assert len(recorded["content"]) <= MAX_SHOWN + 200


def test_output_that_cannot_be_kept_whole_is_said_and_the_result_is_logged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(blobs: Blobs, data: bytes) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Blobs, "put", full)
    stage.set([call("bash", "t1", command="seq 1 20000")], [say("ok")])
    stage.prompt("go")
    (result,) = stage.results()
    assert "output" not in result
    assert "20000" in result["content"]
    assert any("No space left" in notice.text for notice in stage.seen(Notice))
    assert stage.ended.stop_reason == "stop"


def test_pictures_lie_in_blobs_and_reach_the_model(stage: Stage) -> None:
    (stage.cwd / "dot.png").write_bytes(PNG)
    stage.set([call("read", "t1", path="dot.png")], [say("A dot.")])
    stage.prompt("look")
    (result,) = stage.results()
    (image,) = result["images"]
    assert (image["mimeType"], image["blob"]["size"]) == ("image/png", len(PNG))
    request = stage.model.requests[-1]
    (sent,) = request.messages[-1].tool_results[0].images
    assert request.read_blob is not None
    assert request.read_blob(sent.blob) == PNG


def test_tools_know_their_session_and_run_in_its_directory(stage: Stage) -> None:
    command = 'echo "$AWL_SESSION_ID $AWL_SESSION_FILE"; pwd'
    stage.set([call("bash", "t1", command=command)], [say("ok")])
    stage.prompt("go")
    assert stage.results()[0]["content"].splitlines() == [
        f"{stage.session.id} {stage.session.path}",
        str(stage.cwd),
    ]


def test_tools_of_a_session_that_is_not_kept_are_given_no_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWL_SESSION_FILE", raising=False)
    stage.set([call("bash", "t1", command='echo "[$AWL_SESSION_FILE]"')], [say("ok")])
    unkept = Session.unkept(str(stage.cwd), stage.model.ref)
    agent = stage.set(
        [call("bash", "t1", command='echo "[$AWL_SESSION_FILE]"')], [say("ok")], session=unkept
    )
    stage.prompt("go")
    results = [m.tool_results for m in agent.session.conversation.messages if m.tool_results]
    assert results[0][0].content == "[]\n"
    assert not (stage.folder / "sessions").exists()


def test_a_result_that_cannot_be_logged_stops_the_batch(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "SAVE_EVERY", 60.0)
    append = Session.append

    def failing(session: Session, entry: Any) -> str:
        if entry.__struct_config__.tag == "toolResult":
            raise NotSaved(
                session.path, OSError(28, "No space left on device"), kind="fact", queued=True
            )
        return append(session, entry)

    monkeypatch.setattr(Session, "append", failing)
    stage.set([call("bash", f"t{n}", command=f"touch x{n}") for n in range(3)], [say("never")])
    stage.prompt("go")
    assert stage.ended.stop_reason == "unsaved"
    assert sorted(path.name for path in stage.cwd.iterdir()) == ["x0"]
    assert len(stage.model.requests) == 1
