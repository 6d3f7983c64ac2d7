"""A conversation that becomes too long: it is pruned and condensed, once, and never for nothing."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from acting import Stage
from histories import facts
from running import JSON, call, kind, read_log, say

from awl.condense import Condensation, Condenser, LlmCondenser, NoSummary, Progress
from awl.config import Condense
from awl.conversation import Message, ModelRef, ToolUse, text_message
from awl.entries import (
    CondensationEntry,
    ImportedText,
    ImportEntry,
    Summary,
    ToolCallEntry,
    Usage,
)
from awl.errors import CannotCondense, InvalidRange, NotSaved
from awl.events import AgentEvent, Condensed, Condensing, Notice, TurnEnded, Unsaved
from awl.fitting import Fitting
from awl.history import history
from awl.log.file import LogFile
from awl.providers import ToolSpec
from awl.providers.local import LocalProvider
from awl.providers.scripted import ScriptedProvider
from awl.replay import read
from awl.session import Session
from awl.state import Item, State
from awl.tokens import Size, size
from awl.tools import all_tools
from awl.view import CLEARED, view

LONG = "word " * 400
"""About 500 tokens."""

FORM = {
    "session_intent": "Say a word many times.",
    "files_modified": ["word.txt"],
    "decisions_made": ["The word is `word`."],
    "open_questions": ["How many times?"],
    "next_steps": ["Say it again."],
}
SUMMARY = {"toolUse": {"name": "record_summary", "input": FORM}}
USAGE = {"usage": {"input": 70, "output": 30}}


def summarising(*steps: JSON) -> JSON:
    """The turn that answers a request for a summary."""
    return {"when": "<record>", "steps": [*steps]}


GOOD = summarising(SUMMARY, USAGE)


def settings(condenser: Condenser | None = None, **more: Any) -> Fitting:
    made: dict[str, Any] = {} if condenser is None else {"condenser": lambda own: condenser}
    return Fitting(Condense(**{"keep_recent": 2, **more}), **made)


TURNS: tuple[Any, ...] = ([say(f"Here: {LONG}", chunk=5000)], {"loop": True})
LIMIT = int(6000 * 0.85)
"""Of a model that takes 8,000 tokens, a quarter of which is left for the answer."""


def condensations(stage: Stage) -> list[JSON]:
    return [entry for entry in stage.log if entry["type"] == "condensation"]


def asked_for_summaries(stage: Stage) -> int:
    return sum("<record>" in request.messages[-1].text for request in stage.model.requests)


def talk(stage: Stage, turns: int = 7, **more: Any) -> None:
    """Turns of about 1,000 tokens each."""
    given = {"window": 8000, "fitting": settings(), "tools": (), **more}
    stage.set(GOOD, *TURNS, **given)
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(turns)))


# -- automatic condensation ------------------------------------------------------------------------


def test_a_conversation_over_the_threshold_is_condensed_before_the_next_request(
    stage: Stage,
) -> None:
    talk(stage)
    first = condensations(stage)[0]
    assert first["summary"]["sessionIntent"] == "Say a word many times."
    assert (first["provider"], first["model"]) == ("play", "model-1")
    assert first["usage"] == {"input": 70, "output": 30}
    assert first["tokensBefore"] > LIMIT > first["tokensAfter"]
    assert {event.stop_reason for event in stage.seen(TurnEnded)} == {"stop"}
    for request in stage.model.requests:
        words = [request.system or "", *(message.text for message in request.messages)]
        assert sum(map(len, words)) / 4 < LIMIT


@pytest.mark.parametrize("sent", [True, False])
def test_tools_that_a_model_is_never_sent_take_no_room(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    seen: list[int] = []

    def measured(state: State, target: ModelRef, tools: Sequence[ToolSpec]) -> Size:
        seen.append(len(tools))
        return size(state, target, tools)

    monkeypatch.setattr("awl.fitting.size", measured)
    monkeypatch.setattr(ScriptedProvider, "takes_tools", sent)
    talk(stage, 1, tools=all_tools())
    assert seen
    assert {count > 0 for count in seen} == {sent}
    assert not object.__new__(LocalProvider).takes_tools


def test_the_person_is_told_before_and_after(stage: Stage) -> None:
    talk(stage)
    before, after = stage.seen(Condensing)[0], stage.seen(Condensed)[0]
    entry = condensations(stage)[0]
    lo, hi = entry["replaced"]
    assert before.entries == after.entries == hi - lo + 1
    assert after.entry_id == entry["id"]
    told = f"condensed {hi} entries: {entry['tokensBefore']:,} -> {entry['tokensAfter']:,} tokens"
    assert str(after) == told


def test_the_log_only_grows_and_people_see_all_of_it(stage: Stage) -> None:
    talk(stage, 3)
    before = stage.session.path.read_bytes()
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(3, 7)))
    assert condensations(stage)
    after = stage.session.path.read_bytes()
    assert hashlib.sha256(after[: len(before)]).digest() == hashlib.sha256(before).digest()
    items = list(history(read(stage.session.path)))
    assert [item.text.split(":")[0] for item in items if item.kind == "user"] == [
        f"prompt {n}" for n in range(7)
    ]
    divider = next(item for item in items if item.kind == "divider")
    assert "as this summary" in divider.text
    assert "Say a word many times." in divider.detail


def test_the_summary_is_sent_in_the_place_of_what_it_stands_for(stage: Stage) -> None:
    talk(stage, 6)
    request = stage.model.requests[-1]
    assert "Say a word many times." in (request.system or "")
    assert "How many times?" in (request.system or "")
    said = [message.text.split(":")[0] for message in request.messages]
    assert said[0].startswith("prompt") and said[0] != "prompt 0"
    assert said[-1] == "prompt 5"


def test_ranges_follow_each_other_without_overlap(stage: Stage) -> None:
    talk(stage, 14)
    ranges = [entry["replaced"] for entry in condensations(stage)]
    assert len(ranges) > 1
    assert ranges[0][0] == 1
    for (_, before), (after, hi) in pairwise(ranges):
        assert after == before + 1 <= hi
    assert not read(stage.session.path).all_findings


@pytest.mark.parametrize("keep", [0, 2, 4, 6])
def test_the_last_entries_are_kept_where_there_is_room(stage: Stage, keep: int) -> None:
    talk(stage, fitting=settings(keep_recent=keep))
    entry = condensations(stage)[0]
    assert keep <= entry["seq"] - 1 - entry["replaced"][1] <= keep + 1
    after = next(e for e in stage.log[1:] if e["seq"] == entry["replaced"][1] + 1)
    assert kind(after) == "user"  # a turn's edge


def test_fewer_entries_are_kept_where_they_would_not_fit(stage: Stage) -> None:
    talk(stage, fitting=settings(keep_recent=100))
    entry = condensations(stage)[0]
    assert entry["tokensAfter"] < LIMIT
    assert stage.ended.stop_reason == "stop"


def test_replay_gives_what_the_live_agent_had(stage: Stage) -> None:
    talk(stage, 10)
    assert len(condensations(stage)) > 1
    assert facts(read(stage.session.path)) == facts(stage.session.state)
    assert view(read(stage.session.path), stage.model.ref) == view(
        stage.session.state, stage.model.ref
    )


def test_the_usage_of_a_summary_is_counted_once(stage: Stage) -> None:
    talk(stage, 6)
    assert len(condensations(stage)) == 1
    state = read(stage.session.path)
    assert (state.tokens.own_input, state.tokens.own_output) == (70, 30)
    spent = [event.usage for event in stage.seen(TurnEnded) if event.usage is not None]
    assert spent == [Usage(input=70, output=30)]


def test_without_a_known_window_nothing_is_condensed(stage: Stage) -> None:
    talk(stage, 8, window=0)
    assert "condensation" not in stage.kinds


def test_the_providers_count_is_believed_more_than_an_estimate(stage: Stage) -> None:
    """Of a hundred words, a model may make a thousand tokens."""
    stage.set(
        GOOD,
        [say(LONG, chunk=5000), {"usage": {"input": 200, "output": 800}}],
        [say(LONG, chunk=5000), {"usage": {"input": 4000, "output": 800}}],
        {"loop": True},
        window=8000,
        fitting=settings(),
        tools=(),
    )
    stage.prompt("the first of them", LONG, LONG)
    (entry,) = condensations(stage)
    assert entry["tokensBefore"] > 5300
    assert entry["tokensAfter"] < LIMIT


def test_a_log_that_has_grown_is_condensed_and_again_after_as_much(stage: Stage) -> None:
    fitting = Fitting(Condense(keep_recent=2), max_log_bytes=20_000)
    talk(stage, 20, window=0, fitting=fitting)
    places, offset = [], 0
    for line in stage.session.path.read_bytes().splitlines(keepends=True):
        offset += len(line)
        if json.loads(line)["type"] == "condensation":
            places.append(offset)
    assert len(places) >= 2
    assert all(after - before > 20_000 for before, after in pairwise([0, *places]))


# -- a summariser that fails -----------------------------------------------------------------------

LOOP = "The word the word the word the word the word the word the word the word the word"
NONSENSE: dict[str, list[JSON]] = {
    "nothing": [],
    "blank": [say(" \n ")],
    "an empty form": [{"toolUse": {"name": "record_summary", "input": {}}}],
    "a form of nothing": [
        {
            "toolUse": {
                "name": "record_summary",
                "input": {name: "" if name == "session_intent" else [] for name in FORM},
            }
        }
    ],
    "no JSON": [{"toolUse": {"name": "record_summary", "input": '{"session_intent": "Say'}}],
    "other words": [say("Bananas grow in Ecuador, mostly on trees without branches.")],
    "the same again and again": [say(LOOP)],
    "the conversation goes on": [say("user: prompt 9: word\n\nassistant: Here: word word")],
    "cut at the limit": [SUMMARY, {"stopReason": "length"}],
    "refused": [{"error": {"fault": "refused", "message": "I may not"}}],
    "overloaded": [{"error": {"fault": "overloaded", "message": "busy"}}],
    "broken off": [say("The user wants words, the word"), {"error": {"fault": "connection"}}],
}


@pytest.mark.parametrize("steps", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_summary_that_fails_changes_nothing_and_is_told(stage: Stage, steps: list[JSON]) -> None:
    stage.set(summarising(*steps), *TURNS, window=8000, fitting=settings())
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(6)))
    assert "condensation" not in stage.kinds
    assert asked_for_summaries(stage) >= 1
    told = [notice.text for notice in stage.seen(Notice) if "not condensed" in notice.text]
    assert told
    assert stage.ended.stop_reason == "stop"
    assert len(stage.model.requests[-1].messages) == 11  # the whole history


class Broken:
    """A condenser of somebody else's that fails in its own way."""

    async def condense(self, past: Sequence[Item], progress: Progress | None = None) -> Any:
        raise RuntimeError("a bug of its own")


