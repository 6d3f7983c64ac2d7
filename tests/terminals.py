"""awl at a terminal: a pseudo-terminal of which this process is the person's side."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from types import TracebackType
from typing import Self

from running import LIMIT, Awl

ENTER = "\r"
PROMPT = "\n\u203a "
CTRL_C = "\x03"
CTRL_D = "\x04"
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>][0-9A-B]?|\x1b\][^\x07]*\x07")


class Terminal:
    """A running `awl` whose input and output are a terminal.

    with Terminal(awl, "--resume") as terminal:
        terminal.say("Hello")
        terminal.see("Hello there.")
    """

    def __init__(self, awl: Awl, *arguments: str, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            awl.command(*arguments),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=awl.work,
            env={**awl.env, "TERM": "xterm", **env},
            preexec_fn=take_terminal,
        )
        os.close(theirs)
        self._all = ""
        self._from = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    @property
    def screen(self) -> str:
        """All that was written, without what moves the cursor and colours."""
        return _STYLE.sub("", self._all)

    @property
    def raw(self) -> str:
        return self._all

    def see(self, words: str) -> None:
        """Wait until the words are written, after those that were seen before."""
        deadline = time.monotonic() + LIMIT
        while (at := self.screen.find(words, self._from)) < 0:
            assert time.monotonic() < deadline, f"{words!r} is not in {self.screen[self._from :]!r}"
            if not self._read(0.2) and self.process.poll() is not None:
                at = self.screen.find(words, self._from)
                assert at >= 0, f"it ended; {words!r} is not in {self.screen[self._from :]!r}"
        self._from = at + len(words)

    def type(self, text: str, end: str = ENTER) -> None:
        """Type, whatever is on the screen."""
        os.write(self._ours, (text + end).encode())

    def say(self, text: str, end: str = ENTER) -> None:
        """Wait for the input line, and type."""
        self.see(PROMPT)
        self.type(text, end)

    def leave(self) -> int:
        """Ctrl-D at the input line; the exit code."""
        self.say("", end=CTRL_D)
        return self.ends()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the window."""
        with contextlib.suppress(OSError):
            os.close(self._ours)
        self._ours = -1

    def ends(self) -> int:
        """Wait for the end; the exit code."""
        deadline = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.screen[-2000:]!r}"
            if self._ours >= 0:
                self._read(0.05)
            else:
                time.sleep(0.01)
        while self._ours >= 0 and self._read(0.05):
            pass
        return self.process.returncode

    def _read(self, patience: float) -> bool:
        if not select.select([self._ours], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux's word for: the other side is closed
            return False
        self._all += data.decode(errors="replace")
        return bool(data)
