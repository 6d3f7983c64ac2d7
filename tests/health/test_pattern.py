"""A text is found and replaced however it is escaped, and nothing else changes."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awl.health import pattern as module
from awl.health.pattern import BadPattern, Pattern

SECRET = 's3cr3t/Key"é\U0001f600\n\\x'

PIECES = st.lists(
    st.sampled_from(["a", '"', "\\", "\\u", "\n", "é", "\U0001f600", " ", "/", "\x00"])
)


def in_json(text: str, *, plainly: bool = False) -> str:
    return json.dumps(text, ensure_ascii=not plainly)[1:-1]


def every_char(text: str) -> str:
    """Every character escaped by its number."""
    data = text.encode("utf-16-be").hex()
    return "".join(f"\\u{data[at : at + 4]}" for at in range(0, len(data), 4))


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        in_json(SECRET),
        in_json(SECRET, plainly=True),
        in_json(in_json(SECRET)),
        in_json(in_json(in_json(SECRET))),
        every_char(SECRET),
        in_json(every_char(SECRET)),
        SECRET.replace("/", "\\/"),
        every_char(SECRET[:4]) + SECRET[4:],
    ],
)
def test_it_is_found_behind_escapes_of_any_depth(written: str) -> None:
    pattern = Pattern(SECRET)
    assert pattern.holds(f"before {written} after")
    assert pattern.scrub(f"a \\\\ {written} b \\n {written}")[0] == (
        "a \\\\ [redacted] b \\n [redacted]"
    )


@pytest.mark.parametrize("written", ["\\u0068unter2", "\\\\u0068unter2", every_char("hunter2")])
def test_a_plain_word_is_found_behind_the_numbers_of_its_characters(written: str) -> None:
    assert Pattern("hunter2").scrub(f"\n {written}\\n") == ("\n [redacted]\\n", 1)


@given(PIECES, PIECES, st.integers(0, 3), st.booleans())
def test_what_is_around_it_stays_and_json_stays_json(
    before: list[str], behind: list[str], depth: int, plainly: bool
) -> None:
    pattern = Pattern("SECRET", replacement="gone [é]")
    text = "".join(before) + "SECRET" + "".join(behind)
    then = text.replace("SECRET", "gone [é]")
    for _ in range(depth):
        text, then = in_json(text, plainly=plainly), in_json(then, plainly=plainly)
    scrubbed, count = pattern.scrub(text)
    assert count == 1
    for _ in range(depth):
        scrubbed, then = json.loads(f'"{scrubbed}"'), json.loads(f'"{then}"')
    assert scrubbed == then


@given(st.text(max_size=30))
def test_a_text_that_does_not_hold_it_stays_as_it_is(text: str) -> None:
    assert Pattern("ABSENT-7").scrub(text) == (text, 0)


def test_an_expression_finds_all_that_it_fits_but_nothing_empty() -> None:
    pattern = Pattern(r"sk-[0-9]+|x*y", regex=True)
    assert pattern.scrub('"sk-123" sk-\\u0034 y xxy z')[0] == (
        '"[redacted]" [redacted] [redacted] [redacted] z'
    )


@pytest.mark.parametrize(
    ("text", "regex", "replacement", "said"),
    [
        ("", False, "x", "must hold something"),
        ("x*", True, "y", "must hold something"),
        ("(", True, "y", "no regular expression"),
        ("a", False, "[redacted]", "the replacement holds"),
        ("a", False, "\\u0061", "may hold no quotes, backslashes"),
        ("a", False, "b\n", "may hold no quotes, backslashes"),
        (r"\w+", True, "gone", "the replacement holds"),
    ],
)
def test_patterns_that_cannot_be_used_say_so(
    text: str, regex: bool, replacement: str, said: str
) -> None:
    with pytest.raises(BadPattern, match=said):
        Pattern(text, regex=regex, replacement=replacement)


def test_what_comes_about_by_replacing_goes_too() -> None:
    assert Pattern("ab", replacement="").scrub("aaabbb x aabb") == (" x ", 5)


def test_an_expression_that_takes_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    pattern = Pattern(r"(a+)+b", regex=True)
    with pytest.raises(BadPattern, match=r"takes more than 0.2 s"):
        pattern.holds("a" * 40)
    assert pattern.holds("aab")
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(pattern.holds("aab")))
    thread.start()
    thread.join()
    assert found == [True]


def test_in_files_that_are_no_text_the_bytes_are_covered() -> None:
    pattern = Pattern("sécret")
    data = b"\x89PNG\xff" + "sécret".encode() + b"\0" + "sécret".encode("utf-16-le") + b"\xfe"
    covered = pattern.scrub_bytes(data)
    assert covered == b"\x89PNG\xff" + b"*" * 7 + b"\0" + b"*" * 12 + b"\xfe"
    assert pattern.in_bytes(data) and not pattern.in_bytes(covered)
    assert pattern.scrub_bytes("a sécret".encode()) == b"a [redacted]"