def test_any_error_of_a_condenser_changes_nothing(stage: Stage) -> None:
    fitting = Fitting(Condense(keep_recent=2), condenser=lambda own: Broken())
    talk(stage, 6, fitting=fitting)
    assert "condensation" not in stage.kinds
    assert stage.ended.stop_reason == "stop"
    assert any("a bug of its own" in notice.text for notice in stage.seen(Notice))


class Overtaken:
    """A condenser that is so slow that another program condenses the log meanwhile."""

    def __init__(self) -> None:
        self.log = Path()

    async def condense(
        self, past: Sequence[Item], progress: Progress | None = None
    ) -> Condensation:
        last = read_log(self.log)[-1]
        other = {
            "type": "condensation",
            "id": "00000000",
            "parentId": last["id"],
            "timestamp": last["timestamp"],
            "seq": last["seq"] + 1,
            "replaced": [1, 3],
            "summary": {"sessionIntent": "theirs"},
            "tokensBefore": 9,
            "tokensAfter": 1,
        }
        with self.log.open("ab") as file:
            file.write(json.dumps(other, separators=(",", ":")).encode() + b"\n")
        return Condensation(Summary(session_intent="ours"), "play", "m")


def test_a_summary_of_what_another_program_condensed_meanwhile_is_not_logged_and_the_turn_goes_on(
    stage: Stage,
) -> None:
    condenser = Overtaken()
    talk(stage, 4, fitting=settings(condenser=condenser))
    condenser.log = stage.session.path
    stage.prompt(f"prompt 4: {LONG}", f"prompt 5: {LONG}")
    assert stage.ended.stop_reason == "stop"
    (entry,) = condensations(stage)
    assert entry["summary"]["sessionIntent"] == "theirs"
    assert any("not condensed" in notice.text for notice in stage.seen(Notice))


