"""Rollbacks and redactions beside other writers in threads: one follows the other, and nothing is lost."""

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
from tests.fault.test_writers import assert_whole, at_once, outcomes
from tests.steps import ME, PERSON, fresh, remember

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def seq(agent: Agent) -> int:
    return int(fresh(agent).audit_seq)


def request_redaction(agent: Agent, numbers: list[int]) -> int:
    return removal_requests.ask_redaction(agent, numbers, PERSON, reason="a test").number


def test_one_of_three_rollbacks_of_an_entry_succeeds(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    operations.discard(ada, numbers, ME)
    what = What.entry(seq(ada))
    assert outcomes(*[lambda: roll_back(fresh(ada), what, PERSON)] * 3) == ["AlreadyUndone", "AlreadyUndone", "Figures"]
    assert steps.active(ada) == numbers
    assert_whole(ada)


def test_edits_during_a_rollback_are_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    start = seq(ada)
    operations.discard(ada, numbers[:100], ME)

    def edit() -> None:
        for n in range(10):
            operations.remember(fresh(ada), [Draft(f"new {n}")], ME)

    rolled, _ = at_once(lambda: roll_back(fresh(ada), What.since_entry(start), PERSON), edit)
    assert isinstance(rolled, Figures)
    assert set(numbers) <= set(steps.active(ada))
    assert 200 + 10 - len(steps.active(ada)) == rolled.discarded
    assert_whole(ada)


def test_a_rollback_during_a_session_makes_its_next_edits_stale(ada: Agent) -> None:
    remember(ada, "tea with milk and sugar", "coffee")
    operations.revise(ada, 1, ME, content="tea with milk")
    held = refining.opened(ada)
    roll_back(fresh(ada), What.entry(seq(ada) - 1), PERSON)
    assert held.call("update_memory", id=1, content="tea & milk")["code"] == "stale_memory"
    assert steps.says(ada, 1).content == "tea with milk and sugar"
    sessions.close(held.session, "completed")
    assert_whole(ada)


def test_an_open_session_is_not_rolled_back(ada: Agent) -> None:
    refining.fill(ada, 8, 20)
    held = refining.opened(ada)
    assert held.call("delete_memory", id=1)["ok"]
    with pytest.raises(errors.SessionRunning):
        roll_back(fresh(ada), What.session(held.session.number), PERSON)
    sessions.close(held.session, "completed")
    roll_back(fresh(ada), What.session(held.session.number), PERSON)
    assert steps.active(ada) == list(range(1, 9))
    assert_whole(ada)


def test_a_check_during_writes_finds_no_problem(ada: Agent) -> None:
    """It reads trail, memories and counters as of one moment."""
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))

    def write() -> None:
        for n in range(40):
            operations.revise(fresh(ada), numbers[n], ME, content=f"another fact {n}")
            if n == 20:
                redaction.redact(fresh(ada), request_redaction(ada, numbers[50:]), ME)

    def check() -> list[Problem]:
        return [problem for _ in range(25) for problem in replay.problems_of(ada.pk)]

    assert at_once(check, check, write) == [[], [], None]


def test_one_of_three_redactions_of_a_request_succeeds(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))
    request = request_redaction(ada, numbers)
    found = outcomes(*[lambda: redaction.redact(fresh(ada), request, ME)] * 3)
    assert found == ["Figures", "RequestNotFound", "RequestNotFound"]
    assert steps.active(ada) == []
    assert_whole(ada)


def test_edits_and_rollbacks_during_a_redaction_are_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))
    start = seq(ada)
    operations.discard(ada, numbers[50:], ME)
    request = request_redaction(ada, numbers[25:75])

    def edit() -> None:
        for number in range(20, 30):
            try:
                operations.revise(fresh(ada), number, ME, content=f"another fact {number}")
            except errors.Discarded:
                assert number > 25

    redact = lambda: redaction.redact(fresh(ada), request, ME)  # noqa: E731
    results = at_once(redact, lambda: roll_back(fresh(ada), What.since_entry(start), PERSON), edit)
    assert not any(isinstance(result, Exception) for result in results)
    redacted = Memory.objects.filter(agent_id=ada.pk, redacted_at__isnull=False)
    assert sorted(redacted.values_list("number", flat=True)) == numbers[25:75]
    assert not redacted.exclude(sealed=b"").exists()
    assert_whole(ada)
