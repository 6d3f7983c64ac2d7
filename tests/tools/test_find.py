from __future__ import annotations

import os

import pytest

from awl.tools import MAX_SHOWN
from awl.tools._glob import matcher
from awl.tools._input import Failure

from .conftest import Tools


def make(tools: Tools, *names: str) -> None:
    for name in names:
        path = tools.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def find(tools: Tools, pattern: str, **input: object) -> list[str]:
    return tools.good("find", pattern=pattern, **input).split("\n")


def test_globs_find_what_they_say(tools: Tools) -> None:
    make(tools, "a.py", "src/b.py", "src/c.js", "src/deep/er/d.py", ".github/x.yml", "src/e.tsx")
    assert find(tools, "*.py") == ["a.py", "src/b.py", "src/deep/er/d.py"]
    assert find(tools, "src/*.py") == ["src/b.py"]
    assert find(tools, "src/**/*.py") == ["src/b.py", "src/deep/er/d.py"]
    assert find(tools, "**/*.{js,tsx}") == ["src/c.js", "src/e.tsx"]
    assert find(tools, "**/er/*") == ["src/deep/er/d.py"]
    assert find(tools, "d.py") == ["src/deep/er/d.py"]
    assert find(tools, "*.py", path="src") == ["src/b.py", "src/deep/er/d.py"]
    assert find(tools, "[ab].py") == ["a.py", "src/b.py"]
    assert find(tools, "?.yml") == [".github/x.yml"]
    assert find(tools, "src/b.py") == ["src/b.py"]
    assert find(tools, "d*/") == ["src/deep"]
    assert find(tools, str(tools.cwd / "src/*.js")) == ["src/c.js"]
    assert len(find(tools, "**")) == 6
    assert find(tools, "*.rs") == ["no file matches *.rs"]
    assert find(tools, "gone/*.rs") == ["no file matches gone/*.rs"]


def test_names_outside_the_directory_are_absolute(tools: Tools) -> None:
    make(tools, "a/x", "b/y")
    tools.context = type(tools.context)(cwd=tools.cwd / "a")
    assert find(tools, "y", path="..") == [str(tools.cwd.resolve() / "b/y")]


def test_some_folders_are_entered_only_if_named(tools: Tools) -> None:
    make(tools, ".git/x", "node_modules/p/x", "a/__pycache__/x", ".venv/x", "x", ".gitignore/x")
    assert find(tools, "x") == [".gitignore/x", "x"]
    assert find(tools, "node_modules/**/x") == ["node_modules/p/x"]
    assert find(tools, "x", path=".git") == [".git/x"]


def test_links_are_listed_and_not_followed(tools: Tools) -> None:
    make(tools, "a/x")
    (tools.cwd / "a" / "loop").symlink_to("..")
    (tools.cwd / "self").symlink_to("self")
    (tools.cwd / "xlink").symlink_to("a/x")
    assert find(tools, "*") == ["a/loop", "a/x", "self", "xlink"]
    assert find(tools, "x", path="a/loop") == ["a/loop/a/x"]


def test_strange_names_are_one_line_of_text(tools: Tools) -> None:
    make(tools, "ü/ñ 日本.txt", "a\nb.txt", os.fsdecode(b"\xff.txt"))
    assert find(tools, "*.txt") == ["a\\nb.txt", "ü/ñ 日本.txt", "\ufffd.txt"]


def test_long_lists_are_cut_and_kept_whole(tools: Tools) -> None:
    make(tools, *(f"{'n' * 50}{number:04}" for number in range(800)))
    outcome = tools("find", pattern="*", limit=10)
    assert outcome.content.count("\n") == 10
    assert outcome.content.endswith("[10 of 800 shown: narrow the pattern or the path]")
    assert outcome.output is not None and outcome.output.count(b"\n") == 799
    outcome = tools("find", pattern="*", limit=10_000)
    assert len(outcome.content) < MAX_SHOWN + 100 and "of 800 shown" in outcome.content


def test_a_place_that_is_none_is_a_result(tools: Tools) -> None:
    make(tools, "x")
    assert "does not exist" in tools.bad("find", pattern="*", path="gone")
    assert "not a directory" in tools.bad("find", pattern="*", path="x")
    assert "too many patterns" in tools.bad("find", pattern="{a,b}" * 10)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_folders_that_cannot_be_read_are_counted(tools: Tools) -> None:
    make(tools, "a/x", "x")
    (tools.cwd / "a").chmod(0)
    assert find(tools, "x") == ["x", "[1 directories could not be read]"]


def test_cancelling_ends_a_long_search(tools: Tools) -> None:
    assert tools.cancel("find", lambda: True, pattern="*.none", path="/") < 5


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("**", "a/b", True),
        ("**/b", "b", True),
        ("**/b", "a/c/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/**/b", "a/x/y/b", True),
        ("a/**", "a/x/y", True),
        ("a/*/b", "a/b", False),
        ("a/*/b", "a/x/y/b", False),
        ("a**b", "axb", True),
        ("./a", "a", True),
        ("[!a]", "b", True),
        ("[", "[", True),
        ("{a}", "{a}", True),
        ("{a,{b,c}}x", "cx", True),
        ("{,a}b", "b", True),
        ("A", "a", False),
    ],
)
def test_a_glob_matches(pattern: str, path: str, fits: bool) -> None:
    assert matcher(pattern, anchored=True)(path) is fits


def test_no_glob_takes_for_ever() -> None:
    assert not matcher("*a" * 50 + "b", anchored=True)("a" * 250)
    assert not matcher("**/" * 50 + "b", anchored=True)("a/" * 200 + "a")
    with pytest.raises(Failure):
        matcher("{" * 2000 + "a,b" + "}" * 2000 + "{a,b}" * 9, anchored=True)
