"""The entries that a log can hold, as frozen structs: one struct a line type.

`awl.log` specifies the file; this module is its vocabulary. Field names are camelCase on disk and
snake_case here. Bytes are turned into entries and back in `awl.log.line`.

An entry made by a caller has no id, parent, time or seq: the `Session` stamps them when it is
written.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from awl.conversation import BlobRef, ContentBlock, Image, Message, Role

VERSION: Final = 1
"""The format version that this awl writes."""

UNSTAMPED: Final = ""
"""`parent_id` of an entry that was not written yet, or whose line does not tell it: then it follows
the entry before. (None means: the first entry of its log.)"""


class ForkedFrom(msgspec.Struct, frozen=True, rename="camel"):
    """The session and seq that a fork was cut from."""

    session_id: str
    seq: int


class Header(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="type",
    tag="session",
):
    """The first line of a log (seq 0). It is no part of the tree.

    `endpoint` is set when it is not the provider type's own; `cwd_bytes` is base64, when the
    directory's name is not UTF-8.
    """

    # No defaults: the seed's five fields are always written.
    version: int
    id: str
    timestamp: str
    cwd: str
    provider: str
    model: str
    forked_from: ForkedFrom | None = None
    endpoint: str | None = None
    cwd_bytes: str | None = None


class EntryBase(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="type",
    gc=False,
):
    """What every entry but the header has. `seq` is 0 and `id` empty until it is written."""

    id: str = ""
    parent_id: str | None = UNSTAMPED
    timestamp: str = ""
    seq: int = 0
    turn_id: int | None = None


class Usage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """Tokens of one request. Cached tokens are counted apart from `input`."""

    input: int
    output: int
    cache_read: int | None = None
    cache_write: int | None = None


def add_usage(one: Usage, other: Usage) -> Usage:
    """What two requests took together."""
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=_sum(one.cache_read, other.cache_read),
        cache_write=_sum(one.cache_write, other.cache_write),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


class LoggedMessage(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """A message as the log has it: the conversation's message, and how an answer came about.

    `provider` and `model` (assistant only) are what handled the request, the model as the response
    names it. `stop_reason`: stop, length, toolUse, error or aborted.
    """

    role: Role
    content: tuple[ContentBlock, ...]
    provider: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None

    def said(self) -> Message:
        """The message as the conversation holds it."""
        return Message(self.role, self.content)

    @classmethod
    def of(
        cls,
        message: Message,
        *,
        provider: str | None = None,
        model: str | None = None,
        stop_reason: str | None = None,
        usage: Usage | None = None,
    ) -> LoggedMessage:
        """The log's form of a conversation's message."""
        return cls(
            role=message.role,
            content=message.content,
            provider=provider,
            model=model,
            stop_reason=stop_reason,
            usage=usage,
        )


class MessageEntry(EntryBase, frozen=True, kw_only=True, tag="message"):
    """A message. `provider` and `model` (user messages only) are whom it was submitted to."""

    provider: str | None = None
    model: str | None = None
    message: LoggedMessage


class ToolCallEntry(EntryBase, frozen=True, kw_only=True, tag="toolCall"):
    """A tool is about to start: from here on its effects may exist."""

    tool_use_id: str
    name: str


class ToolResultEntry(EntryBase, frozen=True, kw_only=True, tag="toolResult"):
    """A tool of a batch ended while others are still open."""

    tool_use_id: str
    name: str
    content: str
    images: tuple[Image, ...] = ()
    output: BlobRef | None = None
    is_error: bool
    duration_ms: int


class PartialBlock(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False
):
    """What arrived of the block at `index` since the partial before: `text` or `thinking`."""

    type: str
    index: int
    text: str = ""
    thinking: str = ""


class PartialEntry(EntryBase, frozen=True, kw_only=True, tag="partial"):
    """A second of an answer that is still streaming. Void once the answer itself is logged."""

    content: tuple[PartialBlock, ...]


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """What a condensation keeps of the entries that it replaces."""

    session_intent: str = ""
    files_modified: tuple[str, ...] = ()
    decisions_made: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()


class CondensationEntry(EntryBase, frozen=True, kw_only=True, tag="condensation"):
    """The entries with seqs `replaced` (inclusive) are sent as this summary from here on.

    `absorbs` are the seqs of earlier condensations whose summaries are told in this one, too, and
    are not sent beside it.
    """

    replaced: tuple[int, int]
    absorbs: tuple[int, ...] = ()
    summary: Summary
    tokens_before: int
    tokens_after: int
    provider: str | None = None
    model: str | None = None
    usage: Usage | None = None


class CompactionEntry(EntryBase, frozen=True, kw_only=True, tag="compaction"):
    """The tool output of the entries with seqs `cleared` is no longer sent."""

    tier: str
    cleared_count: int
    cleared: tuple[int, ...] = ()


class ForkPointEntry(EntryBase, frozen=True, kw_only=True, tag="forkPoint"):
    """A child session was forked from here, with everything up to seq `at`."""

    new_session_id: str
    at: int


class ModelChangeEntry(EntryBase, frozen=True, kw_only=True, tag="modelChange"):
    """The user switched: (provider, endpoint, model) hold as one unit from here on."""

    provider: str
    model: str
    endpoint: str | None = None
    thinking_level: str | None = None


class CwdChangeEntry(EntryBase, frozen=True, kw_only=True, tag="cwdChange"):
    """The session was re-homed. The last one in the file counts. `cwd_bytes` as in the header."""

    cwd: str
    cwd_bytes: str | None = None


class RewindEntry(EntryBase, frozen=True, kw_only=True, tag="rewind"):
    """The user went back: `parent_id` is the entry gone back to (None: before everything)."""


class TitleEntry(EntryBase, frozen=True, kw_only=True, tag="title"):
    """The user named the session."""

    title: str


class LabelEntry(EntryBase, frozen=True, kw_only=True, tag="label"):
    """The user named an entry."""

    target_id: str
    label: str


class ImportedText(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One message of a conversation that had no log: who said what."""

    role: str
    text: str


