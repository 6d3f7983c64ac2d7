"""pi's session files, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import DATA, Landed, assert_sound, given, land

from awl.conversation import ModelRef, RedactedThinking, Thinking, text_message
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    RewindEntry,
    TitleEntry,
    UnknownEntry,
)
from awl.formats import Source, find
from awl.log.blobs import Blobs
from awl.replay import read
from awl.session import Session
from awl.view import view

PI = find("pi")
FILES = sorted((DATA / "pi").glob("*.jsonl"))
TREED = next(path for path in FILES if "treed" in path.name)
ANYONE = ModelRef("anyone", "any")


def count_pi(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    for record in lines_of(path):
        message = record.get("message") or {}
        role, content = message.get("role"), message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        counts.prompts += role == "user"
        if role in ("user", "toolResult"):
            counts.images += sum(block["type"] == "image" for block in blocks)
        if role == "assistant":
            counts.answers += sum(block["type"] == "text" for block in blocks)
            counts.thoughts += sum(block["type"] == "thinking" for block in blocks)
            calls = [block for block in blocks if block["type"] == "toolCall"]
            counts.inputs += [(call["id"], given(call["arguments"])) for call in calls]
        if role == "toolResult":
            text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
            counts.outputs.append((message["toolCallId"], text, message["isError"]))
    return counts


def back(landed: Landed, target: Path) -> list[JSON]:
    """The lines of the pi file that a log becomes."""
    assert PI.write is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    source = Source(read(landed.log), Blobs(landed.log).get)
    target.write_bytes(b"".join(PI.write(source)))
    assert not source.left_out
    return list(lines_of(target))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem.partition("_")[2])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, PI, tmp_path)
    assert count_awl(landed.shown) == count_pi(path)
    assert_sound(landed)
    facts = landed.facts
    assert facts.cwd == "/home/dev/pi-demo"
    assert facts.source_id == path.stem.partition("_")[2]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem.partition("_")[2])
def test_there_and_back_every_entry_has_its_id_and_parent(tmp_path: Path, path: Path) -> None:
    landed = land(path, PI, tmp_path)
    out = tmp_path / "back.jsonl"
    lines = back(landed, out)
    before = list(lines_of(path))
    assert count_pi(out) == count_pi(path)
    ids = [(line["type"], line["id"], line.get("parentId")) for line in before[1:]]
    assert [(line["type"], line["id"], line.get("parentId")) for line in lines[1:]] == ids
    for old, new in zip(before[1:], lines[1:], strict=True):
        if old["type"] != "message":
            left_behind = {"usage", "fromHook", "systemMessage"} if "tokensBefore" in old else set()
            same = {key: new[key] for key in new if key not in left_behind}
            assert same == {key: old[key] for key in old if key not in left_behind}
        if "tokensBefore" in old:
            assert new["usage"]["totalTokens"] == old["usage"]["totalTokens"]


def test_a_tree_is_a_tree(tmp_path: Path) -> None:
    landed = land(TREED, PI, tmp_path)
    state = landed.state
    said = [item.message.text for item in state.items if item.kind == "message"]
    assert "SCRIPT:PAR" not in said
    assert said[-2:] == ["SCRIPT:TEXT on new branch", "Just a plain answer."]
    rewind = next(entry for entry in landed.entries if isinstance(entry, RewindEntry))
    records = list(lines_of(TREED))
    summary = next(record for record in records if record["type"] == "branch_summary")
    assert rewind.parent_id == summary["parentId"]
    notes = [entry for entry in landed.entries if isinstance(entry, NoteEntry)]
    assert [note.kind for note in notes] == [
        "pi:bashExecution",
        "pi:branch_summary",
        "pi:custom_message",
    ]
    told = "\n".join(message.text for message in view(state, ANYONE).messages)
    assert "Left a branch about PAR/RES" in told
    assert "Injected note" in told
    assert "user-bash" not in told, "of the branch that was left"
    titles = [entry.title for entry in landed.entries if isinstance(entry, TitleEntry)]
    assert titles == ["Compaction and tree"]
    labels = {
        entry.target_id: entry.label for entry in landed.entries if isinstance(entry, LabelEntry)
    }
    assert labels == {"c7e204c6": "start here", "aedb2577": ""}


def test_what_was_compacted_is_sent_as_its_summary(tmp_path: Path) -> None:
    landed = land(next(path for path in FILES if "compacted" in path.name), PI, tmp_path)
    entry = next(entry for entry in landed.entries if isinstance(entry, CondensationEntry))
    records = list(lines_of(landed.facts.source_path))
    compaction = next(record for record in records if record["type"] == "compaction")
    by_seq = {one.seq: one for one in landed.entries}
    assert by_seq[entry.replaced[1] + 1].id == compaction["firstKeptEntryId"]
    assert entry.summary.session_intent == compaction["summary"]
    assert entry.summary.files_modified == ("/home/dev/pi-demo/hello.py",)
    assert entry.tokens_before == 1240
    sent = view(landed.state, ANYONE)
    kept = records[[record.get("id") for record in records].index(by_seq[entry.replaced[1] + 1].id)]
    first = sent.messages[0].text if sent.messages else ""
    assert "No prior history." in (sent.system or "") + first
    assert kept["message"]["role"] in ("user", "assistant")


class File:
    """A file of pi in the making."""

    def __init__(self, **header: Any) -> None:
        self.lines: list[JSON] = [
            {
                "type": "session",
                "id": "abc",
                "timestamp": "2025-01-01T00:00:00.000Z",
                "cwd": "/x",
                **header,
            }
        ]
        self.tree = header.get("version", 1) > 1

    def add(self, kind: str, parent: str | None = "before", **fields: Any) -> File:
        entry: JSON = {"type": kind, "timestamp": "2025-01-01T00:00:01.000Z", **fields}
        if self.tree:
            number = len(self.lines)
            before = f"{number - 1:08x}" if number > 1 else None
            entry |= {"id": f"{number:08x}", "parentId": before if parent == "before" else parent}
        self.lines.append(entry)
        return self

    def say(
        self, role: str, *content: JSON | str, parent: str | None = "before", **fields: Any
    ) -> File:
        blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
        message = {"role": role, "content": blocks, "timestamp": 1735689601000, **fields}
        return self.add("message", parent, message=message)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "2025-01-01T00-00-00-000Z_abc.jsonl"
        path.write_text("".join(given(line) + "\n" for line in self.lines))
        return path


def test_version_1_is_a_line_and_names_indexes(tmp_path: Path) -> None:
    file = File(provider="anthropic", modelId="sonnet", thinkingLevel="off")
    file.say("user", "one").say("assistant", "two", provider="anthropic", model="sonnet")
    file.say("user", "three")
    file.add("compaction", summary="so far", firstKeptEntryIndex=3, tokensBefore=7)
    file.say("user", "four")
    path = file.write(tmp_path / "pi")
    landed = land(path, PI, tmp_path / "awl")
    assert count_awl(landed.shown) == count_pi(path)
    assert_sound(landed)
    facts = landed.facts
    assert (facts.provider, facts.model) == ("anthropic", "sonnet")
    said = [item.message.text for item in landed.state.items]
    assert "so far" in said[0]
    assert said[1:] == ["three", "four"]


def test_version_2_calls_custom_messages_by_another_name(tmp_path: Path) -> None:
    file = File(version=2).say("user", "one").say("hookMessage", "psst", customType="ext")
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    (note,) = [entry for entry in landed.entries if isinstance(entry, NoteEntry)]
    assert (note.kind, note.text) == ("pi:hookMessage", "psst")


def test_a_time_that_utc_has_no_year_for_is_none(tmp_path: Path) -> None:
    said = {"role": "user", "content": [{"type": "text", "text": "one"}]}
    early = "0001-01-01T00:00:00+02:00"
    file = File(version=3, timestamp=early).add("message", message=said, timestamp=early)
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    assert [item.message.text for item in landed.state.items] == ["one"]
    assert_sound(landed)


def test_there_can_be_several_roots(tmp_path: Path) -> None:
    file = File(version=3).say("user", "one").say("assistant", "two")
    file.say("user", "three", parent=None).say("assistant", "four")
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    assert [item.message.text for item in landed.state.items] == ["three", "four"]
    assert_sound(landed)
    lines = back(landed, tmp_path / "back.jsonl")
    assert [line.get("parentId") for line in lines[1:]] == [None, "00000001", None, "00000003"]


def test_thinking_goes_back_only_where_its_signature_is_known(tmp_path: Path) -> None:
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}
    sealed = {"type": "thinking", "thinking": "", "thinkingSignature": "c2Vj", "redacted": True}
    item = {"type": "thinking", "thinking": "so", "thinkingSignature": '{"type":"reasoning"}'}
    file = File(version=3).add("model_change", provider="anthropic", modelId="m")
    file.say("user", "one")
    file.say(
        "assistant",
        thought,
        sealed,
        "two",
        provider="anthropic",
        model="m",
        api="anthropic-messages",
        stopReason="stop",
    )
    file.say("user", "three")
    file.say("assistant", item, "four", provider="anthropic", model="m", api="openai-responses")
    path = file.write(tmp_path / "pi")
    landed = land(path, PI, tmp_path / "awl")
    blocks = [
        block
        for entry in landed.entries
        if isinstance(entry, MessageEntry)
        for block in entry.message.content
    ]
    assert Thinking(thinking="hm", signature="c2ln") in blocks
    assert RedactedThinking(data="c2Vj") in blocks
    other = next(
        block for block in blocks if isinstance(block, Thinking) and block.thinking == "so"
    )
    assert other.signature is None
    lines = back(landed, tmp_path / "back.jsonl")
    assert lines[3]["message"]["content"][:2] == [thought, sealed]
    assert lines[5]["message"]["content"][0] == item


def test_what_providers_want_back_with_texts_and_calls_goes_back(tmp_path: Path) -> None:
    text = {"type": "text", "text": "hm", "textSignature": '{"v":1,"id":"msg_1"}'}
    call = {"type": "toolCall", "id": "a", "name": "f", "arguments": {}}
    signed = {**call, "thoughtSignature": "c2ln"}
    odd = {**call, "id": "b", "argumentsError": "no JSON: {", "namespace": "srv"}
    file = File(version=3).add("model_change", provider="openai", modelId="m")
    file.say("user", "one")
    file.say(
        "assistant", text, signed, odd, {"type": "text", "text": "!"}, provider="openai", model="m"
    )
    for name in "ab":
        file.say("toolResult", "x", toolCallId=name, toolName="f", isError=False)
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    assert_sound(landed)
    lines = back(landed, tmp_path / "back.jsonl")
    assert lines[3]["message"]["content"] == [text, signed, odd, {"type": "text", "text": "!"}]


@pytest.mark.parametrize(
    ("provider", "api", "signature"),
    [
        ("openai-codex", "openai-codex-responses", '{"type":"reasoning"}'),
        ("github-copilot", "anthropic-messages", "c2ln"),
        ("github-copilot", "openai-responses", '{"type":"reasoning"}'),
        ("amazon-bedrock", "bedrock-converse-stream", "c2ln"),
        ("minimax", "anthropic-messages", "c2ln"),
        ("google-vertex", "google-vertex", "c2ln"),
        ("deepseek", "openai-completions", "reasoning_content"),
    ],
)
def test_reasoning_goes_back_with_the_api_that_it_came_from(
    tmp_path: Path, provider: str, api: str, signature: str
) -> None:
    thought = {"type": "thinking", "thinking": "hm", "thinkingSignature": signature}
    file = File(version=3).say("user", "one")
    file.say("assistant", thought, "two", provider=provider, model="m", api=api)
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    answer = back(landed, tmp_path / "back.jsonl")[2]["message"]
    assert (answer["provider"], answer["api"], answer["model"]) == (provider, api, "m")
    assert answer["content"][0] == thought


def test_a_message_without_a_message_goes_back_as_what_pi_opens(tmp_path: Path) -> None:
    file = File(version=3).say("user", "one").add("message", note="lost").say("user", "two")
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    lines = back(landed, tmp_path / "back.jsonl")
    assert [line["type"] for line in lines] == ["session", "message", "custom", "message"]
    assert lines[2]["data"]["note"] == "lost"


def test_what_a_summary_used_goes_back(tmp_path: Path) -> None:
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0}
    used = {"input": 9, "output": 5, "cacheRead": 1, "cacheWrite": 0, "totalTokens": 15}
    usage = {**used, "cost": cost}
    file = File(version=3).say("user", "one").say("user", "two")
    file.add(
        "compaction", summary="s", firstKeptEntryId="00000002", tokensBefore=9, usage=usage
    ).say("user", "three")
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    assert back(landed, tmp_path / "back.jsonl")[3]["usage"] == usage


def test_pictures_come_over_and_go_back(tmp_path: Path) -> None:
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {"path": "a.png"}}
    file = File(version=3).say("user", "look", picture).say("assistant", call)
    file.say("toolResult", "see", picture, toolCallId="c", toolName="read", isError=False)
    path = file.write(tmp_path / "pi")
    landed = land(path, PI, tmp_path / "awl")
    assert count_awl(landed.shown) == count_pi(path)
    assert count_awl(landed.shown).images == 2
    lines = back(landed, tmp_path / "back.jsonl")
    assert lines[1]["message"]["content"] == [{"type": "text", "text": "look"}, picture]
    assert lines[3]["message"]["content"][1] == picture


def test_models_levels_and_edits_there_and_back(tmp_path: Path) -> None:
    file = File(version=3).add("model_change", provider="p", modelId="m")
    file.add("thinking_level_change", thinkingLevel="high")
    call = {"type": "toolCall", "id": "c", "name": "bash", "arguments": {}}
    file.say("user", "one").say("assistant", call, provider="p", model="m", stopReason="toolUse")
    file.say("toolResult", "much", toolCallId="c", toolName="bash", isError=False)
    file.add("context_edit", targetId="00000005", replacement=None)
    file.add("context_edit", targetId="00000003", replacement={"content": "uno"})
    file.add("model_change", provider="q", modelId="n")
    file.say("user", "two", parent="00000004")
    file.add("weather", sky="blue")
    path = file.write(tmp_path / "pi")
    landed = land(path, PI, tmp_path / "awl")
    changes = [entry for entry in landed.entries if isinstance(entry, ModelChangeEntry)]
    assert [(one.provider, one.model, one.thinking_level) for one in changes] == [
        ("p", "m", None),
        ("p", "m", "high"),
        ("q", "n", "high"),
    ]
    assert landed.state.active_model == ModelRef("p", "m"), "as at the entry gone back to"
    (cleared,) = [entry for entry in landed.entries if isinstance(entry, CompactionEntry)]
    result = next(entry for entry in landed.entries if entry.id == "00000005")
    assert cleared.cleared == (result.seq,)
    kinds = [entry.kind for entry in landed.entries if isinstance(entry, UnknownEntry)]
    assert kinds == ["pi:context_edit", "pi:weather"]
    lines = back(landed, tmp_path / "back.jsonl")
    stripped = [line for line in lines if line["type"] != "message"]
    assert stripped[1:] == [
        line for line in file.lines if line["type"] not in ("message", "session")
    ]


def test_a_failed_answer_keeps_what_was_said_of_it(tmp_path: Path) -> None:
    file = File(version=3).say("user", "one")
    file.say("assistant", stopReason="error", errorMessage="overloaded", provider="p", model="m")
    landed = land(file.write(tmp_path / "pi"), PI, tmp_path / "awl")
    assert_sound(landed)
    lines = back(landed, tmp_path / "back.jsonl")
    assert lines[2]["message"]["errorMessage"] == "overloaded"
    assert lines[2]["message"]["stopReason"] == "error"


def test_a_session_of_awl_becomes_one_of_pi_with_all_branches(tmp_path: Path) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude"))
    session.append_message(text_message("user", "one"))
    first = session.append_message(text_message("assistant", "two"), stop_reason="stop")
    session.append_message(text_message("user", "left"))
    session.rewind(first)
    session.append_message(text_message("user", "three"))
    session.label(first, "here")
    session.rewind(None)
    session.close()
    lines = back(Landed(session.path, None), tmp_path / "out.jsonl")  # type: ignore[arg-type]
    by_id = {line["id"]: line for line in lines[1:]}
    texts = {
        line["id"]: line["message"]["content"][0]["text"]
        for line in lines
        if line["type"] == "message"
    }
    parents = {
        texts[line["id"]]: texts.get(line["parentId"]) for line in lines if line["id"] in texts
    }
    assert parents == {"one": None, "two": "one", "left": "two", "three": "two"}
    assert [line["type"] for line in lines[:2]] == ["session", "model_change"]
    label = next(line for line in lines if line["type"] == "label")
    assert texts[label["targetId"]] == "two"
    assert lines[-1]["customType"] == "awl.end"
    assert lines[-1]["parentId"] == lines[1]["id"], "the session was gone back from"
    assert all(line["parentId"] in (None, *by_id) for line in lines[1:])


@pytest.mark.parametrize("path", FILES[:2], ids=["whole", "killed"])
def test_cut_at_every_line_and_garbled_it_costs_that_alone(tmp_path: Path, path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(5, len(lines), 3):
        cut = tmp_path / f"{kept}" / path.name
        cut.parent.mkdir()
        cut.write_bytes(b"".join(lines[:kept]))
        counts = count_pi(cut)
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][:-20])
        landed = land(cut, PI, tmp_path / f"awl{kept}")
        assert landed.report.damaged == 1
        assert count_awl(landed.shown) == counts
        assert_sound(landed)
    for at in range(5, len(lines), 9):
        bad = tmp_path / f"bad{at}" / path.name
        bad.parent.mkdir()
        bad.write_bytes(b"".join((*lines[:at], *lines[at + 1 :])))
        counts = count_pi(bad)
        bad.write_bytes(b"".join((*lines[:at], b"\0" * 40 + b"\n", *lines[at + 1 :])))
        landed = land(bad, PI, tmp_path / f"awlbad{at}")
        assert [damaged.line for damaged in landed.report.damage] == [at + 1]
        assert count_awl(landed.shown) == counts


def test_its_own_header_is_no_session_of_pi(tmp_path: Path) -> None:
    from awl.formats.records import head_of

    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude"))
    session.append_message(text_message("user", "one"))
    session.close()
    assert not PI.recognise(head_of(session.path))
    assert all(PI.recognise(head_of(path)) for path in FILES)
    assert json.loads(session.path.read_text().splitlines()[0])["type"] == "session"
