"""Every kind of tampering is found, nothing else is, and no finding quotes content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import F
from pytest_django import Settings

from audit import verify
from audit.models import AuditEntry, Change
from audit.trail import Actor
from config.keyfiles import new_key
from config.keyring import keyring
from memory import agents, replay, store
from memory.models import Agent, AgentKey, Memory
from memory.silo.silo import Silo
from tests import steps
from tests.conftest import drop_guards
from tests.steps import ME, PERSON, SESSION, problems, remember

SECRET = "marmalade"  # what the memories say


@pytest.fixture
def past(ada: Agent, bob: Agent) -> Agent:
    """An agent with a trail that has everything in it, with its triggers taken away."""
    remember(ada, f"{SECRET} one", f"{SECRET} two", "three", f"{SECRET} one", tags=("jam",))
    remember(ada, "log", kind="journal", project="site")
    store.revise(ada, 3, ME, content=f"{SECRET} three", dropping=[SECRET], session=SESSION)
    store.protect(ada, [4], ME, session=SESSION)
    store.consolidate(ada, [1, 2], f"{SECRET} one and two", ME, session=SESSION)
    store.unprotect(ada, [4], PERSON, reason="asked")
    store.discard(ada, [3], ME)
    remember(bob, SECRET)
    assert problems(ada) == problems(bob) == []
    drop_guards()
    return ada


def found(agent: Agent) -> list[verify.Problem]:
    """The problems, of which there are some, and which quote nothing."""
    all_of_them = problems(agent)
    assert all_of_them
    text = repr(all_of_them)
    assert SECRET not in text
    assert SECRET.encode().hex() not in text
    return all_of_them


def entries(agent: Agent) -> Any:
    return AuditEntry.objects.filter(agent_id=agent.pk)


def changes(agent: Agent) -> Any:
    return Change.objects.filter(agent_id=agent.pk)


def memories(agent: Agent) -> Any:
    return Memory.objects.filter(agent_id=agent.pk)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


OTHER: dict[str, Any] = {
    "BigIntegerField": 77,
    "PositiveBigIntegerField": 77,
    "PositiveIntegerField": 77,
    "BooleanField": True,
    "JSONField": {"x": 1},
    "BinaryField": b"\0" * 32,
    "ForeignKey": 77,
}
NEXT_VALUE = {
    "operation": "imported",
    "actor_kind": "operator",
    "kind": "journal",
    "category": "technical",
    "scope": "private",
    "source": "run",
}


def other_value(field: Any) -> Any:
    if field.name in NEXT_VALUE:
        return NEXT_VALUE[field.name]
    kind = field.get_internal_type()
    return {"DateTimeField": "2001-01-01T00:00:00+00:00", "CharField": "other"}.get(kind) or OTHER[kind]


def columns(model: type[Any], *without: str) -> list[str]:
    return [f.attname for f in model._meta.concrete_fields if f.attname not in ("id", *without)]


@pytest.mark.parametrize("column", columns(AuditEntry))
def test_an_altered_column_of_an_entry_is_found(past: Agent, bob: Agent, column: str) -> None:
    value = bob.pk + 1000 if column == "agent_id" else other_value(AuditEntry._meta.get_field(column))
    assert entries(past).filter(seq=5).update(**{column: value}) == 1
    found(past)


@pytest.mark.parametrize("column", ["session", "sealed", "sealed_digest"])
def test_an_emptied_column_of_an_entry_is_found(past: Agent, column: str) -> None:
    entries(past).filter(operation="revised").update(**{column: None})
    found(past)


@pytest.mark.parametrize("column", columns(Change))
def test_an_altered_column_of_a_change_is_found(past: Agent, column: str) -> None:
    assert changes(past).filter(seq=5, number=3).update(**{column: other_value(Change._meta.get_field(column))}) == 1
    found(past)


@pytest.mark.parametrize("column", ["before", "before_digest", "after", "after_digest"])
def test_an_emptied_snapshot_of_the_past_is_found(past: Agent, column: str) -> None:
    changes(past).filter(seq=5, number=3).update(**{column: None})
    found(past)


@pytest.mark.parametrize("column", ["before", "before_digest"])
def test_a_before_made_up_for_a_new_memory_is_found(past: Agent, column: str) -> None:
    changes(past).filter(seq=3, number=3).update(**{column: b"\0" * 32})
    found(past)


@pytest.mark.parametrize("digests_too", [False, True])
def test_a_snapshot_exchanged_for_an_older_one_is_found(past: Agent, digests_too: bool) -> None:
    import hashlib

    change = changes(past).get(seq=5, number=3)
    older = bytes(change.before)
    values = {"after": older} | ({"after_digest": hashlib.sha256(older).digest()} if digests_too else {})
    changes(past).filter(pk=change.pk).update(**values)
    found(past)


@pytest.mark.parametrize("seq", [1, 2, 3, 5, 9])
def test_a_removed_entry_is_found(past: Agent, seq: int) -> None:
    assert entries(past).filter(seq=seq).delete()[0] == 1
    found(past)


@pytest.mark.parametrize("seq", [3, 5, 9])
def test_an_entry_removed_with_its_changes_is_found(past: Agent, seq: int) -> None:
    entries(past).filter(seq=seq).delete()
    changes(past).filter(seq=seq).delete()
    found(past)


def test_a_tail_cut_off_is_found_by_the_memories_it_leaves(past: Agent) -> None:
    for model in (entries(past), changes(past)):
        model.filter(seq__gte=7).delete()
    found(past)


def test_a_last_entry_that_touched_no_memory_cut_off_is_found(past: Agent, bob: Agent) -> None:
    agent, _ = agents.create("acme", "eve", model="builtin/dedupe", actor=PERSON)
    assert problems(agent) == []
    entries(agent).filter(seq=2).delete()
    assert [p.seq for p in found(agent)] == [2, 0]  # the key it issued is in no trail now


@pytest.mark.parametrize("column", ["audit_seq", "audit_mac"])
def test_an_altered_head_in_the_agents_row_is_found(past: Agent, column: str) -> None:
    Agent.objects.filter(pk=past.pk).update(**{column: other_value(Agent._meta.get_field(column))})
    found(past)


def test_a_trail_removed_whole_is_found(past: Agent) -> None:
    entries(past).delete()
    changes(past).delete()
    assert "the trail is empty" in [problem.problem for problem in found(past)]


def test_a_removed_change_is_found(past: Agent) -> None:
    changes(past).filter(seq=3, number=2).delete()
    found(past)


def test_a_change_without_an_entry_is_found(past: Agent) -> None:
    for seq in (0, 77):
        Change.objects.create(agent_id=past.pk, seq=seq, number=1, after=b"x", after_digest=b"x")
    assert [p.seq for p in found(past) if "without their entry" in p.problem] == [0, 77]


def test_a_forged_entry_at_the_end_is_found(past: Agent) -> None:
    entry = entries(past).latest("seq")
    entry.pk, entry.seq = None, entry.seq + 1
    entry.save(force_insert=True)
    assert {p.seq for p in found(past)} == {entry.seq}


def test_two_entries_swapped_are_found(past: Agent) -> None:
    for model in (entries(past), changes(past)):
        for old, new in ((5, 1000), (6, 5), (1000, 6)):
            model.filter(seq=old).update(seq=new)
    assert {p.seq for p in found(past)} >= {5, 6}


def test_a_trail_of_another_agent_put_in_its_place_is_found(past: Agent, bob: Agent) -> None:
    entries(past).delete()
    changes(past).delete()
    entries(bob).update(agent_id=past.pk)
    changes(bob).update(agent_id=past.pk)
    found(past)
    found(bob)


@pytest.mark.parametrize("column", columns(Memory, "version"))
def test_an_altered_column_of_a_memory_is_found(past: Agent, column: str) -> None:
    value = Agent.objects.create(tenant=past.tenant, slug="eve", model="x").pk if column == "agent_id" else None
    value = value or (77 if column == "number" else other_value(Memory._meta.get_field(column)))
    assert memories(past).filter(number=6).update(**{column: value}) == 1
    found(past)


@pytest.mark.parametrize("version", [F("version") + 1, F("version") - 1])
def test_an_altered_version_is_found(past: Agent, version: Any) -> None:
    memories(past).filter(number=6).update(version=version)
    found(past)


@pytest.mark.parametrize("value", [0, 5, None])
def test_an_altered_successor_is_found(past: Agent, value: int | None) -> None:
    memories(past).filter(number=1).update(superseded_by=value)
    found(past)


def test_a_successor_of_nothing_is_found(past: Agent) -> None:
    memories(past).filter(number=6).update(superseded_by=0)
    found(past)


@pytest.mark.parametrize("number", [3, 1])
def test_a_discard_undone_by_sql_is_found(past: Agent, number: int) -> None:
    memories(past).filter(number=number).update(discarded_at=None)
    found(past)


def test_an_inserted_memory_is_found(past: Agent) -> None:
    for number in (77, 88):
        memory = steps.row(past, 6)
        memory.pk, memory.number = None, number
        memory._state.adding = True
        memory.save()
    assert [p.problem for p in found(past)][:2] == ["memory 77 is not in the trail", "memory 88 is not in the trail"]


@pytest.mark.parametrize("number", [1, 4, 6])
def test_a_removed_memory_is_found(past: Agent, number: int) -> None:
    memories(past).filter(number=number).delete()
    assert f"memory {number} is missing" in [p.problem for p in found(past)]


def test_an_older_body_put_back_is_found(past: Agent) -> None:
    older = bytes(changes(past).get(seq=5, number=3).before).partition(b"\0")[2]
    assert Silo.for_agent(past).open_sealed(3, older).content == "three"
    memories(past).filter(number=3).update(sealed=older)
    found(past)


@pytest.mark.parametrize(
    "counter",
    [
        "core_count",
        "core_tokens",
        "journal_count",
        "constitutional_count",
        "constitutional_tokens",
        "duplicate_tokens",
        "next_number",
    ],
)
@pytest.mark.parametrize("by", [1, -1])
def test_an_altered_counter_is_found(past: Agent, counter: str, by: int) -> None:
    Agent.objects.filter(pk=past.pk).update(**{counter: 50})
    Agent.objects.filter(pk=past.pk).update(**{counter: F(counter) + by})
    assert any(counter in p.problem for p in found(past))


@pytest.mark.parametrize("by", [1, -1])
def test_an_altered_high_water_mark_is_found(past: Agent, by: int) -> None:
    """Trap: lowered to what the memories weigh now, it lowers the floor of the next session."""
    row = steps.fresh(past)
    assert row.high_water_tokens - 1 > row.core_tokens - row.duplicate_tokens
    Agent.objects.filter(pk=past.pk).update(high_water_tokens=F("high_water_tokens") + by)
    assert ["high-water" in p.problem for p in found(past)] == [True]


def test_the_high_water_mark_follows_repeats_of_unlike_sizes(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal texts stored under other token counters weigh what they were stored with; the largest counts."""
    for size in (7, 90, 20):
        monkeypatch.setattr("memory.tokens.count", lambda _, size=size: size)
        remember(ada, "the same")
    assert steps.fresh(ada).high_water_tokens == 90
    store.discard(ada, [2], ME)
    remember(ada, "other", "other")
    store.restore(ada, [2], ME)
    assert steps.fresh(ada).high_water_tokens == 110
    assert problems(ada) == []


