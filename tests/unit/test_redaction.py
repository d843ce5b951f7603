"""Redaction: what it removes, what it keeps, and that nothing restores a redacted memory."""

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from audit import trail
from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory import errors
from memory.consent import redaction, requests
from memory.consent.redaction import Figures
from memory.models import Agent, Creation, Memory
from memory.search import cache, reading
from memory.search.selection import Filters
from memory.silo.silo import Silo
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.time_machine.selection import Undone
from memory.writing import duplicates, edits, operations
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import steps
from tests.steps import (
    ME,
    PERSON,
    SESSION,
    exported,
    fresh,
    last_entry,
    problems,
    refused,
    remember,
    row,
    signed_update,
)

pytestmark = pytest.mark.database

OWNER = Actor.person("owner@acme.test")
FIGURES = ("memories", "active", "tokens_before", "tokens_after", "lineage", "related")


def ask(agent: Agent, *numbers: int, excluded: Sequence[int] = ()) -> int:
    return requests.ask_redaction(agent, numbers, OWNER, reason="request 17", excluded=excluded).number


def redact(agent: Agent, *numbers: int, excluded: Sequence[int] = (), **options: Any) -> Figures:
    """Request a redaction and agree to it. The result equals the preview, and the trail verifies."""
    expected = redaction.preview(fresh(agent), numbers, excluded)
    figures = redaction.redact(agent, ask(agent, *numbers, excluded=excluded), ME, **options)
    assert [getattr(figures, name) for name in FIGURES] == [getattr(expected, name) for name in FIGURES]
    assert figures.tokens_after == fresh(agent).core_tokens
    assert problems(agent) == []
    return figures


def changes_of(agent: Agent, number: int) -> list[Change]:
    return list(Change.objects.filter(agent_id=agent.pk, number=number).order_by("seq"))


def all_bytes(agent: Agent) -> bytes:
    """Every byte in the rows and the trail of an agent."""
    found = b""
    for model in (Memory, Change, AuditEntry):
        for values in model.objects.filter(agent_id=agent.pk).values_list():
            found += b"".join(bytes(value) for value in values if isinstance(value, bytes | memoryview))
    return found


def related(agent: Agent, number: int) -> dict[int, str]:
    """The other memories that a preview lists, and why."""
    figures = redaction.preview(fresh(agent), [number])
    return {each.number: each.why for each in (*figures.lineage, *figures.related)}


@pytest.fixture
def past(ada: Agent) -> Agent:
    """Memory 1 was revised, memories 1 and 2 were merged into 5 in a session, 3 stands alone, 4 is a journal entry."""
    remember(ada, "Ann likes tea", "Ann likes it green", "milk", tags=("drinks",))
    remember(ada, "a day", kind="journal")
    operations.revise(ada, 1, ME, content="Ann likes black tea")
    operations.consolidate(ada, [1, 2], "Ann likes tea, black and green", ME, session=SESSION)
    return ada


def test_the_body_is_removed_from_the_row_and_from_every_snapshot(past: Agent) -> None:
    bodies = {bytes(change.after)[-40:] for change in changes_of(past, 1)}
    digest = Silo.for_agent(past).digest("Ann likes black tea")
    assert all(body in all_bytes(past) for body in (*bodies, digest))
    assert redact(past, 1, excluded=[5]).changes == 3
    memory = row(past, 1)
    assert (bytes(memory.sealed), bytes(memory.digest), memory.redacted_at) == (b"", b"", last_entry(past).at)
    for change in changes_of(past, 1):
        for side in (change.before, change.after):
            assert side is None or not trail.has_body(bytes(side))
    assert not any(body in all_bytes(past) for body in (*bodies, digest))


def test_notes_of_its_edits_are_removed(past: Agent) -> None:
    [other] = remember(past, "sugar")
    operations.demote(past, [5], ME, reason="likes")
    operations.demote(past, [other], ME, reason="sugar")
    notes = AuditEntry.objects.filter(agent_id=past.pk, operation="demoted", sealed__isnull=False)
    assert notes.count() == 2
    assert redact(past, 1).notes == 1
    assert notes.get().seq == last_entry(past).seq - 2


