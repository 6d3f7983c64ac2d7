"""Gemini CLI's logs of patches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, Counts, count_awl, lines_of
from formats.landing import DATA, Landed, assert_sound, given, land

from awl.conversation import ModelRef
from awl.entries import CondensationEntry, MessageEntry, TitleEntry, UnknownEntry
from awl.formats import find
from awl.formats.records import head_of
from awl.store.importing import Importer
from awl.view import view

GEMINI = find("gemini-cli")
FILES = sorted((DATA / "gemini-cli" / "project" / "chats").glob("*.jsonl"))
KILLED = FILES[0]
ANYONE = ModelRef("anyone", "any")


def left(path: Path) -> list[JSON]:
    """The messages that are left when all patches were applied."""
    if path.suffix == ".json":
        found: list[JSON] = json.loads(path.read_bytes())["messages"]
        return found
    messages: dict[str, JSON] = {}
    for line in lines_of(path):
        if "$rewindTo" in line:
            names = list(messages)
            at = names.index(line["$rewindTo"]) if line["$rewindTo"] in names else 0
            messages = {name: messages[name] for name in names[:at]}
        elif "id" in line:
            messages[line["id"]] = line
        elif "messages" in line.get("$set", {}):
            messages = {one["id"]: one for one in line["$set"]["messages"]}
    return list(messages.values())


def count_gemini(path: Path) -> Counts:
    """An independent count over the raw file."""
    counts = Counts()
    answered: set[str] = set()
    for message in left(path):
        content = message["content"]
        if isinstance(content, str):
            content = {"text": content}
        parts: list[JSON] = [content] if isinstance(content, dict) else content
        texts = [part for part in parts if part.get("text")]
        counts.images += sum("inlineData" in part for part in parts)
        if message["type"] == "user":
            counts.prompts += bool(texts)
            for part in parts:
                if "functionResponse" in part:
                    response = part["functionResponse"]["response"]
                    text = response.get("output", response.get("error"))
                    name = part["functionResponse"]["id"]
                    counts.outputs.append((name, text, "error" in response))
                    answered.add(name)
        elif message["type"] == "gemini":
            counts.answers += len(texts)
            counts.thoughts += len(message.get("thoughts") or ())
            counts.inputs += [
                (call["id"], given(call["args"])) for call in message.get("toolCalls") or ()
            ]
    for message in left(path):
        for call in message.get("toolCalls") or ():
            for part in call.get("result") or ():
                if call["id"] not in answered and "functionResponse" in part:
                    response = part["functionResponse"]["response"]
                    text = response.get("output", response.get("error"))
                    failed = call["status"] != "success"
                    counts.outputs.append((call["id"], text, failed))
    return counts


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[-8:])
def test_everything_comes_over(tmp_path: Path, path: Path) -> None:
    landed = land(path, GEMINI, tmp_path)
    assert count_awl(landed.shown) == count_gemini(path)
    assert_sound(landed)
    facts = landed.facts
    assert facts.source_id.startswith(path.stem[-8:])
    assert facts.cwd == "/home/dev/gemini-demo"
    assert (facts.provider, facts.model) == ("gemini", "gemini-2.5-flash")


def test_titles_and_tokens_come_over(tmp_path: Path) -> None:
    landed = land(FILES[1], GEMINI, tmp_path)
    (title,) = [one.title for one in landed.entries if isinstance(one, TitleEntry)]
    assert title == "Short summary or title: greeting script work."
    tokens = landed.state.tokens
    assert (tokens.own_input, tokens.own_output) == (1000, 40)


class File:
    """A log in the making."""

    def __init__(self) -> None:
        self.lines: list[JSON] = []
        self.add(sessionId="s-1", projectHash="abc", startTime="2026-01-01T00:00:00.000Z")

    def add(self, **line: Any) -> None:
        self.lines.append(line)

    def set(self, **facts: Any) -> None:
        self.lines.append({"$set": facts})

    def message(self, name: str, kind: str, content: Any, **more: Any) -> JSON:
        moment = f"2026-01-01T00:00:{len(self.lines):02}.000Z"
        message = {"id": name, "timestamp": moment, "type": kind, "content": content, **more}
        self.lines.append(message)
        return message

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "session-2026-01-01T00-00-s-1.jsonl"
        path.write_text("".join(given(line) + "\n" for line in self.lines))
        return path

    def land(self, root: Path) -> Landed:
        landed = land(self.write(root / "gemini"), GEMINI, root / "awl")
        assert_sound(landed)
        return landed


def call(name: str, output: str = "", status: str = "success") -> JSON:
    response = {"error": output} if status == "error" else {"output": output}
    result = [{"functionResponse": {"id": name, "name": "run", "response": response}}]
    return {
        "id": name,
        "name": "run",
        "args": {"command": name},
        "result": result,
        "status": status,
    }


def said(landed: Landed) -> list[str]:
    return [item.message.text for item in landed.state.items if item.message.text]


def test_of_messages_with_one_id_the_last_counts_in_the_place_of_the_first(tmp_path: Path) -> None:
    file = File()
    file.message("u1", "user", [{"text": "one"}])
    file.message("g1", "gemini", "looking", thoughts=[{"subject": "Plan", "description": "look"}])
    file.message("u2", "user", "meanwhile")
    file.message(
        "g1",
        "gemini",
        "looking",
        toolCalls=[call("a", "x"), call("b", "bad", "error")],
        thoughts=[{"subject": "Plan", "description": "look"}],
        model="gemini-3",
        tokens={"input": 10, "output": 2, "cached": 4, "thoughts": 3},
    )
    file.add(sessionId="s-1", projectHash="abc")
    file.message("g2", "gemini", [{"text": "done"}])
    landed = file.land(tmp_path)
    path = landed.facts.source_path
    assert count_awl(landed.shown) == count_gemini(path)
    assert said(landed) == ["one", "looking", "meanwhile", "done"]
    answer = next(
        one.message
        for one in landed.entries
        if isinstance(one, MessageEntry) and one.message.role == "assistant"
    )
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.cache_read) == (6, 5, 4)


def test_what_was_rewound_is_off_the_path(tmp_path: Path) -> None:
    file = File()
    for name in ("u1", "u2", "u3"):
        file.message(name, "user", name)
        file.message(f"g{name}", "gemini", f"to {name}")
    file.add(**{"$rewindTo": "u2"})
    file.message("u4", "user", "u4")
    landed = file.land(tmp_path)
    assert said(landed) == ["u1", "to u1", "u4"]
    file.add(**{"$rewindTo": "nobody knows"})
    file.message("u5", "user", "u5")
    assert said(file.land(tmp_path / "all")) == ["u5"]


def test_a_summary_that_takes_the_place_of_messages_is_a_condensation(tmp_path: Path) -> None:
    file = File()
    for name in ("u1", "u2", "u3"):
        file.message(name, "user", name)
        file.message(f"g{name}", "gemini", f"to {name}")
    kept = file.lines[-2:]
    moment = "2026-01-01T00:01:00.000Z"
    summary = {"id": "s1", "timestamp": moment, "type": "user", "content": [{"text": "so far"}]}
    ack = {"id": "s2", "timestamp": moment, "type": "gemini", "content": [{"text": "Got it."}]}
    file.set(messages=[summary, ack, *kept], lastUpdated=moment)
    file.message("u4", "user", "u4")
    landed = file.land(tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert entry.summary.session_intent == "so far"
    items = landed.state.items
    assert items[0].kind == "summary"
    assert [item.message.text for item in items[1:]] == ["u3", "to u3", "u4"]


def test_what_goes_and_comes_again_counts_where_it_stays(tmp_path: Path) -> None:
    file = File()
    file.message("u1", "user", "one")
    for name in ("u2", "u3"):
        file.message(name, "user", name)
        file.message(f"g{name}", "gemini", f"to {name}", toolCalls=[call(f"c{name}", "out")])
    again = file.lines[2:]
    file.add(**{"$rewindTo": "u2"})
    file.message("u4", "user", "meanwhile")
    file.set(messages=[file.lines[1]])
    file.lines += again
    landed = file.land(tmp_path)
    assert said(landed) == ["one", "u2", "to u2", "u3", "to u3"]
    counts = count_awl(landed.shown)
    assert (counts.prompts, counts.answers, len(counts.outputs)) == (4, 2, 2)


def test_a_list_that_only_grew_brings_what_is_new(tmp_path: Path) -> None:
    file = File()
    first = file.message("u1", "user", "u1")
    more = {**first, "id": "u2", "content": "u2"}
    file.set(messages=[first, more])
    file.message("g1", "gemini", "to both")
    file.set(messages=[first, more])
    landed = file.land(tmp_path)
    assert said(landed) == ["u1", "u2"]


def test_what_is_for_the_screen_is_kept_and_not_sent(tmp_path: Path) -> None:
    file = File()
    file.message("u1", "user", "u1")
    file.message("i1", "info", "Update available")
    landed = file.land(tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, UnknownEntry)]
    assert entry.kind == "gemini-cli:info"
    assert "Update" not in str(view(landed.state, ANYONE))


def test_pictures_belong_to_the_result_they_stand_beside(tmp_path: Path) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    file = File()
    file.message("u1", "user", [{"text": "look"}, picture])
    file.message("g1", "gemini", "", toolCalls=[call("a")])
    response = {"functionResponse": {"id": "a", "name": "run", "response": {"output": "see"}}}
    file.message("u2", "user", [response, picture])
    landed = file.land(tmp_path)
    assert count_awl(landed.shown) == count_gemini(landed.facts.source_path)
    results = [block for item in landed.state.items for block in item.message.tool_results]
    assert [len(one.images) for one in results] == [1]


ANSWER: JSON = {"functionResponse": {"id": "a", "name": "run", "response": {"output": "told"}}}


@pytest.mark.parametrize(
    "content",
    [
        [ANSWER],
        ANSWER,
        ["a text alone", ANSWER],
        [{"text": 7, **ANSWER}],
        [{"functionCall": None, **ANSWER}],
        [{"functionCall": 7, **ANSWER}],
        [{"functionCall": {"id": "b", "name": "run"}}, ANSWER],
        [{"functionResponse": {**ANSWER["functionResponse"], "parts": 7}}],
        [{"functionResponse": {**ANSWER["functionResponse"], "id": None, "name": "a"}}],
    ],
)
def test_a_call_that_a_message_answers_has_no_other_result(tmp_path: Path, content: Any) -> None:
    file = File()
    file.message("u1", "user", "go")
    file.message("g1", "gemini", "", toolCalls=[call("a", "of the call")])
    file.message("u2", "user", content)
    outputs = count_awl(file.land(tmp_path).shown).outputs
    assert [(name, text) for name, text, _ in outputs] == [("a", "told")]


def test_a_part_that_is_a_call_answers_none(tmp_path: Path) -> None:
    file = File()
    file.message("u1", "user", "go")
    file.message("g1", "gemini", "", toolCalls=[call("a", "of the call")])
    file.message("u2", "user", [{"functionCall": {"id": "b", "name": "run"}, **ANSWER}])
    outputs = count_awl(file.land(tmp_path).shown).outputs
    assert [(name, text) for name, text, _ in outputs] == [("a", "of the call")]


def context(words: str) -> JSON:
    content = [{"text": f"<session_context>{words}</session_context>"}]
    return {"id": "context", "timestamp": "", "type": "user", "content": content}


def test_a_session_that_was_resumed_has_everything_once_and_goes_on(tmp_path: Path) -> None:
    file = File()
    file.set(messages=[context("Monday")])
    asked = file.message("u1", "user", [{"text": "one"}])
    thoughts = [{"subject": "Plan", "description": "look"}]
    calls = [call("a", "of a"), call("b", "bad", "error")]
    results = [part for one in calls for part in one["result"]]
    said = file.message("g1", "gemini", "looking", thoughts=thoughts, toolCalls=calls)
    answered = file.message("u2", "user", results)
    done = file.message("g2", "gemini", "two")
    file.message("i1", "info", "for the screen")
    path = file.write(tmp_path / "gemini")
    before = land(path, GEMINI, tmp_path / "awl")
    told = [{"functionCall": {key: one[key] for key in ("id", "name", "args")}} for one in calls]
    content = [{"text": "**Plan** look", "thought": True}, {"text": "looking"}, *told]
    again = {"id": "g1_response", "timestamp": "", "type": "user", "content": results}
    file.set(sessionId="s-1")
    file.set(
        messages=[
            context("Tuesday"),
            asked,
            {**said, "content": content},
            again,
            answered,
            {**done, "content": [{"text": "two"}]},
        ]
    )
    file.message("u3", "user", [{"text": "three"}])
    file.message("g3", "gemini", "four")
    file.write(tmp_path / "gemini")
    brought = Importer(tmp_path / "awl", [before.log], str(tmp_path)).bring(path, GEMINI)
    assert brought.outcome == "grown"
    counts = count_awl(before.shown)
    assert (counts.prompts, counts.answers, counts.thoughts) == (3, 3, 1)
    assert [name for name, _ in counts.inputs] == ["a", "b"]
    assert [(name, text) for name, text, _ in counts.outputs] == [("a", "of a"), ("b", "bad")]
    assert not before.state.open_calls
    whole = file.land(tmp_path / "whole")
    assert count_awl(whole.shown) == counts


def test_a_summary_may_stand_behind_the_context(tmp_path: Path) -> None:
    file = File()
    file.set(messages=[context("Monday")])
    file.message("u1", "user", [{"text": "one"}])
    file.message("g1", "gemini", "two")
    kept = file.message("u2", "user", [{"text": "three"}])
    last = file.message("g2", "gemini", "four")
    file.message("i1", "info", "for the screen")
    summary = {"id": "s1", "timestamp": "", "type": "user", "content": [{"text": "so far"}]}
    heard = {"id": "s2", "timestamp": "", "type": "gemini", "content": [{"text": "Got it."}]}
    file.set(messages=[context("Monday"), summary, heard, kept, last])
    file.message("u3", "user", [{"text": "five"}])
    landed = file.land(tmp_path)
    (entry,) = [one for one in landed.entries if isinstance(one, CondensationEntry)]
    assert entry.summary.session_intent == "so far"
    assert said(landed)[1:] == ["three", "four", "five"]


def test_of_the_results_of_a_batch_each_call_has_its_own(tmp_path: Path) -> None:
    calls = [call("a", "of a"), call("b", "of b")]
    batch = [part for one in calls for part in one["result"]] + [{"text": "beside"}]
    file = File()
    file.message("u1", "user", "go")
    file.message("g1", "gemini", "", toolCalls=[{**one, "result": batch} for one in calls])
    landed = file.land(tmp_path)
    assert [text for _, text, _ in count_awl(landed.shown).outputs] == ["of a", "of b"]
    assert count_awl(landed.shown).prompts == 1, "nobody typed what stood beside"
    assert "beside" in str(view(landed.state, ANYONE).messages)


def test_a_part_may_be_a_text_alone(tmp_path: Path) -> None:
    file = File()
    file.message("u1", "user", ["one", {"text": "two"}, {"of a kind": "to come"}])
    landed = file.land(tmp_path)
    assert said(landed) == ["one\ntwo"]


def test_documents_of_before_read_alike(tmp_path: Path) -> None:
    file = File()
    file.message("u1", "user", "one")
    file.message(
        "g1",
        "gemini",
        "two",
        toolCalls=[call("a", "out"), call("b", "bad", "error")],
        model="gemini-2.5-pro",
    )
    document = {**file.lines[0], "messages": file.lines[1:], "summary": "A title"}
    path = tmp_path / "session-2026-01-01T00-00-s-1.json"
    path.write_text(json.dumps(document, indent=2))
    assert GEMINI.recognise(head_of(path))
    landed = land(path, GEMINI, tmp_path / "awl")
    assert count_awl(landed.shown) == count_gemini(path)
    assert_sound(landed)
    assert landed.facts.model == "gemini-2.5-pro"
    assert any(isinstance(one, TitleEntry) for one in landed.entries)
    whole = path.read_text()
    path.write_text(whole[: whole.index('"out"')])
    assert GEMINI.recognise(head_of(path))
    landed = land(path, GEMINI, tmp_path / "cut")
    assert said(landed) == ["one"]
    assert landed.report.damaged == 1


def test_a_subagents_session_belongs_to_another(tmp_path: Path) -> None:
    file = File()
    file.lines[0]["kind"] = "subagent"
    assert GEMINI.of_subagent(head_of(file.write(tmp_path)))
    assert not any(GEMINI.of_subagent(head_of(path)) for path in FILES)


def test_cut_and_garbled_it_costs_that_alone(tmp_path: Path) -> None:
    lines = KILLED.read_bytes().splitlines(keepends=True)
    for kept in range(2, len(lines)):
        cut = tmp_path / f"{kept}" / KILLED.name
        cut.parent.mkdir()
        cut.write_bytes(b"".join(lines[:kept]))
        counts = count_gemini(cut)
        cut.write_bytes(b"".join(lines[:kept]) + lines[kept][:-20])
        landed = land(cut, GEMINI, tmp_path / f"awl{kept}")
        assert landed.report.damaged == 1
        assert count_awl(landed.shown) == counts
        assert_sound(landed)