def test_an_agent_handed_to_another_tenant_is_found(past: Agent, bob: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(tenant=bob.tenant)
    assert [(p.agent, p.seq) for p in found(past)] == [("globex/ada", 1)]


def test_an_agent_handed_over_that_went_on_writing_is_found(past: Agent, bob: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(tenant=bob.tenant)
    remember(steps.fresh(past), "as another's")
    assert [p.seq for p in found(past)] == [1]
    Agent.objects.filter(pk=past.pk).update(tenant=past.tenant)
    assert [p.seq for p in found(past)] == [steps.fresh(past).audit_seq]


def test_a_renamed_agent_is_found(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(slug="eve")
    assert [p.seq for p in found(past)] == [1]


def test_a_snapshot_that_cannot_be_read_ends_nothing(past: Agent) -> None:
    changes(past).filter(seq=5, number=3).update(after=b"marmalade")
    assert {5, 0} == {p.seq for p in found(past)}


@pytest.mark.parametrize("value", ["'zz'", "1.5", "x'00'", "10000000000000"])
@pytest.mark.parametrize("column", columns(Change, "agent_id"))
@pytest.mark.sqlite
def test_a_change_of_a_wrong_type_is_found(past: Agent, column: str, value: str) -> None:
    sql(f"UPDATE audit_change SET {column} = {value} WHERE agent_id = {past.pk} AND seq = 5 AND number = 3")
    found(past)


@pytest.mark.parametrize("value", ["'zz'", "1.5", "x'00'", "10000000000000"])
@pytest.mark.parametrize("column", columns(AuditEntry, "agent_id", "operation", "actor_kind", "detail"))
@pytest.mark.sqlite
def test_an_entry_of_a_wrong_type_is_found(past: Agent, column: str, value: str) -> None:
    sql(f"UPDATE audit_auditentry SET {column} = {value} WHERE agent_id = {past.pk} AND seq = 5")
    assert column == "seq" or 5 in {p.seq for p in found(past)}
    found(past)


@pytest.mark.parametrize("value", ["'zz'", "''", "1.5", "x'00'", "x''", "10000000000000"])
@pytest.mark.parametrize("column", columns(Memory, "agent_id", "kind", "category", "scope", "source", "constitutional"))
@pytest.mark.sqlite
def test_a_memory_of_a_wrong_type_is_found(past: Agent, column: str, value: str) -> None:
    sql(f"UPDATE memory_memory SET {column} = {value} WHERE agent_id = {past.pk} AND number = 5")
    found(past)


@pytest.mark.parametrize("value", ["''", "x''"])
@pytest.mark.sqlite
def test_a_flag_that_is_no_flag_is_found(past: Agent, value: str) -> None:
    """Other values read as false, here as everywhere."""
    sql(f"UPDATE memory_memory SET constitutional = {value} WHERE agent_id = {past.pk} AND number = 5")
    found(past)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_auditentry SET detail = '[[' || detail || ']]'",
        "UPDATE audit_auditentry SET detail = '5'",
        "UPDATE audit_auditentry SET actor_label = CAST(x'ff' AS TEXT)",
        "UPDATE audit_auditentry SET at = '2026-99-99 00:00:00'",
    ],
)
@pytest.mark.sqlite
def test_an_entry_of_a_wrong_form_is_found(past: Agent, statement: str) -> None:
    sql(f"{statement} WHERE agent_id = {past.pk} AND seq = 5")
    found(past)


@pytest.mark.postgresql
@pytest.mark.parametrize("at", ["infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_time_beyond_pythons_is_found(past: Agent, bob: Agent, at: str) -> None:
    entries(past).filter(seq=2).update(operation="restored")
    sql(f"UPDATE audit_auditentry SET at = '{at}' WHERE agent_id = {past.pk} AND seq = 5")
    assert [p.seq for p in found(past) if "form" in p.problem] == [5]
    assert found(past)[0].seq == 2
    assert problems(bob) == []


@pytest.mark.postgresql
def test_a_memory_of_a_time_beyond_pythons_is_named(past: Agent) -> None:
    sql(f"UPDATE memory_memory SET origin = 'infinity' WHERE agent_id = {past.pk} AND number = 3")
    assert any(p.problem.startswith("memory 3: ") for p in found(past))


@pytest.mark.parametrize("at", ["2990-01-01 00:00:00+00", "1990-01-01 00:00:00+00", None])
def test_a_time_of_the_last_entry_that_it_was_not_made_at_is_found(past: Agent, at: str | None) -> None:
    """From it the next entry's time is taken, which never goes back."""
    sql(f"UPDATE memory_agent SET audit_at = {'NULL' if at is None else repr(at)} WHERE id = {past.pk}")
    assert "last" in found(past)[0].problem


@pytest.mark.postgresql
def test_a_verification_cut_short_leaves_no_cursor_open(past: Agent) -> None:
    """One that the garbage collector closes in the middle of another statement waits for itself for ever."""
    memories(past).update(tokens=1000)
    abandoned = replay.problems(steps.fresh(past))
    next(abandoned)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] > 0
        abandoned.close()
        cursor.execute("SELECT count(*) FROM pg_cursors")
        assert cursor.fetchone()[0] == 0


def test_a_database_that_is_gone_is_no_finding(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Agent) -> Any:
        raise OperationalError("the connection is closed")
        yield

    monkeypatch.setattr("memory.replay._states", gone)
    with pytest.raises(OperationalError):
        problems(past)


def test_a_trail_made_under_another_audit_key_is_found(past: Agent, settings: Settings) -> None:
    old = keyring().audit[0]
    settings.AUDIT_KEY = new_key()
    assert any(old.id in p.problem for p in found(past))


def test_an_older_audit_key_still_verifies(past: Agent, settings: Settings) -> None:
    import base64

    old = base64.b64encode(keyring().audit[0].secret).decode()
    settings.AUDIT_KEY = f"{new_key()},{old}"
    remember(past, "after the change of keys")
    assert problems(past) == []
    assert steps.last_entry(past).key_id == keyring().audit[0].id


def test_an_entry_forged_under_a_key_of_ones_own_is_found(past: Agent, settings: Settings) -> None:
    real = settings.AUDIT_KEY
    settings.AUDIT_KEY = new_key()
    remember(past, "forged")
    settings.AUDIT_KEY = real
    found(past)


def test_tampering_with_one_agent_is_not_laid_on_the_other(past: Agent, bob: Agent) -> None:
    memories(past).update(tokens=1000)
    found(past)
    assert problems(bob) == []


def test_verifying_opens_nothing(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Silo, "for_agent", classmethod(_never))
    assert problems(past) == []


def _never(*_: Any) -> Any:
    raise AssertionError("verification asked for a silo")


def test_verifying_needs_no_data_key(past: Agent) -> None:
    Agent.objects.filter(pk=past.pk).update(wrapped_key=b"")
    assert problems(past) == []


def test_every_agent_with_a_trail_is_listed(past: Agent, bob: Agent) -> None:
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "globex/bob")]
    entries(past).filter(seq=1).delete()
    entries(bob).delete()
    assert list(verify.trails()) == [(past.pk, "acme/ada"), (bob.pk, "")]


