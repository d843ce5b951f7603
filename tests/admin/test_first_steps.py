"""What who is new is told: what comes next, and what to do where there is nothing yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import reverse
from django.utils.html import escape

from memory.admin.base.help_texts import EMPTY_TEXTS, LIMITS
from memory.models import Invitation, Person, Tenant
from refinement import limits
from tests.admin.conftest import Enter, enrolled
from tests.conftest import House

SignedIn = Callable[[Person], Client]


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
    assert "Invite its first owner and add its first agent." in made
    invite = f"{reverse('admin:memory_membership_invite')}?tenant={acme.pk}"
    add = f"{reverse('admin:memory_agent_add_agent')}?tenant={acme.pk}"
    for address in (invite, add):
        assert f'href="{address}"' in made
        assert f'<option value="{acme.pk}" selected>' in client.get(address).content.decode()
    assert client.post(invite, {"tenant": str(acme.pk), "address": "o@acme.test", "role": "owner"}).status_code == 200
    assert Invitation.objects.get().tenant == acme


def test_a_form_about_no_tenant_begins_with_none(root: Person, house: House, signed_in: SignedIn) -> None:
    client = signed_in(root)
    for about, name in itertools.product(("x", "\0", "9" * 40, "-1", ""), ("membership_invite", "agent_add_agent")):
        answer = client.get(reverse(f"admin:memory_{name}"), {"tenant": about})
        assert answer.status_code == 200
        assert f'<option value="{house.ada.tenant_id}" selected>' not in answer.content.decode()


def test_nobody_is_offered_a_tenant_by_its_number(house: House, enter: Enter) -> None:
    address = f"{reverse('admin:memory_agent_add_agent')}?tenant={house.bob.tenant_id}"
    page = enter("owner").get(address).content.decode()
    assert f'<option value="{house.bob.tenant_id}"' not in page
    assert "globex" not in page


def test_every_list_has_its_words() -> None:
    reverse("admin:index")  # which registers the pages
    assert {model._meta.model_name for model in site._registry} == set(EMPTY_TEXTS)


def test_a_service_without_tenants_says_so_in_their_list(root: Person, signed_in: SignedIn) -> None:
    assert EMPTY_TEXTS["tenant"] in signed_in(root).get(a_list("tenant")).content.decode()


def test_what_an_empty_limit_means_is_told_with_its_number(house: House, root: Person, signed_in: SignedIn) -> None:
    client = signed_in(root)
    of_tenant = client.get(reverse("admin:memory_tenant_change_settings", args=[house.ada.tenant_id])).content.decode()
    of_agent = client.get(reverse("admin:memory_agent_change_settings", args=[house.ada.pk])).content.decode()
    usual = limits.of(house.ada)
    assert set(usual) == set(LIMITS)
    for name, (what, told) in LIMITS.items():
        assert told.startswith(f"{usual[name]:,}"), "as a session takes it"
        assert f"{what}; empty: {told}" in of_tenant
        assert escape(f"{what}; empty: the tenant's limit, or else {told}") in of_agent
