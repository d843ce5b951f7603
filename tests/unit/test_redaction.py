"""Redaction: what goes, what stays, who agrees, and that there is no way back."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from audit import trail
from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory import errors
from memory.consent import redaction, removal_requests
from memory.consent.redaction import Figures
from memory.models import Agent, Creation, Memory
from memory.policy.validation import Draft
from memory.search import cache
from memory.silo.silo import Silo
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.time_machine.selection import Undone
from memory.writing import duplicates, edits, operations
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import steps
from tests.steps import ME, PERSON, SESSION, exported, fresh, last_entry, problems, refused, remember, row

pytestmark = pytest.mark.database

OWNER = Actor.person("owner@acme.test")


def ask(agent: Agent, *numbers: int) -> int:
    return removal_requests.ask_redaction(agent, numbers, OWNER, reason="request 17").number


def redact(agent: Agent, *numbers: int, **options: Any) -> Figures:
    """Asked for, agreed to and carried out; what was told before is what was done, and the trail holds."""
    told = redaction.preview(fresh(agent), numbers)
    did = redaction.redact(agent, ask(agent, *numbers), ME, **options)
    assert (told.memories, told.active, told.tokens_before, told.tokens_after, told.related) == (
        did.memories,
        did.active,
        did.tokens_before,
        did.tokens_after,
        did.related,
    )
    assert did.tokens_after == fresh(agent).core_tokens
    assert problems(agent) == []
    return did


def kept(agent: Agent, number: int) -> list[Change]:
    return list(Change.objects.filter(agent_id=agent.pk, number=number).order_by("seq"))


def everything(agent: Agent) -> bytes:
    """Every byte that rows and trail hold of an agent."""
    found = b""
    for model in (Memory, Change, AuditEntry):
        for values in model.objects.filter(agent_id=agent.pk).values_list():
            found += b"".join(bytes(value) for value in values if isinstance(value, bytes | memoryview))
    return found


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Memory 1 was revised, memories 1 and 2 were merged into 5 in a session, 3 stands alone, 4 is a journal entry."""
    remember(ada, "Ann likes tea", "Ann likes it green", "milk", tags=("drinks",))
    remember(ada, "a day", kind="journal")
    operations.revise(ada, 1, ME, content="Ann likes black tea", session=SESSION, dropping=["tea that is not black"])
    operations.consolidate(ada, [1, 2], "Ann likes tea, black and green", ME, session=SESSION, dropping=["likes"])
    return ada


# --- what goes


def test_the_body_is_gone_from_the_row_and_from_every_snapshot(past: Agent) -> None:
    bodies_before = {bytes(snapshot)[-40:] for change in kept(past, 1) for snapshot in (change.after,)}
    digest = Silo.for_agent(past).digest("Ann likes black tea")
    assert all(body in everything(past) for body in (*bodies_before, digest))
    did = redact(past, 1)
    memory = row(past, 1)
    assert (bytes(memory.sealed), bytes(memory.digest)) == (b"", b"")
    assert memory.redacted_at == last_entry(past).at
    for change in kept(past, 1):
        for snapshot in (change.before, change.after):
            assert snapshot is None or not trail.has_body(bytes(snapshot))
    assert not any(body in everything(past) for body in (*bodies_before, digest))
    assert did.changes == 3


def test_notes_of_what_its_edits_dropped_are_gone(past: Agent) -> None:
    notes = AuditEntry.objects.filter(agent_id=past.pk, sealed__isnull=False)
    assert notes.count() == 2
    other = remember(past, "sugar")
    operations.revise(past, other[0], ME, content="honey", session=SESSION, dropping=["sugar"])
    assert redact(past, 1).notes == 2
    [left] = notes
    assert left.seq == last_entry(past).seq - 2


