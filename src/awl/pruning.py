"""Which old tool output need not be sent any more. Pure.

It is the cheapest way to make room: the calls stay, their output is replaced by a remark, and all
of it stays in the log.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from awl.conversation import ModelRef
from awl.entries import CompactionEntry, PartialEntry
from awl.state import State
from awl.tokens import of_item

LEAST: Final = 500
"""Tokens of a message of results below which clearing it is not worth a word."""


def prunable(state: State, target: ModelRef, keep: int) -> tuple[CompactionEntry, int] | None:
    """The entry that clears all old output, and the tokens that it frees; None if there is none.

    Old is what lies before the last `keep` entries of the path and before the last answer: what a
    model has not read yet is never cleared.
    """
    before = _old(state, keep)
    answers = [item for item in state.items if item.message.role == "assistant"]
    if before is None or not answers:
        return None
    before = min(before, answers[-1].position)
    cleared = state.cleared
    # A result that answers no call is not sent, so nothing is gained by clearing it.
    sent = Counter(call.answered_seq for item in state.items for call in item.calls)
    seqs: list[int] = []
    outputs = freed = 0
    for item in state.items:
        alone = [call.answered_seq for call in item.calls if call.result is None]
        for seq in ({item.seq, *alone} & sent.keys()) - cleared - {0}:
            saved = of_item(item, cleared, target) - of_item(item, cleared | {seq}, target)
            if item.position < before and saved >= LEAST:
                seqs.append(seq)
                freed += saved
                outputs += sent[seq]
    if not seqs:
        return None
    entry = CompactionEntry(tier="soft", cleared_count=outputs, cleared=tuple(sorted(seqs)))
    return entry, freed


def _old(state: State, keep: int) -> int | None:
    """The position of the first of the last `keep` entries; None when there are no more."""
    counted = [
        position for position in state.path if not isinstance(state.entries[position], PartialEntry)
    ]
    if len(counted) <= keep:
        return None
    return counted[-keep] if keep else state.leaf + 1
