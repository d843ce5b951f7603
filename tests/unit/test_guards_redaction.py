"""The one change of a row that the database lets through, attacked by SQL: what a redaction names, and no more."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from django.db import DatabaseError, connection, models, transaction
from django.db.models import QuerySet, Value

from audit import guards, trail
from audit.models import AuditEntry, Change
from audit.trail import Actor, SnapshotHead
from memory.consent import redaction, removal_requests
from memory.models import Agent
from memory.writing import operations
from tests.steps import ME, SESSION, last_entry, problems, remember
from tests.tampering import changes, columns, entries, others, sql

pytestmark = pytest.mark.database

HEADS = {"before": SnapshotHead("before"), "after": SnapshotHead("after")}
NAMED, OTHER = 1, 2  # the memory that the redaction names, and one that it does not


@pytest.fixture
def named(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """A redaction of memory 1 whose entry is there, and whose bodies and note still are, too."""
    for agent in (ada, bob):
        remember(agent, "tea", "milk")
        operations.revise(agent, NAMED, ME, content="green tea", dropping=["black"], session=SESSION)
        operations.revise(agent, OTHER, ME, content="cream", dropping=["skimmed"], session=SESSION)
    asked = removal_requests.ask_redaction(ada, [NAMED], Actor.person("owner@acme.test"), reason="request 17").number
    with monkeypatch.context() as patched:
        patched.setattr(trail, "strip", lambda *_: None)
        redaction.redact(ada, asked, ME)
    return ada


def covered(agent: Agent) -> QuerySet[Change]:
    return changes(agent).filter(number=NAMED)


def note(agent: Agent, number: int) -> QuerySet[AuditEntry]:
    """The entry that keeps what an edit of this memory dropped."""
    edits = changes(agent).filter(number=number).values("seq")
    return entries(agent).filter(seq__in=edits, sealed__isnull=False)


def everything() -> list[Any]:
    return [list(model.objects.order_by("pk").values_list()) for model in (AuditEntry, Change)]


@contextmanager
def refused() -> Iterator[None]:
    before = everything()
    with pytest.raises(DatabaseError, match="kept for ever"), transaction.atomic():
        yield
    assert everything() == before


# --- let through


def test_what_the_entry_names_is_let_through_and_again(named: Agent) -> None:
    seqs = list(note(named, NAMED).values_list("seq", flat=True))
    assert (len(seqs), covered(named).count()) == (1, 3)
    for _ in range(2):
        trail.strip(named.pk, [NAMED], seqs)
        snapshots = [bytes(each) for row in covered(named) for each in (row.before, row.after) if each is not None]
        assert len(snapshots) == 5
        assert not any(trail.has_body(snapshot) for snapshot in snapshots)
        assert [row.sealed for row in entries(named).filter(seq__in=seqs)] == [None]
        assert problems(named) == []


def test_an_update_that_changes_nothing_is_let_through_where_nothing_is_left(named: Agent) -> None:
    trail.strip(named.pk, [NAMED], [])
    assert covered(named).update(number=NAMED) == 3
    with refused():
        changes(named).filter(number=OTHER).update(number=OTHER)


# --- rows it does not name


def test_bodies_of_a_memory_it_does_not_name_are_kept(named: Agent) -> None:
    with refused():
        changes(named).filter(number=OTHER).update(**HEADS)
    with refused():
        changes(named).update(**HEADS)


def test_bodies_of_another_agents_memory_of_that_number_are_kept(named: Agent, bob: Agent) -> None:
    assert covered(bob).count() == 2
    with refused():
        covered(bob).update(**HEADS)
    with refused():
        Change.objects.filter(number=NAMED).update(**HEADS)


def test_bodies_of_entries_after_it_are_kept(named: Agent) -> None:
    remember(named, "later")
    later, row = last_entry(named).seq, covered(named).filter(before__isnull=False).first()
    assert row is not None
    row.pk, row.seq = None, later
    row.save(force_insert=True)
    with refused():
        covered(named).filter(seq=later).update(**HEADS)
    assert covered(named).filter(seq__lt=later).update(**HEADS) == 3


def test_a_note_it_does_not_name_is_kept(named: Agent, bob: Agent) -> None:
    for notes in (note(named, OTHER), note(bob, NAMED), entries(named)):
        with refused():
            notes.update(sealed=None)


# --- other values than the heads


def test_a_snapshot_becomes_its_head_and_nothing_else(named: Agent) -> None:
    another = trail.snapshot_head(bytes(changes(named).filter(number=OTHER).latest("seq").after or b""))
    for row in list(covered(named).values()):
        for side in ("before", "after"):
            if (now := row[side]) is None:
                values: list[Any] = [b"", b"\0", another]
            else:
                head = trail.snapshot_head(bytes(now))
                values = [None, b"", b"\0", another, head[:-1], head[:-2] + b"\0", head + b"\0", head + b"x"]
                values += [bytes(now)] if trail.has_body(bytes(now)) else []
            for value in values:
                with refused():
                    covered(named).filter(pk=row["id"]).update(**HEADS | {side: Value(value, models.BinaryField())})


def test_a_body_does_not_come_back(named: Agent) -> None:
    bodies_before = list(covered(named).values())
    notes_before = list(note(named, NAMED).values())
    trail.strip(named.pk, [NAMED], [row["seq"] for row in notes_before])
    for row in bodies_before:
        for side in ("before", "after"):
            if row[side] is not None and trail.has_body(bytes(row[side])):
                with refused():
                    covered(named).filter(pk=row["id"]).update(**{side: row[side]})
    for row in notes_before:
        with refused():
            entries(named).filter(pk=row["id"]).update(sealed=row["sealed"])


@pytest.mark.parametrize("value", [b"", b"\0", b"x"], ids=repr)
def test_a_note_is_emptied_and_nothing_else(named: Agent, value: bytes) -> None:
    with refused():
        note(named, NAMED).update(sealed=value)


@pytest.mark.parametrize("column", ["id", *columns(Change, "before", "after")])
def test_no_other_column_of_a_change_changes_with_it(named: Agent, column: str) -> None:
    for row in list(covered(named).values()):
        for value in [row["id"] + 1000] if column == "id" else others(Change, column, row[column]):
            with refused():
                covered(named).filter(pk=row["id"]).update(**HEADS, **{column: value})


@pytest.mark.parametrize("column", ["id", *columns(AuditEntry, "sealed")])
def test_no_other_column_of_an_entry_changes_with_it(named: Agent, column: str) -> None:
    [row] = note(named, NAMED).values()
    for value in [row["id"] + 1000] if column == "id" else others(AuditEntry, column, row[column]):
        with refused():
            entries(named).filter(pk=row["id"]).update(sealed=None, **{column: value})


# --- entries that are none


def put_in(agent: Agent, *numbers: int, operation: str = "redacted") -> None:
    """An entry that changes these memories, as SQL can write one."""
    entry = last_entry(agent)
    entry.pk, entry.seq, entry.operation, entry.sealed = None, entry.seq + 1, operation, None
    entry.detail = {"redacted": {str(OTHER): []}, "notes": list(note(agent, OTHER).values_list("seq", flat=True))}
    entry.save(force_insert=True)
    for number in numbers:
        Change.objects.create(agent_id=agent.pk, seq=entry.seq, number=number)


def test_an_entry_put_in_by_sql_is_believed_by_the_database(named: Agent) -> None:
    """It has no key to tell. `verify_audit` has: test_verify_redacted."""
    put_in(named, OTHER)
    assert changes(named).filter(number=OTHER).update(**HEADS) == 3
    assert note(named, OTHER).update(sealed=None) == 1


def test_so_is_a_change_put_beside_those_of_a_redaction(named: Agent) -> None:
    redacted = last_entry(named)
    Change.objects.create(agent_id=named.pk, seq=redacted.seq, number=OTHER)
    assert changes(named).filter(number=OTHER).update(**HEADS) == 3
    trail.strip(named.pk, [NAMED], list(note(named, NAMED).values_list("seq", flat=True)))
    found = {(problem.seq, problem.problem.partition(":")[0]) for problem in problems(named)}
    assert {(redacted.seq, "inserted"), (3, "wiped"), (5, "wiped")} <= found


def nothing_goes(agent: Agent) -> None:
    with refused():
        changes(agent).filter(number=OTHER).update(**HEADS)
    with refused():
        note(agent, OTHER).update(sealed=None)


def test_an_entry_that_only_says_so_lets_nothing_go(named: Agent) -> None:
    """What counts is which memories it changed."""
    put_in(named)
    put_in(named, NAMED)
    nothing_goes(named)


@pytest.mark.parametrize("operation", ["redaction_requested", "rolled_back", "erased", "discarded"])
def test_an_entry_of_another_operation_lets_nothing_go(named: Agent, operation: str) -> None:
    put_in(named, OTHER, operation=operation)
    nothing_goes(named)


def test_an_entry_of_another_agent_lets_nothing_go(named: Agent, bob: Agent) -> None:
    put_in(bob, OTHER)
    nothing_goes(named)


# --- other roads


@pytest.mark.postgresql
@pytest.mark.parametrize("table", ["TEMP TABLE audit_auditentry", "TABLE evil.audit_auditentry"])
def test_a_table_of_the_same_name_is_not_asked(named: Agent, table: str) -> None:
    """One that comes first wherever names are looked up, in which every entry is a redaction."""
    after_a_gap = "SELECT id + 1, " + ", ".join(columns(AuditEntry)).replace("seq", "1001")
    last = last_entry(named).pk
    sql("CREATE SCHEMA evil")
    sql(f"CREATE {table} AS SELECT * FROM audit_auditentry")
    sql("SET search_path = pg_temp, evil, public")
    assert AuditEntry.objects.filter(pk=last).update(seq=1000) == 1
    assert AuditEntry.objects.update(operation="redacted") > 1
    with pytest.raises(DatabaseError, match="kept for ever"), transaction.atomic():
        changes(named).filter(number=OTHER).update(**HEADS)
    into = f"INSERT INTO public.audit_auditentry (id, {', '.join(columns(AuditEntry))})"
    with pytest.raises(DatabaseError, match="the entry before it is missing"), transaction.atomic():
        sql(f"{into} {after_a_gap} FROM public.audit_auditentry WHERE id = {last}")


@pytest.mark.postgresql
def test_functions_that_look_elsewhere_count_as_missing(ada: Agent) -> None:
    sql("ALTER FUNCTION palimpsest_audit_change_only_redacts() RESET search_path")
    assert guards.missing() == ["audit_change_no_update"]
    guards.restore_triggers()
    assert guards.missing() == []


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO audit_change SELECT * FROM audit_change WHERE number = 2 ON CONFLICT (id) DO UPDATE SET {heads}",
        "MERGE INTO audit_change USING audit_change AS c ON c.id = audit_change.id AND c.number = 2 "
        "WHEN MATCHED THEN UPDATE SET {heads}",
        "WITH all_of AS (UPDATE audit_change SET {heads} RETURNING 1) SELECT * FROM all_of",
        "UPDATE ONLY audit_change SET {heads} FROM audit_auditentry WHERE number = 2",
    ],
)
def test_every_way_to_update_is_one(named: Agent, statement: str) -> None:
    heads = ", ".join(
        f"{side} = substring(audit_change.{side} from 1 for position('\\x00'::bytea in audit_change.{side}))"
        for side in HEADS
    )
    with refused():
        sql(statement.format(heads=heads))


@pytest.fixture
def plain(transactional_db: None, named: Agent) -> Iterator[sqlite3.Connection]:
    """A client that sets no pragma, as somebody with the file would."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as client:
        yield client


