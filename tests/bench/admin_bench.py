"""The admin's first page and its lists, over very many agents: queries, milliseconds, and how they grow."""

import statistics
import time
from collections.abc import Iterator

from django.conf import settings
from django.contrib.admin import site
from django.db import connection
from django.test import Client
from django.urls import reverse
from django_otp import DEVICE_ID_SESSION_KEY

from memory.models import Person, Role, Tenant
from tests.bench.agents import analyze
from tests.bench.due_bench import add
from tests.bench.figures import Figure, at_most
from tests.members import join
from tests.second_factors import enrol

OVERVIEW_QUERIES, OVERVIEW_MS, LIST_QUERIES = 20, 300, 12
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
        yield at_most(f"{count:,} agents, overview", milliseconds, "ms", OVERVIEW_MS if count <= 1_000 else None)
        lists = [f"admin:{m._meta.app_label}_{m._meta.model_name}_changelist" for m in site._registry]
        found = [_measured(client, reverse(name)) for name in lists]
        most_queries = max(queries for queries, _ in found)
        yield at_most(f"{count:,} agents, any list: queries", most_queries, "", LIST_QUERIES)
        slowest = max(milliseconds for _, milliseconds in found)
        yield Figure(f"{count:,} agents, the slowest list", slowest, "ms")


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