class Wasteful:
    """A condenser whose first tries cost something and come to nothing."""

    def __init__(self, tries: int) -> None:
        self._tries = tries

    async def condense(
        self, past: Sequence[Item], progress: Progress | None = None
    ) -> Condensation:
        self._tries -= 1
        if self._tries >= 0:
            raise NoSummary("nonsense", Usage(input=50, output=1))
        return Condensation(Summary(session_intent="words"), "play", "m", Usage(input=70, output=3))


def test_what_summaries_in_vain_took_is_in_their_turns_and_in_the_next_entry_once(
    stage: Stage,
) -> None:
    talk(stage, 6, fitting=settings(condenser=Wasteful(2)))
    stage.prompt(LONG, LONG)
    (entry,) = condensations(stage)
    assert entry["usage"] == {"input": 50 + 50 + 70, "output": 1 + 1 + 3}
    spent = [event.usage for event in stage.seen(TurnEnded) if event.usage is not None]
    assert [(usage.input, usage.output) for usage in spent] == [(50, 1), (50, 1), (70, 3)]
    stage.prompt(*(LONG for _ in range(6)))
    assert [entry["usage"]["input"] for entry in condensations(stage)[1:]] == [70]


def test_a_summary_that_fails_is_tried_once_a_turn(stage: Stage) -> None:
    rounds = [{"when": "go", "steps": [call("bash", command="echo one")]}]
    stage.set(
        summarising(say("Bananas.")),
        *rounds,
        {"when": "one", "steps": [call("bash", command="echo two")]},
        *TURNS,
        window=8000,
        fitting=settings(),
    )
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(6)))
    before = asked_for_summaries(stage)
    stage.prompt("go")
    assert asked_for_summaries(stage) == before + 2  # a form, then plain words


