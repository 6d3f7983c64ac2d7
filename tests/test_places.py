"""Places in a session: which prompt, entry or label is meant, and where going back there leads."""

from __future__ import annotations

from pathlib import Path

import pytest
from histories import ANTHROPIC, CWD, JUMPS, NAMING, TALK, examples, histories, story
from hypothesis import given
from hypothesis import strategies as st

from awl.conversation import Message, ToolResult, ToolUse, text_message
from awl.entries import CondensationEntry, MessageEntry, RewindEntry, Summary
from awl.errors import AwlError, InvalidTarget
from awl.places import going_back, labelling, labels, prompts
from awl.session import Session
from awl.view import view


@pytest.fixture
def session() -> Session:
    return Session.unkept(".", ANTHROPIC)


def turn(session: Session, text: str) -> str:
    """A prompt and its answer; the id of the answer."""
    session.append_message(text_message("user", text))
    return session.append_message(text_message("assistant", f"so {text}"), stop_reason="stop")


def rewind(session: Session, name: str) -> str | None:
    """Go back to a place; the prompt that returns."""
    went = going_back(session.state, name)
    session.append(RewindEntry(parent_id=went.entry_id))
    return went.prompt


def label(session: Session, words: str) -> str:
    name, _, entries = labelling(session.state, words)
    session.append_many(entries)
    return name


def sent(session: Session) -> list[str]:
    return [message.text for message in view(session.state, ANTHROPIC).messages]


# -- going back ------------------------------------------------------------------------------------


def test_a_number_counts_prompts_from_the_last_and_leads_to_before_it(session: Session) -> None:
    session.append_message(text_message("system", "Be nice."))
    for text in ("one", "two", "three"):
        turn(session, text)
    assert [(prompt.number, prompt.text) for prompt in prompts(session.state)] == [
        (1, "three"),
        (2, "two"),
        (3, "one"),
    ]
    assert rewind(session, "2") == "two"
    assert sent(session) == ["one", "so one"]
    turn(session, "instead")
    assert sent(session) == ["one", "so one", "instead", "so instead"]
    assert rewind(session, "2") == "one"
    assert sent(session) == []
    assert view(session.state, ANTHROPIC).system == "Be nice."


def test_the_first_of_all_prompts_can_be_gone_back_from(session: Session) -> None:
    turn(session, "one")
    assert rewind(session, "1") == "one"
    assert session.state.path_to(session.state.leaf) == [session.state.leaf]
    assert list(prompts(session.state)) == []


def test_an_entry_of_a_branch_that_was_left_is_gone_on_from(session: Session) -> None:
    turn(session, "one")
    tip = turn(session, "left")
    rewind(session, "1")
    turn(session, "instead")
    assert rewind(session, tip) is None
    assert sent(session) == ["one", "so one", "left", "so left"]


def test_a_label_names_a_place_on_any_branch_and_moves(session: Session) -> None:
    turn(session, "one")
    assert label(session, "  good   place ") == "good place"
    turn(session, "two")
    assert rewind(session, "good place") is None
    assert sent(session) == ["one", "so one"]
    later = turn(session, "three")
    label(session, f"good place {later}")
    assert labels(session.state) == {"good place": session.state.find(later)}
    turn(session, "four")
    rewind(session, "good place")
    assert sent(session)[-1] == "so three"


def test_the_label_of_a_prompt_leads_to_before_it(session: Session) -> None:
    prompt = session.append_message(text_message("user", "one"))
    label(session, f"start {prompt}")
    assert [one.label for one in prompts(session.state)] == ["start"]
    turn(session, "two")
    assert rewind(session, "start") == "one"


def test_going_back_to_behind_a_condensation_brings_back_what_it_replaced(
    session: Session,
) -> None:
    for text in ("one", "two", "three"):
        turn(session, text)
    session.append(
        CondensationEntry(
            replaced=(1, 4), summary=Summary(session_intent="x"), tokens_before=9, tokens_after=1
        )
    )
    assert "so one" not in sent(session)
    assert [prompt.text for prompt in prompts(session.state)] == ["three", "two", "one"]
    assert rewind(session, "2") == "two"
    assert sent(session) == ["one", "so one"]


def test_going_back_into_a_batch_of_tools_gives_what_a_model_takes(session: Session) -> None:
    session.append_message(text_message("user", "one"))
    use = ToolUse(id="t1", name="bash", input="{}")
    asked = session.append_message(Message("assistant", (use,)), stop_reason="toolUse")
    session.append_message(Message("user", (ToolResult(tool_use_id="t1", content="done"),)))
    assert [prompt.text for prompt in prompts(session.state)] == ["one"]
    rewind(session, asked)
    session.append_message(text_message("user", "two"))
    (result,) = view(session.state, ANTHROPIC).messages[2].tool_results
    assert result.is_error and "done" not in result.content


@pytest.mark.parametrize("name", ["0", "3", "99999999999999999999999", "nothing", "", "²", "-1"])
def test_what_names_nothing_is_refused_and_says_what_lists_the_places(
    session: Session, name: str
) -> None:
    turn(session, "one")
    turn(session, "two")
    with pytest.raises(InvalidTarget, match="/rewind lists"):
        going_back(session.state, name)


def test_where_the_session_is_cannot_be_gone_back_to(session: Session) -> None:
    here = turn(session, "one")
    with pytest.raises(InvalidTarget, match="where the session is"):
        going_back(session.state, here)


def test_an_entry_whose_id_came_again_cannot_be_named(tmp_path: Path) -> None:
    made = Session.create(tmp_path, CWD, ANTHROPIC)
    first = turn(made, "one")
    turn(made, "two")
    last = turn(made, "three")
    made.close()
    made.path.write_text(made.path.read_text().replace(f'"id":"{last}"', f'"id":"{first}"'))
    again = Session.open(made.path)
    try:
        assert going_back(again.state, "1").prompt == "three"
        with pytest.raises(InvalidTarget, match="twice"):
            going_back(again.state, "2")
    finally:
        again.close()


@pytest.mark.parametrize("name", ["", "  ", "12", "٣", "all"])
def test_a_label_needs_a_letter(session: Session, name: str) -> None:
    turn(session, "one")
    with pytest.raises(AwlError, match="letter"):
        labelling(session.state, name)


def test_a_label_is_given_to_what_there_is(session: Session) -> None:
    with pytest.raises(AwlError, match="nothing was said"):
        labelling(session.state, "x")
    answer = turn(session, "one")
    with pytest.raises(InvalidTarget, match="no entry 0123abcd"):
        labelling(session.state, "x 0123abcd")
    with pytest.raises(AwlError, match="entry's id"):
        labelling(session.state, answer)


@examples(40)
@given(histories(*TALK, *NAMING, *JUMPS, most=20), st.integers(0, 99))
def test_before_any_prompt_the_path_is_what_came_before_it(
    steps: list[tuple[str, int, str]], n: int
) -> None:
    with story() as told:
        told.play(steps)
        session = told.session
        found = list(prompts(session.state))
        if not found:
            return
        picked = found[n % len(found)]
        position = session.state.find(picked.entry_id)
        assert position is not None
        before = session.state.path_to(position)[:-1]
        assert rewind(session, str(picked.number)) == picked.text
        assert session.state.path == [*before, session.state.leaf]
        entry = session.state.body(position)
        assert isinstance(entry, MessageEntry) and entry.message.said().text == picked.text
