"""A grant's token: it proves one grant, in force, of one person, to one agent; and nothing else proves it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import assume, given
from hypothesis import strategies as st

from audit.consent import Person as Asking
from audit.models import AccessRequest
from audit.trail import Actor
from config import keyfiles
from memory import errors
from memory.consent import grant_tokens, grants
from memory.models import Agent, Membership, Person
from tests import steps
from tests.admin.reading import asked, asking, granted
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh

WRITTEN = "palg_0123456789abcdef"  # the characters there are in one


@pytest.fixture
def pat(ada: Agent) -> Person:
    person = Person.objects.create_user("pat@acme.test", None)
    Membership.objects.create(person=person, tenant=ada.tenant, role="auditor")
    steps.remember(ada, f"{MARKER} tea")
    return person


def token_of(agent: Agent, number: int, person: Person) -> str:
    return grant_tokens.make(fresh(agent), number, asking(person))


def rejected(agent: Agent, token: str) -> None:
    before = steps.state(agent)
    with pytest.raises(errors.KeyRejected) as refused:
        grant_tokens.proven(fresh(agent), token)
    assert str(refused.value) == "The token does not belong to an active grant for this agent."
    assert refused.value.__cause__ is None
    assert steps.state(agent) == before


def test_it_proves_the_grant_and_whose_it_is(ada: Agent, pat: Person) -> None:
    number = granted(ada, pat)
    standing, person = grant_tokens.proven(fresh(ada), token_of(ada, number, pat))
    assert (standing.number, person) == (number, asking(pat))


def test_it_is_stored_nowhere_and_always_the_same(ada: Agent, pat: Person) -> None:
    number = granted(ada, pat)
    before = steps.state(ada)
    token = token_of(ada, number, pat)
    assert token == token_of(ada, number, pat)
    assert steps.state(ada) == before
    assert token[-20:] not in f"{list(AccessRequest.objects.values())}"


def test_it_is_made_for_who_holds_a_grant_in_force_alone(ada: Agent, pat: Person) -> None:
    number = asked(ada, pat)
    with pytest.raises(errors.NotGranted):
        token_of(ada, number, pat)
    grants.approve(fresh(ada), number, ME)
    for other in (Asking(pat.pk + 1, pat.email), Asking(pat.pk, "eve@acme.test")):
        with pytest.raises(errors.NotGranted):
            grant_tokens.make(fresh(ada), number, other)


@given(place=st.integers(0, 200), other=st.sampled_from([*WRITTEN, "A", "x", " ", "\n", "é", "٣"]))
def test_with_any_character_changed_it_proves_nothing(place: int, other: str, ada: Agent, pat: Person) -> None:
    found = AccessRequest.objects.filter(agent_id=ada.pk).first()
    token = token_of(ada, found.number if found else granted(ada, pat), pat)
    place %= len(token)
    assume(token[place] != other)
    rejected(ada, token[:place] + other + token[place + 1 :])


@given(text=st.text(max_size=100) | st.from_regex(r"palg_[1-9]\d{0,17}_[1-9]\d{0,17}_[0-9a-f]{64}", fullmatch=True))
def test_whatever_else_is_given_proves_nothing(text: str, ada: Agent, pat: Person) -> None:
    rejected(ada, text)


@pytest.mark.parametrize(
    "form",
    ["", " {0}", "{0} ", "{0}\n", "{0}0", "{0}\udc80", "{1}", "palg_{2}_{3}_", "palg_0{2}_{3}_{4}", "PALG_{2}_{3}_{4}"],
)
def test_other_forms_prove_nothing(form: str, ada: Agent, pat: Person) -> None:
    token = token_of(ada, granted(ada, pat), pat)
    _, agent_id, number, mac = token.split("_")
    rejected(ada, form.format(token, token[:-1], agent_id, number, mac))


def test_it_proves_no_other_grant_of_the_same_person(ada: Agent, bob: Agent, pat: Person) -> None:
    number, other = granted(ada, pat), granted(ada, pat)
    token = token_of(ada, number, pat)
    rejected(ada, token.replace(f"_{number}_", f"_{other}_"))
    rejected(bob, token)
    rejected(bob, token.replace(f"_{ada.pk}_", f"_{bob.pk}_"))


def test_it_proves_no_grant_of_somebody_else(ada: Agent, pat: Person) -> None:
    eve = Person.objects.create_user("eve@acme.test", None)
    Membership.objects.create(person=eve, tenant=ada.tenant, role="auditor")
    number, other = granted(ada, pat), granted(ada, eve)
    macs = [token_of(ada, *whose).rpartition("_")[2] for whose in ((number, pat), (other, eve))]
    rejected(ada, f"palg_{ada.pk}_{number}_{macs[1]}")
    rejected(ada, f"palg_{ada.pk}_{other}_{macs[0]}")


@pytest.mark.parametrize("how", ["revoked", "expired", "password", "left", "inactive", "address", "denied"])
def test_it_ends_with_the_grant(how: str, ada: Agent, pat: Person, time_machine: Any) -> None:
    number = granted(ada, pat, seconds=900)
    token = token_of(ada, number, pat)
    if how == "revoked":
        grants.revoke(fresh(ada), number, Actor.person(pat.email))
    elif how == "expired":
        time_machine.move_to(timezone.now() + timedelta(seconds=901))
        with pytest.raises(errors.KeyRejected):  # which is the first to be told, and has it written down
            grant_tokens.proven(fresh(ada), token)
    elif how == "password":
        grants.withdraw_all(pat.pk, "password")
    elif how == "left":
        Membership.objects.filter(person=pat).delete()
    elif how == "denied":  # it would be of a grant that never was
        number = asked(ada, pat)
        grants.deny(fresh(ada), number, ME)
        token = token.replace(token.split("_")[2], str(number), 1)
    else:
        change = {"inactive": {"is_active": False}, "address": {"email": "new@acme.test"}}[how]
        Person.objects.filter(pk=pat.pk).update(**change)
    rejected(ada, token)


def test_a_new_pepper_ends_no_token_that_is_out(ada: Agent, pat: Person, settings: Any) -> None:
    old, new, other = (keyfiles.new_key() for _ in range(3))
    settings.PEPPER_KEY = old
    token = token_of(ada, granted(ada, pat), pat)
    settings.PEPPER_KEY = f"{new},{old}"
    assert grant_tokens.proven(fresh(ada), token)[1] == asking(pat)
    settings.PEPPER_KEY = f"{new},{other}"
    rejected(ada, token)


def test_of_an_erased_silo_it_says_so(ada: Agent, pat: Person) -> None:
    token = token_of(ada, granted(ada, pat), pat)
    Agent.objects.filter(pk=ada.pk).update(wrapped_key=b"")
    with pytest.raises(errors.Erased):
        grant_tokens.proven(fresh(ada), token)