def test_a_summariser_that_stalls_is_given_up(stage: Stage) -> None:
    fitting = Fitting(
        Condense(keep_recent=2), condenser=lambda own: LlmCondenser(own, patience=0.05)
    )
    stage.set(summarising({"delay": 60}, SUMMARY), *TURNS, window=8000, fitting=fitting)
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(6)))
    assert "condensation" not in stage.kinds
    assert any("no sign" in notice.text for notice in stage.seen(Notice))
    assert stage.ended.stop_reason == "stop"


def test_ctrl_c_ends_a_summary_and_the_turn_and_changes_nothing(stage: Stage) -> None:
    stage.set(summarising({"delay": 60}, SUMMARY), *TURNS, window=8000, fitting=settings())
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(4)))

    def on(event: AgentEvent) -> None:
        if isinstance(event, Condensing):
            stage.agent.cancel()

    stage.on = on
    stage.prompt(f"prompt 4: {LONG}", f"prompt 5: {LONG}")
    assert stage.ended.stop_reason == "aborted"
    assert stage.kinds[-1] == "user"
    assert "condensation" not in stage.kinds


def test_a_turn_that_is_cancelled_while_its_summary_is_logged_ends_behind_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(stage, 4)
    write = LogFile.begin

    def cancelled(log: LogFile, lines: bytes) -> int:
        if b'"type":"condensation"' in lines:
            running[0].call_soon_threadsafe(stage.agent.cancel)
            for _ in range(20):  # the turn has time to end before
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), running[0]).result()
        return write(log, lines)

    running: list[asyncio.AbstractEventLoop] = []
    seen: list[tuple[type[AgentEvent], int]] = []

    def on(event: AgentEvent) -> None:
        running[:] = [asyncio.get_running_loop()]
        seen.append((type(event), len(stage.session.state.entries)))

    stage.on = on
    monkeypatch.setattr(LogFile, "begin", cancelled)
    stage.prompt(f"prompt 4: {LONG}", f"prompt 5: {LONG}")
    assert stage.ended.stop_reason == "aborted"
    assert [kind for kind, _ in seen[-2:]] == [Condensed, TurnEnded]
    assert stage.kinds[-1] == "condensation"
    assert seen[-1][1] == len(read(stage.session.path).entries)


def test_a_summary_that_cannot_be_logged_is_told_and_changes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = LogFile.begin

    def full(log: LogFile, lines: bytes) -> int:
        if b'"condensation"' in lines:
            raise OSError(errno.ENOSPC, "No space left on device")
        return begin(log, lines)

    monkeypatch.setattr(LogFile, "begin", full)
    talk(stage, 6)
    assert "condensation" not in stage.kinds
    assert "No space left" in stage.seen(Unsaved)[0].message
    assert stage.ended.stop_reason == "stop"
    assert not stage.session.unsaved


# -- no loops --------------------------------------------------------------------------------------


TIGHT = "word " * 3700
"""System text that is under the limit as long as next to nothing else is sent."""


def told_too_large(stage: Stage) -> list[str]:
    return [notice.text for notice in stage.seen(Notice) if "go on with a model" in notice.text]


def resumed(stage: Stage, **more: Any) -> None:
    """The process ends and another one goes on."""
    stage.session.close()
    session = stage.store.open(stage.session.path)
    given = {"window": 8000, "fitting": settings(), "tools": (), **more}
    stage.set(GOOD, *TURNS, session=session, **given)


def test_system_text_over_the_limit_is_not_tried_to_condense_also_after_a_resume(
    stage: Stage,
) -> None:
    system = LONG * 12  # about 6,000 tokens
    talk(stage, 3, system=system)
    assert asked_for_summaries(stage) == 0
    assert len(told_too_large(stage)) == 3  # once a turn
    stage.events.clear()
    resumed(stage, system=system)
    stage.prompt("and now")
    assert asked_for_summaries(stage) == 0
    assert len(told_too_large(stage)) == 1
    assert stage.ended.stop_reason == "stop"


