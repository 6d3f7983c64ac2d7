"""The memory of processes that work with logs of a gigabyte, each measured in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.corpus import folder, write_log
from benchmarks.figures import Figure, Found, ratio
from benchmarks.terminals import at_a_terminal

_GROWTH = (
    "import sys; from pathlib import Path; from benchmarks.memory import peak;"
    "from benchmarks.resume import resumed, typed_floor; import awl.store.files;"
    "before = peak(); kept = {}(Path(sys.argv[1])); print(peak() - before)"
)
_COMMAND = (
    "import atexit, sys; from benchmarks.memory import peak; from awl.cli import cli;"
    "before = peak(); atexit.register(lambda: print(peak() - before, file=sys.stderr));"
    "cli(sys.argv[1:], prog_name='awl')"
)


def peak() -> int:
    """The most bytes of memory that this process has held (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    raise LookupError("no VmHWM")


def measure(quick: bool) -> Found:
    if sys.platform != "linux":
        return Found()
    entries = 10_000 if quick else 100_000
    large, last = (75_000, 1_000) if quick else (1_600_000, 10_000)
    figures: list[Figure] = []
    with folder() as root:
        path = write_log(root, entries)
        floor, ours = _growth("typed_floor", path), _growth("resumed", path)
        what = f"memory of a resume of {entries:,} entries"
        figures.append(ratio(what, ours, "the memory of the floor", floor, 1.5, "B"))
    with folder() as root:
        path = write_log(root, large, condensed=True, seed=2)
        size = path.stat().st_size
        name = f"{size / 1e9:.1f} GB" if size > 1e9 else f"{size / 1e6:.0f} MB"
        grown = {"resume, condensed near the end,": _growth("resumed", path)}
        grown |= {
            "sessions list": _command(path, "list", "--all"),
            "sessions show": _command(path, "show", str(path)),
            f"sessions show at a terminal, the last {last:,} entries,": _at_a_terminal(
                path, large - last
            ),
            "sessions search": _command(path, "search", "--all", "✓"),
            "sessions verify": _command(path, "verify", str(path)),
        }
        for word, ours in grown.items():
            what = f"memory of {word} of a log of {name}"
            most = None if quick else 0.15  # a small log is less than what any process takes
            figures.append(ratio(what, ours, "the log", size, most, "B"))
    return Found(figures)


def _growth(what: str, path: Path) -> int:
    """By how many bytes a process grows that does this with a log."""
    code = _GROWTH.format(what)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, check=True, text=True
    )
    return int(done.stdout)


def _command(path: Path, *arguments: str) -> int:
    """By how many bytes the process of a command grows that reads a log."""
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "sessions", *arguments],
        env={**os.environ, **_where(path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return _grown(done.returncode, done.stderr)


def _at_a_terminal(path: Path, behind: int) -> int:
    """The same of a command that shows, rendered, what lies behind so many entries: all of a large
    log would take an hour."""
    part = ["--from", str(behind + 1)]
    command = [sys.executable, "-c", _COMMAND, "sessions", "show", str(path), *part]
    with at_a_terminal(command, env=_where(path), stderr=subprocess.PIPE) as terminal:
        terminal.drop()
        _, said = terminal.process.communicate()
    return _grown(terminal.process.returncode, said)


def _where(path: Path) -> dict[str, str]:
    return {"AWL_SESSION_DIR": str(path.parent.parent)}


def _grown(code: int, said: str) -> int:
    """What a command said last on standard error, by how much it grew; it must have worked."""
    if code:
        raise RuntimeError(f"it ended with {code}: {said.strip()}")
    return int(said.splitlines()[-1])
