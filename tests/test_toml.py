from __future__ import annotations

import pytest

from awl.toml import Key, line_of, statements

TRICKY = '''\ufeff# a comment with [no] = header
"a b".'c' = """
[not a header]
x = 1 # ""\\""" still text"""" # end
list = [ "]", # ] [
  { a = "}" },
  \'\'\'
]\'\'\',
]
  [ one . "two" ]   # here
k.l = { m = "#" }
last = ''
[[many.tables]]
n = 1
[many.tables.sub]
o = 2
[[many.tables]]
'''
TRICKY += "p = '''x'''''"


def test_every_header_and_setting_is_found_with_all_of_its_characters() -> None:
    found = [(one.key, TRICKY[one.start : one.end]) for one in statements(TRICKY)]
    assert [key for key, _ in found] == [
        ("a b", "c"),
        ("list",),
        ("one", "two"),
        ("one", "two", "k", "l"),
        ("one", "two", "last"),
        ("many", "tables", 0),
        ("many", "tables", 0, "n"),
        ("many", "tables", 0, "sub"),
        ("many", "tables", 0, "sub", "o"),
        ("many", "tables", 1),
        ("many", "tables", 1, "p"),
    ]
    assert found[0][1].endswith('text"""" # end\n')
    assert found[1][1].startswith("list = [") and found[1][1].endswith("\n]\n")
    assert found[2][1] == '[ one . "two" ]   # here\n'
    assert TRICKY.endswith(found[-1][1])


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("\r\n\r\n[a]\r\nb = 1\r\n", ("a", "b"), 4),
        ("x = '''\n\n'''\ny = 1", ("y",), 4),
        ("x = 1 # = '''\ny = \"'''\"", ("y",), 2),
    ],
)
def test_lines_are_counted_through_texts_and_either_kind_of_line_end(
    text: str, key: Key, line: int
) -> None:
    (found,) = [one for one in statements(text) if one.key == key]
    assert line_of(text, found.start) == line


def test_what_is_not_toml_ends_all_the_same() -> None:
    assert [one.key for one in statements("= 1\nnonsense\na = 1\n]\nb = '")] == [("a",), ("b",)]