def test_what_stays_tells_when_and_by_whom_and_verifies(past: Agent) -> None:
    before = row(past, 1)
    digests = [(bytes(c.before_digest or b""), bytes(c.after_digest or b"")) for c in kept(past, 1)]
    entries = list(AuditEntry.objects.filter(agent_id=past.pk).order_by("seq").values_list("at", "actor_label", "mac"))
    redact(past, 1)
    after = row(past, 1)
    for name in ("kind", "category", "origin", "created_at", "tokens", "discarded_at", "superseded_by"):
        assert getattr(after, name) == getattr(before, name)
    assert [(bytes(c.before_digest or b""), bytes(c.after_digest or b"")) for c in kept(past, 1)][:-1] == digests
    now = AuditEntry.objects.filter(agent_id=past.pk).order_by("seq").values_list("at", "actor_label", "mac")
    assert list(now)[: len(entries)] == entries


def test_its_entry_names_request_numbers_and_digests(past: Agent) -> None:
    expected = {trail.body_digest(bytes(change.after)).hex() for change in kept(past, 1)}
    asked = ask(past, 1)
    redaction.redact(past, asked, ME)
    entry = last_entry(past)
    assert (entry.operation, entry.actor_kind) == ("redacted", "agent")
    assert entry.detail["request"] == asked
    assert {number: set(digests) for number, digests in entry.detail["redacted"].items()} == {"1": expected}
    asking = AuditEntry.objects.get(agent_id=past.pk, seq=asked)
    assert asking.detail == {"reason": "request 17", "asked_by": "owner@acme.test", "memories": [1]}


def test_an_active_memory_is_discarded_and_counts_no_more(past: Agent) -> None:
    redact(past, 5)
    assert steps.active(past) == [3, 4]
    assert row(past, 5).discarded_at == row(past, 5).redacted_at


def test_several_at_once_in_one_entry(past: Agent) -> None:
    did = redact(past, 2, 5, 1)
    assert did.memories == (1, 2, 5)
    assert last_entry(past).changes == 3


def test_the_silo_opens_the_rest_and_exports_without_it(past: Agent) -> None:
    redact(past, 1)
    lines = "\n".join(exported(fresh(past), with_discarded=True))
    assert "milk" in lines
    assert "black tea" not in lines.replace("tea, black and green", "")
    with pytest.raises(errors.SealBroken):
        Silo.for_agent(fresh(past)).open(row(past, 1))


def test_repeats_are_counted_without_it(ada: Agent) -> None:
    remember(ada, "the same text", "the same text", "the same text")
    assert fresh(ada).duplicate_tokens > 0
    redact(ada, 1)
    redact(ada, 2)
    assert fresh(ada).duplicate_tokens == 0
    assert duplicates.remove(fresh(ada), session=1).seq is None


def test_what_the_api_keeps_against_repeats_goes_too(past: Agent) -> None:
    """Its fingerprint is a keyed digest of the body: a guess could be tried on it."""
    Creation.objects.create(agent=past, key=b"k" * 32, fingerprint=b"f" * 32, numbers=[1], at=timezone.now())
    redact(past, 1)
    assert not Creation.objects.exists()


def test_a_change_without_a_snapshot_is_in_nobodys_way(past: Agent) -> None:
    Change.objects.create(agent_id=past.pk, seq=fresh(past).audit_seq, number=3)
    redaction.redact(past, ask(past, 3), ME)
    assert row(past, 3).redacted_at


# --- search


def found(agent: Agent, words: str) -> list[int]:
    with cache.reader(fresh(agent)) as index:
        return [hit.number for hit in index.search(words)]


def test_no_search_finds_it_and_this_process_forgets_it(past: Agent, django_capture_on_commit_callbacks: Any) -> None:
    cache.forget()
    assert found(past, "black") == [5]
    with django_capture_on_commit_callbacks(execute=True):
        redact(past, 5)
    assert not [place for place in cache._held if place[0] == past.pk]
    assert found(past, "black") == []


