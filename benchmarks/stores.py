"""awl beside other programs' stores, each driven as its users do, in an environment of its own.

Each store is one process that is asked for a step at a time, the stores by turns. For `append` the
floor is write and fdatasync of each message; for `load`, reading and decoding with the standard
library; for `list`, scandir and stat; for `fork`, a synced copy. A store that makes no sync call
for an append has not saved the message when it says so: its figures are marked.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.corpus import folder
from benchmarks.environments import PEERS, Environment, Unavailable, constant, environment
from benchmarks.figures import STEPS, Curve, Found, Rival

NAMES = {
    "floor": "floor",
    "awl": "awl_session",
    "bare SQLite": "bare_sqlite",
    "openai-agents SQLiteSession": "openai_agents",
    "LangGraph SqliteSaver": "langgraph",
    "ADK SqliteSessionService": "google_adk",
    "OpenHands EventLog": "openhands",
    "llm LogStore": "llm_logs",
    "mistral-vibe": "mistral_vibe",
}


class Plan(msgspec.Struct, frozen=True):
    """How many messages sessions have, and how many sessions, appends and rounds there are."""

    sizes: tuple[int, ...]
    sessions: int
    appends: int
    rounds: int


FULL = Plan(sizes=(100, 1_000, 10_000), sessions=1_000, appends=100, rounds=7)
QUICK = Plan(sizes=(100, 1_000), sessions=100, appends=20, rounds=3)


class Store:
    """A store that is measured: its process, and its times by step and size."""

    def __init__(self, name: str, module: str, root: Path) -> None:
        self.name, self.adapter, self.root = name, PEERS / f"{module}.py", root / module
        self.problem = self.version = ""
        self.syncs: float | None = None
        self.times: dict[tuple[str, int], list[float]] = {}
        self._process: subprocess.Popen[str] | None = None
        self._most = constant(self.adapter, "MOST")
        try:
            self._environment: Environment = environment(module)
            self.version = self._environment.version
        except Unavailable as problem:
            self.problem = f"not installed: {problem}"

    def holds(self, size: int) -> bool:
        return not isinstance(self._most, int) or size <= self._most

    def do(self, step: str, where: Path, count: int = 0) -> dict[str, Any]:
        """Let it do a step, unless it failed before; nothing comes back where it has none."""
        if self.problem:
            return {}
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer: dict[str, Any] = {"problem": f"it ended at `{step}`"}
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([step, str(where), count]) + "\n")
            self._process.stdin.flush()
            if line := self._process.stdout.readline():
                answer = json.loads(line)
        self.problem = answer.get("problem", "")
        return answer

    def time(self, step: str, size: int, where: Path, count: int = 0, *, each: int = 1) -> None:
        answer = self.do(step, where, count)
        if "seconds" in answer:
            self.times.setdefault((step, size), []).append(answer["seconds"] / each)

    def median(self, step: str, size: int) -> float | None:
        found = self.times.get((step, size))
        return median(found) if found else None

    @contextlib.contextmanager
    def running(self, *before: str) -> Iterator[None]:
        """Have its process, under another one such as strace if that is given."""
        if self.problem:
            yield
            return
        drive = [str(self._environment.python), "-P", str(PEERS / "drive.py"), str(self.adapter)]
        with (
            tempfile.TemporaryFile() as said,
            subprocess.Popen(
                [*before, *drive],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            ) as process,
        ):
            self._process = process
            yield
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def count_syncs(self) -> None:
        """The sync calls of an append, where there is strace."""
        if self.problem or shutil.which("strace") is None:
            return
        log, where = self.root / "strace", self.root / "syncs"
        where.mkdir(parents=True)
        trace = "trace=fsync,fdatasync,sync_file_range,msync"
        strace = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", trace, "-o", str(log))
        counts, answer = [], {}
        with self.running(*strace):
            for count in (10, 50):
                answer = self.do("append", where, count)
                lines = log.read_text().splitlines()
                counts.append(sum("unfinished" not in line for line in lines))
        if "seconds" in answer:
            self.syncs = (counts[1] - counts[0]) / 55  # those before the clock starts, too


def measure(quick: bool) -> Found:
    plan = QUICK if quick else FULL
    with folder() as root, ExitStack() as stack:
        stores = [Store(name, module, root) for name, module in NAMES.items()]
        for store in stores:
            store.count_syncs()
            stack.enter_context(store.running())
        for store in stores:
            _prepare(store, plan)
        for _ in range(plan.rounds):
            _round(stores, plan)
        for _ in range(plan.rounds):
            for size in plan.sizes:
                for store in stores:
                    if store.holds(size):
                        store.time("append", size, store.root / f"load-{size}", 10, each=10)
        for store in stores:
            if store.problem:
                print(f"awl benchmarks: {store.name}: {store.problem}", file=sys.stderr)
    return Found(curves=_curves(stores, plan), rivals=[_rival(store, plan) for store in stores])


def _prepare(store: Store, plan: Plan) -> None:
    for size in plan.sizes:
        if store.holds(size):
            (store.root / f"load-{size}").mkdir(parents=True)
            store.do("fill", store.root / f"load-{size}", size)
    (store.root / "many").mkdir(parents=True, exist_ok=True)
    store.do("sessions", store.root / "many", plan.sessions)


def _round(stores: list[Store], plan: Plan) -> None:
    for step in STEPS:
        for size in plan.sizes if step == "load" else plan.sizes[-1:]:
            for store in stores:
                where = store.root / f"load-{size}"
                if step == "append":
                    with tempfile.TemporaryDirectory(dir=store.root) as fresh:
                        store.time(step, 0, Path(fresh), plan.appends, each=plan.appends)
                elif step == "list":
                    store.time(step, plan.sessions, store.root / "many")
                elif store.holds(size):
                    store.time(step, size, where)


def _rival(store: Store, plan: Plan) -> Rival:
    last = plan.sizes[-1]
    sizes = {"append": 0, "load": last, "list": plan.sessions, "fork": last}
    seconds = {step: store.median(step, size) for step, size in sizes.items()}
    return Rival(
        store.name,
        store.version,
        store.syncs,
        {step: taken for step, taken in seconds.items() if taken is not None},
        store.problem,
    )


def _curves(stores: list[Store], plan: Plan) -> list[Curve]:
    found = []
    for step, what in (("append", "an append"), ("load", "a load of all messages")):
        lines = {}
        for store in stores:
            points = [(size, store.median(step, size)) for size in plan.sizes]
            known = [(size, taken) for size, taken in points if taken is not None]
            if known:
                lines[store.name] = known
        found.append(Curve(f"stores-{step}", "messages in the session", what, lines))
    return found
