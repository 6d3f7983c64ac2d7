from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from log.making import BLOCKS, DATA, ENTRIES, HEADER, message, stamped

from awl.conversation import (
    ContentBlock,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.entries import (
    Entry,
    Header,
    LoggedMessage,
    MessageEntry,
    TitleEntry,
    UnknownEntry,
    Usage,
)
from awl.log.line import decode, encode

EXAMPLES = (DATA / "seed_examples.jsonl").read_text("utf-8").splitlines()


def test_the_samples_have_every_entry_type_and_every_block() -> None:
    assert {type(entry) for entry in ENTRIES} == {Header, *get_args(Entry)}
    assert {type(block) for block, _ in BLOCKS} == set(get_args(ContentBlock))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_entry_serialization_round_trip(entry: Header | Entry) -> None:
    line = encode(entry)
    assert decode(line) == entry
    assert encode(decode(line)) == line


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_a_line_has_what_every_entry_has_and_nothing_unset(entry: Header | Entry) -> None:
    found = json.loads(encode(entry))
    if isinstance(entry, Header):
        names = ["type", "version", "id", "timestamp", "cwd", "provider", "model"]
        assert list(found)[:7] == names
        assert "seq" not in found and "parentId" not in found
    else:
        assert list(found)[:5] == ["type", "id", "parentId", "timestamp", "seq"]
        assert None not in (value for key, value in found.items() if key != "parentId")
    assert not any("_" in key for key in found)


@pytest.mark.parametrize(("block", "on_disk"), BLOCKS, ids=lambda x: type(x).__name__)
def test_content_block_conversion(block: ContentBlock, on_disk: dict[str, Any]) -> None:
    entry = MessageEntry(**stamped(1), message=LoggedMessage(role="user", content=(block,)))
    line = encode(entry)
    assert json.loads(line)["message"]["content"] == [on_disk]
    read = decode(line)
    assert isinstance(read, MessageEntry)
    assert read.message.said() == Message("user", (block,))
    # The tolerant decoder, which an unknown neighbour calls for, reads the same block.
    beside = line.replace(b'"content":[', b'"content":[{"type":"unheard"},', 1)
    read = decode(beside)
    assert isinstance(read, MessageEntry)
    assert read.message.content == (Opaque(kind="unheard", raw='{"type": "unheard"}'), block)


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_seeds_examples_are_read_and_written_as_the_same_object(example: str) -> None:
    read = decode(example.encode())
    assert not isinstance(read, UnknownEntry)
    assert json.loads(encode(read)) == json.loads(example)


def test_the_seeds_assistant_example_means_what_it_says() -> None:
    read = decode(EXAMPLES[3].encode())
    assert isinstance(read, MessageEntry)
    assert read.message.said() == Message(
        "assistant",
        (
            Thinking(thinking="The user wants to list files..."),
            Text(text="I'll check that for you."),
            ToolUse(id="tool_abc123", name="bash", input='{"command":"ls"}'),
        ),
    )
    assert read.message.usage == Usage(input=1500, output=85)
    assert (read.message.stop_reason, read.message.provider) == ("toolUse", "anthropic")
    assert (read.provider, read.model, read.seq, read.turn_id) == (None, None, 0, None)


def test_an_entry_of_an_unknown_type_is_written_as_the_object_it_is() -> None:
    line = (
        b'{"type":"bookmark","id":"x","parentId":null,"timestamp":"t","seq":3,"where":[1,null]}\n'
    )
    read = decode(line)
    assert isinstance(read, UnknownEntry)
    assert (read.kind, read.id, read.parent_id, read.seq) == ("bookmark", "x", None, 3)
    assert encode(read) == line


def test_an_unknown_entry_that_is_appended_elsewhere_gets_the_new_stamps_and_keeps_the_rest() -> (
    None
):
    read = decode(b'{"type":"bookmark","id":"x","parentId":"y","turnId":9,"seq":3,"where":"here"}')
    moved = msgspec.structs.replace(read, id="new", parent_id=None, seq=7, turn_id=None)
    assert json.loads(encode(moved)) == {
        "type": "bookmark",
        "id": "new",
        "parentId": None,
        "seq": 7,
        "where": "here",
    }


def test_the_conversation_keeps_role_and_content_alone() -> None:
    logged = LoggedMessage.of(
        text_message("assistant", "hi"),
        provider="p",
        model="m",
        stop_reason="stop",
        usage=Usage(input=1, output=1),
    )
    assert logged.said() == text_message("assistant", "hi")
    assert (logged.provider, logged.model, logged.stop_reason) == ("p", "m", "stop")


def test_a_message_tells_its_words_calls_and_results() -> None:
    said = Message("user", tuple(block for block, _ in BLOCKS))
    assert said.text == "hi\n"
    assert [use.id for use in said.tool_uses] == ["tool_1", ""]
    assert [result.content for result in said.tool_results] == ["a\nb", ""]
    assert all(isinstance(result, ToolResult) for result in said.tool_results)


def test_entries_are_frozen() -> None:
    for entry in (HEADER, message(1), TitleEntry(title="x")):
        with pytest.raises(AttributeError):
            entry.id = "other"  # type: ignore[misc]
