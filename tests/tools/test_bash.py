from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from awl.tools import MAX_SHOWN, ToolContext
from awl.tools import bash as bash_module
from awl.tools.bash import Bash

from .conftest import Tools, until


def alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not, though its number is still there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def pids(folder: Path, count: int) -> list[int]:
    """The process numbers that a command has written, once there are that many."""
    found = [path.read_text().strip() for path in folder.glob("pid*")]
    return [int(pid) for pid in found] if len(found) == count and all(found) else []


def all_end(processes: list[int]) -> None:
    assert processes
    asyncio.run(until(lambda: not any(map(alive, processes)), limit=5))


# A shell with a child and a grandchild; the last does not mind being asked to end.
FAMILY = """
echo $$ >pid1
bash -c 'echo $$ >pid2; (trap "" TERM; echo $BASHPID >pid3; while :; do sleep 0.1; done) & wait' &
echo started
wait
"""


def test_output_is_standard_output_and_errors_in_order(tools: Tools) -> None:
    assert tools.good("bash", command="echo a; echo b >&2; echo c") == "a\nb\nc\n"
    assert "".join(tools.progress) == "a\nb\nc\n"


def test_it_runs_in_the_directory_with_the_sessions_environment(tools: Tools) -> None:
    content = tools.good("bash", command="pwd -P; echo $AWL_SESSION_ID; echo $HOME")
    assert content == f"{tools.cwd.resolve()}\nid-1\n{os.environ['HOME']}\n"


def test_the_command_is_one_argument(tools: Tools) -> None:
    command = "echo \"$0 $#\" 'a  b' \"it's\" $'\\t' ; cat <<'E'\n$x `y` \\z\nE\n"
    assert tools.good("bash", command=command).endswith("a  b it's \t\n$x `y` \\z\n")


def test_input_is_closed_and_there_is_no_terminal(tools: Tools) -> None:
    assert tools.good("bash", command="cat; tty -s || echo none; (: </dev/tty) || true") != ""
    assert "none" in "".join(tools.progress)


def test_no_output_is_said(tools: Tools) -> None:
    assert tools.good("bash", command="true") == "(no output)"
    assert tools.bad("bash", command="false") == "[exit code 1]"


def test_a_failure_says_its_exit_code_last(tools: Tools) -> None:
    assert tools.bad("bash", command="echo a; exit 3") == "a\n[exit code 3]"
    assert tools.bad("bash", command="printf a; exit 3") == "a\n[exit code 3]"
    assert tools.bad("bash", command="kill -SEGV $$") == "[killed by SIGSEGV: exit code 139]"


def test_a_directory_that_is_gone_is_a_result(tmp_path: Path) -> None:
    context = ToolContext(cwd=tmp_path / "gone")
    outcome = asyncio.run(Bash().run({"command": "true"}, context))
    assert outcome.is_error and str(tmp_path / "gone") in outcome.content


def test_a_command_that_is_too_long_is_a_result(tools: Tools) -> None:
    assert "could not be started" in tools.bad("bash", command="#" + "x" * 4_000_000)


def test_output_is_shown_as_it_arrives(tools: Tools) -> None:
    async def run() -> None:
        call = Bash().run(
            {"command": "echo a; while ! [ -e go ]; do sleep 0.01; done; echo b"}, tools.context
        )
        task = asyncio.create_task(call)
        await until(lambda: tools.progress == ["a\n"])
        assert not task.done()
        (tools.cwd / "go").touch()
        assert (await task).content == "a\nb\n"

    asyncio.run(run())


def test_invalid_utf8_is_replaced_and_the_bytes_are_kept(tools: Tools) -> None:
    outcome = tools("bash", command=r"printf 'a\xffb\xc3'; sleep 0.05; printf '\xa9\x00\x1b[1m'")
    assert outcome.content == "a\ufffdb\u00e9\0\x1b[1m"
    assert outcome.output == b"a\xffb\xc3\xa9\0\x1b[1m"
    assert "".join(tools.progress) == outcome.content


def test_valid_output_that_is_shown_whole_is_not_kept_twice(tools: Tools) -> None:
    text = "é" * (MAX_SHOWN - 1) + "\n"
    (tools.cwd / "x").write_text(text)
    outcome = tools("bash", command="cat x")
    assert outcome.content == text and outcome.output is None


def test_long_output_is_cut_in_the_middle_and_kept_whole(tools: Tools) -> None:
    outcome = tools("bash", command="seq 1 700000; exit 1")
    whole = "".join(f"{number}\n" for number in range(1, 700_001)).encode()
    assert outcome.output == whole and len(whole) > 4_500_000
    assert len(outcome.content) <= MAX_SHOWN + 200
    head, _, rest = outcome.content.partition("[")
    note, _, tail = rest.partition("]\n")
    assert head.startswith("1\n2\n") and tail.endswith("700000\n[exit code 1]")
    tail = tail.removesuffix("[exit code 1]")
    left_out = int(note.split()[0])
    assert left_out == len(whole) - len(head) - len(tail)
    assert whole.startswith(head.encode()) and whole.endswith(tail.encode())
    assert "".join(tools.progress).encode() == whole


