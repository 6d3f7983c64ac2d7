"""How long awl waits for other processes before it goes on without what they hold."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

ENOUGH: Final = 0.6
"""Seconds of waiting at most. A command that meets a lock several times waits for it once."""

_PAUSE: Final = 0.004


class Patience:
    """Seconds to wait, shared by all that one command or one part of a program does. While there is
    nothing to wait for, patience comes back as time passes."""

    def __init__(self) -> None:
        self._left = ENOUGH
        self._since = time.monotonic()

    def persist(self, attempt: Callable[[], bool]) -> bool:
        """Try until it succeeds. False if it does not while there is patience."""
        begun = time.monotonic()
        if attempt():
            return True
        left = min(ENOUGH, self._left + begun - self._since)
        done = False
        while not done and time.monotonic() - begun < left:
            time.sleep(random.uniform(0, _PAUSE))  # noqa: S311 - so that not all try at once
            done = attempt()
        self._since = time.monotonic()
        self._left = max(0.0, left - (self._since - begun))
        return done
