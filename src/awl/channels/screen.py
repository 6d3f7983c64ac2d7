"""A turn on a terminal: each `AgentEvent` becomes lines that stay.

The only thing that is ever erased is one short status line at the bottom (what is going on, and
for how long), shown while the cursor stands at the beginning of a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from awl.channels.display import thought, tool_line, tool_result, words
from awl.channels.markdown import MarkdownStream
from awl.events import (
    AgentEvent,
    AnswerCompleted,
    AnswerText,
    AnswerThinking,
    Condensed,
    Condensing,
    Notice,
    Retrying,
    Saved,
    ToolComposing,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unsaved,
)
from awl.printing import one_line

TICK: Final = 0.1
"""Seconds between two calls of `Screen.tick`."""

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PATIENCE: Final = 0.3
"""Seconds without news after which the status line appears."""

_TAIL: Final = 2_000
"""Characters of reasoning or tool output that are kept for the status line."""

_ERASE: Final = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))

_Block = Literal["none", "thinking", "text", "tool", "note"]

_ENDINGS: Final = {
    "aborted": "Stopped.",
    "length": "The answer was cut: it reached the model's limit of tokens.",
}


class Screen:
    """Shows the events of one turn after another. `tick` keeps the status line alive."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._answer: MarkdownStream | None = None
        self._thinking = ""
        self._last: _Block = "none"
        self._tool = ""  # the call whose line was printed last
        self._running: dict[str, str] = {}  # calls without a result yet, and their summaries
        self._unsaved: Unsaved | None = None
        self._doing = ""
        self._since = self._news = 0.0
        self._tail = ""
        self._drawn = False
        self._paused = False
        self._stopping = False

    def begin(self, what: str = "waiting") -> None:
        """Something begins that may take a while."""
        self._last, self._stopping = "none", False
        self._news = self._clock()
        self._do(what)

    def end(self) -> None:
        """It is over: there is nothing to wait for."""
        self._do("")
        self._erase()

    def show(self, event: AgentEvent) -> None:
        """Print what the event has for a person."""
        if isinstance(event, ToolOutput):
            self._tail = (self._tail + event.text)[-_TAIL:]
        elif isinstance(event, AnswerThinking):
            self._thinking += event.thinking
            self._do("thinking", tail=self._thinking[-_TAIL:])
        else:
            self._news = self._clock()
            with self._console:  # one write, so that nothing flickers
                self._erase()
                self._lasting(event)

    def tool(self, call_id: str, name: str, summary: str) -> None:
        """Print a tool's line now; `ToolStarted` will not print it again."""
        with self._console:
            self._erase()
            self._close()
            self._print("tool", tool_line(name, summary, width=self._console.width))
        self._tool = call_id

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line of awl's own."""
        with self._console:
            self._erase()
            self._close()
            self._print("note", words(text, style))

    def print(self, text: Text) -> None:
        """Print more of the block that was printed last."""
        with self._console:
            self._erase()
            self._console.print(text)

    def stopping(self) -> None:
        """The person wants the turn to end."""
        self._stopping = True
        self._do("stopping")

    def pause(self, paused: bool) -> None:
        """While paused, the bottom line belongs to somebody else."""
        self._paused = paused
        if paused:
            self._erase()
        else:
            self._news = self._since = self._clock()

    def tick(self) -> None:
        """Redraw the status line, if there is something to wait for and a place for it."""
        now = self._clock()
        at_start = self._answer is None or self._answer.at_line_start
        waited = now - self._news >= _PATIENCE
        if not (self._doing and at_start and waited) or self._paused or not self._can_erase:
            return
        with self._console:
            self._erase()
            self._console.print(self._status(now), end="", soft_wrap=True)
        self._drawn = True

    @property
    def _can_erase(self) -> bool:
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def _status(self, now: float) -> Text:
        room = self._console.width - 1
        frame = _FRAMES[int(now / TICK) % len(_FRAMES)]
        line = f"{frame} {self._doing} {int(now - self._since)}s"
        if self._tail.strip() and room - len(line) > 20:
            line += f" · {self._tail.strip().rpartition(chr(10))[2]}"
        if self._unsaved is None:
            return Text(one_line(line, room), "dim")
        return Text(one_line(f"⚠ {self._unsaved.waiting} NOT SAVED · {line}", room), "bold red")

    def _lasting(self, event: AgentEvent) -> None:
        width = self._console.width
        if isinstance(event, AnswerText):
            self._write(event.text)
            return
        self._close()
        if isinstance(event, TurnStarted | AnswerCompleted):
            self._do("waiting")
        elif isinstance(event, ToolComposing):
            self._do(f"writing a call of {one_line(event.name, 20)}")
        elif isinstance(event, ToolStarted):
            self._started(event, width)
        elif isinstance(event, ToolFinished):
            self._finished(event, width)
        elif isinstance(event, Notice):
            self._print("note", words(event.text, "dim"))
        elif isinstance(event, Condensing):
            part = f"part {event.part} of {event.parts}" if event.parts > 1 else ""
            self._do(f"condensing {event.entries:,} entries", tail=part)
        elif isinstance(event, Condensed):
            self._print("note", words(str(event), "dim"))
            self._do("waiting")
        elif isinstance(event, Retrying):
            again = f"asking again in {event.seconds:g} s"
            self._print("note", words(f"No answer: {event.reason}; {again}", "yellow"))
            self._do("waiting to ask again")
        elif isinstance(event, Unsaved):
            self._warn(event)
        elif isinstance(event, Saved):
            self._unsaved = None
            self._print("note", words("✓ Saved: nothing waits any more.", "green"))
        elif isinstance(event, TurnEnded):
            self._ended(event)

    def _write(self, text: str) -> None:
        self._think()
        if self._answer is None:
            self._space("text")
            self._answer = MarkdownStream(self._console)
        self._answer.feed(text)
        self._do("writing")

    def _started(self, event: ToolStarted, width: int) -> None:
        # Of calls that run side by side, the later ones are shown when they end, each in one piece.
        if not self._running and event.tool_use_id != self._tool:
            self._print("tool", tool_line(event.name, event.summary, width=width))
            self._tool = event.tool_use_id
        self._running[event.tool_use_id] = event.summary
        self._do(f"running {one_line(event.name, 20)}")

    def _finished(self, event: ToolFinished, width: int) -> None:
        summary = self._running.pop(event.tool_use_id, "")
        if event.tool_use_id != self._tool:
            head = tool_line(event.name, summary, width=width, is_error=event.is_error)
            self._print("tool", head)
        self._tool = ""
        self._print("tool", tool_result(event.content, is_error=event.is_error, width=width))
        if not self._running:
            self._do("waiting")

    def _warn(self, event: Unsaved) -> None:
        # It is retried every second; the same news is not printed every time.
        if event != self._unsaved:
            self._print("note", words(f"⚠ {event.message}", "bold red"))
        self._unsaved = event if event.waiting else None

    def _ended(self, event: TurnEnded) -> None:
        self._do("")
        self._running.clear()
        if event.error and event.stop_reason != "unsaved":  # `Unsaved` has said it
            self._print(
                "note", words(event.error, "red" if event.stop_reason == "error" else "dim")
            )
        elif event.stop_reason in _ENDINGS:
            self._print("note", words(_ENDINGS[event.stop_reason], "dim"))
        if event.prompt_refused:
            self._print("note", words("Your prompt is back in the input line.", "dim"))
        self._console.print()

    def _do(self, what: str, *, tail: str = "") -> None:
        if what and self._stopping:
            what = "stopping"
        if what != self._doing:
            self._since = self._clock()
        self._doing, self._tail = what, tail

    def _close(self) -> None:
        """Finish what is being streamed, so that something else can be printed."""
        self._think()
        if self._answer is not None:
            self._answer.finish()
        self._answer = None

    def _think(self) -> None:
        if self._thinking.strip():
            text, self._thinking = self._thinking, ""
            self._print("thinking", thought(text, width=self._console.width))

    def _print(self, block: _Block, text: Text) -> None:
        self._space(block)
        self._console.print(text)

    def _space(self, block: _Block) -> None:
        """A blank line before each new kind of block."""
        if block != self._last:
            self._console.print()
        self._last = block

    def _erase(self) -> None:
        if self._drawn:
            self._console.control(_ERASE)
        self._drawn = False
