"""Redactions of versions of memories in stores, and of whole memories in stores."""

from typing import Any

import pytest

from audit import guards
from audit.models import AuditEntry, Change, Operation
from audit.trail import Actor, has_body
from memory import errors
from memory.agents import lifecycle
from memory.consent import granted_reads, redaction, requests
from memory.errors import Invalid
from memory.models import Agent, DueReason, Memory, RecordedSession, StoreVersion
from memory.recording import sessions as recorded_sessions
from memory.search import stores as store_reading
from memory.silo.silo import Silo
from memory.writing import edits, operations, stores
from refinement import session as sessions
from refinement.models import Outcome
from tests import access_requests
from tests.conftest import drop_guards
from tests.rules.recordings import talk
from tests.steps import ME, PERSON, SYSTEM, fresh, last_entry, problems, row, says
from tests.unit.test_stores import new, tree, undo, versions

pytestmark = pytest.mark.database


def test_a_version_that_is_redacted_while_it_is_read_has_no_content(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    rows = store_reading.versions(fresh(ada), store, {}, before=None, limit=9)
    redact_version(ada, 1, first)
    found = store_reading.opened(fresh(ada), rows, is_full=True)
    assert [(each.content, each.redacted_by is None) for each in found] == [("milk", True), (None, False)]


def redact_version(agent: Agent, number: int, seq: int) -> None:
    redaction.redact_version(fresh(agent), StoreVersion.objects.get(number=number, seq=seq), ME)


def test_a_version_is_redacted_and_the_others_stay(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk", path="/b")
    redact_version(ada, 1, first)
    operations.promote(fresh(ada), 1, ME)
    assert versions(ada, store) == [("modified", "milk"), ("created", None)]
    assert tree(ada, store) == {"/b": "milk"}
    bodies = Change.objects.filter(agent_id=ada.pk, number=1).order_by("seq")
    assert [(each.before and has_body(bytes(each.before)), has_body(bytes(each.after))) for each in bodies] == [
        (None, False), (False, True), (True, True), (True, True)
    ]  # fmt: skip
    assert problems(ada) == []
    with pytest.raises(errors.Redacted):
        undo(ada, first + 1)


def test_the_newest_version_of_a_memory_is_not_redacted(ada: Agent) -> None:
    store = new(ada, a="quince")
    seq = StoreVersion.objects.get().seq
    before = last_entry(ada).seq
    with pytest.raises(Invalid, match="present content"):
        redact_version(ada, 1, seq)
    assert last_entry(ada).seq == before
    stores.discard(fresh(ada), store, 1, ME)
    redact_version(ada, 1, seq)
    assert row(ada, 1).redacted_at is not None
    assert versions(ada, store) == [("deleted", None), ("created", None)]
    assert problems(ada) == []


def test_an_old_version_with_the_present_content_is_not_redacted(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="x", version=first).number
    undo(ada, last_entry(ada).seq - 1)
    with pytest.raises(Invalid, match="present content"):
        redact_version(ada, 1, first)
    with pytest.raises(Invalid, match="present content"):
        redaction.redact(fresh(ada), request, ME)
    stores.revise(fresh(ada), store, 1, ME, content="tea")
    redact_version(ada, 1, first)
    assert versions(ada, store) == [("modified", "tea"), ("modified", None), ("modified", "milk"), ("created", None)]
    assert problems(ada) == []


def test_versions_whose_words_may_be_elsewhere_are_not_redacted(ada: Agent) -> None:
    """In the vault and in prompts, if the memory was in core; or in another memory."""
    store = new(ada, a="quince", b="quince", c="pear")
    operations.promote(fresh(ada), 3, ME)
    operations.consolidate(fresh(ada), [1, 2], "quinces", ME, store=store)
    for number in (3, 4):
        first = StoreVersion.objects.filter(number=number).earliest("seq").seq
        stores.revise(fresh(ada), store, number, ME, content="milk")
        with pytest.raises(Invalid, match="the removal of the whole memory"):
            redact_version(ada, number, first)


def test_words_that_are_still_the_present_content_are_not_redacted(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    for change in ({"path": "/b"}, {"content": "milk"}, {"content": "quince"}):
        stores.revise(fresh(ada), store, 1, ME, **change)
    with pytest.raises(Invalid, match="present content"):
        redact_version(ada, 1, first)


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_version_that_a_model_may_have_read_is_redacted_with_its_memory(
    ada: Agent, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model can copy its words into other memories, and into its summary."""

    def refine() -> None:
        session = sessions.open_session(fresh(ada), trigger=DueReason.MANUAL)
        sessions.end(fresh(ada), session, Outcome.COMPLETED)

    def step(name: str) -> None:
        if name == when:
            refine()

    step("before")
    store = new(ada, a="quince")
    number = Memory.objects.of(ada).latest("number").number
    first = row(ada, number).version
    step("during")
    stores.revise(fresh(ada), store, number, ME, content="milk")
    step("after")
    if when == "during":
        monkeypatch.setattr(edits, "locked", lambda _: pytest.fail("the agent was locked"))
        with pytest.raises(Invalid, match="was read by a model"):
            redact_version(ada, number, first)
    else:
        redact_version(ada, number, first)
        assert versions(ada, store) == [("modified", "milk"), ("created", None)]


def test_a_person_with_a_grant_still_reads_the_present_text_of_a_memory_with_a_redacted_version(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    redact_version(ada, 1, first)
    number = access_requests.granted(fresh(ada))
    assert access_requests.read(ada, number, 1) == ["milk"]
    [step] = granted_reads.entry(fresh(ada), number, access_requests.PAT, first)
    assert step.after is None or step.after.opened is None


@pytest.mark.parametrize("is_foreseen", [False, True])
def test_a_version_that_is_redacted_during_a_read_is_not_shown_although_sql_puts_it_back(
    ada: Agent, monkeypatch: pytest.MonkeyPatch, is_foreseen: bool
) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    number, ahead = access_requests.granted(ada), granted_reads._entry_ahead

    def then_redacted(*given: Any) -> Any:
        found, old = ahead(*given), list(Change.objects.filter(agent_id=ada.pk, number=1))
        redact_version(ada, 1, first)
        drop_guards("audit_change")
        for each in old:
            each.save()
        guards.restore_triggers()
        return found

    monkeypatch.setattr(granted_reads, "_entry_ahead", then_redacted)
    read_with = fresh(ada)
    read_with.redacted_seq = foreseen = read_with.audit_seq + 2 if is_foreseen else 0
    with pytest.raises(errors.NotGranted):
        granted_reads.entry(read_with, number, access_requests.PAT, first)
    assert foreseen in (0, fresh(ada).redacted_seq)


def test_a_version_that_a_dream_copied_is_redacted_with_its_memory(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    copied = stores.create(fresh(ada), stores.About("copy"), SYSTEM).number
    stores.copy(fresh(ada), store, copied, 0, SYSTEM)
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    with pytest.raises(Invalid, match="a dream copied"):
        redact_version(ada, 1, first)
    of_copy = row(ada, 2).version
    stores.revise(fresh(ada), copied, 2, ME, content="milk")
    with pytest.raises(Invalid, match="a dream copied"):
        redact_version(ada, 2, of_copy)
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number
    assert redaction.redact(fresh(ada), request, ME).memories == (1, 2)


def test_rows_of_versions_that_sql_changes_shield_nothing_and_redirect_nothing(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    second = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="tea")
    StoreVersion.objects.filter(seq=second).update(operation="deleted")
    redact_version(ada, 1, second)
    StoreVersion.objects.filter(seq=second).update(operation="modified")
    assert versions(ada, store) == [("modified", "tea"), ("modified", None), ("created", "quince")]
    stores.discard(fresh(ada), store, 1, ME)
    redact_version(ada, 1, row(ada, 1).version)
    assert row(ada, 1).redacted_at is not None
    StoreVersion.objects.filter(seq=first).update(redaction=9)
    StoreVersion.objects.exclude(seq=first).delete()
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number
    redaction.redact(fresh(ada), request, ME)
    changes = Change.objects.filter(agent_id=ada.pk, number=1)
    assert not any(has_body(bytes(side)) for each in changes for side in (each.before, each.after) if side)
    assert problems(ada) == []


def test_after_the_redaction_of_a_deleted_memorys_version_the_others_can_be_redacted(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    for content in ("milk", "tea", ""):
        stores.revise(fresh(ada), store, 1, ME, content=content)
    stores.revise(fresh(ada), store, 1, ME, content="coffee")
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number
    stores.discard(fresh(ada), store, 1, ME)
    redact_version(ada, 1, StoreVersion.objects.filter(operation="modified").latest("seq").seq)
    redact_version(ada, 1, first)
    assert [content for _, content in versions(ada, store)] == [None, None, "", "tea", "milk", None]
    redaction.redact(fresh(ada), request, ME)
    assert {content for _, content in versions(ada, store)} == {None}
    with pytest.raises(errors.Redacted):
        requests.ask_redaction(fresh(ada), [1], PERSON, reason="x")
    assert problems(ada) == []


def test_notes_about_a_redacted_version_are_removed(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    with edits.begin(fresh(ada), Operation.REVISED, ME) as edit:
        edit.note = "It says quince."
        edit.rewrite(*edit.take([1]), "milk", (), Silo.for_agent(edit.agent))
        noted = edit.finish().seq
    redact_version(ada, 1, first)
    assert AuditEntry.objects.get(agent_id=ada.pk, seq=noted).sealed is None
    assert versions(ada, store) == [("modified", "milk"), ("created", None)]
    assert problems(ada) == []


def test_empty_files_are_not_related(ada: Agent) -> None:
    new(ada, a="", b="", c="tea")
    assert redaction.preview(fresh(ada), [1]).memories == (1,)


def test_a_steward_decides_about_the_redaction_of_a_version(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    lifecycle.change(fresh(ada), ME, steward="steward@acme.test")
    for _ in range(2):  # the second call asks nothing new
        with pytest.raises(errors.ConsentRequired, match="steward"):
            redact_version(ada, 1, first)
    [request] = requests.waiting(fresh(ada), "redaction_requested")
    assert (request.memories, request.version) == ((1,), first)
    with pytest.raises(errors.ConsentRequired, match="your own request"):
        redaction.redact(fresh(ada), request.number, ME)
    assert versions(ada, store)[-1] == ("created", "quince")
    redaction.redact(fresh(ada), request.number, Actor.steward("steward@acme.test"))
    assert versions(ada, store)[-1] == ("created", None)


def test_a_redacted_version_does_not_settle_a_request_for_its_memory(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="request 17").number
    redact_version(ada, 1, first)
    assert [each.number for each in requests.waiting(fresh(ada), "redaction_requested")] == [request]
    redaction.redact(fresh(ada), request, ME)
    assert versions(ada, store) == [("deleted", None), ("modified", None), ("created", None)]
    assert problems(ada) == []


def test_an_agent_without_a_steward_redacts_as_many_versions_as_it_wants(ada: Agent, settings: Any) -> None:
    settings.ASKS_PER_PERSON = settings.ASKS_PER_AGENT = 1
    store = new(ada, a="quince")
    for content in ("tea", "milk", "coffee"):
        seq = StoreVersion.objects.latest("seq").seq
        stores.revise(fresh(ada), store, 1, ME, content=content)
        redact_version(ada, 1, seq)
    assert [content for _, content in versions(ada, store)] == ["coffee", None, None, None]


@pytest.mark.parametrize("seq_of_change", [0, 1])
def test_a_redacted_version_is_not_read_with_a_change_that_sql_inserts(ada: Agent, seq_of_change: int) -> None:
    store = new(ada, a="quince")
    seq = row(ada, 1).version
    former = Memory.objects.filter(agent=ada, number=1)
    old = former.values("sealed", "digest", "store", "place").get()
    after = bytes(Change.objects.get(agent_id=ada.pk, number=1, seq=seq).after)
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    redact_version(ada, 1, seq)
    number = access_requests.granted(ada)
    Change.objects.create(agent_id=ada.pk, seq=seq_of_change, number=1, after=after)
    former.update(**old, version=seq_of_change)
    assert access_requests.read(ada, number, 1) == []


@pytest.mark.parametrize("changed", [{}, {"place": b"x"}])
def test_a_redacted_version_that_sql_puts_back_is_not_read(ada: Agent, changed: dict[str, Any]) -> None:
    store = new(ada, a="quince", b="milk")
    seq = row(ada, 1).version
    stores.discard(fresh(ada), store, 1, ME)
    former = Memory.objects.filter(agent=ada, number=1)
    old = former.values("sealed", "digest", "store", "place", "version", "redacted_at", "discarded_at").get()
    number = access_requests.granted(ada)
    assert access_requests.read(ada, number, 1, 2) == ["quince", "milk"]
    redact_version(ada, 1, seq)
    former.update(**old | changed)
    assert access_requests.read(ada, number, 1, 2) == ["milk"]


def test_a_redacted_memory_that_sql_puts_back_is_copied_nowhere(ada: Agent) -> None:
    """Neither into another store, nor into the memory of a session. SQL could then remove it again."""
    store, copied = new(ada, a="quince", b="milk"), new(ada)
    for prompt in ("Never plant a quince again.", "Never drink milk again."):
        talk(ada, prompt, session="s")
    for number in (1, 3):
        former = Memory.objects.filter(agent=ada, number=number)
        old = former.values("sealed", "digest", "store", "place", "redacted_at", "discarded_at").get()
        asked = requests.ask_redaction(fresh(ada), [number], PERSON, reason="a request").number
        redaction.redact(fresh(ada), asked, ME)
        former.update(**old)
    assert stores.copy(fresh(ada), store, copied, 0, ME) == 2
    assert tree(ada, copied) == {"/b": "milk"}
    ended = recorded_sessions.end_session(fresh(ada), RecordedSession.objects.get().name, ME)
    assert ended is not None
    text = says(ada, ended.memory.number).content
    assert ("quince" in text, "milk" in text) == (False, True)


def test_a_redacted_version_that_sql_puts_back_is_not_stored_again(ada: Agent) -> None:
    store, copied = new(ada, a="quince"), new(ada)
    former, seq = Memory.objects.filter(agent=ada, number=1), row(ada, 1).version
    old = former.values("sealed", "digest", "store", "place", "version", "tokens").get()
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    redact_version(ada, 1, seq)
    for version in (seq, row(ada, 1).version):
        former.update(**old | {"version": version})
        with pytest.raises(errors.SealBroken):
            stores.revise(fresh(ada), store, 1, ME, path="/b")
        assert stores.copy(fresh(ada), store, copied, 0, ME) == 1
        assert tree(ada, copied) == {}
