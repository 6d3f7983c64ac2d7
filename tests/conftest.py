from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from acting import Stage
from hypothesis import settings
from running import Awl
from standin import StandIn
from zygote import Forks

settings.register_profile("awl", deadline=None)  # how long an example takes proves nothing
settings.load_profile("awl")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="runs with --long"))


@pytest.fixture
def awl(tmp_path: Path) -> Awl:
    """awl as a process, with a home of its own."""
    return Awl(tmp_path)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """An agent in this process, with a scripted model and the real tools."""
    return Stage(tmp_path)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs awl as processes that need not import the SDKs first."""
    with Forks() as running:
        yield running


@pytest.fixture
def server() -> Iterator[StandIn]:
    """A model server that is as strict as the real ones."""
    with StandIn() as running:
        yield running
