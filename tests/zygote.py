"""awl as real processes that do not each import the SDKs first, which takes seconds.

One process imports everything and forks: each fork is awl with a memory, descriptors, signals and a
death of its own. `python zygote.py PATH` serves forks at a Unix socket; `Forks` asks for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, cast

from running import LIMIT, Awl, Done, until

JSON = dict[str, Any]
Stop = tuple[str, str]
"""When awl sends itself a signal, and which: (`assistant1`, `SIGKILL`) is after its first answer
was logged, (`-results1`, ...) before its first message of results is. Kinds: user, assistant,
results, toolCall, toolResult, partial."""


class Fork:
    """A process of awl that runs."""

    def __init__(self, asking: socket.socket, out: Path) -> None:
        self._replies: IO[str] = asking.makefile("r")
        self.out = out
        self.pid = int(self._replies.readline())

    def signal(self, name: str) -> None:
        os.kill(self.pid, getattr(signal, name))

    def wait(self) -> int:
        """Wait for its end, and give its code. A process that a signal ended has a negative one."""
        code = int(self._replies.readline())
        self._replies.close()
        return code

    def done(self) -> Done:
        """Wait for its end, and give what it wrote."""
        code = self.wait()
        raw = self.out.with_suffix(".out").read_bytes()
        err = self.out.with_suffix(".err").read_bytes()
        words = (raw.decode(errors="surrogateescape"), err.decode(errors="surrogateescape"))
        assert "Traceback" not in words[1], words[1]
        return Done(code, *words, raw)


class Forks:
    """The process that forks, and the way to ask it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._path = str(Path(self._folder.name) / "s")
        self._count = 0
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen([sys.executable, __file__, self._path], env=environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(LIMIT)
        self._folder.cleanup()

    def start(
        self, awl: Awl, *arguments: str, stop: Stop | None = None, terminal: str = ""
    ) -> Fork:
        """Run awl; with `terminal`, the path of one, that is its input and output."""
        self._count += 1
        out = Path(self._folder.name) / f"{self._count}"
        asking = socket.socket(socket.AF_UNIX)
        asking.settimeout(2 * LIMIT)

        def connected() -> bool:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                asking.connect(self._path)
                return True
            assert self._process.poll() is None
            return False

        until(connected, "the first fork")
        env = {**awl.env, "TERM": "xterm"} if terminal else awl.env
        wish: JSON = {"argv": arguments, "env": env, "cwd": str(awl.work), "out": str(out)}
        with asking:
            wish |= {"stop": stop, "terminal": terminal}
            asking.sendall(json.dumps(wish).encode() + b"\n")
            return Fork(asking, out)

    def __call__(self, awl: Awl, *arguments: str, code: int = 0, stop: Stop | None = None) -> Done:
        done = self.start(awl, *arguments, stop=stop).done()
        assert done.code == code, (done.code, done.err, done.out)
        return done


# -- in the process that forks ---------------------------------------------------------------------


def _serve(path: str) -> None:
    import awl.app
    import awl.channels.display
    import awl.cli
    import awl.history
    import awl.providers.local
    import awl.show
    import awl.talk  # noqa: F401

    _warm()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    parent = os.getppid()
    listening.settimeout(1)
    while os.getppid() == parent:  # tests that were killed leave nothing behind
        with contextlib.suppress(TimeoutError):
            connection, _ = listening.accept()
            if not os.fork():
                _one(connection)
            connection.close()


def _warm() -> None:
    """Ask once on each wire: much of an SDK is imported and built by its first request."""
    from standin import Say, StandIn

    from awl.config import ProviderSettings
    from awl.conversation import text_message
    from awl.providers import Request, connect

    async def ask(settings: ProviderSettings) -> None:
        provider = connect(settings, {})
        async for _ in provider.stream(request):
            pass
        await provider.close()

    request = Request(system=None, messages=[text_message("user", "Hello")])
    with StandIn() as server:
        server.plays(*[[Say("Hello")]] * 3)
        for type, wire, url in (
            ("anthropic", "", server.anthropic_url),
            ("openai", "chat", server.openai_url),
            ("openai", "responses", server.openai_url),
        ):
            settings = ProviderSettings(name="x", type=type, wire=wire, model="x", base_url=url)
            asyncio.run(ask(settings))


def _one(connection: socket.socket) -> None:
    """In a process of its own: run awl in another, and tell how it ends."""
    try:
        connection.settimeout(None)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        wish = json.loads(connection.makefile("r").readline())
        pid = os.fork()
        if not pid:
            _become_awl(wish)
        connection.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    finally:
        os._exit(0)


def _become_awl(wish: JSON) -> None:
    code = 99
    try:
        if wish["terminal"]:
            os.setsid()  # the first one that is opened is then its own
        for number, suffix in ((0, ""), (1, ".out"), (2, ".err")):
            name = wish["terminal"] or (wish["out"] + suffix if suffix else os.devnull)
            file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            os.dup2(file, number)
            os.close(file)
        if wish["terminal"]:  # what Python made of them was made for files
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            sys.stdout = open(1, "w", 1, closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", 1, closefd=False)  # noqa: SIM115
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(cast(Mapping[str, str], wish["env"]))
        os.chdir(wish["cwd"])
        if wish["stop"]:
            _stop(*wish["stop"])
        from awl.cli import run

        code = run(wish["argv"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _stop(when: str, name: str) -> None:
    """Have this process send itself a signal at a moment that nobody outside could hit."""
    from awl.entries import Entry, MessageEntry
    from awl.session import Session
    from awl.state import entry_type

    def kind(entry: Entry) -> str:
        if isinstance(entry, MessageEntry):
            return "results" if entry.message.said().tool_results else entry.message.role
        return entry_type(entry)

    append_many = Session.append_many
    seen: Counter[str] = Counter()

    def stopping(self: Session, entries: Sequence[Entry]) -> list[str]:
        def reached(before: str) -> bool:
            return when in (f"{before}{kind(entry)}{seen[kind(entry)]}" for entry in entries)

        seen.update(map(kind, entries))
        if reached("-"):
            os.kill(os.getpid(), getattr(signal, name))
        ids = append_many(self, entries)
        if reached(""):
            os.kill(os.getpid(), getattr(signal, name))
        return ids

    setattr(Session, "append_many", stopping)  # noqa: B010 - a method is replaced
    setattr(Session, "append", lambda self, entry: self.append_many([entry])[0])  # noqa: B010


if __name__ == "__main__":
    _serve(sys.argv[1])
