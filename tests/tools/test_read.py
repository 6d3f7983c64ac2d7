from __future__ import annotations

import os
from pathlib import Path

import pytest

from awl.tools import MAX_SHOWN
from awl.tools import read as read_module

from .conftest import Tools

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def test_text_is_returned_exactly(tools: Tools) -> None:
    text = "\ufeffa\r\nb\u2028c\x0c\x1b[1m\td\n\n  é \ne"
    (tools.cwd / "ü ñ.txt").write_bytes(text.encode())
    assert tools.good("read", path="ü ñ.txt") == text
    assert tools.good("read", path=str(tools.cwd / "ü ñ.txt")) == text


def test_home_is_expanded(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tools.cwd))
    (tools.cwd / "x").write_text("home")
    assert tools.good("read", path="~/x") == "home"
    assert "no such user" in tools.bad("read", path="~nobody-of-this-name/x")


def test_an_empty_file_is_said(tools: Tools) -> None:
    (tools.cwd / "x").touch()
    assert tools.good("read", path="x") == "(empty file)"
    assert "has 0 lines" in tools.bad("read", path="x", offset=2)


def test_lines_are_chosen_by_offset_and_limit(tools: Tools) -> None:
    (tools.cwd / "x").write_text("1\n2\n3\n4\n5")
    assert tools.good("read", path="x", offset=4) == "4\n5"
    assert tools.good("read", path="x", offset=4, limit=2) == "4\n5"
    assert tools.good("read", path="x", offset=2, limit=2) == (
        "2\n3\n[lines 2-3 of 5: go on with offset=4]"
    )
    assert tools.good("read", path="x", offset=5) == "5"
    assert "has 5 lines: offset 6" in tools.bad("read", path="x", offset=6)
    (tools.cwd / "x").write_text("1\n2\n")
    assert tools.good("read", path="x", limit=2) == "1\n2\n"
    assert "has 2 lines: offset 3" in tools.bad("read", path="x", offset=3)


def test_a_big_file_is_read_piece_by_piece_without_loss(tools: Tools) -> None:
    text = "".join(f"line {number} é\n" for number in range(1, 20_001))
    (tools.cwd / "x").write_text(text)
    offset, pieces = 1, ""
    while True:
        content = tools.good("read", path="x", offset=offset)
        assert len(content) < MAX_SHOWN + 100
        shown, _, note = content.partition("[")
        pieces += shown
        if not note:
            break
        assert f"lines {offset}-" in note and " of 20000" in note
        offset = int(note.rpartition("=")[2].rstrip("]"))
    assert pieces == text


def test_a_long_line_is_cut(tools: Tools) -> None:
    (tools.cwd / "x").write_text("€" * 100_000 + "\nnext\n")
    content = tools.good("read", path="x")
    assert content == "€" * MAX_SHOWN + f"\n[line 1 is cut after {MAX_SHOWN} characters]"
    assert tools.good("read", path="x", offset=2) == "next\n"


def test_bytes_that_are_not_utf8_are_said(tools: Tools) -> None:
    (tools.cwd / "x").write_bytes(b"caf\xe9\n")
    assert tools.good("read", path="x").startswith("caf\ufffd\n[not valid UTF-8")


def test_binary_files_are_refused(tools: Tools) -> None:
    (tools.cwd / "x").write_bytes(b"ELF\0\1")
    assert "binary" in tools.bad("read", path="x")


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0\0", "image/jpeg"),
        (b"GIF89a\0", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_images_are_returned_as_images(tools: Tools, start: bytes, kind: str) -> None:
    (tools.cwd / "x.dat").write_bytes(start + b"1" * 10_000)
    outcome = tools("read", path="x.dat")
    assert not outcome.is_error and kind in outcome.content
    assert outcome.images == ((kind, start + b"1" * 10_000),)


def test_an_image_that_is_too_large_is_refused(tools: Tools) -> None:
    (tools.cwd / "x.png").write_bytes(PNG + b"\0" * read_module.MAX_IMAGE)
    assert "scale it down" in tools.bad("read", path="x.png")


def test_what_is_no_regular_file_is_refused_at_once(tools: Tools) -> None:
    os.mkfifo(tools.cwd / "pipe")
    assert "a named pipe" in tools.bad("read", path="pipe")
    assert "a device" in tools.bad("read", path="/dev/zero")
    assert "use find" in tools.bad("read", path=".")
    assert "does not exist" in tools.bad("read", path="gone")
    assert "Not a directory" in tools.bad("read", path="/dev/null/x")
    (tools.cwd / "loop").symlink_to("loop")
    assert "symbolic links" in tools.bad("read", path="loop")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_a_result(tools: Tools) -> None:
    (tools.cwd / "x").touch(0)
    assert "Permission denied" in tools.bad("read", path="x")


def test_a_link_is_followed(tools: Tools) -> None:
    (tools.cwd / "x").write_text("text")
    Path(tools.cwd / "link").symlink_to("x")
    assert tools.good("read", path="link") == "text"


def test_cancelling_ends_a_long_read(tools: Tools) -> None:
    with (tools.cwd / "huge").open("wb") as file:
        file.write(b"\n")
        file.truncate(1 << 40)
    took = tools.cancel("read", lambda: True, path="huge", offset=3)
    assert took < 5