def test_a_limit_that_cannot_be_met_is_given_up_after_one_try_also_after_resumes(
    stage: Stage,
) -> None:
    """What must stay is over the limit, but the model can take it: one condensation may help."""
    system = TIGHT
    talk(stage, 4, system=system)
    assert len(condensations(stage)) == 1
    assert condensations(stage)[0]["tokensAfter"] > LIMIT
    assert told_too_large(stage)
    for n in range(3):
        stage.events.clear()
        resumed(stage, system=system)
        stage.prompt(f"resumed {n}: {LONG}", f"again {n}: {LONG}")
        assert len(condensations(stage)) == 1
        assert asked_for_summaries(stage) == 0
        assert len(told_too_large(stage)) == 2
        assert stage.ended.stop_reason == "stop"


def test_a_larger_limit_lets_it_try_again(stage: Stage) -> None:
    system = TIGHT
    talk(stage, 4, system=system)
    assert len(condensations(stage)) == 1
    resumed(stage, system=system, window=12_000)
    stage.prompt(*(f"more {n}: {LONG}" for n in range(4)))
    assert len(condensations(stage)) > 1


def test_what_a_server_adds_to_each_request_does_not_make_it_condense_for_ever(
    stage: Stage,
) -> None:
    """The provider counts 5,000 tokens that no condensation can take away."""
    added = [say("short"), {"usage": {"input": 5300, "output": 5}}]
    stage.set(GOOD, added, {"loop": True}, window=8000, fitting=settings(), tools=())
    stage.prompt(*(f"prompt {n}" for n in range(8)))
    assert len(condensations(stage)) <= 1
    assert told_too_large(stage)


def test_summaries_that_take_too_much_are_told_anew_so_that_it_can_go_on_for_ever(
    stage: Stage,
) -> None:
    form = {**FORM, "decisions_made": [f"{n}: {'word ' * 60}" for n in range(10)]}
    long_winded = summarising({"toolUse": {"name": "record_summary", "input": form}})
    stage.set(long_winded, *TURNS, window=8000, fitting=settings(), tools=())
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(40)))
    found = condensations(stage)
    assert {event.stop_reason for event in stage.seen(TurnEnded)} == {"stop"}
    assert not told_too_large(stage)
    assert all(entry["tokensAfter"] < LIMIT for entry in found)
    assert any("absorbs" in entry for entry in found)
    state = read(stage.session.path)
    assert len([item for item in state.items if item.kind == "summary"]) <= 2
    assert len(state.condensed) == len(found)
    assert state.condensed[0][0] == 1
    assert not state.all_findings
    assert facts(state) == facts(stage.session.state)
    shown = [item for item in history(state) if item.kind == "divider"]
    assert len(shown) == len(found)  # people see all of them


class Counting:
    """A condenser of somebody else's that keeps what it read, and numbers its summaries."""

    def __init__(self) -> None:
        self.read: list[list[Item]] = []

    async def condense(
        self, past: Sequence[Item], progress: Progress | None = None
    ) -> Condensation:
        self.read.append([*past])
        number = len(self.read)
        summary = Summary(
            session_intent=f"summary {number}",
            files_modified=(f"{number}.txt",),
            next_steps=("go on",),
        )
        return Condensation(summary, "elsewhere", "m")


class InParts(Counting):
    """A condenser that reads what it is given in three parts."""

    async def condense(
        self, past: Sequence[Item], progress: Progress | None = None
    ) -> Condensation:
        assert progress is not None
        for done in range(3):
            progress(done, 3)
            await asyncio.sleep(0)
        return await super().condense(past, progress)


def test_the_person_is_told_of_each_part_that_is_begun_before_the_summary(stage: Stage) -> None:
    talk(stage, fitting=settings(condenser=InParts()))
    seen = [event for event in stage.events if isinstance(event, Condensing | Condensed)]
    one, *parts, done = seen[:5]
    assert isinstance(one, Condensing)
    assert isinstance(done, Condensed)
    assert parts == [Condensing(one.entries, one.tokens, n, 3) for n in (1, 2, 3)]


