from __future__ import annotations

from collections.abc import Iterator

import pytest
from standin import StandIn
from zygote import Forks


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