class ImportEntry(EntryBase, frozen=True, kw_only=True, tag="import"):
    """A conversation without a log got one, or another program's session was imported."""

    source: str
    source_id: str | None = None
    source_path: str | None = None
    through: int | str | None = None
    message_count: int
    messages: tuple[ImportedText, ...] = ()


class NoteEntry(EntryBase, frozen=True, kw_only=True, tag="note"):
    """What a model is told on the user's side although no person said it to it: in another program,
    a command that the person ran, a message of an extension.

    `kind` is the program's name and its name for this, `record` what it had on file.
    """

    kind: str
    text: str
    images: tuple[Image, ...] = ()
    record: Any = None


EndReason = Literal["user_quit", "switched", "idle_ttl", "shutdown", "error"]


class EndEntry(EntryBase, frozen=True, kw_only=True, tag="end"):
    """The session was closed cleanly."""

    reason: str


class GapEntry(EntryBase, frozen=True, kw_only=True, tag="gap"):
    """Stands where a repair found something that nobody can read: so many lines, so many bytes."""

    lines: int
    size: int


class RevisionEntry(EntryBase, frozen=True, kw_only=True, tag="revision"):
    """This log is not as it was written: what `reason` ("repair" or "redaction") has changed.

    `source_id` is the session that a repair was made of. `odd` are the seqs of entries that are not
    as the format says and were kept so, `lost_blobs` the blobs that are named and not there.
    """

    reason: str
    changes: tuple[str, ...] = ()
    source_id: str | None = None
    odd: tuple[int, ...] = ()
    lost_blobs: tuple[str, ...] = ()


class UnknownEntry(EntryBase, frozen=True, kw_only=True, tag="unknown"):
    """An entry of a type that this awl does not know: kept, shown, part of the chain."""

    kind: str
    raw: dict[str, Any]


KnownEntry = (
    MessageEntry
    | ToolCallEntry
    | ToolResultEntry
    | PartialEntry
    | CondensationEntry
    | CompactionEntry
    | ForkPointEntry
    | ModelChangeEntry
    | CwdChangeEntry
    | RewindEntry
    | TitleEntry
    | LabelEntry
    | ImportEntry
    | NoteEntry
    | EndEntry
    | GapEntry
    | RevisionEntry
)
Entry = KnownEntry | UnknownEntry
