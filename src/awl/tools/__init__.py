"""What a model may do on this machine: bash, read, write, edit, find, grep. One module a tool.

A tool gets its input (already parsed from JSON) and the session's directory, and returns what the
model is shown. It never raises for what a model did wrong: that is a result with `is_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from awl.providers import ToolSpec

MAX_SHOWN = 30_000
"""Characters of a tool's output that a model is shown (head and tail); the rest goes to a blob."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tool runs. `env` is added to the process's environment (AWL_SESSION_ID, ...).

    `progress` takes output as it arrives, to be shown to a person; it may be called from any
    thread.
    """

    cwd: Path
    env: Mapping[str, str] = {}
    progress: Callable[[str], None] | None = None


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool did: `content` for the model; `output`, the raw output, when `content` is not all
    of it (it was cut, or some of it is not UTF-8).

    `images` are (mime type, bytes).
    """

    content: str
    is_error: bool = False
    output: bytes | None = None
    images: tuple[tuple[str, bytes], ...] = ()


class Tool(Protocol):
    """A tool. `mutates`: it can change something, so a person is asked first."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def mutates(self) -> bool: ...

    def describe(self, input: Mapping[str, Any]) -> str:
        """One line that says what this call would do, for a person (`$ ls -l`, `read src/x.py`)."""

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        """Do it. When the task is cancelled, stop at once, leave no process behind and re-raise
        CancelledError; partial output is then in `context.progress`."""


def all_tools() -> list[Tool]:
    """Every tool there is. Imports what they need, which is why it is a function."""
    from awl.tools.bash import Bash
    from awl.tools.edit import Edit
    from awl.tools.find import Find
    from awl.tools.grep import Grep
    from awl.tools.read import Read
    from awl.tools.write import Write

    return [Bash(), Read(), Write(), Edit(), Find(), Grep()]
