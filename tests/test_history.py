"""The history for people: everything that was said, with what is known of it."""

from __future__ import annotations

from typing import Any

import pytest
from running import JSON, Awl, assistant, user

from awl.access import INTERRUPTED, OFF_PATH, HistoryItem
from awl.entries import Entry
from awl.history import banner_info, history
from awl.replay import read
from awl.table import Ids


def use(id: str = "t1", name: str = "bash", input: str = '{"command":"ls"}') -> JSON:
    return {"type": "toolUse", "id": id, "name": name, "input": input}


def results(*pairs: tuple[str, str], **more: Any) -> JSON:
    content = [
        {"type": "toolResult", "toolUseId": id, "content": text, **more} for id, text in pairs
    ]
    return {"type": "message", "message": {"role": "user", "content": content}}


def recorded(id: str, text: str, **more: Any) -> JSON:
    facts = {"toolUseId": id, "name": "bash", "content": text, "isError": False, "durationMs": 1}
    return {"type": "toolResult", **facts, **more}


def started(id: str) -> JSON:
    return {"type": "toolCall", "toolUseId": id, "name": "bash"}


def items(awl: Awl, *entries: JSON | bytes) -> list[HistoryItem]:
    return list(history(read(awl.write_log(*entries))))


def test_messages_come_in_file_order_with_calls_and_their_results(awl: Awl) -> None:
    prompt, answer, final = items(
        awl,
        user("Look."),
        assistant(
            {"type": "thinking", "thinking": "Hm."}, "I look.", use("t1"), use("t2", "read", "{}")
        ),
        results(("t1", "file"), ("t2", "no"), isError=True),
        assistant("Done."),
    )
    assert (prompt.kind, prompt.text, prompt.seq) == ("user", "Look.", 1)
    assert (answer.kind, answer.text, answer.thinking) == ("assistant", "I look.", "Hm.")
    assert [(line.summary, line.output, line.is_error) for line in answer.tools] == [
        ("$ ls", "file", True),
        ("read", "no", True),
    ]
    assert answer.marks == ()
    assert (final.text, final.seq, final.name) == ("Done.", 4, "scripted")


