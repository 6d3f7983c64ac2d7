"""What opencode exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl
from formats.landing import DATA, Landed, assert_sound, given, land

from awl.conversation import Opaque, RedactedThinking, Thinking, ToolUse
from awl.entries import CondensationEntry, MessageEntry, TitleEntry, UnknownEntry
from awl.formats import find
from awl.formats.listing import recognise
from awl.formats.records import head_of
from awl.store.importing import Importer

OPENCODE = find("opencode")
FILES = sorted((DATA / "opencode").glob("*.json"))


def count_opencode(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    for message in json.loads(path.read_bytes())["messages"]:
        role = message["info"]["role"]
        counts.prompts += role == "user"
        for part in message["parts"]:
            match part["type"]:
                case "text":
                    counts.answers += role == "assistant"
                case "reasoning":
                    counts.thoughts += 1
                case "file":
                    counts.images += part["mime"].startswith("image/")
                case "tool":
                    state = part["state"]
                    counts.inputs.append((part["callID"], given(state["input"])))
                    if state["status"] in ("completed", "error"):
                        failed = state["status"] == "error"
                        text = state["error"] if failed else state["output"]
                        counts.outputs.append((part["callID"], text, failed))
                        attached = state.get("attachments", ())
                        counts.images += sum(one["mime"].startswith("image/") for one in attached)
    return counts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[-4:])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, OPENCODE, tmp_path)
    assert count_awl(landed.shown) == count_opencode(path)
    assert_sound(landed)
    info = json.loads(path.read_bytes())["info"]
    facts = landed.facts
    assert (facts.source_id, facts.cwd) == (info["id"], "/home/dev/opencode-demo")
    assert (facts.provider, facts.model) == ("mock", "mock-1")
    (title,) = [one.title for one in landed.entries if isinstance(one, TitleEntry)]
    assert title == info["title"]
    tokens = landed.state.tokens
    assert tokens.own_output == info["tokens"]["output"]
    assert recognise(path) == OPENCODE


def test_what_was_compacted_is_sent_as_its_summary(tmp_path: Path) -> None:
    forked = next(path for path in FILES if "dd7064" in path.name)
    landed = land(forked, OPENCODE, tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert entry.summary.session_intent == "Short summary or title: greeting script work."
    items = landed.state.items
    assert items[0].kind == "summary"
    assert items[1].message.text.startswith("Continue if you have next steps")


class Export:
    """An export in the making."""

    def __init__(self) -> None:
        self.info: JSON = {
            "id": "ses_1",
            "title": "T",
            "directory": "/x",
            "projectID": "global",
            "time": {"created": 1767225600000, "updated": 1767225600000},
        }
        self.messages: list[JSON] = []

    def say(self, role: str, *parts: JSON | str, **info: Any) -> None:
        made = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
        moment = {"created": 1767225600000 + 1000 * len(self.messages)}
        self.messages.append({"info": {"role": role, "time": moment, **info}, "parts": made})

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "export.json"
        text = json.dumps({"info": self.info, "messages": self.messages}, indent=2)
        path.write_text(text)
        return path

    def land(self, root: Path) -> Landed:
        path = self.write(root / "opencode")
        landed = land(path, OPENCODE, root / "awl")
        assert count_awl(landed.shown) == count_opencode(path)
        assert_sound(landed)
        return landed


def tool(name: str, status: str, **state: Any) -> JSON:
    return {
        "type": "tool",
        "tool": "bash",
        "callID": name,
        "state": {"status": status, "input": {"command": name, "n": [1, {}]}, **state},
    }


PICTURE = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="}


def test_every_state_of_a_call(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "go", PICTURE)
    export.say(
        "assistant",
        {"type": "reasoning", "text": "hm", "metadata": {"anthropic": {"signature": "c2ln"}}},
        tool("a", "completed", output="out", time={"start": 5, "end": 17}, attachments=[PICTURE]),
        tool("b", "error", error="boom"),
        tool("c", "running"),
        providerID="anthropic",
        modelID="claude",
    )
    landed = export.land(tmp_path)
    results = [block for item in landed.state.items for block in item.message.tool_results]
    assert [one.duration_ms for one in results] == [12, None]
    assert [call.use.id for call in landed.state.open_calls] == ["c"]
    blocks = [block for item in landed.state.items for block in item.message.content]
    assert Thinking(thinking="hm", signature="c2ln") in blocks
    assert (landed.facts.provider, landed.facts.model) == ("anthropic", "claude")


def test_several_requests_in_one_message_are_several_answers(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "go")
    start = {"type": "step-start"}
    finish = {
        "type": "step-finish",
        "tokens": {"input": 5, "output": 2, "reasoning": 1, "cache": {"read": 3, "write": 0}},
    }
    export.say(
        "assistant",
        start,
        "one",
        tool("a", "completed", output="x"),
        finish,
        start,
        "two",
        finish,
        tokens={"input": 10, "output": 4, "reasoning": 2, "cache": {"read": 6, "write": 0}},
    )
    landed = export.land(tmp_path)
    said = [entry.message for entry in landed.entries if isinstance(entry, MessageEntry)]
    assert [one.role for one in said] == ["user", "assistant", "user", "assistant"]
    assert landed.state.tokens.own_output == 6


def test_outputs_that_are_no_longer_sent_stay_so(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "go")
    export.say("assistant", tool("a", "completed", output="long ago", time={"compacted": 9}))
    export.say("user", "on")
    landed = export.land(tmp_path)
    assert len(landed.state.cleared) == 1


def test_failed_and_cancelled_answers(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "go")
    export.say("assistant", "half", error={"name": "MessageAbortedError"})
    export.say("user", "again")
    export.say("assistant", "half", error={"name": "APIError"})
    export.say("user", "once more")
    export.say(
        "assistant", tool("a", "completed", output="x"), error={"name": "MessageAbortedError"}
    )
    landed = export.land(tmp_path)
    stops = [
        entry.message.stop_reason
        for entry in landed.entries
        if isinstance(entry, MessageEntry) and entry.message.role == "assistant"
    ]
    assert stops == ["aborted", "error", "toolUse"]


def test_what_an_error_said_is_kept(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "go")
    export.say("assistant", error={"name": "APIError", "data": {"message": "Too many requests"}})
    landed = export.land(tmp_path)
    (block,) = landed.state.items[-1].message.content
    assert isinstance(block, Opaque)
    assert "Too many requests" in block.raw


def test_documents_are_no_pictures_and_stay_whole(tmp_path: Path) -> None:
    document = {
        "type": "file",
        "mime": "application/pdf",
        "url": "data:application/pdf;base64,JVBE",
    }
    export = Export()
    export.say("user", "read these", PICTURE, document)
    export.say("assistant", tool("a", "completed", output="x", attachments=[PICTURE, document]))
    landed = export.land(tmp_path)
    blocks = [block for item in landed.state.items for block in item.message.content]
    (kept,) = [block for block in blocks if isinstance(block, Opaque)]
    assert json.loads(kept.raw) == document
    (attached,) = [one for one in landed.entries if isinstance(one, UnknownEntry)]
    assert attached.raw["record"] == document


def test_what_providers_want_back_with_reasoning_and_calls_is_kept(tmp_path: Path) -> None:
    sealed = {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "c2VhbA=="}}
    signed = {"google": {"thoughtSignature": "c2ln"}}
    export = Export()
    export.say("user", "go")
    export.say(
        "assistant",
        {"type": "reasoning", "text": "hm", "metadata": sealed},
        {"type": "reasoning", "text": "", "metadata": {"anthropic": {"redactedData": "cmVk"}}},
        {**tool("a", "completed", output="x"), "metadata": signed},
        providerID="openai",
        modelID="gpt",
    )
    landed = export.land(tmp_path)
    (answer,) = [item.message for item in landed.state.items if item.message.tool_uses]
    thought, redacted, use = answer.content
    assert thought == Thinking(thinking="hm", provider_data=sealed)
    assert redacted == RedactedThinking(data="cmVk")
    assert isinstance(use, ToolUse)
    assert use.provider_data == signed


def test_a_call_that_was_being_written_has_what_was_there_of_it(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "go")
    call = tool("a", "pending", raw='{"command": "mak')
    export.say("assistant", {**call, "state": {**call["state"], "input": {}}})
    landed = land(export.write(tmp_path / "opencode"), OPENCODE, tmp_path / "awl")
    assert_sound(landed)
    (running,) = landed.state.open_calls
    assert running.use.input == '{"command": "mak'


def said_of(landed: Landed) -> list[str]:
    return [item.message.text for item in landed.state.items if item.kind == "message"]


def compacting(export: Export, **more: Any) -> None:
    export.say("user", {"type": "compaction", "auto": True, **more}, id="c")
    export.say("assistant", "the summary", summary=True, finish="stop")


def test_what_stays_behind_a_summary_is_sent_behind_it(tmp_path: Path) -> None:
    export = Export()
    for name in ("one", "two", "three"):
        export.say("user", f"ask {name}", id=name)
        export.say("assistant", f"answer {name}")
    compacting(export, tail_start_id="three")
    export.say("user", "go on")
    landed = export.land(tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert entry.summary.session_intent == "the summary"
    assert said_of(landed) == ["ask three", "answer three", "go on"]


def test_a_summary_that_was_not_finished_stands_for_nothing(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "ask")
    export.say("user", {"type": "compaction", "auto": True})
    export.say("assistant", "half a summ", summary=True)
    landed = export.land(tmp_path)
    assert "ask" in said_of(landed)


def test_what_was_undone_is_a_branch_until_it_is_done_again(tmp_path: Path) -> None:
    export = Export()
    export.say("user", "one", id="m1")
    export.say("assistant", "first")
    export.say("user", "two", id="m2")
    export.say("assistant", "second")
    export.info["revert"] = {"messageID": "m2"}
    landed = export.land(tmp_path)
    assert said_of(landed) == ["one", "first"]
    del export.info["revert"]
    export.say("user", "three", id="m3")
    importer = Importer(tmp_path / "awl", [landed.log], "/")
    again = importer.bring(export.write(tmp_path / "opencode"), OPENCODE)
    assert (again.outcome, again.path) == ("grown", landed.log)
    assert said_of(landed) == ["one", "first", "two", "second", "three"]


def test_a_session_with_long_diffs_before_its_messages_is_recognised(tmp_path: Path) -> None:
    export = Export()
    export.info["summary"] = {"diffs": [{"file": "a", "patch": "+x\n" * 40_000}]}
    export.say("user", "go")
    assert recognise(export.write(tmp_path)) == OPENCODE


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[-4:])
def test_cut_anywhere_what_is_whole_comes(tmp_path: Path, path: Path) -> None:
    data = path.read_bytes()
    messages = json.loads(data)["messages"]
    seen = set()
    for cut in range(1500, len(data), max(1, len(data) // 9)):
        part = tmp_path / str(cut) / path.name
        part.parent.mkdir()
        part.write_bytes(data[:cut])
        assert OPENCODE.recognise(head_of(part))
        brought = Importer(tmp_path / f"awl{cut}", (), "/").bring(part, OPENCODE)
        assert brought.report.damaged == 1
        if brought.path is None:
            continue
        whole = tmp_path / f"whole{cut}.json"
        prompts = brought.tally.prompts
        seen.add(prompts)
        users = [n for n, one in enumerate(messages) if one["info"]["role"] == "user"]
        end = next(
            (
                n
                for n in range(len(messages) + 1)
                if sum(u < n for u in users) == prompts and n >= 1
            ),
            None,
        )
        assert end is not None
        counts = count_awl(Landed(brought.path, brought).shown)
        while end < len(messages):
            whole.write_text(json.dumps({"messages": messages[:end]}))
            if count_opencode(whole) == counts:
                break
            end += 1
        assert end < len(messages)
        assert_sound(Landed(brought.path, brought))
    assert seen
