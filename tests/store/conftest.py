from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest


@pytest.fixture
def unsynced() -> Iterator[None]:
    """Without the slow syncs that what a kill leaves does not depend on."""
    with patch("awl.log.file.sync"), patch("awl.index.level.sync"), patch("os.fsync"):
        yield


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """How many steps lie between two kills; with --long, each has one."""
    return 1 if request.config.getoption("--long") else 4