def test_what_absorbs_earlier_summaries_has_read_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awl.planning.SUMMARIES", 0.0)
    counting = Counting()
    stage.set(*TURNS, window=8000, fitting=settings(condenser=counting), tools=())
    for n in range(3):
        stage.prompt(f"one {n}: {LONG}", f"two {n}: {LONG}")
        stage.play(stage.agent.compact())
    one, two, three = condensations(stage)
    assert "absorbs" not in one and "absorbs" not in two
    assert three["absorbs"] == [one["seq"], two["seq"]]
    assert three["summary"]["filesModified"] == ["1.txt", "2.txt", "3.txt"]
    assert [item.kind for item in counting.read[2]][:3] == ["summary", "summary", "message"]
    told = [item.message.text for item in stage.session.state.items if item.kind == "summary"]
    assert len(told) == 1 and "summary 3" in told[0]
    assert not read(stage.session.path).all_findings


# -- a model that refuses --------------------------------------------------------------------------

TOO_LONG = {"error": {"fault": "context_length", "message": "too long"}}


def test_a_request_refused_for_its_length_is_condensed_and_sent_again(stage: Stage) -> None:
    refuse_once = [{"error": {"fault": "context_length", "message": "too long", "times": 1}}]
    stage.set(
        GOOD,
        {"when": "the last straw", "steps": [*refuse_once, say("It fits.")]},
        *TURNS,
        fitting=settings(),
        tools=(),
    )
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(4)), "the last straw")
    assert len(condensations(stage)) == 1
    assert (stage.ended.stop_reason, stage.ended.text) == ("stop", "It fits.")
    assert "rewind" not in stage.kinds


def test_a_prompt_that_is_refused_all_the_same_is_taken_back_and_the_summary_stays(
    stage: Stage,
) -> None:
    stage.set(
        GOOD,
        {"when": "the last straw", "steps": [TOO_LONG]},
        *TURNS,
        fitting=settings(),
        tools=(),
    )
    stage.prompt(*(f"prompt {n}: {LONG}" for n in range(4)), "the last straw")
    assert stage.ended.prompt_refused
    first, again = condensations(stage)
    assert stage.kinds[-3:] == ["condensation", "rewind", "condensation"]
    assert (again["replaced"], again["summary"]) == (first["replaced"], first["summary"])
    assert "usage" in first and "usage" not in again
    stage.prompt("a short one")
    assert len(condensations(stage)) == 2
    assert stage.ended.stop_reason == "stop"
    asked = [message.text for message in stage.model.requests[-1].messages]
    assert "the last straw" not in asked and "a short one" in asked
    assert "Say a word many times." in (stage.model.requests[-1].system or "")
    state = read(stage.session.path)
    assert not state.all_findings
    assert (state.tokens.own_input, state.tokens.own_output) == (70, 30)


def test_a_prompt_that_is_itself_too_long_is_taken_back_without_a_summary(stage: Stage) -> None:
    stage.set(GOOD, {"when": "huge", "steps": [TOO_LONG]}, *TURNS, fitting=settings(), tools=())
    stage.prompt("first", f"huge: {LONG * 20}", "next")
    assert "condensation" not in stage.kinds
    assert asked_for_summaries(stage) == 0
    assert stage.seen(TurnEnded)[1].prompt_refused
    assert stage.ended.stop_reason == "stop"


# -- in the middle of a turn -----------------------------------------------------------------------


def rounds(count: int, *, said: int = 0, put_out: int = 0) -> list[JSON]:
    """Rounds of one tool call each, of so many words; then an answer."""
    made: list[JSON] = []
    for n in range(count):
        output = f"yes word | head -n {put_out} | tr '\\n' ' '; echo; " if put_out else ""
        command = f"{output}echo round {n + 1}; # {'word ' * said}"
        made.append({"when": f"round {n}\n", "steps": [call("bash", command=command)]})
    return [*made, {"when": f"round {count}\n", "steps": [say("All rounds done.")]}]


BASH = [tool for tool in all_tools() if tool.spec.name == "bash"]


def test_a_long_turn_is_condensed_behind_a_finished_round(stage: Stage) -> None:
    stage.set(GOOD, *rounds(9, said=700), window=8000, fitting=settings(), tools=BASH)
    stage.prompt("please do: round 0\n")
    assert stage.ended.text == "All rounds done."
    found = condensations(stage)
    assert found
    assert "please do: round 0" in found[0]["summary"]["sessionIntent"]
    for entry in found:
        last = next(e for e in stage.log[1:] if e["seq"] == entry["replaced"][1])
        behind = next(e for e in stage.log[1:] if e["seq"] == entry["replaced"][1] + 1)
        assert kind(last) == "user"  # results
        assert kind(behind) in ("assistant", "condensation")
    assert not read(stage.session.path).all_findings
    for request in stage.model.requests:
        calls = [use.id for message in request.messages for use in message.tool_uses]
        results = [r.tool_use_id for message in request.messages for r in message.tool_results]
        assert calls == results


