"""Entries, random ones, and whole logs for the tests of the log."""

from __future__ import annotations

import time
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from awl.conversation import (
    BlobRef,
    ContentBlock,
    Image,
    Message,
    ModelRef,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    CwdChangeEntry,
    EndEntry,
    Entry,
    ForkedFrom,
    ForkPointEntry,
    GapEntry,
    Header,
    ImportedText,
    ImportEntry,
    KnownEntry,
    LabelEntry,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialBlock,
    PartialEntry,
    RevisionEntry,
    RewindEntry,
    Summary,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    Usage,
)
from awl.log.line import encode
from awl.session import Session

DATA = Path(__file__).parents[1] / "data"
MODEL = ModelRef("anthropic", "claude-sonnet-4-20250514")
BLOB = BlobRef(blob="ab" * 32, size=7)
SESSION_ID = "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"

BLOCKS: list[tuple[ContentBlock, dict[str, Any]]] = [
    (Text(text="hi"), {"type": "text", "text": "hi"}),
    (
        Text(text="", provider_data={"phase": "final"}),
        {"type": "text", "text": "", "providerData": {"phase": "final"}},
    ),
    (Thinking(thinking="hm"), {"type": "thinking", "thinking": "hm"}),
    (
        Thinking(thinking="", signature="c2ln"),
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
    ),
    (RedactedThinking(data="xyz"), {"type": "redactedThinking", "data": "xyz"}),
    (
        ToolUse(id="tool_1", name="bash", input='{"command":"ls"}'),
        {"type": "toolUse", "id": "tool_1", "name": "bash", "input": '{"command":"ls"}'},
    ),
    (
        ToolUse(id="", name="bash", input='{"comm'),
        {"type": "toolUse", "id": "", "name": "bash", "input": '{"comm'},
    ),
    (
        ToolResult(tool_use_id="tool_1", content="a\nb"),
        {"type": "toolResult", "toolUseId": "tool_1", "content": "a\nb"},
    ),
    (
        ToolResult(
            tool_use_id="tool_1",
            content="",
            images=(Image(mime_type="image/png", blob=BLOB),),
            is_error=True,
            duration_ms=0,
            output=BLOB,
        ),
        {
            "type": "toolResult",
            "toolUseId": "tool_1",
            "content": "",
            "images": [
                {"type": "image", "mimeType": "image/png", "blob": {"blob": "ab" * 32, "size": 7}}
            ],
            "isError": True,
            "durationMs": 0,
            "output": {"blob": "ab" * 32, "size": 7},
        },
    ),
    (
        Image(mime_type="image/png", blob=BLOB),
        {"type": "image", "mimeType": "image/png", "blob": {"blob": "ab" * 32, "size": 7}},
    ),
    (
        Opaque(kind="video", raw='{"type": "video"}'),
        {"type": "opaque", "kind": "video", "raw": '{"type": "video"}'},
    ),
]

HEADER = Header(
    version=1,
    id=SESSION_ID,
    timestamp="2026-04-25T17:40:15.990Z",
    cwd="/home/dev/awl",
    provider="anthropic",
    model="claude-sonnet-4-20250514",
)


def stamped(seq: int, turn_id: int | None = None) -> dict[str, Any]:
    """What every written entry has."""
    return {
        "id": f"{seq:08x}",
        "parent_id": f"{seq - 1:08x}" if seq > 1 else None,
        "timestamp": f"2026-04-25T17:40:{seq % 60:02}.000Z",
        "seq": seq,
        "turn_id": turn_id,
    }


def message(
    seq: int, text: str = "hi", *, role: typing.Literal["user", "assistant"] = "user"
) -> Entry:
    return MessageEntry(
        **stamped(seq, 1), message=LoggedMessage(role=role, content=(Text(text=text),))
    )


