from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from awl.channels.display import make_console
from awl.channels.screen import Screen
from awl.events import (
    AgentEvent,
    AnswerCompleted,
    AnswerText,
    AnswerThinking,
    Condensed,
    Condensing,
    Notice,
    Retrying,
    Saved,
    ToolComposing,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Unsaved,
)

ERASE = "\r\x1b[2K"


class Stage:
    """A screen, its clock, and all that was written to it."""

    def __init__(self, *, width: int = 60, terminal: bool = False) -> None:
        self.file = io.StringIO()
        self.now = 0.0
        console = make_console(
            self.file, width=width, force_terminal=terminal, color_system=None, _environ={}
        )
        self.screen = Screen(console, clock=lambda: self.now)
        self.screen.begin()

    def plays(self, *events: AgentEvent) -> str:
        for event in events:
            self.screen.show(event)
        return self.file.getvalue()

    def waits(self, seconds: float) -> str:
        """What the status line says after a while."""
        self.now += seconds
        before = len(self.file.getvalue())
        self.screen.tick()
        return self.file.getvalue()[before:].removeprefix(ERASE)


def test_a_turn_reads_from_top_to_bottom() -> None:
    output = Stage().plays(
        TurnStarted("s", 1),
        AnswerThinking("hm\nlet me "),
        AnswerThinking("see"),
        AnswerText("I **look"),
        AnswerText("** first."),
        ToolComposing("bash"),
        AnswerCompleted("e1", "toolUse", "m"),
        ToolStarted("t1", "bash", "$ ls"),
        ToolOutput("t1", "a\n"),
        ToolFinished("t1", "bash", "a\nb", False, 5),
        ToolStarted("t2", "read", "read x"),
        ToolFinished("t2", "read", "no such file", True, 5),
        AnswerText("There it is."),
        AnswerCompleted("e2", "stop", "m"),
        TurnEnded("stop"),
    )
    assert output == (
        "\n  │ hm\n  │ let me see\n\nI look first.\n\n● bash  $ ls\n  │ a\n  │ b\n"
        "● read  x\n  │ no such file\n\nThere it is.\n\n"
    )


def test_tools_that_run_side_by_side_keep_their_results() -> None:
    output = Stage().plays(
        ToolStarted("a", "read", "read a"),
        ToolStarted("b", "read", "read b"),
        ToolStarted("c", "read", "read c"),
        ToolFinished("a", "read", "of a", False, 1),
        ToolFinished("c", "read", "of c", False, 1),
        ToolFinished("b", "read", "of b", False, 1),
    )
    assert output == "\n● read  a\n  │ of a\n● read  c\n  │ of c\n● read  b\n  │ of b\n"


def test_a_call_that_never_ran_is_named() -> None:
    output = Stage().plays(ToolFinished("x", "fly", "There is no tool 'fly'.", True, 0))
    assert output == "\n● fly\n  │ There is no tool 'fly'.\n".replace(
        "fly\n  │ T", "fly  \n  │ T", 1
    )


def test_a_tool_that_was_asked_about_is_shown_once() -> None:
    stage = Stage()
    stage.screen.tool("t", "bash", "$ ls")
    output = stage.plays(
        ToolStarted("t", "bash", "$ ls"), ToolFinished("t", "bash", "done", False, 1)
    )
    assert output.count("● bash") == 1


def test_what_is_unsaved_is_said_once_each_time_it_changes_and_then_that_it_is_saved() -> None:
    one, two = Unsaved("NOT SAVED to x (1 waiting)", 1), Unsaved("NOT SAVED to x (2 waiting)", 2)
    output = Stage().plays(one, one, two, two, Saved(2), one)
    assert output.count("(1 waiting)") == 2
    assert output.count("(2 waiting)") == 1
    assert output.index("✓ Saved") > output.index("(2 waiting)")


def test_how_a_turn_ended_is_said() -> None:
    assert "Stopped." in Stage().plays(AnswerText("half an ans"), TurnEnded("aborted"))
    assert "bad key" in Stage().plays(TurnEnded("error", error="bad key"))
    assert "limit" in Stage().plays(TurnEnded("length"))
    assert "go on" in Stage().plays(TurnEnded("max_turns", error="say `go on`"))
    unsaved = Stage().plays(Unsaved("NOT SAVED", 0), TurnEnded("unsaved", error="NOT SAVED"))
    assert unsaved.count("NOT SAVED") == 1
    refused = TurnEnded("unsaved", error="x", prompt_refused=True)
    assert "input line" in Stage().plays(refused)


