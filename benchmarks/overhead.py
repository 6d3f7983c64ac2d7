"""The agent's own time in a turn, and what a person at a terminal waits for.

In a turn a model in this process answers at once, so that all time is awl's: for a streamed token
beside what the bare stream takes, and for a tool call, in turns of any length, beside write and
fdatasync of its lines, which the model does in between: so both meet the same load of the disk.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from awl.agent import Agent
from awl.conversation import ModelRef, Text, ToolUse
from awl.providers import Completed, Request, StreamEvent, TextDelta, ToolSpec
from awl.session import Session
from awl.tools import ToolContext, ToolOutcome
from benchmarks import waits
from benchmarks.corpus import folder
from benchmarks.figures import Curve, Figure, Found, over

MODEL = ModelRef("instant", "instant")
TOKENS = 5_000
LINES = 3
"""Lines of a tool call: the answer that asks for it, its beginning and its result."""
FLOOR = f"write + fdatasync of its {LINES} lines"


class Instant:
    """A model that answers at once: a call for each answer but the last, then `TOKENS` tokens."""

    context_window = max_answer = 0
    takes_tools, fills_forms = True, False
    ref = MODEL

    def __init__(self, calls: int, tokens: int, between: Callable[[], object] = int) -> None:
        """`between`: what is done before each call."""
        self.calls, self.tokens, self.between = calls, tokens, between

    def warm(self) -> None: ...

    async def close(self) -> None: ...

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        if self.calls:
            self.calls -= 1
            self.between()
            use = ToolUse(id=f"call-{self.calls}", name="nothing", input="{}")
            yield Completed(content=(use,), stop_reason="toolUse", model=self.ref.model)
            return
        for _ in range(self.tokens):
            yield TextDelta(0, "word ")
        text = Text(text="word " * self.tokens)
        yield Completed(content=(text,), stop_reason="stop", model=self.ref.model)


class Nothing:
    """A tool that does nothing."""

    spec = ToolSpec("nothing", "Does nothing.", {"type": "object"})
    mutates = False

    def describe(self, input: Mapping[str, Any]) -> str:
        return "nothing"

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome(content="done")


class Floor:
    """Writes lines, each with a sync and nothing around it; the seconds that it took in all."""

    def __init__(self, lines: list[bytes], path: Path) -> None:
        self.seconds = 0.0
        self._lines = lines
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self) -> None:
        begun = time.perf_counter()
        for line in self._lines:
            os.write(self._fd, line)
            os.fdatasync(self._fd)
        self.seconds += time.perf_counter() - begun

    def close(self) -> None:
        os.close(self._fd)


async def _turn(
    calls: int, tokens: int, root: Path, between: Callable[[], object] = int
) -> tuple[float, Path]:
    """The seconds of a turn, and its log."""
    session = Session.create(root, str(root), MODEL)
    model = Instant(calls, tokens, between)
    agent = Agent(session, model, [Nothing()], max_turns=calls + 2)
    begun = time.perf_counter()
    async for _ in agent.prompt("go"):
        pass
    took = time.perf_counter() - begun
    await agent.close()
    session.close()
    return took, session.path


async def _bare(tokens: int) -> float:
    begun = time.perf_counter()
    request = Request(system=None, messages=())
    async for _ in Instant(0, tokens).stream(request):
        pass
    return time.perf_counter() - begun


def measure(quick: bool) -> Found:
    calls, curve = _for_calls((10, 100) if quick else (10, 100, 1_000), 3 if quick else 9)
    tokens = _for_tokens(3 if quick else 9)
    return Found([tokens, *calls, *waits.figures(3 if quick else 5)], [curve])


def _for_tokens(times: int) -> Figure:
    ours, bare = [], []
    with folder() as root:
        for _ in range(times):
            base, _ = asyncio.run(_turn(0, 1, root))
            took, _ = asyncio.run(_turn(0, TOKENS, root))
            ours.append((took - base) / TOKENS)
            bare.append(asyncio.run(_bare(TOKENS)) / TOKENS)
    what = "awl's time for a streamed token"
    return over(what, median(ours), "the stream", median(bare), None)


def _for_calls(sizes: tuple[int, ...], times: int) -> tuple[list[Figure], Curve]:
    """What a tool call takes in turns of so many."""
    points: dict[str, list[tuple[int, float]]] = {"awl": [], "floor": []}
    figures = []
    for calls in sizes:
        with folder() as root:
            _, log = asyncio.run(_turn(1, 1, root))
            lines = _lines_of_a_call(log)
            taken = [_call(calls, lines, root) for _ in range(times if calls < 1_000 else 3)]
        ours, base = (median(seconds) for seconds in zip(*taken, strict=True))
        points["awl"].append((calls, ours))
        points["floor"].append((calls, base))
        if calls >= 100:
            what = f"awl's time for a tool call, in a turn of {calls:,}"
            figures.append(over(what, ours, FLOOR, base, None))
    return figures, Curve("agent", "tool calls in the turn", "a tool call", points)


def _call(calls: int, lines: list[bytes], root: Path) -> tuple[float, float]:
    """The seconds of awl and of the floor for a call in a turn of so many."""
    rest, _ = asyncio.run(_turn(0, 1, root))
    floor = Floor(lines, root / "floor")
    took, _ = asyncio.run(_turn(calls, 1, root, floor.write))
    floor.close()
    return (took - floor.seconds - rest) / calls, floor.seconds / calls


def _lines_of_a_call(log: Path) -> list[bytes]:
    """Those that the log of a turn with one call would not have without it: between the header and
    the prompt, and the last answer and the end."""
    lines = log.read_bytes().splitlines(keepends=True)[2:-2]
    assert len(lines) == LINES, log
    return lines
