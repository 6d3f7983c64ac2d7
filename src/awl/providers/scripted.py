"""A model that plays a file: for tests, demonstrations and recordings, with no network and no key.

The file (`path` in the provider's settings) holds turns, one for each request: a JSON array of
turns, or JSON lines with one turn a line (empty lines are skipped). A turn is an array of steps,
played in order; with a condition it is an object, `{"when": "words", "steps": [...]}`. An object
without steps holds options for the whole file: `{"loop": true}`.

Steps, one kind each:

    {"text": "Hello there.", "chunk": 8, "delay": 0.01}   text, `chunk` characters at a time (8)
    {"thinking": "Hm.", "signature": "c2ln"}              reasoning; takes `chunk`, `delay` as well
    {"redactedThinking": "b3BhcXVl"}                      reasoning that only the provider reads
    {"toolUse": {"id": "t1", "name": "read", "input": {"path": "a.py"}}}
    {"delay": 0.5}                                        silence, in seconds
    {"error": {"fault": "overloaded", "message": "busy", "status": 529, "times": 1}}
    {"stopReason": "length"}                              else toolUse if a tool was called, or stop
    {"usage": {"input": 10, "output": 5}}                 else none is reported
    {"model": "scripted-2"}                               else the model of the settings

Text steps that follow each other, and likewise thinking steps before a signature, make one block.
`delay` in a text step is the pause before each of its chunks. A tool's `input` is an object, or a
string that is passed on as it stands; its `id` may be left out. An error ends the request where it
stands, so one in the middle of an answer is a stream that breaks off; with `times` it strikes only
so often in a process, and then the turn goes on.

**Which turn is played** depends on the request alone, so a session that is resumed in another
process goes on where it was: the first turn whose `when` is part of the system text or of the last
message, else, of the turns without `when`, the one at index *number of assistant messages in the
request*. With `loop` the turns begin again after the last; without it, running out is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from awl.config import ProviderSettings
from awl.conversation import (
    ContentBlock,
    Message,
    ModelRef,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import Usage
from awl.errors import ConfigError, ProviderError, ProviderFault
from awl.providers import (
    Completed,
    Request,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolUseDelta,
)

CHUNK: Final = 8
KINDS: Final = (
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "error",
    "stop_reason",
    "usage",
    "model",
)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a script."""

    name: str
    id: str = ""
    input: dict[str, Any] | str = msgspec.field(default_factory=dict)


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error of a script. `times` 0 means every time."""

    fault: ProviderFault = "connection"
    message: str = "the script says so"
    status: int | None = None
    times: int = 0


class Step(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One step of a turn: exactly one of its kinds is set, or a delay alone."""

    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    redacted_thinking: str | None = None
    tool_use: Call | None = None
    error: Failure | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    delay: float = 0.0
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) > 1 or (not kinds and not self.delay):
            raise ValueError("a step is of one kind: text, thinking, toolUse, delay, error, ...")
        if self.signature is not None and self.thinking is None:
            raise ValueError("a signature belongs to a thinking step")
        if self.chunk < 1 or self.delay < 0:
            raise ValueError("chunk is at least 1 and delay at least 0")


class Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The steps for one request, and the words that ask for them."""

    steps: tuple[Step, ...]
    when: str = ""


class Script(msgspec.Struct, frozen=True):
    """A whole file: turns in order, turns with a condition, and whether to begin again."""

    turns: tuple[Turn, ...]
    conditional: tuple[Turn, ...] = ()
    loop: bool = False

    def turn_for(self, request: Request) -> Turn:
        """The turn that answers `request`: a function of the request alone."""
        heard = [request.system or "", *map(_heard, request.messages[-1:])]
        for turn in self.conditional:
            if any(turn.when in text for text in heard):
                return turn
        index = sum(message.role == "assistant" for message in request.messages)
        if self.loop and self.turns:
            index %= len(self.turns)
        if index >= len(self.turns):
            raise ProviderError(
                f"the script has no more turns (turn {index + 1} was asked for,"
                f' it has {len(self.turns)}): add one, or the line {{"loop": true}}',
                fault="refused",
            )
        return self.turns[index]


def read_script(path: Path) -> Script:
    """Read a file of turns. Raises `ConfigError` that names the file and what is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the script {path} cannot be read: {error.strerror}", path=path, key="path"
        ) from error
    try:
        return _script(list(_items(data)))
    except (msgspec.MsgspecError, ValueError) as error:
        raise ConfigError(
            f"the script {path} is not valid: {error}", path=path, key="path"
        ) from error


def _items(data: bytes) -> Iterator[Any]:
    """The turns and options of a file, as JSON values."""
    try:
        whole = msgspec.json.decode(data)
    except msgspec.DecodeError:
        yield from _lines(data)
        return
    # A lone array is a list of turns, or (JSON lines of one line) a single turn of steps.
    if isinstance(whole, list) and not any(isinstance(i, dict) and _is_step(i) for i in whole):
        yield from whole
    else:
        yield whole


def _lines(data: bytes) -> Iterator[Any]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"line {number}: {error}") from error


