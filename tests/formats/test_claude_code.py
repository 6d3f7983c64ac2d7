"""Claude Code's session files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import DATA, Landed, assert_sound, given, land

from awl.conversation import Message, ModelRef, RedactedThinking, Text, Thinking, ToolResult
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    MessageEntry,
    NoteEntry,
    RewindEntry,
    TitleEntry,
    UnknownEntry,
)
from awl.formats import find
from awl.formats.records import head_of
from awl.log.blobs import Blobs
from awl.view import view

CLAUDE = find("claude-code")
FOLDER = DATA / "claude-code"
FILES = sorted(FOLDER.glob("*.jsonl"))
LONG = next(path for path in FILES if path.name.startswith("983e"))
ANYONE = ModelRef("anyone", "any")
MODEL = "claude-sonnet-4-5"


def count_claude(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    for record in lines_of(path):
        if record["type"] not in ("user", "assistant") or record.get("isCompactSummary"):
            continue
        content = record["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kinds = {block["type"] for block in blocks}
        counts.prompts += record["type"] == "user" and kinds != {"tool_result"}
        for block in blocks:
            match block["type"]:
                case "text":
                    counts.answers += record["type"] == "assistant"
                case "image":
                    counts.images += 1
                case "thinking" | "redacted_thinking":
                    counts.thoughts += 1
                case "tool_use":
                    counts.inputs.append((block["id"], given(block["input"])))
                case "tool_result":
                    parts = block["content"]
                    parts = [{"type": "text", "text": parts}] if isinstance(parts, str) else parts
                    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
                    counts.images += sum(part["type"] == "image" for part in parts)
                    error = bool(block.get("is_error"))
                    counts.outputs.append((block["tool_use_id"], text, error))
    return counts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:4])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, CLAUDE, tmp_path)
    assert count_awl(landed.shown) == count_claude(path)
    assert_sound(landed)
    facts = landed.facts
    assert (facts.source_id, facts.cwd) == (path.stem, "/home/dev/claude-demo")
    assert (facts.provider, facts.model) == ("anthropic", "" if "a86e" in path.name else MODEL)


def test_an_answer_in_pieces_is_one_with_its_usage_once(tmp_path: Path) -> None:
    landed = land(LONG, CLAUDE, tmp_path)
    answers = [
        entry.message
        for entry in landed.entries
        if isinstance(entry, MessageEntry) and entry.message.role == "assistant"
    ]
    records = [record for record in lines_of(LONG) if record["type"] == "assistant"]
    usage = {record["message"]["id"]: record["message"]["usage"] for record in records}
    assert len(answers) == len(usage) < len(records)
    assert [answer.usage.output if answer.usage else None for answer in answers] == [
        one["output_tokens"] for one in usage.values()
    ]
    parallel = next(one for one in answers if len(one.said().tool_uses) == 2)
    assert parallel.stop_reason == "toolUse"
    assert parallel.model == MODEL
    assert landed.state.tokens.own_output == sum(one["output_tokens"] for one in usage.values())


def test_results_of_a_parallel_batch_are_all_on_the_path(tmp_path: Path) -> None:
    landed = land(LONG, CLAUDE, tmp_path)
    assert not any(isinstance(entry, RewindEntry) for entry in landed.entries)
    assert len(landed.state.path) == len(landed.entries)
    assert not landed.state.open_calls


def test_a_long_output_is_kept_whole(tmp_path: Path) -> None:
    landed = land(LONG, CLAUDE, tmp_path)
    (result,) = [
        block
        for entry in landed.entries
        if isinstance(entry, MessageEntry)
        for block in entry.message.content
        if isinstance(block, ToolResult) and block.output
    ]
    whole = next((FOLDER / LONG.stem / "tool-results").iterdir()).read_bytes()
    assert result.output is not None
    assert Blobs(landed.log).get(result.output) == whole
    assert result.content.startswith("<persisted-output>")


def test_a_killed_session_says_so(tmp_path: Path) -> None:
    killed = next(path for path in FILES if path.name.startswith("316b"))
    assert land(killed, CLAUDE, tmp_path / "tool").state.interrupted
    stream = next(path for path in FILES if path.name.startswith("a86e"))
    assert land(stream, CLAUDE, tmp_path / "stream").state.interrupted


def test_copies_of_requests_are_left_out_and_named(tmp_path: Path) -> None:
    landed = land(LONG, CLAUDE, tmp_path)
    said = "\n".join(landed.report.lines(landed.log))
    assert "copies of requests" in said
    kinds = {entry.kind for entry in landed.entries if isinstance(entry, UnknownEntry)}
    assert kinds
    assert all(kind.startswith("claude-code:attachment:") for kind in kinds)


class File:
    """A file of Claude Code in the making."""

    def __init__(self) -> None:
        self.records: list[JSON] = []
        self.last: str | None = None

    def add(self, kind: str, parent: str | None = "before", *, id: str = "", **fields: Any) -> str:
        name = id or f"u{len(self.records)}"
        before = self.last if parent == "before" else parent
        self.records.append(
            {
                "parentUuid": before,
                "isSidechain": False,
                "type": kind,
                "uuid": name,
                "timestamp": f"2026-01-01T00:00:{len(self.records):02}.000Z",
                "cwd": "/x",
                "sessionId": "s",
                **fields,
            }
        )
        self.last = name
        return name

    def ask(self, text: str, parent: str | None = "before", **fields: Any) -> str:
        return self.add("user", parent, message={"role": "user", "content": text}, **fields)

    def answer(
        self,
        name: str,
        block: JSON,
        parent: str | None = "before",
        *,
        model: str = MODEL,
        **fields: Any,
    ) -> str:
        message = {
            "id": name,
            "role": "assistant",
            "model": model,
            "content": [block],
            "stop_reason": None,
            "usage": {"input_tokens": 1, "output_tokens": 2},
        }
        return self.add("assistant", parent, message=message, **fields)

    def result(self, name: str, parent: str, content: Any = "out", **fields: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": name, "content": content}
        return self.add("user", parent, message={"role": "user", "content": [block]}, **fields)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "s.jsonl"
        path.write_text("".join(given(record) + "\n" for record in self.records))
        return path

    def land(self, root: Path) -> Landed:
        path = self.write(root / "claude")
        landed = land(path, CLAUDE, root / "awl")
        assert count_awl(landed.shown) == count_claude(path)
        assert_sound(landed)
        return landed


def text(words: str) -> JSON:
    return {"type": "text", "text": words}


def use(name: str) -> JSON:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": name}}


def said(messages: tuple[Message, ...] | list[Message]) -> list[str]:
    return [message.text for message in messages if message.text]


def test_results_between_the_pieces_of_an_answer(tmp_path: Path) -> None:
    file = File()
    file.ask("go")
    file.answer("m1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    one = file.answer("m1", use("a"))
    two = file.answer("m1", use("b"), one)
    file.result("a", one)
    three = file.answer("m1", use("c"), two)
    file.result("c", three)
    last = file.result("b", two)
    file.answer("m2", text("done"), last)
    landed = file.land(tmp_path)
    answer = next(item for item in landed.state.items if item.message.role == "assistant")
    assert [block.id for block in answer.message.tool_uses] == ["a", "b", "c"]
    assert isinstance(answer.message.content[0], Thinking)
    assert said(view(landed.state, ANYONE).messages) == ["go", "done"]


def test_what_a_tool_says_besides_its_result_parts_no_answer(tmp_path: Path) -> None:
    file = File()
    file.ask("go")
    one = file.answer("m1", use("skill"))
    result = file.result("skill", one)
    file.ask("how it is done", result, isMeta=True)
    two = file.answer("m1", use("b"), one)
    last = file.result("b", two)
    file.answer("m2", text("done"), last)
    landed = file.land(tmp_path)
    answer = next(item for item in landed.state.items if item.message.role == "assistant")
    assert [block.id for block in answer.message.tool_uses] == ["skill", "b"]
    assert not landed.state.open_calls
    assert said(view(landed.state, ANYONE).messages) == ["go", "how it is done", "done"]
    assert not any(isinstance(one, RewindEntry) for one in landed.entries)


def test_a_prompt_that_was_edited_begins_a_branch(tmp_path: Path) -> None:
    file = File()
    first = file.ask("one")
    answer = file.answer("m1", text("two"), first)
    file.ask("left", answer)
    file.answer("m2", text("left too"))
    file.ask("three", answer)
    file.answer("m3", text("four"))
    landed = file.land(tmp_path)
    assert said([item.message for item in landed.state.items]) == ["one", "two", "three", "four"]


def test_subagents_are_branches_off_the_path(tmp_path: Path) -> None:
    file = File()
    file.ask("do it")
    task = file.answer("m1", use("task"))
    side = file.ask("you are a helper", None, isSidechain=True, agentId="a")
    inner = file.answer("x1", use("inner"), side, isSidechain=True)
    file.result("inner", inner, isSidechain=True)
    file.answer("x2", text("helped"), isSidechain=True)
    result = file.result("task", task, [text("helped"), text("well")])
    file.answer("m2", text("done"), result)
    landed = file.land(tmp_path / "whole")
    assert said([item.message for item in landed.state.items]) == ["do it", "done"]
    assert not landed.state.open_calls
    del file.records[6:]  # killed while the subagent was at work
    landed = file.land(tmp_path / "killed")
    assert said([item.message for item in landed.state.items]) == ["do it"]
    assert [call.use.id for call in landed.state.open_calls] == ["task"]


def test_compaction_is_a_condensation(tmp_path: Path) -> None:
    file = File()
    file.ask("one")
    file.answer("m1", text("two"))
    kept = file.ask("three")
    last = file.answer("m2", text("four"))
    file.add(
        "system",
        None,
        subtype="compact_boundary",
        logicalParentUuid=last,
        content="Conversation compacted",
        compactMetadata={
            "trigger": "auto",
            "preTokens": 900,
            "preservedSegment": {"headUuid": kept},
        },
    )
    file.ask("This session is being continued. Summary: one, two", isCompactSummary=True)
    file.ask("five")
    file.answer("m3", text("six"))
    landed = file.land(tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert entry.tokens_before == 900
    items = landed.state.items
    assert "Summary: one, two" in items[0].message.text
    assert said([item.message for item in items[1:]]) == ["three", "four", "five", "six"]


def test_a_summary_of_the_last_messages_keeps_the_first(tmp_path: Path) -> None:
    file = File()
    file.ask("one")
    kept = file.answer("m1", text("two"))
    file.ask("three")
    last = file.answer("m2", text("four"))
    segment = {"headUuid": "u0", "anchorUuid": "boundary", "tailUuid": kept}
    file.add(
        "system",
        None,
        id="boundary",
        subtype="compact_boundary",
        logicalParentUuid=last,
        compactMetadata={"trigger": "manual", "preTokens": 9, "preservedSegment": segment},
    )
    file.ask("Summary: three, four", isCompactSummary=True)
    file.ask("five")
    landed = file.land(tmp_path)
    items = [item.message.text for item in landed.state.items]
    assert items[:2] == ["one", "two"]
    assert "Summary: three, four" in items[2]
    assert items[3:] == ["five"]


def test_results_that_were_cleared_are_not_sent(tmp_path: Path) -> None:
    file = File()
    file.ask("go")
    call = file.answer("m1", use("a"))
    file.result("a", call, "long ago")
    file.add(
        "system",
        subtype="microcompact_boundary",
        microcompactMetadata={"compactedToolIds": ["a", "gone"]},
    )
    file.ask("on")
    landed = file.land(tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CompactionEntry)]
    assert entry.cleared_count == 2
    sent = view(landed.state, ANYONE)
    assert "long ago" not in str(sent.messages)


def test_titles_names_and_what_was_said_in_between(tmp_path: Path) -> None:
    file = File()
    file.records.append({"type": "summary", "summary": "Of another", "leafUuid": "zzz"})
    file.records.append({"type": "summary", "summary": "Of this", "leafUuid": "u4"})
    file.ask("go", None)
    file.add("attachment", attachment={"type": "queued_command", "prompt": "faster"})
    leaf = file.answer("m1", text("going"))
    assert leaf == "u4"
    for title in ("Machine", "Machine"):
        file.records.append({"type": "ai-title", "aiTitle": title, "sessionId": "s"})
    file.records.append({"type": "custom-title", "customTitle": "Mine", "sessionId": "s"})
    file.records.append({"type": "ai-title", "aiTitle": "Machine 2", "sessionId": "s"})
    landed = land(file.write(tmp_path / "claude"), CLAUDE, tmp_path / "awl")
    titles = [one.title for one in landed.entries if isinstance(one, TitleEntry)]
    assert titles == ["Of this", "Machine", "Mine"]
    (note,) = [one for one in landed.entries if isinstance(one, NoteEntry)]
    assert note.text == "faster"
    assert landed.report.left_out["titles of other sessions"] == 1
    assert "faster" in str(view(landed.state, ANYONE).messages)


def test_models_pictures_and_odd_blocks(tmp_path: Path) -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }
    file = File()
    file.add("user", message={"role": "user", "content": [text("look"), picture]})
    file.answer("m1", {"type": "redacted_thinking", "data": "c2Vj"})
    call = file.answer("m1", use("a"))
    file.result("a", call, [picture, {"type": "tool_reference", "tool_name": "x"}])
    file.answer("m2", text("seen"))
    file.ask("again")
    file.answer("m3", text("API Error"), model="<synthetic>", isApiErrorMessage=True)
    file.answer(
        "m4",
        {"type": "server_tool_use", "id": "s", "name": "web", "input": {}},
        model="claude-opus-5",
    )
    landed = file.land(tmp_path)
    prompts = [
        (one.provider, one.model)
        for one in landed.entries
        if isinstance(one, MessageEntry) and one.message.role == "user" and one.model
    ]
    assert prompts == [("anthropic", MODEL), ("anthropic", "claude-opus-5")]
    blocks = [block for item in landed.state.items for block in item.message.content]
    assert RedactedThinking(data="c2Vj") in blocks
    assert Text(text="API Error") in blocks
    left_out = landed.report.left_out
    assert left_out["parts of results that are no text and no image"] == 1


def test_a_resumed_session_is_the_one_that_its_file_is_named_after(tmp_path: Path) -> None:
    first = File()
    first.ask("one")
    first.answer("m1", text("two"))
    names = [f"{digit}0000000-aaaa-4bbb-8ccc-000000000000" for digit in "12"]
    second = File()
    second.records += first.records
    second.ask("three", "u1")
    landed = []
    for name, file in zip(names, (first, second), strict=True):
        path = file.write(tmp_path / "claude").rename(tmp_path / "claude" / f"{name}.jsonl")
        landed.append(land(path, CLAUDE, tmp_path / "awl"))
    assert [one.facts.source_id for one in landed] == names
    assert [count_awl(one.shown).prompts for one in landed] == [1, 2]


def test_lines_that_were_written_twice_come_once(tmp_path: Path) -> None:
    file = File()
    file.ask("one")
    file.answer("m1", text("two"))
    file.records += file.records[:]
    path = file.write(tmp_path / "claude")
    landed = land(path, CLAUDE, tmp_path / "awl")
    assert (count_awl(landed.shown).prompts, count_awl(landed.shown).answers) == (1, 1)
    assert landed.report.left_out["records that were there twice"] == 2


def test_conversations_of_subagents_in_files_of_their_own_are_named(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "claude")
    folder = tmp_path / "claude" / LONG.stem / "subagents"
    folder.mkdir()
    agent = folder / "agent-7.jsonl"
    file = File()
    file.ask("help", None, isSidechain=True, agentId="7")
    agent.write_text(given(file.records[0]) + "\n")
    flow = folder / "workflows" / "w" / "agent-8.jsonl"
    flow.parent.mkdir(parents=True)
    shutil.copy(agent, flow)
    landed = land(tmp_path / "claude" / LONG.name, CLAUDE, tmp_path / "awl")
    said = "\n".join(landed.report.lines(landed.log))
    assert f"2 conversations of subagents, in {folder}" in said
    assert CLAUDE.of_subagent(head_of(agent))
    agent.write_text(given(file.records[0]).replace("true", "false") + "\n")
    assert not CLAUDE.of_subagent(head_of(agent)), "another one's file of that name"
    assert land(agent, CLAUDE, tmp_path / "awl2").facts.source_id == "agent-7"


def test_conversations_of_subagents_beside_their_session_are_named(tmp_path: Path) -> None:
    file = File()
    file.ask("do it")
    file.answer("m1", text("done"))
    path = file.write(tmp_path / "claude")
    for agent, session in (("a1", "s"), ("a2", "s"), ("b1", "another")):
        inner = File()
        inner.ask("help", None, isSidechain=True, agentId=agent)
        inner.records[0]["sessionId"] = session
        inner.write(tmp_path / "claude" / agent).rename(path.with_name(f"agent-{agent}.jsonl"))
    landed = land(path, CLAUDE, tmp_path / "awl")
    said = "\n".join(landed.report.lines(landed.log))
    assert f"2 conversations of subagents, in {path.parent}/agent-*.jsonl" in said
    assert count_awl(landed.shown).prompts == 1
    other = path.with_name("agent-b1.jsonl")
    assert CLAUDE.of_subagent(head_of(other))
    assert count_awl(land(other, CLAUDE, tmp_path / "awl").shown).prompts == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:4])
def test_cut_and_garbled_it_costs_that_alone(tmp_path: Path, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for number, kept in enumerate(range(3, len(lines), len(lines) // 6)):
        cut = tmp_path / f"{number}" / path.name
        cut.parent.mkdir()
        cut.write_bytes(b"".join(lines[:kept]))
        counts = count_claude(cut)
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][:-20])
        landed = land(cut, CLAUDE, tmp_path / f"awl{number}")
        assert landed.report.damaged == 1
        assert count_awl(landed.shown) == counts
        assert_sound(landed)
