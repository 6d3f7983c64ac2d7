"""Kimi CLI's sessions."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import DATA, Landed, assert_sound, land

from awl.conversation import Thinking, ToolUse
from awl.entries import CondensationEntry, MessageEntry, TitleEntry, UnknownEntry
from awl.formats import find, kimi_cli
from awl.formats.records import head_of
from awl.store.importing import Importer

KIMI = find("kimi-cli")
WIRES = sorted((DATA / "kimi-cli").rglob("wire.jsonl"))
LONG, KILLED = WIRES
COMPACTED = "<system>Previous context has been compacted. Here is the compaction output:</system>"


def flat(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")


def count_kimi(path: Path) -> Counts:
    """An independent count over the raw wire; what results say is as the contexts have it."""
    shown = {}
    for context in sorted(path.parent.glob("context*.jsonl"), reverse=True):
        for message in lines_of(context):
            if message["role"] == "tool":
                shown[message["tool_call_id"]] = flat(message["content"])
    counts = Counts()
    for record in lines_of(path):
        if "message" not in record:
            continue
        kind, payload = record["message"]["type"], record["message"]["payload"]
        match kind:
            case "TurnBegin" | "SteerInput":
                counts.prompts += 1
                if isinstance(payload["user_input"], list):
                    counts.images += sum("image_url" in one for one in payload["user_input"])
            case "ContentPart":
                counts.answers += payload["type"] == "text"
                counts.thoughts += payload["type"] == "think"
            case "ToolCall":
                counts.inputs.append((payload["id"], payload["function"]["arguments"]))
            case "ToolCallPart":
                name, before = counts.inputs[-1]
                counts.inputs[-1] = (name, before + payload["arguments_part"])
            case "ToolResult":
                returned = payload["return_value"]
                text = shown.get(payload["tool_call_id"])
                if text is None:
                    text = f"<system>{returned['message']}</system>\n{flat(returned['output'])}"
                name = payload["tool_call_id"]
                counts.outputs.append((name, text.rstrip("\n"), returned["is_error"]))
                if isinstance(returned["output"], list):
                    counts.images += sum("image_url" in one for one in returned["output"])
    return counts


def shown_of(landed: Landed) -> Counts:
    counts = count_awl(landed.shown)
    counts.outputs = [(name, text.rstrip("\n"), bad) for name, text, bad in counts.outputs]
    return counts


@pytest.mark.parametrize("path", WIRES, ids=lambda path: path.parent.name[:4])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, KIMI, tmp_path)
    assert shown_of(landed) == count_kimi(path)
    assert_sound(landed)
    facts = landed.facts
    assert (facts.source_id, facts.cwd) == (path.parent.name, "/home/dev/kimi-demo")
    assert facts.provider == "kimi"
    raw = path.read_text()
    for entry in landed.entries:
        if isinstance(entry, MessageEntry):
            assert entry.timestamp
    used = [
        record["message"]["payload"]["token_usage"]
        for record in lines_of(path)
        if record.get("message", {}).get("type") == "StatusUpdate"
    ]
    assert landed.state.tokens.own_output == sum(one["output"] for one in used if one)
    assert raw == path.read_text()


def test_outputs_are_byte_for_byte(tmp_path: Path) -> None:
    landed = land(LONG, KIMI, tmp_path)
    outputs = {name: text for name, text, _ in count_awl(landed.shown).outputs}
    for record in lines_of(LONG):
        if record.get("message", {}).get("type") == "ToolResult":
            payload = record["message"]["payload"]
            assert outputs[payload["tool_call_id"]].endswith(payload["return_value"]["output"])


@pytest.mark.parametrize("most", [0, 1000])
def test_results_that_are_too_many_to_hold_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    held = land(LONG, KIMI, tmp_path / "held")
    monkeypatch.setattr(kimi_cli, "_MOST_BYTES", most)
    again = land(LONG, KIMI, tmp_path / "again")
    assert again.shown["entries"][1:] == held.shown["entries"][1:]


def test_compactions_are_condensations(tmp_path: Path) -> None:
    landed = land(LONG, KIMI, tmp_path)
    first, second = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert first.summary.session_intent == "Short summary or title: greeting script work."
    assert second.absorbs == (first.seq,)
    by_seq = {entry.seq: entry for entry in landed.entries}
    end = by_seq[first.replaced[1]]
    assert isinstance(end, MessageEntry)
    assert "Hello, {name}!" not in str(end.message.content[0])
    items = landed.state.items
    texts = [item.message.text for item in items if item.message.text]
    assert items[0].kind == "summary"
    # As kimi's own last context has it.
    assert texts[1:] == [
        "Compaction is due (usage is huge).",
        "SCRIPT:RES",
        "Resumed. Listing.",
        "There is hello.py.",
    ]
    prompt = next(one for one in landed.entries if isinstance(one, UnknownEntry))
    assert prompt.kind == "kimi-cli:system_prompt"


class Session:
    """A session in the making, in a home of its own."""

    def __init__(self, root: Path, cwd: str = "/x/y") -> None:
        self.home = root / "kimi"
        digest = hashlib.md5(cwd.encode(), usedforsecurity=False).hexdigest()
        self.folder = self.home / "sessions" / digest / "one"
        self.folder.mkdir(parents=True)
        (self.home / "kimi.json").write_text(json.dumps({"work_dirs": [{"path": cwd}]}))
        self.wire = self.folder / "wire.jsonl"
        self.lines: list[str] = []
        self.put({"type": "metadata", "protocol_version": "1.10"})

    def put(self, record: JSON) -> None:
        self.lines.append(json.dumps(record, ensure_ascii=False))
        self.wire.write_text("\n".join(self.lines) + "\n")

    def event(self, kind: str, **payload: Any) -> None:
        at = 1_767_225_600.0 + len(self.lines)
        self.put({"timestamp": at, "message": {"type": kind, "payload": payload}})

    def call(self, name: str, arguments: str) -> None:
        function = {"name": "Shell", "arguments": arguments}
        self.event("ToolCall", type="function", id=name, function=function, extras=None)

    def result(self, name: str, output: Any, message: str = "Done.", *, bad: bool = False) -> None:
        value = {"is_error": bad, "output": output, "message": message, "display": []}
        self.event("ToolResult", tool_call_id=name, return_value=value)

    def land(self, root: Path) -> Landed:
        landed = land(self.wire, KIMI, root)
        assert shown_of(landed) == count_kimi(self.wire)
        assert_sound(landed)
        assert landed.facts.cwd == "/x/y"
        return landed


def test_pieces_of_arguments_and_parallel_calls(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.event("TurnBegin", user_input="go")
    session.event("StepBegin", n=1)
    session.event("ContentPart", type="think", think="hm", encrypted=None)
    session.event("ContentPart", type="text", text="two at once")
    session.call("a", '{"comm')
    session.event("ToolCallPart", arguments_part='and": "ls"}')
    session.call("b", "")
    session.event("ToolCallPart", arguments_part='{"command": "false"}')
    session.result("b", "", "Failed with exit code: 1", bad=True)
    session.event("StatusUpdate", token_usage=None)
    session.result("a", "x\n")
    session.event("ApprovalRequest", id="q")
    session.event("StepBegin", n=2)
    session.event("StepInterrupted")
    session.event("Unheard", of=[1, 2])
    session.event("TurnEnd")
    landed = session.land(tmp_path / "awl")
    messages = [one.message for one in landed.entries if isinstance(one, MessageEntry)]
    assert [one.role for one in messages] == ["user", "assistant", "user", "user"]
    assert messages[1].stop_reason == "toolUse"
    unknown = [one for one in landed.entries if isinstance(one, UnknownEntry)]
    assert [one.kind for one in unknown] == ["kimi-cli:Unheard"]
    assert "1 event for the screen" in " ".join(landed.report.lines(landed.log))


def test_pictures_in_prompts_and_results(tmp_path: Path) -> None:
    url = {"url": "data:image/png;base64,iVBORw0KGgo=", "id": None}
    picture = {"type": "image_url", "image_url": url}
    session = Session(tmp_path)
    session.event("TurnBegin", user_input=[{"type": "text", "text": "look"}, picture])
    session.event("StepBegin", n=1)
    session.call("a", "{}")
    session.result("a", [{"type": "text", "text": "this"}, picture])
    session.event("SteerInput", user_input="and quickly")
    session.event("TurnEnd")
    landed = session.land(tmp_path / "awl")
    assert count_awl(landed.shown).images == 2


def said_of(landed: Landed) -> list[str]:
    return [item.message.text for item in landed.state.items if item.kind == "message"]


def test_what_had_come_of_a_request_that_failed_is_a_branch(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.event("TurnBegin", user_input="go")
    session.event("StepBegin", n=1)
    session.event("ContentPart", type="text", text="half of an ans")
    session.call("a", '{"comm')
    session.event("StepRetry", n=1, next_attempt=2, max_attempts=3, wait_s=0.3, error_type="E")
    session.event("StepRetry", n=1, next_attempt=3, max_attempts=3, wait_s=0.3, error_type="E")
    session.event("ContentPart", type="text", text="the whole answer")
    session.event("TurnEnd")
    landed = session.land(tmp_path / "awl")
    assert said_of(landed) == ["go", "the whole answer"]
    assert not landed.state.open_calls


@pytest.mark.parametrize("command", ["/clear", "/reset"])
def test_what_was_cleared_is_shown_and_not_sent(tmp_path: Path, command: str) -> None:
    session = Session(tmp_path)
    for prompt in ("one", command, "two", "/cleared?"):
        session.event("TurnBegin", user_input=prompt)
        session.event("ContentPart", type="text", text=f"answer to {prompt}")
        session.event("TurnEnd")
    landed = session.land(tmp_path / "awl")
    assert said_of(landed) == ["two", "answer to two", "/cleared?", "answer to /cleared?"]


def test_what_a_command_said_is_none_of_the_messages_that_stay_behind_a_summary(
    tmp_path: Path,
) -> None:
    session = Session(tmp_path)
    for prompt in ("one", "/plan on", "two"):
        session.event("TurnBegin", user_input=prompt)
        if prompt == "two":
            break
        if prompt == "one":
            session.event("StepBegin", n=1)
        session.event("ContentPart", type="text", text=f"answer to {prompt}")
        session.event("TurnEnd")
    session.event("StepBegin", n=1)
    session.event("CompactionBegin")
    session.event("CompactionEnd")
    session.event("ContentPart", type="text", text="answer to two")
    session.event("TurnEnd")
    said = [("user", "one"), ("assistant", "answer to one"), ("user", "two")]
    lines = [json.dumps({"role": role, "content": text}) for role, text in said]
    summary = [{"type": "text", "text": COMPACTED}, {"type": "text", "text": "They began."}]
    first = json.dumps({"role": "user", "content": summary})
    for name, kept in (("context_1.jsonl", lines), ("context.jsonl", [first, *lines[1:]])):
        (session.wire.parent / name).write_text("\n".join(kept) + "\n")
    landed = session.land(tmp_path / "awl")
    assert "answer to one" in said_of(landed)
    assert "one" not in said_of(landed)


def test_what_providers_want_back_with_reasoning_and_calls_is_kept(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.event("TurnBegin", user_input="go")
    session.event("StepBegin", n=1)
    session.event("ContentPart", type="think", think="hm", encrypted="c2ln")
    function = {"name": "Shell", "arguments": "{}"}
    extras = {"thought_signature_b64": "c2ln"}
    session.event("ToolCall", type="function", id="a", function=function, extras=extras)
    session.result("a", [{"type": "video_url", "video_url": {"url": "ms://1"}}])
    session.event("TurnEnd")
    landed = session.land(tmp_path / "awl")
    (answer,) = [item.message for item in landed.state.items if item.message.tool_uses]
    thought, use = answer.content
    assert thought == Thinking(thinking="hm", signature="c2ln")
    assert use == ToolUse(id="a", name="Shell", input="{}", provider_data=extras)
    assert landed.report.left_out["parts of results that are no text and no image"] == 1


def test_a_log_of_kimi_code_is_not_taken_for_one_of_kimi_cli(tmp_path: Path) -> None:
    said = {"role": "user", "content": [{"type": "text", "text": "hi"}], "toolCalls": []}
    lines = [
        {"type": "metadata", "protocol_version": "1.4", "created_at": 1785865047055},
        {"type": "context.append_message", "time": 1785865047055, "message": said},
    ]
    path = tmp_path / "wire.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert not KIMI.recognise(head_of(path))


def test_a_question_on_the_side_is_kept(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.event("TurnBegin", user_input="go")
    session.event("StepBegin", n=1)
    session.event("ContentPart", type="text", text="an answer")
    session.event("BtwBegin", id="b", question="what is 2+2?")
    session.event("BtwEnd", id="b", response="four", error=None)
    session.event("PlanDisplay", content="# plan", file_path="/p.md")
    session.call("a", "{}")
    session.event("TurnEnd")
    landed = session.land(tmp_path / "awl")
    kinds = [one.kind for one in landed.entries if isinstance(one, UnknownEntry)]
    assert kinds == ["kimi-cli:BtwBegin", "kimi-cli:BtwEnd", "kimi-cli:PlanDisplay"]
    half = session.lines[:4]
    session.wire.write_text("\n".join(half) + "\n")
    before = land(session.wire, KIMI, tmp_path / "grows")
    session.wire.write_text("\n".join(session.lines) + "\n")
    again = Importer(tmp_path / "grows", [before.log], "/").bring(session.wire, KIMI)
    assert (again.outcome, again.path) == ("grown", before.log)


def test_a_subagents_events_are_left_out_and_counted(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.event("TurnBegin", user_input="go")
    session.event("StepBegin", n=1)
    session.call("a", "{}")
    inner = {"type": "ContentPart", "payload": {"type": "text", "text": "inside"}}
    session.event("SubagentEvent", parent_tool_call_id="a", event=inner)
    session.result("a", "from the subagent")
    landed = session.land(tmp_path / "awl")
    assert landed.report.left_out["events of subagents"] == 1


def test_the_title_and_the_subagents_are_in_other_files(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.event("TurnBegin", user_input="go")
    (session.folder / "state.json").write_text('{"custom_title": "My work", "version": 1}')
    inside = session.folder / "subagents" / "a1"
    inside.mkdir(parents=True)
    for name in ("context.jsonl", "wire.jsonl"):
        shutil.copy(LONG.with_name(name), inside / name)
        assert KIMI.belongs(head_of(inside / name))
    assert KIMI.belongs(head_of(session.folder / "state.json"))
    assert KIMI.belongs(head_of(session.home / "kimi.json"))
    landed = session.land(tmp_path / "awl")
    assert [one.title for one in landed.entries if isinstance(one, TitleEntry)] == ["My work"]
    assert "1 conversation of subagents" in landed.report.lines(session.wire)[0]
    session.event("TurnBegin", user_input="more")
    again = Importer(tmp_path / "awl", [landed.log], "/").bring(session.wire, KIMI)
    assert (again.outcome, again.tally.prompts) == ("grown", 1)


def test_an_early_session_has_a_context_alone(tmp_path: Path) -> None:
    session = Session(tmp_path)
    session.wire.unlink()
    context = session.folder / "context.jsonl"
    context.write_text(
        "\n".join(
            json.dumps(message)
            for message in (
                {"role": "_checkpoint", "id": 0},
                {"role": "user", "content": "hello"},
                {
                    "role": "assistant",
                    "content": [{"type": "think", "think": "hm"}, {"type": "text", "text": "yes"}],
                    "tool_calls": [
                        {"id": "a", "function": {"name": "Shell", "arguments": '{"a": 1}'}}
                    ],
                },
                {"role": "_usage", "token_count": 5},
                {"role": "tool", "tool_call_id": "a", "content": "done"},
            )
        )
    )
    assert KIMI.recognise(head_of(context))
    assert not KIMI.belongs(head_of(context))
    landed = land(context, KIMI, tmp_path / "awl")
    counts = count_awl(landed.shown)
    assert (counts.prompts, counts.answers, counts.thoughts) == (1, 1, 1)
    assert counts.inputs == [("a", '{"a": 1}')]
    assert counts.outputs == [("a", "done", False)]
    assert landed.facts.cwd == "/x/y"
    assert_sound(landed)


def test_a_context_stands_for_the_wire_beside_it(tmp_path: Path) -> None:
    context = LONG.with_name("context_1.jsonl")
    assert KIMI.belongs(head_of(context))
    landed = land(context, KIMI, tmp_path)
    assert landed.facts.source_path == LONG
    assert shown_of(landed) == count_kimi(LONG)


def test_a_session_cut_anywhere_brings_its_good_part(tmp_path: Path) -> None:
    data = LONG.read_bytes()
    cuts = [n for n, byte in enumerate(data) if byte == 10] + list(range(1, len(data), 397))
    shutil.copytree(LONG.parent, tmp_path / "one")
    path = tmp_path / "one" / "wire.jsonl"
    root = tmp_path / "awl"
    root.mkdir()
    for cut in cuts:
        path.write_bytes(data[:cut])
        brought = Importer(root, (), str(root), dry_run=True).bring(path, KIMI)
        whole = data[:cut].count(b'"TurnBegin"')
        assert brought.tally.prompts in {whole, whole - 1}
        assert brought.report.damaged <= 1
