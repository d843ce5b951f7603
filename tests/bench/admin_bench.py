"""The admin's overview and lists with very many agents, and each page of an agent with 1,000 rows of each kind.

It counts queries and milliseconds, and shows how they grow.
"""

import statistics
import time
from collections.abc import Iterator

from django.conf import settings
from django.contrib.admin import site
from django.db import connection
from django.test import Client
from django.urls import reverse
from django_otp import DEVICE_ID_SESSION_KEY

from audit.models import AccessRequest, AuditEntry
from memory.models import Agent, Memory, Person, Role, Tenant
from refinement.models import RefinementSession
from tests import many_rows
from tests.bench.agents import analyze, filled
from tests.bench.due_bench import add
from tests.bench.figures import Figure, at_most
from tests.members import join
from tests.second_factors import enrol

OVERVIEW_QUERIES, PAGE_MS, LIST_QUERIES = 20, 300, 12
ROWS = 1_000
TIMES = 10


def run(*, quick: bool) -> Iterator[Figure]:
    settings.ALLOWED_HOSTS = ["testserver"]
    tenant = Tenant.objects.create(slug="acme")
    client, there = _signed_in(tenant), 0
    for count in (10, 1_000) if quick else (10, 1_000, 10_000):
        add([tenant], there, count)
        there = count
        analyze()
        queries, milliseconds = _measured(client, reverse("admin:index"))
        yield at_most(f"{count:,} agents, overview: queries", queries, "", OVERVIEW_QUERIES)
        yield at_most(f"{count:,} agents, overview", milliseconds, "ms", PAGE_MS if count <= 1_000 else None)
        lists = [f"admin:{m._meta.app_label}_{m._meta.model_name}_changelist" for m in site._registry]
        found = [_measured(client, reverse(name)) for name in lists]
        most_queries = max(queries for queries, _ in found)
        yield at_most(f"{count:,} agents, any list: queries", most_queries, "", LIST_QUERIES)
        slowest = max(milliseconds for _, milliseconds in found)
        yield Figure(f"{count:,} agents, the slowest list", slowest, "ms")
    yield from _pages_of_one_agent(client)


def _pages_of_one_agent(client: Client) -> Iterator[Figure]:
    """The lists and the pages of an agent with ROWS memories, entries, sessions, requests and keys."""
    agent = filled("long", ())
    many_rows.add(agent, ROWS)
    analyze()
    for model in (Agent, Memory, RefinementSession, AuditEntry, AccessRequest):
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        at = {} if model is Agent else {"agent": agent.label}
        queries, milliseconds = _measured(client, reverse(f"{name}_changelist", query=at))
        yield at_most(f"{ROWS:,} rows, list of {model._meta.verbose_name_plural}: queries", queries, "", LIST_QUERIES)
        yield at_most(f"{ROWS:,} rows, list of {model._meta.verbose_name_plural}", milliseconds, "ms", PAGE_MS)
        row = agent if model is Agent else model._default_manager.filter(agent_id=agent.pk).latest("pk")
        _, milliseconds = _measured(client, reverse(f"{name}_change", args=[row.pk]))
        yield at_most(
            f"{ROWS:,} rows, page of one of the {model._meta.verbose_name_plural}", milliseconds, "ms", PAGE_MS
        )
    _, milliseconds = _measured(client, reverse("admin:memory_agent_time_machine", args=[agent.pk]))
    yield at_most(f"{ROWS:,} rows, Time Machine", milliseconds, "ms", PAGE_MS)


def _signed_in(tenant: Tenant) -> Client:
    """Somebody who sees every page there is."""
    person = Person.objects.create_user("root@acme.test", "a good long passphrase", is_superuser=True)
    join(person=person, tenant=tenant, role=Role.OWNER)
    factor = enrol(person)
    client = Client()
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    session = client.session
    session[DEVICE_ID_SESSION_KEY] = factor.persistent_id
    session.save()
    return client


def _measured(client: Client, address: str) -> tuple[int, float]:
    """Queries, and the median of some times in milliseconds."""
    client.get(address)
    asked: list[str] = []
    with connection.execute_wrapper(lambda do, sql, *rest: asked.append(sql) or do(sql, *rest)):
        assert client.get(address).status_code == 200, address
    took = []
    for _ in range(TIMES):
        start = time.perf_counter()
        client.get(address)
        took.append(1_000 * (time.perf_counter() - start))
    return len(asked), statistics.median(took)
