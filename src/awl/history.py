"""A session for people: everything that was said, off the path too, with what is known of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from awl.access import INTERRUPTED, OFF_PATH, BannerInfo, HistoryItem, OpenCall, ToolLine
from awl.conversation import (
    Image,
    ModelRef,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolUse,
    parse_input,
)
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    Entry,
    ForkPointEntry,
    GapEntry,
    ImportEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    RevisionEntry,
    RewindEntry,
    TitleEntry,
    ToolResultEntry,
)
from awl.places import labels_at
from awl.state import State, gap_text, import_text, is_prompt, summary_text
from awl.tools import Tool, all_tools

KNOWN: Final = {
    "not_started": "never started",
    "unknown": "started, outcome unknown; it may still run",
    "finished": "finished",
}

_ENDED: Final = {"aborted": "cancelled", "error": "broke off", "length": "cut at the limit"}

_UNKNOWN_OUTCOME: Final = "[interrupted: no result was recorded]"


def history(state: State) -> Iterator[HistoryItem]:
    """All messages of a session in file order, with its dividers.

    A call whose result is more than `_MOST_HELD` items behind it is shown without.
    """
    return _History(state).items()


def banner_info(state: State, session_id: str, notices: list[str]) -> BannerInfo:
    """What a person is told when a session is resumed."""
    describe = _describer()
    return BannerInfo(
        session_id=session_id,
        last_active=state.updated,
        messages=state.message_count,
        turns=state.turn,
        model=state.active_model,
        title=state.given_title or "",
        cwd=state.cwd,
        interrupted=state.interrupted,
        open_calls=tuple(
            OpenCall(
                name=call.use.name,
                summary=describe(call.use),
                known=KNOWN[state.call_status(call)],
            )
            for call in state.open_calls
        ),
        notices=tuple(notices),
    )


_MOST_HELD: Final = 1000
"""Items that wait for the results of the calls of one before them."""


class _Draft:
    """A history item being put together: results come later than the calls they answer.

    `calls` are their ids, and `waiting` those that no result was found for yet.
    """

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        self.tools: list[ToolLine] = []
        self.marks: list[str] = []
        self.calls: set[str] = set()
        self.waiting: set[str] = set()

    def item(self) -> HistoryItem:
        return HistoryItem(**self.facts, tools=tuple(self.tools), marks=tuple(self.marks))


class _History:
    def __init__(self, state: State) -> None:
        self._state = state
        self._describe = _describer()
        self._status = {
            (call.position, call.use.id): KNOWN[state.call_status(call)]
            for call in state.open_calls
        }
        self._drafts: deque[_Draft] = deque()
        self._open: dict[str, tuple[_Draft, int]] = {}
        self._partial: _Draft | None = None
        self._labels = labels_at(state)
        self._asked = [ModelRef("", "")]  # by position, that of the root first

    def items(self) -> Iterator[HistoryItem]:
        for position in range(len(self._state.entries)):
            count = len(self._drafts)
            self._take(position, self._state.body(position))
            if len(self._drafts) > count:
                yield from self._finished()
        self._end_partial()
        for draft in self._drafts:
            yield draft.item()

    def _finished(self) -> Iterator[HistoryItem]:
        """What no result can change any more. The last one can always be."""
        drafts = self._drafts
        while len(drafts) > 1 and (not drafts[0].waiting or len(drafts) > _MOST_HELD):
            draft = drafts.popleft()
            for name in draft.calls:
                if self._open[name][0] is draft:
                    del self._open[name]
            yield draft.item()

    def _take(self, position: int, entry: Entry) -> None:
        asked = self._asked[self._state.parents[position] + 1]
        if isinstance(entry, MessageEntry) and entry.message.role == "user" and entry.model:
            model = ModelRef(entry.provider or asked.provider, entry.model)
            asked = asked if model == asked else model  # one object for all that were asked it
        self._asked.append(asked)
        if gap := self._state.gaps.get(position):
            self._divide(position, entry, gap.strip("[]").removeprefix("awl: "))
        match entry:
            case MessageEntry():
                self._message(position, entry, asked)
            case PartialEntry():
                self._arrived(position, entry, asked)
            case ToolResultEntry():
                self._answer(entry.tool_use_id, entry.content, entry.is_error)
            case CondensationEntry():
                lo, hi = entry.replaced
                text = f"from here on the model reads entries {lo}-{hi} as this summary"
                self._divide(position, entry, text, summary_text(entry.summary))
            case CompactionEntry():
                self._divide(
                    position, entry, f"{entry.cleared_count} old tool outputs are no longer sent"
                )
            case RewindEntry():
                self._divide(position, entry, "went back from here")
            case ModelChangeEntry():
                self._divide(position, entry, f"switched to {entry.provider}/{entry.model}")
            case ForkPointEntry():
                self._divide(position, entry, f"forked at {entry.at} as {entry.new_session_id}")
            case NoteEntry():
                self._divide(position, entry, f"told the model: {entry.kind}", entry.text)
            case ImportEntry():
                detail = import_text(entry) if entry.source == "legacy" else ""
                self._divide(
                    position, entry, f"imported from {entry.source or 'elsewhere'}", detail
                )
            case TitleEntry():
                self._divide(position, entry, f"named: {entry.title}")
            case GapEntry():
                self._divide(position, entry, gap_text(entry))
            case RevisionEntry():
                self._divide(position, entry, revision_text(entry), "\n".join(entry.changes))
            case _:
                pass

    def _divide(self, position: int, entry: Entry, text: str, detail: str = "") -> None:
        self._drafts.append(
            _Draft(
                kind="divider",
                seq=self._state.seqs[position],
                text=text,
                detail=detail,
                timestamp=entry.timestamp,
            )
        )

    def _message(self, position: int, entry: MessageEntry, asked: ModelRef) -> None:
        logged, message = entry.message, entry.message.said()
        if logged.role == "assistant":
            self._partial = None
        else:
            self._end_partial()
        for result in message.tool_results:
            self._answer(result.tool_use_id, result.content, result.is_error)
        if logged.role == "user" and not is_prompt(message):
            return
        words = [_words(block) for block in message.content]
        draft = _Draft(
            kind=logged.role,
            seq=self._state.seqs[position],
            text="\n".join(word for word in words if word),
            thinking="\n".join(
                block.thinking if isinstance(block, Thinking) else "[reasoning, encrypted]"
                for block in message.content
                if isinstance(block, Thinking | RedactedThinking)
            ),
            name=(logged.model or "") if logged.role == "assistant" else "",
            timestamp=entry.timestamp,
        )
        for use in message.tool_uses:
            known = self._status.get((position, use.id))
            self._open[use.id] = (draft, len(draft.tools))
            draft.calls.add(use.id)
            draft.waiting.add(use.id)
            draft.tools.append(
                ToolLine(
                    name=use.name,
                    summary=self._describe(use),
                    output=f"[interrupted: {known}]" if known else _UNKNOWN_OUTCOME,
                    is_error=True,
                )
            )
            if known and INTERRUPTED not in draft.marks:
                draft.marks.append(INTERRUPTED)
        if not self._state.on_path(position):
            draft.marks.append(OFF_PATH)
        if label := self._labels.get(position):
            draft.marks.append(f"label: {label}")
        if logged.role == "assistant":
            if logged.model and asked.model and logged.model != asked.model:
                draft.marks.append(f"asked {asked.model}")
            if logged.stop_reason in ("aborted", "error", "length"):
                draft.marks.append(_ENDED[logged.stop_reason])
        self._drafts.append(draft)

    def _arrived(self, position: int, entry: PartialEntry, asked: ModelRef) -> None:
        if self._partial is None:
            self._partial = _Draft(
                kind="assistant",
                seq=self._state.seqs[position],
                text="",
                thinking="",
                name=asked.model,
                timestamp=entry.timestamp,
            )
            self._partial.marks.append(INTERRUPTED)
            if not self._state.on_path(position):
                self._partial.marks.append(OFF_PATH)
        self._partial.facts["text"] += "".join(block.text for block in entry.content)
        self._partial.facts["thinking"] += "".join(block.thinking for block in entry.content)

    def _end_partial(self) -> None:
        if self._partial is not None:
            self._drafts.append(self._partial)
            self._partial = None

    def _answer(self, tool_use_id: str, content: str, is_error: bool) -> None:
        draft, place = self._open.get(tool_use_id, (None, 0))
        if draft is None:
            return
        draft.waiting.discard(tool_use_id)
        line = draft.tools[place]
        draft.tools[place] = ToolLine(
            name=line.name, summary=line.summary, output=content, is_error=is_error
        )


def revision_text(entry: RevisionEntry) -> str:
    """That a log is not as it was written, and why."""
    if entry.reason == "repair":
        return f"repaired: a copy of {entry.source_id}" if entry.source_id else "repaired"
    return "something was redacted" if entry.reason == "redaction" else f"changed: {entry.reason}"


def _words(block: object) -> str:
    match block:
        case Text():
            return block.text
        case Image():
            return f"[image, {block.mime_type}, {block.blob.size} bytes]"
        case Opaque():
            return f"[a block of type {block.kind or 'unknown'}]"
    return ""


def _describer() -> Callable[[ToolUse], str]:
    """A function that says in one line what a call would do."""
    tools: dict[str, Tool] = {tool.spec.name: tool for tool in all_tools()}

    def describe(use: ToolUse) -> str:
        parsed = parse_input(use.input)
        tool = tools.get(use.name)
        return tool.describe(parsed) if tool is not None and parsed is not None else use.input

    return describe
