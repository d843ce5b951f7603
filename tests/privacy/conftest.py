from collections.abc import Iterator

import pytest

from refinement.llm import connections
from tests.privacy.watch import Watch, watching


@pytest.fixture
def watch(transactional_db: None) -> Iterator[Watch]:
    """A marker for the test's memories. The test fails if the marker is found anywhere at its end."""
    with watching() as watch:
        yield watch
        connections.close_clients()
    assert watch.leaks() == []
