"""The first page: figures of one's own tenants, in as many queries however many agents; and what to do when empty."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.consent import Person as Asking
from audit.consent import Scope
from audit.trail import Actor
from config import queue
from memory.agents import lifecycle
from memory.consent import grants
from memory.models import Agent, Person
from refinement import backlog, loop
from refinement.admin import overview
from refinement.models import Provider
from tests import steps
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import fresh

pytestmark = pytest.mark.database

SignedIn = Callable[[Person], Client]
RUNTIME = Actor.agent("runtime")


def shown(client: Client) -> dict[str, Any]:
    answer = client.get("/admin/")
    assert answer.status_code == 200
    assert MARKER not in answer.content.decode()
    found: dict[str, Any] = answer.context["overview"]
    return found


def counts(client: Client) -> dict[str, int]:
    return {name: count for name, count, _, _ in shown(client)["counts"]}


def test_what_needs_somebody_is_counted(house: House, staff: dict[str, Person], enter: Enter) -> None:
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} boats")
    client = enter("auditor")
    nothing = {"over budget": 0, "due for refinement": 0, "paused": 0, "open access requests": 0, "grants in force": 0}
    assert counts(client) == nothing | {"agents": 1}
    lifecycle.change(fresh(house.ada), RUNTIME, paused=True, target_tokens=1, budget_tokens=1)
    ada = Asking(staff["auditor"].pk, staff["auditor"].email)
    granted = grants.ask(fresh(house.ada), ada, purpose="a fault that a customer told us of", scope=Scope("silo"))
    grants.approve(fresh(house.ada), granted.number, RUNTIME)
    grants.ask(fresh(house.ada), ada, purpose="another fault that we were told of", scope=Scope("silo"))
    told = {"agents": 1, "over budget": 1, "paused": 1, "open access requests": 1, "grants in force": 1}
    assert counts(client) == nothing | told
    lifecycle.change(fresh(house.ada), RUNTIME, paused=False)
    backlog.request(fresh(house.ada))
    assert counts(client)["due for refinement"] == 1
    assert counts(enter("superuser"))["agents"] == 2


def test_the_charts_are_of_ones_own_sessions(house: House, enter: Enter, time_machine: Any) -> None:
    for agent in (house.ada, house.bob):
        steps.remember(agent, *[f"{MARKER} drinks tea"] * 3)
    saved = 0
    for _ in range(2):
        session = loop.refine(fresh(house.ada), trigger="manual")
        session.refresh_from_db()
        saved += session.tokens_before - session.tokens_after
    loop.refine(fresh(house.bob), trigger="manual")
    weekly, outcomes = shown(enter("owner"))["charts"]
    assert len(weekly["pairs"]) == overview.WEEKS
    assert weekly["pairs"][-1][1] == saved > 0
    assert [value for _, value in weekly["pairs"][:-1]] == [0] * (overview.WEEKS - 1)
    assert outcomes["pairs"] == [("completed", 2)]
    time_machine.move_to(timezone.now() + timedelta(weeks=overview.WEEKS))
    weekly, outcomes = shown(enter("admin"))["charts"]
    assert not any(value for _, value in weekly["pairs"])
    assert outcomes["pairs"] == []


def test_it_takes_few_queries_however_many_agents(
    house: House, client: Client, django_assert_max_num_queries: Any
) -> None:
    now, count = timezone.now(), 1_000
    rest = {"tenant": house.ada.tenant, "model": "builtin/dedupe", "due_at": now, "wrapped_key": b"x"}
    many = [Agent(slug=f"a{n}", core_tokens=n + 1, **rest) for n in range(count)]
    Agent.objects.bulk_create(many)
    with django_assert_max_num_queries(20):
        heaviest = shown(client)["heaviest"]
    assert [row["agent"].slug for row in heaviest][:10] == [f"a{n}" for n in range(count - 1, count - 11, -1)]
    with django_assert_max_num_queries(12):
        assert client.get(reverse("admin:memory_agent_changelist")).status_code == 200


def test_each_figure_leads_to_its_rows(house: House, client: Client) -> None:
    for name, count, address, _ in shown(client)["counts"]:
        answer = client.get(address)
        assert answer.status_code == 200, name
        assert len(answer.context["cl"].result_list) == count


def test_every_list_leads_from_the_menu(house: House, enter: Enter) -> None:
    page = enter("superuser").get("/admin/").content.decode()
    for model in site._registry:
        assert reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist") in page


def test_of_one_over_its_budget_and_not_due_it_is_told_that_it_is_paused(house: House, enter: Enter) -> None:
    client = enter("auditor")
    steps.remember(house.ada, f"{MARKER} tea")
    lifecycle.change(fresh(house.ada), RUNTIME, target_tokens=1, budget_tokens=1)
    assert shown(client)["heaviest"][0]["due"] == "over budget"
    assert {note for *_, note in shown(client)["counts"]} == {""}
    lifecycle.change(fresh(house.ada), RUNTIME, paused=True)
    assert shown(client)["heaviest"][0]["due"] == "over budget, paused"
    assert [note for *_, note in shown(client)["counts"] if note] == ["1 paused"]
    assert (counts(client)["over budget"], counts(client)["due for refinement"]) == (1, 0)
    assert "(1 paused)" in client.get("/admin/").content.decode()


def test_what_keeps_due_agents_waiting_is_told(house: House, enter: Enter) -> None:
    client = enter("auditor")
    assert "Due agents wait: no worker ever ran" in client.get("/admin/").content.decode()
    queue.keep_schedules()
    assert "Due agents wait" not in client.get("/admin/").content.decode()
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    assert "Due agents wait: openai does not respond and is not called until" in client.get("/admin/").content.decode()