def test_a_round_that_the_model_has_not_read_yet_is_never_condensed(stage: Stage) -> None:
    stage.set(GOOD, *rounds(9, said=700), window=8000, fitting=settings(keep_recent=0), tools=BASH)
    stage.prompt("please do: round 0\n")
    assert condensations(stage)
    for request in stage.model.requests:
        if "<record>" not in request.messages[-1].text and len(request.messages) > 1:
            assert request.messages[-1].tool_results


# -- pruning ---------------------------------------------------------------------------------------


def test_old_tool_output_is_left_out_before_anything_is_condensed(stage: Stage) -> None:
    stage.set(
        GOOD, *rounds(7, put_out=700), window=8000, fitting=settings(keep_recent=8), tools=BASH
    )
    stage.prompt("please do: round 0\n")
    assert stage.ended.text == "All rounds done."
    assert "condensation" not in stage.kinds
    (entry,) = [e for e in stage.log if e["type"] == "compaction"]
    assert entry["tier"] == "soft"
    assert entry["clearedCount"] == len(entry["cleared"]) >= 1
    results = [r for m in stage.model.requests[-1].messages for r in m.tool_results]
    cleared = [result.content == CLEARED for result in results]
    assert cleared == sorted(cleared, reverse=True)
    assert sum(cleared) == entry["clearedCount"]
    assert any("no longer sent to the model" in notice.text for notice in stage.seen(Notice))
    assert facts(read(stage.session.path)) == facts(stage.session.state)
    shown = [tool.output for item in history(read(stage.session.path)) for tool in item.tools]
    assert all("word word" in output for output in shown)


def test_output_is_pruned_once_and_then_condensed(stage: Stage) -> None:
    stage.set(
        GOOD, *rounds(20, put_out=700), window=8000, fitting=settings(keep_recent=4), tools=BASH
    )
    stage.prompt("please do: round 0\n")
    assert stage.ended.text == "All rounds done."
    cleared = [s for e in stage.log if e["type"] == "compaction" for s in e["cleared"]]
    assert len(set(cleared)) == len(cleared)
    assert facts(read(stage.session.path)) == facts(stage.session.state)


# -- /compact --------------------------------------------------------------------------------------


def test_a_person_can_condense_between_turns(stage: Stage) -> None:
    talk(stage, 4, window=0)
    done = stage.play(stage.agent.compact())
    (entry,) = condensations(stage)
    assert (done.entry_id, done.usage) == (entry["id"], Usage(input=70, output=30))
    stage.prompt("go on")
    assert "Say a word many times." in (stage.model.requests[-1].system or "")
    assert stage.ended.stop_reason == "stop"


def test_of_what_a_person_condenses_each_part_is_told_between_turns(stage: Stage) -> None:
    talk(stage, 4, window=0, fitting=settings(condenser=InParts()))
    told: list[AgentEvent] = []
    stage.agent.notify = told.append
    done = stage.play(stage.agent.compact())
    assert told == [Condensing(done.entries, done.tokens_before, n, 3) for n in (1, 2, 3)]


def test_where_nothing_can_be_condensed_the_person_is_told_why(stage: Stage) -> None:
    stage.set(GOOD, *TURNS, fitting=settings(keep_recent=20))
    stage.prompt("one", "two")
    before = stage.session.path.read_bytes()
    with pytest.raises(CannotCondense, match="keep_recent"):
        stage.play(stage.agent.compact())
    assert stage.session.path.read_bytes() == before


def test_a_short_conversation_of_long_texts_can_be_condensed(stage: Stage) -> None:
    talk(stage, 3, fitting=settings(keep_recent=20))
    stage.play(stage.agent.compact())
    (entry,) = condensations(stage)
    assert entry["replaced"] == [1, 5]  # the last turn stays


def test_twice_in_a_row_there_is_nothing_left(stage: Stage) -> None:
    talk(stage, 4, window=0)
    stage.play(stage.agent.compact())
    before = stage.session.path.read_bytes()
    with pytest.raises(CannotCondense):
        stage.play(stage.agent.compact())
    assert stage.session.path.read_bytes() == before


