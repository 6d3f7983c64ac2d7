from __future__ import annotations

from pathlib import Path

from running import Awl

from awl.cli.health import _in_words
from awl.health.usage import usage_below, usage_of
from awl.log.blobs import Blobs
from awl.store.files import Store
from health.test_redact import a_secret_session


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder, each once."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            stat = path.stat()
            found[stat.st_dev, stat.st_ino] = stat.st_size
    return sum(found.values())


def test_every_byte_below_the_folder_is_somewhere_once(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    store = Store(root)
    log = a_secret_session(store, tmp_path)
    child = store.fork(log)  # its blobs are the same files
    deleted = store.fork(log)
    store.delete(deleted)
    (log.parent / "notes.txt").write_text("x" * 1000)
    (log.parent / "link").symlink_to(log)
    store.close()
    usage = usage_below(root, store.logs())
    assert usage.total == size_of(root)
    assert {Path(taken.path) for taken in usage.sessions} == {log, child}
    sizes = [taken.total for taken in usage.sessions]
    assert sizes == sorted(sizes)
    by_path = {Path(taken.path): taken for taken in usage.sessions}
    blobs = sum(blob.stat().st_size for blob in Blobs(log).directory.iterdir())
    assert by_path[log].log == log.stat().st_size
    assert by_path[log].blobs == by_path[child].blobs == blobs
    assert by_path[log].torn > 0 == by_path[child].torn
    assert usage.shared == 2 * blobs  # the child's, and those of the one in the trash
    assert usage.databases == size_of(root / ".awl")
    assert usage.trash == size_of(root / ".trash")
    assert usage.other == 1000


def test_a_log_that_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert usage_of([tmp_path / "gone" / "x.jsonl", tmp_path / "x.jsonl"]).total == 0
    assert usage_below(tmp_path / "nowhere", []).total == 0


def test_the_largest_session_is_last(awl: Awl) -> None:
    awl("-p", "short")
    awl("-p", "long " * 1000)
    lines = awl("sessions", "du").lines
    assert lines[0].endswith("  short") and "long long" in lines[1] and lines[-1].endswith("in all")
    assert len(lines) == 3
    everything = awl("sessions", "du", "--all").lines
    assert any("databases" in line for line in everything)
    found = awl("sessions", "du", "--all", "--json").json
    assert found["total"] == size_of(awl.sessions)
    assert [one["title"][:5] for one in found["sessions"]] == ["short", "long "]
    elsewhere = awl("sessions", "du", "--cwd", "/", "--json").json
    assert elsewhere == {
        "sessions": [],
        "shared": 0,
        "databases": 0,
        "trash": 0,
        "other": 0,
        "total": 0,
    }


def test_sizes_are_in_words() -> None:
    sizes = (0, 999, 1000, 12345, 99_949, 99_950, 999_499, 999_500, 5 * 10**9, 10**15)
    assert [_in_words(size) for size in sizes] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 kB",
        "99.9 kB",
        "100 kB",
        "999 kB",
        "1.0 MB",
        "5.0 GB",
        "1000 TB",
    ]
