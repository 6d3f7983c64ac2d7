"""Arrays of messages, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl
from formats.exported import everything, source_of
from formats.landing import Landed, assert_sound, land

from awl.conversation import Message, ModelRef, Opaque, text_message
from awl.entries import RewindEntry
from awl.formats import Source, find
from awl.formats.records import head_of
from awl.log.blobs import Blobs
from awl.replay import read
from awl.session import Session

OPENAI = find("openai")
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def call(name: str, arguments: str) -> JSON:
    function = {"name": "bash", "arguments": arguments}
    return {"id": name, "type": "function", "function": function}


MESSAGES: list[JSON] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Look ✓ 日本語"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("a", '{"cmd" : "ls"}'), call("b", "not json")],
    },
    {"role": "tool", "tool_call_id": "a", "content": "x\n"},
    {"role": "tool", "tool_call_id": "b", "content": ""},
    {"role": "assistant", "content": "Two."},
    {"role": "user", "content": [{"type": "text", "text": "And this?"}, PICTURE]},
    {"role": "assistant", "content": "A picture."},
]


def count_openai(messages: list[JSON]) -> Counts:
    """An independent count over the raw messages."""
    counts = Counts()
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        texts = [content] if content and isinstance(content, str) else []
        texts += [part["text"] for part in parts if part["type"] == "text"]
        counts.images += sum(part["type"] == "image_url" for part in parts)
        counts.prompts += message["role"] == "user"
        if message["role"] == "assistant":
            counts.answers += len(texts)
            counts.thoughts += "reasoning_content" in message
            for one in message.get("tool_calls", ()):
                counts.inputs.append((one["id"], one["function"]["arguments"]))
        if message["role"] == "tool":
            counts.outputs.append((message["tool_call_id"], "\n".join(texts), False))
    return counts


def written(log: Path) -> tuple[list[JSON], dict[str, int]]:
    assert OPENAI.write is not None
    source = Source(read(log), Blobs(log).get)
    data = b"".join(OPENAI.write(source))
    return json.loads(data), dict(source.left_out)


def as_files(folder: Path, messages: list[JSON]) -> list[Path]:
    """The same messages in every form that is read."""
    texts = {
        "array.json": json.dumps(messages, indent=1),
        "line.json": json.dumps(messages, ensure_ascii=False),
        "body.json": json.dumps({"model": "gpt-5", "messages": messages}),
        "lines.jsonl": "".join(json.dumps(message) + "\n" for message in messages),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def test_everything_comes_over_in_every_form_and_goes_back(tmp_path: Path) -> None:
    for path in as_files(tmp_path, MESSAGES):
        assert OPENAI.recognise(head_of(path)), path
        landed = land(path, OPENAI, tmp_path / "awl" / path.stem)
        assert count_awl(landed.shown) == count_openai(MESSAGES)
        assert_sound(landed)
        messages, left_out = written(landed.log)
        assert messages == MESSAGES
        assert not left_out
        assert landed.facts.model == ("gpt-5" if path.stem == "body" else "")


@pytest.mark.parametrize("at", [0, 255, 256, 599])
def test_an_odd_message_among_many_costs_no_other(tmp_path: Path, at: int) -> None:
    texts = [f"said {number}" for number in range(600)]
    messages = [{"role": "user", "content": text} for text in texts]
    odd = {"role": "user", "content": [{"type": "text", "text": "odd"}], "tool_calls": "none"}
    path = tmp_path / "many.json"
    path.write_bytes(json.dumps([*messages[:at], odd, *messages[at + 1 :]]).encode())
    landed = land(path, OPENAI, tmp_path / "odd")
    found = [message.text for message in landed.state.conversation.messages]
    assert found == [*texts[:at], "odd", *texts[at + 1 :]]

    said = f"said {at}".encode()
    path.write_bytes(json.dumps(messages).encode().replace(b'"%b"' % said, b'"\xff"'))
    landed = land(path, OPENAI, tmp_path / "broken")
    found = [message.text for message in landed.state.conversation.messages]
    assert found == [*texts[:at], "\ufffd", *texts[at + 1 :]]
    assert landed.report.left_out == {"values' bytes that are no UTF-8": 1}


def test_the_system_text_is_in_force(tmp_path: Path) -> None:
    path = as_files(tmp_path, MESSAGES)[0]
    landed = land(path, OPENAI, tmp_path / "awl")
    items = landed.state.items
    assert items[0].message.role == "system"
    assert items[0].message.text == "Be brief."


def test_calls_with_free_text_refusals_and_what_was_said_aloud(tmp_path: Path) -> None:
    patch = {"name": "apply_patch", "input": "*** Begin Patch\n*** End Patch"}
    said = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "hm",
            "tool_calls": [call("a", "{}"), {"id": "b", "type": "custom", "custom": patch}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "file", "file": {}}]},
        {"role": "assistant", "content": None, "refusal": "I can't."},
        {"role": "user", "content": "say it"},
        {"role": "assistant", "content": None, "audio": {"id": "x", "transcript": "aloud"}},
    ]
    path = tmp_path / "said.json"
    path.write_text(json.dumps(said))
    landed = land(path, OPENAI, tmp_path / "awl")
    counts = count_awl(landed.shown)
    assert counts.inputs == [("a", "{}"), ("b", patch["input"])]
    assert (counts.thoughts, counts.answers) == (1, 2)
    assert [m.text for m in landed.state.conversation.messages if m.text] == [
        "go",
        "I can't.",
        "say it",
        "aloud",
    ]
    assert landed.report.left_out["parts of results that are no text and no image"] == 1
    assert_sound(landed)


def test_items_of_the_responses_api(tmp_path: Path) -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    words = [{"type": "summary_text", "text": "hm"}]
    items = [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": url, "detail": "auto"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": words, "encrypted_content": "c2VhbA=="},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "a",
            "name": "f",
            "arguments": '{"x":1}',
        },
        {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "free text"},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
        {
            "type": "custom_tool_call_output",
            "call_id": "b",
            "output": [
                {"type": "input_text", "text": "B"},
                {"type": "input_image", "image_url": url},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
        },
        {"role": "user", "content": "thanks"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ]
    for name, document in (
        ("array", items),
        ("body", {"model": "gpt-5", "instructions": "Be kind.", "input": items}),
    ):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document, indent=1))
        assert OPENAI.recognise(head_of(path))
        landed = land(path, OPENAI, tmp_path / name)
        counts = count_awl(landed.shown)
        assert (counts.prompts, counts.answers, counts.thoughts, counts.images) == (2, 1, 1, 2)
        assert counts.inputs == [("a", '{"x":1}'), ("b", "free text")]
        assert counts.outputs == [("a", "A", False), ("b", "B", False)]
        assert_sound(landed)


def test_each_line_with_messages_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "training.jsonl"
    said = [
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"ask {n}"},
            {"role": "assistant", "content": f"answer {n}", "weight": 1},
        ]
        for n in range(3)
    ]
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in said))
    landed = land(path, OPENAI, tmp_path / "awl")
    assert (count_awl(landed.shown).prompts, count_awl(landed.shown).answers) == (3, 3)
    assert [m.text for m in landed.state.conversation.messages] == [
        "Be brief.",
        "ask 2",
        "answer 2",
    ]
    assert [one.parent_id for one in landed.entries if isinstance(one, RewindEntry)] == [None, None]
    assert_sound(landed)


def test_a_body_with_many_tools_before_its_messages_is_recognised(tmp_path: Path) -> None:
    function = {"name": "f", "description": "d" * 900, "parameters": {}}
    tools = [{"type": "function", "function": function}] * 100
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"model": "gpt-5", "tools": tools, "messages": MESSAGES}, indent=1))
    assert OPENAI.recognise(head_of(path))
    landed = land(path, OPENAI, tmp_path / "awl")
    assert count_awl(landed.shown) == count_openai(MESSAGES)


def test_early_forms_and_reasoning(tmp_path: Path) -> None:
    path = tmp_path / "early.json"
    path.write_text(
        json.dumps(
            [
                {"role": "developer", "content": "Be kind."},
                {"role": "user", "content": "x"},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "function_call": {"name": "look", "arguments": "{}"},
                },
                {"role": "function", "name": "look", "content": "seen"},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
                {"role": "narrator", "content": "meanwhile"},
                17,
            ]
        )
    )
    landed = land(path, OPENAI, tmp_path / "awl")
    counts = count_awl(landed.shown)
    assert counts.inputs == [("look", "{}")]
    assert counts.outputs == [("look", "seen", False)]
    assert (counts.thoughts, counts.answers) == (1, 1)
    assert_sound(landed)
    _, left_out = written(landed.log)
    assert left_out == {"reasoning": 1, "records of other programs": 2}


def test_a_session_of_awl_is_written_whole_but_for_what_is_told(tmp_path: Path) -> None:
    source = source_of(everything(tmp_path))
    assert OPENAI.write is not None
    messages = json.loads(b"".join(OPENAI.write(source)))
    on_path = [source.state.body(position) for position in source.state.path]
    said = [entry.message for entry in on_path if hasattr(entry, "message")]
    counts = count_openai(messages)
    prompts = sum(one.role == "user" and one.said().text != "" for one in said)
    assert counts.prompts >= prompts
    assert len(counts.inputs) == sum(len(one.said().tool_uses) for one in said)
    assert source.left_out["entries that were gone back from"] > 0
    assert source.left_out["summaries"] == 1


def test_a_prompt_of_parts_that_have_no_place_is_a_prompt_without_words(tmp_path: Path) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("openai", "m"))
    session.append_message(Message("user", (Opaque(kind="kimi-cli:video_url", raw="{}"),)))
    session.close()
    assert written(session.path)[0] == [{"role": "user", "content": ""}]


def test_what_streamed_of_a_killed_answer_and_single_results_are_written(tmp_path: Path) -> None:
    from awl.conversation import Message, ToolUse
    from awl.entries import PartialBlock, PartialEntry, ToolResultEntry

    session = Session.create(tmp_path, str(tmp_path), ModelRef("p", "m"))
    session.append_message(text_message("user", "go"))
    calls = tuple(ToolUse(id=name, name="bash", input="{}") for name in "ab")
    session.append_message(Message("assistant", calls), stop_reason="toolUse")
    session.append(
        ToolResultEntry(tool_use_id="b", name="bash", content="done", is_error=False, duration_ms=3)
    )
    session.append_message(text_message("user", "on"))
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text="half"),)))
    session.close()
    messages, _ = written(session.path)
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert messages[2]["content"] == "done"
    assert messages[4]["content"] == "half"


@pytest.mark.parametrize("form", ["array.json", "lines.jsonl"])
def test_cut_at_every_byte_what_is_whole_comes(tmp_path: Path, form: str) -> None:
    text = next(path for path in as_files(tmp_path, MESSAGES) if path.name == form).read_bytes()
    seen = set()
    for cut in range(60, len(text), 41):
        path = tmp_path / f"cut{cut}" / form
        path.parent.mkdir()
        path.write_bytes(text[:cut])
        if OPENAI.recognise(head_of(path)):
            landed = _landed(path, tmp_path / f"awl{cut}")
            if landed is not None:
                found, _ = written(landed.log)
                assert found == MESSAGES[: len(found)]
                seen.add(len(found))
    assert len(seen) > 3


def _landed(path: Path, root: Path) -> Landed | None:
    from awl.store.importing import Importer

    brought = Importer(root, (), "/").bring(path, OPENAI)
    return Landed(brought.path, brought) if brought.path is not None else None


@pytest.mark.parametrize(
    "found",
    [[], {}, [1, 2], {"messages": []}, {"role": 1}, [{"role": "narrator"}], "text", {"a": [{}]}],
    ids=str,
)
def test_other_documents_are_none(tmp_path: Path, found: Any) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(found))
    if found != [{"role": "narrator"}]:
        assert not OPENAI.recognise(head_of(path))


@pytest.mark.parametrize(
    ("before", "behind"), [("[\n", "\n]\n"), ('{"model":"gpt","messages":[\n', "\n]}\n")]
)
def test_an_array_with_a_message_on_each_line_is_an_array(
    tmp_path: Path, before: str, behind: str
) -> None:
    path = tmp_path / "t.json"
    said = [{"role": ("user", "assistant")[n % 2], "content": f"words {n}"} for n in range(5)]
    path.write_text(before + ",\n".join(map(json.dumps, said)) + behind)
    landed = land(path, OPENAI, tmp_path / "awl")
    assert [m.text for m in read(landed.log).conversation.messages] == [
        f"words {n}" for n in range(5)
    ]
