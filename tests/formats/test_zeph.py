"""zeph's event logs, read and written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import assert_sound, given, land

from awl.conversation import ToolResult, ToolUse
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    EndEntry,
    ForkPointEntry,
    MessageEntry,
    ModelChangeEntry,
    ToolCallEntry,
    UnknownEntry,
)
from awl.formats import Source, find
from awl.log.blobs import Blobs
from awl.replay import read

ZEPH = find("zeph")
PICTURE = b"\x89PNG\r\n\x1a\nnot much of a picture"
SUMMARY = {
    "session_intent": "Fix the parser",
    "files_modified": ["a.py", "b.py"],
    "decisions_made": ["keep it small"],
    "open_questions": [],
    "next_steps": ["test"],
}


class Log:
    """An event log of zeph in the making."""

    def __init__(self, folder: Path, **started: Any) -> None:
        self.path = folder / "events.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.events: list[JSON] = []
        self.add(
            "session_started",
            session_id=folder.name,
            cwd="/home/dev/zeph-demo",
            provider_name="claude",
            model="sonnet",
            turn=None,
            **started,
        )

    def add(self, kind: str, *, turn: int | None = 1, **fields: Any) -> Log:
        event: JSON = {"seq": len(self.events), "ts_ms": 1777138815990 + 10 * len(self.events)}
        if turn is not None:
            event["turn_id"] = turn
        if "forked_from" in fields:
            event["parent_seq"] = fields["forked_from"][1]
        self.events.append({**event, "kind": {"type": kind, **fields}})
        return self

    def write(self, tail: str = "") -> Path:
        self.path.write_text("".join(given(event) + "\n" for event in self.events) + tail)
        return self.path


def use(name: str, input: Any) -> JSON:
    return {"kind": "tool_use", "id": name, "name": "bash", "input": input}


def result(name: str, output: str, *, error: bool = False, ms: int = 12, turn: int = 1) -> JSON:
    return {
        "id": name,
        "name": "bash",
        "output": output,
        "is_error": error,
        "duration_ms": ms,
        "turn": turn,
    }


def everything(folder: Path) -> Log:
    """A log with one of everything that zeph's production code and its format know."""
    (folder / "blobs").mkdir(parents=True)
    name = hashlib.sha256(PICTURE).hexdigest()
    (folder / "blobs" / name).write_bytes(PICTURE)
    log = Log(folder)
    log.add("user_message", text="Look at this", image_refs=[name])
    log.add(
        "assistant_message",
        parts=[
            {"kind": "thinking_block", "thinking": "hm", "signature": "c2ln"},
            {"kind": "redacted_thinking_block", "data": "c2VjcmV0"},
            {"kind": "text", "text": "Two things at once. ✓ 日本語"},
            use("t1", {"command": "echo 'a b'\u2028", "n": [1, 2.5, None]}),
            use("t2", {"command": "false"}),
        ],
    )
    log.add("tool_call", id="t1", name="bash", input={"command": "echo 'a b'\u2028"})
    log.add("tool_call", id="t2", name="bash", input={"command": "false"})
    log.add("tool_result", **result("t2", "boom\n", error=True, ms=31))
    log.add("tool_result", **result("t1", "a b\n", ms=219))
    log.add("assistant_message", parts=[{"kind": "text", "text": "The second failed."}])
    log.add("compaction", tier="soft", cleared_count=2)
    log.add("model_changed", turn=None, provider_name="openai", model="gpt-5")
    log.add("user_message", turn=2, text="And now?", image_refs=[])
    log.add("assistant_message", turn=2, parts=[use("t3", {}), {"kind": "recall", "text": "old"}])
    log.add("tool_result", **result("t3", "", ms=0, turn=2))
    log.add("assistant_message", turn=2, parts=[{"kind": "text", "text": "Done."}])
    log.add(
        "condensation",
        turn=None,
        replaced_seq_range=[1, 7],
        summary=SUMMARY,
        tokens_before=900,
        tokens_after=90,
    )
    log.add("fork_point", turn=None, new_session_id="child")
    log.add("user_message", turn=3, text="Go on", image_refs=[])
    log.add("assistant_message", turn=3, parts=[{"kind": "text", "text": "Going on."}])
    log.add("compaction", turn=None, tier="hard", cleared_count=9, summary=SUMMARY)
    log.add("weather", turn=None, sky="blue")
    log.add("session_ended", turn=None, reason="user_quit")
    return log


