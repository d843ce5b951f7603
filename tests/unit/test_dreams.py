"""Dreams: a refinement session of a memory store or of a copy, and what it may change."""

import re
from typing import Any

import pytest
from django.utils import timezone

from audit.models import AuditEntry, Operation
from memory import errors
from memory.access.authentication import agent_key, new_request, prefix_of, request_key
from memory.agents import lifecycle
from memory.consent import claims, redaction, requests
from memory.models import Agent, Memory, RecordedSession, Store
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import edits, stores
from refinement import allowance, backlog, dreams, ledger, loop, prompts, tools, worker
from refinement import session as sessions
from refinement.errors import AllowanceSpent, BackingOff, DreamOver, DreamRunning
from refinement.knife import Knife
from refinement.llm.base import NoModel
from refinement.models import Dream, Mode, Outcome, RefinementSession, Share, Waiting
from tests.claiming import claim
from tests.conftest import drop_guards
from tests.refining import Held, fill, filler, notice
from tests.rules.recordings import talk
from tests.steps import ME, PERSON, fresh, problems, remember, row, signed_update
from tests.unit.test_stores import new, tree, versions

pytestmark = pytest.mark.database


@pytest.fixture
def ada(ada: Agent) -> Agent:
    return lifecycle.change(fresh(ada), ME, model="builtin/dedupe")


def dream(agent: Agent, store: int, *, is_copy: bool = False, **more: Any) -> Dream:
    with edits.locked(fresh(agent)) as locked:
        return dreams.create(locked, store, more.pop("recorded", ()), is_copy=is_copy, **more)


def opened(agent: Agent, store: int, **more: Any) -> Held:
    """The open session of a new dream, with the whole ledger shown."""
    dream(agent, store, **more)
    session = dreams.begin(fresh(agent))
    assert session is not None
    held = Held(session, Knife(session))
    held.knife.show(0, 1, ledger.read(fresh(agent), store=session.store))
    return held


def state(agent: Agent) -> Any:
    return dreams.find(fresh(agent), 1)


def test_a_worker_runs_a_dream_of_a_store(ada: Agent) -> None:
    text = "The green boat of Ana lies in the harbour of Cork"
    lifecycle.change(fresh(ada), ME, retention="0.5")
    store = new(ada, a=f"{text}.", b=f"{text}!", c="Tea is hot.")
    remember(ada, text)
    dream(ada, store)
    backlog.add(fresh(ada))
    assert worker.refine_next(ada.pk) == Outcome.COMPLETED
    assert (state(ada).status, state(ada).output) == ("completed", store)
    assert set(tree(ada, store)) in ({"/a", "/c"}, {"/b", "/c"})
    assert Memory.objects.of(ada).kept().filter(superseded_by__isnull=False, store=None).count() == 2
    assert fresh(ada).core_count == 1  # of core, nothing was changed
    assert "memories of memory store 1" in notice(ada)
    assert problems(ada) == []
    assert not Waiting.objects.exists()


