"""The loop: prompt -> model -> tools -> model -> ... ; every step is in the log before it counts.

`Agent.prompt` is one turn, as an async generator of `AgentEvent`s that any channel can show. What
cannot be logged is not acted on (an intent) or is kept until it can be (a fact), and is said aloud.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Literal

from awl.answer import Answer, arrive
from awl.batch import Batch
from awl.conversation import (
    Image,
    Message,
    ModelRef,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import (
    Entry,
    ModelChangeEntry,
    PartialEntry,
    RewindEntry,
    Usage,
    add_usage,
)
from awl.errors import NotSaved, ProviderError
from awl.events import (
    AgentEvent,
    AnswerCompleted,
    AnswerText,
    AnswerThinking,
    Condensed,
    Notice,
    Retrying,
    Saved,
    ToolComposing,
    TurnEnded,
    TurnStarted,
    Unsaved,
)
from awl.fitting import Fitting, carried
from awl.providers import (
    Completed,
    Provider,
    Request,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
    ToolUseDelta,
)
from awl.session import Session
from awl.tools import Tool
from awl.view import view

Approval = Literal["once", "always", "deny"]
Approver = Callable[[ToolUse, str], Awaitable[Approval]]
"""Asked before a tool that can change something runs, with the call and its one-line summary."""

RETRIES: Final = (0.5, 1.0, 2.0, 4.0)
"""Seconds between attempts at a provider that does not answer."""

DENIED: Final = "The user did not allow this call. It did not run."

_NOTHING: Final = (Text(text=""), Thinking(thinking=""))
"""Blocks that say nothing: an answer of these alone is none."""

SAVE_EVERY: Final = 1.0
"""Seconds between attempts to write what is queued."""


class Agent:
    """A session, a model and its tools. One turn at a time.

    Args:
        session: the log that everything goes to.
        provider: the model that is asked.
        tools: what it may do.
        approve: asked before a tool that can change something runs; None lets all of them run.
        system: the system text of a new session; on a session that has another, it replaces it.
        max_turns: how many answers one prompt may take.
        fitting: what makes room when the conversation has become too long; None: as by default.

    Attributes:
        notify: takes events that happen between turns (`Saved`).
        refusal: what the model is told of a call that `approve` denied.
    """

    def __init__(
        self,
        session: Session,
        provider: Provider,
        tools: Sequence[Tool] = (),
        *,
        approve: Approver | None = None,
        system: str | None = None,
        max_turns: int = 50,
        fitting: Fitting | None = None,
    ) -> None:
        self.session = session
        self.provider = provider
        self._tools = {tool.spec.name: tool for tool in tools}
        self._approve = approve
        self._system = None if system is None else _as_logged(system)
        self._max_turns = max_turns
        self._fitting = fitting or Fitting()
        self.notify: Callable[[AgentEvent], None] = lambda event: None
        self.refusal = DENIED
        self._always: set[str] = set()
        self._cancelled = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self._last_changes: tuple[str, ...] = ()

    @property
    def model(self) -> ModelRef:
        """Whom the next request goes to."""
        return self.provider.ref

    def cancel(self) -> None:
        """End the running turn. Its generator goes on to log what was shown and ends by itself."""
        self._cancelled.set()

    async def switch(self, provider: Provider) -> None:
        """Let another model answer from here on. The log says so before it is asked.

        Raises:
            NotSaved: the switch could not be logged; the model stays.
        """
        # Given up half-way, the log would name a model that is not the one asked.
        await asyncio.shield(asyncio.create_task(self._switch(provider)))

    async def _switch(self, provider: Provider) -> None:
        await asyncio.to_thread(self.session.switch_model, provider.ref)
        self.provider = provider

    async def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """One turn: the prompt, the model's answers and the tools between, to the final answer."""
        self._cancelled = asyncio.Event()
        turn = _Turn()
        told = len(self.session.notices)
        try:
            turn.prompt_id = (await self._log(*self._opening(text)))[-1]
        except NotSaved as error:
            yield self._unsaved(error)
            yield turn.ended("unsaved", error=str(error), prompt_refused=True)
            return
        shown_id = self.session.id if self.session.kept else ""
        yield TurnStarted(shown_id, self.session.state.turn)
        for _ in range(self._max_turns):
            async for event in self._make_room(turn):
                yield event
            if turn.over is None:
                async for event in self._ask(turn):
                    yield event
            if turn.over is None and turn.calls:
                async for event in self._use_tools(turn):
                    yield event
            if turn.over is not None:
                break
        for notice in self.session.notices[told:]:
            yield Notice(notice)
        yield turn.over or turn.ended(
            "max_turns",
            error=f"stopped after {self._max_turns} answer{'s' * (self._max_turns > 1)}:"
            " say `go on` to continue",
        )

    async def compact(self) -> Condensed:
        """Condense what was said, because the person wants it. Between turns only: `notify` takes
        what is told of it.

        Raises:
            CannotCondense: nothing was changed; the message says why.
            NotSaved: it could not be logged.
        """
        return await self._fitting.compact(
            self.session, self.provider, self._specs, lambda event: self.notify(event)
        )

    async def close(self) -> None:
        """Stop retrying in the background. What is queued stays in the session."""
        if self._saving is not None:
            self._saving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._saving

    # -- the model -------------------------------------------------------------------------------

    def _opening(self, text: str) -> list[Entry]:
        """What a prompt adds to the log: the system text where it is not in force yet, and it."""
        entries: list[Entry] = []
        state, ref = self.session.state, self.provider.ref
        if state.entries and state.active_model != ref:  # a rewind may have gone behind a switch
            entries.append(
                ModelChangeEntry(provider=ref.provider, model=ref.model, endpoint=ref.endpoint)
            )
        in_force = next(
            (
                item.message.text
                for item in reversed(state.items)
                if item.kind == "message" and item.message.role == "system"
            ),
            None,
        )
        if self._system is not None and self._system != in_force:
            system = Message("system", (Text(text=self._system),))
            entries.append(self.session.message_entry(system))
        entries.append(self._user_entry(Message("user", (Text(text=text),))))
        return entries

    @property
    def _specs(self) -> list[ToolSpec]:
        return [tool.spec for tool in self._tools.values()]

    def _user_entry(self, message: Message) -> Entry:
        ref = self.provider.ref
        return self.session.message_entry(message, provider=ref.provider, model=ref.model)

    async def _make_room(self, turn: _Turn, *, refused: bool = False) -> AsyncIterator[AgentEvent]:
        """Before a request, and after one that was refused for its length."""
        made = self._fitting.make_room(
            self.session, self.provider, self._specs, self._cancelled, refused=refused
        )
        async for event in made:
            if isinstance(event, Condensed | Notice):
                turn.add_usage(event.usage)
            yield event
        if self._cancelled.is_set():
            turn.over = turn.ended("aborted")

    async def _ask(self, turn: _Turn) -> AsyncIterator[AgentEvent]:
        """One answer of the model, from request to log."""
        turn.calls, turn.shortened = [], False
        waits = iter(RETRIES)
        while True:
            answer = Answer()
            request = self._request(turn)
            if turn.changes and turn.changes != self._last_changes:
                yield Notice(f"sent to the model: {'; '.join(turn.changes)}")
            self._last_changes = turn.changes
            try:
                async for event in self._stream(request, answer):
                    yield event
                break
            except ProviderError as error:
                if answer.anything or self._cancelled.is_set():
                    async for event in self._broken_off(turn, answer, error):
                        yield event
                    return
                if error.fault == "refused" and turn.sends_thinking:
                    turn.thinking = False
                    yield Notice("the model refused its own reasoning; asking without it")
                    continue
                if error.fault == "picture" and turn.sends_pictures:
                    turn.pictures = False
                    yield Notice("the model refused a picture; asking without pictures")
                    continue
                if error.fault == "context_length":
                    async for event in self._too_long(turn, error):
                        yield event
                    if turn.over is not None:
                        return
                    continue
                wait = next(waits, None) if error.transient else None
                if wait is None:
                    turn.over = turn.ended("error", error=str(error))
                    return
                yield Retrying(str(error), wait)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._cancelled.wait(), wait)
                if self._cancelled.is_set():
                    turn.over = turn.ended("aborted")
                    return
        if answer.completed is None:
            async for event in self._broken_off(turn, answer, None):
                yield event
        else:
            async for event in self._answered(turn, answer.completed):
                yield event

    async def _too_long(self, turn: _Turn, error: ProviderError) -> AsyncIterator[AgentEvent]:
        """The model refused a request for its length. It is made shorter, once; else the turn is
        over."""
        before = self.session.leaf_id
        if not turn.shortened:
            turn.shortened = True
            async for event in self._make_room(turn, refused=True):
                yield event
        if turn.over is not None or self.session.leaf_id != before:
            return
        if turn.answers:
            turn.over = turn.ended("error", error=str(error))
            return
        async for event in self._take_back(turn, error):
            yield event

    async def _take_back(self, turn: _Turn, error: ProviderError) -> AsyncIterator[AgentEvent]:
        """A prompt that no request can hold would block the session: it is gone back from. It stays
        in the log, and returns to the person."""
        prompt = self.session.get(turn.prompt_id)
        position = self.session.state.find(turn.prompt_id)
        assert prompt is not None and position is not None
        kept = carried(self.session.state, position)
        try:
            await self._log(RewindEntry(parent_id=prompt.parent_id), *kept)
        except NotSaved as problem:
            yield self._unsaved(problem)
            turn.over = turn.ended("error", error=str(error))
            return
        why = f"{error}; your prompt was taken back, and the session goes on without it"
        turn.over = turn.ended("error", error=why, prompt_refused=True)

    def _request(self, turn: _Turn) -> Request:
        sent = view(self.session.state, self.provider.ref, thinking=turn.thinking)
        turn.changes = sent.changes
        turn.sends_thinking = any(
            isinstance(block, Thinking | RedactedThinking)
            for message in sent.messages
            for block in message.content
        )
        turn.sends_pictures = turn.pictures and any(
            isinstance(block, Image) or (isinstance(block, ToolResult) and block.images)
            for message in sent.messages
            for block in message.content
        )
        return Request(
            system=sent.system,
            messages=sent.messages,
            tools=self._specs,
            read_blob=self.session.blobs.get if turn.pictures else None,
            thinking=turn.thinking,
        )

    async def _stream(self, request: Request, answer: Answer) -> AsyncIterator[AgentEvent]:
        """Pass on an answer as it comes, and log each second of it. Ends early when cancelled."""
        stream = self.provider.stream(request)
        async for event in arrive(stream, answer, self._cancelled):
            match event:
                case None:
                    if problem := await self._log_partial(answer):
                        yield problem
                case TextDelta(text=text):
                    yield AnswerText(text)
                case ThinkingDelta(thinking=thinking):
                    yield AnswerThinking(thinking)
                case ToolUseDelta(name=name):
                    yield ToolComposing(name)

    async def _log_partial(self, answer: Answer) -> AgentEvent | None:
        try:
            await self._log(PartialEntry(content=answer.since_partial()))
        except NotSaved as error:
            answer.partial_done(logged=False)
            return Unsaved(str(error), self.session.unsaved)
        answer.partial_done(logged=True)
        return None

    async def _answered(self, turn: _Turn, completed: Completed) -> AsyncIterator[AgentEvent]:
        """Log a complete answer, and see what it asks for."""
        turn.answers += 1
        turn.add_usage(completed.usage)
        message = Message("assistant", completed.content)
        turn.text = message.text
        # A call was announced and none came: the turn has ended all the same.
        ended = "stop" if completed.stop_reason == "toolUse" else completed.stop_reason
        if all(block in _NOTHING for block in completed.content):
            yield Notice("the model answered nothing")
            turn.over = turn.ended(ended)
            return
        entry = self.session.message_entry(
            message,
            provider=self.provider.ref.provider,
            model=completed.model,
            stop_reason=completed.stop_reason,
            usage=completed.usage,
        )
        try:
            entry_id = (await self._log(entry))[0]
        except NotSaved as error:
            yield self._unsaved(error)
            turn.over = turn.ended("unsaved", error=str(error))
            return
        yield AnswerCompleted(entry_id, completed.stop_reason, completed.model, completed.usage)
        turn.calls = message.tool_uses
        if not turn.calls:
            turn.over = turn.ended(ended)

    async def _broken_off(
        self, turn: _Turn, answer: Answer, error: ProviderError | None
    ) -> AsyncIterator[AgentEvent]:
        """Log what was shown of an answer that was cancelled or failed."""
        aborted = self._cancelled.is_set()
        reason = "aborted" if aborted else "error"
        why = None if aborted else str(error or "the stream ended early")
        content = answer.content()
        if not content:
            turn.over = turn.ended(reason, error=why)
            return
        turn.text = Message("assistant", content).text
        ref = self.provider.ref
        entry = self.session.message_entry(
            Message("assistant", content),
            provider=ref.provider,
            model=ref.model,
            stop_reason=reason,
        )
        try:
            entry_id = (await self._log(entry))[0]
        except NotSaved as problem:
            yield self._unsaved(problem)
        else:
            yield AnswerCompleted(entry_id, reason, ref.model)
        turn.over = turn.ended(reason, error=why)

    # -- the tools -------------------------------------------------------------------------------

    async def _use_tools(self, turn: _Turn) -> AsyncIterator[AgentEvent]:
        """Run what the answer asked for, and log the results as one message."""
        batch = Batch(self.session, self._tools, self._permission, self._cancelled)
        async for event in batch.run(turn.calls):
            if isinstance(event, Unsaved):
                self._keep_saving()
            yield event
        unsaved = batch.unsaved
        try:
            await self._log(self._user_entry(Message("user", batch.results)))
        except NotSaved as error:
            unsaved = error
        if batch.last is not None:
            yield batch.last
        if unsaved is not None:
            yield self._unsaved(unsaved)
            turn.over = turn.ended("unsaved", error=str(unsaved))
        elif self._cancelled.is_set():
            turn.over = turn.ended("aborted")

    async def _permission(self, use: ToolUse, summary: str) -> str | None:
        """Why a call may not run; None when it may."""
        if self._approve is None or use.name in self._always:
            return None
        approval = await self._approve(use, summary)
        if approval == "always":
            self._always.add(use.name)
        return self.refusal if approval == "deny" else None

    # -- the log ---------------------------------------------------------------------------------

    async def _log(self, *entries: Entry) -> list[str]:
        return await asyncio.to_thread(self.session.append_many, entries)

    def _unsaved(self, error: NotSaved) -> Unsaved:
        """Say that something is not saved, and keep trying if it is queued."""
        self._keep_saving()
        return Unsaved(str(error), self.session.unsaved)

    def _keep_saving(self) -> None:
        if self.session.unsaved and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save_queued())

    async def _save_queued(self) -> None:
        while waiting := self.session.unsaved:
            await asyncio.sleep(SAVE_EVERY)
            with contextlib.suppress(NotSaved):
                await asyncio.to_thread(self.session.flush)
                self.notify(Saved(waiting))


class _Turn:
    """What is known of the running turn. `over` is its last event, once there is one."""

    def __init__(self) -> None:
        self.prompt_id = ""
        self.answers = 0
        self.calls: list[ToolUse] = []
        self.text = ""
        self.changes: tuple[str, ...] = ()
        self.thinking = True  # until the model refused its own: then not again in this turn
        self.sends_thinking = False
        self.pictures = True  # until the model refused one
        self.sends_pictures = False
        self.shortened = False  # whether the running request was, because it was refused
        self.over: TurnEnded | None = None
        self._usage: Usage | None = None

    def add_usage(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else add_usage(self._usage, usage)

    def ended(
        self, stop_reason: str, *, error: str | None = None, prompt_refused: bool = False
    ) -> TurnEnded:
        return TurnEnded(stop_reason, self.text, self._usage, error, prompt_refused)


def _as_logged(text: str) -> str:
    """A text as the log holds it: lone surrogates, as in a directory's name, become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
