"""Another conversation in the place of the running one: what comes along, and what may go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from acting import LIMIT, Playing
from histories import examples, facts, replayed
from hypothesis import given
from hypothesis import strategies as st
from running import JSON, Awl, kind, say, texts, user

from awl.access import Wish
from awl.app import App, begin
from awl.beginning import Wanted
from awl.config import load
from awl.conversation import text_message
from awl.errors import AwlError, NewerFormat, NoLog, NotASession, SessionBusy, SessionNotFound
from awl.events import AgentEvent, Notice
from awl.index.conversations import Logless
from awl.session import Session

OTHER = "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"


class Scene:
    """A running conversation in this process, and what it asked and told."""

    def __init__(self, awl: Awl, app: App) -> None:
        self.awl, self.app = awl, app
        self.told: list[AgentEvent] = []
        app.notify = self.told.append

    async def says(self, text: str) -> str:
        """A whole turn; the answer."""
        return "".join([e.text async for e in self.app.prompt(text) if hasattr(e, "text")][-1:])

    @property
    def model(self) -> Playing:
        assert isinstance(self.app.agent.provider, Playing)
        return self.app.agent.provider

    @property
    def log(self) -> list[JSON]:
        return self.awl.entries(self.app.session.path)

    def words_sent(self) -> list[str]:
        """What the model was last sent, text by text."""
        return [message.text for message in self.model.requests[-1].messages]


@asynccontextmanager
async def running(
    awl: Awl, resume: Path | Logless | None = None, **wanted: Any
) -> AsyncIterator[Scene]:
    with patch("awl.beginning.connect", lambda settings, environ: Playing(settings)):
        wish = Wanted(cwd=str(awl.work), **wanted)
        app = begin(load(awl.env), awl.env, wish, approve=None, resume=resume)
        try:
            yield Scene(awl, app)
        finally:
            await app.close()
            app.session.close()


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LIMIT))


@pytest.fixture
def there(awl: Awl) -> Path:
    """Another directory, with a session of another model."""
    there = awl.home / "there"
    there.mkdir()
    return there


def other(awl: Awl, there: Path) -> Path:
    said = {**user("before"), "provider": "other", "model": "model-2"}
    return awl.write_log(said, {"type": "title", "title": "Named"}, cwd=there, id=OTHER)


# -- what comes along ------------------------------------------------------------------------------


def test_the_next_prompt_goes_to_the_other_conversation_s_model_cwd_history_and_log(
    awl: Awl, there: Path
) -> None:
    log = other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("here")
            left = scene.app.session
            banner = await scene.app.resume("019dc5ba", Wish())
            assert (banner.session_id, banner.title, banner.cwd) == (
                "019dc5ba",
                "Named",
                str(there),
            )
            assert str(banner.model) == str(scene.app.model) == "other/model-2"
            assert scene.told == [Notice("Replaying conversation…")]
            await scene.says("after")
            assert scene.words_sent() == ["before\nafter"]
            assert scene.app.session.path == log
            assert scene.app.session.cwd == str(there)
            assert scene.app.session_id == scene.app.resume_name == "019dc5ba"
            asked = scene.log[-2]
            assert (texts(asked), asked["model"]) == ("after", "model-2")
            end = awl.entries(left.path)[-1]
            assert (end["type"], end["reason"]) == ("end", "switched")
            Session.open(left.path).close()

    play(scenario)


def test_tools_run_in_the_other_conversation_s_directory(awl: Awl, there: Path) -> None:
    other(awl, there)
    awl.plays(
        [
            {
                "toolUse": {
                    "id": "t",
                    "name": "bash",
                    "input": {"command": "pwd; echo $AWL_SESSION_ID"},
                }
            }
        ]
    )

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.app.resume(OTHER, Wish())
            await scene.says("where?")
            results = [e for e in scene.log if kind(e) == "user"][-1]["message"]["content"]
            assert results[0]["content"] == f"{there}\n{OTHER}\n"

    play(scenario)


def test_there_and_back_again_leaves_each_log_whole(awl: Awl, there: Path) -> None:
    log = other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            first = scene.app.session.path
            for _ in range(2):
                await scene.app.resume(OTHER, Wish())
                await scene.says("two")
                await scene.app.resume(str(first), Wish())
                await scene.says("three")
            assert [texts(e) for e in scene.log if kind(e) == "user"] == ["one", "three", "three"]
            assert [e["reason"] for e in scene.log if kind(e) == "end"] == ["switched"] * 2
            assert [kind(e) for e in awl.entries(log)][3:] == ["user", "assistant", "end"] * 2

    play(scenario)


def test_a_conversation_in_which_nothing_was_said_leaves_nothing(awl: Awl, there: Path) -> None:
    log = other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.app.resume(OTHER, Wish())
        assert awl.logs == [log]
        assert [kind(e) for e in awl.entries(log)] == ["session", "user", "title"]

    play(scenario)


def test_flags_that_awl_was_started_with_hold_for_the_first_conversation_alone(
    awl: Awl, there: Path
) -> None:
    other(awl, there)

    async def scenario() -> None:
        async with running(awl, provider="play", system="Be brief.", max_turns=3) as scene:
            await scene.app.resume(OTHER, Wish())
            assert str(scene.app.model) == "other/model-2"
            await scene.says("hi")
            assert "system" not in [kind(e) for e in scene.log]

    play(scenario)


def test_another_model_and_directory_are_taken_on_demand_and_logged(awl: Awl, there: Path) -> None:
    other(awl, there)
    shutil.rmtree(there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.app.resume(OTHER, Wish(model="play/scripted", cwd=".."))
            assert str(scene.app.model) == "play/scripted"
            assert scene.app.session.cwd == str(awl.home)
            assert [kind(e) for e in scene.log][-2:] == ["cwdChange", "modelChange"]

    play(scenario)


# -- copies ----------------------------------------------------------------------------------------


def test_a_copy_of_the_running_conversation_goes_on_and_the_parent_ends_cleanly(awl: Awl) -> None:
    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            parent = scene.app.session
            before = parent.path.read_bytes()
            banner = await scene.app.fork(None, Wish())
            assert banner.forked_from.endswith(" at 3")
            await scene.says("two")
            assert scene.words_sent() == ["one", "Hello there.", "two"]
            assert scene.log[0]["forkedFrom"] == {"sessionId": parent.id, "seq": 3}
            assert parent.path.read_bytes().startswith(before)
            point, end = awl.entries(parent.path)[-2:]
            assert (point["type"], point["newSessionId"]) == ("forkPoint", scene.app.session.id)
            assert end["reason"] == "switched"

    play(scenario)


def test_a_copy_up_to_an_entry_of_another_conversation(awl: Awl, there: Path) -> None:
    log = other(awl, there)
    before = log.read_bytes()

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.app.fork("019dc5ba", Wish(at=1))
            assert [kind(e) for e in scene.log] == ["session", "user"]
            assert scene.app.session.cwd == str(there)
            assert str(scene.app.model) == "other/model-2"
        assert log.read_bytes().startswith(before)

    play(scenario)


def test_a_copy_that_cannot_be_gone_on_with_is_not_made(awl: Awl, there: Path) -> None:
    other(awl, there)
    shutil.rmtree(there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            with pytest.raises(AwlError, match=r"/conv fork .* --cwd DIR"):
                await scene.app.fork("019dc5ba", Wish())
            with pytest.raises(AwlError, match="1 to 3"):
                await scene.app.fork(None, Wish(at=99))
            assert len(awl.logs) == 2

    play(scenario)


# -- what goes wrong -------------------------------------------------------------------------------


def newer(log: Path) -> None:
    log.write_text(log.read_text().replace('"version": 1', '"version": 99'))


def unconfigured(log: Path) -> None:
    log.write_text(log.read_text().replace('"other"', '"gone"'))


def elsewhere(log: Path) -> None:
    line = {"type": "modelChange", "provider": "other", "model": "m", "endpoint": "http://x.test"}
    log.write_text(log.read_text() + json.dumps({"id": "a", "parentId": None, **line}) + "\n")


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (newer, NewerFormat, "newer than this awl"),
        (unconfigured, AwlError, "/conv resume ID --provider NAME` .*other"),
        (elsewhere, AwlError, "--provider other"),
        (lambda log: shutil.rmtree(log.parents[2] / "there"), AwlError, "/conv resume .* --cwd"),
        (lambda log: log.unlink(), SessionNotFound, "no session matches"),
        (lambda log: log.write_text('{"half'), (NotASession, SessionNotFound), None),
    ],
)
def test_a_failure_leaves_the_old_conversation_running_and_locked(
    awl: Awl, there: Path, spoil: Callable[[Path], None], error: type[AwlError], says: str | None
) -> None:
    log = other(awl, there)
    spoil(log)
    before = log.read_bytes() if log.exists() else None

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            with pytest.raises(error, match=says):
                await scene.app.resume(OTHER, Wish())
            with pytest.raises(SessionBusy):
                Session.open(scene.app.session.path)
            await scene.says("two")
            assert [texts(e) for e in scene.log if kind(e) == "user"] == ["one", "two"]
        assert (log.read_bytes() if log.exists() else None) == before
        assert not log.with_name(log.name + ".owner").exists()

    play(scenario)


def test_a_conversation_that_is_open_elsewhere_is_not_taken(awl: Awl, there: Path) -> None:
    log = other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            held = Session.open(log)
            with pytest.raises(SessionBusy, match=str(os.getpid())):
                await scene.app.resume(OTHER, Wish())
            held.close()
            await scene.app.resume(OTHER, Wish())

    play(scenario)


def test_the_running_conversation_is_not_resumed_again(awl: Awl) -> None:
    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            session = scene.app.session
            for query in (session.id, scene.app.session_id, "#1", str(session.path)):
                with pytest.raises(AwlError, match="that you are in"):
                    await scene.app.resume(query, Wish())
            assert scene.app.session is session
            assert scene.told == []

    play(scenario)


def test_nothing_is_left_while_something_waits_to_be_saved(awl: Awl, there: Path) -> None:
    other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            with patch("awl.log.file.write_all", side_effect=OSError(28, "No space left")):
                with pytest.raises(Exception, match="NOT SAVED"):
                    scene.app.session.append_message(text_message("assistant", "late"))
                for swap in (scene.app.resume(OTHER, Wish()), scene.app.fork(None, Wish())):
                    with pytest.raises(AwlError, match="not saved yet"):
                        await swap
            scene.app.session.flush()
            await scene.app.resume(OTHER, Wish())

    play(scenario)


def test_nothing_is_left_in_the_middle_of_a_turn(awl: Awl, there: Path) -> None:
    other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            async for _ in scene.app.prompt("one"):
                for swap in (
                    scene.app.resume(OTHER, Wish()),
                    scene.app.fork(None, Wish()),
                    scene.app.rewind("1"),
                    scene.app.title("x"),
                ):
                    with pytest.raises(AwlError, match="a turn is running"):
                        await swap
            await scene.app.resume(OTHER, Wish())

    play(scenario)


def test_a_swap_that_is_given_up_lets_go_of_the_other_conversation(awl: Awl, there: Path) -> None:
    log = other(awl, there)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("one")
            session = scene.app.session
            swap = asyncio.ensure_future(scene.app.resume(OTHER, Wish()))
            while not scene.told:
                await asyncio.sleep(0)
            with pytest.raises(AwlError, match="is being opened"):
                await scene.says("meanwhile")
            swap.cancel()
            with pytest.raises(asyncio.CancelledError):
                await swap
            assert scene.app.session is session
            await scene.says("two")
            await scene.app.resume(OTHER, Wish())  # it waits for what was given up
            assert scene.app.session.path == log

    play(scenario)


def test_awl_may_end_while_a_swap_is_given_up(awl: Awl, there: Path) -> None:
    log = other(awl, there)
    gate = threading.Event()
    opens = Session.open

    def slowly(path: Path, *, cwd: str | None = None) -> Session:
        gate.wait(LIMIT)
        return opens(path, cwd=cwd)

    async def scenario() -> None:
        async with running(awl) as scene:
            with patch("awl.beginning.Session.open", slowly):
                swap = asyncio.ensure_future(scene.app.resume(OTHER, Wish()))
                while not scene.told:
                    await asyncio.sleep(0)
                swap.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await swap
        gate.set()

    play(scenario)
    assert not log.with_name(log.name + ".owner").exists()
    Session.open(log).close()


def test_what_is_not_kept_is_not_left(awl: Awl, there: Path) -> None:
    other(awl, there)

    async def scenario() -> None:
        async with running(awl, kept=False) as scene:
            await scene.says("one")
            for swap in (scene.app.resume(OTHER, Wish()), scene.app.fork(OTHER, Wish())):
                with pytest.raises(AwlError, match="--no-session"):
                    await swap
            assert (await scene.app.rewind("1")).prompt == "one"
            assert len((await scene.app.sessions(None)).rows) == 1

    play(scenario)


# -- a file of it ----------------------------------------------------------------------------------


def test_the_running_conversation_is_exported_as_its_file_is_named(awl: Awl) -> None:
    async def scenario() -> None:
        async with running(awl) as scene:
            with pytest.raises(AwlError, match="nothing of this conversation"):
                await scene.app.export("x.jsonl", None, force=False)
            await scene.says("one")
            log = scene.app.session.path
            assert await scene.app.export("x.jsonl", None, force=False) == [
                f"Written to {awl.work / 'x.jsonl'}."
            ]
            assert (awl.work / "x.jsonl").read_bytes() == log.read_bytes()
            await scene.app.export("~/x.html".replace("~", str(awl.home)), None, force=False)
            assert (awl.home / "x.html").read_text().startswith("<!")
            await scene.app.export("y", "markdown", force=False)
            assert "Hello there." in (awl.work / "y").read_text()
            with pytest.raises(AwlError, match="exists"):
                await scene.app.export("y", None, force=False)
            await scene.app.export("y", None, force=True)
            assert (awl.work / "y").read_bytes() == log.read_bytes()
            with pytest.raises(AwlError, match="no format"):
                await scene.app.export("z", "nope", force=False)

    play(scenario)


# -- conversations without a log -------------------------------------------------------------------


def test_conversations_without_a_log_are_left_and_gone_on_with(awl: Awl, there: Path) -> None:
    log = other(awl, there)
    awl.plays([say("Hi.")], loop=True, settings="[session]\nenabled = false")

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("without a log")
            without = scene.app.session.id
            for needs in (
                scene.app.rewind("1"),
                scene.app.label("x"),
                scene.app.title("x"),
                scene.app.tree(),
                scene.app.export("x", None, force=False),
                scene.app.fork(None, Wish()),
            ):
                with pytest.raises(NoLog):
                    await needs
            banner = await scene.app.resume(OTHER, Wish())
            assert any("has a log and keeps it" in notice for notice in banner.notices)
            await scene.says("logged")
            assert texts(awl.entries(log)[-2]) == "logged"
            await scene.app.resume(without, Wish())
            await scene.says("more")
            assert scene.words_sent() == ["without a log", "Hi.", "more"]
            with pytest.raises(AwlError, match="that you are in"):
                await scene.app.resume(without, Wish())

    play(scenario)


def test_with_sessions_enabled_such_a_conversation_gets_a_log_or_a_copy_with_one(
    awl: Awl,
) -> None:
    awl.plays([say("Hi.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "one")
    awl("-p", "two")
    awl.plays([say("Hi.")], loop=True)

    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.app.resume("#1", Wish())
            await scene.says("three")
            assert [kind(e) for e in scene.log][:3] == ["session", "import", "system"]
            await scene.app.fork("#2", Wish())
            assert scene.log[0]["forkedFrom"]["seq"] == 1
            assert "user: two" in str(scene.app.session.conversation)
        assert len(awl.logs) == 3

    play(scenario)


# -- anything, in any order ------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["prompt", "prompt", "rewind", "rewind", "label", "title", "fork", "fork at", "resume"]
        ),
        st.integers(0, 99),
    ),
    max_size=14,
)


@examples(40)
@given(steps=STEPS)
def test_what_is_replayed_is_what_was_live_whatever_was_gone_back_copied_and_swapped(
    steps: list[tuple[str, int]],
) -> None:
    async def scenario() -> None:
        async with running(awl) as scene:
            await scene.says("first")
            for step, n in steps:
                before = {log: log.read_bytes() for log in awl.logs}
                await take(scene, step, n)
                for log, data in before.items():
                    assert log.read_bytes().startswith(data)
                session = scene.app.session
                assert facts(replayed(session.path)) == facts(session.state)

    with (
        tempfile.TemporaryDirectory() as home,
        patch("awl.log.file.sync"),
        patch("awl.index.level.sync"),
        patch("os.fsync"),
    ):
        awl = Awl(Path(home))
        play(scenario)


async def take(scene: Scene, step: str, n: int) -> None:
    """One step, at a place or to a session that `n` picks."""
    app = scene.app
    entries = app.session.state.entries
    entry = entries[n % len(entries)]
    try:
        match step:
            case "prompt":
                await scene.says(f"prompt {n}")
            case "rewind":
                await app.rewind(entry.id if n % 2 else str(n // 2))
            case "label":
                await app.label(f"name-{n % 3} {entry.id}")
            case "title":
                await app.title(f"title {n}")
            case "fork":
                await app.fork(None, Wish())
            case "fork at":
                rows = (await app.sessions(None)).rows
                await app.fork(rows[n % len(rows)].info.id, Wish(at=1 + n % 9))
            case "resume":
                rows = (await app.sessions(None)).rows
                await app.resume(rows[n % len(rows)].info.id, Wish())
    except AwlError:
        pass  # there is no such place; and nothing happened
