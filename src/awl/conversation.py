"""What a model and a person say to each other: a `Conversation` of messages made of content blocks.

A conversation holds roles and content and nothing else. Who answered, what it cost and when it
happened belong to the log's entries (`awl.entries`).
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import msgspec

Role = Literal["system", "user", "assistant"]


class Block(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename="camel",
    tag_field="type",
    gc=False,
):
    """Base of every content block. `type` on disk is the block's tag."""


class BlobRef(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A payload kept beside the log: its SHA-256 in hex and its size in bytes."""

    blob: str
    size: int


class Text(Block, frozen=True, tag="text"):
    """Words for the other side to read."""

    text: str
    provider_data: dict[str, Any] | None = None


class Thinking(Block, frozen=True, tag="thinking"):
    """A model's reasoning. Without its `signature` it is shown to people and never sent back."""

    thinking: str
    signature: str | None = None
    provider_data: dict[str, Any] | None = None


class RedactedThinking(Block, frozen=True, tag="redactedThinking"):
    """Reasoning that only the provider can read; it goes back to it byte for byte."""

    data: str
    provider_data: dict[str, Any] | None = None


class ToolUse(Block, frozen=True, tag="toolUse"):
    """A tool call. `input` is the raw JSON text as the model wrote it, never parsed here."""

    id: str
    name: str
    input: str
    provider_data: dict[str, Any] | None = None


class Image(Block, frozen=True, tag="image"):
    """A picture, as a reference to a blob."""

    mime_type: str
    blob: BlobRef


class ToolResult(Block, frozen=True, tag="toolResult"):
    """The answer to a tool call. `content` is exactly what the model is shown.

    `output` is the uncut output when `content` had to be shortened; `duration_ms` is wall time.
    """

    tool_use_id: str
    content: str
    images: tuple[Image, ...] = ()
    is_error: bool = False
    duration_ms: int | None = None
    output: BlobRef | None = None


class Opaque(Block, frozen=True, tag="opaque"):
    """A block of a type that this awl does not know: kept, shown, never sent to a model."""

    kind: str
    raw: str


ContentBlock = Text | Thinking | RedactedThinking | ToolUse | ToolResult | Image | Opaque


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message: a role and its content blocks, in order."""

    role: Role
    content: tuple[ContentBlock, ...]

    @property
    def text(self) -> str:
        """The message's words, without thinking, calls and results."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))

    @property
    def tool_uses(self) -> list[ToolUse]:
        return [block for block in self.content if isinstance(block, ToolUse)]

    @property
    def tool_results(self) -> list[ToolResult]:
        return [block for block in self.content if isinstance(block, ToolResult)]


class Conversation(msgspec.Struct, frozen=True):
    """The messages of a session's current path, root first."""

    messages: tuple[Message, ...]

    def __len__(self) -> int:
        return len(self.messages)


UNKNOWN_MODEL: Final = "unknown"
"""The model of a session that came from elsewhere, where nothing told it."""


class ModelRef(NamedTuple):
    """Whom a request is sent to. `endpoint` is None when it is the provider type's own."""

    provider: str
    model: str
    endpoint: str | None = None

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def text_message(role: Role, text: str) -> Message:
    """A message that is one text block."""
    return Message(role, (Text(text=text),))


def parse_input(text: str) -> dict[str, Any] | None:
    """A tool call's input; None when it is not a JSON object. No input at all is an empty one.

    Strict (RFC 8259): what passes here every provider takes back.
    """
    if not text.strip():
        return {}
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
