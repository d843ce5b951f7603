"""What the admin says of a session: what it began with, what it saved, and whether it was rolled back."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import localize

from memory.admin.base.page import time_machine_url
from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from refinement import loop
from refinement.models import RefinementSession
from tests import refining, steps
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import fresh

LIST = "/admin/refinement/refinementsession/"


@pytest.fixture
def lived(house: House) -> House:
    """Both had five memories, two of them exact duplicates of another, and a session."""
    for agent in (house.ada, house.bob):
        steps.remember(agent, *[refining.filler(50, "same")] * 3, f"{MARKER} sails", f"{MARKER} paints")
        loop.refine(fresh(agent), trigger="manual")
    return house


def undo(agent: Agent, what: What) -> int:
    entry = roll_back(fresh(agent), what, steps.PERSON).entry
    assert entry is not None
    return entry


def page(agent: Agent) -> str:
    row = RefinementSession.objects.filter(agent=agent).latest("number")
    return reverse("admin:refinement_refinementsession_change", args=[row.pk])


def read(client: Client, address: str) -> str:
    """A page's words, without its marks."""
    answer = client.get(address)
    assert answer.status_code == 200
    text = answer.content.decode()
    assert MARKER not in text
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def agents_page(agent: Agent) -> str:
    return reverse("admin:memory_agent_change", args=[agent.pk])


def test_its_figures_count_the_duplicates_it_began_with_removing(lived: House, enter: Enter) -> None:
    client = enter("auditor")
    session = RefinementSession.objects.get(agent=lived.ada)
    assert session.repeated_tokens == 100
    assert "Repeated tokens 100" in read(client, page(lived.ada))
    told = f"session 1 : {session.tokens_before:,} → {session.tokens_before - 100:,} tokens, completed"
    assert told in read(client, agents_page(lived.ada))


@pytest.mark.parametrize("role", ["owner", "auditor", "superuser"])
def test_one_that_was_rolled_back_is_marked_wherever_it_is_told_of(role: str, lived: House, enter: Enter) -> None:
    client = enter(role)
    places = (LIST, page(lived.ada), agents_page(lived.ada))
    assert not any("by entry" in read(client, place) for place in places)
    entry = undo(lived.ada, What.session(1))
    for place in places:
        assert f"by entry {entry}" in read(client, place), place
    again = undo(lived.ada, What.entry(entry))
    for place in places:
        assert "by entry" not in read(client, place), (place, again)


def test_another_tenants_rollback_marks_nothing(lived: House, enter: Enter) -> None:
    undo(lived.bob, What.session(1))
    assert "by entry" not in read(enter("owner"), LIST)
    assert "by entry" in read(enter("superuser"), LIST)


def test_only_what_can_be_taken_back_is_offered_to_be(lived: House, client: Client) -> None:
    assert "Roll back session" in read(client, page(lived.ada))
    entry = undo(lived.ada, What.session(1))
    assert "Roll back session" not in read(client, page(lived.ada))
    undo(lived.ada, What.entry(entry))
    assert "Roll back session" in read(client, page(lived.ada))
    loop.refine(fresh(lived.ada), trigger="manual")
    session = RefinementSession.objects.filter(agent=lived.ada).latest("number")
    assert (session.changes, session.duplicates_removed) == (0, 0)
    assert "Roll back session" not in read(client, page(lived.ada)), "it changed nothing"


def test_the_time_machine_offers_no_session_twice(lived: House, enter: Enter) -> None:
    client, place = enter("owner"), time_machine_url(lived.ada.pk)
    assert "Roll back session 1" in read(client, place)
    entry = undo(lived.ada, What.session(1))
    told = read(client, place)
    assert f"completed (undone by entry {entry})" in told
    assert "Roll back session 1" not in told


def test_a_list_takes_one_query_more_for_what_was_rolled_back(
    lived: House, client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(1, 30):
        loop.refine(fresh(lived.ada), trigger="manual")
        if number % 3 == 0:
            undo(lived.ada, What.session(number))
    with django_assert_max_num_queries(12) as captured:
        told = read(client, LIST)
    assert told.count("by entry") == 9
    assert sum('FROM "audit_auditentry"' in query["sql"] for query in captured) == 1


def test_an_agents_page_says_until_when_it_is_left_alone(house: House, enter: Enter) -> None:
    client, ada, later = enter("owner"), house.ada, timezone.now() + timedelta(hours=5)
    steps.remember(ada, refining.filler(50, "tea"))
    heavy = fresh(ada).core_tokens
    over = {
        "target_tokens": 1,
        "budget_tokens": heavy - 1,
        "quiet_until": later,
        "quiet_below_tokens": 1_485,
        "due_at": later,
    }
    over |= {"due_reason": "over_budget"}
    alone = f"over budget; next refinement at {localize(later)}, or when core memory reaches 1,485 tokens"
    after = f"not due: retry at {localize(later)}"
    trouble = {"quiet_below_tokens": None, "failures_in_a_row": 2, "due_reason": "retry"}
    earlier = timezone.now() - timedelta(hours=1)
    for values, told in (
        (over, alone),
        (over | trouble, after),
        (over | {"due_at": earlier}, "Due over budget"),
        (over | {"budget_tokens": heavy, "due_reason": "weekly"}, ""),
        (over | {"paused": True}, ""),
        (over | trouble | {"memory_enabled": False}, ""),
    ):
        fields = {"failures_in_a_row": 0, "paused": False, "memory_enabled": True} | values
        Agent.objects.filter(pk=ada.pk).update(**fields)
        shown = read(client, agents_page(ada))
        assert told in shown, told
        assert (alone in shown, after in shown) == (told == alone, told == after)
