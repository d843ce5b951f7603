"""Agents for the benches."""

from collections.abc import Iterable
from typing import Any

from django.db import connection

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from memory.transfer import importing

ME = Actor.operator("bench")


def created(slug: str, **settings: Any) -> Agent:
    return with_key(slug, **settings)[0]


def with_key(slug: str, lines: Iterable[bytes] = (), **settings: Any) -> tuple[Agent, str]:
    """A new agent that has imported these lines, and its key."""
    agent, key = lifecycle.create("acme", slug, actor=ME, **{"model": "builtin/dedupe"} | settings)
    if lines:
        importing.check_lines(lines).store(agent, ME)
    return fresh(agent), key


def filled(slug: str, lines: Iterable[bytes], **settings: Any) -> Agent:
    return with_key(slug, lines, **settings)[0]


def fresh(agent: Agent) -> Agent:
    return Agent.objects.select_related("tenant").get(pk=agent.pk)


def analyze() -> None:
    """Give PostgreSQL its statistics, as autovacuum does soon after a large write."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
