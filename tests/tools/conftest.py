from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from awl.tools import Tool, ToolContext, ToolOutcome, all_tools


class Tools:
    """The tools, run in a directory."""

    def __init__(self, cwd: Path) -> None:
        self.cwd = cwd
        self.progress: list[str] = []
        self.context = ToolContext(
            cwd=cwd, env={"AWL_SESSION_ID": "id-1"}, progress=self.progress.append
        )
        self.by_name: dict[str, Tool] = {tool.spec.name: tool for tool in all_tools()}

    def __call__(self, name: str, **input: Any) -> ToolOutcome:
        return asyncio.run(self.by_name[name].run(input, self.context))

    def good(self, name: str, **input: Any) -> str:
        outcome = self(name, **input)
        assert not outcome.is_error, outcome.content
        return outcome.content

    def bad(self, name: str, **input: Any) -> str:
        outcome = self(name, **input)
        assert outcome.is_error, outcome.content
        return outcome.content

    def cancel(self, name: str, when: Callable[[], bool], **input: Any) -> float:
        """Cancel a call as soon as `when` holds; the seconds that it then took to end."""

        async def run() -> float:
            task = asyncio.create_task(self.by_name[name].run(input, self.context))
            await until(when)
            start = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return time.monotonic() - start

        return asyncio.run(run())


async def until(holds: Callable[[], bool], limit: float = 20) -> None:
    deadline = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)