def _is_step(item: dict[str, Any]) -> bool:
    return "steps" not in item and "loop" not in item


def _script(items: list[Any]) -> Script:
    turns: list[Turn] = []
    loop = False
    for number, item in enumerate(items, 1):
        try:
            if isinstance(item, dict) and "steps" not in item:
                loop = msgspec.convert(item, _Options).loop
            elif isinstance(item, dict):
                turns.append(msgspec.convert(item, Turn))
            else:
                turns.append(Turn(msgspec.convert(item, tuple[Step, ...])))
        except msgspec.ValidationError as error:
            raise ValueError(f"turn {number}: {error}") from error
    return Script(
        turns=tuple(turn for turn in turns if not turn.when),
        conditional=tuple(turn for turn in turns if turn.when),
        loop=loop,
    )


class _Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    loop: bool = False


def _heard(message: Message) -> str:
    """What a condition looks at: a message's words and its tools' results."""
    parts = [block.text for block in message.content if isinstance(block, Text)]
    parts += [block.content for block in message.content if isinstance(block, ToolResult)]
    return "\n".join(parts)


class ScriptedProvider:
    """Plays the turns of a file. See the module for the format."""

    def __init__(self, settings: ProviderSettings) -> None:
        if not settings.path:
            raise ConfigError(
                f"the scripted provider {settings.name!r} needs `path`: a file of turns",
                key="path",
            )
        self._settings = settings
        self._script = read_script(Path(settings.path).expanduser())
        self._struck: dict[int, int] = {}

    @property
    def ref(self) -> ModelRef:
        settings = self._settings
        return ModelRef(settings.name, settings.model or "scripted", settings.endpoint)

    @property
    def context_window(self) -> int:
        return self._settings.context_window

    @property
    def max_answer(self) -> int:
        return self._settings.max_tokens

    @property
    def fills_forms(self) -> bool:
        return True

    @property
    def takes_tools(self) -> bool:
        return True

    def warm(self) -> None:
        """Nothing to import."""

    async def close(self) -> None:
        """Nothing is held."""

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Play the turn for this request. See `Provider.stream`."""
        turn = self._script.turn_for(request)
        blocks: list[ContentBlock] = []
        stop_reason, model, usage = "", self.ref.model, None
        for step in turn.steps:
            if step.text is not None:
                index = _open(blocks, Text(text=""))
                for piece in _pieces(step, step.text):
                    await asyncio.sleep(step.delay)
                    blocks[index] = Text(text=_said(blocks[index]) + piece)
                    yield TextDelta(index, piece)
            elif step.thinking is not None:
                index = _open(blocks, Thinking(thinking=""))
                for piece in _pieces(step, step.thinking):
                    await asyncio.sleep(step.delay)
                    blocks[index] = Thinking(thinking=_said(blocks[index]) + piece)
                    yield ThinkingDelta(index, piece)
                if step.signature is not None:
                    blocks[index] = Thinking(
                        thinking=_said(blocks[index]), signature=step.signature
                    )
            else:
                # Others can cancel here even when the script asks for no pause.
                await asyncio.sleep(step.delay)
            if step.redacted_thinking is not None:
                blocks.append(RedactedThinking(data=step.redacted_thinking))
            elif step.tool_use is not None:
                yield ToolUseDelta(len(blocks), step.tool_use.name)
                blocks.append(_tool_use(step.tool_use, request, len(blocks)))
            elif step.error is not None:
                self._strike(step.error)
            stop_reason = step.stop_reason or stop_reason
            model = step.model or model
            usage = step.usage or usage
        if not stop_reason:
            called = any(isinstance(block, ToolUse) for block in blocks)
            stop_reason = "toolUse" if called else "stop"
        yield Completed(content=tuple(blocks), stop_reason=stop_reason, model=model, usage=usage)

    def _strike(self, failure: Failure) -> None:
        struck = self._struck[id(failure)] = self._struck.get(id(failure), 0) + 1
        if not failure.times or struck <= failure.times:
            raise ProviderError(failure.message, fault=failure.fault, status=failure.status)


def _open(blocks: list[ContentBlock], fresh: Text | Thinking) -> int:
    """The index of the block that goes on growing: the last one, or a new one."""
    last = blocks[-1] if blocks else None
    signed = isinstance(last, Thinking) and last.signature is not None
    if type(last) is not type(fresh) or signed:
        blocks.append(fresh)
    return len(blocks) - 1


def _said(block: ContentBlock) -> str:
    if isinstance(block, Text):
        return block.text
    assert isinstance(block, Thinking)
    return block.thinking


def _pieces(step: Step, text: str) -> Iterator[str]:
    for start in range(0, len(text), step.chunk):
        yield text[start : start + step.chunk]


def _tool_use(call: Call, request: Request, index: int) -> ToolUse:
    turn = sum(message.role == "assistant" for message in request.messages)
    text = call.input if isinstance(call.input, str) else msgspec.json.encode(call.input).decode()
    return ToolUse(id=call.id or f"call_{turn}_{index}", name=call.name, input=text)
