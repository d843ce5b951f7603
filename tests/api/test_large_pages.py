"""Memories beneath can have 100 kB. A page with many of them ends early."""

from typing import Any

import pytest

from memory.api.base import views
from memory.models import Agent
from memory.search import reading
from memory.writing import operations, stores
from tests import steps
from tests.api.calling import Caller
from tests.conftest import House
from tests.steps import ME, fresh, last_entry
from tests.unit.test_stores import new

pytestmark = pytest.mark.database


@pytest.fixture
def runtime(house: House) -> Caller:
    return Caller(house.ada_key)


def pages(runtime: Caller, path: str) -> list[list[int]]:
    """The ids of each page."""
    found: list[list[int]] = []
    cursor: Any = ""
    while cursor is not None:
        body = runtime.get(f"{path}{'&' if '?' in path else '?'}limit=500{cursor and f'&cursor={cursor}'}").json
        found.append([each["id"] for each in body["results"]])
        cursor = body["next"]
    return found


def test_a_page_ends_before_it_has_too_many_characters(
    runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PAGE_CHARACTERS", 1_000)
    store = new(ada, a="x" * 400, b="x" * 400, c="x" * 400, d="x" * 2_000, e="x")
    assert pages(runtime, "memories?layer=beneath") == [[1, 2], [3], [4], [5]]
    stores.delete(fresh(ada), store, ME)
    assert pages(runtime, f"audit/{last_entry(ada).seq}") == [[1], [2], [3], [4], [5]]


def test_a_page_has_as_many_memories_as_it_should(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, *(f"tea {n}" for n in range(130)))
    assert pages(runtime, "memories") == [list(range(1, 131))]
    assert [len(runtime.get(f"memories?limit={n}").json["results"]) for n in (1, 60, 61, 120)] == [1, 60, 61, 120]


def test_a_lineage_ends_before_it_has_too_many_bytes(
    runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_SOURCE_BYTES", 1_000)
    steps.remember(ada, *(f"{n} {'x' * 300}" for n in range(5)))
    operations.consolidate(fresh(ada), [1, 2, 3, 4, 5], "all", ME)
    assert [each["id"] for each in runtime.get("memories/6?lineage=true").json["sources"]] == [1, 2]
