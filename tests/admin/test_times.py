"""Times in the admin: written in one way, wherever they stand."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.consent import Person as Asking
from audit.consent import Scope
from audit.models import AccessRequest, AuditEntry
from audit.trail import Actor
from memory.admin.base.links import time_machine_address
from memory.consent import grants, proposals
from memory.models import AgentKey, Memory, Person
from refinement import loop
from refinement.models import RefinementSession
from tests import steps
from tests.conftest import House
from tests.steps import fresh

pytestmark = pytest.mark.django_db

SignedIn = Callable[[Person], Client]
A_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?: UTC)*")
AS_IT_IS = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
OTHERWISE = re.compile(r"\d [ap]\.m\.|\b(?:noon|midnight)\b|\b[A-Z][a-z]{2,8}\.? \d{1,2}, 20\d\d|\d [A-Z][a-z]+ 20\d\d")


@pytest.fixture
def pages(house: House, staff: dict[str, Person]) -> dict[str, str]:
    """Pages with a time on them, by what they show."""
    ada = house.ada
    steps.remember(ada, "tea", "tea")
    loop.refine(fresh(ada), trigger="manual")
    asked = grants.ask(fresh(ada), Asking(1, "pat@acme.test"), purpose="to see why it forgot her", scope=Scope("silo"))
    proposals.propose(fresh(ada), Actor.person("admin@acme.test"), model="openai/gpt")
    AgentKey.objects.filter(agent=ada).update(last_used_at=timezone.now())
    rows = {
        "memory_agent": ada,
        "memory_memory": Memory.objects.get(agent=ada, number=1),
        "refinement_refinementsession": RefinementSession.objects.get(agent=ada),
        "audit_auditentry": AuditEntry.objects.filter(agent_id=ada.pk).first(),
        "audit_accessrequest": AccessRequest.objects.get(number=asked.number),
        "memory_agentkey": AgentKey.objects.get(agent=ada),
        "memory_person": staff["owner"],
        "memory_tenant": ada.tenant,
    }
    found = {name: reverse(f"admin:{name}_change", args=[row.pk]) for name, row in rows.items() if row}
    found |= {f"list of {name}": reverse(f"admin:{name}_changelist") for name in rows if name != "memory_memory"}
    found["time machine"] = time_machine_address(ada.pk)
    return found | {"preview": time_machine_address(ada.pk, "moment", f"{timezone.now():%Y-%m-%d %H:%M}")}


def test_there_is_one_way_to_write_a_time(pages: dict[str, str], staff: dict[str, Person], signed_in: SignedIn) -> None:
    client = signed_in(staff["superuser"])
    shown = {name: client.get(address).content.decode() for name, address in pages.items()}
    form = {"action": "revoke_key", "_selected_action": str(AgentKey.objects.get(agent__slug="ada").pk)}
    shown["revoking"] = client.post(pages["list of memory_agentkey"], form).content.decode()
    for name, page in shown.items():
        times = A_TIME.findall(re.sub(r'(?:href|value|action)="[^"]*"', "", page))
        assert times, name
        assert all(map(AS_IT_IS.fullmatch, times)), (name, times)
        assert not OTHERWISE.search(page), name


def test_a_time_as_it_is_shown_is_taken_by_the_time_machine(
    house: House, staff: dict[str, Person], signed_in: SignedIn
) -> None:
    shown = f"{timezone.now():%Y-%m-%d %H:%M:%S} UTC"
    steps.remember(house.ada, "tea")
    page = signed_in(staff["owner"]).get(time_machine_address(house.ada.pk, "moment", shown)).content.decode()
    assert f"To take back everything since {shown} would mean" in page
