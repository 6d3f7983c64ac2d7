"""Keeping a conversation within what its model takes: old tool output is left out, older history
is condensed. What is done is recorded, so that replay gives what the live agent had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from awl.condense import (
    Condensation,
    Condenser,
    LlmCondenser,
    NoSummary,
    Progress,
    add_up,
    with_facts,
)
from awl.config import Condense, Config, choose_provider
from awl.cuts import Cut
from awl.entries import CompactionEntry, CondensationEntry, Entry, MessageEntry, Usage
from awl.errors import AwlError, CannotCondense, InvalidRange, NotSaved
from awl.events import AgentEvent, Condensed, Condensing, Notice, Unsaved
from awl.planning import Case, Plan, Reason, budget, grown, plan
from awl.providers import Provider, ToolSpec, connect
from awl.pruning import prunable
from awl.session import Session
from awl.state import Item, State, is_prompt, summary_text
from awl.tokens import of_text, size

T = TypeVar("T")


class Fitting:
    """Makes room in a conversation.

    Args:
        settings: when to condense, and what to keep.
        max_log_bytes: how much a log may grow between two condensations; 0: without end.
        condenser: gives what summarises, for the provider that the conversation is with.
    """

    def __init__(
        self,
        settings: Condense = Condense(),  # noqa: B008  it is frozen
        *,
        max_log_bytes: int = 0,
        condenser: Callable[[Provider], Condenser] = LlmCondenser,
    ) -> None:
        self._settings = settings
        self._max_log_bytes = max_log_bytes
        self._condenser = condenser
        self._given_up: tuple[str, int] | None = None  # the turn in which it was tried in vain
        self._in_vain: dict[str, Usage] = {}  # of each session, since it was condensed last

    async def make_room(
        self,
        session: Session,
        provider: Provider,
        tools: Sequence[ToolSpec],
        cancelled: asyncio.Event,
        *,
        refused: bool = False,
    ) -> AsyncIterator[AgentEvent]:
        """Prune and condense, if that is due before the next request; `refused`: the model has
        just said that it is too long. Whatever fails changes nothing, and is told."""
        case = self._case(session, provider, tools)
        reason = self._reason(session, case, refused)
        if reason == "over" and not session.kept:
            for notice in self._give_up(session, case.too_large("it has no log to condense")):
                yield notice
        if reason is None or not session.kept:
            return
        try:
            if reason != "grown" and (pruned := await self._prune(session, provider, case)):
                yield pruned
                case = self._case(session, provider, tools)
                reason = self._reason(session, case, refused)
            if reason is not None:
                async for event in self._condense(session, provider, case, reason, cancelled):
                    yield event
        except NotSaved as error:
            yield Unsaved(str(error), session.unsaved)

    async def compact(
        self,
        session: Session,
        provider: Provider,
        tools: Sequence[ToolSpec] = (),
        tell: Callable[[Condensing], None] | None = None,
    ) -> Condensed:
        """Condense because a person wants it; `tell` is told of each part that is begun. It may be
        cancelled while the model is asked.

        Raises:
            CannotCondense: nothing was changed; the message says why.
            NotSaved: the summary could not be logged.
        """
        if session.unsaved:
            raise CannotCondense(
                f"{session.unsaved} of this conversation not saved yet: wait for it"
            )
        case = self._case(session, provider, tools)
        found = plan(session.state, case, "asked", self._settings.keep_recent)
        if not isinstance(found, Plan):
            raise CannotCondense(found)
        progress = None if tell is None else _told_of_parts(_begun(found), tell)
        return await self._carry_out(session, provider, found, progress)

    # -- deciding ----------------------------------------------------------------------------------

    def _case(self, session: Session, provider: Provider, tools: Sequence[ToolSpec]) -> Case:
        limits = budget(provider, self._settings.threshold)
        sent = tools if provider.takes_tools else ()
        return Case(size(session.state, provider.ref, sent), limits)

    def _reason(self, session: Session, case: Case, refused: bool) -> Reason | None:
        """Why something is to be done before the next request; None where nothing is."""
        if refused:
            return "refused"
        if case.over:
            return "over"
        too_much = self._max_log_bytes and grown(session.state) > self._max_log_bytes
        return "grown" if too_much else None

    def _give_up(self, session: Session, why: str) -> list[Notice]:
        """It is said, and tried, once a turn."""
        turn = (session.id, session.state.turn)
        if self._given_up == turn:
            return []
        self._given_up = turn
        return [Notice(why)]

    # -- doing -------------------------------------------------------------------------------------

    async def _prune(self, session: Session, provider: Provider, case: Case) -> Notice | None:
        """Clear old tool output, if that frees enough."""
        found = prunable(session.state, provider.ref, self._settings.keep_recent)
        if found is None:
            return None
        entry, estimate = found
        total = case.size.total
        left = case.size.real(case.size.whole - estimate)
        if total - left < case.worth:
            return None
        await asyncio.to_thread(session.append, entry)
        outputs = f"{entry.cleared_count} old tool output{'s' * (entry.cleared_count > 1)}"
        return Notice(f"no longer sent to the model: {outputs}, {total:,} -> {left:,} tokens")

    async def _condense(
        self,
        session: Session,
        provider: Provider,
        case: Case,
        reason: Reason,
        cancelled: asyncio.Event,
    ) -> AsyncIterator[AgentEvent]:
        if self._given_up == (session.id, session.state.turn) and reason != "refused":
            return
        found = plan(session.state, case, reason, self._settings.keep_recent)
        if not isinstance(found, Plan):
            for notice in self._give_up(session, found) if found and reason == "over" else ():
                yield notice
            return
        yield (begun := _begun(found))
        parts: asyncio.Queue[Condensing | None] = asyncio.Queue()  # None: there are no more

        def tell(part: Condensing) -> None:
            if part != begun:  # which is told, and is all of it
                parts.put_nowait(part)

        progress = _told_of_parts(begun, tell)
        work = asyncio.create_task(
            _unless(cancelled, self._carry_out(session, provider, found, progress))
        )
        work.add_done_callback(lambda _: parts.put_nowait(None))
        try:
            while (part := await parts.get()) is not None:
                yield part
            done = await work
        except (CannotCondense, InvalidRange) as error:  # the log may have been changed meanwhile
            self._give_up(session, "")
            usage = error.usage if isinstance(error, NoSummary) else None
            yield Notice(f"not condensed, the whole history stays: {error}", usage)
            return
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        if done is None:
            return
        yield done
        if reason == "over" and case.limits and done.tokens_after > case.limits.limit:
            why = case.too_large(f"condensed, it still takes {done.tokens_after:,}")
            for notice in self._give_up(session, why):
                yield notice

    async def _carry_out(
        self,
        session: Session,
        provider: Provider,
        wanted: Plan,
        progress: Progress | None = None,
    ) -> Condensed:
        state, case, cut, now = session.state, wanted.case, wanted.cut, wanted.case.size
        absorbed = [state.body(item.position) for item in case.absorbs]
        past = [*case.absorbs, *cut.replaced(now)]
        made = await self._summary(session, provider, past, progress)
        summary = with_facts(
            made.summary,
            past,
            request=_request_under_way(state, cut, past),
            absorbed=[one.summary for one in absorbed if isinstance(one, CondensationEntry)],
        )
        after = now.real(case.stays(cut) + of_text(summary_text(summary)))
        usage = add_up((self._in_vain.pop(session.id, None), made.usage))
        entry = CondensationEntry(
            replaced=(cut.lo, cut.hi),
            absorbs=tuple(one.seq for one in case.absorbs),
            summary=summary,
            tokens_before=now.total,
            tokens_after=after,
            provider=made.provider,
            model=made.model,
            usage=usage,
        )
        logging = asyncio.ensure_future(asyncio.to_thread(session.append, entry))
        try:
            await asyncio.wait([logging])
        except asyncio.CancelledError:
            await asyncio.wait([logging])  # it is being done, so the person must hear of it
        try:
            entry_id = logging.result()
        except (NotSaved, InvalidRange):
            self._was_in_vain(session, usage)
            raise
        return Condensed(entry_id, cut.entries, now.total, after, made.usage)

    async def _summary(
        self,
        session: Session,
        provider: Provider,
        past: Sequence[Item],
        progress: Progress | None,
    ) -> Condensation:
        try:
            return await self._condenser(provider).condense(past, progress)
        except NoSummary as error:
            self._was_in_vain(session, error.usage)
            raise
        except CannotCondense:
            raise
        except AwlError as error:  # also: the model that summarises cannot be asked at all
            raise CannotCondense(str(error)) from error
        except Exception as error:  # a condenser may be anybody's
            raise CannotCondense(f"{type(error).__name__}: {error}") from error

    def _was_in_vain(self, session: Session, usage: Usage | None) -> None:
        """Nothing is appended where there is no summary: what it took all the same is in the entry
        of the next one."""
        wasted = add_up((self._in_vain.get(session.id), usage))
        if wasted is not None:
            self._in_vain[session.id] = wasted


def _begun(wanted: Plan) -> Condensing:
    return Condensing(wanted.cut.entries, wanted.case.size.total)


def _told_of_parts(begun: Condensing, tell: Callable[[Condensing], None]) -> Progress:
    """Tells of each part that is begun."""

    def progress(done: int, total: int) -> None:
        tell(msgspec.structs.replace(begun, part=done + 1, parts=total))

    return progress


def configured(config: Config, environ: Mapping[str, str]) -> Fitting:
    """What makes room in conversations as the settings say."""
    settings = config.session.condense

    def condenser(own: Provider) -> Condenser:
        if not settings.condense_provider:
            return LlmCondenser(own)
        named = choose_provider(config, environ, settings.condense_provider)
        return LlmCondenser(connect(named, environ), closes=True)

    max_log_bytes = config.session.max_event_log_mb << 20
    return Fitting(settings, max_log_bytes=max_log_bytes, condenser=condenser)


def carried(state: State, prompt: int) -> list[Entry]:
    """What was condensed and pruned behind the prompt at this position and is older than it: a
    session that goes back to before the prompt goes on with it. Its usage is counted already."""
    said = state.body(prompt)
    assert isinstance(said, MessageEntry)
    tokens = of_text(said.message.said().text)
    found: list[Entry] = []
    for position in state.path:
        entry = state.entries[position]
        if position <= prompt:
            continue
        if isinstance(entry, CompactionEntry):
            found.append(msgspec.structs.replace(entry, timestamp=""))
        elif isinstance(entry, CondensationEntry) and entry.replaced[1] < state.seqs[prompt]:
            again = msgspec.structs.replace(
                entry,
                timestamp="",
                usage=None,
                tokens_before=max(entry.tokens_before - tokens, 0),
                tokens_after=max(entry.tokens_after - tokens, 0),
            )
            found.append(again)
    return found


def _request_under_way(state: State, cut: Cut, past: Sequence[Item]) -> str | None:
    """What the user asked for, if the cut lies within that turn and no other summary has it: the
    model goes on with it, and must not know it by hearsay."""
    if cut.edge:
        return None
    for position in reversed(state.path):
        entry = state.body(position) if state.seqs[position] <= cut.hi else None
        if isinstance(entry, MessageEntry) and is_prompt(entry.message.said()):
            told = cut.lo > state.seqs[position] and not any(i.kind == "summary" for i in past)
            return None if told else entry.message.said().text
    return None


async def _unless(cancelled: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` comes to; None if the turn was cancelled first and it, then, as well."""
    task = asyncio.create_task(work)
    stop = asyncio.create_task(cancelled.wait())
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        stop.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
    return None if task.cancelled() else task.result()
