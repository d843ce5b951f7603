"""Rollbacks: what they restore, what they refuse, and what the trail records."""

from datetime import timedelta
from typing import Any

import pytest

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

FIGURES = ("restored", "discarded", "rewritten", "protection_changed", "tokens_after")
WITH_REASON: dict[str, Any] = {"include_constitutional": True, "reason": " asked "}


def states(agent: Agent) -> dict[int, bytes]:
    """The snapshot of every memory."""
    return {memory.number: snapshot(memory) for memory in Memory.objects.filter(agent_id=agent.pk)}


def is_restored(agent: Agent, before: dict[int, bytes]) -> bool:
    """Whether the memories that existed before are as they were."""
    return states(agent).items() >= before.items()


def seq(agent: Agent) -> int:
    return int(fresh(agent).audit_seq)


def undo(agent: Agent, what: What, **options: Any) -> Figures:
    """Roll back. The result equals the preview, and the trail verifies."""
    expected = preview(fresh(agent), what)
    figures = roll_back(fresh(agent), what, PERSON, **options)
    if not options:
        assert [getattr(expected, name) for name in FIGURES] == [getattr(figures, name) for name in FIGURES]
    assert figures.tokens_after == fresh(agent).core_tokens
    assert problems(agent) == []
    return figures


def end_session(agent: Agent) -> None:
    operations.notify(agent, "done", operation="session_closed", actor=steps.SYSTEM, detail={}, session=SESSION)


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Four core memories and a journal entry."""
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
def test_undoing_a_rollback_restores_the_state_after_the_edit(past: Agent, edit: str, is_warm: bool) -> None:
    """Memories, counters, and what a search finds. A memory that the edit made is discarded."""
    before, found_before, counters = states(past), found(past), (fresh(past).core_tokens, 0)
    EDITS[edit](past)
    after, found_after = states(past), found(past)
    options = WITH_REASON if edit == "protected" else {}
    undo(past, What("entry", seq(past)), **options)
    assert last_entry(past).detail.get("reason") == ("asked" if options else None)
    assert is_restored(past, before)
    assert all(row(past, number).discarded_at is not None for number in states(past).keys() - before.keys())
    assert (fresh(past).core_tokens, fresh(past).constitutional_tokens) == counters
    if not is_warm:
        cache.forget()
    assert found(past) == found_before
    undo(past, What("entry", seq(past)), **options)
    assert (states(past), found(past)) == (after, found_after)


def test_a_rollback_is_one_entry_that_names_the_entries_it_undid(past: Agent) -> None:
    operations.discard(past, [2], ME)
    undone = seq(past)
    figures = undo(past, What("entry", undone))
    entry = last_entry(past)
    assert (figures.entry, entry.operation, entry.actor_label) == (entry.seq, "rolled_back", PERSON.label)
    assert entry.detail == {"undid": {"entry": undone}, "entries": [[undone, undone]]}
    by = Undone.of(past).by
    assert [by(seq) for seq in range(undone + 3)] == [None] * undone + [entry.seq, None, None]


def test_a_session_is_undone_as_a_whole_after_its_end(past: Agent) -> None:
    before = states(past)
    operations.revise(past, 1, ME, content="green tea", session=SESSION)
    operations.consolidate(past, [1, 2], "green tea with milk", ME, session=SESSION)
    operations.discard(past, [3], ME, session=SESSION)
    with refused(past, errors.SessionRunning):
        roll_back(past, What("session", SESSION), PERSON)
    end_session(past)
    undo(past, What("session", SESSION))
    assert is_restored(past, before)
    assert steps.active(past) == [1, 2, 3, 4, 5]


def test_the_rest_of_a_session_is_undone_from_an_entry_on(past: Agent) -> None:
    operations.revise(past, 1, ME, content="green tea", session=SESSION)
    kept = states(past)
    operations.discard(past, [3], ME, session=SESSION)
    first = seq(past)
    operations.consolidate(past, [1, 2], "green tea with milk", ME, session=SESSION)
    with refused(past, errors.SessionRunning):
        roll_back(past, What("session_from", first), PERSON)
    end_session(past)
    operations.protect(past, [4], PERSON)  # a later edit, which stays
    undo(past, What("session_from", first))
    assert is_restored(past, {number: kept[number] for number in (1, 2, 3, 5)})
    assert row(past, 4).constitutional
    for number in (1, first + 3, seq(past) + 1):  # no entry of a session
        with refused(past, errors.UnknownEntry):
            roll_back(past, What("session_from", number), PERSON)


def test_everything_since_a_moment_is_undone(past: Agent, time_machine: Any) -> None:
    before, moment = states(past), last_entry(past).at
    time_machine.move_to(moment + timedelta(hours=1))
    operations.discard(past, [2], ME)
    operations.revise(past, 1, ME, content="green tea")
    undo(past, What("moment", moment))
    assert states(past) == before


@pytest.mark.parametrize("number", [0, -1, 999, 2**63])
def test_an_unknown_entry_or_session_is_refused(past: Agent, number: int) -> None:
    for what in (What("entry", number), What("session", number)):
        with refused(past, errors.UnknownEntry):
            roll_back(past, what, PERSON)


def test_nothing_is_undone_twice(past: Agent) -> None:
    """A rollback marks what it undid. A rollback of the rollback removes the mark."""
    operations.discard(past, [2], ME)
    what = What("entry", seq(past))
    undo(past, what)
    with refused(past, errors.AlreadyUndone):
        roll_back(past, what, PERSON)
    undo(past, What("entry", seq(past)))
    undo(past, what)


def test_a_memory_that_is_restored_or_discarded_already_is_no_conflict(past: Agent) -> None:
    for number in (1, 2):
        operations.discard(past, [number], ME, session=SESSION)
    end_session(past)
    operations.restore(past, [2], PERSON)
    figures = undo(past, What("session", SESSION))
    assert (figures.restored, figures.conflicts, steps.active(past)) == (1, (), [1, 2, 3, 4, 5])
    _, jam = remember(past, "honey", "jam")
    made = seq(past)
    operations.discard(past, [jam], ME)
    figures = undo(past, What("entry", made))
    assert (figures.discarded, figures.conflicts) == (1, ())


def test_a_session_undone_in_part_goes_back_to_the_state_before_it(past: Agent) -> None:
    operations.revise(past, 1, ME, content="green tea", session=SESSION)
    first = seq(past)
    operations.revise(past, 1, ME, content="black tea", session=SESSION)
    end_session(past)
    roll_back(past, What("entry", first), PERSON, force=True)
    assert says(past, 1).content == "tea"
    figures = roll_back(fresh(past), What("session", SESSION), PERSON, force=True)
    assert (figures.conflicts, says(past, 1).content) == ((), "tea")


def test_a_later_edit_of_the_same_memory_is_a_conflict_until_it_is_undone(past: Agent) -> None:
    operations.revise(past, 1, ME, content="green tea")
    first = seq(past)
    operations.revise(past, 1, ME, content="black tea")
    with refused(past, errors.Conflict) as caught:
        roll_back(past, What("entry", first), PERSON)
    assert caught.value.conflicts == {1: (seq(past),)}
    assert preview(past, What("entry", first)).conflicts == ((1, (seq(past),)),)
    undo(past, What("entry", seq(past)))
    undo(past, What("entry", first))
    assert says(past, 1).content == "tea"


def test_conflicts_are_skipped_or_overwritten_on_request_and_the_entry_names_them(past: Agent) -> None:
    operations.consolidate(past, [1, 2], "tea with milk", ME)
    first = seq(past)
    operations.revise(past, 6, ME, content="tea with cold milk")
    undo(past, What("entry", first), skip_conflicts=True)
    assert last_entry(past).detail["skipped"] == [6]
    assert steps.active(past) == [1, 2, 3, 4, 5, 6]
    undo(past, What("entry", seq(past)))
    undo(past, What("entry", first), force=True)
    assert last_entry(past).detail["forced"] == [6]
    assert steps.active(past) == [1, 2, 3, 4, 5]


def test_an_edit_by_others_during_a_session_is_a_conflict(past: Agent) -> None:
    operations.revise(past, 1, ME, content="green tea", session=SESSION)
    operations.revise(past, 1, ME, content="green tea, said the agent's runtime")
    others = seq(past)
    operations.revise(past, 1, ME, content="green tea, in short", session=SESSION)
    end_session(past)
    with refused(past, errors.Conflict) as caught:
        roll_back(past, What("session", SESSION), PERSON)
    assert caught.value.conflicts == {1: (others,)}


def test_a_constitutional_memory_is_rolled_back_only_with_a_reason(past: Agent) -> None:
    what = What("since_entry", seq(past))
    operations.revise(past, 1, ME, content="green tea")
    operations.protect(past, [1], PERSON)
    with refused(past, errors.Constitutional):
        roll_back(past, what, PERSON)
    with refused(past, errors.Invalid):
        roll_back(past, what, PERSON, include_constitutional=True)
    [honey] = remember(past, "honey")
    operations.protect(past, [honey], PERSON)
    undo(past, what, include_constitutional=True, reason="Protected by mistake.")
    assert (says(past, 1).content, row(past, 1).constitutional) == ("tea", False)
    assert (row(past, honey).constitutional, row(past, honey).discarded_at is None) == (False, False)
    assert last_entry(past).detail["reason"] == "Protected by mistake."


def test_a_rollback_that_would_not_restore_exactly_is_refused(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    operations.discard(past, [2], ME)
    real = rollback.fields_of
    monkeypatch.setattr(rollback, "fields_of", lambda taken: real(taken) | {"project": "elsewhere"})
    with refused(past, rollback.RestoredWrong):
        roll_back(past, What("entry", seq(past)), PERSON)


@pytest.mark.parametrize("is_discarded", [False, True])
def test_a_rollback_of_a_memory_removed_by_sql_is_refused(ada: Agent, is_discarded: bool) -> None:
    remember(ada, "tea", "milk")
    if is_discarded:
        operations.discard(ada, [1, 2], ME)
    drop_guards()
    Memory.objects.filter(agent=ada, number=1).delete()
    what = What("since_entry", 0)
    for act in (lambda: preview(fresh(ada), what), lambda: roll_back(fresh(ada), what, PERSON)):
        with pytest.raises(errors.UnknownMemory, match="1"):
            act()
