"""A session over several batches: limits of the session, and the summaries of its batches."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from memory.consent import redaction, requests
from memory.models import Agent
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests.refining import Held, entries, fill, notice, opened
from tests.steps import ME, PERSON, fresh, remember

LATER = timedelta(hours=1)  # a lease is shorter


def in_batches(agent: Agent, batches: int, **changes: Any) -> Held:
    held = opened(agent, shown=False, **changes)
    held.knife.show(0, batches, entries(agent))
    return held


def test_the_last_batch_ends_it_with_all_summaries_together(ada: Agent) -> None:
    held = in_batches(ada, 3)
    result = held.knife.call("complete_refinement", {"summary": "Part\none."})
    assert (result.is_batch_done, result.is_over, held.row.outcome) == (True, False, Outcome.OPEN)
    for place, words in ((1, "Part two."), (2, "Part three.")):
        held.knife.show(place, 3, entries(ada))
        held.call("complete_refinement", summary=words)
    assert held.row.outcome == Outcome.COMPLETED
    assert notice(ada).endswith('removed 0. In your own words: "Part one. Part two. Part three."')


def test_summaries_wait_sealed(ada: Agent) -> None:
    """They are in the notice also if the session is abandoned."""
    held = in_batches(ada, 2)
    RefinementSession.objects.update(protected=1)  # without a change, there is no notice
    held.call("complete_refinement", summary="Zanzibar.")
    assert b"Zanzibar" not in bytes(held.row.summaries or b"")
    assert sessions.read_summaries(fresh(ada), held.row) == ["Zanzibar."]
    with time_machine.travel(timezone.now() + LATER):
        sessions.close_stale()
    assert notice(ada).endswith(' "Zanzibar."')


def test_summaries_that_sql_puts_back_after_a_redaction_are_lost(ada: Agent) -> None:
    remember(ada, "Zanzibar is an island.")
    held = in_batches(ada, 2)
    held.call("complete_refinement", summary="Zanzibar.")
    row = RefinementSession.objects.get()
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="request 17")
    redaction.redact(fresh(ada), request.number, ME)
    assert sessions.read_summaries(fresh(ada), row) == ["(The earlier summaries cannot be decrypted.)"]


def test_summaries_longer_than_a_memory_are_cut(ada: Agent) -> None:
    held = in_batches(ada, 9)
    for place in range(9):
        held.knife.show(place, 9, [])
        held.call("complete_refinement", summary="x" * 2_000)
        assert len(bytes(held.row.summaries or b"")) < 10_100
    assert held.row.outcome == Outcome.COMPLETED
    assert len(notice(ada)) == 10_000
    assert notice(ada).startswith("Refinement completed. Compressed")


@pytest.mark.parametrize("words", ["a\0b", "\ud800", " "], ids=ascii)
def test_after_a_summary_that_cannot_be_stored_a_session_can_be_closed(ada: Agent, words: str) -> None:
    held = in_batches(ada, 2)
    assert held.call("complete_refinement", summary=words)["code"] == "bad_arguments"
    held.call("complete_refinement", summary="Part one.")
    assert sessions.close(held.session, Outcome.COMPLETED).outcome == Outcome.COMPLETED


def test_limits_and_floor_apply_to_the_whole_session_not_to_a_batch(ada: Agent) -> None:
    made = fill(ada, 8, 20)
    held = in_batches(ada, 2)
    held.call("demote_memory", id=made[0])
    held.call("demote_memory", id=made[1])
    held.call("complete_refinement", summary="Part one.")
    held.knife.show(1, 2, entries(ada))
    assert held.call("demote_memory", id=made[2])["code"] == "floor"
    assert held.row.lost_tokens == 40


def test_changes_of_every_batch_count_together(ada: Agent) -> None:
    made = fill(ada, 20, 20)
    held = in_batches(ada, 2, max_changes=1)
    held.call("demote_memory", id=made[0])
    held.call("complete_refinement", summary="Part one.")
    held.knife.show(1, 2, entries(ada))
    assert held.call("demote_memory", id=made[1])["code"] == "limit"
