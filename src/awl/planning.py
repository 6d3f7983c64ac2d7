"""Whether to condense, and what: decided from the log, the settings and the model alone. Pure.

So a resumed session decides as the one that was left, and tries nothing again that was in vain.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from awl.cuts import Cut, choose, cuts
from awl.entries import CondensationEntry
from awl.providers import Provider
from awl.state import Item, State
from awl.tokens import Size

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
"""The request is over the limit; the log has grown; the model refused it as too long; a person
wants it."""


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


class Case(msgspec.Struct, frozen=True):
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


class Plan(msgspec.Struct, frozen=True):
    """A condensation that is worth its request, and the case that it is made for."""

    case: Case
    cut: Cut


def plan(state: State, case: Case, reason: Reason, keep: int) -> Plan | str:
    """What to condense, keeping `keep` entries if there is room for them; else why nothing is,
    empty if nobody need know.

    Earlier summaries are told anew where there is no room for them beside the new one.
    """
    found = _plan(state, case, reason, keep)
    fits = isinstance(found, Plan) and case.within_limit(found.cut)
    if fits or case.absorbs or not case.size.summaries:
        return found
    again = _plan(state, msgspec.structs.replace(case, absorb=True), reason, keep)
    return again if isinstance(again, Plan) else found


def _plan(state: State, case: Case, reason: Reason, keep: int) -> Plan | str:
    found = cuts(state, case.size)
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
        return case.too_large(f"condensed, it would still take {case.left(cut):,}")
    return Plan(case, cut) if case.is_worth(cut, reason) else ""


def grown(state: State) -> int:
    """By how many bytes the log has grown since the last condensation on the path."""
    if not state.ends:
        return 0
    last = _last_condensation(state)
    return state.ends[-1] - (0 if last is None else state.ends[last])


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
