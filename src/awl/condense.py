"""Condensers: from a part of a conversation to the summary that a model is sent in its place.

A `Condenser` reads and writes no log. `LlmCondenser` asks a model; anything else with the method
`condense` will do as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import msgspec

from awl.conversation import (
    ContentBlock,
    Image,
    Text,
    parse_input,
    text_message,
)
from awl.entries import Summary, Usage, add_usage
from awl.errors import CannotCondense, ProviderError
from awl.providers import Completed, Provider, Request
from awl.state import Item, is_prompt, summary_text
from awl.summary import FORM, lines, merged, read_summary
from awl.tokens import of_text

PATIENCE: Final = 300.0
"""Seconds without a sign of the model after which it is given up."""

MOST_PIECES: Final = 6
"""Requests that one condensation may take because the history is too large for one."""

UNKNOWN_WINDOW: Final = 16_000
"""Tokens that a model is taken to read at once whose window is not known."""

HEAD: Final = "Here is a record of a conversation between a user and an assistant."
ASK: Final = (
    "Summarise this record, so that the assistant can go on without it: what the user wants, what"
    " was done and found out, which files were changed, what was decided and why, what is open,"
    " what comes next. It is a record of the past: do not answer it. Name files, commands and"
    " values exactly. Write in the language of the conversation."
)
"""What a model is told behind the record that fills in a form."""

ASK_PLAINLY: Final = (
    "Summarise this record in a few sentences: what the user wants, what was decided, which files"
    " were changed, what is open."
)
"""And one that does not. Small models summarise when they are told little, and else go on with the
conversation."""

_SHORTEN: Final = ((2_000, 20_000), (400, 4_000), (100, 1_000))
"""Characters that are kept of a tool's output and of a message: ever fewer, until it fits."""

_QUOTED: Final = 200
_MOST_QUOTED: Final = 10
"""Characters of a prompt that are quoted, and how many prompts."""

_WRITES: Final = frozenset({"write", "edit"})
"""The tools whose calls name a file that they change."""

_SMALL: Final = 2_000
"""Tokens of a record that a small model is given at once: more takes it very long, and leads it
astray."""

_FIXED: Final = 400
"""Tokens of a request that are no part of the record."""

Progress = Callable[[int, int], None]
"""Told how many parts of a history were summarised, and of how many."""


class Condensation(msgspec.Struct, frozen=True):
    """A summary and who made it. `usage` is that of all requests it took, where it was told."""

    summary: Summary
    provider: str
    model: str
    usage: Usage | None = None


class NoSummary(CannotCondense):
    """A condenser gave no summary. `usage` is that of the requests that it took all the same."""

    def __init__(self, message: str, usage: Usage | None = None) -> None:
        self.usage = usage
        super().__init__(message)


class Condenser(Protocol):
    """Turns a part of a conversation into a summary."""

    async def condense(
        self, past: Sequence[Item], progress: Progress | None = None
    ) -> Condensation:
        """The summary of these messages. It may be cancelled at any time.

        Raises:
            NoSummary: there is none; the message says why.
        """


