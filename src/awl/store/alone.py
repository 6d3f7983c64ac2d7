"""One import or restore at a time. Two that bring the same session would not know of each other's,
and make two of it, or one in the place of the other."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from awl.log.durable import CLOEXEC, make_directories
from awl.log.lock import lock

_STEP: Final = 0.05
"""Seconds between looks whether the other one has ended."""


@contextlib.contextmanager
def alone(root: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the right to bring sessions in below `root` that have an id already, until the block or
    the process ends. While another process has it, wait; `waiting` is told so, once.

    Where no lock can be had (a full or read-only disk), it goes on without: nothing can be made
    there either.
    """
    fd = None
    try:
        with contextlib.suppress(OSError):
            fd = _locked(root / ".awl" / "import.lock", waiting)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _locked(path: Path, waiting: Callable[[], None]) -> int:
    make_directories(path.parent)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | CLOEXEC, 0o600)
    told = False
    try:
        while True:
            try:
                lock(fd)
            except BlockingIOError:
                if not told:
                    waiting()
                told = True
                time.sleep(_STEP)
            else:
                return fd
    except BaseException:
        os.close(fd)
        raise
