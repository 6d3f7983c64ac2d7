"""Keeping a conversation within what its model takes: when to prune, when to condense, when not.

What is decided follows from the log, the settings and the model alone, so that a resumed session
decides as the one that was left. Everything is recorded: replay gives what the live agent had.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec

from awl.condense import Condensation, Condenser, LlmCondenser, Progress, with_facts
from awl.config import Condense, Config, choose_provider
from awl.cuts import Cut, choose, cuts
from awl.entries import CompactionEntry, CondensationEntry, Entry, MessageEntry
from awl.errors import AwlError, CannotCondense, NotSaved
from awl.events import AgentEvent, Condensed, Condensing, Notice, Unsaved
from awl.providers import Provider, ToolSpec, connect
from awl.pruning import prunable
from awl.session import Session
from awl.state import Item, State, is_prompt, summary_text
from awl.tokens import Size, of_text, size

ROOM: Final = 0.8
"""The part of the limit that is left where fewer entries are kept than should be, so that this does
not happen again at once."""

WORTH: Final = 0.1
"""The part of the limit that pruning or condensing must free to be worth it."""

SUMMARIES: Final = 0.2
"""The part of the limit that summaries may take together."""

LONGEST_SUMMARY: Final = 2_000
"""Tokens that a summary is expected to take at most."""

UNKNOWN_ANSWER: Final = 4_096
"""Tokens that are left for an answer where the provider does not tell how long it may be."""

Reason = Literal["over", "grown", "refused", "asked"]
T = TypeVar("T")


class Budget(msgspec.Struct, frozen=True):
    """In tokens: what a request may hold at all, and the `limit` that condensation is due at."""

    most: int
    limit: int


def budget(provider: Provider, threshold: float) -> Budget | None:
    """What a request to this model may hold: its window less room for the answer. None where the
    window is not known."""
    window = provider.context_window
    if not window:
        return None
    most = window - min(provider.max_answer or UNKNOWN_ANSWER, window // 4)
    return Budget(most, int(most * threshold))


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
        if not session.kept:
            if case.over and self._given_up != (session.id, session.state.turn):
                self._given_up = (session.id, session.state.turn)
                yield Notice(case.too_large("without a log it cannot be condensed"))
            return
        reason = self._reason(session.state, case, refused)
        if reason is None:
            return
        try:
            if reason != "grown" and (pruned := await self._prune(session, provider, case)):
                yield pruned
                case = self._case(session, provider, tools)
                reason = self._reason(session.state, case, refused)
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
        progress: Progress | None = None,
    ) -> Condensed:
        """Condense because a person wants it. It may be cancelled while the model is asked.

        Raises:
            CannotCondense: nothing was changed; the message says why.
            NotSaved: the summary could not be logged.
        """
        if session.unsaved:
            raise CannotCondense(
                f"{session.unsaved} of this conversation not saved yet: wait for it"
            )
        case = self._case(session, provider, tools)
        plan = self._plan(session.state, case, "asked")
        if not isinstance(plan, _Plan):
            raise CannotCondense(plan)
        return await self._carry_out(session, provider, plan, progress)

    # -- deciding ----------------------------------------------------------------------------------

    def _case(self, session: Session, provider: Provider, tools: Sequence[ToolSpec]) -> _Case:
        limits = budget(provider, self._settings.threshold)
        return _Case(size(session.state, provider.ref, tools), limits)

    def _reason(self, state: State, case: _Case, refused: bool) -> Reason | None:
        if refused:
            return "refused"
        if case.over:
            return "over"
        return "grown" if self._grown(state) else None

    def _grown(self, state: State) -> bool:
        """Whether the log has grown by too much since the last condensation on the path."""
        if not self._max_log_bytes or not state.ends:
            return False
        last = _last_condensation(state)
        since = 0 if last is None else state.ends[last]
        return state.ends[-1] - since > self._max_log_bytes

    def _plan(self, state: State, case: _Case, reason: Reason) -> _Plan | str:
        """What to condense; else why nothing is, empty if nobody need know.

        Earlier summaries are told anew where there is no room for them beside the new one.
        """
        plan = self._cut(state, case, reason)
        fits = isinstance(plan, _Plan) and case.within_limit(plan.cut)
        if fits or case.absorbs or not case.size.summaries:
            return plan
        again = self._cut(state, msgspec.structs.replace(case, absorb=True), reason)
        return again if isinstance(again, _Plan) else plan

    def _cut(self, state: State, case: _Case, reason: Reason) -> _Plan | str:
        found = cuts(state, case.size)
        keep = self._settings.keep_recent
        if reason == "asked" and not any(cut.kept >= keep for cut in found):
            if case.is_small:
                return (
                    f"there is nothing to condense yet: the last {keep} entries stay as they are"
                    " ([session.condense] keep_recent)"
                )
            keep = 1
        cut = choose(found, keep, lambda cut: case.fits(cut, keep, refused=reason == "refused"))
        if cut is None:
            why = "there is no finished turn and no finished round of tools to condense"
            return case.too_large(why) if reason == "over" else why
        if reason == "over" and case.cannot_fit(cut, futile=_was_futile(state, case.limits)):
            why = f"condensed, it would still take {case.left(cut):,}"
            return case.too_large(why)
        return _Plan(case, cut) if case.is_worth(cut, reason) else ""

    # -- doing -------------------------------------------------------------------------------------

    async def _prune(self, session: Session, provider: Provider, case: _Case) -> Notice | None:
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
        case: _Case,
        reason: Reason,
        cancelled: asyncio.Event,
    ) -> AsyncIterator[AgentEvent]:
        turn = (session.id, session.state.turn)
        if self._given_up == turn and reason != "refused":
            return
        plan = self._plan(session.state, case, reason)
        if not isinstance(plan, _Plan):
            if plan and reason == "over":
                self._given_up = turn
                yield Notice(plan)
            return
        yield Condensing(plan.cut.entries, case.size.total)
        try:
            work = self._carry_out(session, provider, plan, None)
            done = await _unless(cancelled, work)
        except CannotCondense as error:
            self._given_up = turn
            yield Notice(f"not condensed, the whole history stays: {error}")
            return
        if done is None:
            return
        yield done
        if reason == "over" and case.limits and done.tokens_after > case.limits.limit:
            self._given_up = turn
            yield Notice(case.too_large(f"condensed, it still takes {done.tokens_after:,}"))

    async def _carry_out(
        self,
        session: Session,
        provider: Provider,
        plan: _Plan,
        progress: Progress | None,
    ) -> Condensed:
        state, case, cut, now = session.state, plan.case, plan.cut, plan.case.size
        absorbed = [state.body(item.position) for item in case.absorbs]
        past = [*case.absorbs, *cut.replaced(now)]
        made = await self._summary(provider, past, progress)
        summary = with_facts(
            made.summary,
            past,
            request=_request_under_way(state, cut, past),
            absorbed=[one.summary for one in absorbed if isinstance(one, CondensationEntry)],
        )
        after = now.real(case.stays(cut) + of_text(summary_text(summary)))
        entry = CondensationEntry(
            replaced=(cut.lo, cut.hi),
            absorbs=tuple(one.seq for one in case.absorbs),
            summary=summary,
            tokens_before=now.total,
            tokens_after=after,
            provider=made.provider,
            model=made.model,
            usage=made.usage,
        )
        # Once there is a summary, it is logged: given up half-way, nobody would know whether.
        entry_id = await asyncio.shield(asyncio.to_thread(session.append, entry))
        return Condensed(entry_id, cut.entries, now.total, after, made.usage)

    async def _summary(
        self, provider: Provider, past: Sequence[Item], progress: Progress | None
    ) -> Condensation:
        try:
            return await self._condenser(provider).condense(past, progress)
        except CannotCondense:
            raise
        except AwlError as error:  # also: the model that summarises cannot be asked at all
            raise CannotCondense(str(error)) from error
        except Exception as error:  # a condenser may be anybody's
            raise CannotCondense(f"{type(error).__name__}: {error}") from error


class _Plan(msgspec.Struct, frozen=True):
    """A condensation that is worth its request, and the case that it is made for."""

    case: _Case
    cut: Cut


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


class _Case(msgspec.Struct, frozen=True):
    """What the next request holds and may hold, and what follows from that. All in tokens."""

    size: Size
    limits: Budget | None
    absorb: bool = False

    @property
    def over(self) -> bool:
        return self.limits is not None and self.size.total > self.limits.limit

    @property
    def worth(self) -> float:
        """What must be freed at least to be worth it."""
        return (self.limits.limit if self.limits else self.size.total) * WORTH

    @property
    def is_small(self) -> bool:
        return self.limits is None or self.size.total <= self.limits.limit * WORTH

    @property
    def absorbs(self) -> list[Item]:
        """The summaries that the next one is to tell anew, because there are too many: or else they
        would in the end be all that the model is sent."""
        most = self.limits.limit * SUMMARIES if self.limits else 2 * LONGEST_SUMMARY
        found = self.size.summaries
        too_many = len(found) > 1 and sum(tokens for _, tokens in found) > most
        return [item for item, _ in found] if too_many or self.absorb else []

    def stays(self, cut: Cut) -> int:
        """An estimate of what stays beside the new summary."""
        summaries = 0 if self.absorbs else sum(tokens for _, tokens in self.size.summaries)
        return self.size.fixed + summaries + cut.left

    def left(self, cut: Cut) -> int:
        """What the request would hold, with a summary in the place of what lies before the cut."""
        return self.size.real(self.stays(cut)) + self.summary

    @property
    def summary(self) -> int:
        """What the next summary is expected to take: not less than the last one did."""
        most = min(LONGEST_SUMMARY, self.limits.limit // 8) if self.limits else LONGEST_SUMMARY
        return max([most, *(tokens for _, tokens in self.size.summaries[-1:])])

    def within_limit(self, cut: Cut) -> bool:
        return self.limits is None or self.left(cut) <= self.limits.limit

    def fits(self, cut: Cut, keep: int, *, refused: bool) -> bool:
        """Whether it is enough. What keeps less than it should is to make room for more."""
        left = self.left(cut)
        if refused and left > self.size.total // 2:
            return False
        part = 1.0 if cut.kept >= keep else ROOM
        return self.limits is None or left <= self.limits.limit * part

    def cannot_fit(self, cut: Cut, *, futile: bool) -> bool:
        """Whether there is no sense in trying: it would stay over the limit, and either the model
        cannot take it in any case, or the last condensation was futile, too, or little is won."""
        assert self.limits is not None
        left = self.left(cut)
        hopeless = left > self.limits.most or futile or not self.is_worth(cut, "over")
        return left > self.limits.limit and hopeless

    def is_worth(self, cut: Cut, reason: Reason) -> bool:
        left = self.left(cut)
        freed = self.size.total - left
        match reason:
            case "over":
                return freed >= self.worth
            case "refused":
                fits = self.limits is None or left <= self.limits.most
                return fits and freed >= self.size.total * WORTH
            case "grown":
                return freed > 0
            case "asked":
                return True

    def too_large(self, why: str) -> str:
        limit = f" of {self.limits.limit:,}" if self.limits else ""
        return (
            f"the conversation takes {self.size.total:,}{limit} tokens: {why}; go on with a model"
            " that takes more (--model, /model), or begin a new session"
        )


def carried(state: State, prompt: int) -> list[Entry]:
    """What was condensed and pruned behind the prompt at this position and is older than it: a
    session that goes back to before the prompt goes on with it. Its usage is counted already."""
    entry = state.body(prompt)
    assert isinstance(entry, MessageEntry)
    tokens = of_text(entry.message.said().text)
    found: list[Entry] = []
    for position in state.path:
        entry = state.body(position)
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


def _last_condensation(state: State) -> int | None:
    """The position of the last condensation on the path."""
    return max((position for _, _, position in state.condensed), default=None)


def _was_futile(state: State, limits: Budget | None) -> bool:
    """Whether the last condensation on the path did not bring it under the limit."""
    position = _last_condensation(state)
    if limits is None or position is None:
        return False
    entry = state.entries[position]
    assert isinstance(entry, CondensationEntry)
    return entry.tokens_after > limits.limit


async def _unless(cancelled: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` comes to; None if the turn was cancelled first. Then it is cancelled, too."""
    task = asyncio.create_task(work)
    stop = asyncio.create_task(cancelled.wait())
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        task.cancel()
        stop.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
