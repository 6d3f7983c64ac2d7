"""A batch of tool calls: permission, intent in the log, the tool, its result in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

from awl.conversation import Image, ToolResult, ToolUse, parse_input
from awl.entries import Entry, ToolCallEntry, ToolResultEntry
from awl.errors import NotSaved
from awl.events import AgentEvent, Notice, ToolFinished, ToolOutput, ToolStarted, Unsaved
from awl.session import Session
from awl.tools import MAX_SHOWN, Tool, ToolContext, ToolOutcome

CANCELLED: Final = "[cancelled by the user before it started]"
UNSAVED: Final = "[not started: the session could not be saved]"

Permission = Callable[[ToolUse, str], Coroutine[Any, Any, str | None]]
"""Asked before a call that can change something: why it may not run, or None."""

T = TypeVar("T")


class _Cancelled(Exception):
    """The turn was cancelled while something was waited for."""


class Batch:
    """The calls of one answer.

    Attributes:
        results: in the order of the calls, once `run` has ended.
        last: tells of the result that has no entry of its own, for when the results are logged.
        unsaved: why something of it could not be logged; no call starts after that.
    """

    def __init__(
        self,
        session: Session,
        tools: Mapping[str, Tool],
        permission: Permission,
        cancelled: asyncio.Event,
    ) -> None:
        self.unsaved: NotSaved | None = None
        self.last: ToolFinished | None = None
        self._session = session
        self._tools = tools
        self._permission = permission
        self._cancelled = cancelled
        self._results: list[ToolResult | None] = []

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(result for result in self._results if result is not None)

    async def run(self, calls: Sequence[ToolUse]) -> AsyncIterator[AgentEvent]:
        """Run all calls: those that only look side by side, the others one by one, in order."""
        self._results = [None] * len(calls)
        for group in self._groups(calls):
            inbox: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
            running = asyncio.create_task(self._side_by_side(group, inbox))
            try:
                while (event := await inbox.get()) is not None:
                    yield event
                await running
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    def _groups(self, calls: Sequence[ToolUse]) -> list[list[tuple[int, ToolUse]]]:
        groups: list[list[tuple[int, ToolUse]]] = []
        side_by_side = False
        for place, use in enumerate(calls):
            tool = self._tools.get(use.name)
            looks = tool is not None and not tool.mutates
            if not (looks and side_by_side):
                groups.append([])
            groups[-1].append((place, use))
            side_by_side = looks
        return groups

    async def _side_by_side(
        self, group: list[tuple[int, ToolUse]], inbox: asyncio.Queue[AgentEvent | None]
    ) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for place, use in group:
                    tasks.create_task(self._use(place, use, inbox.put_nowait))
        finally:
            inbox.put_nowait(None)

    async def _use(self, place: int, use: ToolUse, show: Callable[[AgentEvent], None]) -> None:
        refused = await self._refusal(use, show)
        started = monotonic()
        if refused is None:
            show(ToolStarted(use.id, use.name, self._summary(use)))
            outcome = await self._outcome(use, show)
        else:
            outcome = _failed(refused)
        duration_ms = round((monotonic() - started) * 1000)
        result = await self._result(use, outcome, duration_ms, show)
        finished = ToolFinished(use.id, use.name, result.content, result.is_error, duration_ms)
        self._results[place] = result
        if None not in self._results:
            self.last = finished  # it goes straight into the user message
        else:
            entry = ToolResultEntry(
                tool_use_id=use.id,
                name=use.name,
                content=result.content,
                images=result.images,
                output=result.output,
                is_error=result.is_error,
                duration_ms=duration_ms,
            )
            try:
                await self._log(entry)
            except NotSaved as error:
                self.unsaved = error
                show(Unsaved(str(error), self._session.unsaved))
            show(finished)

    async def _refusal(self, use: ToolUse, show: Callable[[AgentEvent], None]) -> str | None:
        """Why a call does not run; None when it may and its intent is in the log."""
        tool = self._tools.get(use.name)
        if tool is None:
            names = ", ".join(self._tools) or "none"
            return f"There is no tool {use.name!r}. The tools are: {names}."
        parsed = parse_input(use.input)
        if parsed is None:
            return "The input is not a JSON object. The call did not run."
        if reason := self._stopped():
            return reason
        if tool.mutates:
            try:
                asking = self._permission(use, tool.describe(parsed))
                if reason := await self._unless_cancelled(asking):
                    return reason
            except _Cancelled:
                return CANCELLED
        if reason := self._stopped():
            return reason
        try:
            await self._log(ToolCallEntry(tool_use_id=use.id, name=use.name))
        except NotSaved as error:
            self.unsaved = error
            show(Unsaved(str(error), self._session.unsaved))
            return UNSAVED
        return None

    def _stopped(self) -> str | None:
        if self._cancelled.is_set():
            return CANCELLED
        return UNSAVED if self.unsaved is not None or self._session.unsaved else None

    async def _outcome(self, use: ToolUse, show: Callable[[AgentEvent], None]) -> ToolOutcome:
        """Run the tool to its end, or to the user's Ctrl-C."""
        so_far: list[str] = []
        loop = asyncio.get_running_loop()

        def progress(text: str) -> None:
            so_far.append(text)
            loop.call_soon_threadsafe(show, ToolOutput(use.id, text))

        context = ToolContext(
            cwd=Path(self._session.cwd), env=self._environment(), progress=progress
        )
        run = self._tools[use.name].run(parse_input(use.input) or {}, context)
        try:
            return await self._unless_cancelled(run)
        except _Cancelled:
            return _cut_short("".join(so_far))
        except Exception as error:  # a tool that fails is a result, not the end of the session
            return _failed(f"The tool failed: {type(error).__name__}: {error}")

    async def _unless_cancelled(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to. It is cancelled with the turn; `_Cancelled` says so."""
        task = asyncio.create_task(work)
        cancelled = asyncio.create_task(self._cancelled.wait())
        try:
            await asyncio.wait((task, cancelled), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise  # not the turn alone: whoever runs it goes away
            raise _Cancelled from None
        finally:
            cancelled.cancel()
            task.cancel()

    async def _result(
        self,
        use: ToolUse,
        outcome: ToolOutcome,
        duration_ms: int,
        show: Callable[[AgentEvent], None],
    ) -> ToolResult:
        """The result as it is logged: what is large lies in blobs, written before it is named."""
        output, images = None, []
        try:
            if outcome.output is not None:
                output = await asyncio.to_thread(self._session.blobs.put, outcome.output)
            for mime_type, data in outcome.images:
                blob = await asyncio.to_thread(self._session.blobs.put, data)
                images.append(Image(mime_type=mime_type, blob=blob))
        except OSError as error:
            show(Notice(f"the whole output of {use.name} could not be kept: {error.strerror}"))
        return ToolResult(
            tool_use_id=use.id,
            content=outcome.content,
            images=tuple(images),
            is_error=outcome.is_error,
            duration_ms=duration_ms,
            output=output,
        )

    async def _log(self, entry: Entry) -> None:
        await asyncio.to_thread(self._session.append, entry)

    def _summary(self, use: ToolUse) -> str:
        return self._tools[use.name].describe(parse_input(use.input) or {})

    def _environment(self) -> dict[str, str]:
        if not self._session.kept:
            return {}
        return {
            "AWL_SESSION_ID": self._session.id,
            "AWL_SESSION_FILE": str(self._session.path),
        }


def _cut_short(output: str) -> ToolOutcome:
    """The result of a tool that the user stopped: what it had said, as much as a model is shown."""
    shown, whole = output, None
    if len(output) > MAX_SHOWN:
        half, left_out = MAX_SHOWN // 2, len(output) - 2 * (MAX_SHOWN // 2)
        shown = f"{output[:half]}\n[{left_out} characters left out here]\n{output[-half:]}"
        whole = output.encode(errors="replace")
    said = "".join((shown, "" if shown.endswith("\n") or not shown else "\n"))
    return ToolOutcome(content=f"{said}[cancelled by the user]", is_error=True, output=whole)


def _failed(content: str) -> ToolOutcome:
    return ToolOutcome(content=content, is_error=True)
