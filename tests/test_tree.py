"""The branches of a session, for programs and as they are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from histories import ANTHROPIC, JUMPS, NAMING, TALK, examples, histories, replayed, story
from hypothesis import given
from running import HARMFUL, Awl, assistant, say, user

from awl.conversation import text_message
from awl.entries import CondensationEntry, ForkedFrom, Summary
from awl.index.info import SessionInfo
from awl.session import Session
from awl.tree import MOST_ROWS, Node, children_of, drawn, tree


@pytest.fixture
def session() -> Session:
    return Session.unkept(".", ANTHROPIC)


def turn(session: Session, text: str) -> str:
    """A prompt and its answer; the id of the answer."""
    session.append_message(text_message("user", text))
    return session.append_message(text_message("assistant", f"so {text}"), stop_reason="stop")


def shape(nodes: list[Node]) -> list[tuple[int, str]]:
    return [(node.depth, node.text) for node in nodes]


def fork_of(parent: str, seq: int, title: str = "a copy") -> SessionInfo:
    return SessionInfo(
        id="019dc5ba-0000-71a5-ab8f-b1f8709c2572",
        title=title,
        status="idle",
        cwd="/",
        provider="p",
        model="m",
        created="2026-04-25T17:40:15.990Z",
        updated="",
        message_count=0,
        event_count=0,
        path="/x.jsonl",
        forked_from=ForkedFrom(session_id=parent, seq=seq),
    )


# -- what the tree says ----------------------------------------------------------------------------


def test_what_was_gone_back_from_hangs_where_it_was_left(session: Session) -> None:
    one = turn(session, "one")
    two = turn(session, "two")
    session.rewind(one)
    turn(session, "instead")
    session.rewind(two)
    turn(session, "three")
    assert shape(tree(session.state)) == [
        (0, "one"),
        (1, "went back to 2"),
        (1, "instead"),
        (0, "two"),
        (0, "went back to 4"),
        (0, "three"),
    ]


def test_going_back_to_the_beginning_leaves_everything_on_a_branch(session: Session) -> None:
    turn(session, "one")
    session.rewind(None)
    turn(session, "anew")
    assert shape(tree(session.state)) == [
        (1, "one"),
        (0, "went back to the beginning"),
        (0, "anew"),
    ]


def test_labels_and_the_leaf_are_marked(session: Session) -> None:
    one = turn(session, "one")
    turn(session, "two")
    session.label(one, "good")
    first, second = tree(session.state)
    assert [(label.label, label.entry_id) for label in first.labels] == [("good", one)]
    assert (first.leaf, second.leaf) == (False, True)
    assert (second.entries, second.last_id) == (3, session.leaf_id)


def test_condensations_are_shown(session: Session) -> None:
    turn(session, "one")
    turn(session, "two")
    summary = Summary(session_intent="counting")
    session.append(
        CondensationEntry(replaced=(1, 2), summary=summary, tokens_before=9, tokens_after=1)
    )
    turn(session, "three")
    assert shape(tree(session.state)) == [
        (0, "one"),
        (0, "two"),
        (0, "condensed 1-2: counting"),
        (0, "three"),
    ]


def test_forks_hang_where_they_were_made(session: Session) -> None:
    turn(session, "one")
    turn(session, "two")
    forks = [fork_of(session.id, 4, "late"), fork_of(session.id, 1, "early")]
    others = [fork_of("another", 1)]
    nodes = tree(session.state, children_of(session.id, [*forks, *others]))
    assert shape(nodes) == [(0, "one"), (1, "early"), (0, "two"), (1, "late")]
    beyond = tree(session.state, [fork_of(session.id, 99, "lost")])
    assert shape(beyond)[0] == (1, "lost")


@examples(60)
@given(histories(*TALK, *NAMING, *JUMPS, "rewind", "rewind", most=30))
def test_every_entry_is_in_one_stretch_and_the_path_is_what_stands_at_the_left(
    steps: list[tuple[str, int, str]],
) -> None:
    with story() as told:
        told.play(steps)
        state = told.session.state
        nodes = tree(state)
        assert sum(node.entries for node in nodes) == len(state.entries)
        on_path = {state.entries[position].id for position in state.path}
        left = [node for node in nodes if node.depth == 0]
        assert {node.entry_id for node in left} <= on_path
        assert sum(node.entries for node in left) == len(state.path)
        assert [node.leaf for node in nodes] == [node is nodes[-1] for node in nodes]
        for node in nodes:
            assert (node.parent_id is None) or state.find(node.parent_id) is not None
        lines = "\n".join(drawn(nodes))
        assert HARMFUL.search(lines) is None
        assert lines.count("← here") == bool(state.entries)


# -- how it is drawn -------------------------------------------------------------------------------


def test_a_long_stretch_is_cut_short_but_what_is_named_stays(session: Session) -> None:
    for number in range(200):
        answer = turn(session, f"prompt {number}")
        if number == 100:
            session.label(answer, "half-way")
    lines = list(drawn(tree(session.state)))
    assert len(lines) < 30
    assert sum("more prompts" in line for line in lines) == 2
    assert any("half-way" in line for line in lines)
    assert "prompt 0 " in lines[0] and "prompt 199" in lines[-1]


def test_however_many_and_however_deep_the_branches_the_drawing_is_bounded(
    session: Session,
) -> None:
    root = turn(session, "root")
    for number in range(MOST_ROWS):
        inner = turn(session, f"inner {number}")
        session.rewind(inner)
        session.append_message(text_message("user", "aside"))
        session.rewind(inner)
    session.rewind(root)
    nodes = tree(session.state)
    lines = list(drawn(nodes))
    assert len(lines) == MOST_ROWS + 1
    assert lines[0].startswith("… ")
    assert max(map(len, lines)) < 200
    assert lines[-1].endswith("← here")


def test_of_what_was_left_on_disk_only_prompts_are_read(tmp_path: Path) -> None:
    session = Session.create(tmp_path, "/", ANTHROPIC)
    for number in range(50):
        turn(session, f"prompt {number}")
    summary = Summary(session_intent="x")
    session.append(
        CondensationEntry(replaced=(1, 100), summary=summary, tokens_before=9, tokens_after=1)
    )
    session.close()
    state = replayed(session.path, lazily=True)
    from_disk, reads = state.read, list[int]()

    def read(start: int, end: int) -> bytes:
        reads.append(start)
        return from_disk(start, end)

    state.read = read
    assert sum(node.kind == "prompt" for node in tree(state)) == 50
    assert len(reads) < 50 * 2 + 10


# -- the command -----------------------------------------------------------------------------------


def test_the_command_draws_the_tree_and_gives_it_to_programs(awl: Awl) -> None:
    awl.write_log(
        user("one\x1b[31m\nmore"),
        assistant("so"),
        user("two"),
        {"type": "rewind", "parentId": "00000002"},
        user("three"),
        {"type": "label", "targetId": "00000002", "label": "good\x9b"},
    )
    child = "019dc5bb-53f6-71a5-ab8f-b1f8709c2572"
    log = awl.write_log(user("one"), id=child)
    parent = '"forkedFrom":{"sessionId":"019dc5ba-53f6-71a5-ab8f-b1f8709c2572","seq":2},'
    log.write_text(log.read_text().replace('"version"', parent + '"version"'))
    shown = awl("sessions", "tree", "019dc5ba")
    assert HARMFUL.search(shown.out) is None
    assert [line[:5] for line in shown.lines[1:]] == ["● 1  ", "├─○ 2", "├─● 3", "○ 4  ", "● 5  "]
    assert "[good\\x9b: 00000002]" in shown.lines[1]
    assert "fork 019dc5bb" in shown.lines[2]
    assert "ends in 00000003" in shown.lines[3]
    assert shown.lines[-1].endswith("three  (2 entries)  ← here")
    told = awl("sessions", "tree", "019dc5ba", "--json").json
    assert told["leaf"] == "00000006"
    assert [node["kind"] for node in told["nodes"]] == [
        *("prompt", "fork", "prompt", "rewind", "prompt")
    ]
    assert told["nodes"][1]["session_id"] == child
    assert "fork of 019dc5ba at 2" in awl("sessions", "tree", "019dc5bb").lines[0]


def test_damage_is_told_and_hides_no_branch(awl: Awl) -> None:
    awl.write_log(user("one"), b"garbage\n", user("two"))
    shown = awl("sessions", "tree", "019dc5ba")
    assert "only this line is lost" in shown.err
    assert [line.split("  ")[2] for line in shown.lines[1:]] == ["one", "two"]


def test_a_conversation_without_a_log_has_no_tree(awl: Awl) -> None:
    awl.plays([say("Hi.")], settings="[session]\nenabled = false")
    awl("-p", "one")
    assert "has no log" in awl("sessions", "tree", "#1", code=1).err