def test_one_long_line_is_cut_between_characters(tools: Tools) -> None:
    (tools.cwd / "x").write_bytes(b"x" + "€".encode() * 100_000)
    outcome = tools("bash", command="cat x")
    assert "\ufffd" not in outcome.content
    assert len(outcome.content) > MAX_SHOWN / 4


def test_endless_output_is_bounded_in_memory(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bash_module, "KEPT", 1_000_000)
    outcome = tools("bash", command="yes | head -c 30000000; echo last")
    assert outcome.output is not None
    assert len(outcome.output) < 1_000_000 + bash_module.TAIL + 100
    dropped = 30_000_005 - 1_000_000 - bash_module.TAIL
    assert f"of which {dropped} were dropped" in outcome.content
    assert f"[{dropped} bytes were dropped here]".encode() in outcome.output
    assert outcome.content.endswith("y\nlast\n") and outcome.output.endswith(b"y\nlast\n")
    assert sum(map(len, tools.progress)) < 1_000_100


def test_a_timeout_ends_the_whole_family(tools: Tools) -> None:
    start = time.monotonic()
    content = tools.bad("bash", command=FAMILY, timeout=1)
    assert time.monotonic() - start < 6
    assert content.startswith("started\n[timed out after 1 s")
    all_end(pids(tools.cwd, 3))


def test_cancelling_ends_the_whole_family(tools: Tools) -> None:
    took = tools.cancel("bash", lambda: bool(pids(tools.cwd, 3)), command=FAMILY)
    assert took < 5
    assert "".join(tools.progress) == "started\n"
    all_end(pids(tools.cwd, 3))


def test_cancelling_twice_kills_at_once(tools: Tools) -> None:
    async def run() -> float:
        task = asyncio.create_task(Bash().run({"command": FAMILY}, tools.context))
        await until(lambda: bool(pids(tools.cwd, 3)))
        start = time.monotonic()
        task.cancel()
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - start

    assert asyncio.run(run()) < bash_module.GRACE
    all_end(pids(tools.cwd, 3))


def test_a_polite_process_may_clean_up(tools: Tools) -> None:
    command = "trap 'sleep 0.2; echo bye; exit' TERM; echo hi; while :; do sleep 0.05; done"
    content = tools.bad("bash", command=command, timeout=0.5)
    assert content.startswith("hi\n") and "bye\n[timed out" in content


def test_a_stopped_process_is_ended_too(tools: Tools) -> None:
    tools.cancel("bash", lambda: bool(pids(tools.cwd, 1)), command="echo $$ >pid1; kill -STOP $$")
    all_end(pids(tools.cwd, 1))


def test_a_background_child_that_holds_the_output_is_ended_and_said(tools: Tools) -> None:
    start = time.monotonic()
    content = tools.good("bash", command="sleep 100 & echo $! >pid1; echo done")
    assert time.monotonic() - start < 10
    assert content.startswith("done\n[processes in the background")
    all_end(pids(tools.cwd, 1))


def test_a_background_child_that_writes_for_ever_does_not_hold_the_call(tools: Tools) -> None:
    content = tools.bad("bash", command="yes & echo $! >pid1; exit 2")
    assert content.endswith("[exit code 2]") and "in the background" in content
    all_end(pids(tools.cwd, 1))


def test_a_background_child_in_its_own_session_does_not_hold_the_call(tools: Tools) -> None:
    content = tools.good("bash", command="setsid sleep 30 & echo $! >pid1; sleep 0.1; echo done")
    assert content.startswith("done\n[processes in the background")
    (pid,) = pids(tools.cwd, 1)
    os.kill(pid, signal.SIGKILL)


def test_a_background_child_whose_output_goes_elsewhere_is_left_alone(tools: Tools) -> None:
    assert tools.good("bash", command="sleep 100 >log 2>&1 & echo $! >pid1; echo done") == "done\n"
    (pid,) = pids(tools.cwd, 1)
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)


def test_calls_run_beside_each_other(tools: Tools) -> None:
    async def run() -> None:
        meet = "touch {0}; while ! [ -e {1} ]; do sleep 0.01; done; echo {0}"
        calls = [
            Bash().run({"command": meet.format(*names), "timeout": 20}, tools.context)
            for names in ("ab", "ba")
        ]
        outcomes = await asyncio.gather(*calls)
        assert [outcome.content for outcome in outcomes] == ["a\n", "b\n"]

    asyncio.run(run())


def test_no_descriptors_are_left_open(tools: Tools) -> None:
    tools.good("bash", command="true")
    before = len(list(Path("/dev/fd").iterdir()))
    for command in ("true", "false", "sleep 100 &"):
        tools("bash", command=command)
    tools("bash", command="a\0b")
    tools("bash", command="sleep 9", timeout=0.1)
    assert len(list(Path("/dev/fd").iterdir())) == before
