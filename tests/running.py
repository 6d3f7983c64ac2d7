"""awl as a real process in a home of its own, with a model that plays a script."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from awl.log.names import log_path

JSON = dict[str, Any]
LIMIT = 30.0
"""Seconds after which whatever a test waits for has failed."""

HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x80-\x9f\u202a-\u202e\u2066-\u2069]")
"""What must never reach a terminal from stored text."""

T = TypeVar("T")


def say(text: str, **options: Any) -> JSON:
    """A step of a script: text."""
    return {"text": text, **options}


def call(name: str, id: str = "", **input: Any) -> JSON:
    """A step of a script: a tool call."""
    return {"toolUse": {"id": id, "name": name, "input": input}}


def until(found: Callable[[], T], what: str = "it") -> T:
    """The first true value of `found`."""
    deadline = time.monotonic() + LIMIT
    while not (value := found()):
        assert time.monotonic() < deadline, f"{what} did not happen in {LIMIT:g} s"
        time.sleep(0.005)
    return value


@dataclass(frozen=True)
class Done:
    """What a process that ended left behind."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Awl:
    """Runs `awl` in `work`, with its sessions and settings below `home` and nothing else set."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.sessions = home / "sessions"
        self.config = home / "config.toml"
        self.tmp = home / "tmp"
        self.work.mkdir()
        self.tmp.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(self.tmp),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            "AWL_SESSION_DIR": str(self.sessions),
            "AWL_CONFIG": str(self.config),
        }
        self.plays([say("Hello there.")], loop=True)

    # -- the stage ---------------------------------------------------------------------------------

    def plays(self, *turns: Sequence[JSON] | JSON, loop: bool = False, settings: str = "") -> None:
        """Let the model play these turns; `settings` are more lines of the configuration."""
        lines: list[Any] = [*turns, *([{"loop": True}] if loop else [])]
        script = self.home / "script.jsonl"
        # An empty first line: a lone turn would be taken for a list of turns.
        script.write_text("".join("\n" + json.dumps(line) for line in lines))
        self.config.write_text(
            f'{settings}\n[agent]\nprovider = "play"\n'
            '[[llm.providers]]\nname = "play"\ntype = "scripted"\npath = "script.jsonl"\n'
            '[[llm.providers]]\nname = "other"\ntype = "scripted"\npath = "script.jsonl"\n'
            'model = "model-2"\n'
        )

    # -- running -----------------------------------------------------------------------------------

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "awl", *arguments]

    def __call__(
        self,
        *arguments: str,
        code: int = 0,
        stdin: str | bytes = b"",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Done:
        """Run it to its end, and check the exit code."""
        ended = subprocess.run(
            self.command(*arguments),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            cwd=cwd or self.work,
            env={**self.env, **(env or {})},
            capture_output=True,
            timeout=LIMIT,
            **options,
        )
        done = Done(
            ended.returncode,
            ended.stdout.decode(errors="surrogateescape"),
            ended.stderr.decode(errors="surrogateescape"),
            ended.stdout,
        )
        assert done.code == code, (done.code, done.err, done.out)
        assert "Traceback" not in done.err, done.err
        return done

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Start it and go on."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            cwd=self.work,
            env={**self.env, **(env or {})},
            **{**pipes, **options},
        )

    @contextmanager
    def started(self, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A running process; at the end there is none, whatever happened."""
        process = self.start(*arguments, **options)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    # -- logs made by hand -------------------------------------------------------------------------

    def write_log(
        self,
        *entries: JSON | bytes,
        cwd: Path | None = None,
        at: str = "2026-04-25T17:40:15.990Z",
        id: str = "019dc5ba-53f6-71a5-ab8f-b1f8709c2572",
        model: str = "scripted",
    ) -> Path:
        """A log as the seed shows them: a header and these entries, chained; bytes as they are."""
        where = str(cwd or self.work)
        header = {"type": "session", "version": 1, "id": id, "timestamp": at, "cwd": where}
        lines = [json.dumps({**header, "provider": "play", "model": model}).encode() + b"\n"]
        before = None
        for n, entry in enumerate(entries, 1):
            if isinstance(entry, bytes):
                lines.append(entry)
                continue
            chained = {"id": f"{n:08x}", "parentId": before, "timestamp": at, **entry}
            lines.append(json.dumps(chained).encode() + b"\n")
            before = chained["id"]
        path = log_path(self.sessions, where, at, id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        return path

    # -- looking -----------------------------------------------------------------------------------

    @property
    def logs(self) -> list[Path]:
        return sorted(self.sessions.glob("*/*.jsonl"))

    @property
    def log(self) -> Path:
        """The only log there is."""
        (log,) = self.logs
        return log

    def entries(self, log: Path | None = None) -> list[JSON]:
        """The lines of a log, each of which must be JSON of its own."""
        return read_log(log or self.log)

    def types(self) -> list[str]:
        return [kind(entry) for entry in self.entries()]

    @property
    def id(self) -> str:
        return str(self.entries()[0]["id"])


# What the system says of a process counts what started it, before it was another program: a small
# process starts it.
_MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[2:], check=sys.argv[1] == "check")
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_memory(
    command: Sequence[str | Path], *, check: bool = True, **how: Any
) -> tuple[int, str]:
    """The bytes of memory that a command needs at most, and what it said on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "check" if check else "", *command],
        capture_output=True,
        check=True,
        **how,
    )
    peak = int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)
    return peak, done.stderr.decode()


def user(text: str, **more: Any) -> JSON:
    """A prompt, as an entry made by hand."""
    content = [{"type": "text", "text": text}]
    return {"type": "message", "message": {"role": "user", "content": content}, **more}


def assistant(*blocks: JSON | str, **facts: Any) -> JSON:
    """An answer, as an entry made by hand."""
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    facts = {"provider": "play", "model": "scripted", "stopReason": "stop", **facts}
    return {"type": "message", "message": {"role": "assistant", "content": content, **facts}}


def read_log(log: Path) -> list[JSON]:
    """Every line of a log as JSON."""
    data = log.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data[:-1].split(b"\n")]


def kind(entry: JSON) -> str:
    """What an entry is: its type, or whose message."""
    return str(entry["message"]["role"] if entry["type"] == "message" else entry["type"])


def texts(entry: JSON) -> str:
    """The words of a message."""
    return "".join(block.get("text", "") for block in entry["message"]["content"])
