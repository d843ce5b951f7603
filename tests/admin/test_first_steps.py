"""What who is new is told: what comes next, and what to do where there is nothing yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from memory.admin.base.help_texts import HELP, LIMITS, WHEN_EMPTY
from memory.models import Agent, Invitation, Membership, Person, Tenant
from refinement import limits, loop
from refinement.models import RefinementSession
from tests.admin.conftest import enrolled
from tests.conftest import House

pytestmark = pytest.mark.django_db

SignedIn = Callable[[Person], Client]
NEVER_EMPTY = {"person", "tenant"}  # for who sees them, once there is a tenant


def a_list(model: str) -> str:
    reverse("admin:index")  # which registers the pages
    return next(
        reverse(f"admin:{each._meta.app_label}_{model}_changelist")
        for each in site._registry
        if each._meta.model_name == model
    )


@pytest.fixture
def root(db: None) -> Person:
    return enrolled("root@service.test", is_superuser=True)


def test_from_a_new_tenant_lead_the_next_steps(root: Person, signed_in: SignedIn) -> None:
    client = signed_in(root)
    made = client.post(reverse("admin:memory_tenant_add_tenant"), {"slug": "acme"}, follow=True).content.decode()
    acme = Tenant.objects.get(slug="acme")
    assert "Next: invite its first owner, and add its first agent." in made
    invite = f"{reverse('admin:memory_membership_invite')}?tenant={acme.pk}"
    add = f"{reverse('admin:memory_agent_add_agent')}?tenant={acme.pk}"
    for address in (invite, add):
        assert f'href="{address}"' in made
        assert f'<option value="{acme.pk}" selected>' in client.get(address).content.decode()
    assert client.post(invite, {"tenant": str(acme.pk), "address": "o@acme.test", "role": "owner"}).status_code == 200
    assert Invitation.objects.get().tenant == acme


@pytest.mark.parametrize("about", ["x", "\0", "9" * 40, "-1", ""])
def test_a_form_about_no_tenant_begins_with_none(about: str, root: Person, house: House, signed_in: SignedIn) -> None:
    client = signed_in(root)
    for name in ("membership_invite", "agent_add_agent"):
        answer = client.get(reverse(f"admin:memory_{name}"), {"tenant": about})
        assert answer.status_code == 200
        assert f'<option value="{house.ada.tenant_id}" selected>' not in answer.content.decode()


def test_nobody_is_offered_a_tenant_by_its_number(house: House, staff: dict[str, Person], signed_in: SignedIn) -> None:
    address = f"{reverse('admin:memory_agent_add_agent')}?tenant={house.bob.tenant_id}"
    page = signed_in(staff["owner"]).get(address).content.decode()
    assert f'<option value="{house.bob.tenant_id}"' not in page
    assert "globex" not in page


def test_every_list_has_its_words() -> None:
    reverse("admin:index")  # which registers the pages
    assert {model._meta.model_name for model in site._registry} == set(WHEN_EMPTY)


@pytest.mark.parametrize("model", sorted(set(WHEN_EMPTY) - NEVER_EMPTY))
def test_an_empty_list_says_what_to_do(model: str, root: Person, signed_in: SignedIn) -> None:
    Tenant.objects.create(slug="acme")
    page = signed_in(root).get(a_list(model)).content.decode()
    assert "Nothing is here yet" in page
    assert escape(WHEN_EMPTY[model]) in page
    assert "Show everything" not in page


def test_a_service_without_tenants_says_so_in_their_list(root: Person, signed_in: SignedIn) -> None:
    assert WHEN_EMPTY["tenant"] in signed_in(root).get(a_list("tenant")).content.decode()


@pytest.mark.parametrize("asked", ["?q=nobody", "?paused__exact=1"])
def test_a_list_that_is_narrowed_to_nothing_leads_back(
    asked: str, house: House, staff: dict[str, Person], signed_in: SignedIn
) -> None:
    page = signed_in(staff["owner"]).get(a_list("agent") + asked).content.decode()
    assert "Nothing like this is here" in page
    assert "Show everything" in page
    assert WHEN_EMPTY["agent"] not in page
    assert (Agent.objects.count(), Membership.objects.count()) == (2, 3), "there are some"


def test_that_an_invitation_ends_the_one_before_is_told(
    house: House, staff: dict[str, Person], signed_in: SignedIn
) -> None:
    client, address = signed_in(staff["owner"]), reverse("admin:memory_membership_invite")
    form = {"address": "new@acme.test", "tenant": str(house.ada.tenant_id), "role": "admin"}
    assert "An earlier link for the same address and tenant ends with it." in client.get(address).content.decode()
    told = "The link that was made for them before is not valid any more"
    first, other = client.post(address, form), client.post(address, form | {"address": "other@acme.test"})
    assert told not in first.content.decode()
    assert told not in other.content.decode()
    assert told in client.post(address, form | {"address": " NEW@acme.test"}).content.decode()
    assert Invitation.objects.count() == 2


# --- words


def test_words_that_nobody_knows_are_explained_where_they_stand(
    house: House, staff: dict[str, Person], signed_in: SignedIn
) -> None:
    loop.refine(house.ada, trigger="manual")
    session = RefinementSession.objects.get(agent=house.ada)
    client = signed_in(staff["auditor"])
    agent = client.get(reverse("admin:memory_agent_change", args=[house.ada.pk])).content.decode()
    its_session = client.get(reverse("admin:refinement_refinementsession_change", args=[session.pk])).content.decode()
    for page, names in (
        (agent, ("high_water_tokens", "retention")),
        (its_session, ("breaker_state", "floor_refusals", "timeline")),
    ):
        assert all(HELP[name] in page for name in names)


def test_what_an_empty_limit_means_is_told_with_its_number(house: House, root: Person, signed_in: SignedIn) -> None:
    client = signed_in(root)
    of_tenant = client.get(reverse("admin:memory_tenant_set_up", args=[house.ada.tenant_id])).content.decode()
    of_agent = client.get(reverse("admin:memory_agent_set_up", args=[house.ada.pk])).content.decode()
    usual = limits.of(house.ada)
    assert set(usual) == set(LIMITS)
    for name, (what, told) in LIMITS.items():
        assert told.startswith(f"{usual[name]:,}"), "as a session takes it"
        assert f"{what}; empty: {told}" in of_tenant
        assert escape(f"{what}; empty: its tenant's limit, or else {told}") in of_agent