def test_dates_authors_digests_and_macs_stay(past: Agent) -> None:
    def digests() -> list[tuple[bytes, bytes]]:
        return [(bytes(c.before_digest or b""), bytes(c.after_digest or b"")) for c in changes_of(past, 1)]

    def written() -> list[Any]:
        return list(AuditEntry.objects.filter(agent_id=past.pk).order_by("seq").values_list("at", "actor_label", "mac"))

    memory, digests_before, written_before = row(past, 1), digests(), written()
    redact(past, 1)
    for name in ("kind", "beneath_at", "category", "origin", "created_at", "tokens", "superseded_by"):
        assert getattr(row(past, 1), name) == getattr(memory, name)
    assert digests()[:-1] == digests_before
    assert written()[: len(written_before)] == written_before


def test_its_entry_names_request_numbers_and_digests(past: Agent) -> None:
    expected = {trail.body_digest(bytes(change.after)).hex() for change in changes_of(past, 1)}
    request = ask(past, 1, excluded=[5])
    redaction.redact(past, request, ME)
    entry = last_entry(past)
    assert (entry.operation, entry.actor_kind, entry.detail["request"]) == ("redacted", "agent", request)
    assert {number: set(digests) for number, digests in entry.detail["redacted"].items()} == {"1": expected}
    detail = AuditEntry.objects.get(agent_id=past.pk, seq=request).detail
    assert detail == {"reason": "request 17", "asked_by": "owner@acme.test", "memories": [1], "excluded": [5]}


def test_several_memories_are_redacted_in_one_entry_and_active_ones_are_discarded(past: Agent) -> None:
    assert redact(past, 2, 5, 1).memories == (1, 2, 5)
    assert last_entry(past).changes == 3
    assert steps.active(past) == [3, 4]
    assert row(past, 5).discarded_at == row(past, 5).redacted_at
    assert remember(past, "milk") == [6]
    assert problems(past) == []


def test_a_successor_that_only_sql_set_is_not_redacted(past: Agent) -> None:
    for number, other in ((3, 4), (4, 3)):
        Memory.objects.filter(agent_id=past.pk, number=number).update(discarded_at=timezone.now(), superseded_by=other)
    assert redaction.preview(fresh(past), [3], []).memories == (3,)


def test_an_export_leaves_it_out_and_the_silo_does_not_open_it(past: Agent) -> None:
    redact(past, 1)
    lines = "\n".join(exported(fresh(past), with_discarded=True))
    assert "milk" in lines
    assert "black tea" not in lines.replace("tea, black and green", "")
    with pytest.raises(errors.SealBroken):
        Silo.for_agent(fresh(past)).open(row(past, 1))


def test_duplicates_are_counted_without_it(ada: Agent) -> None:
    remember(ada, "the same text", "the same text", "the same text")
    assert fresh(ada).duplicate_tokens > 0
    redact(ada, 1, excluded=[2, 3])
    redact(ada, 2, excluded=[3])
    assert fresh(ada).duplicate_tokens == 0
    assert duplicates.remove(fresh(ada), session=1).seq is None


def test_fingerprints_for_idempotent_requests_are_removed(past: Agent) -> None:
    """A fingerprint is a keyed digest of the body. It could confirm a guess."""
    Creation.objects.create(agent=past, key=b"k" * 32, fingerprint=b"f" * 32, numbers=[1], at=timezone.now())
    redact(past, 1)
    assert not Creation.objects.exists()


def test_a_change_without_a_snapshot_does_not_stop_it(past: Agent) -> None:
    Change.objects.create(agent_id=past.pk, seq=fresh(past).audit_seq, number=3)
    redaction.redact(past, ask(past, 3), ME)
    assert row(past, 3).redacted_at