SQL_HEADS = ", ".join(f"{side} = {SnapshotHead.sql['sqlite'].format(side)}" for side in HEADS)


@pytest.mark.sqlite
def test_a_plain_client_is_let_through_where_it_is_named(plain: sqlite3.Connection, named: Agent) -> None:
    done = plain.execute(f"UPDATE audit_change SET {SQL_HEADS} WHERE agent_id = {named.pk} AND number = {NAMED}")
    assert done.rowcount == 3


@pytest.mark.sqlite
@pytest.mark.parametrize(
    "change",
    [
        f"{SQL_HEADS} WHERE number = {OTHER}",
        f"{SQL_HEADS}, number = {OTHER} WHERE number = {NAMED}",
        f"{SQL_HEADS}, id = (SELECT max(id) FROM audit_change) WHERE number = {NAMED}",
        f"{SQL_HEADS}, rowid = (SELECT max(id) FROM audit_change) WHERE number = {NAMED}",
        f"before = NULL, after = NULL WHERE number = {NAMED}",
        f"before = CAST(substr(before, 1, instr(before, x'00')) AS TEXT), "
        f"after = CAST(substr(after, 1, instr(after, x'00')) AS TEXT) WHERE number = {NAMED}",
        f"after = 5 WHERE number = {NAMED}",
    ],
)
def test_a_plain_client_is_refused_all_else(plain: sqlite3.Connection, change: str) -> None:
    before = everything()
    for verb in ("", *(f"OR {way}" for way in ("REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK"))):
        with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
            plain.execute(f"UPDATE {verb} audit_change SET {change}")
        assert everything() == before


@pytest.mark.sqlite
def test_a_table_of_a_plain_clients_own_is_not_asked(plain: sqlite3.Connection, named: Agent) -> None:
    plain.execute("CREATE TEMP TABLE audit_auditentry AS SELECT * FROM main.audit_auditentry")
    plain.execute("UPDATE temp.audit_auditentry SET operation = 'redacted'")
    with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
        plain.execute(f"UPDATE audit_change SET {SQL_HEADS} WHERE number = {OTHER}")
