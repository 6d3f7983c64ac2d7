from __future__ import annotations

import stat
from pathlib import Path

import pytest

from .conftest import Tools


@pytest.fixture
def file(tools: Tools) -> Path:
    return tools.cwd / "x.py"


def test_a_text_that_occurs_once_is_replaced(tools: Tools, file: Path) -> None:
    file.write_text("".join(f"line {number}\n" for number in range(1, 21)))
    file.chmod(0o755)
    content = tools.good("edit", path="x.py", old="line 10\n", new="ten\nzehn\n")
    assert content == (
        "edited x.py\n"
        "@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+ten\n+zehn\n"
        " line 11\n line 12\n line 13"
    )
    assert "line 9\nten\nzehn\nline 11\n" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o755


def test_nothing_in_old_or_new_is_a_pattern(tools: Tools, file: Path) -> None:
    file.write_text("a.*(b)\\1 $x\n")
    tools.good("edit", path="x.py", old=".*(b)\\1", new="\\1\\g<0>\\n$1")
    assert file.read_text() == "a\\1\\g<0>\\n$1 $x\n"


def test_a_text_that_occurs_more_than_once_is_not_replaced(tools: Tools, file: Path) -> None:
    file.write_text("a\nb\na\n")
    content = tools.bad("edit", path="x.py", old="a", new="c")
    assert "occurs 2 times" in content and "lines 1, 3:" in content
    assert file.read_text() == "a\nb\na\n"
    assert tools.good("edit", path="x.py", old="a", new="c", all=True).startswith(
        "edited x.py (2 times)\n"
    )
    assert file.read_text() == "c\nb\nc\n"


def test_occurrences_that_overlap_are_not_unique(tools: Tools, file: Path) -> None:
    file.write_text("aaa")
    assert "occurs 2 times" in tools.bad("edit", path="x.py", old="aa", new="b")


def test_a_text_that_does_not_occur_is_said(tools: Tools, file: Path) -> None:
    file.write_text("def f():\n    return  1\n\n")
    assert "does not occur in x.py: read" in tools.bad("edit", path="x.py", old="z", new="")
    content = tools.bad("edit", path="x.py", old="def f():\n\treturn 1", new="")
    assert "line 1 and following differ from it only in white space" in content
    assert "does not occur" in tools.bad("edit", path="x.py", old="z", new="", all=True)
    assert "the same" in tools.bad("edit", path="x.py", old="f", new="f")


def test_crlf_stays(tools: Tools, file: Path) -> None:
    file.write_bytes(b"a\r\nb\r\nc\r\n")
    content = tools.good("edit", path="x.py", old="a\nb\n", new="1\n2\n3\n")
    assert file.read_bytes() == b"1\r\n2\r\n3\r\nc\r\n"
    assert "\r" not in content
    tools.good("edit", path="x.py", old="c", new="c\nd")
    assert file.read_bytes() == b"1\r\n2\r\n3\r\nc\r\nd\r\n"
    assert "occurs 5 times" in tools.bad("edit", path="x.py", old="\n", new="")


def test_a_carriage_return_in_old_or_new_is_meant(tools: Tools, file: Path) -> None:
    file.write_bytes(b"a\r\nb\nc\n")
    tools.good("edit", path="x.py", old="a\r\n", new="a\n")
    assert file.read_bytes() == b"a\nb\nc\n"
    tools.good("edit", path="x.py", old="b\n", new="b\r\n")
    assert file.read_bytes() == b"a\nb\r\nc\n"


def test_lf_stays_and_other_line_breaks_are_text(tools: Tools, file: Path) -> None:
    file.write_bytes("a\u2028b\x0cc\n\n".encode())
    tools.good("edit", path="x.py", old="b\x0cc\n", new="d\n")
    assert file.read_bytes() == "a\u2028d\n\n".encode()


def test_bytes_that_are_not_utf8_pass_through(tools: Tools, file: Path) -> None:
    file.write_bytes(b"\xff\xfe caf\xe9 \xc3\n\0old")
    content = tools.good("edit", path="x.py", old="old", new="né")
    assert file.read_bytes() == b"\xff\xfe caf\xe9 \xc3\n\0n\xc3\xa9"
    content.encode()


def test_changes_far_apart_are_shown_as_hunks(tools: Tools, file: Path) -> None:
    lines = [f"line {number}" for number in range(100)]
    lines[5] = lines[90] = "x"
    file.write_text("\n".join(lines))
    content = tools.good("edit", path="x.py", old="x", new="y", all=True)
    assert content.count("@@ -") == 2 and "@@ -88,7 +88,7 @@" in content
    assert content.count("\n-x\n+y\n") == 2


def test_a_change_that_is_too_large_is_made_and_not_shown(tools: Tools, file: Path) -> None:
    file.write_text("a b\n" * 100_000)
    content = tools.good("edit", path="x.py", old="a", new="c", all=True)
    assert content.startswith("edited x.py (100000 times)\n(lines 1 to 100001: too many")
    file.write_text("a" * 10_000)
    content = tools.good("edit", path="x.py", old="a" * 10_000, new="b" * 10_000)
    assert len(content) < 4200


def test_a_link_stays_a_link(tools: Tools, file: Path) -> None:
    file.write_text("a")
    (tools.cwd / "link").symlink_to("x.py")
    tools.good("edit", path="link", old="a", new="b")
    assert (tools.cwd / "link").is_symlink() and file.read_text() == "b"


def test_what_is_no_file_is_a_result(tools: Tools) -> None:
    assert "does not exist" in tools.bad("edit", path="gone", old="a", new="b")
    assert "a directory" in tools.bad("edit", path=".", old="a", new="b")
