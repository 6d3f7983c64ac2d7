from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest

from awl.tools import ToolContext, ToolOutcome
from awl.tools import _files as files
from awl.tools._input import Failure, Stopped
from awl.tools.write import Write

from .conftest import Tools


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_created_with_its_folders(tools: Tools) -> None:
    content = tools.good("write", path="a/b/ü.txt", content="é\r\n\0")
    assert content == "created a/b/ü.txt: 5 bytes"
    assert (tools.cwd / "a/b/ü.txt").read_bytes() == "é\r\n\0".encode()
    assert names(tools.cwd / "a/b") == ["ü.txt"]


def test_a_new_file_has_the_mode_that_the_umask_gives(tools: Tools) -> None:
    before = os.umask(0o027)
    try:
        tools.good("write", path="x", content="")
    finally:
        os.umask(before)
    assert mode(tools.cwd / "x") == 0o640


def test_a_file_is_replaced_and_keeps_its_mode(tools: Tools) -> None:
    path = tools.cwd / "run.sh"
    path.write_text("old text")
    path.chmod(0o751)
    assert tools.good("write", path="run.sh", content="new") == (
        "replaced run.sh: 3 bytes, before 8"
    )
    assert path.read_text() == "new" and mode(path) == 0o751
    assert names(tools.cwd) == ["run.sh"]


def test_a_link_stays_a_link(tools: Tools) -> None:
    (tools.cwd / "folder").mkdir()
    (tools.cwd / "folder" / "real").write_text("old")
    (tools.cwd / "link").symlink_to("folder/real")
    (tools.cwd / "dangling").symlink_to("folder/new")
    tools.good("write", path="link", content="new")
    tools.good("write", path="dangling", content="newer")
    assert (tools.cwd / "link").is_symlink() and (tools.cwd / "dangling").is_symlink()
    assert (tools.cwd / "folder" / "real").read_text() == "new"
    assert (tools.cwd / "folder" / "new").read_text() == "newer"


def test_what_is_no_regular_file_is_not_replaced(tools: Tools) -> None:
    os.mkfifo(tools.cwd / "pipe")
    assert "a named pipe" in tools.bad("write", path="pipe", content="x")
    assert "a directory" in tools.bad("write", path=".", content="x")
    assert "a device" in tools.bad("write", path="/dev/null", content="x")
    (tools.cwd / "loop").symlink_to("loop")
    assert "loop" in tools.bad("write", path="loop", content="x")
    (tools.cwd / "file").touch()
    assert "file" in tools.bad("write", path="file/x", content="x")
    assert names(tools.cwd) == ["file", "loop", "pipe"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everything")
def test_a_write_protected_file_is_not_replaced(tools: Tools) -> None:
    (tools.cwd / "x").touch(0o444)
    assert "write-protected" in tools.bad("write", path="x", content="x")


def test_a_name_that_is_too_long_is_a_result(tools: Tools) -> None:
    assert "name too long" in tools.bad("write", path="x" * 300, content="x")


def test_a_failed_write_leaves_the_file_as_it_was(tools: Tools) -> None:
    path = tools.cwd / "x"
    path.write_text("old")
    seen = files.look(path)
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Stopped):
        files.replace(path, b"new", stopped, seen)
    path.write_text("by someone else")
    with pytest.raises(Failure, match="changed by another program"):
        files.replace(path, b"new", threading.Event(), seen)
    with pytest.raises(Failure, match="changed by another program"):
        files.replace(path, b"new", threading.Event(), None)
    assert path.read_text() == "by someone else"
    assert names(tools.cwd) == ["x"]


def test_writes_at_the_same_time_leave_one_of_them_whole(tools: Tools) -> None:
    async def run() -> None:
        write = tools.by_name["write"]
        await asyncio.gather(
            *(
                write.run({"path": "x", "content": letter * 100_000}, tools.context)
                for letter in "abcdefgh"
            )
        )

    asyncio.run(run())
    text = (tools.cwd / "x").read_text()
    assert len(text) == 100_000 and len(set(text)) == 1
    assert names(tools.cwd) == ["x"]


def test_a_write_that_was_done_before_it_could_be_stopped_is_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renaming, go_on = threading.Event(), threading.Event()
    replace = Path.replace

    def slow(path: Path, target: Path) -> Path:
        renaming.set()
        assert go_on.wait(30)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", slow)

    async def cancelled_meanwhile() -> ToolOutcome:
        work = Write().run({"path": "a.txt", "content": "data"}, ToolContext(cwd=tmp_path))
        task = asyncio.create_task(work)
        await asyncio.to_thread(renaming.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        return await task

    outcome = asyncio.run(cancelled_meanwhile())
    assert not outcome.is_error
    assert (tmp_path / "a.txt").read_text() == "data"