def test_an_index_of_another_process_is_made_anew(past: Agent) -> None:
    """Catching up alone would leave the words of what was taken out in its vocabulary."""
    cache.forget()
    assert found(past, "black") == [5]
    [held] = [held for place, held in cache._held.items() if place[0] == past.pk]
    old = held.index
    redact(past, 5)
    cache._edited.blocks.clear()  # as for a process that made no edit
    assert (found(past, "black"), found(past, "milk")) == ([], [3])
    assert held.index is not old
    newest = held.index
    remember(past, "coffee")
    cache._edited.blocks.clear()
    assert found(past, "coffee") == [6]
    assert held.index is newest


# --- what else may say it


def test_what_may_say_the_same_is_listed_and_left(past: Agent) -> None:
    operations.consolidate(past, [5, 3], "Ann drinks", ME)
    again = remember(past, "Ann likes tea")  # what memory 1 said at first
    notice = steps.tell(past)
    told = {each.number: (each.why, each.state) for each in redaction.preview(fresh(past), [1]).related}
    assert told == {5: ("merged", "discarded"), 6: ("merged", "active"), again[0]: ("same words", "active")}
    assert notice not in told
    redact(past, 1)
    assert steps.says(past, 6).content == "Ann drinks"


def test_what_it_was_merged_from_is_listed(past: Agent) -> None:
    """And what that was merged from: the sentence would be left behind in them. (5 was merged from 1 and 2.)"""
    operations.consolidate(past, [5, 3], "Ann drinks", ME)
    told = {each.number: each.why for each in redaction.preview(fresh(past), [6]).related}
    assert told == dict.fromkeys((1, 2, 3, 5), "source")


def test_a_merge_that_was_taken_back_is_listed(past: Agent) -> None:
    rollback.roll_back(past, What.entry(last_entry(past).seq), PERSON)
    assert [(e.number, e.why, e.state) for e in redaction.preview(fresh(past), [2]).related] == [
        (5, "merged", "discarded")
    ]


def test_the_notice_of_a_session_that_edited_it_is_listed(past: Agent) -> None:
    notice = closed(past, SESSION)
    later = closed(past, SESSION + 1)  # what it was merged into was there to be read
    operations.discard(past, [5], ME)
    closed(past, SESSION + 2)  # nothing of it was any more
    related = {each.number: each.why for each in redaction.preview(fresh(past), [2]).related}
    assert related == {5: "merged", notice: "notice", later: "shown"}
    redact(past, notice)


def test_the_notices_of_sessions_that_could_read_it_are_listed(past: Agent) -> None:
    """A model that was shown it may have repeated it when the session ended, and edited nothing of it."""
    before = closed(past, SESSION + 1)
    [late] = remember(past, "Ann's number is 17")
    then = closed(past, SESSION + 2)
    operations.discard(past, [late], ME)
    after = closed(past, SESSION + 3)
    related = {each.number: each.why for each in redaction.preview(fresh(past), [late]).related}
    assert related == {then: "shown"}
    assert not {before, after} & related.keys()
    redact(past, late)


def test_what_says_the_same_as_a_merge_of_it_is_listed_too(past: Agent) -> None:
    [copy] = remember(past, "Ann likes tea, black and green")
    operations.consolidate(past, [copy, 3], "Ann likes tea and milk", ME, dropping=["colours"])
    of_copy = copy + 1
    related = {each.number: each.why for each in redaction.preview(fresh(past), [2]).related}
    assert related == {5: "merged", copy: "same words", of_copy: "merged"}


def closed(agent: Agent, session: int) -> int:
    """The notice of a session that opens and ends here, unless it was opened before."""
    with edits.begin(fresh(agent), "session_opened", steps.SYSTEM, session=session) as edit:
        edit.finish(always=True)
    ended: dict[str, Any] = {"operation": "session_closed", "actor": steps.SYSTEM, "detail": {}, "session": session}
    return operations.notify(fresh(agent), f"session {session} ended", **ended).memory.number


def test_what_was_redacted_is_not_listed_again(past: Agent) -> None:
    redact(past, 5)
    assert redaction.preview(fresh(past), [1]).related == ()


