"""awl beside other programs' stores, each driven as its users do, in an environment of its own.

Each store is one process that is asked for a step at a time, the stores by turns. For `append` the
floor is write and fdatasync of each message; for `load`, typed decoding of what awl writes, line by
line; for `list`, scandir and stat; for `search`, a look through the texts in memory; for `fork`, a
synced copy. Opening and closing are not measured, where they are not the step itself. A store that
makes fewer sync calls than appends has not saved a message when it says so: it is marked.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import IO, Any

import msgspec

from benchmarks.corpus import folder
from benchmarks.environments import PEERS, Environment, Unavailable, constant, environment
from benchmarks.figures import Curve, Found, Rival

NAMES = {
    "floor": "floor",
    "awl": "awl_session",
    "bare SQLite": "bare_sqlite",
    "openai-agents SQLiteSession": "openai_agents",
    "LangGraph SqliteSaver": "langgraph",
    "ADK SqliteSessionService": "google_adk",
    "OpenHands EventLog": "openhands",
    "llm LogStore": "llm_logs",
    "mistral-vibe, of its older versions' sessions": "mistral_vibe",
}
HITS = 50
LONG = 5.0
"""Seconds: a step that took longer is not done again."""


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
        self._said: IO[bytes] | None = None
        try:
            self._environment: Environment = environment(module)
            self.version = self._environment.version
        except Unavailable as problem:
            self.problem = f"not installed: {problem}"

    def do(self, step: str, where: Path, count: int = 0) -> dict[str, Any]:
        """Let it do a step, unless it failed before; nothing comes back where it has none."""
        if self.problem:
            return {}
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([step, str(where), count]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            self.problem = f"it ended at `{step}`: {self._last_words()}"
            return {}
        answer: dict[str, Any] = json.loads(line)
        self.problem = answer.get("problem", "")
        return answer

    def _last_words(self) -> str:
        """The last line that its process said, such as why an import failed."""
        assert self._process is not None
        assert self._said is not None
        self._process.wait()
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"code {self._process.returncode}"

    def time(
        self, step: str, size: int, where: Path, count: int = 0, *, finds: int | None = None
    ) -> None:
        """Do a step, which must find so many messages, sessions or hits, and note what it took."""
        known = self.times.setdefault((step, size), [])
        if step != "append" and known and max(known) > LONG:
            return
        answer = self.do(step, where, count)
        if "seconds" in answer:
            known.append(answer["seconds"])
            if finds is not None and answer["found"] != finds:
                self.problem = f"`{step}` found {answer['found']}, not {finds}"

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
            self._process, self._said = process, said
            yield
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    def count_syncs(self) -> None:
        """The sync calls of an append, by two steps that differ in nothing but how many there are;
        the one before them makes the session."""
        log, where = self.root / "strace", self.root / "syncs"
        where.mkdir(parents=True)
        seen = []
        with self.running(*STRACE, "-o", str(log)):
            for count in (10, 10, 50):
                times = self.do("append", where, count).get("times", 0)
                lines = log.read_text().splitlines() if times else []
                seen.append((times, sum("unfinished" not in line for line in lines)))
        (_, first), (few, second), (many, third) = seen
        if many > few > 0:
            self.syncs = (third - second - (second - first)) / (many - few)
        if self.problem:
            _say(f"{self.name}: its syncs were not counted: {self.problem}")
            self.problem = ""  # it may do without strace


STRACE = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=fsync,fdatasync,sync,syncfs,msync")


def _no_strace() -> str:
    """Why sync calls cannot be counted here, if so."""
    if shutil.which("strace") is None:
        return "there is no strace"
    tried = subprocess.run([*STRACE, "-o", os.devnull, "true"], capture_output=True, text=True)
    said = tried.stderr.strip().splitlines() or [f"strace ends with code {tried.returncode}"]
    return said[-1] if tried.returncode else ""


def _say(words: str) -> None:
    print(f"awl benchmarks: {words}", file=sys.stderr, flush=True)


def measure(quick: bool) -> Found:
    plan = QUICK if quick else FULL
    if reason := _no_strace():
        _say(f"syncs are not counted: {reason}")
    with folder() as root, ExitStack() as stack:
        stores = [Store(name, module, root) for name, module in NAMES.items()]
        for store in stores:
            if not reason and not store.problem:
                store.count_syncs()
            stack.enter_context(store.running())
        for store in stores:
            _prepare(store, plan)
        for _ in range(plan.rounds):
            _round(stores, plan)
        for _ in range(plan.rounds):
            for size in plan.sizes:
                _append_at(stores, size, plan, root)
        for store in stores:
            if store.problem:
                _say(f"{store.name}: {store.problem}")
    return Found(curves=_curves(stores, plan), rivals=[_rival(store, plan) for store in stores])


def _prepare(store: Store, plan: Plan) -> None:
    for name in (*(f"load-{size}" for size in plan.sizes), "many", "search"):
        (store.root / name).mkdir(parents=True)
    for size in plan.sizes:
        store.do("fill", store.root / f"load-{size}", size)
    store.do("sessions", store.root / "many", plan.sessions)
    store.do("index", store.root / "search", plan.sizes[-1])


def _round(stores: list[Store], plan: Plan) -> None:
    last = plan.sizes[-1]
    for store in stores:
        with tempfile.TemporaryDirectory(dir=store.root) as fresh:
            store.time("append", 0, Path(fresh), plan.appends)
    for size in plan.sizes:
        for store in stores:
            store.time("load", size, store.root / f"load-{size}", finds=size)
    for store in stores:
        store.time("list", plan.sessions, store.root / "many", finds=plan.sessions)
    for store in stores:
        store.time("search", last, store.root / "search", finds=min(HITS, last // 100))
    for store in stores:
        store.time("fork", last, store.root / f"load-{last}")


def _append_at(stores: list[Store], size: int, plan: Plan, root: Path) -> None:
    """Appends to copies of sessions of so many messages, which so keep their size."""
    with tempfile.TemporaryDirectory(dir=root) as copies:
        for store in stores:
            if not store.problem:
                shutil.copytree(store.root / f"load-{size}", Path(copies, store.root.name))
        os.sync()  # the first sync of an append shall not wait for the copies
        for store in stores:
            store.time("append", size, Path(copies, store.root.name), plan.appends)


def _rival(store: Store, plan: Plan) -> Rival:
    last = plan.sizes[-1]
    sizes = {"append": 0, "load": last, "list": plan.sessions, "search": last, "fork": last}
    seconds = {step: store.median(step, size) for step, size in sizes.items()}
    notes = constant(store.adapter, "NOTES")
    return Rival(
        store.name,
        store.version,
        store.syncs,
        {step: taken for step, taken in seconds.items() if taken is not None},
        notes if isinstance(notes, dict) else {},
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
