"""Checking and repairing a log take a few bytes an entry, however large it is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from log.making import HEADER, message
from running import peak_memory

from awl.log.line import encode

CHECK = """
import sys
from pathlib import Path
from awl.health.verify import verify
assert verify(Path(sys.argv[1])).ok
"""


def large_log(path: Path, size: int) -> Path:
    """A sound log of about this many bytes, of entries of some 660."""
    words = "word " * 100
    with path.open("wb") as file:
        file.write(encode(HEADER))
        seq = 0
        while file.tell() < size:
            seq += 1
            file.write(encode(message(seq, f"{seq} {words}")))
    path.chmod(0o600)
    return path


def peak(code: str, path: Path) -> int:
    """The memory that a process needs at most, in bytes."""
    return peak_memory([sys.executable, "-c", code, path])[0]


REPAIR = """
import sys
from pathlib import Path
from awl.health.repair import repair
made = repair(Path(sys.argv[1]), Path(sys.argv[1]).parent / "sessions")
assert made is not None
made.path.unlink()
"""


def damaged(path: Path) -> Path:
    """The same log with a line in its middle that is lost, and one that is glued to a fragment."""
    with path.open("r+b") as file:
        for place, data in ((0.5, b"\n"), (0.7, b'{"type":')):
            file.seek(int(path.stat().st_size * place))
            file.readline()
            file.write(data)
    return path


def test_memory_grows_with_the_number_of_entries_not_with_the_log(tmp_path: Path) -> None:
    small, large = 40 << 20, 100 << 20
    before = peak(CHECK, large_log(tmp_path / "small.jsonl", small))
    after = peak(CHECK, large_log(tmp_path / "large.jsonl", large))
    assert after - before < 0.25 * (large - small)


def test_so_it_is_when_a_copy_is_made(tmp_path: Path) -> None:
    small, large = 40 << 20, 100 << 20
    before = peak(REPAIR, damaged(large_log(tmp_path / "small.jsonl", small)))
    after = peak(REPAIR, damaged(large_log(tmp_path / "large.jsonl", large)))
    assert after - before < 0.25 * (large - small)


@pytest.mark.long
def test_a_log_of_a_gigabyte_takes_a_tenth_of_it_and_its_copy_a_fifth(tmp_path: Path) -> None:
    path = large_log(tmp_path / "large.jsonl", 1 << 30)
    try:
        assert peak(CHECK, path) < 0.1 * (1 << 30)
        assert peak(REPAIR, damaged(path)) < 0.2 * (1 << 30)
    finally:
        os.unlink(path)  # noqa: PTH108