def count_zeph(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    for event in lines_of(path):
        kind = event["kind"]
        if kind["type"] == "user_message":
            counts.prompts += 1
            counts.images += len(kind["image_refs"])
        elif kind["type"] == "tool_result":
            counts.outputs.append((kind["id"], kind["output"], kind["is_error"]))
        elif kind["type"] == "assistant_message":
            for part in kind["parts"]:
                counts.answers += part["kind"] == "text"
                counts.thoughts += "thinking" in part["kind"]
                if part["kind"] == "tool_use":
                    counts.inputs.append((part["id"], given(part["input"])))
    return counts


def test_everything_comes_over_and_is_where_it_was(tmp_path: Path) -> None:
    path = everything(tmp_path / "one").write()
    landed = land(path, ZEPH, tmp_path / "awl")
    assert count_awl(landed.shown) == count_zeph(path)
    assert_sound(landed)
    entries = landed.entries
    started = [entry.tool_use_id for entry in entries if isinstance(entry, ToolCallEntry)]
    assert started == ["t1", "t2"]
    times = [
        block.duration_ms
        for entry in entries
        if isinstance(entry, MessageEntry)
        for block in entry.message.content
        if isinstance(block, ToolResult)
    ]
    assert times == [31, 219, 0]
    model = next(entry for entry in entries if isinstance(entry, ModelChangeEntry))
    assert (model.provider, model.model) == ("openai", "gpt-5")
    soft = next(entry for entry in entries if isinstance(entry, CompactionEntry))
    assert (soft.tier, soft.cleared_count) == ("soft", 2)
    assert any(isinstance(entry, EndEntry) for entry in entries)
    kinds = [entry.kind for entry in entries if isinstance(entry, UnknownEntry)]
    assert kinds == ["zeph:compaction", "zeph:weather"]
    facts = landed.facts
    assert (facts.source_id, facts.cwd) == ("one", "/home/dev/zeph-demo")
    assert (facts.provider, facts.model) == ("claude", "sonnet")
    assert facts.created == "2026-04-25T17:40:15.990Z"


def test_ranges_name_the_entries_that_the_events_became(tmp_path: Path) -> None:
    landed = land(everything(tmp_path / "one").write(), ZEPH, tmp_path / "awl")
    state = landed.state
    by_seq = {entry.seq: entry for entry in landed.entries}
    first, second = [entry for entry in landed.entries if isinstance(entry, CondensationEntry)]
    lo, hi = (by_seq[seq] for seq in first.replaced)
    assert isinstance(lo, MessageEntry)
    assert lo.message.said().text == "Look at this"
    assert isinstance(hi, MessageEntry)
    assert hi.message.said().text == "The second failed."
    assert (first.tokens_before, first.tokens_after) == (900, 90)
    assert second.replaced[0] == first.replaced[1] + 1
    said = [item.message.text for item in state.items]
    assert second.absorbs == (first.seq,)
    assert len([text for text in said if "Fix the parser" in text]) == 1
    assert "Going on." not in said
    fork = next(entry for entry in landed.entries if isinstance(entry, ForkPointEntry))
    assert fork.at == fork.seq - 1


def test_what_a_hard_compaction_replaced_no_condensation_replaces_again(tmp_path: Path) -> None:
    log = Log(tmp_path / "one")
    for n in range(3):
        log.add("user_message", text=f"before {n}", image_refs=[])
    log.add("compaction", turn=None, tier="hard", cleared_count=3, summary=SUMMARY)
    log.add("user_message", text="behind it", image_refs=[])
    numbers = {"tokens_before": 90, "tokens_after": 9}
    for lo, hi, intent in ((1, 5, "all of it"), (1, 2, "nothing new")):
        summary = {**SUMMARY, "session_intent": intent}
        log.add("condensation", turn=None, replaced_seq_range=[lo, hi], summary=summary, **numbers)
    log.add("user_message", text="the last", image_refs=[])
    landed = land(log.write(), ZEPH, tmp_path / "awl")
    assert_sound(landed)
    said = "\n".join(item.message.text for item in landed.state.items)
    assert "Fix the parser" in said and "all of it" in said and "the last" in said
    assert "before" not in said and "behind it" not in said
    events, left_out = written(landed.log, tmp_path / "back" / "events.jsonl")
    assert [event["kind"] for event in events[1:]] == [event["kind"] for event in log.events[1:]]
    assert left_out == {}


def written(landed_log: Path, target: Path) -> tuple[list[JSON], dict[str, int]]:
    """What a log is as zeph's events, as a file with its blobs, and what was left out."""
    source = Source(read(landed_log), Blobs(landed_log).get)
    assert ZEPH.write is not None
    target.parent.mkdir(parents=True)
    target.write_bytes(b"".join(ZEPH.write(source)))
    for name, ref in source.blobs.items():
        (target.parent / "blobs").mkdir(exist_ok=True)
        (target.parent / "blobs" / name).write_bytes(source.blob(ref))
    return list(lines_of(target)), dict(source.left_out)


def test_there_and_back_is_the_same_events(tmp_path: Path) -> None:
    log = everything(tmp_path / "one")
    landed = land(log.write(), ZEPH, tmp_path / "awl")
    events, left_out = written(landed.log, tmp_path / "back" / "events.jsonl")
    assert left_out == {}
    expected = json.loads(json.dumps(log.events))
    assert expected[0]["kind"].pop("session_id") != events[0]["kind"].pop("session_id")
    # A call's start repeats what the answer gave; hard compactions and ends belong to no turn.
    expected[3]["kind"]["input"] = expected[2]["kind"]["parts"][3]["input"]
    for event in (*expected, *events):
        if event["kind"]["type"] == "compaction":
            event.pop("turn_id", None)
    assert events == expected
    again = land(tmp_path / "back" / "events.jsonl", ZEPH, tmp_path / "again")
    assert [entry.message for entry in again.entries if isinstance(entry, MessageEntry)] == [
        entry.message for entry in landed.entries if isinstance(entry, MessageEntry)
    ]


def test_arguments_keep_their_bytes_there_and_back(tmp_path: Path) -> None:
    log = Log(tmp_path / "one").add("user_message", text="x", image_refs=[])
    path = log.write(
        '{"seq":2,"ts_ms":5,"kind":{"type":"assistant_message","parts":['
        '{"kind":"tool_use","id":"a","name":"n","input":{ "b" : 1.50, "a":"\\u00e9\\ud83d" }},'
        '{"kind":"tool_use","id":"b","name":"n","input":"not {json"}]}}\n'
    )
    landed = land(path, ZEPH, tmp_path / "awl")
    inputs = [block.input for block in uses(landed.entries)]
    assert inputs == ['{ "b" : 1.50, "a":"\\u00e9\\ufffd" }', "not {json"]
    written(landed.log, tmp_path / "back" / "events.jsonl")
    back = land(tmp_path / "back" / "events.jsonl", ZEPH, tmp_path / "again")
    assert [block.input for block in uses(back.entries)] == inputs


def uses(entries: list[Any]) -> list[ToolUse]:
    return [
        block
        for entry in entries
        if isinstance(entry, MessageEntry)
        for block in entry.message.said().tool_uses
    ]


def test_calls_that_only_events_tell_of_are_calls(tmp_path: Path) -> None:
    log = Log(tmp_path / "one").add("user_message", text="x", image_refs=[])
    log.add("assistant_message", parts=[{"kind": "text", "text": "I look."}])
    for _ in range(2):  # the same id for each call, as some models have it
        log.add("tool_call", id="c", name="bash", input={"command": "ls"})
        log.add("tool_result", **result("c", "a\n"))
    log.add(
        "assistant_message",
        parts=[
            use("d", {}),
            {
                "kind": "tool_result",
                "tool_use_id": "d",
                "content": "in the answer",
                "is_error": True,
            },
            {"kind": "text", "text": "That was it."},
        ],
    )
    log.add("tool_result", **result("d", "in the answer", error=True))
    landed = land(log.write(), ZEPH, tmp_path / "awl")
    counts = count_awl(landed.shown)
    assert [name for name, _ in counts.inputs] == ["c", "c", "d"]
    assert [(name, error) for name, _, error in counts.outputs] == [
        ("c", False),
        ("c", False),
        ("d", True),
    ]
    assert counts.answers == 2
    assert_sound(landed)


def test_calls_that_only_events_tell_of_go_back_as_events(tmp_path: Path) -> None:
    log = Log(tmp_path / "one").add("user_message", text="x", image_refs=[])
    log.add("assistant_message", parts=[{"kind": "text", "text": "I look."}])
    log.add("tool_call", id="c", name="bash", input={"command": "ls"})
    log.add("tool_call", id="d", name="bash", input="no object")
    log.add("tool_result", **result("d", "b", error=True))
    log.add("tool_result", **result("c", "a\n"))
    log.add("assistant_message", parts=[use("e", {})])
    log.add("tool_call", id="e", name="bash", input={})
    landed = land(log.write(), ZEPH, tmp_path / "awl")
    events, _ = written(landed.log, tmp_path / "back" / "events.jsonl")
    for event in [*events, *log.events]:
        event["kind"].pop("turn", None)
    assert [event["kind"] for event in events[1:]] == [event["kind"] for event in log.events[1:]]


def test_a_fork_keeps_where_it_came_from(tmp_path: Path) -> None:
    log = Log(tmp_path / "child", forked_from=["parent", 3])
    log.add(
        "session_started", turn=None, session_id="parent", cwd="/x", provider_name="p", model="m"
    )
    log.add("user_message", text="x", image_refs=[])
    landed = land(log.write(), ZEPH, tmp_path / "awl")
    events, _ = written(landed.log, tmp_path / "back" / "events.jsonl")
    assert events[0]["kind"]["forked_from"] == ["parent", 3]
    assert events[0]["parent_seq"] == 3
    assert [event["kind"]["type"] for event in events] == [
        "session_started",
        "session_started",
        "user_message",
    ]
    assert "parent_seq" not in events[1]


def test_a_session_from_before_there_were_logs_keeps_its_summary(tmp_path: Path) -> None:
    log = Log(tmp_path / "old").add(
        "condensation",
        turn=None,
        replaced_seq_range=[0, 0],
        summary={**SUMMARY, "session_intent": "Imported (7 message(s))"},
        tokens_before=0,
        tokens_after=0,
    )
    log.add("user_message", text="x", image_refs=[])
    landed = land(log.write(), ZEPH, tmp_path / "awl")
    assert_sound(landed)
    assert "Imported (7 message(s))" in landed.state.items[0].message.text
    events, _ = written(landed.log, tmp_path / "back" / "events.jsonl")
    assert events[1]["kind"] == log.events[1]["kind"]


@pytest.mark.parametrize("kept", range(1, 21))
def test_killed_anywhere_it_goes_on(tmp_path: Path, kept: int) -> None:
    log = everything(tmp_path / "one")
    del log.events[kept + 1 :]
    path = log.write('{"seq":99,"ts_ms":17771')
    landed = land(path, ZEPH, tmp_path / "awl")
    assert landed.report.damaged == 1
    path.write_bytes(path.read_bytes()[:-23])
    assert count_awl(landed.shown) == count_zeph(path)
    assert_sound(landed)


def test_odd_fields_cost_themselves_alone(tmp_path: Path) -> None:
    log = Log(tmp_path / "one")
    log.add("user_message", text="x", image_refs=None)
    log.add("assistant_message", parts=[{"kind": "text", "text": "lone \ud83d"}, 7])
    log.add("tool_result", id="t", name=None, output="out", is_error=None, duration_ms=1.5)
    path = log.path
    path.write_text("".join(json.dumps(event) + "\n" for event in log.events))
    landed = land(path, ZEPH, tmp_path / "awl")
    counts = count_awl(landed.shown)
    assert (counts.prompts, counts.answers, counts.outputs) == (1, 1, [("t", "out", False)])
    assert_sound(landed)
