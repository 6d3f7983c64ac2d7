"""The terminal on a real pty: what a person types, what reaches the screen, and signals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from channels.talk import HOSTILE, SCRIPT

LIMIT = 20.0
"""Seconds after which something that should happen has not."""

TALK = Path(__file__).with_name("talk.py")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")
TOOLBAR = "test/model · 019dc5ba"

UP, CTRL_C, CTRL_D, CTRL_J, ALT_ENTER, ENTER = "\x1b[A", "\x03", "\x04", "\n", "\x1b\r", "\r"


class Person:
    """Sits at a terminal that runs `talk.py`."""

    def __init__(
        self, folder: Path, *options: str, columns: int = 80, env: dict[str, str] | None = None
    ) -> None:
        self.journal, self.history = folder / "journal", folder / "private" / "history"
        self.journal.touch()
        self.fd, slave = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen(
            [sys.executable, str(TALK), str(self.journal), str(self.history), *options],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", **(env or {})},
        )
        os.close(slave)
        self.raw = b""
        self._seen = 0

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def types(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    @property
    def screen(self) -> str:
        """All that was ever written, without the terminal's own sequences."""
        return CONTROL.sub("", self.raw.decode("utf-8", "replace"))

    def sees(self, text: str) -> str:
        """Wait until the text appears after what was seen last; what came before it."""
        self._until(lambda: text in self.screen[self._seen :], text)
        at = self.screen.index(text, self._seen)
        before = self.screen[self._seen : at]
        self._seen = at + len(text)
        return before

    def is_asked(self) -> None:
        """Wait for the next input line."""
        self.sees(TOOLBAR)

    def hears(self, *facts: object) -> None:
        """Wait until the app was asked this."""
        self._until(lambda: [*facts] in self.asked, facts)

    def leaves(self) -> int:
        """Wait for the end; the exit code."""
        self._until(lambda: self.process.poll() is not None, "the end")
        return self.process.wait()

    def hangs_up(self) -> None:
        os.close(self.fd)
        self.fd = -1

    @property
    def asked(self) -> list[list[object]]:
        lines = self.journal.read_text().split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def _until(self, condition: object, what: object) -> None:
        assert callable(condition)
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, f"{what!r} did not come; there is: {self.screen!r}"
            self._read()

    def _read(self) -> None:
        if self.fd < 0:
            time.sleep(0.01)
        elif select.select([self.fd], [], [], 0.05)[0]:
            try:
                self.raw += os.read(self.fd, 65_536)
            except OSError:  # Linux: the other side has closed it
                time.sleep(0.01)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    someone = Person(tmp_path)
    try:
        someone.is_asked()
        yield someone
    finally:
        someone.close()


# -- typing ----------------------------------------------------------------------------------------


def test_a_prompt_is_answered_and_ctrl_d_leaves(person: Person) -> None:
    person.types("hello there" + ENTER)
    person.sees("You said 11 letters.")
    person.sees(f"{TOOLBAR} · 12,345 tokens in, 67 out")
    person.types(CTRL_D)
    assert person.leaves() == 0
    assert ["prompt", "hello there"] in person.asked


@pytest.mark.parametrize("newline", [ALT_ENTER, "\\" + ENTER])
def test_a_line_can_be_added(person: Person, newline: str) -> None:
    person.types("one" + newline)
    person.types("two" + ENTER)
    person.hears("prompt", "one\ntwo")


def test_what_was_typed_before_the_line_was_there_is_sent(person: Person) -> None:
    person.types("one" + CTRL_J)  # as a terminal that is not in raw mode yet gives Enter
    person.hears("prompt", "one")


def test_a_pasted_text_of_many_lines_stays_one_prompt(person: Person) -> None:
    person.types("\x1b[200~def f():\r\n    return 1\r\n\r\nf()\x1b[201~")
    person.types(" # pasted" + ENTER)
    person.hears("prompt", "def f():\n    return 1\n\nf() # pasted")
    assert sum(fact[0] == "prompt" for fact in person.asked) == 1


def test_ctrl_c_clears_the_line_and_the_second_on_an_empty_line_leaves(person: Person) -> None:
    person.types("half a thought")
    person.sees("thought")
    person.types(CTRL_C)
    person.sees("Ctrl-C again")
    person.types("whole" + ENTER)
    person.hears("prompt", "whole")
    person.sees("You said 5 letters.")
    person.is_asked()
    person.types(CTRL_C)
    person.sees("Ctrl-C again")
    person.types(CTRL_C)
    assert person.leaves() == 0


def test_what_was_typed_between_two_ctrl_c_is_not_lost_with_the_session(person: Person) -> None:
    person.types(CTRL_C)
    person.sees("Ctrl-C again")
    person.types("x")
    person.is_asked()
    person.types(CTRL_C)
    person.sees("Ctrl-C again")
    person.types("still here" + ENTER)
    person.hears("prompt", "still here")


