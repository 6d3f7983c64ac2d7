"""Work that is killed at every step it takes on the file system, in real processes."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

_STEPS: Final = (
    *("open", "write", "pwrite", "copy_file_range", "ftruncate", "fsync", "fdatasync", "close"),
    *("link", "rename", "replace", "unlink", "mkdir", "rmdir", "chmod", "utime"),
)


def killed_at_each_step(work: Callable[[], object], every: int = 1) -> Iterator[int]:
    """Do work in a process that kills itself at one of its steps, again and again, each time a
    step later; the last time it gets to its end. Yields after each, with the step's number."""
    for step in count(1, every):
        pid = os.fork()
        if not pid:
            _become(work, step)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, -signal.SIGKILL), code
        yield step
        if not code:
            return


def _become(work: Callable[[], object], last: int) -> None:
    code = 99
    try:
        _die_at(last)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _die_at(last: int) -> None:
    steps = count(1)

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if next(steps) >= last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **more)

        return call

    for name in _STEPS:
        if hasattr(os, name):
            setattr(os, name, dying(getattr(os, name)))
