"""The view: what a model is sent, so that no provider refuses it. Pure.

`view` turns a State into messages that alternate user and assistant and begin with the user, in
which each tool call is answered exactly once, directly after the message that made it. It never
alters the log, and for a healthy session it is the conversation itself. What it changed, it says.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from awl.conversation import (
    ContentBlock,
    Image,
    Message,
    ModelRef,
    Opaque,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    parse_input,
)
from awl.state import Call, Item, State, is_prompt

CLEARED = "[old tool output removed to save space]"
WORDLESS = "[a message without words]"

_STATUS_TEXT = {
    "not_started": "[interrupted: this tool call was never started]",
    "unknown": (
        "[interrupted: no result was recorded. The call may or may not have run, wholly or in part,"
        " and may still be running; check its effects before relying on them]"
    ),
}


class View(msgspec.Struct, frozen=True):
    """What to send, and `changes`: what differs from what was said, one phrase each."""

    system: str | None
    messages: tuple[Message, ...]
    changes: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    """A message being put together: results go first, then words."""

    role: Role
    results: list[ContentBlock] = field(default_factory=list)
    rest: list[ContentBlock] = field(default_factory=list)

    def message(self) -> Message:
        return Message(self.role, (*self.results, *self.rest))


def view(state: State, target: ModelRef, *, thinking: bool = True) -> View:
    """What to send to `target`.

    Args:
        state: the session.
        target: whom the request goes to; thinking and other bound items are sent back to the model
            that made them only.
        thinking: False leaves all reasoning out (the retry after a refusal).
    """
    changes: Counter[str] = Counter()
    items = state.items
    system, records = _system(items)
    drafts: list[_Draft] = []
    answers = _Answers(state, items, changes)
    for item in items:
        if item.kind == "gap":
            _say(drafts, [Text(text=item.message.text)])
            changes["a damaged part of the log is marked"] += 1
        elif item.message.role == "user":
            _say(drafts, answers.words(item))
        elif item.message.role == "assistant":
            content = _answer(item, target, thinking, answers, changes)
            if not _has_something_to_say(content):
                changes["an answer without words was left out"] += bool(item.message.content)
                continue
            _join_answer(drafts, content)
            if item.calls:
                drafts.append(_Draft("user", answers.results(item)))
    if (drafts or records) and (not drafts or drafts[0].role != "user"):
        drafts.insert(0, _Draft("user", rest=[Text(text=_RECORD + "\n\n".join(records))]))
        records = []
    return View(
        "\n\n".join(part for part in (system, *records) if part and part.strip()) or None,
        tuple(draft.message() for draft in drafts),
        tuple(text if n == 1 else f"{text} ({n} times)" for text, n in changes.items() if n),
    )


# What all APIs take as the name of a tool and as the id of a call, and the room for "-2" behind it.
# Longer ids are taken back by the model that gave them.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_ID = 40
_ROOM = 32

_RECORD = "[A record of what came before; continue from here.]\n"


def _system(items: list[Item]) -> tuple[str | None, list[str]]:
    """The system text in force, and the summaries in path order."""
    system = None
    records = []
    for item in items:
        if item.kind in ("summary", "import"):
            records.append(item.message.text)
        elif item.kind == "message" and item.message.role == "system":
            system = item.message.text
    return system, records


def _say(drafts: list[_Draft], content: list[ContentBlock]) -> None:
    """Add words of the user: to the user's message before it, if there is one."""
    if not content:
        return
    if not drafts or drafts[-1].role != "user":
        drafts.append(_Draft("user"))
    drafts[-1].rest.extend(content)


def _join_answer(drafts: list[_Draft], content: list[ContentBlock]) -> None:
    """Add an answer; two in a row become one message."""
    if drafts and drafts[-1].role == "assistant":
        # Reasoning comes first in a message and belongs to its own answer: joined ones go bare.
        drafts[-1].rest = [*_bare(drafts[-1].rest), *_bare(content)]
        return
    drafts.append(_Draft("assistant", rest=content))


def _bare(content: list[ContentBlock]) -> list[ContentBlock]:
    """The words and calls of an answer without anything that binds it to its model."""
    return [
        msgspec.structs.replace(block, provider_data=None)
        for block in content
        if isinstance(block, Text | ToolUse)
    ]


