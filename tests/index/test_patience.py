"""Waiting for other processes: long enough, and once."""

from __future__ import annotations

import pytest

from awl.index import patience
from awl.index.patience import ENOUGH, Patience


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(patience, "time", made)
    return made


def test_what_can_be_had_at_once_takes_no_patience(clock: Clock) -> None:
    waiting = Patience()
    assert all(waiting.persist(lambda: True) for _ in range(1000))
    assert clock.now == 0


def test_it_is_tried_until_it_succeeds(clock: Clock) -> None:
    answers = [True, False, False, False]
    assert Patience().persist(answers.pop)
    assert 0 < clock.now < ENOUGH


def test_many_locks_are_waited_for_as_long_as_one(clock: Clock) -> None:
    waiting = Patience()
    assert not any(waiting.persist(lambda: False) for _ in range(20))
    assert ENOUGH <= clock.now < ENOUGH + 0.1


def test_patience_comes_back_with_time(clock: Clock) -> None:
    waiting = Patience()
    waiting.persist(lambda: False)
    clock.now = 100
    waiting.persist(lambda: False)
    assert ENOUGH <= clock.now - 100 < ENOUGH + 0.1