ENTRIES: list[Header | Entry] = [
    HEADER,
    msgspec.structs.replace(
        HEADER,
        forked_from=ForkedFrom("019dc5ba-0000-71a5-ab8f-b1f8709c2572", 4),
        endpoint="http://127.0.0.1:8080/v1",
        cwd_bytes="L2hvbWUv/w==",
    ),
    MessageEntry(
        **stamped(1), message=LoggedMessage(role="system", content=(Text(text="Be kind."),))
    ),
    MessageEntry(
        **stamped(2, 1),
        provider="anthropic",
        model="m",
        message=LoggedMessage(role="user", content=(Text(text="hi"),)),
    ),
    MessageEntry(
        **stamped(3, 1),
        message=LoggedMessage(
            role="assistant",
            content=tuple(block for block, _ in BLOCKS),
            provider="anthropic",
            model="m-2",
            stop_reason="toolUse",
            usage=Usage(input=1, output=0, cache_read=3, cache_write=0),
        ),
    ),
    MessageEntry(**stamped(4, 1), message=LoggedMessage(role="assistant", content=())),
    ToolCallEntry(**stamped(5, 1), tool_use_id="tool_1", name="bash"),
    ToolResultEntry(
        **stamped(6, 1),
        tool_use_id="tool_1",
        name="bash",
        content="ok",
        images=(Image(mime_type="image/png", blob=BLOB),),
        output=BLOB,
        is_error=False,
        duration_ms=12,
    ),
    PartialEntry(
        **stamped(7, 1),
        content=(
            PartialBlock(type="thinking", index=0, thinking="h"),
            PartialBlock(type="text", index=1, text="H"),
        ),
    ),
    CondensationEntry(
        **stamped(8),
        replaced=(1, 4),
        summary=Summary(
            session_intent="intent",
            files_modified=("a.py",),
            decisions_made=("b",),
            open_questions=("c?",),
            next_steps=("d",),
        ),
        tokens_before=900,
        tokens_after=90,
        provider="anthropic",
        model="m",
        usage=Usage(input=1, output=2),
    ),
    CompactionEntry(**stamped(9), tier="soft", cleared_count=2, cleared=(3, 5)),
    ForkPointEntry(**stamped(10), new_session_id=SESSION_ID, at=4),
    ModelChangeEntry(
        **stamped(11), provider="openai", model="gpt-4o", endpoint="http://x", thinking_level="high"
    ),
    CwdChangeEntry(**stamped(12), cwd="/elsewhere"),
    RewindEntry(**{**stamped(13), "parent_id": "00000002"}),
    RewindEntry(**{**stamped(14), "parent_id": None}),
    TitleEntry(**stamped(15), title="Fix the parser"),
    LabelEntry(**stamped(16), target_id="00000002", label="here"),
    ImportEntry(
        **stamped(17),
        source="legacy",
        source_id="7",
        source_path="/x",
        through=12,
        message_count=1,
        messages=(ImportedText("user", "hi"),),
    ),
    ImportEntry(**stamped(18), source="claude-code", through="uuid", message_count=0),
    EndEntry(**stamped(19), reason="user_quit"),
    NoteEntry(
        **stamped(19),
        kind="pi:bashExecution",
        text="Ran `ls`",
        images=(Image(mime_type="image/png", blob=BlobRef(blob="ab" * 32, size=3)),),
        record={"role": "bashExecution", "exitCode": None},
    ),
    UnknownEntry(
        **stamped(20),
        kind="bookmark",
        raw={
            "type": "bookmark",
            "id": "00000014",
            "parentId": "00000013",
            "timestamp": "2026-04-25T17:40:20.000Z",
            "seq": 20,
            "where": [1, {"deep": None}],
        },
    ),
    GapEntry(**stamped(21), lines=2, size=300),
    RevisionEntry(
        **stamped(22),
        reason="repair",
        changes=("line 5 could not be read",),
        source_id=SESSION_ID,
        odd=(3,),
        lost_blobs=("ab" * 32,),
    ),
]


