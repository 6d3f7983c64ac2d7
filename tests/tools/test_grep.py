from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from awl.tools import MAX_SHOWN
from awl.tools import grep as grep_module

from .conftest import Tools


def write(tools: Tools, name: str, content: str | bytes) -> Path:
    path = tools.cwd / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def searching(folder: Path) -> bool:
    """Whether a search in this directory runs now."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program = (process / "cmdline").read_bytes()
            if b"_grep.py" in program and (process / "cwd").readlink() == folder.resolve():
                return True
        except OSError:
            continue
    return False


def test_lines_that_match_are_shown_with_place_and_number(tools: Tools) -> None:
    write(tools, "a.py", "x = 1\r\ny = 2\r\n\r\nxx\r\n")
    write(tools, "ü/b.js", "X\nno\n  x\t\x1b[1m")
    assert tools.good("grep", pattern="x").split("\n") == [
        "a.py:1:x = 1",
        "a.py:4:xx",
        "ü/b.js:3:  x\t\x1b[1m",
    ]
    assert tools.good("grep", pattern="^X", ignore_case=True, glob="*.js") == "ü/b.js:1:X"
    assert tools.good("grep", pattern=r"^x \W \d$", path="a.py") == "a.py:1:x = 1"
    assert tools.good("grep", pattern="x", path="ü") == "ü/b.js:3:  x\t\x1b[1m"
    assert tools.good("grep", pattern="none") == "no line matches in 2 files"
    assert tools.good("grep", pattern="x", glob="*.rs") == "no line matches in 0 files"


def test_what_is_not_text_is_left_out(tools: Tools) -> None:
    write(tools, "binary", b"x\0x")
    write(tools, "latin", b"caf\xe9 x\n")
    write(tools, ".git/config", "x")
    write(tools, "big", "x" * 3)
    os.mkfifo(tools.cwd / "pipe")
    (tools.cwd / "link").symlink_to("big")
    (tools.cwd / "loop").symlink_to(".")
    assert tools.good("grep", pattern="x") == "big:1:xxx\nlatin:1:caf\ufffd x"
    assert tools.good("grep", pattern="x", path=".git") == ".git/config:1:x"
    assert "not a directory" in tools.bad("grep", pattern="x", path="pipe")
    assert "does not exist" in tools.bad("grep", pattern="x", path="gone")


def test_long_lines_and_lists_are_cut(tools: Tools) -> None:
    write(tools, "long", "a" * 3_000_000 + "needle" + "b" * 2000 + "\nneedle")
    content = tools.good("grep", pattern="needle")
    assert "needle" in content and len(content) < 1200 and content.endswith("\nlong:2:needle")
    write(tools, "many", "x\n" * 5000)
    content = tools.good("grep", pattern="x", limit=10)
    assert content.count("many:") == 10 and content.endswith(
        "[10 lines shown, there are more: narrow pattern, path or glob]"
    )
    assert tools.good("grep", pattern="^x$", limit=1000).count("many:") == 1000
    write(tools, "wide", ("y" * 400 + "\n") * 1000)
    assert len(tools.good("grep", pattern="y", limit=1000)) < MAX_SHOWN + 100


def test_plain_text_and_operators_find_the_same(tools: Tools) -> None:
    write(tools, "a", "f(x.y) {1}\nf_x\n\nfé\n" + "z\n" * 800_000 + "f(x.y)")
    lines = "a:1:f(x.y) {1}\na:800005:f(x.y)"
    for pattern in (r"f\(x\.y\)", "f[(]x[.]y[)]", r"f\(x.y", r"\bf\("):
        assert tools.good("grep", pattern=pattern) == lines
    assert tools.good("grep", pattern="é") == "a:4:fé"
    assert tools.good("grep", pattern="É", ignore_case=True) == "a:4:fé"
    assert tools.good("grep", pattern="^$") == "a:3:"
    assert tools.good("grep", pattern="\\d") == "a:1:f(x.y) {1}"


def test_exactly_the_limit_is_all(tools: Tools) -> None:
    write(tools, "a", "x\nx\n")
    assert tools.good("grep", pattern="x", limit=2) == "a:1:x\na:2:x"


@pytest.mark.parametrize("pattern", ["(", "[", "*", "a{99999999999}", "(?P<1>a)", "\\"])
def test_an_invalid_expression_is_a_result(tools: Tools, pattern: str) -> None:
    write(tools, "a", "x")
    assert "not a valid regular expression" in tools.bad("grep", pattern=pattern)


def test_an_expression_that_takes_for_ever_is_ended(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module, "TIME_LIMIT", 1.0)
    write(tools, "a", "aab\n")
    write(tools, "b", "a" * 100 + "\n")
    start = time.monotonic()
    content = tools.bad("grep", pattern="(a+)+b")
    assert time.monotonic() - start < 10
    assert content.startswith("a:1:aab\n[not all was searched: it took more than 1 s")
    assert not searching(tools.cwd)


def test_more_names_than_a_pipe_holds_reach_a_slow_search(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep_module, "POLL", 0.0001)
    for number in range(2000):
        write(tools, "n" * 200 + str(number), "x" if number == 1999 else "")
    assert tools.good("grep", pattern="x").endswith("1999:1:x")


def test_cancelling_ends_the_search(tools: Tools) -> None:
    write(tools, "b", "a" * 100 + "\n")
    took = tools.cancel("grep", lambda: searching(tools.cwd), pattern="(a+)+b")
    assert took < 5
    assert not searching(tools.cwd)


def test_the_directorys_own_modules_are_not_run(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "re", "sitecustomize"):
        write(tools, f"{name}.py", "raise SystemExit('run')\n")
    monkeypatch.setenv("PYTHONPATH", str(tools.cwd))
    monkeypatch.chdir(tools.cwd)
    assert tools.good("grep", pattern="raise", glob="re.py").startswith("re.py:1:raise")


def test_names_that_are_not_utf8_are_searched(tools: Tools) -> None:
    write(tools, os.fsdecode(b"\xff\n:x"), "needle")
    assert tools.good("grep", pattern="needle") == "\ufffd\\n:x:1:needle"
