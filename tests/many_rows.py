"""An agent with many memories, entries, sessions, access requests and keys, for the admin's lists."""

from typing import Any

from django.db.models import Model

from audit.models import AccessRequest
from memory.consent import requests
from memory.models import Agent, AgentKey
from refinement import loop
from refinement.models import RefinementSession
from tests import steps
from tests.access_requests import ask
from tests.bench import trails


def add(agent: Agent, count: int) -> None:
    """Give an agent `count` rows of each kind. Its session and its access request are real, and the rest are copies."""
    steps.remember(agent, *(f"Number {n} is a plain fact about tea, boats and harbours." for n in range(count)))
    trails.lengthen(agent, trails.toggles(count, count))
    loop.refine(steps.fresh(agent), trigger="manual")
    requests.deny(steps.fresh(agent), ask(steps.fresh(agent)).number, steps.ME)
    copy(RefinementSession.objects.get(agent=agent), "number", count)
    copy(AccessRequest.objects.get(agent_id=agent.pk), "number", count)
    AgentKey.objects.bulk_create(AgentKey(prefix=f"{agent.pk}-{n}", mac=b"", agent=agent) for n in range(count))


def copy(row: Any, number: str, count: int) -> None:
    """Insert copies of a row, with other numbers."""
    model: type[Model] = type(row)
    values = {field.attname: getattr(row, field.attname) for field in model._meta.concrete_fields}
    del values[model._meta.pk.attname]
    first = values.pop(number) + 1
    model._default_manager.bulk_create(model(**values, **{number: first + n}) for n in range(count))
