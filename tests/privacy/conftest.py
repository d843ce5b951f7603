from __future__ import annotations

from collections.abc import Iterator

import pytest

from refinement.llm import connections
from tests.privacy.watch import Watch, watching


@pytest.fixture
def watch(transactional_db: None) -> Iterator[Watch]:
    """A marker to put into memories; when the test is over, it must be nowhere."""
    with watching() as watch:
        yield watch
        connections.close_clients()
    assert watch.leaks() == []
