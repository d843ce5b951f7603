"""What the admin shows of a refinement session: its figures, and whether it was rolled back."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEntry
from memory.admin.base.texts import time_machine_url
from memory.agents import lifecycle
from memory.models import Agent, Embedding
from memory.time_machine.rollback import What, roll_back
from refinement import loop
from refinement.models import RefinementSession
from tests import refining, steps
from tests.admin.actions import html, text_of
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, signed_update

LIST = "/admin/refinement/refinementsession/"


@pytest.fixture
def agents(house: House) -> House:
    """Both agents had five memories, two of them exact duplicates of another, and a session."""
    for agent in (house.ada, house.bob):
        steps.remember(agent, *[refining.filler(50, "same")] * 3, f"{MARKER} sails", f"{MARKER} paints")
        loop.refine(fresh(agent), trigger="manual")
    return house


def undo(agent: Agent, what: What) -> int:
    entry = roll_back(fresh(agent), what, steps.PERSON).entry
    assert entry is not None
    return entry


def session_page(agent: Agent) -> str:
    row = RefinementSession.objects.filter(agent=agent).latest("number")
    return reverse("admin:refinement_refinementsession_change", args=[row.pk])


def agent_page(agent: Agent) -> str:
    return reverse("admin:memory_agent_change", args=[agent.pk])


def test_the_figures_count_the_duplicates_removed_at_the_start(agents: House, enter: Enter) -> None:
    client, session = enter("auditor"), RefinementSession.objects.get(agent=agents.ada)
    assert session.repeated_tokens == 100
    assert "Repeated tokens 100" in text_of(client, session_page(agents.ada))
    assert "replaced by 1 " in text_of(client, session_page(agents.ada))
    assert " new journal memory 6 0 → " in text_of(client, session_page(agents.ada))
    RefinementSession.objects.update(target_tokens=session.tokens_after - 7)
    assert "It ended above its target by 7 tokens." in text_of(client, session_page(agents.ada))
    assert "above its target by 7 tokens" in text_of(client, LIST)
    line = f"UTC : {session.tokens_before:,} → {session.tokens_before - 100:,} tokens, completed"
    assert line in text_of(client, agent_page(agents.ada))


def test_an_agents_page_shows_how_it_is_searched(agents: House, enter: Enter) -> None:
    client = enter("auditor")
    assert "search by words language" in text_of(client, agent_page(agents.ada)).lower()
    lifecycle.change(fresh(agents.ada), ME, embedder="ollama/nomic")
    Embedding.objects.update(problem="The Ollama server did not answer in time.")
    text = text_of(client, agent_page(agents.ada))
    assert "by words, and by meaning with ollama/nomic: 0 memories; " in text
    assert " wait. The Ollama server did not answer in time." in text


def test_an_error_of_the_configuration_is_shown_in_words(agents: House, enter: Enter) -> None:
    client = enter("auditor")
    RefinementSession.objects.update(reason="model_not_configured", model="ollama/gpt")
    assert "server refused the key or the name of the model." in text_of(client, session_page(agents.ada))


def test_the_page_shows_the_problem_and_the_expected_and_actual_cost(
    agents: House, enter: Enter, settings: Any
) -> None:
    settings.MODEL_PRICES = {"openai/*": (2.0, 0.5, 8.0)}
    used = {"prompt_tokens": 2_000_000, "cached_tokens": 1_000_000, "completion_tokens": 10_000}
    RefinementSession.objects.update(reason="no_tool_call", problem=loop.NO_CALL, model="openai/gpt", **used)
    page = text_of(enter("auditor"), session_page(agents.ada))
    assert loop.NO_CALL in page
    assert re.search(r"Expected cost 2,\d+ prompt tokens, 170 completion tokens; 0.00\d\d ", page)
    assert "Price 2.5800" in page


@pytest.mark.parametrize("role", ["owner", "auditor", "superuser"])
def test_a_session_that_was_rolled_back_is_marked_on_every_page(role: str, agents: House, enter: Enter) -> None:
    client, pages = enter(role), (LIST, session_page(agents.ada), agent_page(agents.ada))
    other = undo(agents.bob, What("session", 1))  # in another tenant
    assert ("by entry" in text_of(client, LIST)) == (role == "superuser")
    undo(agents.bob, What("entry", other))
    assert not any("by entry" in text_of(client, page) for page in pages)
    entry = undo(agents.ada, What("session", 1))
    assert all(f"by entry {entry}" in text_of(client, page) for page in pages)
    undo(agents.ada, What("entry", entry))
    assert not any("by entry" in text_of(client, page) for page in pages)


def test_the_timeline_says_which_entries_were_rolled_back(agents: House, enter: Enter) -> None:
    page = session_page(agents.ada)
    changes = AuditEntry.objects.filter(agent_id=agents.ada.pk, session=1, changes__gt=0)
    seq = changes.earliest("seq").seq
    assert f"kind=session_from&amp;entry={seq}" in html(enter("owner").get(page))
    assert "session_from" not in html(enter("auditor").get(page))
    by = undo(agents.ada, What("session_from", seq))
    shown = text_of(enter("superuser"), page)
    assert f"entry {seq} rolled back by entry {by}" in shown
    assert "All entries were rolled back." in shown


def test_only_a_session_with_changes_in_force_can_be_rolled_back(agents: House, client: Client) -> None:
    def is_offered() -> bool:
        page, time_machine = text_of(client, session_page(agents.ada)), text_of(client, time_machine_url(agents.ada.pk))
        offered = "Roll back session" in page
        assert offered == ("Roll back session" in time_machine)
        return offered

    assert is_offered()
    entry = undo(agents.ada, What("session", 1))
    assert not is_offered()
    assert f"completed (undone by entry {entry} )" in text_of(client, time_machine_url(agents.ada.pk))
    undo(agents.ada, What("entry", entry))
    assert is_offered()
    loop.refine(fresh(agents.ada), trigger="manual")
    session = RefinementSession.objects.filter(agent=agents.ada).latest("number")
    assert (session.changes, session.duplicates_removed) == (0, 0)
    assert "Roll back session" not in text_of(client, session_page(agents.ada)), "it changed nothing"


def test_the_list_takes_one_more_query_to_mark_rollbacks(
    agents: House, client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(1, 30):
        loop.refine(fresh(agents.ada), trigger="manual")
        if number % 3 == 0:
            undo(agents.ada, What("session", number))
    with django_assert_max_num_queries(12) as captured:
        text = text_of(client, LIST)
    assert text.count("by entry") == 9
    assert sum('FROM "audit_auditentry"' in query["sql"] for query in captured) == 1


def test_the_agents_page_shows_a_cool_down_and_a_retry(house: House, client: Client) -> None:
    ada, later = house.ada, timezone.now() + timedelta(hours=5)
    steps.remember(ada, refining.filler(50, "tea"))
    heavy = fresh(ada).core_tokens
    over = {"target_tokens": 1, "budget_tokens": heavy - 1, "quiet_until": later, "quiet_below_tokens": 1_485}
    over |= {"due_at": later, "due_reason": "over_budget"}
    failed = over | {"quiet_below_tokens": None, "failures_in_a_row": 2, "due_reason": "retry"}
    cool_down = f"over budget; next refinement at {later:%Y-%m-%d %H:%M} UTC , or when core memory reaches 1,485 tokens"
    retry = f"not due: retry at {later:%Y-%m-%d %H:%M} UTC"
    for values, text in (
        (over, cool_down),
        (failed, retry),
        (over | {"due_at": timezone.now() - timedelta(hours=1)}, "Next refinement over budget"),
        (over | {"budget_tokens": heavy, "due_reason": "weekly"}, ""),
        (over | {"paused": True}, ""),
        (failed | {"memory_enabled": False}, ""),
    ):
        fields = {"failures_in_a_row": 0, "paused": False, "memory_enabled": True} | values
        signed_update(Agent.objects.filter(pk=ada.pk), **fields)
        page = text_of(client, agent_page(ada))
        assert text in page, text
        assert (cool_down in page, retry in page) == (text == cool_down, text == retry)
