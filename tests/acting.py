"""An agent in the test's own process: a scripted model, the real tools, a real log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from running import JSON, kind, read_log

from awl.agent import Agent, Approver
from awl.config import ProviderSettings
from awl.events import AgentEvent, TurnEnded
from awl.fitting import Fitting
from awl.providers import Request, StreamEvent
from awl.providers.scripted import ScriptedProvider
from awl.session import Session
from awl.store.files import Store
from awl.tools import Tool, all_tools

LIMIT = 30.0
T = TypeVar("T")


class Playing(ScriptedProvider):
    """A scripted model that keeps what it was asked."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.requests: list[Request] = []
        self.asked: Callable[[], None] = lambda: None

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        self.requests.append(request)
        self.asked()
        async for event in super().stream(request):
            yield event


class Stage:
    """Holds everything a turn needs, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = folder / "work"
        self.cwd.mkdir(exist_ok=True)
        self.store = Store(folder / "sessions")
        self.events: list[AgentEvent] = []
        self.on: Callable[[AgentEvent], None] = lambda event: None
        self.agent: Agent
        self.model: Playing
        self.session: Session

    def set(
        self,
        *turns: Sequence[JSON] | JSON,
        tools: Sequence[Tool] | None = None,
        approve: Approver | None = None,
        system: str | None = "You are a test.",
        max_turns: int = 50,
        session: Session | None = None,
        window: int = 0,
        fitting: Fitting | None = None,
    ) -> Agent:
        """An agent whose model plays these turns; `window` is how many tokens it takes."""
        self.model = self.player("play", "model-1", *turns, window=window)
        self.session = session or self.store.create(str(self.cwd), self.model.ref)
        self.agent = Agent(
            self.session,
            self.model,
            all_tools() if tools is None else tools,
            approve=approve,
            system=system,
            max_turns=max_turns,
            fitting=fitting,
        )
        return self.agent

    def player(
        self, name: str, model: str, *turns: Sequence[JSON] | JSON, window: int = 0
    ) -> Playing:
        script = self.folder / f"{name}.jsonl"
        script.write_text("".join("\n" + json.dumps(turn) for turn in turns))
        settings = ProviderSettings(
            name=name, type="scripted", model=model, path=str(script), context_window=window
        )
        return Playing(settings)

    def prompt(self, *texts: str) -> list[AgentEvent]:
        """Play turns to their ends; the events of all of them."""
        return self.play(self.turns(*texts))

    def play(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and let go of the agent's background work."""

        async def whole() -> T:
            try:
                return await asyncio.wait_for(scenario, LIMIT)
            finally:
                await self.agent.close()

        return asyncio.run(whole())

    async def turns(self, *texts: str) -> list[AgentEvent]:
        found: list[AgentEvent] = []
        for text in texts:
            async for event in self.agent.prompt(text):
                found.append(event)
                self.events.append(event)
                self.on(event)
            assert isinstance(found[-1], TurnEnded)
        return found

    # -- looking -----------------------------------------------------------------------------------

    @property
    def ended(self) -> TurnEnded:
        """How the last turn ended."""
        last = self.events[-1]
        assert isinstance(last, TurnEnded)
        return last

    @property
    def log(self) -> list[JSON]:
        return read_log(self.session.path)

    @property
    def kinds(self) -> list[str]:
        return [kind(entry) for entry in self.log]

    def seen(self, event_type: type[AgentEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, event_type)]

    def results(self) -> list[JSON]:
        """The results in the last user message that has some."""
        found: list[JSON] = []
        for entry in self.log:
            if kind(entry) == "user":
                blocks = [b for b in entry["message"]["content"] if b["type"] == "toolResult"]
                found = blocks or found
        return found