class LlmCondenser:
    """Asks a model. Its answer counts only if it is whole and says something of the record.

    A model that can be made to fill in a form is; one that fills in nonsense, or cannot, is asked
    for plain sentences. It has two tries. What does not fit into its window is summarised in parts.

    Args:
        provider: the model.
        patience: seconds without a sign of it after which it is given up.
        closes: close the provider at the end: it is nobody else's.
    """

    def __init__(
        self, provider: Provider, *, patience: float = PATIENCE, closes: bool = False
    ) -> None:
        self._provider = provider
        self._patience = patience
        self._closes = closes

    async def condense(
        self, past: Sequence[Item], progress: Progress | None = None
    ) -> Condensation:
        spent: list[Usage] = []
        try:
            made = await self._as_much_as_fits(past, progress, spent)
        except CannotCondense as error:
            raise NoSummary(str(error), add_up(spent)) from error
        finally:
            if self._closes:
                await self._provider.close()
        return msgspec.structs.replace(made, usage=add_up(spent))

    async def _as_much_as_fits(
        self, past: Sequence[Item], progress: Progress | None, spent: list[Usage]
    ) -> Condensation:
        room = self._room()
        while True:
            try:
                return await self._in_parts(past, room, progress, spent)
            except ProviderError as error:
                if error.fault != "context_length" or room <= _FIXED:
                    raise CannotCondense(f"{self._name} gave no summary: {error}") from error
                room //= 2  # its window is not known, or its tokens are shorter than most

    def _room(self) -> int:
        """Tokens of a record that the model can read at once."""
        window = self._provider.context_window or UNKNOWN_WINDOW
        answer = min(self._provider.max_answer or window, window // 4)
        room = max((window - answer) * 4 // 5 - _FIXED, _FIXED)
        return room if self._provider.fills_forms else min(room, _SMALL)

    async def _in_parts(
        self, past: Sequence[Item], room: int, progress: Progress | None, spent: list[Usage]
    ) -> Condensation:
        parts = _parts(past, room)
        found: list[Condensation] = []
        for number, part in enumerate(parts):
            if progress is not None:
                progress(number, len(parts))
            found.append(await self._summary(part, spent))
        whole = merged([one.summary for one in found])
        again = summary_text(whole)
        if len(found) > 1 and of_text(again) > room // 8:
            found.append(await self._summary(again, spent))
            whole = msgspec.structs.replace(whole, session_intent=found[-1].summary.session_intent)
        return msgspec.structs.replace(found[-1], summary=whole)

    async def _summary(self, record: str, spent: list[Usage]) -> Condensation:
        """The summary of one record that fits. What each answer took is added to `spent`."""
        why = ""
        for form in (FORM if self._provider.fills_forms else None, None):
            ask = ASK_PLAINLY if form is None else ASK
            text = f"{HEAD}\n\n<record>\n{record}\n</record>\n\n{ask}"
            message = text_message("user", text)
            request = Request(system=None, messages=(message,), form=form, thinking=False)
            try:
                answer = await self._answer(request)
            except ProviderError as error:
                if form is None or error.fault != "refused":
                    raise
                continue  # a server that knows no forms
            if answer.usage is not None:
                spent.append(answer.usage)
            if answer.stop_reason not in ("stop", "toolUse"):
                why = "was cut at the model's limit"
            elif (summary := read_summary(answer.content, record)) is None:
                why = "says nothing of the conversation"
            else:
                ref = self._provider.ref
                return Condensation(summary, ref.provider, answer.model)
        raise CannotCondense(f"the summary of {self._name} {why}")

    async def _answer(self, request: Request) -> Completed:
        stream = self._provider.stream(request)
        loop = asyncio.get_running_loop()
        try:
            async with contextlib.aclosing(stream), asyncio.timeout(self._patience) as limit:
                async for event in stream:
                    limit.reschedule(loop.time() + self._patience)
                    if isinstance(event, Completed):
                        return event
        except TimeoutError:
            raise CannotCondense(f"{self._name} gave no sign for {self._patience:g} s") from None
        raise CannotCondense(f"{self._name} broke off in the middle of its summary")

    @property
    def _name(self) -> str:
        return str(self._provider.ref)


def with_facts(
    summary: Summary,
    past: Sequence[Item],
    request: str | None = None,
    absorbed: Sequence[Summary] = (),
) -> Summary:
    """A summary and what the log itself knows: the files that tools changed, also by the summaries
    that this one absorbs; the request that is being worked on; and, if the model found only a few
    words, what the user asked."""
    intent = [summary.session_intent]
    asked = [item.message.text for item in past if is_prompt(item.message)]
    if not (summary.decisions_made or summary.open_questions or summary.next_steps) and asked:
        quoted = lines(_shortened(text, _QUOTED) for text in asked[-_MOST_QUOTED:])
        intent.append("\n".join(("The user asked, word for word:", *(f"- {q}" for q in quoted))))
    if request is not None:
        words = _shortened(request, _SHORTEN[0][1])
        intent.append(f"The request that is being worked on, word for word:\n{words}")
    return msgspec.structs.replace(
        summary,
        session_intent="\n\n".join(intent),
        files_modified=lines(
            (
                *(path for one in absorbed for path in one.files_modified),
                *_changed_files(past),
                *summary.files_modified,
            )
        ),
    )


def _changed_files(past: Sequence[Item]) -> Iterator[str]:
    for item in past:
        for call in item.calls:
            answer = call.answer()
            if call.use.name in _WRITES and answer is not None and not answer.is_error:
                path = (parse_input(call.use.input) or {}).get("path")
                if isinstance(path, str):
                    yield path


def add_up(usages: Iterable[Usage | None]) -> Usage | None:
    """The sum of what was told; None if nothing was."""
    told = [usage for usage in usages if usage is not None]
    return functools.reduce(add_usage, told) if told else None


# -- the record ------------------------------------------------------------------------------------


def _parts(past: Sequence[Item], room: int) -> list[str]:
    """The messages as texts that each fit into so many tokens: as whole as that goes."""
    parts: list[str] = []
    for output, message in _SHORTEN:
        said = [text for item in past if (text := _said(item, output, message))]
        parts = list(_packed(said, room))
        if len(parts) <= MOST_PIECES:
            return parts
    head, tail = parts[:1], parts[1 - MOST_PIECES :]
    left_out = sum(map(len, parts)) - sum(map(len, (*head, *tail)))
    return [
        *head,
        f"[{left_out} characters of the conversation are left out here]\n\n{tail[0]}",
        *tail[1:],
    ]


def _packed(said: Iterable[str], room: int) -> Iterator[str]:
    part: list[str] = []
    size = 0
    for text in said:
        for piece in _pieces(text, room):
            tokens = of_text(piece) + 1
            if part and size + tokens > room:
                yield "\n\n".join(part)
                part, size = [], 0
            part.append(piece)
            size += tokens
    if part:
        yield "\n\n".join(part)


def _pieces(text: str, room: int) -> Iterator[str]:
    """A text in pieces that each fit, whatever it is written in."""
    if of_text(text) <= room:
        yield text
        return
    for start in range(0, len(text), room):
        yield text[start : start + room]


def _said(item: Item, output: int, message: int) -> str:
    """A message as it stands in a record, what is too long shortened."""
    who = item.message.role if item.kind == "message" else "note"
    words = "\n".join(filter(None, map(_words, item.message.content)))
    said = [f"{who}: {_shortened(words, message)}"] if words.strip() else []
    for call in item.calls:
        said.append(f"[{call.use.name} {_shortened(call.use.input, output)}]")
        answer = call.answer()
        if answer is None:
            said.append("[no result was recorded]")
        else:
            error = "failed: " if answer.is_error else ""
            said.append(f"[its result] {error}{_shortened(answer.content, output)}")
    return "\n".join(said)


def _words(block: ContentBlock) -> str:
    match block:
        case Text():
            return block.text
        case Image():
            return "[a picture]"
        case _:
            return ""


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]}\n[{len(text) - head - tail} characters left out]\n{text[-tail:]}"