def test_an_interrupted_session_can_be_condensed_and_goes_on(stage: Stage) -> None:
    """Killed while its tools ran: the open calls stay, with what is known of them."""
    talk(stage, 4, window=0)
    session = stage.session
    session.append_message(text_message("user", "do it"))
    uses = tuple(ToolUse(id=f"t{n}", name="bash", input="{}") for n in range(2))
    session.append_message(Message("assistant", uses), stop_reason="toolUse")
    session.append(ToolCallEntry(tool_use_id="t0", name="bash"))
    path = session.path
    session._log.close()  # type: ignore[union-attr]
    stage.set(GOOD, *TURNS, session=Session.open(path), fitting=settings(keep_recent=0), tools=())
    assert stage.session.state.interrupted
    stage.play(stage.agent.compact())
    (entry,) = condensations(stage)
    kept = [e for e in stage.log[1:] if entry["replaced"][1] < e["seq"] < entry["seq"]]
    assert [kind(e) for e in kept] == ["user", "assistant", "toolCall"]
    stage.prompt("and now?")
    (results,) = [m.tool_results for m in stage.model.requests[-1].messages if m.tool_results]
    assert [result.tool_use_id for result in results] == ["t0", "t1"]
    assert "may or may not have run" in results[0].content
    assert "never started" in results[1].content
    assert stage.ended.stop_reason == "stop"


def test_a_conversation_that_came_without_a_log_can_be_condensed(stage: Stage) -> None:
    said = tuple(ImportedText("user", f"said {n}: {LONG}") for n in range(6))
    session = stage.store.create(str(stage.cwd), ModelRef("play", "model-1"))
    session.append(ImportEntry(source="legacy", message_count=6, messages=said))
    stage.set(GOOD, *TURNS, session=session, fitting=settings(keep_recent=1), tools=())
    stage.prompt("on")
    stage.play(stage.agent.compact())
    stage.prompt("and on")
    request = stage.model.requests[-1]
    assert "prior messages" not in (request.system or "")
    assert "Say a word many times." in (request.system or "")


def test_while_something_waits_to_be_written_no_model_is_asked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(stage, 4, window=0)
    with monkeypatch.context() as full:
        full.setattr(LogFile, "begin", _no_space)
        with pytest.raises(NotSaved):
            stage.session.append_message(text_message("assistant", "queued"))
        with pytest.raises(CannotCondense, match="not saved yet"):
            stage.play(stage.agent.compact())
    assert asked_for_summaries(stage) == 0
    stage.session.flush()
    stage.play(stage.agent.compact())
    assert condensations(stage)


def _no_space(log: LogFile, lines: bytes) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_conversation_that_is_not_kept_is_not_condensed_and_that_is_told(stage: Stage) -> None:
    model = stage.player("play", "model-1", *TURNS)
    talk(stage, 6, session=Session.unkept(str(stage.cwd), model.ref))
    assert asked_for_summaries(stage) == 0
    assert not stage.session.state.condensed
    (told, *_) = told_too_large(stage)
    assert "it has no log to condense" in told
    assert stage.ended.stop_reason == "stop"


# -- going back ------------------------------------------------------------------------------------


def test_behind_a_rewind_the_condensation_is_gone_and_can_be_made_anew(stage: Stage) -> None:
    talk(stage, 6)
    first = condensations(stage)[0]
    target = next(e["id"] for e in stage.log[1:] if e["seq"] == first["replaced"][1] - 2)
    stage.session.rewind(target)
    assert not stage.session.state.condensed
    assert facts(read(stage.session.path)) == facts(stage.session.state)
    stage.prompt(*(f"other {n}: {LONG}" for n in range(4)))
    state = read(stage.session.path)
    assert len(state.condensed) == 1
    assert state.condensed[0][0] == 1
    assert not state.all_findings
    assert facts(state) == facts(stage.session.state)


def test_behind_a_condensation_the_next_one_starts_where_it_ended(stage: Stage) -> None:
    talk(stage, 6)
    first = condensations(stage)[0]
    stage.session.rewind(first["id"])
    stage.prompt(*(f"other {n}: {LONG}" for n in range(5)))
    state = read(stage.session.path)
    assert len(state.condensed) >= 2
    assert state.condensed[1][0] == first["replaced"][1] + 1
    assert not state.all_findings


def test_the_writer_refuses_what_is_condensed_already(stage: Stage) -> None:
    talk(stage, 6)
    lo, hi = condensations(stage)[0]["replaced"]
    before = stage.session.path.read_bytes()
    for replaced in ((lo, hi), (hi, hi + 1), (1, 1), (hi + 1, 10_000), (5, 4)):
        entry = CondensationEntry(
            replaced=replaced, summary=Summary(), tokens_before=1, tokens_after=1
        )
        with pytest.raises(InvalidRange):
            stage.session.append(entry)
    assert stage.session.path.read_bytes() == before