def _answer(
    item: Item,
    target: ModelRef,
    thinking: bool,
    answers: _Answers,
    changes: Counter[str],
) -> list[ContentBlock]:
    """The blocks of an assistant message that `target` may see, in order."""
    own = item.asked == target and thinking
    whole = not item.cut_short
    calls = iter(item.calls)
    content: list[ContentBlock] = []
    for block in item.message.content:
        if isinstance(block, Text):
            if block.text.strip():
                data = block.provider_data if own and whole else None
                content.append(block if data == block.provider_data else Text(text=block.text))
        elif isinstance(block, Thinking | RedactedThinking):
            bound = isinstance(block, RedactedThinking) or block.signature or block.provider_data
            if own and whole and bound:
                content.append(block)
            elif bound:  # unsigned reasoning goes back to nobody, ever: not worth a word each time
                changes["reasoning that this model cannot take back was left out"] += 1
        elif isinstance(block, ToolUse):
            if whole:
                content.append(answers.call(next(calls), own))
            else:
                changes["a tool call of an unfinished answer was left out"] += 1
        else:
            changes["a block of unknown type was left out"] += 1
    return content


class _Answers:
    """Pairs each call with exactly one result, under an id that is unique in the view."""

    def __init__(self, state: State, items: list[Item], changes: Counter[str]) -> None:
        self._state = state
        self._changes = changes
        self._cleared = state.cleared
        self._sent_as: dict[int, str] = {}
        self._used: set[str] = set()
        self._matched: set[int] = set()
        for item in items:
            for call in item.calls:
                if call.result is not None:
                    self._matched.add(id(call.result))

    def call(self, call: Call, own: bool) -> ToolUse:
        use = call.use
        fits = _NAME.fullmatch(use.id) and (own or len(use.id) <= _LONGEST_ID)
        base = name = use.id if fits else _UNFIT.sub("_", use.id)[:_ROOM] or "call"
        n = 2
        while name in self._used:
            name, n = f"{base[:_ROOM]}-{n}", n + 1
        self._used.add(name)
        self._sent_as[id(call)] = name
        if name != use.id:
            self._changes["a tool call id that repeats or does not fit was renamed"] += 1
        data = use.provider_data if own and name == use.id else None
        sendable = _as_object(use.input)
        if sendable != use.input:
            self._changes["a tool input that is not a JSON object was wrapped"] += 1
        tool = use.name
        if not _NAME.fullmatch(tool):
            tool = _UNFIT.sub("_", tool)[:64] or "unknown"
            self._changes["a tool name that does not fit was changed"] += 1
        return ToolUse(id=name, name=tool, input=sendable, provider_data=data)

    def results(self, item: Item) -> list[ContentBlock]:
        return [self._result(call) for call in item.calls]

    def _result(self, call: Call) -> ToolResult:
        name = self._sent_as[id(call)]
        answer = call.answer()
        if answer is None:
            status = self._state.call_status(call)
            self._changes[
                "a tool call that was interrupted is answered with what is known of it"
            ] += 1
            return ToolResult(tool_use_id=name, content=_STATUS_TEXT[status], is_error=True)
        if call.result is None:
            self._changes["a tool result that was logged alone was put in its place"] += 1
        if call.answered_seq in self._cleared:
            self._changes["old tool output was left out"] += 1
            return ToolResult(tool_use_id=name, content=CLEARED, is_error=answer.is_error)
        return msgspec.structs.replace(answer, tool_use_id=name)

    def words(self, item: Item) -> list[ContentBlock]:
        """What a user message says besides the results that were put behind their calls."""
        kept: list[ContentBlock] = []
        for block in item.message.content:
            if isinstance(block, Text):
                if block.text.strip():
                    kept.append(block)
            elif isinstance(block, Image):
                kept.append(block)
            elif isinstance(block, ToolResult):
                if id(block) not in self._matched:
                    self._changes["a tool result without its call was left out"] += 1
            elif isinstance(block, Opaque):
                self._changes["a block of unknown type was left out"] += 1
        if not kept and is_prompt(item.message):
            self._changes["a message without words is marked"] += 1
            kept.append(Text(text=WORDLESS))
        return kept


def _has_something_to_say(content: list[ContentBlock]) -> bool:
    return any(isinstance(block, Text | ToolUse) for block in content)


def _as_object(text: str) -> str:
    """A tool input as providers take it: the text of a JSON object."""
    parsed = parse_input(text)
    if parsed is None:
        return json.dumps({"raw": text})
    return text if parsed or text.strip() else "{}"
