from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from pathlib import Path

import pytest

import awl.log.blobs as blobs_module
from awl.conversation import BlobRef
from awl.log.blobs import BlobDamaged, Blobs, MemoryBlobs

from .making import names_in

DATA = bytes(range(256)) * 300
NAME = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "sessions" / "x.jsonl")


def test_a_blob_is_a_file_named_by_its_hash_beside_the_log(blobs: Blobs, tmp_path: Path) -> None:
    ref = blobs.put(DATA)
    assert ref == BlobRef(blob=NAME, size=len(DATA))
    assert (tmp_path / "sessions" / "x.blobs" / NAME).read_bytes() == DATA
    assert blobs.get(ref) == DATA


def test_nothing_appears_before_the_first_blob(blobs: Blobs) -> None:
    with pytest.raises(BlobDamaged):
        blobs.get(BlobRef(blob=NAME, size=1))
    assert not blobs.directory.parent.exists()


def test_the_same_bytes_are_one_file(blobs: Blobs) -> None:
    first = blobs.put(DATA)
    before = (blobs.directory / NAME).stat()
    assert blobs.put(DATA) == first
    assert (blobs.directory / NAME).stat().st_ino == before.st_ino
    assert names_in(blobs.directory) == [NAME]


def test_an_empty_blob_is_one_too(blobs: Blobs) -> None:
    assert blobs.get(blobs.put(b"")) == b""


def test_a_damaged_file_under_the_name_is_written_anew(blobs: Blobs) -> None:
    ref = blobs.put(DATA)
    (blobs.directory / NAME).write_bytes(DATA[:100])
    with pytest.raises(BlobDamaged, match="not what was stored"):
        blobs.get(ref)
    blobs.put(DATA)
    assert blobs.get(ref) == DATA


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "/etc/passwd", NAME[:-1], NAME + "\n", NAME.upper(), "\x00" * 64]
)
def test_a_reference_that_is_none_never_makes_a_path(blobs: Blobs, name: str) -> None:
    blobs.put(DATA)
    with pytest.raises(BlobDamaged, match="no blob's name"):
        blobs.get(BlobRef(blob=name, size=1))


def test_a_missing_blob_says_so(blobs: Blobs) -> None:
    ref = blobs.put(DATA)
    (blobs.directory / NAME).unlink()
    with pytest.raises(BlobDamaged, match=f"{NAME[:12]} cannot be read"):
        blobs.get(ref)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what a descriptor names")
def test_a_blob_is_synced_then_named_then_its_directories_are_synced(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        what = Path(f"/proc/self/fd/{fd}").readlink()
        done.append(f"sync {'temporary' if what.name.startswith('.') else what}")
        real_fsync(fd)

    def replace(self: Path, target: Path) -> Path:
        done.append(f"name {target.name}")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    blobs.put(DATA)
    parent = blobs.directory.parent
    assert done == [
        f"sync {parent.parent}",
        f"sync {parent}",
        "sync temporary",
        f"name {NAME}",
        f"sync {blobs.directory}",
        f"sync {parent}",
    ]
    done.clear()
    blobs.put(DATA)  # another process may have died between naming it and the sync
    assert done == [f"sync {blobs.directory}", f"sync {parent}"]


@pytest.mark.parametrize("failing", ["write_all", "fsync"])
def test_a_blob_that_cannot_be_written_leaves_nothing_and_can_be_tried_again(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    blobs.put(b"other")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        if failing == "fsync":
            patch.setattr(os, "fsync", fail)
        else:
            patch.setattr(blobs_module, failing, fail)
        with pytest.raises(OSError, match="No space left"):
            blobs.put(DATA)
    assert len(names_in(blobs.directory)) == 1
    assert blobs.get(blobs.put(DATA)) == DATA


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_only_the_owner_can_read_blobs_whatever_the_umask(blobs: Blobs, umask: int) -> None:
    before = os.umask(umask)
    try:
        blobs.put(DATA)
    finally:
        os.umask(before)
    assert stat.S_IMODE((blobs.directory / NAME).stat().st_mode) == 0o600
    for directory in (blobs.directory, blobs.directory.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_blobs_of_a_conversation_that_is_not_kept_touch_no_disk(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    assert blobs.get(blobs.put(DATA)) == DATA
    with pytest.raises(BlobDamaged):
        blobs.get(BlobRef(blob="ab" * 32, size=1))
    assert names_in(tmp_path) == []
