"""Forms that make or change an agent: what they say before they are filled in, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from audit.models import AuditEntry, Operation
from memory.models import Agent, Person
from tests.admin.test_configuring import NEW_AGENT, page
from tests.conftest import House

pytestmark = pytest.mark.django_db

SignedIn = Callable[[Person], Client]
Staff = dict[str, Person]


def test_that_a_steward_cannot_be_asked_is_told_before_the_form_is_filled_in(
    staff: Staff, house: House, signed_in: SignedIn, settings: Any
) -> None:
    client, addresses = signed_in(staff["owner"]), [page(house.ada, "propose"), NEW_AGENT]
    assert not any("EMAIL_URL" in client.get(address).content.decode() for address in addresses)
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert all("while an agent has a steward" in client.get(address).content.decode() for address in addresses)
    Agent.objects.filter(pk=house.ada.pk).update(steward="stew@else.test")
    assert "As things are, this will be refused." in client.get(page(house.ada, "propose")).content.decode()
    answer = client.post(page(house.ada, "propose"), {"model": "openai/gpt"})
    assert "Have the operator set EMAIL_URL" in answer.content.decode()
    assert not AuditEntry.objects.filter(operation=Operation.CHANGE_PROPOSED).exists()
