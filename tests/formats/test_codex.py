"""Codex's rollout files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import DATA, Landed, assert_sound, given, land

from awl.conversation import ModelRef, RedactedThinking, Text, Thinking, ToolUse
from awl.entries import CondensationEntry, MessageEntry, ModelChangeEntry, TitleEntry, UnknownEntry
from awl.errors import AwlError
from awl.formats import find, zst
from awl.formats.records import head_of, open_source
from awl.store.importing import Importer
from awl.view import view

CODEX = find("codex")
FILES = sorted((DATA / "codex").glob("*.jsonl"))
COMPACTED = FILES[-1]
ANYONE = ModelRef("anyone", "any")


def count_codex(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    for record in lines_of(path):
        item = record.get("payload", record)
        if record.get("type", "response_item") != "response_item" and "payload" in record:
            continue
        kind = item.get("type")
        if kind == "message":
            parts = item["content"]
            counts.prompts += item["role"] == "user"
            counts.images += sum(part["type"] == "input_image" for part in parts)
            if item["role"] == "assistant":
                counts.answers += sum(part["type"] == "output_text" for part in parts)
        elif kind == "reasoning":
            counts.thoughts += 1
        elif kind == "function_call":
            counts.inputs.append((item["call_id"], item["arguments"]))
        elif kind == "custom_tool_call":
            counts.inputs.append((item["call_id"], item["input"]))
        elif kind == "local_shell_call":
            counts.inputs.append((item["call_id"], given(item["action"])))
        elif kind == "tool_search_call" and item.get("call_id"):
            counts.inputs.append((item["call_id"], given(item["arguments"])))
        elif kind == "tool_search_output" and item.get("call_id"):
            counts.outputs.append((item["call_id"], given(item["tools"]), False))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            output, failed = item["output"], False
            if isinstance(output, dict):
                failed = output.get("success") is False
                output = output["content"]
            elif isinstance(output, list):
                counts.images += sum(part["type"] == "input_image" for part in output)
                output = "\n".join(part["text"] for part in output if "text" in part)
            counts.outputs.append((item["call_id"], output, failed))
    return counts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[-4:])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, CODEX, tmp_path)
    assert count_awl(landed.shown) == count_codex(path)
    assert_sound(landed)
    facts = landed.facts
    assert (facts.source_id, facts.cwd) == (path.stem[-36:], "/home/dev/codex-demo")
    assert (facts.provider, facts.model) == ("mock", "mock-1")


def test_twins_of_items_do_not_come_and_are_counted(tmp_path: Path) -> None:
    landed = land(COMPACTED, CODEX, tmp_path)
    events = sum(record["type"] == "event_msg" for record in lines_of(COMPACTED))
    assert landed.report.left_out["events for the screen"] == events
    kinds = [entry.kind for entry in landed.entries if isinstance(entry, UnknownEntry)]
    assert kinds == ["codex:session_meta", "codex:developer"]


def test_each_answer_has_its_items_and_its_tokens(tmp_path: Path) -> None:
    landed = land(COMPACTED, CODEX, tmp_path)
    answers = [
        entry.message
        for entry in landed.entries
        if isinstance(entry, MessageEntry) and entry.message.role == "assistant"
    ]
    used = [
        record["payload"]["usage"]
        for record in lines_of(COMPACTED)
        if record["type"] == "token_usage_record"
    ]
    assert len(answers) == len(used)
    for answer, usage in zip(answers, used, strict=True):
        assert answer.usage is not None
        assert answer.usage.output == usage["output_tokens"]
        cached = answer.usage.cache_read or 0
        assert answer.usage.input + cached == usage["input_tokens"]
    first = answers[0].said()
    assert first.text == "I'll create hello.py and run it."
    assert len(first.tool_uses) == 1
    assert answers[0].stop_reason == "toolUse"


def test_what_was_compacted_is_sent_as_its_summary(tmp_path: Path) -> None:
    landed = land(COMPACTED, CODEX, tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    record = next(one for one in lines_of(COMPACTED) if one["type"] == "compacted")
    assert entry.summary.session_intent == record["payload"]["message"]
    said = [item.message.text for item in landed.state.items if item.kind == "message"]
    assert said[0] == "SCRIPT:RES"


class File:
    """A rollout file in the making."""

    def __init__(self) -> None:
        self.lines: list[JSON] = []
        meta = {"id": "0199-aa", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/x"}
        self.add("session_meta", **meta, model_provider="openai")
        self.add("turn_context", cwd="/x", model="gpt-5")

    def add(self, kind: str, **payload: Any) -> None:
        moment = f"2026-01-01T00:00:{len(self.lines):02}.000Z"
        self.lines.append({"timestamp": moment, "type": kind, "payload": payload})

    def item(self, kind: str, **fields: Any) -> None:
        self.add("response_item", type=kind, **fields)

    def ask(self, words: str) -> None:
        self.item("message", role="user", content=[{"type": "input_text", "text": words}])

    def answer(self, words: str, **more: Any) -> None:
        part = {"type": "output_text", "text": words}
        self.item("message", role="assistant", content=[part], **more)

    def event(self, kind: str, **fields: Any) -> None:
        self.add("event_msg", type=kind, **fields)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "rollout-2026-01-01T00-00-00-0199-aa.jsonl"
        path.write_text("".join(given(line) + "\n" for line in self.lines))
        return path

    def land(self, root: Path) -> Landed:
        path = self.write(root / "codex")
        landed = land(path, CODEX, root / "awl")
        assert count_awl(landed.shown) == count_codex(path)
        assert_sound(landed)
        return landed


def titles(landed: Landed) -> list[str]:
    return [one.title for one in landed.entries if isinstance(one, TitleEntry)]


def said(landed: Landed) -> list[str]:
    return [item.message.text for item in landed.state.items if item.message.text]


def test_every_kind_of_call_and_output(tmp_path: Path) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    file = File()
    file.item("message", role="user", content=[{"type": "input_text", "text": "x"}, picture])
    file.item("function_call", id="fc_1", call_id="a", name="shell", arguments='{ "cmd" : ["ls"] }')
    patch = "*** Begin Patch\n*** End Patch"
    file.item("custom_tool_call", call_id="b", name="apply_patch", input=patch)
    action = {"type": "exec", "command": ["ls", "-l"]}
    file.item("local_shell_call", call_id="c", status="completed", action=action)
    file.item("web_search_call", id="ws_1", status="completed", action={"type": "search"})
    file.item(
        "function_call_output", call_id="a", output={"content": "no such file", "success": False}
    )
    file.item("custom_tool_call_output", call_id="b", output="Done!")
    parts = [{"type": "input_text", "text": "one"}, picture, {"type": "input_text", "text": "two"}]
    file.item("function_call_output", call_id="c", output=parts)
    file.answer("done")
    landed = file.land(tmp_path)
    (first, second) = [item for item in landed.state.items if item.message.role == "assistant"]
    assert [use.name for use in first.message.tool_uses] == ["shell", "apply_patch", "local_shell"]
    assert second.message.text == "done"
    assert not landed.state.open_calls


def test_reasoning_goes_back_as_it_came(tmp_path: Path) -> None:
    file = File()
    file.ask("x")
    summary = [{"type": "summary_text", "text": "hm"}]
    file.item("reasoning", id="rs_1", summary=summary, content=None, encrypted_content="c2Vj")
    file.answer("so", id="msg_1")
    file.ask("y")
    file.item("reasoning", id="rs_2", summary=[], encrypted_content="b3Ro")
    file.item("function_call", id="fc_1", call_id="a", name="shell", arguments="{}")
    landed = file.land(tmp_path)
    blocks = [block for item in landed.state.items for block in item.message.content]
    rest = {"type": "reasoning", "summary": summary, "id": "rs_1"}
    assert Thinking(thinking="hm", signature="c2Vj", provider_data=rest) in blocks
    assert Text(text="so", provider_data={"id": "msg_1"}) in blocks
    sealed = {"type": "reasoning", "summary": [], "id": "rs_2"}
    assert RedactedThinking(data="b3Ro", provider_data=sealed) in blocks
    call = ToolUse(id="a", name="shell", input="{}", provider_data={"id": "fc_1"})
    assert call in blocks
    own = view(landed.state, ModelRef("openai", "gpt-5"))
    assert "c2Vj" in str(own.messages)
    assert "c2Vj" not in str(view(landed.state, ANYONE).messages)


def test_reasoning_with_an_odd_summary_comes_without_it(tmp_path: Path) -> None:
    file = File()
    file.ask("x")
    for odd in (7, {"a": 1}, "words"):
        file.item("reasoning", summary=odd, encrypted_content="c2Vj")
    file.answer("y")
    assert said(file.land(tmp_path)) == ["x", "y"]


def test_a_search_for_tools_is_a_call_unless_the_server_did_it(tmp_path: Path) -> None:
    file = File()
    file.ask("x")
    asked = {"query": "calendar", "limit": 5}
    found = [{"type": "function", "name": "add_event"}]
    here = {"call_id": "a", "execution": "client", "status": "completed"}
    file.item("tool_search_call", id="tsc_1", arguments=asked, **here)
    file.item("tool_search_output", tools=found, **here)
    there = {"call_id": None, "execution": "server", "status": "completed"}
    file.item("tool_search_call", id="tsc_2", arguments=asked, **there)
    file.item("tool_search_output", tools=found, **there)
    file.answer("done")
    landed = file.land(tmp_path)
    (call, *_) = [use for item in landed.state.items for use in item.message.tool_uses]
    assert (call.id, call.name, call.input) == ("a", "tool_search", given(asked))
    assert not landed.state.open_calls


def test_ids_that_their_server_would_refuse_are_not_sent(tmp_path: Path) -> None:
    file = File()
    file.ask("x")
    file.item("reasoning", id="01a2-rs", summary=[], encrypted_content="c2Vj")
    file.item("custom_tool_call", id="ctc_1", call_id="a", name="apply_patch", input="x")
    file.item("local_shell_call", id="lsh_1", call_id="b", status="completed", action={})
    file.item("function_call", id="fc_1", call_id="c", name="shell", arguments="{}")
    for name in "abc":
        file.item("function_call_output", call_id=name, output="")
    file.answer("so", id="019f629b-43ee", phase="final_answer")
    landed = file.land(tmp_path)
    blocks = [block for item in landed.state.items for block in item.message.content]
    data = [getattr(block, "provider_data", None) for block in blocks]
    ids = [one["id"] for one in data if one and "id" in one]
    assert ids == ["fc_1"]


def test_turns_that_were_rolled_back_are_off_the_path(tmp_path: Path) -> None:
    file = File()
    file.ask("<environment_context>here</environment_context>")
    for word in ("one", "two", "three"):
        file.ask(word)
        file.answer(f"to {word}")
    file.event("thread_rolled_back", num_turns=2)
    file.ask("four")
    file.answer("to four")
    landed = file.land(tmp_path)
    assert said(landed)[1:] == ["one", "to one", "four", "to four"]
    file.event("thread_rolled_back", num_turns=9)
    file.ask("five")
    assert said(file.land(tmp_path / "all"))[1:] == ["five"]


def test_names_and_models_change(tmp_path: Path) -> None:
    file = File()
    file.ask("one")
    file.answer("two")
    file.event("thread_name_updated", thread_id="x", thread_name="Parser")
    file.add("turn_context", cwd="/x", model="gpt-6")
    file.ask("three")
    landed = file.land(tmp_path)
    (title,) = [one.title for one in landed.entries if isinstance(one, TitleEntry)]
    assert title == "Parser"
    (change,) = [one for one in landed.entries if isinstance(one, ModelChangeEntry)]
    assert (change.provider, change.model) == ("openai", "gpt-6")
    assert landed.state.active_model == ModelRef("openai", "gpt-6")


def test_the_name_that_a_person_gave_lies_beside_all_sessions(tmp_path: Path) -> None:
    home = tmp_path / "codex"
    index = home / "session_index.jsonl"
    file = File()
    file.ask("x")
    file.answer("y")
    path = file.write(home / "sessions" / "2026" / "01" / "01")
    given_names = [("0199-aa", "Old"), ("another", "Other"), ("0199-aa", "New")]
    rows = [{"id": one, "thread_name": name, "updated_at": ""} for one, name in given_names]
    index.write_text("torn\n" + "".join(given(row) + "\n" for row in rows))
    landed = land(path, CODEX, tmp_path / "awl")
    assert titles(landed) == ["New"]
    assert_sound(landed)
    file.ask("z")
    file.write(path.parent)
    brought = Importer(tmp_path / "awl", [landed.log], str(tmp_path)).bring(path, CODEX)
    assert brought.outcome == "grown"
    assert count_awl(landed.shown) == count_codex(path)
    assert titles(landed) == ["New"]
    assert titles(land(file.write(tmp_path / "alone"), CODEX, tmp_path / "other")) == []


def test_a_summary_that_nobody_can_read_replaces_nothing(tmp_path: Path) -> None:
    file = File()
    file.ask("one")
    file.answer("two")
    file.add("compacted", message="", replacement_history=[{"type": "compaction"}])
    file.ask("three")
    landed = file.land(tmp_path)
    assert said(landed) == ["one", "two", "three"]
    assert any(
        one.kind == "codex:compacted" for one in landed.entries if isinstance(one, UnknownEntry)
    )


def test_the_first_versions_wrote_a_document(tmp_path: Path) -> None:
    ask = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    say = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "y"}],
    }
    call = {"type": "function_call", "call_id": "a", "name": "shell", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "out"}
    session = {"timestamp": "2025-04-17T00:00:00.000Z", "id": "0199-bb", "instructions": ""}
    document = {"session": session, "items": [ask, {**call, "id": "fc_1"}, output, say]}
    path = tmp_path / "rollout-2025-04-17-0199-bb.json"
    path.write_text(json.dumps(document, indent=2))
    assert CODEX.recognise(head_of(path))
    landed = land(path, CODEX, tmp_path / "awl")
    assert_sound(landed)
    assert (landed.facts.source_id, landed.facts.created) == ("0199-bb", session["timestamp"])
    counts = count_awl(landed.shown)
    assert (counts.prompts, counts.answers, counts.inputs) == (1, 1, [("a", "{}")])
    assert counts.outputs == [("a", "out", False)]
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b'"output"')])
    cut = land(path, CODEX, tmp_path / "cut")
    assert (count_awl(cut.shown).inputs, cut.report.damaged) == ([("a", "{}")], 1)


def test_early_versions_have_the_items_alone(tmp_path: Path) -> None:
    file = File()
    file.ask("one")
    file.item("function_call", call_id="a", name="shell", arguments="{}")
    file.item(
        "function_call_output",
        call_id="a",
        output=json.dumps({"output": "ok", "metadata": {"exit_code": 0}}),
    )
    file.answer("two")
    bare = [line["payload"] for line in file.lines[2:]]
    head = {"id": "0199-aa", "timestamp": "2025-05-01T10:00:00.000Z", "instructions": None}
    path = tmp_path / "rollout-2025-05-01-0199-aa.jsonl"
    lines = [head, bare[0], {"record_type": "state"}, *bare[1:]]
    path.write_text("".join(given(line) + "\n" for line in lines))
    assert CODEX.recognise(head_of(path))
    landed = land(path, CODEX, tmp_path / "awl")
    assert count_awl(landed.shown) == count_codex(path)
    assert_sound(landed)
    assert landed.facts.source_id == "0199-aa"
    assert landed.facts.created == "2025-05-01T10:00:00.000Z"


def compress(data: bytes) -> bytes:
    module = next(filter(None, map(_module, ("compression.zstd", "backports.zstd"))))
    compressed: bytes = module.compress(data)
    return compressed


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def test_compressed_files_read_as_what_they_hold(tmp_path: Path) -> None:
    path = tmp_path / f"{COMPACTED.name}.zst"
    path.write_bytes(compress(COMPACTED.read_bytes()))
    assert CODEX.recognise(head_of(path))
    landed = land(path, CODEX, tmp_path / "awl")
    assert count_awl(landed.shown) == count_codex(COMPACTED)
    assert landed.facts.source_id == COMPACTED.stem[-36:]


def test_a_compressed_file_that_is_cut_gives_what_can_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / f"{COMPACTED.name}.zst"
    data = compress(COMPACTED.read_bytes() + b"{}\n" * 400_000)
    path.write_bytes(data[: len(data) - 9])
    landed = land(path, CODEX, tmp_path / "awl")
    assert count_awl(landed.shown) == count_codex(COMPACTED)
    (damaged,) = landed.report.damage
    assert "unpacked" in damaged.reason


def test_damage_in_a_compressed_file_costs_nothing_before_it(tmp_path: Path) -> None:
    path = tmp_path / f"{COMPACTED.name}.zst"
    path.write_bytes(compress(COMPACTED.read_bytes()) + b"damage")
    landed = land(path, CODEX, tmp_path / "awl")
    assert count_awl(landed.shown) == count_codex(COMPACTED)
    (damaged,) = landed.report.damage
    assert "unpacked" in damaged.reason


def test_a_compressed_file_can_be_read_from_any_byte(tmp_path: Path) -> None:
    """As a log is in which a later line has what an earlier one becomes."""
    path = tmp_path / f"{COMPACTED.name}.zst"
    data = COMPACTED.read_bytes()
    path.write_bytes(compress(data))
    with open_source(path) as file:
        for at in (len(data) // 2, 5, len(data) - 3):
            assert file.seek(at) == at
            assert file.read() == data[at:]


def test_without_a_way_to_unpack_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rollout.jsonl.zst"
    path.write_bytes(b"(\xb5/\xfd")
    monkeypatch.setattr(zst, "_MODULES", ("no.such",))
    with pytest.raises(AwlError, match="zstd -d"):
        head_of(path)


def test_a_subagents_session_belongs_to_another(tmp_path: Path) -> None:
    file = File()
    file.lines[0]["payload"]["source"] = {"subagent": "review"}
    assert CODEX.of_subagent(head_of(file.write(tmp_path)))
    assert not any(CODEX.of_subagent(head_of(path)) for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[-4:])
def test_cut_and_garbled_it_costs_that_alone(tmp_path: Path, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for number, kept in enumerate(range(4, len(lines), 7)):
        cut = tmp_path / f"{number}" / path.name
        cut.parent.mkdir()
        cut.write_bytes(b"".join(lines[:kept]))
        counts = count_codex(cut)
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][:-20])
        landed = land(cut, CODEX, tmp_path / f"awl{number}")
        assert landed.report.damaged == 1
        assert count_awl(landed.shown) == counts
        assert_sound(landed)
