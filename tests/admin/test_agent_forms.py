"""Forms that make or change an agent: what they say before they are filled in, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from audit.models import AuditEntry, Operation
from memory.models import Agent, Person
from tests.admin.test_configuring import NEW_AGENT, SETTINGS, new_agent, page
from tests.conftest import House
from tests.steps import fresh

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
    assert "Have the operator set EMAIL_URL, as to smtp+tls://" in answer.content.decode()
    assert not AuditEntry.objects.filter(operation=Operation.CHANGE_PROPOSED).exists()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"model": "builtin/nothing"}, "The only built-in model is builtin/dedupe."),
        ({"model": "nobody/knows"}, "openai, anthropic, ollama, builtin"),
        ({"language": "klingon"}, "Must be one of: arabic, "),
        ({"budget_tokens": "0", "target_tokens": "1"}, "greater than or equal to 1"),
        ({"target_tokens": "0"}, "greater than or equal to 1"),
    ],
)
def test_what_no_agent_can_have_is_refused_at_its_field(
    wrong: dict[str, str], told: str, staff: Staff, house: House, signed_in: SignedIn
) -> None:
    answer = signed_in(staff["owner"]).post(NEW_AGENT, new_agent(house) | wrong)
    assert told in " ".join(answer.context["form"].errors[next(iter(wrong))])
    assert Agent.objects.count() == 2


def test_nor_is_it_proposed_or_set(staff: Staff, ada: Agent, signed_in: SignedIn) -> None:
    client, seq = signed_in(staff["owner"]), fresh(ada).audit_seq
    answer = client.post(page(ada, "propose"), {"model": "builtin/nothing"})
    assert "The only built-in model is builtin/dedupe." in " ".join(answer.context["form"].errors["model"])
    for name in ("budget_tokens", "target_tokens"):
        answer = client.post(page(ada, "set_up"), SETTINGS | {name: "0"})
        assert list(answer.context["form"].errors) == [name]
    assert fresh(ada).audit_seq == seq


def test_the_languages_there_are_can_be_chosen(staff: Staff, house: House, signed_in: SignedIn) -> None:
    client = signed_in(staff["owner"])
    shown = client.get(NEW_AGENT).content.decode()
    for name in ("german", "other"):
        assert f'<option value="{name}">' in shown
        assert client.post(NEW_AGENT, new_agent(house, agent=name, language=name)).status_code == 200
        assert Agent.objects.get(slug=name).language == name
