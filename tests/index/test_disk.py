"""What is seen of the disk is what is there, also of what was seen before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from awl.index import disk
from awl.index.disk import Disk, Folder, is_settled


def seen(root: Path, known: dict[bytes, Folder]) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """What a look with a memory sees, which is what one without sees."""
    look, fresh = Disk(root, known), Disk(root)
    assert sorted(look.logs) == sorted(fresh.logs)
    assert (look.owned, look.links, look.unreadable) == (
        fresh.owned,
        fresh.links,
        fresh.unreadable,
    )
    return {log[0] for log in look.logs}, look.owned, look.links


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are remembered however fresh they are: each test changes them for all to see."""
    monkeypatch.setattr(disk, "is_settled", lambda *arguments: True)


def touch(folder: Path) -> None:
    """Give a folder other times, which a change within one tick of the clock may not."""
    before = folder.stat().st_ctime_ns
    while folder.stat().st_ctime_ns == before:
        folder.chmod(0o700)


@pytest.mark.usefixtures("remembered")
def test_what_comes_grows_and_goes_is_seen(tmp_path: Path) -> None:
    known: dict[bytes, Folder] = {}
    assert seen(tmp_path / "nowhere", known) == (set(), set(), set())
    assert seen(tmp_path, known) == (set(), set(), set())
    folder = tmp_path / "one"
    folder.mkdir()
    log = folder / "a.jsonl"
    log.write_text("1")
    (tmp_path / ".awl").mkdir()
    (tmp_path / "file").write_text("")
    assert seen(tmp_path, known)[0] == {b"one/a.jsonl"}
    log.write_text("12")
    assert [size for _, size, *_ in Disk(tmp_path, known).logs] == [2]
    (folder / "b.jsonl").symlink_to(log)
    (folder / "a.jsonl.owner").write_text("{}")
    touch(folder)
    assert seen(tmp_path, known) == (
        {b"one/a.jsonl", b"one/b.jsonl"},
        {b"one/a.jsonl"},
        {b"one/b.jsonl"},
    )
    log.unlink()
    touch(folder)
    assert seen(tmp_path, known) == (set(), {b"one/a.jsonl"}, {b"one/b.jsonl"})
    folder.rename(tmp_path / "two")
    assert seen(tmp_path, known) == (set(), {b"two/a.jsonl"}, {b"two/b.jsonl"})


@pytest.mark.usefixtures("remembered")
def test_a_folder_that_has_not_changed_is_not_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[object] = []
    real = os.scandir
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "a.jsonl").write_text("1")
    known: dict[bytes, Folder] = {}

    def scandir(path: bytes) -> object:
        scanned.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for _ in range(3):
        assert len(Disk(tmp_path, known).logs) == 1
    assert scanned.count(os.fsencode(folder)) == 1
    monkeypatch.setattr(disk, "_REMEMBERED", 0)
    Disk(tmp_path, known)
    assert scanned.count(os.fsencode(folder)) == 2


def test_a_time_tells_a_change_only_when_the_clock_has_moved_on() -> None:
    second = 1_000_000_000
    assert is_settled(5 * second + 1, 5 * second + 1, 6 * second)
    assert not is_settled(5 * second + 1, 5 * second + 1, 5 * second + 40_000_000)
    assert not is_settled(1, 5 * second + 1, 5 * second + 40_000_000)
    assert not is_settled(5 * second, 5 * second, 6 * second)
    assert is_settled(5 * second, 5 * second, 8 * second)
    assert not is_settled(9 * second + 1, 1, 6 * second)
