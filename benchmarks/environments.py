"""Other programs as they are installed, each in an environment of its own, made once and kept."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

PEERS = Path(__file__).parent / "peers"
LEADS = re.compile(r"^[\s×╰─▶│]*(?:error:|cause:|Caused by:)?\s*")
"""What uv's lines about an error begin with."""


class Unavailable(Exception):
    """Another program cannot be installed here; says why."""


class Environment(msgspec.Struct, frozen=True):
    """Where a program is installed, and its version."""

    python: Path
    version: str = ""

    def command(self, name: str) -> Path:
        return self.python.parent / name


def constant(adapter: Path, name: str) -> object:
    """A constant of an adapter, which is not imported: what it needs is not installed here."""
    for node in ast.parse(adapter.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    return None


def environment(module: str) -> Environment:
    """The environment of the adapter in `peers/`.

    Raises:
        Unavailable: what it needs cannot be installed.
    """
    needs = constant(PEERS / f"{module}.py", "NEEDS")
    assert isinstance(needs, tuple)
    if not needs:
        return Environment(Path(sys.executable))
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    place = Path(cache, "awl-benchmarks", module).absolute()
    python, whole = place / "bin" / "python", place / "whole"
    made = python.exists() and whole.exists() and whole.read_text(encoding="utf-8")
    if made != "\n".join(needs):
        print(f"making an environment for {module} …", file=sys.stderr, flush=True)
        _make(place, python, needs)
        whole.write_text("\n".join(needs), encoding="utf-8")  # last: without it, it is made anew
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    asked = subprocess.run([python, "-c", code, needs[0]], capture_output=True, text=True)
    if asked.returncode:
        raise Unavailable(f"its environment does not run; remove {place} to have it made anew")
    return Environment(python, f"{needs[0]} {asked.stdout.strip()}")


def _make(place: Path, python: Path, needs: tuple[str, ...]) -> None:
    if shutil.which("uv") is None:
        raise Unavailable("uv, which makes environments, is not on PATH: pip install uv")
    shutil.rmtree(place, ignore_errors=True)  # what was begun and not finished
    place.parent.mkdir(parents=True, exist_ok=True)
    venv = ["uv", "venv", "-q", "--no-python-downloads"]
    install = ["uv", "pip", "install", "-q", "-p", str(python), *needs]
    for command in ([*venv, "--python", _newer_python(), str(place)], install):
        # Not here: this project's own settings leave out packages that others need.
        done = subprocess.run(command, capture_output=True, text=True, cwd=place.parent)
        if done.returncode:
            shutil.rmtree(place, ignore_errors=True)
            raise Unavailable(_reason(done.stderr))


def _reason(said: str) -> str:
    """What uv says is wrong, and the first cause that it gives: the rest is how it found out."""
    lines = [LEADS.sub("", line).rstrip() for line in said.splitlines()]
    return ": ".join([line for line in lines if line][:2]) or "no reason given"


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