def test_enter_on_a_blank_line_sends_nothing(person: Person) -> None:
    person.types(f"{ENTER} {ENTER}x{ENTER}")
    person.hears("prompt", "x")


def test_prompts_are_remembered_in_a_private_file(person: Person) -> None:
    person.types("remember me" + ENTER)
    person.sees("letters.")
    person.is_asked()
    person.types(CTRL_D)
    person.leaves()
    assert stat.S_IMODE(person.history.stat().st_mode) == 0o600
    assert stat.S_IMODE(person.history.parent.stat().st_mode) == 0o700
    again = Person(person.journal.parent)
    try:
        again.is_asked()
        again.types(UP + "!" + ENTER)
        again.hears("prompt", "remember me!")
    finally:
        again.close()


def test_a_history_file_that_cannot_be_written_costs_no_prompt(folder: Path) -> None:
    (folder / "private").write_text("a file where the folder should be")
    someone = Person(folder)
    try:
        someone.is_asked()
        someone.types("hello" + ENTER)
        someone.hears("prompt", "hello")
    finally:
        someone.close()


# -- commands --------------------------------------------------------------------------------------


def test_commands_are_completed_and_carried_out(person: Person) -> None:
    person.types("/mod")
    person.sees("list the models")
    person.types("\t")
    person.sees("el")  # only what is new is drawn
    person.types(" oth")
    person.sees("test/other")
    person.types("er" + ENTER)
    person.sees("The next prompt goes to test/other.")
    person.sees("test/other · 019dc5ba")
    person.hears("warm", "test/other")


def test_a_command_never_reaches_the_model_and_two_slashes_do(person: Person) -> None:
    person.types("/nonsense" + ENTER)
    person.sees("There is no command /nonsense")
    person.is_asked()
    person.types("//etc/hosts" + ENTER)
    person.hears("prompt", "/etc/hosts")
    assert sum(fact[0] == "prompt" for fact in person.asked) == 1


def test_history_and_quit(person: Person) -> None:
    person.types("/history" + ENTER)
    person.sees("said ␛[2J before")
    person.is_asked()
    person.types("/quit" + ENTER)
    assert person.leaves() == 0


def test_ctrl_c_gives_a_slow_command_up(person: Person) -> None:
    person.types("/model slow" + ENTER)
    person.sees("working")
    person.types(CTRL_C)
    person.sees("Stopped.")
    person.is_asked()
    person.types("hello" + ENTER)
    person.sees("You said 5 letters.")


def test_a_prompt_to_go_back_to_is_picked_by_its_number_and_returns_to_the_line(
    person: Person,
) -> None:
    person.types("/rewind" + ENTER)
    person.sees("Go back to before which?")
    person.types("23\x7f" + ENTER)  # a key too many
    person.hears("rewind", "2")
    person.is_asked()
    person.types("!" + ENTER)
    person.hears("prompt", "/first\nof all!")


@pytest.mark.parametrize("no", [ENTER, CTRL_C, CTRL_D])
def test_nothing_is_gone_back_to_unless_it_is_picked(person: Person, no: str) -> None:
    person.types("/rewind" + ENTER)
    person.sees("Go back to before which?")
    person.types(no)
    person.is_asked()
    person.types("hello" + ENTER)
    person.hears("prompt", "hello")
    assert not any(fact[0] == "rewind" for fact in person.asked)


def test_sigterm_leaves_while_something_is_to_be_picked(person: Person) -> None:
    person.types("/rewind" + ENTER)
    person.sees("Go back to before which?")
    person.process.send_signal(signal.SIGTERM)
    assert person.leaves() == 128 + signal.SIGTERM


def test_another_conversation_is_announced_and_the_toolbar_names_it(person: Person) -> None:
    person.types("hello" + ENTER)
    person.sees("tokens in")
    person.types("/conv resume 019dc5ff" + ENTER)
    person.sees("Replaying conversation…")
    person.sees("Resumed 019dc5ff")
    assert "tokens" not in person.sees("test/model · 019dc5ff")


def test_ctrl_c_gives_up_a_swap_and_the_old_conversation_goes_on(person: Person) -> None:
    person.types("/conv resume slow" + ENTER)
    person.sees("Replaying conversation…")
    person.types(CTRL_C)
    person.sees("Stopped.")
    person.is_asked()


def test_what_commands_show_of_sessions_is_harmless(person: Person) -> None:
    for line in ("/rewind", "/tree", "/title", "/conv resume x"):
        person.types(line + ENTER)
        person.sees("␛]0;owned")
        if line == "/rewind":
            person.sees("Go back to before which?")
            person.types(ENTER)
        person.sees("test/model")
    person.types("/conv show ")
    person.sees("019dc5bb")
    assert b"\x1b]0;owned" not in person.raw
    assert b"\x1b[2J" not in person.raw.replace(b"\x1b[H\x1b[2J", b"")


