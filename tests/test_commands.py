from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from awl.access import BannerInfo, HistoryItem, Reply, SessionRow, Sessions, Wish
from awl.commands import COMMANDS, as_prompt, completions, is_command, run
from awl.conversation import ModelRef
from awl.errors import AwlError, SessionNotFound
from awl.index.info import SessionInfo
from awl.places import GoingBack, Labelling, Prompt

CLAUDE = ModelRef("anthropic", "claude-sonnet-4")
LOCAL = ModelRef("local", "smollm2", "http://127.0.0.1:9")


class Access:
    """A conversation of `said` prompts, with two models to choose from and two other sessions."""

    def __init__(self, said: int = 0) -> None:
        self.model = CLAUDE
        self.said = said
        self.limits: list[int | None] = []
        self.asked: list[tuple[object, ...]] = []
        self.given = ""

        self.condensed = 0

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

    async def prompts(self, limit: int | None) -> Sequence[Prompt]:
        numbers = range(1, self.said + 1)[:limit]
        return [
            Prompt(number=n, entry_id=f"{n:08x}", timestamp="", text=f"prompt {n}\n\x1b[2J")
            for n in numbers
        ]

    async def rewind(self, name: str) -> GoingBack:
        self.asked.append(("rewind", name))
        return GoingBack(entry_id=None, prompt=None if name == "answer" else "/etc is full")

    async def label(self, words: str) -> Labelling:
        self.asked.append(("label", words))
        return Labelling(words.split()[0], "better" if words.startswith("best") else "", [])

    async def title(self, title: str | None) -> str:
        self.given = self.given if title is None else title
        return self.given

    async def tree(self) -> Sequence[str]:
        return ["● 1  one"]

    async def export(self, path: str, format_name: str | None, *, force: bool) -> Sequence[str]:
        self.asked.append(("export", path, format_name, force))
        return [f"Written to {path}.", "left out: 1 title"]

    async def sessions(self, limit: int | None) -> Sessions:
        self.limits.append(limit)
        rows = [self._row("019dc5ba", "Fix\n\x1b[2Jit", 7), self._row("019dc5bb", "", None)]
        return Sessions(rows=tuple(rows[-limit:] if limit else rows), more=limit == 1)

    async def session_row(self, query: str | None) -> SessionRow:
        if query not in (None, "019dc5ba"):
            raise SessionNotFound(str(query), ["019dc5ba"])
        return self._row("019dc5ba", "Fix it", 7)

    async def resume(self, query: str, wish: Wish) -> BannerInfo:
        self.asked.append(("resume", query, wish))
        return BannerInfo(session_id=query, last_active="", messages=1, turns=1)

    async def fork(self, query: str | None, wish: Wish) -> BannerInfo:
        self.asked.append(("fork", query, wish))
        return BannerInfo(session_id="new", last_active="", messages=1, turns=1)

    def session_names(self) -> Iterable[tuple[str, str]]:
        return [("019dc5ba", "Fix it"), ("019dc5bb", "Parser")]

    def _row(self, name: str, title: str, number: int | None) -> SessionRow:
        info = SessionInfo(
            id=f"{name}-53f6-71a5-ab8f-b1f8709c2572",
            conversation_id=number,
            title=title,
            status="idle",
            cwd="/home/dev",
            provider="anthropic",
            model="claude",
            created="2026-04-25T17:40:15.990Z",
            updated="2026-04-25T17:41:15.990Z",
            message_count=2,
            event_count=5,
            path="/log.jsonl",
        )
        return SessionRow(name=name, info=info, here=number == 7)

    async def compact(self) -> str:
        if not self.said:
            raise AwlError("there is nothing to condense yet")
        self.condensed += 1
        return "condensed 4 entries: 48,000 -> 6,000 tokens"


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


# -- going back ------------------------------------------------------------------------------------


def test_rewind_lists_the_prompts_with_the_newest_at_the_end_and_asks_which() -> None:
    answer = reply("/rewind", Access(said=3))
    assert [row.split()[0] for row in answer.rows] == ["3", "2", "1"]
    assert "prompt 1 ␛[2J" in answer.rows[-1]
    assert answer.ask is not None and answer.ask.command == "/rewind"
    assert "no prompt" in reply("/rewind").text and reply("/rewind").ask is None


def test_rewind_shows_the_last_twenty_or_all() -> None:
    assert "/rewind all" in reply("/rewind", Access(said=30)).text
    assert len(reply("/rewind all", Access(said=30)).rows) == 30