# -- random entries --------------------------------------------------------------------------------

any_text = st.text(st.characters(exclude_categories=()), max_size=12)  # surrogates too
any_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=5,
)


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that a struct's field can have."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return any_json
    if kind is str:
        return any_text
    if kind is int:
        return st.integers(0, 2**53)
    if kind is bool:
        return st.booleans()
    if kind is type(None):
        return st.none()
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(of, args))
    if origin is dict:
        return st.dictionaries(of(args[0]), of(args[1]), max_size=3)
    if origin is tuple and args[-1] is ...:
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, args))
    hints = typing.get_type_hints(kind)
    fields = {name: of(hints[name]) for name in kind.__struct_fields__}
    if "id" in fields and issubclass(kind, Header | KnownEntry):
        fields["id"] = any_text.filter(bool)
    if issubclass(kind, Header):
        fields["id"] = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}", fullmatch=True)
    return st.builds(kind, **fields)


any_entry: st.SearchStrategy[Header | Entry] = st.one_of(
    of(Header), *map(of, typing.get_args(KnownEntry))
)


# -- whole logs ------------------------------------------------------------------------------------


def a_session(root: Path, cwd: Path) -> Path:
    """A closed session with two turns, a batch of two tool calls and most kinds of entries."""
    session = Session.create(root, str(cwd), MODEL)
    session.append_many(
        [
            session.message_entry(text_message("system", "Be kind.")),
            session.message_entry(text_message("user", "What is here? \u2028 \U0001f600 \x00")),
        ]
    )
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text="I'll"),)))
    session.append_message(
        Message(
            "assistant",
            (
                Thinking(thinking="Two calls.", signature="c2ln"),
                Text(text="I'll look."),
                ToolUse(id="t1", name="bash", input='{"command":"ls"}'),
                ToolUse(id="t2", name="read", input='{"path":"a"}'),
            ),
        ),
        provider="anthropic",
        model="claude",
        stop_reason="toolUse",
        usage=Usage(input=1500, output=85),
    )
    session.append(ToolCallEntry(tool_use_id="t1", name="bash"))
    session.append(ToolCallEntry(tool_use_id="t2", name="read"))
    session.append(
        ToolResultEntry(
            tool_use_id="t2",
            name="read",
            content="a",
            output=session.blobs.put(b"whole output"),
            is_error=False,
            duration_ms=3,
        )
    )
    session.append_message(
        Message(
            "user",
            (
                ToolResult(tool_use_id="t1", content="x\ny", duration_ms=5),
                ToolResult(tool_use_id="t2", content="a", duration_ms=3),
            ),
        )
    )
    session.append_message(
        text_message("assistant", "Two files."),
        provider="anthropic",
        model="claude",
        stop_reason="stop",
    )
    session.switch_model(ModelRef("openai", "gpt-4o"))
    session.append_message(text_message("user", "Thanks"))
    session.append_message(text_message("assistant", "Welcome"), provider="openai", model="gpt-4o")
    session.close()
    return session.path


def seed_log(folder: Path) -> Path:
    """A log exactly as the seed shows it: no seq, ids that are not hex, no turns."""
    examples = (DATA / "seed_examples.jsonl").read_bytes().splitlines(keepends=True)
    header, system, _, assistant, _, user, results = examples
    path = folder / f"2026-04-25T17-40-15-990Z_{SESSION_ID}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join((header, system, user, assistant, results)))
    return path


def a_log(folder: Path, *lines: Header | Entry | bytes) -> Path:
    """A log of these lines, bytes as they are."""
    path = folder / f"2026-04-25T17-40-15-990Z_{SESSION_ID}.jsonl"
    path.write_bytes(b"".join(x if isinstance(x, bytes) else encode(x) for x in lines))
    return path


def wait_for(condition: Callable[[], bool], limit: float = 20) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def names_in(folder: Path) -> list[str]:
    return sorted(item.name for item in folder.iterdir())
