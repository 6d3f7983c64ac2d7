"""The scripted provider plays a file; which turn depends on the request alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from asking import HELLO, answer, ask, failure

from awl.config import ProviderSettings
from awl.conversation import RedactedThinking, Text, Thinking, ToolUse, text_message
from awl.entries import Usage
from awl.errors import ConfigError
from awl.providers import Completed, Request, TextDelta, ThinkingDelta, connect
from awl.providers.scripted import ScriptedProvider

SAID = text_message("assistant", "said")


def script(path: Path, *turns: Any) -> ScriptedProvider:
    file = path / "script.jsonl"
    file.write_text("".join(json.dumps(turn) + "\n" for turn in turns), encoding="utf-8")
    return playing(file)


def playing(file: Path) -> ScriptedProvider:
    settings = ProviderSettings(name="scripted", type="scripted", path=str(file))
    provider = connect(settings, {})
    assert isinstance(provider, ScriptedProvider)
    return provider


def words(said: Completed) -> str:
    return "".join(block.text for block in said.content if isinstance(block, Text))


def test_each_request_plays_the_turn_of_its_number_of_answers(tmp_path: Path) -> None:
    provider = script(tmp_path, [{"text": "zero"}], [{"text": "one"}], [{"text": "two"}])
    assert words(answer(provider, HELLO)) == "zero"
    assert words(answer(provider, HELLO, SAID, HELLO, SAID, HELLO)) == "two"
    # Another process that resumes the session goes on in the same place.
    again = playing(tmp_path / "script.jsonl")
    assert words(answer(again, HELLO, SAID, HELLO)) == "one"
    assert words(answer(again, HELLO)) == "zero"


def test_all_kinds_of_steps(tmp_path: Path) -> None:
    provider = script(
        tmp_path,
        [
            {"thinking": "Hm, yes", "chunk": 3},
            {"thinking": ".", "signature": "c2ln"},
            {"redactedThinking": "b3BhcXVl"},
            {"text": "Hello "},
            {"delay": 0.001},
            {"text": "world", "chunk": 2, "delay": 0.001},
            {"toolUse": {"id": "t1", "name": "read", "input": {"path": "a.py"}}},
            {"toolUse": {"name": "bash", "input": "not JSON"}},
            {"usage": {"input": 10, "output": 5, "cacheRead": 2}},
            {"model": "scripted-2"},
        ],
    )
    *deltas, last = ask(provider)
    assert last == Completed(
        content=(
            Thinking(thinking="Hm, yes.", signature="c2ln"),
            RedactedThinking(data="b3BhcXVl"),
            Text(text="Hello world"),
            ToolUse(id="t1", name="read", input='{"path":"a.py"}'),
            ToolUse(id="call_0_4", name="bash", input="not JSON"),
        ),
        stop_reason="toolUse",
        model="scripted-2",
        usage=Usage(input=10, output=5, cache_read=2),
    )
    assert [d.thinking for d in deltas if isinstance(d, ThinkingDelta)] == ["Hm,", " ye", "s", "."]
    texts = [(d.index, d.text) for d in deltas if isinstance(d, TextDelta)]
    assert texts == [(2, "Hello "), (2, "wo"), (2, "rl"), (2, "d")]


def test_an_error_in_the_middle_breaks_the_stream_off(tmp_path: Path) -> None:
    error = {"fault": "overloaded", "message": "busy", "status": 529}
    provider = script(tmp_path, [{"text": "half"}, {"error": error}, {"text": "never"}])
    heard: list[str] = []

    async def listen() -> None:
        async for event in provider.stream(Request(system=None, messages=[HELLO])):
            assert isinstance(event, TextDelta)
            heard.append(event.text)

    with pytest.raises(Exception, match="busy") as caught:
        asyncio.run(listen())
    assert heard == ["half"]
    assert (caught.value.fault, caught.value.status) == ("overloaded", 529)  # type: ignore[attr-defined]


def test_an_error_may_strike_a_number_of_times(tmp_path: Path) -> None:
    error = {"error": {"fault": "rate_limit", "times": 2}}
    provider = script(tmp_path, [error, {"text": "at last"}])
    assert failure(provider).fault == "rate_limit"
    assert failure(provider).transient
    assert words(answer(provider)) == "at last"


def test_a_condition_comes_before_the_count(tmp_path: Path) -> None:
    provider = script(
        tmp_path,
        [{"text": "zero"}],
        {"when": "summarise", "steps": [{"text": "a summary"}]},
        [{"text": "one"}],
    )
    assert words(answer(provider, text_message("user", "please summarise this"))) == "a summary"
    assert words(answer(provider, system="summarise!")) == "a summary"
    earlier = (text_message("user", "summarise"), SAID, HELLO)
    assert words(answer(provider, *earlier)) == "one"


def test_a_script_that_is_played_out_says_so(tmp_path: Path) -> None:
    error = failure(script(tmp_path, [{"text": "only"}]), HELLO, SAID, HELLO)
    assert error.fault == "refused"
    assert not error.transient
    assert "turn 2" in str(error)


def test_a_loop_begins_again(tmp_path: Path) -> None:
    provider = script(tmp_path, {"loop": True}, [{"text": "a"}], [{"text": "b"}])
    assert words(answer(provider, HELLO, SAID, HELLO, SAID, HELLO)) == "a"


def test_an_array_of_turns_is_a_script_too(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(json.dumps([[{"text": "a"}], [{"text": "b"}]], indent=2))
    assert words(answer(playing(file), HELLO, SAID, HELLO)) == "b"


def test_a_turn_without_steps_is_an_empty_answer(tmp_path: Path) -> None:
    said = answer(script(tmp_path, [], [{"text": "x"}]))
    assert (said.content, said.stop_reason) == ((), "stop")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[{"txet": "typo"}]', "txet"),
        ('[{"text": "a", "thinking": "b"}]', "one kind"),
        ('[{"text": "a"}]\n[{"error": {"fault": "no such"}}]', "turn 2"),
        ('[{"text": "a"}]\n{broken', "line 2"),
        ("{}x", "line 1"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        playing(file)
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        playing(tmp_path / "none.jsonl")


def test_an_answer_can_be_cancelled_between_chunks(tmp_path: Path) -> None:
    provider = script(tmp_path, [{"text": "x" * 100_000, "chunk": 1}])
    heard = 0

    async def listen() -> None:
        nonlocal heard
        request = Request(system=None, messages=[HELLO])
        async with contextlib.aclosing(provider.stream(request)) as events:
            async for _ in events:
                heard += 1

    async def run() -> None:
        task = asyncio.create_task(listen())
        while not heard:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    assert 0 < heard < 100_000