def test_a_prompt_that_was_gone_back_from_returns_as_it_is_typed() -> None:
    access = Access()
    answer = reply("/rewind  the  label ", access)
    assert access.asked == [("rewind", "the label")]
    assert answer.draft == "//etc is full"
    assert as_prompt(answer.draft) == "/etc is full"
    assert reply("/rewind answer", access).draft == ""


def test_labels_titles_and_the_tree() -> None:
    access = Access()
    assert "/rewind good" in reply("/label good 0000002a", access).text
    assert access.asked == [("label", "good 0000002a")]
    assert "place" not in reply("/label good 0000002a", access).text
    assert "takes the place of the label better" in reply("/label best", access).text
    assert "no title" in reply("/title", access).text
    assert reply("/title A better one", access).text == "A better one"
    assert reply("/tree").rows == ("● 1  one",)


def test_export_takes_a_path_and_options_anywhere() -> None:
    access = Access()
    assert "left out: 1 title" in reply("/export 'a file.html'", access).text
    reply("/export --format zeph x --force", access)
    reply("/export x --format=markdown", access)
    assert access.asked == [
        ("export", "a file.html", None, False),
        ("export", "x", "zeph", True),
        ("export", "x", "markdown", False),
    ]
    for line in ("/export", "/export a b", "/export --all x", "/export x --format", "/export --x"):
        assert reply(line, access).is_error
    assert len(access.asked) == 3


# -- other conversations ---------------------------------------------------------------------------


def test_conv_lists_the_newest_twenty_or_n_or_all() -> None:
    access = Access()
    for line in ("/conv", "/conv list", "/conv list 1", "/conv list all"):
        assert not reply(line, access).is_error
    assert access.limits == [20, 20, 1, None]
    first, second = reply("/conv list", access).rows
    assert first.startswith("*  019dc5ba  #7  2026-04-25 ")
    assert first.endswith("5 events  idle  Fix ␛[2Jit")
    assert second.startswith("   019dc5bb      2026-04-25 ")
    assert "/conv list all" in reply("/conv list 1", access).text


def test_conv_shows_what_is_known_of_one() -> None:
    text = reply("/conv show").text
    for fact in ("019dc5ba-53f6", "#7", "Fix it", "idle, here", "/home/dev", "anthropic/claude"):
        assert fact in text
    assert "did you mean 019dc5ba" in reply("/conv show 019dc5bx").text


def test_conv_resume_and_fork_take_what_is_wanted_of_the_other_conversation() -> None:
    access = Access()
    banner = reply("/conv resume #7 --model local/x --cwd 'a dir'", access).banner
    assert banner is not None and banner.session_id == "#7"
    reply("/conv fork --at=12", access)
    reply("/conv fork --provider local 019dc5ba", access)
    assert access.asked == [
        ("resume", "#7", Wish(model="local/x", cwd="a dir")),
        ("fork", None, Wish(at=12)),
        ("fork", "019dc5ba", Wish(provider="local")),
    ]


def test_conv_resume_without_an_id_lists_and_asks() -> None:
    answer = reply("/conv resume")
    assert len(answer.rows) == 2
    assert answer.ask is not None and answer.ask.command == "/conv resume"


@pytest.mark.parametrize(
    "line",
    [
        *("/conv nope", "/conv list 0", "/conv list x", "/conv list 1 2", "/conv show a b"),
        *("/conv resume a b", "/conv resume a --at 3", "/conv resume a --model", "/conv fork -x"),
        *("/conv fork --at x", "/conv fork --at -1", "/conv resume 'a", "/conv fork --color red"),
    ],
)
def test_conv_refuses_what_it_does_not_know(line: str) -> None:
    access = Access()
    answer = reply(line, access)
    assert answer.is_error and answer.text
    assert not access.asked


def test_conversations_are_completed_by_verb_id_and_title() -> None:
    access = Access()
    assert [word for word, _ in completions("/conv re", access)] == ["resume"]
    assert completions("/conv resume pars", access) == [("019dc5bb", "Parser")]
    assert [word for word, _ in completions("/conv fork 019", access)] == ["019dc5ba", "019dc5bb"]
    assert [word for word, _ in completions("/conv resume x --model loc", access)] == [str(LOCAL)]
    assert completions("/conv list x", access) == []


def test_compact_condenses_and_tells_what_that_came_to() -> None:
    access = Access(said=4)
    assert reply("/compact", access).text == "condensed 4 entries: 48,000 -> 6,000 tokens"
    assert access.condensed == 1
    answer = reply("/compact")
    assert answer.is_error
    assert answer.text == "there is nothing to condense yet"
