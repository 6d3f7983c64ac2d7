from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from awl.commands import (
    COMMANDS,
    HistoryItem,
    Reply,
    as_prompt,
    completions,
    is_command,
    run,
)
from awl.conversation import ModelRef
from awl.errors import AwlError

CLAUDE = ModelRef("anthropic", "claude-sonnet-4")
LOCAL = ModelRef("local", "smollm2", "http://127.0.0.1:9")


class Access:
    """A conversation of `said` prompts, with two models to choose from."""

    def __init__(self, said: int = 0) -> None:
        self.model = CLAUDE
        self.said = said
        self.limits: list[int | None] = []

    def models(self) -> Sequence[ModelRef]:
        return [CLAUDE, LOCAL]

    async def switch_model(self, name: str) -> ModelRef:
        for model in self.models():
            if name in (model.provider, model.model, str(model)):
                self.model = model
                return model
        raise AwlError(f"no model {name!r}: choose anthropic or local")

    async def history(self, limit: int | None) -> Iterable[HistoryItem]:
        self.limits.append(limit)
        return (HistoryItem(kind="user", text=str(n)) for n in range(self.said))


def reply(line: str, access: Access | None = None) -> Reply:
    return asyncio.run(run(line, access or Access()))


def test_one_slash_makes_a_command_and_two_make_a_prompt_with_one() -> None:
    assert is_command("/help") and is_command("/no such thing")
    assert not is_command("help") and not is_command("//help") and not is_command("")
    assert as_prompt("//etc/hosts is wrong") == "/etc/hosts is wrong"
    assert as_prompt("why?") == "why?"


def test_help_lists_every_command() -> None:
    text = reply("/help").text
    for command in COMMANDS:
        assert f"/{command.name}" in text
        assert command.help in text


@pytest.mark.parametrize("line", ["/quit", "/exit", "/QUIT", " /quit "])
def test_quit_quits(line: str) -> None:
    assert reply(line).quit


@pytest.mark.parametrize(
    ("line", "meant"),
    [("/hlep", "/help"), ("/hist", "/history"), ("/modle x", "/model"), ("/exti", "/exit")],
)
def test_an_unknown_command_names_the_nearest(line: str, meant: str) -> None:
    answer = reply(line)
    assert answer.is_error
    assert f"did you mean {meant}?" in answer.text


@pytest.mark.parametrize("line", ["/", "/usr/bin/python is slow", "/" + "x" * 10_000])
def test_an_unknown_command_says_how_to_send_it_as_text(line: str) -> None:
    answer = reply(line)
    assert answer.is_error
    assert "//" in answer.text
    assert len(answer.text) < 200


def test_model_lists_the_choices_and_marks_the_active_one() -> None:
    text = reply("/model").text
    assert "* anthropic/claude-sonnet-4" in text
    assert "  local/smollm2  (http://127.0.0.1:9)" in text


def test_model_lists_the_active_one_even_if_it_is_configured_no_more() -> None:
    access = Access()
    access.model = ModelRef("gone", "old")
    assert "* gone/old" in reply("/model", access).text


def test_model_switches() -> None:
    access = Access()
    assert "local/smollm2" in reply("/model local/smollm2", access).text
    assert access.model == LOCAL


def test_an_error_is_a_reply() -> None:
    answer = reply("/model nowhere")
    assert answer.is_error
    assert "choose anthropic or local" in answer.text


def test_history_shows_the_last_twenty_the_last_n_or_all() -> None:
    access = Access(said=50)
    assert [item.text for item in reply("/history", access).history] == [*map(str, range(30, 50))]
    assert "/history all" in reply("/history", access).text
    assert [item.text for item in reply("/history 2", access).history] == ["48", "49"]
    assert len(reply("/history all", access).history) == 50
    assert access.limits == [20, 20, 2, None]


def test_history_of_nothing_says_so() -> None:
    assert reply("/history").text == "Nothing was said yet."


@pytest.mark.parametrize("argument", ["0", "-1", "x", "²", "1 2"])
def test_history_refuses_what_is_no_count(argument: str) -> None:
    assert reply(f"/history {argument}", Access(said=3)).is_error


def test_names_and_arguments_are_completed() -> None:
    access = Access()
    assert [word for word, _ in completions("/h", access)] == ["/help", "/history"]
    assert [word for word, _ in completions("/model lo", access)] == ["local/smollm2"]
    assert [word for word, _ in completions("/model sonnet", access)] == [str(CLAUDE)]
    assert completions("/history a", access) == [("all", "")]
    for line in ("", "hello", "//h", "/nothing x", "/quit x"):
        assert completions(line, access) == []