# -- turns -----------------------------------------------------------------------------------------


def test_ctrl_c_ends_a_streaming_turn_and_the_talk_goes_on(person: Person) -> None:
    person.types("stream" + ENTER)
    person.sees("word20")
    person.types(CTRL_C)
    person.hears("cancel")
    person.sees("Stopped.")
    person.is_asked()
    person.types("go on" + ENTER)
    person.sees("You said 5 letters.")
    assert person.asked.count(["cancel"]) == 1


def test_waiting_shows_that_and_for_how_long_and_leaves_no_trace(person: Person) -> None:
    person.types("wait" + ENTER)
    person.sees("waiting 1s")
    person.types(CTRL_C)
    person.sees("stopped waiting")
    shown = re.findall(rb"waiting \ds", person.raw)
    erased = re.findall(rb"waiting \ds[^\r]*\r\x1b\[2K", person.raw)
    assert len(shown) == len(erased) > 3


def test_a_turn_that_does_not_stop_is_left_at_the_third_ctrl_c(person: Person) -> None:
    person.types("stuck" + ENTER)
    person.hears("prompt", "stuck")
    person.types(CTRL_C)
    person.sees("stopping")
    person.types(CTRL_C)
    person.sees("Ctrl-C once more")
    person.types(CTRL_C)
    assert person.leaves() == 130
    assert person.asked.count(["cancel"]) == 1
    assert ["exit", 130] in person.asked


def test_a_refused_prompt_returns_to_the_input_line(person: Person) -> None:
    person.types("refuse" + ENTER)
    person.sees("NOT SAVED to /log")
    person.sees("Your prompt is back")
    person.sees("refuse")
    person.is_asked()
    person.types("d no more" + ENTER)
    person.hears("prompt", "refused no more")


def test_what_is_unsaved_stands_in_the_toolbar_until_it_is_saved(person: Person) -> None:
    person.types("unsaved" + ENTER)
    person.sees("NOT SAVED to /log")
    person.sees("1 NOT SAVED: trying again every second")
    person.sees("✓ Saved")
    person.is_asked()
    person.types("next" + ENTER)
    person.hears("prompt", "next")


def test_an_error_of_the_agent_is_a_line_and_not_the_end(person: Person) -> None:
    person.types("broken" + ENTER)
    person.sees("the log was changed by another program")
    person.is_asked()
    person.types("hello" + ENTER)
    person.sees("You said 5 letters.")
    assert "Traceback" not in person.screen


def test_keys_pressed_during_a_turn_are_not_echoed_and_wait_for_the_next_prompt(
    person: Person,
) -> None:
    person.types("stream" + ENTER)
    person.sees("word5")
    person.types("next question")
    person.sees("word40")
    person.types(CTRL_C)
    assert "next question" not in person.sees("Stopped.")
    person.sees("next question")
    person.types(ENTER)
    person.hears("prompt", "next question")


# -- the screen ------------------------------------------------------------------------------------


def test_500_lines_are_shown_whole_and_once_whatever_the_window_does(person: Person) -> None:
    person.types("long" + ENTER)
    for number, columns in ((100, 50), (200, 120), (300, 30)):
        person.sees(f"Line {number} ")
        person.resize(columns)
    person.sees("Line 499")
    person.is_asked()
    start = person.raw.index(b"Line")
    answer = person.raw[start : person.raw.index(b"Line 499")].decode()
    assert [int(n) for n in re.findall(r"Line\s+(\d+)", CONTROL.sub("", answer))] == [*range(499)]
    # Nothing but colours, and the erasing of the status line: no cursor ever goes up.
    assert set(re.findall(r"\x1b\[[0-9;?]*([A-Za-z])", answer)) <= {"m", "K"}


