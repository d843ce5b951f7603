"""What somebody proposed they take back themselves; nobody accepts it then, by whatever road."""

from __future__ import annotations

import pytest
from django.urls import reverse

from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import links, proposals
from memory.errors import NotOpen
from memory.models import Agent, Person
from tests.admin.acting import confirm, post, said
from tests.admin.conftest import Enter
from tests.api.calling import Caller
from tests.conftest import House
from tests.steps import ME, fresh, last_entry, problems

Staff = dict[str, Person]
BUTTON = 'name="action" value="withdraw_proposal"'


@pytest.fixture
def asked(ada: Agent, staff: Staff) -> Agent:
    """An agent with a steward, to whose side its admin has proposed another model."""
    lifecycle.change(ada, ME, steward="stew@else.test")
    proposals.propose(fresh(ada), Actor.person(staff["admin"].email), model="openai/gpt")
    return fresh(ada)


def number(agent: Agent) -> int:
    proposal = proposals.open_one(fresh(agent))
    assert proposal is not None
    return proposal.number


def test_who_proposed_it_takes_it_back_and_nobody_accepts_it_any_more(
    asked: Agent, house: House, staff: Staff, enter: Enter
) -> None:
    client, proposed, token = enter("admin"), number(asked), links.make(asked, number(asked))
    shown = post(client, "withdraw_proposal", asked, from_row="1").content.decode()
    assert "Withdraws 1 proposal" in shown
    assert "acme/ada: its model: openai/gpt." in shown
    assert number(asked) == proposed, "shown, not done"
    done = confirm(client, "withdraw_proposal", asked, from_row="1")
    assert said(done) == f"agent acme/ada: proposal {proposed} withdrawn."
    entry = last_entry(asked)
    assert (entry.operation, entry.actor_kind, entry.actor_label) == ("change_declined", "person", staff["admin"].email)
    with pytest.raises(NotOpen):
        links.decide(token, approve=True)
    assert "The proposer withdrew this proposal" in client.get(reverse("consent", args=[token])).content.decode()
    over_the_api = Caller(house.ada_key).post(f"proposals/{proposed}/accept")
    assert (over_the_api.status, over_the_api.codes) == (409, ["not_open"])
    assert fresh(asked).model == "builtin/dedupe"
    assert problems(asked) == []


def test_its_button_is_there_while_it_is_open(asked: Agent, enter: Enter) -> None:
    client, page = enter("admin"), reverse("admin:memory_agent_change", args=[asked.pk])
    assert BUTTON in client.get(page).content.decode()
    proposals.accept(asked, number(asked), ME)
    assert BUTTON not in client.get(page).content.decode()
    seq = fresh(asked).audit_seq
    late = confirm(client, "withdraw_proposal", asked, from_row="1")
    assert "The agent has no open proposal" in said(late)
    assert (fresh(asked).audit_seq, fresh(asked).model) == (seq, "openai/gpt")
