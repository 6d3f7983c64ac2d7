from __future__ import annotations

import io
import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from awl.access import INTERRUPTED, OFF_PATH, BannerInfo, HistoryItem, OpenCall, Reply, ToolLine
from awl.channels.display import (
    SAYS,
    banner,
    call_details,
    excerpt,
    make_console,
    print_history,
    show_reply,
    tool_line,
    tool_result,
)
from awl.conversation import ModelRef, ToolUse

HOSTILE = "\x1b[2J\x9b1m\u202e[bold]:smile:"

CLEAN = BannerInfo(
    session_id="019dc5ba", last_active="2026-04-25T17:40:15.990Z", messages=1, turns=1
)
NOW = datetime.fromisoformat("2026-04-25T19:45:00Z")


def history(*items: HistoryItem, width: int = 60) -> str:
    file = io.StringIO()
    print_history(items, make_console(file, width=width, color_system=None))
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def call(**fields: object) -> ToolUse:
    return ToolUse(id="t", name="write", input=json.dumps(fields))


def test_the_banner_says_when_how_much_and_with_whom() -> None:
    text = banner(CLEAN, now=NOW).plain
    assert "Resumed 019dc5ba" in text
    assert "last active 2 hours ago (2026-04-25 " in text
    assert "1 message, 1 turn" in text
    assert "/history" in text
    assert "interrupted" not in text


def test_the_banner_says_where_tools_run_and_of_whom_it_is_a_fork() -> None:
    info = replace(CLEAN, cwd="/home/\x1b[2Jdev", forked_from="019dc5bb at 12")
    text = banner(info, now=NOW).plain
    assert "in /home/␛[2Jdev" in text
    assert "a fork of 019dc5bb at 12" in text


def test_a_brief_banner_says_which_session_it_is_and_what_is_wrong() -> None:
    info = replace(CLEAN, cwd="/home/dev", brief=True, notices=("2 damaged lines",))
    assert banner(info, now=NOW).plain == "Resumed 019dc5ba\n  2 damaged lines"


def test_a_session_that_came_from_another_program_is_not_said_to_have_no_turns() -> None:
    info = replace(CLEAN, messages=29, turns=0)
    assert "29 messages" in banner(info, now=NOW).plain
    assert "turn" not in banner(info, now=NOW).plain


def test_the_banner_says_what_is_known_of_each_open_call() -> None:
    info = BannerInfo(
        session_id="019dc5ba",
        title="Fix the parser",
        last_active="2026-04-25T17:40:15.990Z",
        messages=1400,
        turns=3,
        model=ModelRef("local", "smollm2"),
        interrupted=True,
        open_calls=(
            OpenCall(name="bash", summary="$ make", known="started, outcome unknown"),
            OpenCall(name="read", summary="read x", known="never started"),
        ),
        notices=("2 damaged lines were skipped",),
    )
    text = banner(info, now=NOW).plain
    assert "Fix the parser" in text
    assert "1,400 messages, 3 turns · local/smollm2" in text
    assert "interrupted in the middle of a turn" in text
    assert "bash  $ make  (started, outcome unknown)" in text
    assert "never started" in text
    assert "2 damaged lines were skipped" in text


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("2026-04-25T19:44:30Z", "just now"),
        ("2026-04-25T19:43:00Z", "2 minutes ago"),
        ("2026-04-24T19:43:00Z", "1 day ago"),
        ("2030-01-01T00:00:00Z", "in the future"),
        ("yesterday\x1b[2J", "yesterday␛[2J"),
        ("", "unknown time"),
        ("0001-01-01T00:00:00Z", "last active"),
        ("9999-12-31T23:59:59Z", "last active"),
    ],
)
def test_the_banner_survives_any_clock(last: str, said: str) -> None:
    info = BannerInfo(session_id="x", last_active=last, messages=0, turns=0)
    assert said in banner(info, now=NOW).plain


def test_history_says_who_said_what() -> None:
    output = history(
        HistoryItem(kind="user", text="fix it\nplease", timestamp="2026-04-25T12:00:00Z"),
        HistoryItem(
            kind="assistant",
            name="claude",
            text="I **look**.",
            thinking="\n".join(map(str, range(10))),
            tools=(
                ToolLine(name="bash", summary="$ ls", output="\n".join("abcdefghij")),
                ToolLine(name="read", summary="read x", output="no such file", is_error=True),
            ),
            timestamp="2026-04-25T12:01:00Z",
        ),
        HistoryItem(kind="divider", text="a line is missing here", detail="it was damaged"),
        HistoryItem(kind="user", text="again", marks=(OFF_PATH,), timestamp="2026-04-27T12:00:00Z"),
        HistoryItem(kind="assistant", marks=(INTERRUPTED,)),
    )
    for part in (
        "── Saturday 25 April 2026 ──",
        f"you {SAYS}fix it\nplease",
        f"claude {SAYS.strip()}\n  │ 0\n  │ 1\n  │ 2\n  │ … (+7 lines)\nI look.",
        "● bash  $ ls\n  │ a\n  │ b\n  │ c\n  │ … (+5 lines)\n  │ i\n  │ j",
        "● read  x\n  │ no such file",
        "── a line is missing here ──\nit was damaged",
        "── Monday 27 April 2026 ──",
        f"you (not on the current path) {SAYS}again",
        f"model (interrupted) {SAYS.strip()}",
    ):
        assert part in output


