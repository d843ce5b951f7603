"""The Time Machine, verb by verb: what is put back, what is refused, and what the trail says of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.models import AuditEntry
from memory import errors
from memory.models import Agent, Memory
from memory.search import cache
from memory.time_machine import rollback
from memory.time_machine.rollback import Figures, What, preview, roll_back
from memory.time_machine.selection import Undone
from memory.writing import operations
from memory.writing.edits import snapshot
from tests import steps
from tests.conftest import drop_guards
from tests.steps import ME, PERSON, SESSION, fresh, last_entry, problems, refused, remember, row, says

pytestmark = pytest.mark.database


def now(agent: Agent) -> dict[int, bytes]:
    """Every memory's whole state."""
    return {memory.number: snapshot(memory) for memory in Memory.objects.filter(agent_id=agent.pk)}


def seq(agent: Agent) -> int:
    return int(fresh(agent).audit_seq)


def undo(agent: Agent, what: What, **options: Any) -> Figures:
    """Roll back; what the preview said is what was done, and the trail holds."""
    told = preview(fresh(agent), what)
    did = roll_back(fresh(agent), what, PERSON, **options)
    assert did.applied
    if not options:
        assert (told.restored, told.discarded, told.rewritten, told.protection_changed, told.tokens_after) == (
            did.restored,
            did.discarded,
            did.rewritten,
            did.protection_changed,
            did.tokens_after,
        )
    assert did.tokens_after == fresh(agent).core_tokens
    assert problems(agent) == []
    return did


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Five memories, and one of every kind of edit after them."""
    remember(ada, "tea", "milk", "sugar", "lemon")
    remember(ada, "log", kind="journal")
    return ada


EDITS = {
    "remembered": lambda agent: remember(agent, "honey"),
    "revised": lambda agent: operations.revise(agent, 1, ME, content="green tea", tags=["hot"]),
    "discarded": lambda agent: operations.discard(agent, [2], ME),
    "protected": lambda agent: operations.protect(agent, [3], PERSON),
    "consolidated": lambda agent: operations.consolidate(agent, [1, 2], "tea with milk", ME),
    "promoted": lambda agent: operations.promote(agent, 5, ME),
}


def found(agent: Agent) -> dict[str, list[tuple[int, float]]]:
    with cache.reader(fresh(agent)) as index:
        return {words: [(hit.number, hit.score) for hit in index.search(words)] for words in ("tea milk", "green", "")}


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_and_its_rollback_undone_leave_all_as_it_was(past: Agent, edit: str, is_warm: bool) -> None:
    """Every memory, the counters, and what a search finds. What the edit made is discarded."""
    before, said, weighed = now(past), found(past), (fresh(past).core_tokens, fresh(past).constitutional_tokens)
    EDITS[edit](past)
    after, said_after = now(past), found(past)
    options = {"include_constitutional": True, "reason": " asked "} if edit == "protected" else {}
    undo(past, What.entry(seq(past)), **options)
    assert last_entry(past).detail.get("reason") == ("asked" if options else None)
    assert {number: state for number, state in now(past).items() if number in before} == before
    assert all(row(past, number).discarded_at is not None for number in now(past).keys() - before.keys())
    assert (fresh(past).core_tokens, fresh(past).constitutional_tokens) == weighed
    if not is_warm:
        cache.forget()
    assert found(past) == said
    undo(past, What.entry(seq(past)), **options)
    assert (now(past), found(past)) == (after, said_after)


def test_it_is_one_entry_that_names_what_it_undid(past: Agent) -> None:
    operations.discard(past, [2], ME)
    undone = seq(past)
    did = undo(past, What.entry(undone))
    entry = last_entry(past)
    assert (did.entry, entry.operation, entry.actor_label) == (entry.seq, "rolled_back", PERSON.label)
    assert entry.detail == {"undid": {"entry": undone}, "entries": [[undone, undone]]}
    by = Undone.of(past).by
    assert [by(seq) for seq in range(undone + 3)] == [None] * undone + [entry.seq, None, None]


def test_figures_say_what_is_done(past: Agent) -> None:
    start = seq(past)
    operations.revise(past, 1, ME, content="green tea from the hills")
    operations.discard(past, [2], ME)
    operations.protect(past, [3], PERSON)
    remember(past, "honey")
    before = steps.state(past)
    told = preview(past, What.since_entry(start))
    assert steps.state(past) == before, "a preview changes nothing"
    assert (told.restored, told.discarded, told.rewritten, told.protection_changed) == (1, 1, 1, 1)
    assert (told.entry, told.applied, told.constitutional) == (None, False, (3,))
    assert told.tokens_before - told.tokens_after == fresh(past).core_tokens - told.tokens_after


# --- a session


def test_a_session_is_undone_whole_once_it_is_over(past: Agent) -> None:
    before = now(past)
    operations.revise(past, 1, ME, content="green tea", session=SESSION)
    operations.consolidate(past, [1, 2], "green tea with milk", ME, session=SESSION)
    operations.discard(past, [3], ME, session=SESSION)
    with refused(past, errors.SessionRunning):
        roll_back(past, What.session(SESSION), PERSON)
    operations.notify(past, "done", operation="session_closed", actor=steps.SYSTEM, detail={}, session=SESSION)
    undo(past, What.session(SESSION))
    assert {number: state for number, state in now(past).items() if number in before} == before
    assert steps.active(past) == [1, 2, 3, 4, 5]


# --- since a moment, since an entry


def test_everything_since_an_entry_is_undone(past: Agent) -> None:
    start, before = seq(past), now(past)
    for edit in ("remembered", "revised", "consolidated", "promoted"):
        EDITS[edit](past)
    undo(past, What.since_entry(start))
    assert {number: state for number, state in now(past).items() if number in before} == before


def test_everything_since_a_moment_is_undone(past: Agent, time_machine: Any) -> None:
    before, moment = now(past), timezone.now()
    time_machine.move_to(moment + timedelta(hours=1))
    operations.discard(past, [2], ME)
    operations.revise(past, 1, ME, content="green tea")
    undo(past, What.moment(moment))
    assert now(past) == before


def test_nothing_since_is_nothing_to_undo(past: Agent) -> None:
    with refused(past, errors.NothingToUndo):
        roll_back(past, What.since_entry(seq(past)), PERSON)
    with refused(past, errors.NothingToUndo):
        roll_back(past, What.moment(timezone.now() + timedelta(days=1)), PERSON)


# --- nothing twice


def test_a_memory_restored_meanwhile_is_in_nobodys_way(past: Agent) -> None:
    """Trap: restoring a row that somebody had restored meanwhile raised, and nothing was rolled back."""
    for number in (1, 2):
        operations.discard(past, [number], ME, session=SESSION)
    operations.notify(past, "done", operation="session_closed", actor=steps.SYSTEM, detail={}, session=SESSION)
    operations.restore(past, [2], PERSON)
    did = undo(past, What.session(SESSION))
    assert (did.restored, did.conflicts) == (1, ())
    assert steps.active(past) == [1, 2, 3, 4, 5]


def test_what_an_entry_made_and_somebody_discarded_is_in_nobodys_way(past: Agent) -> None:
    remember(past, "honey", "jam")
    made = seq(past)
    operations.discard(past, [6], ME)
    did = undo(past, What.entry(made))
    assert (did.discarded, did.conflicts) == (1, ())


def session_of_two_edits(agent: Agent) -> int:
    """Memory 1 goes from tea to green tea to black tea. The number of the first edit."""
    operations.revise(agent, 1, ME, content="green tea", session=SESSION)
    first = seq(agent)
    operations.revise(agent, 1, ME, content="black tea", session=SESSION)
    operations.notify(agent, "done", operation="session_closed", actor=steps.SYSTEM, detail={}, session=SESSION)
    return first


def test_a_session_of_which_a_part_was_undone_goes_back_to_before_it(past: Agent) -> None:
    """Not to a state from its midst."""
    first = session_of_two_edits(past)
    roll_back(past, What.entry(first), PERSON, force=True)
    assert says(past, 1).content == "tea"
    did = roll_back(fresh(past), What.session(SESSION), PERSON, force=True)
    assert (did.conflicts, says(past, 1).content) == ((), "tea")


def test_what_was_skipped_in_a_part_of_a_session_is_put_back_with_the_rest(past: Agent) -> None:
    operations.revise(past, 2, ME, content="cream", session=SESSION)
    session_of_two_edits(past)
    operations.discard(past, [3], ME, session=SESSION)
    undo(past, What.session(SESSION))
    assert [says(past, number).content for number in (1, 2, 3)] == ["tea", "milk", "sugar"]


def test_nothing_is_undone_twice(past: Agent) -> None:
    """Trap: no marker on what was rolled back, so that it could be replayed."""
    operations.discard(past, [2], ME)
    what = What.entry(seq(past))
    undo(past, what)
    with refused(past, errors.AlreadyUndone):
        roll_back(past, what, PERSON)
    undo(past, What.entry(seq(past)))
    undo(past, what)


def test_what_is_done_is_what_was_shown_or_nothing(past: Agent) -> None:
    operations.discard(past, [2], ME)
    shown = preview(past, What.since_entry(2))
    remember(past, "honey")
    with refused(past, errors.TrailChanged):
        roll_back(fresh(past), What.since_entry(2), PERSON, head=shown.head)
    again = preview(fresh(past), What.since_entry(2))
    assert roll_back(fresh(past), What.since_entry(2), PERSON, head=again.head).discarded == again.discarded


@pytest.mark.parametrize("number", [0, -1, 999, 2**63])
def test_an_entry_there_is_none_of(past: Agent, number: int) -> None:
    with refused(past, errors.UnknownEntry):
        roll_back(past, What.entry(number), PERSON)
    with refused(past, errors.UnknownEntry):
        roll_back(past, What.session(number), PERSON)


# --- conflicts (80-traps: a rollback overwrote a later edit)


def test_a_later_edit_of_the_same_memory_is_not_overwritten_unless_it_came_to_nothing(past: Agent) -> None:
    """Trap: a rollback of an update overwrote a later edit."""
    operations.revise(past, 1, ME, content="green tea")
    first = seq(past)
    operations.revise(past, 1, ME, content="black tea")
    with refused(past, errors.Conflict) as caught:
        roll_back(past, What.entry(first), PERSON)
    assert caught.value.conflicts == {1: (seq(past),)}
    assert preview(past, What.entry(first)).conflicts == ((1, (seq(past),)),)
    undo(past, What.entry(seq(past)))
    undo(past, What.entry(first))
    assert says(past, 1).content == "tea"


def test_conflicts_are_skipped_or_forced_as_asked_and_it_is_written_down(past: Agent) -> None:
    operations.consolidate(past, [1, 2], "tea with milk", ME)
    first = seq(past)
    operations.revise(past, 6, ME, content="tea with cold milk")
    undo(past, What.entry(first), skip_conflicts=True)
    assert last_entry(past).detail["skipped"] == [6]
    assert steps.active(past) == [1, 2, 3, 4, 5, 6]
    undo(past, What.entry(seq(past)))
    undo(past, What.entry(first), force=True)
    assert last_entry(past).detail["forced"] == [6]
    assert steps.active(past) == [1, 2, 3, 4, 5]


def test_an_edit_by_others_in_the_midst_of_a_session_is_a_conflict(past: Agent) -> None:
    operations.revise(past, 1, ME, content="green tea", session=SESSION)
    operations.revise(past, 1, ME, content="green tea, said the agent's runtime")
    others = seq(past)
    operations.revise(past, 1, ME, content="green tea, in short", session=SESSION)
    operations.notify(past, "done", operation="session_closed", actor=steps.SYSTEM, detail={}, session=SESSION)
    with refused(past, errors.Conflict) as caught:
        roll_back(past, What.session(SESSION), PERSON)
    assert caught.value.conflicts == {1: (others,)}


# --- constitutional


def test_a_memory_that_is_constitutional_now_is_touched_with_a_reason_alone(past: Agent) -> None:
    start = seq(past)
    operations.revise(past, 1, ME, content="green tea")
    operations.protect(past, [1], PERSON)
    with refused(past, errors.Constitutional):
        roll_back(past, What.since_entry(start), PERSON)
    with refused(past, errors.Invalid):
        roll_back(past, What.since_entry(start), PERSON, include_constitutional=True)
    undo(past, What.since_entry(start), include_constitutional=True, reason="Protected by mistake.")
    assert (says(past, 1).content, row(past, 1).constitutional) == ("tea", False)
    assert last_entry(past).detail["reason"] == "Protected by mistake."


def test_what_was_constitutional_then_is_so_again(past: Agent) -> None:
    operations.protect(past, [1], PERSON)
    start = seq(past)
    operations.unprotect(past, [1], PERSON, reason="asked")
    operations.discard(past, [1], ME)
    undo(past, What.since_entry(start))
    assert row(past, 1).constitutional


def test_what_was_made_and_protected_since_is_discarded_all_the_same(past: Agent) -> None:
    start = seq(past)
    [number] = remember(past, "honey")
    operations.protect(past, [number], PERSON)
    undo(past, What.since_entry(start), include_constitutional=True, reason="asked")
    assert (row(past, number).constitutional, row(past, number).discarded_at is None) == (False, False)


# --- other agents, switches


def test_another_agents_entries_are_not_touched(past: Agent, bob: Agent) -> None:
    remember(bob, "beer")
    before = steps.state(bob)
    undo(past, What.since_entry(0))
    assert steps.state(bob) == before
    assert AuditEntry.objects.filter(agent_id=bob.pk, operation="rolled_back").count() == 0


def test_it_works_while_memory_is_off(past: Agent) -> None:
    operations.discard(past, [2], ME)
    Agent.objects.filter(pk=past.pk).update(memory_enabled=False)
    roll_back(fresh(past), What.entry(seq(past)), PERSON)
    assert 2 in steps.active(past)


def test_a_rollback_that_would_not_restore_exactly_does_not_happen(
    past: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: no check that the state after equals the state before."""
    operations.discard(past, [2], ME)
    real = rollback.fields_of
    monkeypatch.setattr(rollback, "fields_of", lambda taken: real(taken) | {"project": "elsewhere"})
    with refused(past, rollback.RestoredWrong):
        roll_back(past, What.entry(seq(past)), PERSON)


@pytest.mark.parametrize("is_discarded", [False, True])
def test_a_memory_whose_row_was_removed_by_sql_is_named_and_nothing_is_rolled_back(
    ada: Agent, is_discarded: bool
) -> None:
    remember(ada, "tea", "milk")
    if is_discarded:
        operations.discard(ada, [1, 2], ME)
    drop_guards()
    Memory.objects.filter(agent=ada, number=1).delete()
    for act in (preview, lambda *given: roll_back(*given, PERSON)):
        with pytest.raises(errors.UnknownMemory, match="1"):
            act(fresh(ada), What.since_entry(0))
