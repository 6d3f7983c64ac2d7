"""What the tools share: checking input, failing politely, working in a thread."""

from __future__ import annotations

import asyncio
import threading
import unicodedata
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from awl.tools import ToolContext, ToolOutcome

MAX_LINE: Final = 120
"""Characters of a call that `describe` shows."""

STOP_SECONDS: Final = 1.0
"""How long a cancelled tool may take to leave its thread before it is left behind."""


class Input(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every tool's input: its fields are the tool's parameters."""


AnInput = TypeVar("AnInput", bound=Input)

FilePath = Annotated[
    str,
    msgspec.Meta(min_length=1, description="Path; relative ones start at the working directory."),
]


class Failure(Exception):
    """What the model asked for cannot be done; the text says why and what to do instead."""


class Stopped(Exception):
    """The call was cancelled."""


def failed(reason: str) -> ToolOutcome:
    return ToolOutcome(content=reason, is_error=True)


def schema(kind: type[Input]) -> dict[str, Any]:
    """The JSON schema of a tool's parameters, without references, which some models do not take."""
    whole: dict[str, Any] = msgspec.json.schema(kind)["$defs"][kind.__name__]
    del whole["title"]
    return whole


def parse(kind: type[AnInput], input: Mapping[str, Any]) -> AnInput:
    """The input as a struct. Raises `Failure` that names the key which is wrong.

    A null stands for a key that was left out, and `"30"` is taken for 30: models write both.
    """
    given = {key: value for key, value in input.items() if value is not None}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        parameters = ", ".join(kind.__struct_fields__)
        raise Failure(f"invalid input: {error}. The parameters are: {parameters}") from error


async def in_thread(
    work: Callable[[AnInput, ToolContext, threading.Event], ToolOutcome],
    kind: type[AnInput],
    input: Mapping[str, Any],
    context: ToolContext,
) -> ToolOutcome:
    """Check the input and do the work in a thread. When cancelled, the event is set.

    Then the thread is waited for, so that nothing is changed after the caller has gone on. What was
    done before it could be stopped is the result; else the cancellation goes on.
    """
    stop = threading.Event()

    def guarded() -> ToolOutcome | None:
        try:
            return work(parse(kind, input), context, stop)
        except Failure as failure:
            return failed(str(failure))
        except OSError as error:
            return failed(os_reason(error))
        except Stopped:
            return None

    task = asyncio.ensure_future(asyncio.to_thread(guarded))
    try:
        outcome = await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        done, _ = await asyncio.wait({task}, timeout=STOP_SECONDS)
        outcome = task.result() if done else None
        if outcome is None:
            raise
    assert outcome is not None  # only a cancelled work is stopped
    return outcome


def os_reason(error: OSError) -> str:
    """What the system said, without its number."""
    reason = error.strerror or str(error)
    return f"{visible(str(error.filename))}: {reason}" if error.filename is not None else reason


def check(stop: threading.Event) -> None:
    if stop.is_set():
        raise Stopped


def visible(text: str) -> str:
    """Text in one line that shows a person all it does: no control or direction characters."""
    return "".join(_VISIBLE.get(char) or _shown(char) for char in text)


_VISIBLE: Final[Mapping[str, str]] = {"\n": "⏎", "\t": " "}


def _shown(char: str) -> str:
    # Cc: controls; Cf: invisible and direction marks; Cs: lone surrogates; Zl, Zp: line breaks.
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return char.encode("unicode_escape", "surrogatepass").decode()
    return char


def describe(verb: str, *parts: object) -> str:
    """One line for a person; what does not fit is counted, not hidden."""
    line = " ".join((verb, *(visible(str(part)) for part in parts if part)))
    if len(line) <= MAX_LINE:
        return line
    return f"{line[:MAX_LINE]}… (+{len(line) - MAX_LINE} characters)"