def test_only_what_has_a_label_is_looked_up_by_its_id(
    awl: Awl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many are looked up, an index of all is kept: some 150 bytes for each entry."""
    label = {"type": "label", "targetId": "00000003", "label": "here"}
    said = (user("Look."), assistant("I look."), user("And?"), assistant("So."))
    state = read(awl.write_log(*said, label))
    asked = []

    def find(ids: Ids, entry_id: str) -> int | None:
        asked.append(entry_id)
        return list(ids).index(entry_id)

    monkeypatch.setattr(Ids, "find", find)
    assert [item.marks for item in history(state)] == [(), (), ("label: here",), ()]
    assert asked == ["00000003"]


def test_what_nothing_can_change_any_more_is_not_held(awl: Awl) -> None:
    turn = [user("Look."), assistant(use()), results(("t1", "file")), assistant("Done.")]
    state = read(awl.write_log(*turn * 5))
    read_so_far: list[int] = []
    body = state.body

    def counted(position: int) -> Entry:
        read_so_far.append(position)
        return body(position)

    state.body = counted  # type: ignore[method-assign]
    ahead = [len(read_so_far) - item.seq for item in history(state)]
    assert len(ahead) == 15
    assert max(ahead) <= 2  # an answer waits for its results, and those for what follows


def test_a_call_without_a_result_holds_only_so_many_items(
    awl: Awl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("awl.history._MOST_HELD", 3)
    late = results(("t1", "late"))
    talk = [user("Look."), assistant(use()), *map(user, "abc")]
    inputs = [[*talk[:4], late, user("z")], [*talk, late, user("z")]]
    outputs = [items(awl, *entries)[1].tools[0].output for entries in inputs]
    assert outputs == ["late", "[interrupted: no result was recorded]"]


@pytest.mark.parametrize(
    ("reason", "mark"),
    [("aborted", "cancelled"), ("error", "broke off"), ("length", "cut at the limit")],
)
def test_an_answer_that_did_not_end_well_is_marked(awl: Awl, reason: str, mark: str) -> None:
    _, answer = items(awl, user("a"), assistant("b", stopReason=reason))
    assert answer.marks == (mark,)


def test_an_answer_of_another_model_than_was_asked_is_marked(awl: Awl) -> None:
    found = items(
        awl,
        user("a", provider="play", model="m-1"),
        assistant("b", model="m-1"),
        user("c"),
        assistant("d", model="m-1-dated"),
    )
    assert [item.marks for item in found] == [(), (), (), ("asked m-1",)]


@pytest.mark.parametrize(
    ("entries", "output"),
    [
        ([started("t1")], "[interrupted: started, outcome unknown; it may still run]"),
        ([started("t1"), recorded("t1", "it ran")], "it ran"),
    ],
)
def test_a_call_without_a_message_of_results_says_what_is_known(
    awl: Awl, entries: list[JSON], output: str
) -> None:
    _, answer = items(awl, user("a"), assistant(use(), stopReason="toolUse"), *entries)
    (line,) = answer.tools
    assert line.output == output
    assert INTERRUPTED in answer.marks


def test_a_call_that_awl_recorded_live_and_did_not_start_was_never_started(awl: Awl) -> None:
    _, answer = items(
        awl,
        user("a", seq=1, turnId=1),
        {**assistant(use(), stopReason="toolUse"), "seq": 2, "turnId": 1},
    )
    assert answer.tools[0].output == "[interrupted: never started]"


def test_partials_show_as_an_answer_that_was_interrupted_unless_it_came(awl: Awl) -> None:
    partial: JSON = {
        "type": "partial",
        "content": [
            {"type": "thinking", "index": 0, "thinking": "Hm."},
            {"type": "text", "index": 1, "text": "Once "},
        ],
    }
    more: JSON = {"type": "partial", "content": [{"type": "text", "index": 1, "text": "upon"}]}
    _, cut = items(awl, user("a"), partial, more)
    assert (cut.kind, cut.text, cut.thinking) == ("assistant", "Once upon", "Hm.")
    assert cut.marks == (INTERRUPTED,)
    _, cut, prompt = items(awl, user("a"), partial, user("b"))
    assert (cut.text, prompt.text) == ("Once ", "b")
    _, whole = items(awl, user("a"), partial, assistant("Once upon a time"))
    assert (whole.text, whole.marks) == ("Once upon a time", ())


def test_what_was_gone_back_from_stays_and_is_marked(awl: Awl) -> None:
    found = items(
        awl,
        user("a"),
        assistant("b"),
        user("c"),
        assistant("d"),
        {"type": "rewind", "parentId": "00000002"},
        user("e", parentId="00000005"),
    )
    assert [(item.text, OFF_PATH in item.marks) for item in found] == [
        ("a", False),
        ("b", False),
        ("c", True),
        ("d", True),
        ("went back from here", False),
        ("e", False),
    ]


def test_dividers_tell_what_happened_between_messages(awl: Awl) -> None:
    summary = {
        "sessionIntent": "Mend it",
        "filesModified": ["a.py"],
        "decisionsMade": [],
        "openQuestions": [],
        "nextSteps": [],
    }
    found = items(
        awl,
        user("a"),
        assistant("b"),
        {"type": "title", "title": "Mending"},
        {"type": "modelChange", "provider": "other", "model": "m-2"},
        {
            "type": "condensation",
            "replaced": [1, 2],
            "summary": summary,
            "tokensBefore": 9,
            "tokensAfter": 3,
        },
        {"type": "compaction", "tier": "soft", "clearedCount": 2, "cleared": [1]},
        {"type": "forkPoint", "newSessionId": "x", "at": 2},
        {"type": "import", "source": "codex", "messageCount": 2},
        {"type": "label", "targetId": "00000001", "label": "here"},
        {"type": "end", "reason": "user_quit"},
        {"type": "of tomorrow", "x": 1},
    )
    assert [item.text for item in found if item.kind == "divider"] == [
        "named: Mending",
        "switched to other/m-2",
        "from here on the model reads entries 1-2 as this summary",
        "2 old tool outputs are no longer sent",
        "forked at 2 as x",
        "imported from codex",
    ]
    assert "Mend it" in next(item.detail for item in found if "summary" in item.text)
    assert [item.text for item in found if item.kind != "divider"] == ["a", "b"]


def test_a_damaged_line_shows_as_a_gap_where_it_was(awl: Awl) -> None:
    found = items(
        awl,
        user("a"),
        b"garbage\n",
        {**assistant("c"), "parentId": "lost"},
    )
    assert [item.kind for item in found] == ["user", "divider", "assistant"]
    assert "line 3" in found[1].text


def test_blocks_that_are_no_words_are_named(awl: Awl) -> None:
    blocks: list[JSON] = [
        {"type": "image", "mimeType": "image/png", "blob": {"blob": "0" * 64, "size": 5}},
        {"type": "hologram", "x": 1},
        {"type": "redactedThinking", "data": "x"},
    ]
    _, answer = items(awl, user("a"), assistant(*blocks))
    assert answer.text == "[image, image/png, 5 bytes]\n[a block of type hologram]"
    assert answer.thinking == "[reasoning, encrypted]"


@pytest.mark.parametrize(
    "input",
    ["", "{", "[]", "null", '{"command": 5}', '{"command": null}', '{"x": {"y": []}}', "[" * 9999],
)
@pytest.mark.parametrize("name", ["bash", "read", "write", "edit", "find", "grep", "later"])
def test_a_call_with_any_input_has_a_line(awl: Awl, name: str, input: str) -> None:
    _, answer = items(awl, user("a"), assistant(use(name=name, input=input)))
    assert answer.tools[0].name == name
    assert "\n" not in answer.tools[0].summary


def test_an_id_that_repeats_answers_the_nearest_call(awl: Awl) -> None:
    found = items(
        awl,
        user("a"),
        assistant(use("t")),
        results(("t", "one")),
        assistant(use("t")),
        results(("t", "two")),
    )
    assert [item.tools[0].output for item in found if item.tools] == ["one", "two"]


def test_the_banner_says_what_is_resumed(awl: Awl) -> None:
    path = awl.write_log(
        user("a", turnId=1),
        {**assistant(use("t1"), use("t2"), stopReason="toolUse"), "turnId": 1},
        {**started("t1"), "turnId": 1},
        {**recorded("t1", "ok"), "turnId": 1},
        {**started("t2"), "turnId": 1},
        {"type": "title", "title": "Mending"},
    )
    info = banner_info(read(path), "019dc5ba", ["a notice"])
    assert (info.messages, info.turns, info.title) == (2, 1, "Mending")
    assert info.interrupted
    assert [(call.summary, call.known) for call in info.open_calls] == [
        ("$ ls", "finished"),
        ("$ ls", "started, outcome unknown; it may still run"),
    ]
    assert info.notices == ("a notice",)
    assert str(info.model) == "play/scripted"
