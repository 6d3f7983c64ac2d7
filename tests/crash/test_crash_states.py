"""Every state of a disk that a power loss could leave: nothing acknowledged is lost.

The short form tears writes at some places; `pytest --long tests/crash` at each byte, loses power a
second time in recoveries, and wanders through random sessions.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crash.conftest import Figures
from crash.disk import Cut, Explorer, File, Folder, Name, Named, Operation, Synced, Write
from crash.explore import Judge, scratch
from crash.promises import torn_tail
from crash.recorder import Killed, Recorder
from crash.scenarios import (
    SCENARIOS,
    Play,
    delete_and_restore_all,
    fork_all,
    import_again,
    look,
    resume,
    resume_twice,
    wandering,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS has a sync of its own")

THEN = {
    "turn": look,
    "blobs": fork_all,
    "forking": fork_all,
    "importing": import_again,
    "deleting": delete_and_restore_all,
}
"""What else the next process may do."""

PARTS = {"deleting": 0.25, "forking": 0.25}
"""Of which scenarios so many moments are tried: these two take longer than all others together."""

all_scenarios = pytest.mark.parametrize("name", SCENARIOS)


@all_scenarios
def test_a_power_loss_after_any_operation_loses_nothing(name: str, figures: Figures) -> None:
    with scratch() as folder:
        judge = Judge(folder, every=12, most=5, nested=0.002)
        judge.power_loss(SCENARIOS[name])
    figures += judge.tally


@all_scenarios
def test_a_kill_and_then_a_power_loss_lose_nothing(name: str, figures: Figures) -> None:
    with scratch() as folder:
        judge = Judge(folder, every=0, most=4)
        judge.kills(SCENARIOS[name], resume, part=0.05)
        if name in THEN:
            judge.kills(SCENARIOS[name], THEN[name], part=0.05)
    figures += judge.tally


@pytest.mark.long
@pytest.mark.timeout(3600)
@all_scenarios
def test_a_power_loss_at_any_byte_loses_nothing(name: str, figures: Figures) -> None:
    with scratch() as folder:
        judge = Judge(folder, every=1024, nested=0.005)
        judge.power_loss(SCENARIOS[name])
    figures += judge.tally


@pytest.mark.long
@pytest.mark.timeout(3600)
@all_scenarios
def test_a_kill_at_any_operation_and_then_a_power_loss_lose_nothing(
    name: str, figures: Figures
) -> None:
    with scratch() as folder:
        judge = Judge(folder, every=4, most=16)
        part = PARTS.get(name, 1)
        judge.kills(SCENARIOS[name], resume_twice, part=part)
        if name in THEN:
            judge.kills(SCENARIOS[name], THEN[name], part=part)
    figures += judge.tally


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", THEN)
def test_what_another_process_does_after_a_kill_loses_nothing(name: str, figures: Figures) -> None:
    """At every moment, with few states of each: a minute where all of them take many."""
    with scratch() as folder:
        judge = Judge(folder, every=0, most=2)
        judge.kills(SCENARIOS[name], THEN[name])
    figures += judge.tally


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_in_a_random_session_loses_nothing(seed: int, figures: Figures) -> None:
    with scratch() as folder:
        judge = Judge(folder, every=24, nested=0.01, seed=seed)
        judge.power_loss(wandering(seed))
        judge.kills(wandering(seed), resume, part=0.1)
    figures += judge.tally


# -- the harness itself ----------------------------------------------------------------------------


Flat = tuple[tuple[str, bytes | None], ...]


def states(*operations: Operation, root: Folder, every: int = 1024) -> set[Flat]:
    explorer = Explorer(root, every=every)
    for operation in operations:
        explorer.after(operation)
    return {tuple(sorted(tree.items())) for tree, _ in explorer.states()}


def test_what_was_not_synced_may_be_missing_torn_or_nul() -> None:
    file = File(bytearray(b"old\n"))
    root = Folder({"log": file})
    found = states(Write(file, 4, b"ab\n"), root=root)
    assert {data for [(_, data)] in found} == {
        *(b"old\n", b"old\na", b"old\nab", b"old\nab\n"),
        *(b"old\n\0", b"old\n\0\0", b"old\n\0\0\0", b"old\na\0\0", b"old\nab\0"),
        *(b"old\n\0b\n", b"old\n\0\0\n"),
    }


def test_what_was_synced_stays() -> None:
    file = File(bytearray(b"old"))
    root = Folder({"log": file})
    assert states(Write(file, 3, b"ab"), Synced(file), root=root) == {(("log", b"oldab"),)}


def test_the_second_of_two_writes_may_be_there_without_the_first() -> None:
    file = File()
    root = Folder({"log": file})
    found = states(Write(file, 0, b"1"), Write(file, 1, b"2"), root=root)
    assert (("log", b"\x002"),) in found and (("log", b"1\0"),) in found


def test_a_cut_may_be_lost() -> None:
    file = File(bytearray(b"old torn"))
    assert states(Cut(file, 3), root=Folder({"log": file})) == {
        (("log", b"old torn"),),
        (("log", b"old"),),
    }


def test_a_name_is_lost_with_its_folder_and_is_there_without_its_bytes() -> None:
    root, folder, file = Folder(), Folder(), File()
    made = Named((Name(root, "d", folder),)), Named((Name(folder, "f", file),))
    written = Write(file, 0, b"x")
    assert states(*made, written, Synced(file), Synced(folder), root=root) == {
        (),
        (("d", None), ("d/f", b"x")),
    }
    assert states(*made, Synced(root), written, Synced(folder), root=root) == {
        (("d", None), ("d/f", b"")),
        (("d", None), ("d/f", b"\0")),
        (("d", None), ("d/f", b"x")),
    }


def test_a_rename_is_whole_or_not_there() -> None:
    file = File(bytearray(b"x"))
    one, two = Folder({"f": file}), Folder()
    root = Folder({"1": one, "2": two})
    moved = Named((Name(one, "f", None), Name(two, "f", file)))
    before = (("1", None), ("1/f", b"x"), ("2", None))
    after = (("1", None), ("2", None), ("2/f", b"x"))
    assert states(moved, root=root) == {before, after}
    assert states(moved, Synced(one), root=root) == {after}


def test_what_a_name_meant_before_does_not_come_back_after_what_it_means_now() -> None:
    file = File(bytearray(b"x"))
    one, two = Folder(), Folder()
    root = Folder({"1": one, "2": two})
    born = Named((Name(one, "f", file),))
    moved = Named((Name(one, "f", None), Name(two, "f", file)))
    after = (("1", None), ("2", None), ("2/f", b""))
    assert states(born, moved, Synced(two), Synced(file), root=root) == {after}


@pytest.mark.parametrize(
    ("data", "tail"),
    [
        (b"{}\n", b""),
        (b"{}\n{}", b""),
        (b'{}\n{"a', b'{"a'),
        (b"{}\nx\n\0\0\n", b"x\n\0\0\n"),
        (b"{}\nx\n{}\n\n", b"\n"),
    ],
)
def test_the_torn_tail_is_all_behind_the_last_object(data: bytes, tail: bytes) -> None:
    assert torn_tail(data) == tail


def test_a_kill_stops_everything_at_once(tmp_path: Path) -> None:
    done = []

    def hook(name: str, about: str) -> None:
        done.append(name)
        if name == "fsync":
            raise Killed

    with Recorder(tmp_path, hook) as recorder:
        with pytest.raises(Killed):
            SCENARIOS["birth"](Play(tmp_path, recorder))
        assert done == ["mkdir", "open", "fsync"]  # nothing was tidied up
        recorder.bury()
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]


def test_what_is_written_past_the_recorder_is_refused(tmp_path: Path) -> None:
    with Recorder(tmp_path), pytest.raises(RuntimeError, match="cannot follow"):
        (tmp_path / "x").write_bytes(b"")
    (tmp_path / "x").write_bytes(b"")


TRACED = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from crash.recorder import Recorder
from crash.scenarios import SCENARIOS, Play, resume
root = Path(sys.argv[1])
with Recorder(root) as recorder:
    for name, scenario in SCENARIOS.items():
        if name not in ("deleting", "looking"):  # SQLite writes, too
            scenario(Play(root, recorder))
    for log in root.glob("sessions/*/*.jsonl"):
        os.truncate(log, log.stat().st_size - 3)
    resume(Play(root, recorder))
kinds = [type(operation).__name__ for operation in recorder.operations]
print(*(kind for kind in kinds if kind != "Kept"))
"""

