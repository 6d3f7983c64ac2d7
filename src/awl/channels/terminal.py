"""The interactive terminal: prompts, turns, commands and questions, until the person leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.formatted_text import StyleAndTextTuples
from rich.console import Console

from awl.access import AgentAccess, Ask, BannerInfo, Reply
from awl.agent import Approval
from awl.channels import prompt
from awl.channels.display import (
    RESULT_LINES,
    banner,
    call_details,
    inset,
    make_console,
    show_reply,
    words,
)
from awl.channels.prompt import InputLine, Question, quiet_keys
from awl.channels.screen import TICK, Screen
from awl.commands import as_prompt, is_command, run
from awl.conversation import ModelRef, ToolUse
from awl.entries import Usage
from awl.errors import AwlError
from awl.events import AgentEvent, TurnEnded
from awl.printing import one_line

_DETAIL_ROWS: Final = 12
"""Rows of a call that are shown with the question whether it may run."""

_HANGUP: Final = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none

_GREETING: Final = "Enter sends, Alt-Enter adds a line, /help lists the commands, Ctrl-D quits."


class TerminalApp(AgentAccess, Protocol):
    """What the terminal needs: an agent, and what commands ask of it.

    Everything is asked anew each time: the conversation behind it may be swapped between turns.
    """

    @property
    def session_id(self) -> str:
        """The session's id, as short as is unique, or that nothing is kept; empty while there is
        no session."""

    @property
    def unsaved(self) -> int:
        """How many entries wait to be written."""

    def prompt(self, text: str) -> AsyncIterator[AgentEvent]:
        """`Agent.prompt`."""

    def cancel(self) -> None:
        """`Agent.cancel`."""

    def warm(self) -> None:
        """Import what the first request needs; called in a thread."""


class Terminal:
    """A person at a terminal. `approve` is an `Approver` for the agent."""

    def __init__(
        self,
        *,
        history_file: Path | None = None,
        history_lines: int = RESULT_LINES,
        console: Console | None = None,
    ) -> None:
        """`history_lines`: how many lines of a tool's output `/history` shows."""
        self.console = make_console() if console is None else console
        self._history_file = history_file
        self._history_lines = history_lines
        self._screen = Screen(self.console)
        self._app: TerminalApp | None = None
        self._line: InputLine | None = None
        self._question: Question | None = None
        self._one_question = asyncio.Lock()
        self._turn: asyncio.Task[TurnEnded | None] | None = None
        self._command: asyncio.Task[Reply] | None = None
        self._interrupts = 0
        self._signal = 0  # that told awl to go
        self._deaf = False  # the terminal is gone: nothing is shown any more
        self._warmed: ModelRef | None = None
        self._usage: Usage | None = None
        self._facts = ""

    async def talk(
        self, app: TerminalApp, *, resumed: BannerInfo | None = None, draft: str = ""
    ) -> int:
        """Talk until the person leaves or a signal says so; the exit code.

        `resumed` is shown first; `draft` is in the input line to begin with. SIGTERM and SIGHUP
        end a running turn cleanly and return; closing the session is the caller's.
        """
        self._app = app
        prompt.use_no_cpr()
        self._line = InputLine(app, history_file=self._history_file, toolbar=self._toolbar)
        with self._signals():
            self._greet(resumed)
            while not self._signal:
                self._warm(app)
                self._facts = self._of_session(app)
                line = await self._there(self._line.read(draft, refresh=app.unsaved > 0))
                if line is None or self._signal:
                    break
                if is_command(line):
                    reply = await self._carry_out(line, app)
                    draft = reply.draft
                    if reply.quit:
                        break
                else:
                    draft = await self._prompt(line, app)
        return 128 + self._signal if self._signal else 0

    async def approve(self, call: ToolUse, summary: str) -> Approval:
        """Ask whether a tool may run. Ctrl-C denies it and ends the turn."""
        async with self._one_question:
            if self._interrupts or self._signal or self._deaf:
                return "deny"
            self._screen.pause(True)
            try:
                return await self._ask(call, summary)
            finally:
                self._screen.pause(False)

    def notify(self, event: AgentEvent) -> None:
        """Show an event that happened between turns, above the input line."""
        if self._line is not None and self._turn is None and self._line.reading:
            run_in_terminal(lambda: self._show(event))
        else:
            self._show(event)

    async def ask_path(self, question: str) -> str | None:
        """A path as the person writes it; None if they give none or nobody is left to ask."""
        return None if self._deaf or self._signal else await prompt.ask_path(question)

    async def _carry_out(self, line: str, app: TerminalApp) -> Reply:
        """Carry out a slash command, and what the person answers to what it asks."""
        while True:
            reply = await self._reply(line, app)
            if reply.banner is not None:
                self._usage = None  # of another conversation
            with suppress(OSError):
                show_reply(reply, self.console, lines=self._history_lines)
                self.console.print()
            if reply.ask is None or self._signal or not (answer := await self._pick(reply.ask)):
                return reply
            line = f"{reply.ask.command} {answer}"

    async def _reply(self, line: str, app: TerminalApp) -> Reply:
        self._command = asyncio.create_task(run(line, app))
        try:
            with self._working("working"):
                return await self._command
        except asyncio.CancelledError:
            _raise_if_cancelled()
            return Reply(text="Stopped.", is_error=True)
        finally:
            self._command = None

    async def _pick(self, ask: Ask) -> str | None:
        self._question = Question(ask.question)
        try:
            return await self._there(self._question.ask())
        finally:
            self._question = None

    async def _there(self, asking: Coroutine[Any, Any, str | None]) -> str | None:
        """What the person answers; None if they give none, or the terminal is gone meanwhile."""
        try:
            return await asking
        except OSError:
            self._hung_up()
            return None

    async def _prompt(self, line: str, app: TerminalApp) -> str:
        """One turn; what the input line begins with after it."""
        self._interrupts = 0
        self._turn = asyncio.create_task(self._follow(as_prompt(line), app))
        try:
            with self._working("waiting"):
                ended = await self._turn
        except asyncio.CancelledError:
            _raise_if_cancelled()
            return ""
        finally:
            self._turn = None
        if ended is None:
            return ""
        self._usage = ended.usage or self._usage
        return line if ended.prompt_refused else ""

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """Meanwhile the status line lives, and keys wait for the next prompt."""
        self._screen.begin(what)
        ticker = asyncio.create_task(self._tick())
        try:
            with quiet_keys():
                yield
        finally:
            ticker.cancel()
            with suppress(OSError):
                self._screen.end()

    async def _follow(self, text: str, app: TerminalApp) -> TurnEnded | None:
        ended = None
        try:
            async for event in app.prompt(text):
                if isinstance(event, TurnEnded):
                    ended = event
                self._show(event)
        except AwlError as error:
            ended = TurnEnded(stop_reason="error", error=str(error))
            self._show(ended)
        return ended

    def _show(self, event: AgentEvent) -> None:
        try:
            if not self._deaf:
                self._screen.show(event)
        except OSError:
            # The terminal is gone, but the turn must be logged to its end.
            self._hung_up()
            if self._app is not None:
                self._app.cancel()

    async def _tick(self) -> None:
        with suppress(OSError):  # `_show` will meet it too
            while not self._deaf:
                await asyncio.sleep(TICK)
                self._screen.tick()

    async def _ask(self, call: ToolUse, summary: str) -> Approval:
        width = self.console.width
        self._screen.tool(call.id, call.name, summary)
        rows = call_details(call, summary, width=width)
        hidden = rows[_DETAIL_ROWS:]
        if rows:
            self._screen.print(inset(rows[:_DETAIL_ROWS]))
        keys = {"y": "once", "a": "always in this session", "n": "no"}
        while True:
            more = {"v": f"view {len(hidden)} more lines"} if hidden else {}
            name = one_line(call.name, 40)
            self._question = Question(f"Run {name}?", keys | more)
            try:
                answer = await self._there(self._question.ask())
            finally:
                self._question = None
            if answer == "v":
                self._screen.print(inset(hidden))
                hidden = []
                continue
            if answer is None:
                self._interrupt()
            elif answer == "a":
                self._screen.print(inset([f"{name} may run without asking in this session"], "dim"))
            return "once" if answer == "y" else "always" if answer == "a" else "deny"

    def _greet(self, resumed: BannerInfo | None) -> None:
        with suppress(OSError):
            if resumed is None:
                self.console.print(words(_GREETING, "dim"))
            else:
                self.console.print(banner(resumed))
            self.console.print()

    def _toolbar(self) -> StyleAndTextTuples:
        app = self._app
        assert app is not None
        width = max(self.console.width - 1, 8)
        if app.unsaved:
            text = f"⚠ {app.unsaved} NOT SAVED: trying again every second"
            return [("class:toolbar.alert", one_line(text, width))]
        return [("class:toolbar.text", one_line(self._facts, width))]

    def _of_session(self, app: TerminalApp) -> str:
        """What the toolbar says. Asked once a prompt: the toolbar is drawn at every key."""
        parts = [str(app.model), app.session_id]
        if self._usage is not None:
            usage = self._usage
            read = usage.input + (usage.cache_read or 0) + (usage.cache_write or 0)
            parts.append(f"{read:,} tokens in, {usage.output:,} out")
        return " · ".join(filter(None, parts))

    def _warm(self, app: TerminalApp) -> None:
        """Let imports happen while the person types. A failure will show when it matters."""
        if self._warmed == app.model:
            return
        self._warmed = app.model

        def warm() -> None:
            with suppress(Exception):
                app.warm()

        # A daemon: leaving does not wait for it.
        threading.Thread(target=warm, name="awl-warm", daemon=True).start()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled: list[signal.Signals] = []
        try:
            with suppress(NotImplementedError, RuntimeError):  # Windows, or not the main thread
                loop.add_signal_handler(signal.SIGINT, self._interrupt)
                handled.append(signal.SIGINT)
                for number in (signal.SIGTERM, _HANGUP):
                    loop.add_signal_handler(number, self._go, number)
                    handled.append(number)
            yield
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        """Ctrl-C: end the turn; while it ends, say so; at the third, give it up and leave.
        A command is given up at once."""
        if self._question is not None:
            self._question.leave()
        elif self._command is not None:
            self._command.cancel()
        elif self._turn is None:
            if self._line is not None:
                self._line.interrupt()
        else:
            self._interrupts += 1
            if self._interrupts == 1:
                self._cancel()
            elif self._interrupts == 2:
                self._screen.note("Still stopping. Ctrl-C once more leaves without waiting.")
            else:
                self._signal = signal.SIGINT
                self._turn.cancel()

    def _go(self, number: int) -> None:
        """SIGTERM, SIGHUP: end the turn and leave; at the second, without waiting for it."""
        again, self._signal = bool(self._signal), number
        if number == _HANGUP:
            self._hung_up()
        if self._question is not None:
            self._question.leave()
        if self._command is not None:
            self._command.cancel()
        elif self._turn is not None:
            if again:
                self._turn.cancel()
            else:
                self._cancel()
        elif self._line is not None:
            self._line.leave()

    def _cancel(self) -> None:
        assert self._app is not None
        self._screen.stopping()
        self._app.cancel()

    def _hung_up(self) -> None:
        """Nobody sees the terminal any more: whatever is written to it from here on goes nowhere,
        so that no late write fails."""
        self._deaf, self._signal = True, self._signal or _HANGUP
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.console.file.fileno())
            os.close(nowhere)


def _raise_if_cancelled() -> None:
    """In a handler of CancelledError: raise it again if it was meant for this task."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