@pytest.mark.parametrize("detail", [{"n": 1.5, "s": 'é\u2028"', "l": [1, None, True], "o": {"a": {}}}, {"big": 2**53}])
def test_any_detail_that_is_json_verifies(ada: Agent, detail: dict[str, Any]) -> None:
    store.notify(ada, "told", operation="session_closed", actor=Actor.system("x"), detail=detail)
    assert steps.last_entry(ada).detail == json.loads(json.dumps(detail))
    assert problems(ada) == []


def test_the_entrys_time_never_goes_back(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2030-01-01T00:00:00Z")
    remember(ada, "later")
    time_machine.move_to("2029-01-01T00:00:00Z")
    remember(ada, "the clock was set back")
    first, second = entries(ada).order_by("-seq")[:2]
    assert first.at == second.at
    assert problems(ada) == []


def test_a_change_of_the_triggers_is_no_secret(past: Agent) -> None:
    assert len(verify.missing_guards()) >= 7
    assert connection.vendor in ("sqlite", "postgresql")


# --- what a finding calls it


def test_an_altered_entry_is_called_so(past: Agent) -> None:
    entries(past).filter(seq=5).update(operation="restored")
    assert [(p.seq, p.problem.split(":")[0]) for p in found(past)] == [(5, "altered")]


def test_a_missing_entry_is_called_so(past: Agent) -> None:
    entries(past).filter(seq=5).delete()
    changes(past).filter(seq=5).delete()
    assert (found(past)[0].seq, found(past)[0].problem) == (6, "missing: entries 5 to 5")


def test_a_wiped_body_is_called_so(past: Agent) -> None:
    changes(past).filter(seq=5).update(before=None)
    assert [(p.seq, p.problem.split(":")[0]) for p in found(past)][:1] == [(5, "wiped")]


def test_a_truncated_tail_is_called_so(past: Agent) -> None:
    last = steps.fresh(past).audit_seq
    entries(past).filter(seq=last).delete()
    changes(past).filter(seq=last).delete()
    assert (last, f"truncated: entries up to {last} were written") in [(p.seq, p.problem) for p in found(past)]


def test_entries_put_in_each_others_place_with_all_they_changed_are_called_reordered(past: Agent) -> None:
    for model in (entries, changes):
        for one, other in ((5, 77), (6, 5), (77, 6)):
            model(past).filter(seq=one).update(seq=other)
    assert (found(past)[0].seq, found(past)[0].problem) == (5, "reordered: this is entry 6")


def test_a_key_put_in_by_sql_is_found(past: Agent) -> None:
    mine = AgentKey.objects.get(agent=past)
    AgentKey.objects.create(agent=past, prefix="x" * 12, mac=mine.mac)
    assert [p.problem for p in found(past)] == [f"inserted: the agent key {'x' * 12} is not in the trail"]


def test_a_key_that_was_removed_is_found(past: Agent) -> None:
    AgentKey.objects.filter(agent=past).delete()
    assert [p.seq for p in found(past)] == [2]
