"""From a recording to every state that it may leave, each of them recovered and judged."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crash.disk import Tree, build, digest
from crash.promises import Kept, check, is_log
from crash.recorder import Killed, Recorder
from crash.scenarios import Play, Scenario, resume

SHARED = Path("/dev/shm")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of states are made in it."""
    with tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None) as folder:
        yield Path(folder).resolve()


@dataclass
class Tally:
    """What was tried."""

    states: set[bytes] = field(default_factory=set)
    moments: int = 0
    kills: int = 0

    def figures(self) -> dict[str, int]:
        return {
            "distinct crash states": len(self.states),
            "moments of power loss": self.moments,
            "kills before a power loss": self.kills,
        }


class Judge:
    """Recovers states, each of them once for what had been acknowledged by then.

    Args:
        folder: where the states are made.
        every, most: how thorough an `Explorer` is.
        nested: the part of the states whose recovery is interrupted by a power loss in its turn.
        seed: what is left to chance is the same with the same seed.
    """

    def __init__(
        self, folder: Path, *, every: int, most: int = 64, nested: float = 0, seed: int = 1
    ) -> None:
        self.tally = Tally()
        self._folder = folder
        self._nested = nested
        self._every = every
        self._most = most
        self._chance = random.Random(seed)
        self._judged: set[tuple[bytes, int]] = set()
        self._known: set[int] = set()
        self._serial = itertools.count()

    # -- what happens ------------------------------------------------------------------------------

    def power_loss(self, scenario: Scenario) -> None:
        """Lose power after each operation of a scenario."""
        with self.place() as root, Recorder(root) as recorder:
            scenario(Play(root, recorder))
        self.explore(recorder)

    def kills(self, scenario: Scenario, then: Scenario, part: float = 1) -> None:
        """Kill a scenario before each of its operations, let another process go on with `then`, and
        lose power after each operation of that: what the first did not sync is still pending.

        `part`: how many of the moments are tried.
        """
        with self.place() as root:
            count = itertools.count()
            with Recorder(root, hook=lambda *_: next(count) and None) as recorder:
                scenario(Play(root, recorder))
        for moment in range(next(count)):
            for torn in (False, True):
                if self._chance.random() < part:
                    self._kill(scenario, then, moment, torn=torn)

    def _kill(self, scenario: Scenario, then: Scenario, moment: int, *, torn: bool) -> None:
        left = moment

        def hook(name: str, about: str) -> int | None:
            nonlocal left
            left -= 1
            if left >= 0:
                return None
            if torn and left == -1 and name == "write":
                return 40  # and no more: it goes on with the rest, and is killed
            raise Killed

        with self.place() as root, Recorder(root, hook) as recorder:
            play = Play(root, recorder)
            with contextlib.suppress(Killed):
                scenario(play)
            recorder.bury()
            start = len(recorder.operations)
            then(Play(root, recorder, play.kept))
        self.tally.kills += 1
        self.explore(recorder, f"killed before operation {moment + 1}, ", start=start)

    # -- what may be left of it --------------------------------------------------------------------

    def explore(self, recorder: Recorder, story: str = "", *, start: int = 0) -> None:
        """Lose power after each operation that was recorded, from the `start`th on."""
        self._explore(recorder, Kept(), {}, story, start, deeper=True)

    def _explore(
        self,
        recorder: Recorder,
        kept: Kept,
        written: Written,
        story: str,
        start: int,
        *,
        deeper: bool,
    ) -> None:
        explorer = recorder.explorer
        explorer.chance, explorer.most = self._chance, self._most
        explorer.every = self._every if deeper else 0
        note_lines(explorer.now(), written)
        for n, operation in enumerate(recorder.operations):
            if isinstance(operation, Kept):
                kept = operation
            else:
                explorer.after(operation)
                note_lines(explorer.now(), written)
            if n < start:
                continue
            self.tally.moments += 1
            name = type(operation).__name__
            for tree, words in explorer.states(operation):
                told = f"{story}power was lost after operation {n + 1} ({name}): {words}"
                if self._is_new(tree, kept):
                    self._judge(tree, kept, written, told)
                    if deeper and self._chance.random() < self._nested:
                        self._recover(tree, kept, written, told)

    def _is_new(self, tree: Tree, kept: Kept) -> bool:
        state = digest(tree)
        promised = hash(repr(kept))  # all of it: the same disk may break a promise that is newer
        new = (state, promised) not in self._judged
        self._judged.add((state, promised))
        self.tally.states.add(state)
        return new

    def _judge(self, tree: Tree, kept: Kept, written: Written, story: str) -> None:
        with self.place() as place:
            build(tree, place)
            try:
                check(place, kept, written, self._known)
            except BaseException as error:
                left = Path(tempfile.mkdtemp(prefix="awl-crash-state-"))
                build(tree, left)
                error.add_note(f"{story}\nThat state is in {left}; acknowledged was {kept}")
                raise

    def _recover(self, tree: Tree, kept: Kept, written: Written, story: str) -> None:
        """Lose power again, after each operation of the recovery and of a turn after it."""
        kept = kept.with_tails(tree)
        with self.place() as place:
            build(tree, place)
            with Recorder(place) as recorder:
                resume(Play(place, recorder, kept))
        known = {name: set(lines) for name, lines in written.items()}
        self._explore(recorder, kept, known, f"{story}\nthen ", 0, deeper=False)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A folder that is gone afterwards."""
        place = self._folder / str(next(self._serial))
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place)


Written = dict[str, set[bytes]]


def note_lines(tree: Tree, written: Written) -> None:
    """Remember the lines that logs hold now."""
    for name, data in tree.items():
        if is_log(name):
            written.setdefault(name, set()).update((data or b"").split(b"\n"))


def lines_written(recorder: Recorder) -> Written:
    """All lines that logs held at some time of a recording."""
    written: Written = {}
    explorer = recorder.explorer
    for operation in recorder.operations:
        if not isinstance(operation, Kept):
            explorer.after(operation)
            note_lines(explorer.now(), written)
    return written
