"""The token of a grant: it proves one active grant, of one person, to one agent."""

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
from memory.consent import approval, grants, requests, withdrawals
from memory.models import Agent, Membership, Person
from tests.admin.reading import asked, asking, granted
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, remember, signed_update, state

CHARACTERS = "palg_0123456789abcdef"  # of a token


def auditor(agent: Agent, email: str) -> Person:
    person = Person.objects.create_user(email, None)
    join(person=person, tenant=agent.tenant, role="auditor")
    return person


@pytest.fixture
def pat(ada: Agent) -> Person:
    remember(ada, f"{MARKER} tea")
    return auditor(ada, "pat@acme.test")


def token_of(agent: Agent, number: int, person: Person) -> str:
    return grants.make_token(fresh(agent), number, asking(person))


def is_rejected(agent: Agent, token: str) -> bool:
    before = state(agent)
    with pytest.raises(errors.KeyRejected) as refused:
        grants.prove_token(fresh(agent), token)
    assert str(refused.value) == "The token does not belong to an active grant for this agent."
    assert refused.value.__cause__ is None
    return state(agent) == before


def test_a_token_proves_its_grant_and_is_not_stored(ada: Agent, pat: Person) -> None:
    number = granted(ada, pat)
    before = state(ada)
    token = token_of(ada, number, pat)
    assert (token_of(ada, number, pat), state(ada)) == (token, before)
    assert token[-20:] not in f"{list(AccessRequest.objects.values())}"
    standing, person = grants.prove_token(fresh(ada), token)
    assert (standing.number, person) == (number, asking(pat))


def test_only_the_holder_of_a_grant_in_force_gets_a_token(ada: Agent, pat: Person) -> None:
    number = asked(ada, pat)
    with pytest.raises(errors.NotGranted):
        token_of(ada, number, pat)
    approval.approve(fresh(ada), number, ME)
    for other in (Asking(pat.pk + 1, pat.email), Asking(pat.pk, "eve@acme.test")):
        with pytest.raises(errors.NotGranted):
            grants.make_token(fresh(ada), number, other)


@given(place=st.integers(0, 200), other=st.sampled_from([*CHARACTERS, "A", "x", " ", "\n", "é", "٣"]))
def test_a_token_with_any_character_changed_is_rejected(place: int, other: str, ada: Agent, pat: Person) -> None:
    found = AccessRequest.objects.filter(agent_id=ada.pk).first()
    token = token_of(ada, found.number if found else granted(ada, pat), pat)
    place %= len(token)
    assume(token[place] != other)
    assert is_rejected(ada, token[:place] + other + token[place + 1 :])


@given(text=st.text(max_size=100) | st.from_regex(r"palg_[1-9]\d{0,17}_[1-9]\d{0,17}_[0-9a-f]{64}", fullmatch=True))
def test_any_other_text_is_rejected(text: str, ada: Agent, pat: Person) -> None:
    assert is_rejected(ada, text)


def test_other_forms_of_a_token_are_rejected(ada: Agent, pat: Person) -> None:
    token = token_of(ada, granted(ada, pat), pat)
    _, agent_id, number, mac = token.split("_")
    forms = ["", " {0}", "{0} ", "{0}\n", "{0}0", "{0}\udc80", "{1}", "palg_{2}_{3}_", "palg_0{2}_{3}_{4}"]
    for form in [*forms, "PALG_{2}_{3}_{4}"]:
        assert is_rejected(ada, form.format(token, token[:-1], agent_id, number, mac))


def test_a_token_proves_no_other_grant(ada: Agent, bob: Agent, pat: Person) -> None:
    number, second = granted(ada, pat), granted(ada, pat)
    token = token_of(ada, number, pat)
    assert is_rejected(ada, token.replace(f"_{number}_", f"_{second}_"))
    assert is_rejected(bob, token)
    assert is_rejected(bob, token.replace(f"_{ada.pk}_", f"_{bob.pk}_"))
    eve = auditor(ada, "eve@acme.test")
    hers = granted(ada, eve)
    macs = [token_of(ada, *holder).rpartition("_")[2] for holder in ((number, pat), (hers, eve))]
    assert is_rejected(ada, f"palg_{ada.pk}_{number}_{macs[1]}")
    assert is_rejected(ada, f"palg_{ada.pk}_{hers}_{macs[0]}")


@pytest.mark.parametrize("how", ["revoked", "expired", "password", "left", "inactive", "address", "denied"])
def test_a_token_ends_with_its_grant(how: str, ada: Agent, pat: Person, time_machine: Any) -> None:
    number = granted(ada, pat, seconds=900)
    token = token_of(ada, number, pat)
    if how == "revoked":
        requests.revoke(fresh(ada), number, Actor.person(pat.email))
    elif how == "expired":
        time_machine.move_to(timezone.now() + timedelta(seconds=901))
        with pytest.raises(errors.KeyRejected):  # the first use after the end records the end
            grants.prove_token(fresh(ada), token)
    elif how == "password":
        withdrawals.withdraw_all(pat.pk, "password")
    elif how == "left":
        Membership.objects.filter(person=pat).delete()
    elif how == "denied":  # a forged token of a denied request
        number = asked(ada, pat)
        requests.deny(fresh(ada), number, ME)
        token = token.replace(token.split("_")[2], str(number), 1)
    else:
        change = {"inactive": {"is_active": False}, "address": {"email": "new@acme.test"}}[how]
        Person.objects.filter(pk=pat.pk).update(**change)
    assert is_rejected(ada, token)


def test_a_token_works_until_its_pepper_is_removed(ada: Agent, pat: Person, settings: Any) -> None:
    old, new, other = (keyfiles.new_key() for _ in range(3))
    settings.PEPPER_KEY = old
    pat.sign()
    join(pat, ada.tenant, "auditor")
    token = token_of(ada, granted(ada, pat), pat)
    settings.PEPPER_KEY = f"{new},{old}"
    assert grants.prove_token(fresh(ada), token)[1] == asking(pat)
    settings.PEPPER_KEY = f"{new},{other}"
    assert is_rejected(ada, token)


def test_a_token_for_an_erased_silo_is_refused_as_erased(ada: Agent, pat: Person) -> None:
    token = token_of(ada, granted(ada, pat), pat)
    signed_update(Agent.objects.filter(pk=ada.pk), wrapped_key=b"")
    with pytest.raises(errors.Erased):
        grants.prove_token(fresh(ada), token)
