"""A terminal with an app that plays what a prompt names; run by test_terminal on a real pty.

`talk.py JOURNAL HISTORY`: what the app is asked goes to JOURNAL, one JSON list a line.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
import termios
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from awl.access import BannerInfo, HistoryItem, SessionRow, Sessions, Wish
from awl.channels.terminal import Terminal
from awl.conversation import ModelRef, ToolUse
from awl.entries import Usage
from awl.errors import AwlError
from awl.events import (
    AgentEvent,
    AnswerText,
    Notice,
    Saved,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unsaved,
)
from awl.places import GoingBack, Labelling, Prompt

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\x1bPq\x1b\\ &#x1b;[5m <\x08\x7f> \u202etxt"
SCRIPT = "one\ntwo\nthree"


class Player:
    """Plays a turn for each prompt, and keeps a journal of what it was asked."""

    def __init__(self, journal: Path, terminal: Terminal) -> None:
        self.model = ModelRef("test", "model")
        self.session_id = "019dc5ba"
        self.unsaved = 0
        self._journal = journal
        self._terminal = terminal
        self._cancelled = asyncio.Event()

    def note(self, *facts: object) -> None:
        with self._journal.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    def models(self) -> Sequence[ModelRef]:
        return [self.model, ModelRef("test", "other")]

    async def switch_model(self, name: str) -> ModelRef:
        if name == "slow":
            await asyncio.sleep(3600)
        for model in self.models():
            if name in (model.model, str(model)):
                self.model = model
                return model
        raise AwlError(f"no model {name}: choose model or other")

    async def history(self, limit: int | None) -> Iterable[HistoryItem]:
        return [HistoryItem(kind="user", text="said \x1b[2J before")]

    async def prompts(self, limit: int | None) -> Sequence[Prompt]:
        texts = ("latest", HOSTILE, "first\nof all")
        return [
            Prompt(number=n, entry_id=f"{n:08x}", timestamp="", text=text)
            for n, text in enumerate(texts, 1)
        ]

    async def rewind(self, name: str) -> GoingBack:
        self.note("rewind", name)
        return GoingBack(entry_id=None, prompt="/first\nof all")

    async def label(self, words: str) -> Labelling:
        return Labelling(words, "", [])

    async def title(self, title: str | None) -> str:
        return title or HOSTILE

    async def tree(self) -> Sequence[str]:
        return [HOSTILE]

    async def export(self, path: str, format_name: str | None, *, force: bool) -> Sequence[str]:
        raise AwlError(f"{path} exists")

    async def sessions(self, limit: int | None) -> Sessions:
        return Sessions(rows=())

    async def session_row(self, query: str | None) -> SessionRow:
        raise AwlError("there is none")

    async def resume(self, query: str, wish: Wish) -> BannerInfo:
        self._terminal.notify(Notice("Replaying conversation…"))
        if query == "slow":
            await asyncio.sleep(3600)
        self.session_id = query
        return BannerInfo(session_id=query, last_active="", messages=1, turns=1, title=HOSTILE)

    async def fork(self, query: str | None, wish: Wish) -> BannerInfo:
        raise AwlError("there is no space")

    def session_names(self) -> Iterable[tuple[str, str]]:
        return [("019dc5bb", HOSTILE)]

    async def compact(self) -> str:
        await asyncio.sleep(3600)
        return "never"

    def warm(self) -> None:
        self.note("warm", str(self.model))

    def cancel(self) -> None:
        self.note("cancel")
        self._cancelled.set()

    async def prompt(self, text: str) -> AsyncIterator[AgentEvent]:
        self.note("prompt", text)
        self._cancelled.clear()
        if text == "refuse":
            yield Unsaved("NOT SAVED to /log: No space left on device", 0)
            yield TurnEnded("unsaved", error="NOT SAVED", prompt_refused=True)
            return
        yield TurnStarted("019dc5ba", 1)
        play = getattr(self, f"play_{text.split()[0]}", self.play_echo)
        async for event in play(text):
            yield event
        self.note("ended")
        reason = "aborted" if self._cancelled.is_set() else "stop"
        yield TurnEnded(reason, usage=Usage(input=12_345, output=67))

    async def play_echo(self, text: str) -> AsyncIterator[AgentEvent]:
        yield AnswerText(f"You said {len(text)} letters.")

    async def play_stream(self, text: str) -> AsyncIterator[AgentEvent]:
        number = 0
        while not self._cancelled.is_set():
            yield AnswerText(f"word{number} ")
            number += 1
            await asyncio.sleep(0.01)

    async def play_wait(self, text: str) -> AsyncIterator[AgentEvent]:
        await self._cancelled.wait()
        yield AnswerText("stopped waiting")

    async def play_stuck(self, text: str) -> AsyncIterator[AgentEvent]:
        await self._cancelled.wait()
        await asyncio.sleep(3600)
        yield AnswerText("never")

    async def play_long(self, text: str) -> AsyncIterator[AgentEvent]:
        for number in range(500):
            for word in f"Line {number} of the **long** answer,\n".split(" "):
                yield AnswerText(f"{word} ")
            if number % 10 == 0:
                await asyncio.sleep(0.01)

    async def play_hostile(self, text: str) -> AsyncIterator[AgentEvent]:
        yield AnswerText(f"Harmless: {HOSTILE}\n")
        yield ToolStarted("t", f"tool{HOSTILE}", f"$ {HOSTILE}")
        yield ToolFinished("t", f"tool{HOSTILE}", HOSTILE, True, 1)

    async def play_tool(self, text: str) -> AsyncIterator[AgentEvent]:
        use = ToolUse(id="t1", name="bash", input=json.dumps({"command": SCRIPT}))
        answer = await self._terminal.approve(use, f"$ {SCRIPT}")
        self.note("approval", answer)
        if answer == "deny":
            yield ToolFinished("t1", "bash", "The user did not allow this call.", True, 0)
        else:
            yield ToolStarted("t1", "bash", f"$ {SCRIPT}")
            yield ToolFinished("t1", "bash", "done", False, 1)

    async def play_unsaved(self, text: str) -> AsyncIterator[AgentEvent]:
        self.unsaved = 1
        yield Unsaved("NOT SAVED to /log: No space left on device (1 waiting)", 1)
        asyncio.get_running_loop().call_later(1, self._save)

    async def play_broken(self, text: str) -> AsyncIterator[AgentEvent]:
        raise AwlError("the log was changed by another program")
        yield AnswerText("")

    def _save(self) -> None:
        self.unsaved = 0
        self._terminal.notify(Saved(1))


async def main(journal: Path, history: Path, *options: str) -> int:
    terminal = Terminal(history_file=history)
    player = Player(journal, terminal)
    banner = BannerInfo(
        session_id="019dc5ba", last_active="2026-04-25T17:40:15.990Z", messages=14, turns=3
    )
    code = await terminal.talk(player, resumed=banner if "--resumed" in options else None)
    player.note("exit", code)
    if "--ask" in options:
        player.note("path", await terminal.ask_path("Write it where?"))
    return code


if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    raise SystemExit(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])))
