"""Where a history may be cut, so that what lies before is sent as a summary. Pure.

A cut never falls between a call and its result. It falls at the edge of a turn; or, within the last
turn, after a round of tools whose results the model has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import msgspec

from awl.entries import PartialEntry
from awl.state import Item, State, is_prompt
from awl.tokens import Size


class Cut(msgspec.Struct, frozen=True):
    """A place where the history may be cut.

    `lo` and `hi` are the seqs of the range before it that is not condensed yet, and `entries` how
    many entries of the path those are. `kept` are those behind it, without partial answers.
    `edge`: it lies between turns. `left` estimates, in tokens, the messages behind it.
    """

    lo: int
    hi: int
    entries: int
    kept: int
    edge: bool
    left: int

    def replaced(self, size: Size) -> list[Item]:
        """The messages in its range."""
        return [item for item, _ in size.messages if self.lo <= item.seq <= self.hi]


def cuts(state: State, size: Size) -> list[Cut]:
    """The places on the path where it may be cut, in order. None lies in an earlier condensation,
    and each has a message in its range. `size` is that of the state's next request."""
    path = state.path
    at = {position: index for index, position in enumerate(path)}
    seqs = [state.seqs[position] for position in path]
    first = state.condensed[-1][1] + 1 if state.condensed else min(seqs, default=0)
    begin = sum(seq < first for seq in seqs)
    highest = list(accumulate(seqs, max))
    lowest = [*accumulate(reversed(seqs), min, initial=state.next_seq)][::-1]
    blocked = _inside_calls(state, at, seqs, begin)
    count = [0] * len(path)
    tokens = [0] * len(path)
    for item, estimate in size.messages:
        if at[item.position] >= begin:
            count[at[item.position]] += 1
            tokens[at[item.position]] += estimate
    partial = [isinstance(state.entries[position], PartialEntry) for position in path]
    count, left = list(accumulate(count)), _behind(tokens)
    kept = _behind([not one for one in partial])
    return [
        Cut(
            lo=first,
            hi=highest[index],
            entries=index + 1 - begin,
            kept=kept[index],
            edge=edge,
            left=left[index],
        )
        for index, edge in _candidates(state, at)
        if index >= begin
        and count[index]
        and not blocked[index]
        and highest[index] < lowest[index + 1]
    ]


def _behind(values: Sequence[int]) -> list[int]:
    """For each index, the sum of the values behind it."""
    return [*accumulate(reversed(values), initial=0)][-2::-1] if values else []


def choose(found: Iterable[Cut], keep: int, fits: Callable[[Cut], bool]) -> Cut | None:
    """The cut to take: the last edge of a turn that keeps so many entries, if what it leaves fits;
    else the next one that does; else the one that leaves least."""
    best = None
    for cut in _in_order(list(found), keep):
        best = cut
        if fits(cut):
            break
    return best


def _in_order(found: list[Cut], keep: int) -> list[Cut]:
    """Cuts that keep enough come first, edges before rounds; then those that keep ever less."""
    edges = [cut for cut in found if cut.edge]
    rounds = [cut for cut in found if not cut.edge and (not edges or cut.hi > edges[-1].hi)]
    return [*_keeping(edges, keep), *_keeping(rounds, keep)]


def _keeping(found: list[Cut], keep: int) -> list[Cut]:
    enough = [cut for cut in found if cut.kept >= keep]
    return [*enough[-1:], *found[len(enough) :]]


def _candidates(state: State, at: dict[int, int]) -> list[tuple[int, bool]]:
    """Indices of path entries behind which a turn or a round of tools ends; whether a turn does."""
    ends: dict[int, bool] = {}
    answered_by = _last_answer(state, at)
    for item in state.items:
        if item.kind != "message" or item.message.role != "user":
            continue
        index = at[item.position]
        if is_prompt(item.message):
            ends[index - 1] = True
        elif index < answered_by:
            ends.setdefault(index, False)
    if not state.interrupted:
        ends[len(at) - 1] = True
    return sorted((index, edge) for index, edge in ends.items() if index >= 0)


def _last_answer(state: State, at: dict[int, int]) -> int:
    """The index of the last whole answer: results behind it were not seen by the model yet."""
    answers = (
        at[item.position]
        for item in reversed(state.items)
        if item.message.role == "assistant" and not item.cut_short
    )
    return next(answers, -1)


def _inside_calls(state: State, at: dict[int, int], seqs: list[int], begin: int) -> list[bool]:
    """For each index, whether a range from `begin` to it would part a call from its result."""
    index_of = {seq: index for index, seq in enumerate(seqs)}
    change = [0] * (len(seqs) + 1)
    for item in state.items:
        for call in item.calls:
            made = at[call.position]
            answered = index_of.get(call.answered_seq, -1)
            if made < begin:  # another program's range left it out
                first, end = max(answered, 0), len(seqs) if answered >= begin else 0
            elif call.result is not None:
                first, end = made, answered
            else:
                first, end = made, len(seqs) if call.until is None else at[call.until] - 1
            if first < end:
                change[first] += 1
                change[end] -= 1
    return [depth > 0 for depth in accumulate(change[:-1])]