@given(st.integers(1, 40))
def test_history_is_harmless_at_any_width(width: int) -> None:
    tool = ToolLine(name=HOSTILE, summary=HOSTILE, output=HOSTILE)
    output = history(
        *(
            HistoryItem(
                kind=kind,
                text=f"text {HOSTILE}",
                name=HOSTILE,
                detail=HOSTILE,
                thinking=HOSTILE,
                tools=(tool,),
                timestamp=HOSTILE,
                marks=(HOSTILE,),
            )
            for kind in ("user", "assistant", "system", "divider")
        ),
        width=width,
    )
    assert not set(output) & set("\x1b\x9b\u202e")
    assert "😄" not in output


def test_a_summary_does_not_say_the_tools_name_twice() -> None:
    assert tool_line("read", "read src/x.py", width=80).plain == "● read  src/x.py"
    assert tool_line("bash", "$ ls", width=80).plain == "● bash  $ ls"


def test_an_excerpt_keeps_indentation_and_says_how_much_is_left() -> None:
    text = "def f():\n    return 1\n\n" + "x" * 100
    assert excerpt(text, width=24, lines=5, style="").plain.split("\n") == [
        "  │ def f():",
        "  │     return 1",
        "  │ ",
        "  │ xxxxxxxxxxxxxxxxxx…",
    ]
    assert (
        excerpt("1\n2\n3\n4", width=24, lines=2, style="").plain == "  │ 1\n  │ 2\n  │ … (+2 lines)"
    )


def test_an_error_is_not_cut_at_the_edge() -> None:
    text = tool_result("The user did not allow it.", is_error=True, width=20).plain
    assert text.replace("\n  │ ", "").removeprefix("  │ ") == "The user did not allow it."


def test_a_question_shows_all_of_a_call_that_its_line_does_not() -> None:
    assert call_details(call(path="x.py"), "write x.py", width=80) == []
    rows = call_details(call(path="x.py", content="a\nb", n=3), "write x.py", width=80)
    assert rows == ["content:", "a", "b", "n: 3"]


@pytest.mark.parametrize("content", ["x", "x.py", "py", " ", ""])
def test_no_value_is_left_out_because_the_line_happens_to_hold_it(content: str) -> None:
    rows = call_details(call(path="x.py", content=content), "write x.py", width=80)
    assert rows == [f"content: {content}"]


def test_a_long_command_is_shown_to_its_end_before_it_may_run() -> None:
    command = "echo " + "harmless " * 30 + "; rm -rf ~"
    rows = call_details(call(command=command), f"$ {command}", width=40)
    assert "".join(rows) == f"command: {command}"
    assert max(map(len, rows)) <= 36


def test_a_command_of_several_lines_is_shown_whole() -> None:
    assert call_details(call(command="ls\nrm x"), "$ ls\nrm x", width=80)[-1] == "rm x"


@pytest.mark.parametrize("input", ["[1]", "not json", "[" * 100_000])
def test_an_input_that_is_no_object_is_shown_as_it_is(input: str) -> None:
    rows = call_details(ToolUse(id="t", name="x", input=input), "x", width=200_000)
    assert rows == [f"input: {input}"]


def test_replies_are_shown_as_what_they_are() -> None:
    def shown(reply: Reply) -> str:
        file = io.StringIO()
        show_reply(reply, make_console(file, width=60, color_system=None))
        return file.getvalue()

    assert shown(Reply(text="a **b** [red]")) == "a **b** [red]\n"
    assert shown(Reply(text="a **b**", markdown=True)) == "a b\n"
    assert shown(Reply(text=f"no {HOSTILE}", is_error=True)).startswith(
        "no ␛[2J\\x9b1m\\u202e[bold]"
    )
    assert shown(Reply(quit=True)) == ""
    assert shown(Reply(text="more", history=(HistoryItem(kind="user", text="x"),))) == (
        f"you {SAYS}x\n\nmore\n"
    )


def test_rows_are_cut_and_paths_are_not() -> None:
    def shown(reply: Reply, width: int) -> str:
        file = io.StringIO()
        show_reply(reply, make_console(file, width=width, color_system=None))
        return file.getvalue()

    path = "/home/dev/" + "x" * 60 + "/log.jsonl"
    row, blank, text = shown(Reply(rows=("a row " * 20,), text=f"in {path}"), 40).splitlines()
    assert row.startswith("a row a row") and row.endswith("…") and len(row) <= 40
    assert (blank, text) == ("", f"in {path}")
    words = "words that fit are wrapped between"
    assert shown(Reply(text=words), 20).split() == words.split()
    assert shown(Reply(text=words), 20).count("\n") == 2
