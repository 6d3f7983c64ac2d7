"""A program at a terminal, of which this process is the person's side."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """The other end of a program's terminal. `unseen` is what was read and not yet looked for."""

    def __init__(self, fd: int, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.unseen = ""
        self._fd = fd

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def read(self) -> bool:
        """Wait for what comes next. False: the program has closed its terminal."""
        ready, _, _ = select.select([self._fd], [], [], 60)
        if not ready:
            raise TimeoutError("nothing arrived for a minute")
        with contextlib.suppress(OSError):  # Linux's word for: the other side is closed
            if data := os.read(self._fd, 65536):
                self.unseen += _STYLE.sub("", data.decode("utf-8", "replace"))
                return True
        return False

    def see(self, words: str) -> list[float]:
        """Read until these words have come; the moments of the readings (`time.perf_counter`)."""
        moments = []
        while words not in self.unseen:
            if not self.read():
                raise EOFError(f"the program ended before it said {words!r}")
            moments.append(time.perf_counter())
        self.unseen = self.unseen.partition(words)[2]
        return moments

    def watch(self, seconds: float) -> list[float]:
        """Read for so long; the moments of the readings."""
        moments = [time.perf_counter()]
        while moments[-1] - moments[0] < seconds and self.read():
            moments.append(time.perf_counter())
            self.unseen = ""
        return moments

    def drop(self) -> None:
        """Read all that comes until the program closes its terminal."""
        while self.read():
            self.unseen = ""


@contextlib.contextmanager
def at_a_terminal(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stderr: int | None = None,
) -> Iterator[Terminal]:
    """Run a command at a terminal of 40 rows of 120 columns, until the end of the block.

    `env` is added to this process's environment. Standard error too is the terminal by default.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if stderr is None else stderr,
        cwd=cwd,
        env={**os.environ, "TERM": "xterm", **env},
        preexec_fn=_take_terminal,
        text=True,
    )
    os.close(theirs)
    try:
        with process:
            try:
                yield Terminal(ours, process)
            finally:
                process.kill()
    finally:
        os.close(ours)


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
