"""A session is called by the first words in it that a person wrote."""

from __future__ import annotations

import pytest

from awl.index.titles import LONGEST, Title, title_of


@pytest.mark.parametrize(
    ("prompts", "title"),
    [
        ([], ""),
        (["Fix the parser"], "Fix the parser"),
        (["\n  Fix the parser  \nplease"], "Fix the parser"),
        (["/model gpt-5", "Fix it"], "Fix it"),
        (["/compact", "/help"], "/compact"),
        (["/etc/hosts looks odd"], "/etc/hosts looks odd"),
        (["<context>\nfiles\n</context>\nFix it"], "Fix it"),
        (["<a>x</a> <b k='v'>y</b> Fix it", "no"], "Fix it"),
        (["<reminder>only this</reminder>", "Fix it"], "Fix it"),
        (["<never closed> and on", "Fix it"], "Fix it"),
        (["a < b and c > d?"], "a < b and c > d?"),
        (["", "  ", "Fix it"], "Fix it"),
        (["<tag>x</tag>"], "<tag>x</tag>"),
    ],
)
def test_the_title_is_the_first_human_words(prompts: list[str], title: str) -> None:
    made = Title()
    for prompt in prompts:
        made.take(prompt)
    assert made.text == title


def test_titles_are_one_line_and_not_too_long() -> None:
    assert title_of("") == ""
    assert title_of(" \n\n a b \nc") == "a b"
    assert title_of("x" * LONGEST) == "x" * LONGEST
    assert title_of("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
