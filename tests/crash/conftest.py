from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import pytest


class Tally(Protocol):
    """What a test tried, in numbers."""

    def figures(self) -> dict[str, int]: ...


class Figures:
    """What one test tried; the summary of a run adds up those of all."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __iadd__(self, tally: Tally) -> Figures:
        self.counts.update(tally.figures())
        return self

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Where a test says how much it tried."""
    found = Figures()
    yield found
    request.node.user_properties += found.counts.items()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    whole: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "teardown":
                whole.update(dict(report.user_properties))
    if whole:
        terminalreporter.section("what the crash tests tried")
        for what, number in whole.items():
            terminalreporter.line(f"{number:>10,} {what}")