def found(agent: Agent, words: str) -> list[int]:
    with cache.reader(fresh(agent)) as index:
        return [hit.number for hit in index.search(words)]


def test_a_search_does_not_find_it_and_this_process_drops_its_index(
    past: Agent, django_capture_on_commit_callbacks: Any
) -> None:
    cache.forget()
    assert found(past, "black") == [1, 5]
    with django_capture_on_commit_callbacks(execute=True):
        redact(past, 5)
    assert not [place for place in cache._held if place[0] == past.pk]
    assert found(past, "black") == []


def test_another_process_builds_its_index_again(past: Agent) -> None:
    """An update would leave the removed words in the vocabulary."""
    cache.forget()
    assert found(past, "black") == [1, 5]
    [held] = [held for place, held in cache._held.items() if place[0] == past.pk]
    old = held.index
    redact(past, 5)
    cache._edited.blocks.clear()  # as in a process that made no edit
    assert (found(past, "black"), found(past, "milk")) == ([], [3])
    assert held.index is not old
    new = held.index
    remember(past, "coffee")
    cache._edited.blocks.clear()
    assert found(past, "coffee") == [6]
    assert held.index is new


def close_session(agent: Agent, session: int) -> int:
    """Open a session and close it. The number of its notice."""
    with edits.begin(fresh(agent), "session_opened", steps.SYSTEM, session=session) as edit:
        edit.finish(always=True)
    closing: dict[str, Any] = {"operation": "session_closed", "actor": steps.SYSTEM, "detail": {}, "session": session}
    return operations.notify(fresh(agent), f"session {session} ended", **closing).memory.number


def test_merges_and_copies_are_listed(past: Agent) -> None:
    operations.consolidate(past, [5, 3], "Ann drinks", ME)
    [copy] = remember(past, "Ann likes tea")  # the first content of memory 1
    steps.tell(past)
    listed = {each.number: (each.why, each.state) for each in redaction.preview(fresh(past), [1]).lineage}
    assert listed == {5: ("merged", "beneath"), 6: ("merged", "core"), copy: ("same words", "core")}
    kept = redaction.preview(fresh(past), [1], [6]).related
    assert (6, "merged", "core") in [(each.number, each.why, each.state) for each in kept]
    assert redact(past, 1, excluded=[6]).memories == (1, 5, copy)
    assert steps.says(past, 6).content == "Ann drinks"
    assert steps.says(past, 2).content == "Ann likes it green"  # its text was only in the same merge


def test_direct_and_indirect_sources_are_listed(past: Agent) -> None:
    operations.consolidate(past, [5, 3], "Ann drinks", ME)  # 5 was merged from 1 and 2
    assert related(past, 6) == dict.fromkeys((1, 2, 3, 5), "source")


def test_a_merge_that_was_rolled_back_is_listed_unless_it_is_redacted_too(past: Agent) -> None:
    rollback.roll_back(past, What("entry", last_entry(past).seq), PERSON)
    listed = [(each.number, each.why, each.state) for each in redaction.preview(fresh(past), [2]).lineage]
    assert listed == [(5, "merged", "discarded")]
    redact(past, 5, excluded=[1, 2])
    assert related(past, 1) == {}


def test_copies_of_a_merge_and_their_merges_are_listed(past: Agent) -> None:
    [copy] = remember(past, "Ann likes tea, black and green")
    operations.consolidate(past, [copy, 3], "Ann likes tea and milk", ME)
    assert related(past, 2) == {5: "merged", copy: "same words", copy + 1: "merged"}


def test_the_notice_of_a_session_that_edited_it_is_listed(past: Agent) -> None:
    notice = close_session(past, SESSION)
    later = close_session(past, SESSION + 1)  # this session could read the merged memory
    operations.discard(past, [5], ME)
    operations.discard(past, [2], ME)
    close_session(past, SESSION + 2)  # this one could not
    assert related(past, 2) == {5: "merged", notice: "notice", later: "shown"}
    redact(past, notice)