def test_no_control_character_of_a_model_or_tool_reaches_the_terminal(person: Person) -> None:
    person.types("hostile" + ENTER)
    person.sees("Harmless: ␛[2J")
    person.is_asked()
    left = CONTROL.sub("", person.raw.decode())
    assert not re.search(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", left)
    for sequence in (b"\x1b[2J", b"\x1b]", b"\x1bP", b"\x1b[5m"):
        assert sequence not in person.raw
    assert HOSTILE.count("\x1b") >= 4  # or this test would prove little


def test_twenty_columns_are_enough(folder: Path) -> None:
    someone = Person(folder, "--resumed", columns=20)
    try:
        someone.sees("Resumed 019dc5ba")
        someone.sees("test/model")
        for prompt, answer in (("hello", "letters."), ("hostile", "Harmless"), ("/help", "/quit")):
            someone.types(prompt + ENTER)
            someone.sees(answer)
            someone.sees("test/model")
        someone.types("tool" + ENTER)
        someone.sees("always")
        someone.types("y" + ENTER)
        someone.hears("approval", "once")
        someone.types(CTRL_D)
        assert someone.leaves() == 0
    finally:
        someone.close()


def test_no_color_is_honoured(folder: Path) -> None:
    someone = Person(folder, "--resumed", env={"NO_COLOR": "1"})
    try:
        someone.is_asked()
        someone.types("hostile" + ENTER)
        someone.sees("Harmless")
        someone.is_asked()
        codes = {
            code
            for sgr in re.findall(rb"\x1b\[([0-9;]*)m", someone.raw)
            for code in sgr.split(b";")
        }
        assert not [code for code in codes if re.fullmatch(rb"[34]\d|9\d|10\d", code)]
    finally:
        someone.close()


# -- questions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "answer"), [("y", "once"), ("a", "always"), ("n", "deny"), ("N", "deny")]
)
def test_a_letter_and_enter_answer_whether_a_tool_may_run(
    person: Person, key: str, answer: str
) -> None:
    person.types("tool" + ENTER)
    for line in SCRIPT.split("\n"):  # all of a call is there to read, not one line of it
        person.sees(line)
    person.sees("Run bash?")
    person.types("yes, and a lot more" + ENTER)  # what is no answer allows nothing
    person.types("yy\x7f\x7f" + key)
    person.types(ENTER)
    person.hears("approval", answer)
    person.sees("did not allow" if answer == "deny" else "done")
    person.is_asked()
    assert ["cancel"] not in person.asked
    assert person.screen.count("● bash") == 1


def test_ctrl_c_at_the_question_denies_and_ends_the_turn(person: Person) -> None:
    person.types("tool" + ENTER)
    person.sees("Run bash?")
    person.types(CTRL_C)
    person.hears("approval", "deny")
    person.hears("cancel")
    person.sees("Stopped.")
    person.is_asked()


def test_keys_pressed_before_the_question_do_not_answer_it(person: Person) -> None:
    person.types("tool" + ENTER + "y")
    person.sees("Run bash?")
    person.types("n" + ENTER)
    person.hears("approval", "deny")


def test_a_path_is_asked_for(folder: Path) -> None:
    someone = Person(folder, "--ask")
    try:
        someone.is_asked()
        someone.types(CTRL_D)
        someone.sees("Write it where?")
        someone.types("/somewhere/else" + ENTER)
        someone.hears("path", "/somewhere/else")
        assert someone.leaves() == 0
    finally:
        someone.close()


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_the_prompt_leaves_cleanly(person: Person, number: signal.Signals) -> None:
    person.process.send_signal(number)
    assert person.leaves() == 128 + number
    assert ["exit", 128 + number] in person.asked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_turn_in_order(person: Person, number: signal.Signals) -> None:
    person.types("stream" + ENTER)
    person.sees("word5")
    person.process.send_signal(number)
    assert person.leaves() == 128 + number
    assert person.asked[-3:] == [["cancel"], ["ended"], ["exit", 128 + number]]


def test_a_signal_at_a_question_denies_it(person: Person) -> None:
    person.types("tool" + ENTER)
    person.sees("Run bash?")
    person.process.send_signal(signal.SIGTERM)
    person.hears("approval", "deny")
    assert person.leaves() == 143


def test_a_terminal_that_goes_away_ends_the_turn_in_order(person: Person) -> None:
    person.types("stream" + ENTER)
    person.sees("word5")
    person.hangs_up()
    assert person.leaves() == 129
    assert person.asked[-2:] == [["ended"], ["exit", 129]]


@pytest.mark.parametrize(("typed", "shown"), [("", ""), ("half a prom", "half a prom")])
def test_a_terminal_that_goes_away_at_the_prompt_is_left(
    person: Person, typed: str, shown: str
) -> None:
    person.types(typed)
    person.sees(shown)
    person.hangs_up()
    assert person.leaves() == 129
    assert person.asked[-1] == ["exit", 129]


def test_a_terminal_that_goes_away_at_a_question_denies_it(person: Person) -> None:
    person.types("tool" + ENTER)
    person.sees("Run bash?")
    person.hangs_up()
    assert person.leaves() == 129
    assert ["approval", "deny"] in person.asked
    assert person.asked[-1] == ["exit", 129]


def test_sigint_from_outside_is_a_ctrl_c(person: Person) -> None:
    person.process.send_signal(signal.SIGINT)
    person.sees("Ctrl-C again")
    person.types("stream" + ENTER)
    person.sees("word5")
    person.process.send_signal(signal.SIGINT)
    person.sees("Stopped.")
    person.is_asked()
