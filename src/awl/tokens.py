"""How much the next request holds, in tokens: as the provider told it, else estimated. Pure.

The last answer on the path tells what its request and it came to; what came after is estimated.
After a condensation, the entry tells. An estimate alone counts four bytes a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from awl.conversation import (
    ContentBlock,
    Image,
    ModelRef,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import CompactionEntry, CondensationEntry, MessageEntry
from awl.providers import ToolSpec
from awl.state import Item, State
from awl.view import CLEARED

PICTURE: Final = 1_500
"""Tokens that a picture is taken for: about what a full-size one costs."""

_BYTES: Final = 4
_FACTOR: Final = 1.5
_AROUND: Final = 4
"""Tokens that go around each block."""


class Size(msgspec.Struct, frozen=True):
    """What the next request holds.

    `total` is the best that is known. The rest are estimates: `fixed` of what always stays (tools
    and system text), `summaries` and `messages` of each of those.
    """

    total: int
    fixed: int
    summaries: tuple[tuple[Item, int], ...]
    messages: tuple[tuple[Item, int], ...]

    @property
    def whole(self) -> int:
        """The estimate of all of it."""
        return self.fixed + sum(tokens for _, tokens in (*self.summaries, *self.messages))

    def real(self, estimate: int) -> int:
        """What a request is likely to hold of which only this much is left, by estimate.

        A tokenizer is off by a factor, up to a point; what goes beyond that is taken for something
        that the server adds, and that stays.
        """
        factor = min(max(self.total / max(self.whole, 1), 1 / _FACTOR), _FACTOR)
        return max(round(self.total + factor * (estimate - self.whole)), 0)


def size(state: State, target: ModelRef, tools: Sequence[ToolSpec] = ()) -> Size:
    """The size of the request that would go to `target` now."""
    cleared = state.cleared
    system = 0
    summaries, messages = [], []
    for item in state.items:
        if is_system(item):
            system = of_text(item.message.text)  # the last one is in force
        elif item.kind == "summary":
            summaries.append((item, of_text(item.message.text)))
        else:
            messages.append((item, of_item(item, cleared, target)))
    fixed = system + sum(map(_of_tool, tools))
    estimate = Size(0, fixed, tuple(summaries), tuple(messages))
    told = _told(state, target)
    if told is None:
        return msgspec.structs.replace(estimate, total=estimate.whole)
    total, position, cleared_since = told
    for item in state.items:
        if is_system(item) and item.position > position:
            total += of_text(item.message.text)
    for item, tokens in messages:
        if item.position > position:
            total += tokens
        elif cleared_since:
            total -= of_item(item, cleared - cleared_since, target) - tokens
    return msgspec.structs.replace(estimate, total=max(total, 0))


def is_system(item: Item) -> bool:
    """Whether an item is system text, which a condensation does not replace."""
    return item.kind == "message" and item.message.role == "system"


def of_text(text: str) -> int:
    """An estimate for a text."""
    return -(-len(text.encode(errors="replace")) // _BYTES)


def of_item(item: Item, cleared: frozenset[int], target: ModelRef) -> int:
    """An estimate for a message, as `target` would be sent it."""
    bound = item.asked == target and not item.cut_short
    tokens = _AROUND
    for block in item.message.content:
        if isinstance(block, ToolResult):
            tokens += _of_result(block, item.seq in cleared)
        else:
            tokens += _of_block(block, bound)
    for call in item.calls:
        answer = call.answer()
        if call.result is None and answer is not None:  # it was logged alone
            tokens += _of_result(answer, call.answered_seq in cleared)
    return tokens


def _told(state: State, target: ModelRef) -> tuple[int, int, frozenset[int]] | None:
    """What was told last of the path's size, where, and whose output was cleared since."""
    asked = {item.position: item.asked for item in state.items if item.kind == "message"}
    accepted = {position for _, _, position in state.condensed}
    cleared: set[int] = set()
    for position in reversed(state.path):
        entry = state.entries[position]
        if isinstance(entry, CompactionEntry):
            cleared.update(entry.cleared)
        elif isinstance(entry, CondensationEntry) and position in accepted:
            told = entry.tokens_after
            return (told, position, frozenset(cleared)) if told > 0 else None
        elif isinstance(entry, MessageEntry) and asked.get(position) == target:
            usage = entry.message.usage
            if usage is None or entry.message.role != "assistant":
                continue
            read = usage.input + (usage.cache_read or 0) + (usage.cache_write or 0)
            if read > 0:
                return read + usage.output, position, frozenset(cleared)
    return None


def _of_tool(tool: ToolSpec) -> int:
    return of_text(tool.name + tool.description) + of_text(
        msgspec.json.encode(tool.parameters).decode()
    )


def _of_block(block: ContentBlock, bound: bool) -> int:
    match block:
        case Text():
            return of_text(block.text)
        case Thinking():
            return of_text(block.thinking) if bound and block.signature else 0
        case RedactedThinking():
            return of_text(block.data) if bound else 0
        case ToolUse():
            return of_text(block.name) + of_text(block.input) + _AROUND
        case Image():
            return PICTURE
        case _:
            return 0


def _of_result(result: ToolResult, cleared: bool) -> int:
    if cleared:
        return of_text(CLEARED) + _AROUND
    return of_text(result.content) + PICTURE * len(result.images) + _AROUND
