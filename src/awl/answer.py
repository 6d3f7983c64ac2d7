"""One answer of a model while it arrives: what was shown of it, and what of that is logged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from time import monotonic
from typing import Final

from awl.conversation import Text, Thinking
from awl.entries import PartialBlock
from awl.errors import ProviderError
from awl.providers import Completed, StreamEvent, TextDelta, ThinkingDelta

PARTIAL_EVERY: Final = 1.0
"""Seconds of a streaming answer that a kill may cost."""

_Inbox = asyncio.Queue[StreamEvent | Exception | None]


class Answer:
    """What of an answer was shown, and which part of it is in the log already."""

    def __init__(self) -> None:
        self.completed: Completed | None = None
        self._pieces: list[PartialBlock] = []
        self._logged = 0
        self._due: float | None = None

    @property
    def anything(self) -> bool:
        return bool(self._pieces)

    def take(self, event: StreamEvent) -> None:
        if isinstance(event, TextDelta):
            piece = PartialBlock(type="text", index=event.index, text=event.text)
        elif isinstance(event, ThinkingDelta):
            piece = PartialBlock(type="thinking", index=event.index, thinking=event.thinking)
        else:
            if isinstance(event, Completed):
                self.completed = event
            return
        if not (piece.text or piece.thinking):
            return
        self._pieces.append(piece)
        if self._due is None:
            self._due = monotonic() + PARTIAL_EVERY

    def until_partial(self) -> float | None:
        """Seconds until what was shown must be logged; None when all of it is."""
        if self._due is None or self.completed is not None:
            return None
        return max(0.0, self._due - monotonic())

    def since_partial(self) -> tuple[PartialBlock, ...]:
        """What arrived since the last partial that was logged, joined by block."""
        return _joined(self._pieces[self._logged :])

    def partial_done(self, *, logged: bool) -> None:
        """All that arrived is logged; or it was tried in vain, and goes into the next partial."""
        if logged:
            self._logged, self._due = len(self._pieces), None
        else:
            self._due = monotonic() + PARTIAL_EVERY

    def content(self) -> tuple[Text | Thinking, ...]:
        """All that was shown, as blocks. Reasoning that broke off has no signature."""
        return tuple(
            Text(text=block.text) if block.type == "text" else Thinking(thinking=block.thinking)
            for block in _joined(self._pieces)
        )


def _joined(pieces: Sequence[PartialBlock]) -> tuple[PartialBlock, ...]:
    blocks: dict[tuple[int, str], list[PartialBlock]] = {}
    for piece in pieces:
        blocks.setdefault((piece.index, piece.type), []).append(piece)
    return tuple(
        PartialBlock(
            type=kind,
            index=index,
            text="".join(part.text for part in parts),
            thinking="".join(part.thinking for part in parts),
        )
        for (index, kind), parts in sorted(blocks.items())
    )


async def arrive(
    stream: AsyncIterator[StreamEvent], answer: Answer, cancelled: asyncio.Event
) -> AsyncIterator[StreamEvent | None]:
    """The events of a stream as they come, taken into `answer`; None when a partial is due.

    Ends early when `cancelled` is set. The request is over when this is.

    Raises:
        ProviderError: the provider did not answer, or broke off.
    """
    inbox: _Inbox = asyncio.Queue()
    tasks = [
        asyncio.create_task(_pump(stream, inbox)),
        asyncio.create_task(_when(cancelled, inbox)),
    ]
    try:
        while True:
            try:
                event = await asyncio.wait_for(inbox.get(), answer.until_partial())
            except TimeoutError:
                yield None
                continue
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            answer.take(event)
            yield event
            if answer.until_partial() == 0:
                yield None
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _pump(stream: AsyncIterator[StreamEvent], inbox: _Inbox) -> None:
    try:
        async for event in stream:
            inbox.put_nowait(event)
        inbox.put_nowait(None)
    except ProviderError as error:
        inbox.put_nowait(error)
    except Exception as error:  # a fault inside an SDK must not look like awl's own
        message = f"the provider failed: {type(error).__name__}: {error}"
        inbox.put_nowait(ProviderError(message, fault="internal"))
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


async def _when(event: asyncio.Event, inbox: _Inbox) -> None:
    await event.wait()
    inbox.put_nowait(None)
