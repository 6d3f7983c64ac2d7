"""awl beside other programs' stores, in one run: `uv run python benchmarks/compare.py [--quick]`.

Each store is driven in an environment of its own (made on the first run and kept), a process a
step, the stores by turns in every round. What is printed are medians as ratios to the floor of the
same run: for `append`, write and fdatasync of each message; for `load`, reading and decoding it
with the standard library; for `list`, scandir and stat; for `fork`, a synced copy. Beside it stands
how many sync calls an append makes: a store that makes none has not saved the message when it says
so.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
NAMES = {
    "floor": "floor",
    "awl": "awl_session",
    "bare SQLite": "bare_sqlite",
    "openai-agents SQLiteSession": "openai_agents",
    "LangGraph SqliteSaver": "langgraph",
    "ADK SqliteSessionService": "google_adk",
    "OpenHands EventLog": "openhands",
    "llm LogStore": "llm_logs",
}
STEPS = ("append", "load", "list", "fork")


@dataclass
class Store:
    """A store that is measured: its adapter, the Python that runs it, its times by step."""

    name: str
    adapter: Path
    python: str
    times: dict[str, list[float]] = field(default_factory=dict)
    problem: str = ""

    def median(self, step: str) -> float | None:
        found = self.times.get(step)
        return statistics.median(found) if found else None


@dataclass
class Sizes:
    """How many appends are timed, and how many messages and sessions there are to load and list."""

    rounds: int = 7
    appends: int = 200
    messages: int = 10_000
    sessions: int = 1_000


QUICK = Sizes(rounds=3, appends=50, messages=1_000, sessions=100)


def compare(sizes: Sizes) -> tuple[list[Store], dict[str, float]]:
    """The stores with their times, and the sync calls that an append of each makes."""
    stores = [_store(name, module) for name, module in NAMES.items()]
    syncs: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=_disk()) as root:
        for store in stores:
            if store.problem:
                continue
            folder = Path(root, store.adapter.stem)
            folder.mkdir()
            try:
                _drive(store, "append", folder, 1)
                _prepare(store, folder, sizes)
            except subprocess.CalledProcessError as error:
                store.problem = error.stderr.strip().splitlines()[-1]
                continue
            syncs[store.name] = _syncs(store, Path(root, f"{store.adapter.stem}-syncs"))
        for _ in range(sizes.rounds):
            for step in STEPS:
                for store in stores:
                    _round(store, step, Path(root, store.adapter.stem), sizes)
    return stores, syncs


def _prepare(store: Store, folder: Path, sizes: Sizes) -> None:
    most = _fact(store, "MOST", sizes.messages)
    for part in ("load", "many"):
        (folder / part).mkdir()
    _drive(store, "fill", folder / "load", min(sizes.messages, int(most)))
    if _has(store, "list"):
        _drive(store, "sessions", folder / "many", sizes.sessions)


def _round(store: Store, step: str, folder: Path, sizes: Sizes) -> None:
    if store.problem or not _has(store, step):
        return
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        where = {"append": Path(fresh), "list": folder / "many"}.get(step, folder / "load")
        if step == "fork":
            where = Path(fresh, "copy")
            shutil.copytree(folder / "load", where)
        found = _drive(store, step, where, sizes.appends)
    seconds = found["seconds"]
    if step == "append":
        seconds /= sizes.appends
    elif step == "load":
        seconds /= max(found["count"], 1)
    store.times.setdefault(step, []).append(seconds)


def _drive(store: Store, step: str, folder: Path, count: int) -> dict[str, float]:
    command = [store.python, "-P", str(PEERS / "drive.py"), str(store.adapter), step, str(folder)]
    done = subprocess.run([*command, str(count)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _syncs(store: Store, folder: Path) -> float:
    """Sync calls an append, from two runs of different length; NaN where strace is missing."""
    if shutil.which("strace") is None:
        return float("nan")
    counts = []
    for number in (20, 60):
        fresh = folder / str(number)
        fresh.mkdir(parents=True)
        log = folder / f"{number}.strace"
        trace = [
            "strace",
            "-f",
            "-qq",
            "-e",
            "trace=fsync,fdatasync,sync_file_range",
            "-o",
            str(log),
        ]
        command = [store.python, "-P", str(PEERS / "drive.py"), str(store.adapter), "append"]
        subprocess.run([*trace, *command, str(fresh), str(number)], capture_output=True, check=True)
        counts.append(len(log.read_text().splitlines()))
    return (counts[1] - counts[0]) / 40


def _store(name: str, module: str) -> Store:
    adapter = PEERS / f"{module}.py"
    needs = _needs(adapter)
    if not needs:
        return Store(name, adapter, sys.executable)
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    environment = Path(cache, "awl-benchmarks", module)
    python = environment / "bin" / "python"
    if not python.exists():
        print(f"making an environment for {name} ...", file=sys.stderr, flush=True)
        made = ["uv", "venv", "-q", "--allow-existing", "--no-python-downloads"]
        made += ["--python", _newer_python(), str(environment)]
        filled = ["uv", "pip", "install", "-q", "-p", str(python), *needs]
        for command in (made, filled):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                shutil.rmtree(environment, ignore_errors=True)
                problem = (done.stderr.strip().splitlines() or ["it cannot be installed"])[0]
                return Store(name, adapter, str(python), problem=problem)
    return Store(name, adapter, str(python))


def _newer_python() -> str:
    """An interpreter that all peers run on; some need Python 3.12."""
    if sys.version_info >= (3, 12):
        return sys.executable
    places = [*map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    places += sorted(Path.home().glob(".pyenv/versions/3.1[2-9]*/bin"))
    names = ("python3.12", "python3.13", "python3.14")
    found = (place / name for place in places for name in names)
    return next((str(path) for path in found if path.exists() and _runs(path)), ">=3.12")


def _runs(python: Path) -> bool:
    """Whether it is an interpreter, and not the stand-in of one that is not chosen."""
    return subprocess.run([python, "-c", "pass"], capture_output=True).returncode == 0


def _needs(adapter: Path) -> list[str]:
    for line in adapter.read_text().splitlines():
        if line.startswith("NEEDS = "):
            return line.split('"')[1::2]
    return []


def _fact(store: Store, name: str, default: float) -> float:
    for line in store.adapter.read_text().splitlines():
        if line.startswith(f"{name} = "):
            return float(line.split("=")[1].split("#")[0])
    return default


def _has(store: Store, step: str) -> bool:
    return f"    def {step}(" in store.adapter.read_text()


def _disk() -> str | None:
    """A folder on a disk: in memory, a sync costs nothing and nothing would be compared."""
    return os.environ.get("AWL_BENCH_DIR")


def table(stores: list[Store], syncs: dict[str, float]) -> Iterator[str]:
    """The figures as a Markdown table."""
    floor = stores[0]
    yield "| store | append | syncs an append | load | list | fork |"
    yield "|---|---|---|---|---|---|"
    for store in stores:
        if store.problem:
            yield f"| {store.name} | not measured: {store.problem} | | | | |"
            continue
        cells = []
        for step in STEPS:
            ours, base = store.median(step), floor.median(step)
            cells.append("-" if ours is None or not base else f"{ours / base:.2f} x")
        made = syncs.get(store.name, float("nan"))
        mark = "" if made >= 1 else " (not durable)"
        yield f"| {store.name} | {cells[0]} | {made:.2g}{mark} | {' | '.join(cells[1:])} |"


def main() -> None:
    sizes = QUICK if "--quick" in sys.argv else Sizes()
    stores, syncs = compare(sizes)
    base = stores[0]
    for line in table(stores, syncs):
        print(line)
    print()
    for step in STEPS:
        if (seconds := base.median(step)) is not None:
            per = {"append": " a message", "load": " a message"}.get(step, "")
            print(f"floor of {step}: {1e6 * seconds:.1f} µs{per}")
    print(f"Python {sys.version.split()[0]}, awl {version('awl-agent')}")


if __name__ == "__main__":
    main()