def test_notices_and_retries_do_not_break_into_a_line_of_the_answer() -> None:
    output = Stage().plays(
        AnswerText("one"), Notice("a notice"), Retrying("overloaded", 4.0), AnswerText("two ")
    )
    assert output == "\none\n\na notice\nNo answer: overloaded; asking again in 4 s\n\ntwo"


def test_the_status_line_says_what_goes_on_and_for_how_long() -> None:
    stage = Stage(terminal=True)
    assert stage.waits(0.1) == ""  # nothing flashes up when the answer comes at once
    assert "waiting 3s" in stage.waits(3.0)
    stage.plays(AnswerThinking("what if\nit rains"))
    assert "thinking 2s · it rains" in stage.waits(2.5)
    stage.plays(ToolComposing("bash"))
    assert "writing a call of bash 1s" in stage.waits(1.5)
    stage.plays(ToolStarted("t", "bash", "$ make"), ToolOutput("t", "compiling x.c\n"))
    assert "running bash 12s · compiling x.c" in stage.waits(12.5)
    stage.screen.stopping()
    stage.plays(ToolFinished("t", "bash", "", True, 1))
    assert "stopping" in stage.waits(1.5)


def test_a_condensation_is_shown_while_it_is_made_and_what_it_came_to() -> None:
    stage = Stage(terminal=True)
    stage.plays(Condensing(1200, 48_000))
    assert "condensing 1,200 entries 20s" in stage.waits(20.0)
    stage.plays(Condensing(1200, 48_000, 2, 6))
    assert "condensing 1,200 entries 30s · part 2 of 6" in stage.waits(10.0)
    shown = stage.plays(Condensed("e1", 1200, 48_000, 6_000))
    assert "condensed 1,200 entries: 48,000 -> 6,000 tokens" in shown
    assert "waiting" in stage.waits(1.0)


def test_the_status_line_never_stands_in_a_line_of_the_answer() -> None:
    stage = Stage(terminal=True)
    stage.plays(AnswerText("a word "))
    assert stage.waits(5.0) == ""
    stage.plays(AnswerText("and the end\n"))
    assert "writing" in stage.waits(5.0)
    assert stage.plays(AnswerText("next ")).endswith(ERASE + "next")


def test_the_status_line_stands_back_while_a_question_is_asked() -> None:
    stage = Stage(terminal=True)
    stage.waits(1.5)
    stage.screen.pause(True)
    assert stage.file.getvalue().endswith(ERASE)
    assert stage.waits(1.5) == ""
    stage.screen.pause(False)
    assert "waiting 1s" in stage.waits(1.5)


def test_the_status_line_warns_while_something_is_unsaved() -> None:
    stage = Stage(terminal=True)
    stage.plays(Unsaved("NOT SAVED", 3))
    assert "⚠ 3 NOT SAVED" in stage.waits(1.5)
    stage.plays(Saved(3))
    assert "NOT SAVED" not in stage.waits(1.5)


def test_there_is_no_status_line_where_it_could_not_be_erased() -> None:
    assert Stage(terminal=False).waits(5.0) == ""


words = st.text(st.sampled_from("ab \n*`|#\x1b\x9b\r\x07\u202e\t日"), max_size=20)
events = st.one_of(
    st.builds(AnswerText, words),
    st.builds(AnswerThinking, words),
    st.builds(ToolComposing, words),
    st.builds(ToolStarted, st.sampled_from("xyz"), words, words),
    st.builds(ToolOutput, st.sampled_from("xyz"), words),
    st.builds(ToolFinished, st.sampled_from("xyz"), words, words, st.booleans(), st.just(1)),
    st.builds(Notice, words),
    st.builds(Condensing, st.integers(0, 9999), st.just(1)),
    st.builds(Condensed, words, st.just(1), st.just(9), st.just(2)),
    st.builds(Unsaved, words, st.integers(0, 3)),
    st.builds(Saved, st.just(1)),
    st.builds(Retrying, words, st.just(1.0)),
    st.builds(AnswerCompleted, words, st.just("stop"), words),
    st.builds(TurnEnded, st.sampled_from(["stop", "aborted", "error"]), error=words),
)


@given(st.lists(st.one_of(events, st.none()), max_size=30), st.integers(1, 50))
def test_no_order_of_events_acts_on_the_terminal_or_breaks_it(
    played: list[AgentEvent | None], width: int
) -> None:
    stage = Stage(width=width, terminal=True)
    for event in played:
        if event is None:
            stage.waits(0.5)
        else:
            stage.plays(event)
    output = stage.file.getvalue().replace(ERASE, "")
    assert not set(output) & set("\x1b\x9b\r\x07\u202e\t")
