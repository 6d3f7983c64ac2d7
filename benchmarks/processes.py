"""Commands as processes, beside Python that does nothing; other programs' lists beside them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.corpus import fill_shortly, folder
from benchmarks.environments import Environment, Unavailable, environment
from benchmarks.figures import Figure, Found, in_turns, medians, over

SESSIONS = 1_000
FLOOR = "python -c pass"
OURS = {
    "awl --version": (["--version"], 25e-3),
    "awl sessions": (["sessions", "--all"], 90e-3),
    "awl sessions --limit 50": (["sessions", "--all", "--limit", "50"], 90e-3),
    "awl sessions --json": (["sessions", "--all", "--json"], None),
}


def measure(quick: bool) -> Found:
    with folder() as root:
        sessions = root / "sessions"
        fill_shortly(sessions, SESSIONS)
        environ = {**os.environ, "AWL_SESSION_DIR": str(sessions), "HOME": str(root)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is compiled is kept, as it is for users
        works: dict[str, Callable[[], object]] = {}
        awl = [sys.executable, "-m", "awl"]
        commands = {FLOOR: [sys.executable, "-c", "pass"]}
        commands |= {name: [*awl, *arguments] for name, (arguments, _) in OURS.items()}
        if not quick:
            commands |= _others(root, environ)
        for name, command in commands.items():
            works[name] = functools.partial(_run, command, environ)
        for work in works.values():
            work()  # what the first run compiles and catches up is there
        taken = medians(in_turns(works, 5 if quick else 15))
    base = taken.pop(FLOOR)
    figures: list[Figure] = []
    for name, seconds in taken.items():
        most = OURS[name][1] if name in OURS else None
        figures.append(over(_what(name), seconds, FLOOR, base, most))
    return Found(figures)


def _what(name: str) -> str:
    return name if "version" in name else f"{name}, {SESSIONS:,} sessions"


def _run(command: list[str], environ: dict[str, str]) -> None:
    subprocess.run(command, env=environ, capture_output=True, check=True)


def _others(root: Path, environ: dict[str, str]) -> dict[str, list[str]]:
    """Commands of other programs: lists that ask nothing, where they have such."""
    found = {}
    if llm := _installed("llm_logs"):
        _llm_database(llm, root, environ)
        found["llm logs -n 50"] = [str(llm.command("llm")), "logs", "-n", "50", "-s"]
    if vibe := _installed("mistral_vibe"):
        found["vibe --version"] = [str(vibe.command("vibe")), "--version"]
    if kimi := _installed("kimi"):
        found["kimi --version"] = [str(kimi.command("kimi")), "--version"]
    return found


def _installed(module: str) -> Environment | None:
    try:
        return environment(module)
    except Unavailable as problem:
        print(f"awl benchmarks: {module}: {problem}", file=sys.stderr)
        return None


def _llm_database(llm: Environment, root: Path, environ: dict[str, str]) -> None:
    """A thousand conversations of one prompt and its answer, as llm's own models leave them."""
    environ["LLM_USER_PATH"] = str(root / "llm")
    subprocess.run(
        [str(llm.python), "-c", _LLM, str(SESSIONS)],
        env=environ,
        check=True,
        capture_output=True,
    )


_LLM = """
import sys, llm, sqlite_utils
from llm.cli import logs_db_path
from llm.migrations import migrate
class Says(llm.Model):
    model_id = "says"
    def execute(self, prompt, stream, response, conversation=None):
        yield "It is done."
path = logs_db_path()
path.parent.mkdir(parents=True, exist_ok=True)
db = sqlite_utils.Database(path)
migrate(db)
for n in range(int(sys.argv[1])):
    response = Says().prompt(f"Fix the parser, part {n}")
    response.text()
    response.log_to_db(db)
"""
