"""What happens in a turn, as events that any channel can show and any program can read."""

from __future__ import annotations

import msgspec

from awl.entries import Usage


class AgentEvent(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """Something that happened in a turn. As JSON (`--output stream-json`), one line an event."""


class TurnStarted(AgentEvent, frozen=True, tag="turn_started"):
    """The prompt is in the log. `session_id` is empty when nothing is kept."""

    session_id: str
    turn_id: int


class AnswerText(AgentEvent, frozen=True, tag="text"):
    """More words of the answer."""

    text: str


class AnswerThinking(AgentEvent, frozen=True, tag="thinking"):
    """More of the model's reasoning."""

    thinking: str


class ToolComposing(AgentEvent, frozen=True, tag="tool_composing"):
    """The model is writing the input of a tool call."""

    name: str


class AnswerCompleted(AgentEvent, frozen=True, tag="answer_completed"):
    """An answer is in the log. `stop_reason`: stop, length, toolUse, error or aborted."""

    entry_id: str
    stop_reason: str
    model: str
    usage: Usage | None = None


class ToolStarted(AgentEvent, frozen=True, tag="tool_started"):
    """A tool runs; its intent is in the log. `summary` is one line for a person."""

    tool_use_id: str
    name: str
    summary: str


class ToolOutput(AgentEvent, frozen=True, tag="tool_output"):
    """Output of a running tool, as it comes."""

    tool_use_id: str
    text: str


class ToolFinished(AgentEvent, frozen=True, tag="tool_finished"):
    """A tool's result is in the log, or an `Unsaved` follows. Also for calls that did not run
    (denied, unknown tool)."""

    tool_use_id: str
    name: str
    content: str
    is_error: bool
    duration_ms: int


class Condensing(AgentEvent, frozen=True, tag="condensing"):
    """Old history is being summarised: so many entries of a conversation of so many tokens. What is
    too large to be read at once comes again with each part that is begun."""

    entries: int
    tokens: int
    part: int = 1
    parts: int = 1

    def __str__(self) -> str:
        part = f", part {self.part} of {self.parts}" if self.parts > 1 else ""
        return f"condensing {self.entries:,} entries{part}"


class Condensed(AgentEvent, frozen=True, tag="condensed"):
    """A summary is in the log. From here on the model reads it in the place of so many entries; the
    request holds `tokens_after` instead of `tokens_before`. `usage` is what the summary took."""

    entry_id: str
    entries: int
    tokens_before: int
    tokens_after: int
    usage: Usage | None = None

    def __str__(self) -> str:
        entries = "1 entry" if self.entries == 1 else f"{self.entries:,} entries"
        return f"condensed {entries}: {self.tokens_before:,} -> {self.tokens_after:,} tokens"


class Notice(AgentEvent, frozen=True, tag="notice"):
    """One quiet line for the person. `usage` is what the thing that it tells of took, if it did."""

    text: str
    usage: Usage | None = None


class Unsaved(AgentEvent, frozen=True, tag="unsaved"):
    """Something could not be written. `waiting` entries are queued and retried."""

    message: str
    waiting: int


class Saved(AgentEvent, frozen=True, tag="saved"):
    """All that was queued is written."""

    count: int


class Retrying(AgentEvent, frozen=True, tag="retrying"):
    """The provider did not answer; it is asked again in `seconds`."""

    reason: str
    seconds: float


class TurnEnded(AgentEvent, frozen=True, tag="turn_ended"):
    """Always the last event of a turn.

    `stop_reason`: stop, length, aborted (Ctrl-C), error (see `error`), max_turns, unsaved.
    `prompt_refused`: the prompt is not in the log, or was gone back from because no request can
    hold it: it should return to the input line.
    `text` is the last answer's text; `usage` the sum of this turn's requests.
    """

    stop_reason: str
    text: str = ""
    usage: Usage | None = None
    error: str | None = None
    prompt_refused: bool = False