CALLS = {
    "Write": ("write", "pwrite64", "writev", "copy_file_range", "sendfile"),
    "Cut": ("ftruncate", "truncate"),
    "Named": ("openat", "mkdir", "rmdir", "link", "unlink", "unlinkat", "rename"),
}


def test_the_recorder_misses_nothing_that_the_system_is_asked_for(tmp_path: Path) -> None:
    """The same operations, counted by the kernel. (Syncs are left out by the recorder.)"""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    root = (tmp_path / "root").resolve()
    root.mkdir()
    trace = tmp_path / "trace"
    calls = ",".join(call for names in CALLS.values() for call in names)
    strace = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={calls}"]
    program = [sys.executable, "-c", TRACED, str(root), *sys.path]
    done = subprocess.run([*strace, *program], capture_output=True, text=True, check=True)
    told = done.stdout.split()
    seen = []
    for line in trace.read_text().splitlines():
        name = re.search(r"(\w+)\(", line)
        if name is None or f"{root}/" not in line or not re.search(r" = \d", line):
            continue
        if name[1] == "openat" and "O_CREAT" not in line:
            continue
        if name[1] in ("copy_file_range", "sendfile") and line.endswith(" = 0"):
            continue
        seen += [kind for kind, names in CALLS.items() if name[1] in names]
    assert len(told) > 150
    assert seen == [kind for kind in told if kind in CALLS]
    assert set(told) == {*CALLS, "Synced"}