def test_the_notice_of_a_session_that_could_read_it_is_listed(past: Agent) -> None:
    """The model may have repeated a memory in its summary without editing it."""
    close_session(past, SESSION + 1)
    [late] = remember(past, "Ann's number is 17")
    notice = close_session(past, SESSION + 2)
    operations.discard(past, [late], ME)
    close_session(past, SESSION + 3)
    assert related(past, late) == {notice: "shown"}
    redact(past, late)


def test_it_works_while_memory_is_off(past: Agent) -> None:
    signed_update(Agent.objects.filter(pk=past.pk), memory_enabled=False)
    redact(fresh(past), 1)


def test_a_constitutional_memory_must_be_included_explicitly(past: Agent) -> None:
    """A refused redaction leaves an open session open."""
    steps.protect(past, 3)
    opened = sessions.open_session(past, trigger="manual")
    request = ask(past, 3)
    with refused(past, errors.Constitutional):
        redaction.redact(past, request, ME)
    assert RefinementSession.objects.get(pk=opened.pk).outcome == Outcome.OPEN
    assert redaction.redact(past, request, ME, include_constitutional=True).constitutional == (3,)
    assert fresh(past).constitutional_count == 0
    assert problems(past) == []


def test_an_open_session_ends_without_its_models_words(past: Agent) -> None:
    opened = sessions.open_session(past, trigger="manual")
    opened.summaries = Silo.for_agent(past).seal_text("summary", opened.number, "Ann likes tea")
    opened.changes = 1
    opened.save()
    redaction.redact(past, ask(past, 1), ME)
    ended = RefinementSession.objects.get(pk=opened.pk)
    assert (ended.outcome, ended.reason, ended.summaries) == (Outcome.INCOMPLETE, "redaction", None)
    notice = steps.says(past, max(steps.active(past))).content
    assert "Ann" not in notice
    assert "ended early (redaction)" in notice


def test_no_verb_restores_it(past: Agent) -> None:
    redact(past, 3)
    with refused(past, errors.Redacted):
        operations.restore(past, [3], PERSON)
    for verb in (operations.discard, operations.protect):
        with refused(past, errors.Discarded):
            verb(past, [3], PERSON)
    with refused(past, errors.Redacted):
        rollback.roll_back(past, What("entry", last_entry(past).seq), PERSON)


def test_a_rollback_restores_everything_else(past: Agent) -> None:
    redact(past, 1, excluded=[5])
    redacted = last_entry(past).seq
    figures = rollback.roll_back(past, What("entry", redacted - 2), PERSON)
    assert (figures.redacted, figures.conflicts, figures.restored) == ((1,), (), 1)
    assert steps.active(past) == [2, 3, 4]
    rollback.roll_back(past, What("since_entry", 2), PERSON)
    assert (row(past, 1).sealed, row(past, 1).redacted_at is None) == (b"", False)
    undone = Undone.of(fresh(past))
    assert (undone.by(redacted), undone.by(redacted - 2) is None) == (None, False)
    assert problems(past) == []


@pytest.mark.parametrize("values", [{"sealed": b"x"}, {"digest": b"x" * 32}, {"discarded_at": None}])
def test_the_database_refuses_content_in_a_redacted_memory(past: Agent, values: dict[str, Any]) -> None:
    redact(past, 1)
    with pytest.raises(DatabaseError), transaction.atomic():
        Memory.objects.filter(agent_id=past.pk, number=1).update(**values)


def test_a_high_version_that_sql_sets_for_a_moment_does_not_stop_the_index(ada: Agent) -> None:
    remember(ada, "tea")
    memories = Memory.objects.of(ada).filter(number=1)
    version = memories.get().version
    memories.update(version=10**12)
    reading.search(fresh(ada), "tea", filters=Filters())
    memories.update(version=version)
    remember(ada, "coffee")
    assert problems(ada) == []
    assert len(reading.search(fresh(ada), "coffee", filters=Filters())) == 1
