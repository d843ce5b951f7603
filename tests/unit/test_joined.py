"""A row with what its foreign keys lead to: as Django's own query gives it, by one statement."""

from __future__ import annotations

from typing import Any

from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from audit import joined
from memory.models import AgentKey
from tests.conftest import House


def prefix(key: str) -> str:
    return key.split("_")[1]


def fields(row: models.Model) -> dict[str, Any]:
    values = {name: value for name, value in vars(row).items() if name != "_state"}
    return {name: bytes(value) if isinstance(value, memoryview) else value for name, value in values.items()}


def test_it_is_what_django_reads(house: House) -> None:
    for key in (house.ada_key, house.bob_key):
        found = joined.one(AgentKey, ("agent", "tenant"), "prefix", prefix(key))
        expected = AgentKey.objects.select_related("agent__tenant").get(prefix=prefix(key))
        assert found is not None
        assert fields(found) == fields(expected)
        assert fields(found.agent) == fields(expected.agent)
        assert fields(found.agent.tenant) == fields(expected.agent.tenant)


def test_one_statement_asks_for_all_of_it(house: House) -> None:
    with CaptureQueriesContext(connection) as captured:
        found = joined.one(AgentKey, ("agent", "tenant"), "prefix", prefix(house.ada_key))
        assert found is not None
        assert found.agent.tenant.slug == "acme"
    assert len(captured) == 1


def test_what_is_not_there_is_none(house: House) -> None:
    assert joined.one(AgentKey, ("agent", "tenant"), "prefix", "nosuchprefix") is None