# --- what is meant


def test_it_works_while_memory_is_switched_off(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(memory_enabled=False)
    redact(fresh(past), 1)


def test_a_constitutional_memory_needs_to_be_meant(past: Agent) -> None:
    steps.protect(past, 3)
    asked = ask(past, 3)
    with refused(past, errors.Constitutional):
        redaction.redact(past, asked, ME)
    assert redaction.redact(past, asked, ME, include_constitutional=True).constitutional == (3,)
    assert fresh(past).constitutional_count == 0
    assert problems(past) == []


# --- no way back


def test_nothing_restores_it(past: Agent) -> None:
    redact(past, 3)
    with refused(past, errors.Redacted):
        operations.restore(past, [3], PERSON)
    for verb in (operations.discard, operations.protect):
        with refused(past, errors.Discarded):
            verb(past, [3], PERSON)
    with refused(past, errors.Redacted):
        rollback.roll_back(past, What.entry(last_entry(past).seq), PERSON)


def test_the_time_machine_restores_the_rest(past: Agent) -> None:
    redact(past, 1)
    merge = last_entry(past).seq - 2
    figures = rollback.roll_back(past, What.entry(merge), PERSON)
    assert (figures.redacted, figures.conflicts, figures.restored) == ((1,), (), 1)
    assert steps.active(past) == [2, 3, 4]
    rollback.roll_back(past, What.since_entry(2), PERSON)
    assert (row(past, 1).sealed, row(past, 1).redacted_at is None) == (b"", False)
    assert problems(past) == []


def test_a_redaction_is_never_undone(past: Agent) -> None:
    redact(past, 1)
    redacted = last_entry(past).seq
    rollback.roll_back(past, What.since_entry(2), PERSON)
    undone = Undone.of(fresh(past))
    assert (undone.by(redacted), undone.by(redacted - 2)) == (None, redacted + 1)


def test_a_fault_in_the_midst_leaves_all_as_it_was(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ask(past, 1)

    def fails(*_: object) -> None:
        raise DatabaseError

    monkeypatch.setattr(trail, "strip", fails)
    before = everything(past)
    with refused(past, DatabaseError):
        redaction.redact(past, asked, ME)
    assert everything(past) == before


@pytest.mark.parametrize("values", [{"sealed": b"x"}, {"digest": b"x" * 32}, {"discarded_at": None}])
def test_the_database_keeps_a_redacted_memory_empty(past: Agent, values: dict[str, Any]) -> None:
    redact(past, 1)
    with pytest.raises(DatabaseError), transaction.atomic():
        Memory.objects.filter(agent_id=past.pk, number=1).update(**values)


# --- an open session


def test_an_open_session_ends_without_its_models_words(past: Agent) -> None:
    opened = sessions.open_session(past, trigger="manual")
    opened.summaries = Silo.for_agent(past).seal_text("summary", opened.number, "Ann likes tea")
    opened.save()
    redaction.redact(past, ask(past, 1), ME)
    ended = RefinementSession.objects.get(pk=opened.pk)
    assert (ended.outcome, ended.reason, ended.summaries) == (Outcome.INCOMPLETE, "redaction", None)
    notice = steps.says(past, max(steps.active(past)))
    assert "Ann" not in notice.content
    assert "ended early (redaction)" in notice.content


def test_a_refused_redaction_leaves_the_session_open(past: Agent) -> None:
    steps.protect(past, 3)
    opened = sessions.open_session(past, trigger="manual")
    asked = ask(past, 3)
    with pytest.raises(errors.Constitutional):
        redaction.redact(past, asked, ME)
    assert RefinementSession.objects.get(pk=opened.pk).outcome == Outcome.OPEN


def test_a_draft_of_the_same_text_is_a_memory_like_any_other(past: Agent) -> None:
    redact(past, 3)
    assert operations.remember(past, [Draft("milk")], ME).memory.number == 6
    assert problems(past) == []
