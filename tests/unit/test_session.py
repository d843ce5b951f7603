"""A session: opening, lease, ending, and its notice."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
import time_machine
from django.db import IntegrityError, InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from audit.models import AuditEntry, Operation
from config.queue import Stopped
from memory.models import Agent, Memory
from memory.time_machine.rollback import What, roll_back
from refinement import loop, schedule
from refinement import session as sessions
from refinement.errors import SessionEnded
from refinement.models import Mode, Outcome, RefinementSession
from tests.privacy import logbook
from tests.refining import change, everything, fill, filler, notice, opened, protected, sound, untouched
from tests.steps import PERSON, entries, fresh, last_entry, remember, row, says

pytestmark = pytest.mark.database

LATER = timedelta(hours=1)  # a lease is shorter
ENDINGS = [
    (Outcome.COMPLETED, "", "Refinement completed."),
    (Outcome.INCOMPLETE, "aborted", "Refinement ended early (aborted)."),
    (Outcome.FAILED, "model_unavailable", "Refinement failed (model unavailable)."),
    (Outcome.ABANDONED, "lease_expired", "Refinement was abandoned (lease expired)."),
]


def test_limits_are_frozen_when_a_session_opens_and_are_in_the_trail(ada: Agent) -> None:
    fill(ada, 4, 100)
    held = opened(ada, mode=Mode.DEDUPE_ONLY, budget_tokens=900, target_tokens=200, max_steps=3)
    entry = last_entry(ada)
    assert (entry.operation, entry.actor_kind, entry.session) == (Operation.SESSION_OPENED, "system", 1)
    terms = {"mode": "dedupe_only", "driver": "server", "trigger": "manual", "model": "builtin/dedupe"}
    assert entry.detail == terms | {"tokens": 400, "repeated_tokens": 0, "target": 200, "floor": 150}
    change(ada, budget_tokens=9_000, target_tokens=1, max_steps=99, model="openai/other")
    row = held.row
    limits = (row.model, row.budget_tokens, row.target_tokens, row.floor_tokens, row.max_steps, row.max_seconds)
    assert limits == ("builtin/dedupe", 900, 200, 150, 3, 900)
    assert (row.tokens_before, row.memories_before, row.outcome) == (400, 4, Outcome.OPEN)


def test_exact_duplicates_are_removed_before_the_session_opens(ada: Agent) -> None:
    remember(ada, "Tea.", "Tea.", "Coffee.", "Tea.")
    row = opened(ada).row
    assert (row.duplicates_removed, row.memories_before, row.memories_after) == (2, 4, 2)
    assert [entry.operation for entry in entries(ada)][-2:] == [Operation.DEDUPLICATED, Operation.SESSION_OPENED]


@pytest.fixture
def stale(ada: Agent, bob: Agent) -> None:
    """Two tenants have an open session whose lease has expired."""
    for agent in (ada, bob):
        opened(agent)
    RefinementSession.objects.update(lease_until=timezone.now() - LATER)


def test_stale_sessions_end_for_a_time_and_tenants_take_turns(stale: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SECONDS", 0.0)
    assert [len(sessions.close_stale()) for _ in range(3)] == [1, 1, 0]


def test_stale_sessions_that_cannot_end_take_no_more_time(stale: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[Agent]()
    monkeypatch.setattr(sessions, "MOST_SECONDS", 0.0)
    monkeypatch.setattr(sessions, "_end_stale", lambda agent: tried.append(agent) or 1 / 0)
    sessions.close_stale()
    assert len(tried) == 1


def test_the_database_refuses_a_second_open_session(ada: Agent) -> None:
    row = opened(ada).row
    row.pk, row.number = None, 2
    with transaction.atomic(), pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


def at_once(act: Callable[[], Any], times: int = 4) -> list[Any]:
    """Call it in several threads at the same moment. Return what each call returned or raised."""
    barrier = Barrier(times)

    def one(_: int) -> Any:
        try:
            barrier.wait()
            return act()
        except Exception as error:  # noqa: BLE001 the test checks it
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(times) as pool:
        return list(pool.map(one, range(times)))


def test_of_two_opens_at_once_one_wins(transactional_db: None, ada: Agent) -> None:
    remember(ada, "Tea.", "Tea.")
    results = at_once(lambda: sessions.open_session(fresh(ada), trigger="manual"))
    assert sorted(type(result).__name__ for result in results) == ["RefinementSession"] + ["SessionOpen"] * 3
    assert RefinementSession.objects.count() == 1
    assert sound(ada)


def test_concurrent_closes_write_one_entry(transactional_db: None, ada: Agent) -> None:
    held = opened(ada)
    at_once(lambda: sessions.close(held.session, Outcome.COMPLETED))
    assert AuditEntry.objects.filter(operation=Operation.SESSION_CLOSED).count() == 1
    assert sound(ada)


def test_concurrent_calls_run_one_after_the_other(transactional_db: None, ada: Agent) -> None:
    fill(ada, 8, 20)
    held = opened(ada)
    results = at_once(lambda: held.call("demote_memory", id=3)["ok"])
    assert sorted(results) == [False, False, False, True]
    assert (held.row.demoted, held.row.failed_calls) == (1, 3)
    assert sound(ada)


def test_each_step_renews_the_lease_unless_it_is_lost(ada: Agent) -> None:
    with time_machine.travel(timezone.now(), tick=False):
        held = opened(ada)
    assert held.row.lease_until - held.row.opened_at == timedelta(seconds=600)
    with time_machine.travel(timezone.now() + timedelta(seconds=300), tick=False):
        held.knife.begin_step()
        assert held.row.lease_until == timezone.now() + timedelta(seconds=600)
    RefinementSession.objects.update(lease_token="of another driver")
    with pytest.raises(SessionEnded):
        held.knife.begin_step()


def test_a_stale_session_is_closed_as_abandoned_with_its_edits_intact(ada: Agent) -> None:
    fill(ada, 8, 20)
    held = opened(ada)
    held.call("demote_memory", id=1)
    with time_machine.travel(timezone.now() + LATER):
        assert [row.number for row in sessions.close_stale()] == [1]
    assert (held.row.outcome, held.row.reason) == (Outcome.ABANDONED, "lease_expired")
    assert row(ada, 1).layer == "beneath"
    assert notice(ada).startswith("Refinement was abandoned (lease expired). Compressed 8 → 7")
    assert sound(ada)


def test_a_session_renewed_during_the_cleanup_stays_open(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, stale = opened(ada), opened(bob)
    end_stale = sessions._end_stale

    def renewed_first(agent: Agent) -> list[RefinementSession]:
        if agent.pk == ada.pk:
            sessions.row_of(renewed.session).update(lease_until=timezone.now() + timedelta(minutes=10))
        return end_stale(agent)

    with time_machine.travel(timezone.now() + LATER), logbook.kept() as log:
        monkeypatch.setattr(sessions, "_end_stale", renewed_first)
        assert [row.pk for row in sessions.close_stale()] == [stale.session.pk]
    assert "not closed" not in log.text
    assert renewed.row.outcome == Outcome.OPEN


def test_a_session_that_cannot_be_closed_does_not_block_others(ada: Agent, bob: Agent) -> None:
    stuck, stale = opened(ada), opened(bob)
    change(ada, refine_every=timedelta(days=106_751_990))  # only SQL can set this
    with time_machine.travel(timezone.now() + LATER), logbook.kept() as log:
        assert [row.pk for row in sessions.close_stale()] == [stale.session.pk]
    assert (stuck.row.outcome, stale.row.outcome) == (Outcome.OPEN, Outcome.ABANDONED)
    assert '"exception": "OverflowError"' in log.text
    assert "106751990" not in log.text


def test_opening_closes_a_stale_session_first_in_the_same_transaction(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "Tea.", "Tea.")
    stale = opened(ada)
    remember(ada, "Milk.", "Milk.")
    save = RefinementSession.save

    def fail(row: RefinementSession, **options: Any) -> None:
        save(row, **options)
        if row.number == 2:
            raise RuntimeError("broken")

    with time_machine.travel(timezone.now() + LATER):
        with monkeypatch.context() as patch, untouched(ada):
            patch.setattr(RefinementSession, "save", fail)
            with pytest.raises(RuntimeError):
                opened(ada)
        new = opened(ada)
    assert (stale.row.outcome, new.row.outcome, new.row.number) == (Outcome.ABANDONED, Outcome.OPEN, 2)
    assert new.row.trigger == "manual"
    assert sound(ada)


@pytest.mark.parametrize(("outcome", "reason", "beginning"), ENDINGS)
def test_the_agent_finds_a_journal_memory_whatever_the_outcome(
    ada: Agent, outcome: str, reason: str, beginning: str
) -> None:
    fill(ada, 8, 20)
    held = opened(ada)
    held.call("demote_memory", id=1)
    assert held.row.shown
    change(ada, memory_enabled=False)  # the notice is written also then
    sessions.close(held.session, outcome, reason)
    assert (held.row.shown, held.row.summaries) == ({}, None)
    journal = Memory.objects.get(agent_id=ada.pk, kind="journal")
    assert (journal.source, journal.discarded_at) == ("system", None)
    assert says(ada, journal.number).content == (
        f"{beginning} Compressed 8 → 7 core memories; saved 20 tokens; merged 0, rewrote 0, deleted 0, demoted 1, "
        "promoted 0; protected 0; exact duplicates removed 0."
    )


def test_ending_is_one_entry_with_counted_figures_and_no_content(ada: Agent) -> None:
    fill(ada, 8, 20)
    held = opened(ada)
    held.call("demote_memory", id=1)
    held.call("complete_refinement", summary="Zanzibar 999.")
    entry = last_entry(ada)
    assert (entry.operation, entry.session, entry.changes) == (Operation.SESSION_CLOSED, 1, 1)
    sizes = {"tokens_before": 160, "tokens_after": 140, "memories_before": 8, "memories_after": 7}
    edits = {"merged": 0, "updated": 0, "deleted": 0, "demoted": 1, "protected": 0, "promoted": 0, "left_out": 0}
    end = {"outcome": "completed", "reason": "", "repeated_tokens": 0, "duplicates_removed": 0}
    assert entry.detail == end | sizes | edits


def test_a_rollback_restores_the_tokens_that_a_session_saved(ada: Agent) -> None:
    remember(ada, *[filler(50, "same")] * 3, *(filler(100, n) for n in range(4)))
    remember(ada, *["a log"] * 3, kind="journal")
    held = opened(ada)
    held.call("demote_memory", id=4)
    held.call("complete_refinement", summary="Done.")
    row = held.row
    assert (row.tokens_before, row.repeated_tokens, row.lost_tokens, row.tokens_after) == (550, 100, 100, 350)
    assert (row.memories_before, row.memories_after, row.duplicates_removed) == (7, 4, 4)
    did = roll_back(fresh(ada), What("session", 1), PERSON)
    assert did.tokens_after - did.tokens_before == row.tokens_before - row.tokens_after
    agent = fresh(ada)
    assert (agent.core_tokens, agent.core_count) == (row.tokens_before, row.memories_before)


def test_the_notice_of_a_failed_session_counts_removed_duplicates(ada: Agent) -> None:
    remember(ada, *[filler(50, "same")] * 3)
    session = sessions.close(opened(ada).session, Outcome.FAILED)
    assert (session.outcome, session.tokens_before, session.tokens_after) == (Outcome.FAILED, 150, 50)
    assert "Compressed 3 → 1 core memories; saved 100 tokens;" in notice(ada)
    assert "exact duplicates removed 2." in notice(ada)


def test_the_notice_tells_how_much_the_agent_grew(ada: Agent) -> None:
    fill(ada, 8, 20)
    held = opened(ada)
    fill(ada, 1, 500, "later")
    sessions.close(held.session, Outcome.COMPLETED)
    assert "8 → 9 core memories; grew by 500 tokens;" in notice(ada)


def test_a_failure_while_closing_leaves_the_session_open(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    held = opened(ada)

    def fail(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(sessions.schedule, "set_next", fail)
    with untouched(ada), pytest.raises(RuntimeError):
        sessions.close(held.session, Outcome.COMPLETED)


def test_a_session_reaches_no_other_agents_memories(ada: Agent, bob: Agent) -> None:
    fill(ada, 3, 200)
    theirs = fill(bob, 12, 20)
    before = everything(bob)
    held = opened(ada, max_failed_calls=100)
    for number in theirs:
        held.call("demote_memory", id=number)
        held.call("update_memory", id=number, content=filler(19, number))
    assert everything(bob) == before


def test_constitutional_memories_survive_every_attack_of_a_session(ada: Agent) -> None:
    made = fill(ada, 8, 20)
    protected(ada, made[0], made[1])
    held = opened(ada, max_failed_calls=100)
    before = [says(ada, number).content for number in made[:2]]
    for number in made[:2]:
        held.call("demote_memory", id=number)
        held.call("update_memory", id=number, content="x")
        held.call("consolidate_memories", ids_to_merge=[number, made[2]], new_content="x")
        held.call("promote_memory", id=number)
    held.call("consolidate_memories", ids_to_merge=made, new_content=filler(120, "all"))
    assert [says(ada, number).content for number in made[:2]] == before
    assert all(row(ada, number).constitutional for number in made[:2])


@pytest.mark.parametrize("broken", [b"", b"\x01garbage!" + b"0" * 60])
def test_a_session_closes_also_if_the_silo_does_not_open(ada: Agent, broken: bytes) -> None:
    fill(ada, 3, 20)
    held = opened(ada)
    change(ada, wrapped_key=broken)
    assert sessions.close(held.session, Outcome.FAILED, "seal_broken").outcome == Outcome.FAILED
    assert AuditEntry.objects.filter(agent_id=ada.pk).latest("seq").operation == "session_closed"


@pytest.mark.parametrize(
    ("interrupt", "ended"),
    [
        (Stopped(1), ("incomplete", "worker_stopped")),
        (KeyboardInterrupt(), ("failed", "interrupted")),
        (OperationalError(), ("incomplete", "database_failed")),
        (InterfaceError(), ("incomplete", "database_failed")),
    ],
    ids=["worker", "person", "connection", "interface"],
)
def test_a_session_stopped_from_outside_is_closed(
    ada: Agent, interrupt: BaseException, ended: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise interrupt

    monkeypatch.setattr("refinement.loop.open_model", stop)
    before, after = (2, 2) if ended[1] == "database_failed" else (0, 1)
    change(ada, failures_in_a_row=before)
    with pytest.raises(type(interrupt)):
        loop.refine(ada, trigger="weekly")
    assert fresh(ada).failures_in_a_row == after
    session = RefinementSession.objects.get(agent=ada)
    assert (session.outcome, session.reason) == ended
    assert schedule.due().filter(pk=ada.pk).exists() == (session.reason in ("worker_stopped", "database_failed"))


@pytest.mark.parametrize(
    ("outcome", "changes", "is_told"),
    [("completed", 0, True), *((each, n, n > 0) for each in ("declined", "failed", "incomplete") for n in (0, 1))],
)
def test_only_a_completed_session_or_one_with_changes_writes_to_the_journal(
    outcome: str, changes: int, is_told: bool, ada: Agent
) -> None:
    fill(ada, 8, 20)
    held = opened(ada)
    if changes:
        assert held.call("demote_memory", id=1)["ok"]
    sessions.close(held.session, outcome, "model_refused", "the words of the model")
    assert (fresh(ada).journal_count, sound(ada)) == (int(is_told), True)
    assert last_entry(ada).operation == "session_closed"
    assert not is_told or "the words of the model" in notice(ada)
