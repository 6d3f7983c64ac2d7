"""The harness is proved by what it catches: awl with one of these mistakes in it turns it red.

Each mistake is made in a copy of the source, and the tests that are to catch it run on that copy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import Figures

ROOT = Path(__file__).parents[2]
STATES = "tests/crash/test_crash_states.py"


@dataclass(frozen=True)
class Mistake:
    """What is wrong, how the source comes to be so, and the tests that must not let it pass."""

    what: str
    module: str
    old: str
    new: str
    caught_by: str
    chosen: str = ""


MISTAKES = [
    Mistake(
        "the sync of an append is dropped",
        "log/file.py",
        "            self._check_name()\n            sync(self.fd)\n",
        "            self._check_name()\n",
        STATES,
        "power_loss_after and going_on",
    ),
    Mistake(
        "the sync of a directory is dropped",
        "log/durable.py",
        "    folder, *above = folders_of(path)\n    sync_directory(folder)\n",
        "    folder, *above = folders_of(path)\n",
        STATES,
        "power_loss_after and birth",
    ),
    Mistake(
        "the log is cut before its torn bytes are kept",
        "log/file.py",
        "            torn = self._save_torn(end, size)\n            os.ftruncate(self.fd, end)\n",
        "            held = read_at(self.fd, size - end, end)\n"
        "            os.ftruncate(self.fd, end)\n"
        "            os.fsync(self.fd)\n"
        "            write_all(self.fd, held)\n"
        "            torn = self._save_torn(end, size)\n"
        "            os.ftruncate(self.fd, end)\n",
        STATES,
        "power_loss_after and tearing",
    ),
    Mistake(
        "an append does not look where the file ends",
        "log/file.py",
        "self._unsettled or os.lseek(self.fd, 0, os.SEEK_END) != self.end:\n",
        "self._unsettled:\n",
        "tests/log/test_file.py",
        "another_program_changed",
    ),
    Mistake(
        "recovery cuts at the first bad line",
        "log/file.py",
        "        end, has_newline = last_object(self.fd)\n        if end == 0:\n",
        "        end, has_newline = last_object(self.fd)\n"
        "        at = 0\n"
        "        for line in os.pread(self.fd, end, 0).splitlines(True):\n"
        "            if not is_object(line.removeprefix(BOM)):\n"
        "                end, has_newline = at, True\n"
        "                break\n"
        "            at += len(line)\n"
        "        if end == 0:\n",
        "tests/crash/test_model.py",
    ),
    Mistake(
        "an entry is acknowledged before it is synced",
        "session.py",
        "                self._log.settle(line)\n",
        '                self._log.end += len(line)\n                self._log._unsettled = b""\n',
        STATES,
        "power_loss_after and turn",
    ),
    Mistake(
        "several entries are acknowledged before they are synced",
        "log/file.py",
        "        start = self.begin(lines)\n        self.settle(lines)\n        return start\n",
        "        sync(self.fd)\n        start = self.begin(lines)\n"
        '        self.end += len(lines)\n        self._unsettled = b""\n        return start\n',
        STATES,
        "power_loss_after and turn",
    ),
    Mistake(
        "the index takes in a log that is not durable",
        "index/level.py",
        "            sync(fd)\n",
        "            pass\n",
        STATES,
        "another_process and turn",
    ),
    Mistake(
        "a blob is not synced before a line names it",
        "log/blobs.py",
        "            os.fsync(fd)\n",
        "",
        STATES,
        "power_loss_after and blobs",
    ),
    Mistake(
        "opening a log does not sync what another process left unsynced",
        "log/file.py",
        "        if settle:\n            os.fsync(self.fd)\n",
        "",
        STATES,
        "kill_and_then",
    ),
    Mistake(
        "a fork appears before it is durable",
        "log/birth.py",
        "        os.fsync(self.fd)\n",
        "",
        STATES,
        "power_loss_after and forking",
    ),
    Mistake(
        "the trash is not durable before a log moves there",
        "store/trash.py",
        "                sync_directory(folder)\n            log.rename(item.log)\n",
        "                pass\n            log.rename(item.log)\n",
        STATES,
        "power_loss_after and deleting",
    ),
    Mistake(
        "a failed append is not cut back",
        "log/file.py",
        "        with contextlib.suppress(OSError):\n            self._cut_back()\n",
        "        self._unsettled = b''\n",
        "tests/crash/test_faults.py",
        "nothing_is_lost and turn",
    ),
    Mistake(
        "a birth that failed is not taken back",
        "log/file.py",
        "            _take_back(path)\n",
        "",
        "tests/crash/test_faults.py",
        "nothing_is_lost and birth",
    ),
    Mistake(
        "what belongs to a log follows it before its own move is durable",
        "store/trash.py",
        "    for folder in (root / place.name, place):\n",
        "    for folder in ():\n",
        STATES,
        "another_process and deleting",
    ),
    Mistake(
        "the seqs of lost lines are used again",
        "log/file.py",
        "            lost_lines=lost_lines(self.path),\n",
        "            lost_lines=0,\n",
        "tests/test_state.py",
        "uses_no_seq_twice",
    ),
    Mistake(
        "nobody takes the lock",
        "log/lock.py",
        "        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)\n",
        "        pass\n",
        "tests/crash/test_writers.py",
        "race",
    ),
]


def run_with(mistake: Mistake | None, folder: Path, caught_by: str, chosen: str) -> int:
    """Run tests on a copy of the source with a mistake in it; pytest's exit code."""
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    if mistake is not None:
        module = source / "awl" / mistake.module
        text = module.read_text()
        assert text.count(mistake.old) == 1, f"{mistake.what}: the source is not as it was"
        module.write_text(text.replace(mistake.old, mistake.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    command += [
        "--long",
        "--timeout",
        "120",
        str(ROOT / caught_by),
        *(["-k", chosen] if chosen else []),
    ]
    environ = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.returncode


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.what)
def test_each_mistake_turns_the_harness_red(
    tmp_path: Path, mistake: Mistake, figures: Figures
) -> None:
    assert run_with(mistake, tmp_path, mistake.caught_by, mistake.chosen) == 1
    figures.count("mistakes that the harness caught")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_copy_without_a_mistake_is_green(tmp_path: Path) -> None:
    """Else a copy that cannot run at all would count as caught."""
    assert run_with(None, tmp_path, STATES, "power_loss_after and birth") == 0


def test_every_mistake_can_still_be_made() -> None:
    for mistake in MISTAKES:
        text = (ROOT / "src" / "awl" / mistake.module).read_text()
        assert text.count(mistake.old) == 1, mistake.what
