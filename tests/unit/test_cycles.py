"""Lineages that lead back to themselves, and long ones: nothing waits for them for ever, or for thousands of steps."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.consent import redaction
from memory.errors import Invalid
from memory.models import Agent, Memory
from memory.recording.retrieval import retrieve
from memory.search import reading
from memory.search.selection import Filters
from memory.time_machine import lineage
from memory.transfer import importing
from tests import steps
from tests.api.calling import NDJSON, Caller
from tests.conftest import House
from tests.steps import ME, fresh
from tests.unit.test_search import Index, document

pytestmark = [pytest.mark.database, pytest.mark.timeout(60)]


def lines(sources: dict[int, Sequence[int]]) -> list[bytes]:
    """A file with these memories beneath, each with its sources."""
    rows = [
        {"id": number, "content": f"tea {number}", "layer": "beneath", "sources": list(of)}
        for number, of in sources.items()
    ]
    return [json.dumps(row).encode() + b"\n" for row in rows]


@pytest.mark.parametrize("sources", [{1: [1]}, {1: [2], 2: [1]}, {1: [], 2: [1, 4], 3: [2], 4: [3]}])
def test_an_import_with_a_cycle_is_refused(sources: dict[int, Sequence[int]], house: House, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    with pytest.raises(Invalid, match="back to itself"):
        importing.check_lines(lines(sources)).store(house.ada, ME)
    answer = Caller(house.ada_key).post("import", raw=b"".join(lines(sources)), kind=NDJSON)
    assert (answer.status, answer.attrs) == (422, ["sources"])
    assert not Memory.objects.of(house.ada).exists()


@pytest.mark.parametrize("successors", [{1: 1}, {1: 2, 2: 1}, {1: 2, 2: 3, 3: 2}])
def test_a_cycle_ends_a_search(successors: dict[int, int]) -> None:
    index = Index("english")
    index.extend(document(n, "tea", layer="beneath", superseded_by=successors.get(n)) for n in (1, 2, 3))
    for number in (1, 2, 3):
        assert set(index.origins(number)) <= {1, 2, 3}
        assert index.successor(number) in (None, 1, 2, 3)


def test_a_cycle_that_sql_makes_ends_every_read(ada: Agent) -> None:
    importing.check_lines(lines({1: [], 2: [1], 3: [2]})).store(ada, ME)
    Memory.objects.of(ada).filter(number=3).update(superseded_by=1)
    assert len(reading.search(fresh(ada), "tea", filters=Filters())) == 3
    assert retrieve(fresh(ada), "tea", project="").reads
    assert redaction.preview(fresh(ada), [1]).memories


def test_a_long_lineage_takes_few_queries(ada: Agent) -> None:
    many = 3_000
    importing.check_lines(lines({n: [n - 1] if n > 1 else [] for n in range(1, many + 1)})).store(ada, ME)
    assert retrieve(fresh(ada), "tea", project="").reads
    with CaptureQueriesContext(connection) as queries:
        assert len(redaction.preview(fresh(ada), [1]).memories) == many
    assert len(queries) < 6 * lineage.STEPS


def test_a_merge_is_found_at_each_step_of_a_long_walk(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "STEPS", 1)
    steps.remember(ada, *(f"tea {n}" for n in range(5)))
    made = [1]
    for number in range(2, 6):
        made.append(steps.operations.consolidate(ada, [made[-1], number], f"merged {number}", ME).memories[0].number)
    assert set(redaction.preview(fresh(ada), [made[-1]]).memories) == set(range(1, made[-1] + 1))
    assert set(redaction.preview(fresh(ada), [1]).memories) == {1, *made[1:]}


def test_an_import_with_too_many_sources_is_refused(ada: Agent) -> None:
    """Linking them would keep the agent locked for seconds."""
    importing.check_lines(lines({1: [1_000] * 10_000})).store(ada, ME)
    with pytest.raises(Invalid, match="too many"):
        importing.check_lines(lines({1: [1_000] * 10_020})).store(fresh(ada), ME)
