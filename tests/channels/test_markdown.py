from __future__ import annotations

import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from awl.channels.display import make_console
from awl.channels.markdown import MarkdownStream

SGR = re.compile(r"\x1b\[[0-9;]*m")

# Markdown is mostly its marks; a uniform text would hardly contain any.
PIECES = [
    *"ab *_`~#>|-+.:[]()\\!&<\n\t",
    *("\n\n", "**", "```", "~~~", "- ", "1. ", "> ", "| a | b |\n", "|---|--:|\n", "# ", "    "),
    *("日本", "\u3000", "```python\n", "a b", "__", "***", "\r\n", "\r", "\x1b[2J", "&#x202e;"),
]
markdown = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


def shown(
    *pieces: str, width: int = 40, style: str = "", column: int = 0, colour: bool = False
) -> str:
    file = io.StringIO()
    system = "standard" if colour else None
    console = make_console(file, width=width, force_terminal=colour, color_system=system)
    stream = MarkdownStream(console, style=style, column=column)
    for piece in pieces:
        stream.feed(piece)
    stream.finish()
    assert stream.at_line_start
    return file.getvalue()


@given(markdown, st.data())
@example("- `a", None)
@example("| a | b |\n|---|---|\n| 1 | 2 |", None)
def test_how_an_answer_arrives_makes_no_difference(source: str, data: st.DataObject | None) -> None:
    if data is None:
        pieces = [*source]
    else:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(source)))))
        pieces = [source[a:b] for a, b in zip([0, *cuts], [*cuts, len(source)], strict=True)]
    assert shown(*pieces) == shown(source)


@given(markdown, st.integers(1, 50), st.integers(0, 60))
def test_every_letter_is_shown_once_and_in_order(source: str, width: int, column: int) -> None:
    # A link that is its own text is shown once, an image gets a word of awl's own, and an entity
    # is another letter.
    source = source.translate(str.maketrans("(!&", "xxx"))
    letters = [char for char in source if char in "abx日本"]
    printed = [char for char in shown(source, width=width, column=column) if char in "abx日本"]
    assert printed == letters


@given(markdown, st.integers(1, 50), st.sampled_from(["", "dim"]))
def test_nothing_but_colours_reaches_the_terminal(source: str, width: int, style: str) -> None:
    output = SGR.sub("", shown(source, width=width, style=style, colour=True))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", output)


@pytest.mark.parametrize("width", [20, 33, 80, 200])
def test_an_answer_of_500_lines_is_shown_whole_and_once(width: int) -> None:
    lines = [f"Line {n} of **this** answer is `long` enough to be wrapped." for n in range(500)]
    answer = "\n".join(lines)
    output = shown(*(answer[n : n + 7] for n in range(0, len(answer), 7)), width=width)
    assert [int(n) for n in re.findall(r"Line\s(\d+)", output)] == [*range(500)]
    assert max(map(cell_len, output.split("\n"))) <= width


def test_a_change_of_width_loses_and_repeats_nothing() -> None:
    file = io.StringIO()
    console = make_console(file, width=80)
    stream = MarkdownStream(console)
    words = [f"word{n}" for n in range(1000)]
    for n, word in enumerate(words):
        console.width = (80, 20, 7, 120)[n // 50 % 4]
        stream.feed(word + " ")
    stream.finish()
    assert file.getvalue().split() == words


def test_words_are_shown_as_they_arrive_and_not_when_the_paragraph_ends() -> None:
    file = io.StringIO()
    stream = MarkdownStream(make_console(file, width=40))
    stream.feed("The parser is ")
    assert file.getvalue() == "The parser is"
    stream.feed("**not quite")
    assert file.getvalue() == "The parser is"  # bold or two asterisks? it is too early to tell
    stream.feed("** right")
    assert file.getvalue() == "The parser is not quite"


def test_a_construct_that_never_closes_does_not_hold_the_answer_back() -> None:
    file = io.StringIO()
    stream = MarkdownStream(make_console(file, width=40))
    stream.feed("*args " + "word " * 1_000)
    assert file.getvalue().count("word") > 800


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# Title\ntext", "Title\ntext\n"),
        ("**bold**, *italic*, `code`, ~~gone~~", "bold, italic, code, gone\n"),
        ("2 * 3 * 4, snake_case_name, **kwargs", "2 * 3 * 4, snake_case_name, **kwargs\n"),
        ("- one\n- two\n  1. three", "• one\n• two\n  1. three\n"),
        ("> quoted\n> - item", "▌ quoted\n▌ • item\n"),
        ("```sh\n$ ls\n\n  # no title\n```\nend", "```sh\n$ ls\n\n  # no title\n```\nend\n"),
        ("- x\n  ```\n  code\n  ```", "• x\n  ```\ncode\n```\n"),
        ("a\n\n\n\nb\n\n", "a\n\nb\n"),
        ("\n\na", "a\n"),
        ("one\ntwo", "one\ntwo\n"),
        ("*** \ntext ***", f"{'─' * 40}\ntext ***\n"),
        ("&lt;tag&gt; <b>raw</b>", "<tag> <b>raw</b>\n"),
        ("[docs](https://x.org/a_b) here", "docs (https://x.org/a_b) here\n"),
        ("<https://x.org>", "https://x.org\n"),
        ("![a cat](cat.png)", "[image: a cat] (cat.png)\n"),
        ("[bold magenta]not rich[/] :smile:", "[bold magenta]not rich[/] :smile:\n"),
        ("| just | text", "| just | text\n"),
        ("| a |\n|---|\n| 1 |\nend", "a\n─\n1\nend\n"),
    ],
)
def test_what_is_made_of_markdown(source: str, expected: str) -> None:
    output = "\n".join(line.rstrip() for line in shown(source).split("\n"))
    assert output == expected


def test_a_list_item_hangs_and_a_quote_keeps_its_bar() -> None:
    assert shown("- one two three", width=9) == "• one two\n  three\n"
    assert shown("> one two three", width=9) == "▌ one two\n▌ three\n"


def test_a_link_shows_where_it_leads_and_is_no_terminal_link() -> None:
    output = shown("[bank](https://evil.example)", colour=True)
    assert "https://evil.example" in output
    assert "\x1b]8" not in output


def test_a_table_without_a_place_for_it_is_shown_as_it_was_written() -> None:
    table = "| one | two | three |\n|---|---|---|\n| first | second | third |"
    assert shown(table, width=12).split() == table.split()


def test_cells_without_a_column_are_kept() -> None:
    assert "3 | 4" in shown("| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 | 4 |")


def test_code_is_coloured_by_its_language_and_copied_as_it_was_written() -> None:
    code = 'def f():\n    """doc\n    def no"""\n    return ' + "x" * 100
    output = shown(f"```python\n{code}\n```", colour=True, width=30)
    assert "\x1b[" in output
    assert code in SGR.sub("", output)  # long lines are left to the terminal to wrap
    assert code in shown(f"```no-such-language\n{code}\n```")


@pytest.mark.parametrize("unit", ["*", "`", "[", "> ", "[a ", "a`b ", "_a", "| ", " ", "# ", "x"])
def test_no_answer_makes_the_terminal_hang(unit: str) -> None:
    source = unit * (20_000 // len(unit))
    shown(*(source[n : n + 40] for n in range(0, len(source), 40)))
    shown(source)