def test_a_dream_of_a_copy_leaves_the_store_as_it_is(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_AT_ONCE", 2)
    store = new(ada, a="tea", b__c="milk", d="beer", e="water", f="wine")
    before = tree(ada, store)
    dream(ada, store, is_copy=True)
    monkeypatch.setattr(edits, "tokens", None)  # those of the copies are not counted again
    session = dreams.begin(fresh(ada))
    assert session is not None
    assert (session.store, session.memories_before) == (2, 5)
    assert tree(ada, 2) == before == tree(ada, store)
    assert stores.about(fresh(ada), stores.find(ada, 2)).name == "notes (dream 1)"
    loop.drive(session)
    assert (state(ada).status, state(ada).output) == ("completed", 2)
    assert (tree(ada, store), problems(ada)) == (before, [])


def test_the_instructions_of_the_newest_dreams_are_kept(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim deleted those of 40,000 canceled dreams, and held SQLite's writer for two seconds."""
    monkeypatch.setattr(dreams, "KEPT", 2)
    store = new(ada, a="tea")
    for number in range(1, 5):
        dream(ada, store, instructions="Keep the tea.")
        dreams.cancel(fresh(ada), number)
    assert sorted(dreams.instructions(fresh(ada), Dream.objects.all())) == [3, 4]


def test_a_merge_keeps_the_path_of_its_first_source_and_the_others_leave(ada: Agent) -> None:
    store = new(ada, a="Ana has a boat.", b="The boat is green.", c="tea")
    lifecycle.change(fresh(ada), ME, retention="0.5")
    held = opened(ada, store)
    done = held.call("consolidate_memories", ids_to_merge=[2, 1], new_content="Ana has a green boat.")
    assert done["ok"], done
    assert tree(ada, store) == {"/b": "Ana has a green boat.", "/c": "tea"}
    assert [(row(ada, n).store, row(ada, n).layer, row(ada, n).superseded_by) for n in (1, 2)] == [
        (None, "beneath", done["id"])
    ] * 2
    assert [name for name, _ in versions(ada, store)][:3] == ["created", "deleted", "deleted"]
    assert held.call("update_memory", id=done["id"], content="Ana has a green boat in Cork.")["ok"]
    assert held.call("complete_refinement", summary="done")["session"] == "completed"
    rollback.roll_back(fresh(ada), What("session", held.session.number), ME)
    assert tree(ada, store) == {"/a": "Ana has a boat.", "/b": "The boat is green.", "/c": "tea"}
    assert problems(ada) == []


def test_a_dream_changes_only_its_store(ada: Agent) -> None:
    store = new(ada, a="tea one two three", b="milk")
    new(ada, c="tea of another store")
    remember(ada, "tea of core")
    held = opened(ada, store)
    found = held.call("search_memories", query="tea")["found"]
    assert {each["id"] for each in found} == {1, 3, 4}
    for number in (3, 4):
        assert held.call("update_memory", id=number, content="tea")["code"] == "bad_call"
        assert held.call("delete_memory", id=number)["code"] == "bad_call"
    merge = {"ids_to_merge": [1, 4], "new_content": "tea one two three of core"}
    assert held.call("consolidate_memories", **merge)["code"] == "bad_call"
    for tool in ("promote_memory", "demote_memory", "protect_memory"):
        assert held.call(tool, id=1)["code"] == "unknown_tool"


def test_the_floor_and_the_limit_of_deletions_count_the_tokens_of_the_store(ada: Agent) -> None:
    fill(ada, 20, 50)
    store = new(ada, **{f"f{n}": filler(50, n) for n in range(10)})
    lifecycle.change(fresh(ada), ME, retention="0.5")
    held = opened(ada, store)
    first = Memory.objects.of(ada).filter(store=store).order_by("number").values_list("number", flat=True)[0]
    assert (held.row.tokens_before, held.row.floor_tokens) == (500, 250)
    assert held.call("delete_memory", id=first)["ok"]
    assert held.call("delete_memory", id=first + 1)["code"] == "deleted_too_much"
    merge = {"ids_to_merge": list(range(first + 1, first + 8)), "new_content": filler(50, 1)}
    assert held.call("consolidate_memories", **merge)["code"] == "floor"
    assert held.row.tokens_after == 450


def test_several_dreams_together_do_not_go_below_the_floor(ada: Agent) -> None:
    store = new(ada, **{f"f{n}": filler(100, n) for n in range(10)})
    lifecycle.change(fresh(ada), ME, retention="0.9")
    held = opened(ada, store)
    assert held.call("consolidate_memories", ids_to_merge=[1, 2], new_content=filler(100, 1))["ok"]
    sessions.close(held.row, Outcome.COMPLETED, "done")
    Dream.objects.update(status=Dream.Status.COMPLETED)
    held = opened(ada, store)
    assert (held.row.tokens_before, held.row.floor_tokens) == (900, 900)
    assert held.call("delete_memory", id=3)["code"] == "floor"


def test_a_dream_does_not_change_a_store_that_was_archived_meanwhile(ada: Agent) -> None:
    store = new(ada, **{f"f{n}": filler(20, n) for n in range(9)})
    held = opened(ada, store)
    stores.archive(fresh(ada), store, ME)
    assert held.call("consolidate_memories", ids_to_merge=[1, 2], new_content=filler(30, 1))["code"] == "store_archived"
    assert held.call("update_memory", id=3, content=filler(19, 3))["code"] == "store_archived"


@pytest.mark.parametrize("ended", ["revoked", "suspended"])
def test_a_dream_of_an_ended_key_does_not_begin(ada: Agent, ended: str) -> None:
    store, key = new(ada, a="Ana has a boat."), lifecycle.issue_key(fresh(ada), ME)
    with new_request():
        request_key.set(agent_key(key))
        dream(ada, store)
    if ended == "revoked":
        lifecycle.revoke_key(fresh(ada), prefix_of(key), ME)
    else:
        lifecycle.suspend_keys(fresh(ada), PERSON)
    assert dreams.begin(fresh(ada)) is None
    assert (state(ada).status, state(ada).error) == ("failed", "key_rejected")


def test_sql_does_not_bring_back_a_dream_from_before_a_claim(ada: Agent) -> None:
    dream(ada, new(ada, a="Ana has a boat."), instructions="Repeat all memories.")
    old = Dream.objects.values("instructions", "created_at").get()
    claim(fresh(ada), keep=["model"])
    assert Dream.objects.get().instructions is None
    for values in ({}, old, old | {"created_at": timezone.now()}):
        Dream.objects.update(status="pending", ended_at=None, error="", **values)
        assert dreams.begin(fresh(ada)) is None
        assert state(ada).status == "failed"


@pytest.mark.parametrize("values", [{"key": None}, {"is_copy": False}, {"store": 2}, {"model": "x"}, {"recorded": [9]}])
def test_a_dream_that_sql_changes_does_not_begin(ada: Agent, values: dict[str, Any]) -> None:
    store, key = new(ada, a="Ana has a boat."), lifecycle.issue_key(fresh(ada), ME)
    new(ada, b="another store")
    with new_request():
        request_key.set(agent_key(key))
        dream(ada, store, is_copy=True)
    Dream.objects.update(**values)
    assert dreams.begin(fresh(ada)) is None
    assert (state(ada).status, Store.objects.count()) == ("failed", 2)


def test_sql_cannot_send_the_copy_of_a_dream_to_another_store(ada: Agent) -> None:
    store, other = new(ada, a="Ana has a boat."), new(ada, b="another store")
    dream(ada, store, is_copy=True)
    Dream.objects.update(output=other)
    assert dreams.begin(fresh(ada)) is None
    assert Memory.objects.filter(store=other).count() == 1


def test_the_model_gets_the_instructions_and_the_recordings(ada: Agent) -> None:
    store = new(ada, a="Ana has a boat.")
    assert talk(ada, "What colour has the boat, from now on?", "It is green.", session="s1").numbers
    recorded = RecordedSession.objects.filter(agent_id=ada.pk)
    held = opened(ada, store, instructions="Keep colours.", recorded=recorded)
    entries = ledger.read(fresh(ada), store=store)
    rules, text = (message.text for message in prompts.opening(fresh(ada), held.row, entries, 1, 1))
    named = {name for name in tools.TOOLS if re.search(rf"\b{name}\b", rules + text)}
    assert named <= tools.OFFERED[Mode.STORE].keys()
    assert "follow these instructions of the client, as far as the rules allow it: Keep colours." in text
    assert ("It is green." in text, '"path":"/a"' in text) == (True, True)
    longer = "Ana has a boat. " + filler(30)
    assert held.call("update_memory", id=1, content=longer)["ok"]  # the recordings have more than 14 tokens
    assert Dream.objects.get().instructions is not None
    assert b"colours" not in bytes(Dream.objects.get().instructions or b"")


def test_an_agent_has_one_dream_at_a_time(ada: Agent) -> None:
    store = new(ada, a="tea")
    dream(ada, store)
    with pytest.raises(DreamRunning):
        dream(ada, store, is_copy=True)
    with pytest.raises(DreamRunning):
        dreams.archive(fresh(ada), 1)
    dreams.cancel(fresh(ada), 1)
    assert dreams.begin(fresh(ada)) is None
    assert dreams.archive(fresh(ada), 1).archived_at is not None
    opened(ada, store)
    with pytest.raises(DreamRunning):
        dream(ada, store)


def test_a_dream_fails_if_the_model_changes(ada: Agent) -> None:
    dream(ada, new(ada, a="tea"))
    lifecycle.change(fresh(ada), ME, model="builtin/archive")
    assert dreams.begin(fresh(ada)) is None
    assert (state(ada).status, state(ada).error, "no longer" in state(ada).problem) == ("failed", "invalid", True)


def test_instructions_that_sql_puts_back_after_a_redaction_are_lost(ada: Agent) -> None:
    dream(ada, new(ada, a="tea", b="milk"), instructions="secret")
    assert dreams.instructions(fresh(ada), [state(ada)]) == {1: "secret"}
    sealed = state(ada).instructions
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number
    redaction.redact(fresh(ada), request, ME)
    Dream.objects.update(instructions=sealed)
    assert dreams.instructions(fresh(ada), [state(ada)]) == {}
    drop_guards()
    AuditEntry.objects.filter(agent_id=ada.pk, operation=Operation.REDACTED).update(operation="rolled_back")
    assert dreams.instructions(fresh(ada), [state(ada)]) == {}, "the signed row has the redaction"


def test_a_dream_shows_only_recordings_whatever_sql_wrote_into_their_session(ada: Agent) -> None:
    talk(ada, "Which tea?", session="monday")
    session = RecordedSession.objects.get(agent=ada)
    [other] = remember(ada, "No recording.")
    RecordedSession.objects.update(numbers=[*session.numbers, other])
    shown = dreams.recordings(fresh(ada), Dream(recorded=[session.pk]))
    assert (len(shown), "Which tea?" in shown[0]) == (1, True)


def test_a_canceled_dream_keeps_its_edits(ada: Agent) -> None:
    lifecycle.change(fresh(ada), ME, retention="0.5")
    store = new(ada, a="Ana has a boat.", b="The boat is green.")
    held = opened(ada, store)
    held.call("consolidate_memories", ids_to_merge=[1, 2], new_content="Ana has a green boat.")
    assert dreams.cancel(fresh(ada), 1).status == dreams.cancel(fresh(ada), 1).status == "canceled"
    assert held.call("update_memory", id=3, content="x")["code"] == "session_ended"
    assert tree(ada, store) == {"/a": "Ana has a green boat."}
    assert state(ada).ended_at == held.row.closed_at


def test_a_dream_that_is_over_is_not_canceled(ada: Agent) -> None:
    dream(ada, new(ada, a="tea"))
    backlog.add(fresh(ada))
    worker.refine_next(ada.pk)
    with pytest.raises(DreamOver):
        dreams.cancel(fresh(ada), 1)
    with pytest.raises(errors.NotFound):
        dreams.cancel(fresh(ada), 2)


def test_what_prevents_a_dream(ada: Agent) -> None:
    store = new(ada, a="tea")
    with pytest.raises(errors.NotFound):
        dream(ada, 9)
    stores.archive(fresh(ada), store, ME)
    with pytest.raises(errors.StoreArchived):
        dream(ada, store)
    signed_update(Agent.objects.filter(pk=ada.pk), model="")
    with pytest.raises(NoModel):
        dream(ada, store, is_copy=True)
    signed_update(Agent.objects.filter(pk=ada.pk), model="builtin/dedupe")
    dream(ada, store, is_copy=True)
    backlog.add(fresh(ada))
    assert worker.refine_next(ada.pk) == Outcome.COMPLETED
    with pytest.raises(BackingOff):  # it changed nothing
        dream(ada, store, is_copy=True)


def test_a_store_that_is_too_large_and_a_spent_allowance_prevent_a_dream(
    ada: Agent, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    store = new(ada, a="tea, milk and beer")
    with monkeypatch.context() as patch:
        patch.setattr(dreams, "MAX_TOKENS", 4)
        with pytest.raises(errors.Invalid, match="more than 4 tokens"):
            dream(ada, store)
    Share.objects.create(tenant_id=ada.tenant_id, month=allowance.month_of(timezone.now()), model_tokens=10**9)
    settings.MONTH_TOKENS = 1_000
    with pytest.raises(AllowanceSpent):
        dream(ada, store)


def test_a_dream_that_is_canceled_while_a_worker_copies_ends(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    dream(ada, new(ada, a="tea"), is_copy=True)
    copy = stores.copy

    def then_canceled(*given: Any) -> Any:
        made = copy(*given)
        Dream.objects.update(status="canceled")
        return made

    monkeypatch.setattr(stores, "copy", then_canceled)
    assert dreams.begin(fresh(ada)) is None
    assert not RefinementSession.objects.exists()


def test_recordings_have_a_part_of_a_batch(ada: Agent, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("boat", "harbour", "kettle"):
        talk(ada, f"From now on, the {word} is green.", "Yes. " * 30, session="s1")
    recorded = RecordedSession.objects.filter(agent_id=ada.pk)
    found = dream(ada, new(ada, a="tea"), recorded=recorded)
    settings.BATCH_TOKENS = 4 * 120
    assert ["kettle" in each for each in dreams.recordings(fresh(ada), found)] == [True]
    settings.BATCH_TOKENS = 32_000  # enough for all three
    monkeypatch.setattr(dreams, "RECORDED_BYTES", 100)  # long tags have no tokens
    assert ["kettle" in each for each in dreams.recordings(fresh(ada), found)] == [True]
    monkeypatch.setattr(dreams, "MOST_RECORDED", 0)  # they are read while the agent is locked
    assert dreams.recordings(fresh(ada), found) == []


def test_a_dream_whose_store_is_deleted_fails(ada: Agent) -> None:
    store = new(ada, a="tea")
    dream(ada, store)
    stores.delete(fresh(ada), store, ME)
    assert dreams.begin(fresh(ada)) is None
    assert (state(ada).status, state(ada).error) == ("failed", "not_found")


def test_a_dream_waits_while_another_session_is_open(ada: Agent) -> None:
    dream(ada, new(ada, a="tea"))
    remember(ada, "milk")
    other = sessions.open_session(fresh(ada), trigger="manual")
    assert dreams.begin(fresh(ada)) is None
    sessions.close(other, Outcome.COMPLETED)
    assert dreams.begin(fresh(ada)) is not None


def test_a_sweep_finds_a_dream_whose_task_was_lost(ada: Agent) -> None:
    dream(ada, new(ada, a="tea"))
    assert backlog.sweep() == 1
    assert Waiting.objects.get().agent_id == ada.pk
    backlog.sweep()
    assert Waiting.objects.count() == 1


def test_many_dreams_of_one_tenant_keep_no_other_out(ada: Agent, bob: Agent, settings: Any) -> None:
    settings.SWEEP_AGENTS = 2
    more = [lifecycle.create("acme", f"d{n}", model=ada.model, actor=ME)[0] for n in range(2)]
    later, _ = lifecycle.create("globex", "later", model=bob.model, actor=ME)
    for agent in (ada, *more, later):
        dream(agent, new(agent, a="tea"))
    backlog.sweep()
    assert Waiting.objects.filter(pk=later.pk).exists()


def test_a_claim_or_a_removal_ends_dreams(ada: Agent) -> None:
    store = new(ada, a="tea")
    dream(ada, store, instructions="secret")
    claims.exchange(next(iter(ada.keys.all())), ME, keep=["model"])
    assert (state(ada).status, state(ada).error) == ("failed", "claim")
    opened(ada, store, instructions="secret")
    request = requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number
    redaction.redact(fresh(ada), request, ME)
    assert [(each.status, each.instructions) for each in Dream.objects.order_by("number")] == [("failed", None)] * 2
    assert not RefinementSession.objects.filter(outcome=Outcome.OPEN).exists()
