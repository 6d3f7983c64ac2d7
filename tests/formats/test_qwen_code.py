"""Qwen Code's session files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import DATA, Landed, assert_sound, given, land

from awl.conversation import ModelRef, Thinking
from awl.entries import (
    CondensationEntry,
    ModelChangeEntry,
    RewindEntry,
    TitleEntry,
    UnknownEntry,
)
from awl.formats import find
from awl.formats.listing import Found, OfSubagent, sessions_in
from awl.formats.records import head_of

QWEN = find("qwen-code")
FILES = sorted((DATA / "qwen-code").glob("*.jsonl"))
LONG = FILES[1]


def count_qwen(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    for record in lines_of(path):
        parts = record.get("message", {}).get("parts", [])
        kind = record["type"]
        counts.prompts += kind == "user" and "message" in record
        counts.images += sum("inlineData" in part for part in parts)
        for part in parts:
            if kind == "assistant" and "text" in part:
                counts.thoughts += bool(part.get("thought"))
                counts.answers += not part.get("thought")
            if "functionCall" in part:
                one = part["functionCall"]
                counts.inputs.append((one["id"], given(one["args"])))
            if "functionResponse" in part:
                response = part["functionResponse"]["response"]
                text = response.get("output", response.get("error"))
                failed = record["toolCallResult"]["status"] == "error"
                counts.outputs.append((part["functionResponse"]["id"], text, failed))
    return counts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:4])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, QWEN, tmp_path)
    assert count_awl(landed.shown) == count_qwen(path)
    assert_sound(landed)
    facts = landed.facts
    assert (facts.source_id, facts.cwd) == (path.stem, "/home/dev/qwen-demo")
    assert (facts.provider, facts.model) == ("qwen", "mock-1")
    used = [record["usageMetadata"] for record in lines_of(path) if "usageMetadata" in record]
    assert landed.state.tokens.own_output == sum(one["candidatesTokenCount"] for one in used)


def test_other_programs_files_are_not_taken_for_these() -> None:
    assert all(QWEN.recognise(head_of(path)) for path in FILES)
    claude = sorted((DATA / "claude-code").glob("*.jsonl"))
    assert not any(QWEN.recognise(head_of(path)) for path in claude)
    known = find("claude-code")
    assert not any(known.recognise(head_of(path)) for path in FILES)


def test_what_was_compressed_is_sent_as_its_summary(tmp_path: Path) -> None:
    landed = land(LONG, QWEN, tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert entry.summary.session_intent.startswith("Short summary or title")
    assert "hello.py" in entry.summary.session_intent
    assert (entry.tokens_before, entry.tokens_after) == (1200, 1093)
    items = landed.state.items
    assert items[0].kind == "summary"
    assert items[1].message.text == "SCRIPT:RES"


class File:
    """A file in the making."""

    def __init__(self) -> None:
        self.records: list[JSON] = []
        self.last: str | None = None

    def add(self, kind: str, parent: str | None = "before", **fields: Any) -> str:
        name = f"r{len(self.records)}"
        self.records.append(
            {
                "uuid": name,
                "parentUuid": self.last if parent == "before" else parent,
                "sessionId": "s",
                "timestamp": f"2026-01-01T00:00:{len(self.records):02}.000Z",
                "type": kind,
                "cwd": "/x",
                **fields,
            }
        )
        self.last = name
        return name

    def say(
        self, kind: str, *parts: JSON | str, parent: str | None = "before", **fields: Any
    ) -> str:
        made = [{"text": part} if isinstance(part, str) else part for part in parts]
        role = "model" if kind == "assistant" else "user"
        return self.add(kind, parent, message={"role": role, "parts": made}, **fields)

    def system(self, subtype: str, **payload: Any) -> str:
        return self.add("system", subtype=subtype, systemPayload=payload)

    def land(self, root: Path) -> Landed:
        folder = root / "qwen"
        folder.mkdir(parents=True)
        path = folder / "s.jsonl"
        path.write_text("".join(given(record) + "\n" for record in self.records))
        landed = land(path, QWEN, root / "awl")
        assert count_awl(landed.shown) == count_qwen(path)
        assert_sound(landed)
        return landed


def said(landed: Landed) -> list[str]:
    return [item.message.text for item in landed.state.items if item.message.text]


def test_a_turn_that_was_taken_back_is_off_the_path(tmp_path: Path) -> None:
    file = File()
    file.say("user", "one")
    file.say("assistant", "two")
    before = file.system("ui_telemetry", uiEvent={})
    file.say("user", "left")
    file.say("assistant", "left too")
    file.say("user", "three", parent=before)
    file.system("rewind", truncatedCount=2)
    file.say("assistant", "four")
    landed = file.land(tmp_path)
    assert said(landed) == ["one", "two", "three", "four"]
    assert [one.kind for one in landed.entries if isinstance(one, UnknownEntry)] == [
        "qwen-code:rewind"
    ]


def test_the_last_messages_may_stay_behind_a_summary(tmp_path: Path) -> None:
    file = File()
    for word in ("one", "two", "three"):
        file.say("user", word)
        file.say("assistant", f"to {word}")
    history = [
        {"role": "user", "parts": [{"text": "so far"}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
        {"role": "user", "parts": [{"text": "three"}]},
        {"role": "model", "parts": [{"text": "to three"}]},
    ]
    file.system("chat_compression", info={}, compressedHistory=history)
    file.say("user", "four")
    landed = file.land(tmp_path)
    assert said(landed)[1:] == ["three", "to three", "four"]
    assert "so far" in said(landed)[0]
    assert "three" not in said(landed)[0]


def test_what_is_written_again_at_the_end_of_the_file_takes_nothing_off_the_path(
    tmp_path: Path,
) -> None:
    file = File()
    file.say("user", "one")
    first = file.system("custom_title", customTitle="Mine", titleSource="auto")
    file.say("assistant", "to one", parent=first)
    kept = file.say("user", "two")
    for again in ("custom_title", "session_artifact_event"):
        file.add("system", kept, subtype=again, systemPayload={"customTitle": "Mine"})
    file.say("assistant", "to two", parent=kept)
    history = [
        {"role": "user", "parts": [{"text": "so far"}]},
        {"role": "user", "parts": [{"text": "two"}]},
        {"role": "model", "parts": [{"text": "to two"}]},
    ]
    file.system("chat_compression", info={}, compressedHistory=history)
    file.say("user", "three")
    landed = file.land(tmp_path)
    assert said(landed)[1:] == ["two", "to two", "three"]
    assert [one.title for one in landed.entries if isinstance(one, TitleEntry)] == ["Mine"]
    assert not any(isinstance(one, RewindEntry) for one in landed.entries)


def test_conversations_of_subagents_are_named_and_are_none_of_the_session(tmp_path: Path) -> None:
    session, agent = File(), File()
    session.say("user", "do it")
    agent.say("user", "help", isSidechain=True, agentId="a")
    folder = tmp_path / "p"
    paths = folder / "chats" / "s.jsonl", folder / "subagents" / "s" / "agent-a.jsonl"
    for path, file in zip(paths, (session, agent), strict=True):
        path.parent.mkdir(parents=True)
        path.write_text("".join(given(record) + "\n" for record in file.records))
    landed = land(paths[0], QWEN, tmp_path / "awl")
    said = "\n".join(landed.report.lines(landed.log))
    assert f"1 conversation of subagents, in {paths[1].parent}" in said
    assert list(sessions_in(folder)) == [Found(paths[0], "qwen-code"), OfSubagent(paths[1])]
    assert land(paths[1], QWEN, tmp_path / "awl").facts.source_id == "agent-a"


def test_odd_parts_behind_a_summary_stay_too(tmp_path: Path) -> None:
    file = File()
    file.say("user", "one")
    file.say("user", "two", {"of a kind": "to come"})
    history = [
        {"role": "user", "parts": [{"text": "so far"}]},
        {"role": "user", "parts": [{"text": "two"}, {"of a kind": "to come"}]},
    ]
    file.system("chat_compression", info={}, compressedHistory=history)
    landed = file.land(tmp_path)
    assert said(landed)[1:] == ["two"]
    assert "so far" in said(landed)[0]


def test_titles_models_and_thoughts(tmp_path: Path) -> None:
    file = File()
    file.say("user", "one")
    file.say("assistant", {"text": "hm", "thought": True}, "two", model="qwen3")
    file.system("custom_title", customTitle="Mine", titleSource="manual")
    file.system("session_model", modelId="qwen4", authType="openai")
    file.say("user", "three")
    landed = file.land(tmp_path)
    (title,) = [one.title for one in landed.entries if isinstance(one, TitleEntry)]
    assert title == "Mine"
    (change,) = [one for one in landed.entries if isinstance(one, ModelChangeEntry)]
    assert change.model == "qwen4"
    assert landed.state.active_model == ModelRef("qwen", "qwen4")
    blocks = [block for item in landed.state.items for block in item.message.content]
    assert Thinking(thinking="hm") in blocks


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:4])
def test_cut_and_garbled_it_costs_that_alone(tmp_path: Path, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for number, kept in enumerate(range(2, len(lines), 5)):
        cut = tmp_path / f"{number}" / path.name
        cut.parent.mkdir()
        cut.write_bytes(b"".join(lines[:kept]))
        counts = count_qwen(cut)
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][:-20])
        landed = land(cut, QWEN, tmp_path / f"awl{number}")
        assert landed.report.damaged == 1
        assert count_awl(landed.shown) == counts
        assert_sound(landed)
