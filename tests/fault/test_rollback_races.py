"""Rollbacks and redactions beside other writers, in threads of their own: one after the other, and nothing lost."""

from __future__ import annotations

import pytest

from audit.verify import Problem
from memory import errors
from memory.consent import redaction, removal_requests
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.time_machine import replay
from memory.time_machine.rollback import Figures, What, roll_back
from memory.writing import operations
from refinement import session as sessions
from tests import refining, steps
from tests.fault.test_writers import at_once, whole
from tests.steps import ME, PERSON, fresh, remember

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def seq(agent: Agent) -> int:
    return int(fresh(agent).audit_seq)


def test_of_two_rollbacks_of_one_entry_one_goes_through(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    operations.discard(ada, numbers, ME)
    what = What.entry(seq(ada))
    outcomes = at_once(*[lambda: roll_back(fresh(ada), what, PERSON)] * 3)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyUndone", "AlreadyUndone", "Figures"]
    assert steps.active(ada) == numbers
    whole(ada)


def test_edits_during_a_rollback_come_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    start = seq(ada)
    operations.discard(ada, numbers[:100], ME)

    def edits() -> int:
        for n in range(10):
            operations.remember(fresh(ada), [Draft(f"new {n}")], ME)
        return 10

    rolled, _ = at_once(lambda: roll_back(fresh(ada), What.since_entry(start), PERSON), edits)
    assert isinstance(rolled, Figures)
    assert set(numbers) <= set(steps.active(ada))
    discarded_new = 10 - (len(steps.active(ada)) - 200)
    assert discarded_new == rolled.discarded
    whole(ada)


def test_a_rollback_during_a_session_makes_its_next_edits_stale(ada: Agent) -> None:
    remember(ada, "tea with milk and sugar", "coffee")
    operations.revise(ada, 1, ME, content="tea with milk")
    held = refining.opened(ada)
    roll_back(fresh(ada), What.entry(seq(ada) - 1), PERSON)
    answer = held.call("update_memory", id=1, content="tea & milk")
    assert answer["code"] == "stale_memory"
    assert steps.says(ada, 1).content == "tea with milk and sugar"
    sessions.close(held.session, "completed")
    whole(ada)


def test_a_session_is_not_rolled_back_while_it_goes_on(ada: Agent) -> None:
    refining.fill(ada, 8, 20)
    held = refining.opened(ada)
    assert held.call("delete_memory", id=1)["ok"]
    with pytest.raises(errors.SessionRunning):
        roll_back(fresh(ada), What.session(held.session.number), PERSON)
    sessions.close(held.session, "completed")
    roll_back(fresh(ada), What.session(held.session.number), PERSON)
    assert steps.active(ada) == list(range(1, 9))
    whole(ada)


def test_verifying_while_others_write_finds_nothing(ada: Agent) -> None:
    """Trail, memories and counters are read as they stood at one moment."""
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))

    def writes() -> None:
        for n in range(40):
            operations.revise(fresh(ada), numbers[n], ME, content=f"another fact {n}")
            if n == 20:
                asked = removal_requests.ask_redaction(ada, numbers[50:], PERSON, reason="asked").number
                redaction.redact(fresh(ada), asked, ME)

    def verifies() -> list[Problem]:
        return [problem for _ in range(25) for problem in replay.problems_of(ada.pk)]

    first, second, wrote = at_once(verifies, verifies, writes)
    assert (first, second, wrote) == ([], [], None)


def test_of_two_redactions_by_one_request_one_goes_through(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))
    asked = removal_requests.ask_redaction(ada, numbers, PERSON, reason="asked").number
    outcomes = at_once(*[lambda: redaction.redact(fresh(ada), asked, ME)] * 3)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Figures", "RequestNotFound", "RequestNotFound"]
    assert steps.active(ada) == []
    whole(ada)


def test_edits_and_rollbacks_during_a_redaction_come_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))
    start = seq(ada)
    operations.discard(ada, numbers[50:], ME)
    asked = removal_requests.ask_redaction(ada, numbers[25:75], PERSON, reason="asked").number

    def edits() -> None:
        for number in range(20, 30):
            try:
                operations.revise(fresh(ada), number, ME, content=f"another fact {number}")
            except errors.Discarded:
                assert number > 25

    redacted, rolled, edited = at_once(
        lambda: redaction.redact(fresh(ada), asked, ME),
        lambda: roll_back(fresh(ada), What.since_entry(start), PERSON),
        edits,
    )
    assert not any(isinstance(outcome, Exception) for outcome in (redacted, rolled, edited))
    gone = Memory.objects.filter(agent_id=ada.pk, redacted_at__isnull=False)
    assert sorted(gone.values_list("number", flat=True)) == numbers[25:75]
    assert not gone.exclude(sealed=b"").exists()
    whole(ada)
