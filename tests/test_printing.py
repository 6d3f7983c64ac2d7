from __future__ import annotations

import unicodedata

from hypothesis import example, given
from hypothesis import strategies as st

from awl.printing import cells, one_line, safe

# Characters that a terminal acts on are drawn as often as all others together.
NASTY = [*map(chr, (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)))]
NASTY += [*map(chr, (*range(0x2066, 0x206A), 0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0x2028, 0x2029))]
anything = st.text(st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=())))


def acts_on_a_terminal(char: str) -> bool:
    bidi = 0x202A <= ord(char) <= 0x202E or 0x2066 <= ord(char) <= 0x2069
    return (unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t") or bidi


@given(anything)
@example("\x1b[2J\x1b]0;owned\x07")
@example("\x9b31m")
@example("\r\r\n\r")
def test_safe_text_holds_nothing_that_a_terminal_acts_on(text: str) -> None:
    shown = safe(text)
    assert not [char for char in shown if acts_on_a_terminal(char)]
    shown.encode("utf-8")  # raises if a surrogate is left


@given(anything)
def test_safe_leaves_all_other_characters_and_their_order(text: str) -> None:
    harmless = "".join(char for char in text if not acts_on_a_terminal(char))
    assert safe(harmless) == harmless
    shown = iter(safe(text))
    assert all(char in shown for char in harmless)


@given(anything)
def test_safe_twice_is_safe_once(text: str) -> None:
    assert safe(safe(text)) == safe(text)


def test_safe_shows_what_it_found() -> None:
    assert safe("a\x1b[31mb\x00\x07\x7f") == "a␛[31mb␀␇␡"
    assert safe("\x85\x9b") == "\\x85\\x9b"
    assert safe("user\u202etxt.exe\u2066") == "user\\u202etxt.exe\\u2066"
    assert safe("\ud83d half") == "\\ud83d half"
    assert safe("one\r\ntwo\rthree\n\tfour") == "one\ntwo␍three\n\tfour"


@given(anything, st.integers(0, 60))
def test_one_line_is_one_safe_line_that_fits(text: str, width: int) -> None:
    line = one_line(text, width)
    assert cells(line) <= width
    assert not [char for char in line if acts_on_a_terminal(char) or char in "\n\t\u2028\u2029"]


def test_one_line_cuts_only_what_does_not_fit() -> None:
    assert one_line("  fix\n\n the\tparser ", 14) == "fix the parser"
    assert one_line("fix the parser", 13) == "fix the pars…"
    assert one_line("fix the parser", 9) == "fix the…"
    assert one_line("日本語", 6) == "日本語"
    assert one_line("日本語", 5) == "日本…"
    assert one_line("日本語", 4) == "日…"
    assert one_line("word " * 1_000_000, 20) == "word word word word…"
    assert one_line("x", 0) == ""
