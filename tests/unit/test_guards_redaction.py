"""The only update that the database accepts: a redaction of the memories that its entry names. Attacked by SQL."""

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
from memory.consent import redaction, requests
from memory.models import Agent
from memory.writing import operations
from tests.steps import ME, SESSION, last_entry, problems, remember
from tests.tampering import changes, columns, entries, others, sql

pytestmark = pytest.mark.database

HEADS = {"before": SnapshotHead("before"), "after": SnapshotHead("after")}
NAMED, OTHER = 1, 2  # the memory that the redaction names, and one that it does not


@pytest.fixture
def named(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with the entry of a redaction of memory 1, before the bodies and the note are removed."""
    for agent in (ada, bob):
        remember(agent, "tea", "milk")
        operations.demote(agent, [NAMED], ME, reason="black", session=SESSION)
        operations.demote(agent, [OTHER], ME, reason="skimmed", session=SESSION)
    owner = Actor.person("owner@acme.test")
    number = requests.ask_redaction(ada, [NAMED], owner, reason="request 17").number
    with monkeypatch.context() as patched:
        patched.setattr(trail, "strip", lambda *_: None)
        redaction.redact(ada, number, ME)
    return ada


def named_changes(agent: Agent) -> QuerySet[Change]:
    return changes(agent).filter(number=NAMED)


def other_changes(agent: Agent) -> QuerySet[Change]:
    return changes(agent).filter(number=OTHER)


def note(agent: Agent, number: int) -> QuerySet[AuditEntry]:
    """The entry that keeps the reason of the demotion of this memory."""
    edits = changes(agent).filter(number=number).values("seq")
    return entries(agent).filter(seq__in=edits, sealed__isnull=False)


def everything() -> list[Any]:
    return [list(model.objects.order_by("pk").values_list()) for model in (AuditEntry, Change)]


@contextmanager
def refused(message: str = "kept for ever") -> Iterator[None]:
    before = everything()
    with pytest.raises(DatabaseError, match=message), transaction.atomic():
        yield
    assert everything() == before


def refuses_update(rows: QuerySet[Any], **values: Any) -> None:
    with refused():
        rows.update(**values)


def test_a_redaction_of_the_named_rows_is_accepted_and_can_be_repeated(named: Agent) -> None:
    seqs = list(note(named, NAMED).values_list("seq", flat=True))
    assert (len(seqs), named_changes(named).count()) == (1, 3)
    for _ in range(2):
        trail.strip(named.pk, [NAMED], seqs)
        snapshots = [bytes(each) for row in named_changes(named) for each in (row.before, row.after) if each]
        assert len(snapshots) == 5
        assert not any(trail.has_body(snapshot) for snapshot in snapshots)
        assert [row.sealed for row in entries(named).filter(seq__in=seqs)] == [None]
        assert problems(named) == []
    assert named_changes(named).update(number=NAMED) == 3, "an update without effect"
    refuses_update(other_changes(named), number=OTHER)


def test_other_rows_keep_their_bodies_and_notes(named: Agent, bob: Agent) -> None:
    assert named_changes(bob).count() == 2
    for rows in (other_changes(named), changes(named), named_changes(bob), Change.objects.filter(number=NAMED)):
        refuses_update(rows, **HEADS)
    for notes in (note(named, OTHER), note(bob, NAMED), entries(named)):
        refuses_update(notes, sealed=None)


def test_changes_after_the_redaction_keep_their_bodies(named: Agent) -> None:
    remember(named, "later")
    later, row = last_entry(named).seq, named_changes(named).filter(before__isnull=False).first()
    assert row is not None
    row.pk, row.seq = None, later
    row.save(force_insert=True)
    refuses_update(named_changes(named).filter(seq=later), **HEADS)
    assert named_changes(named).filter(seq__lt=later).update(**HEADS) == 3


def test_a_snapshot_can_only_become_its_head(named: Agent) -> None:
    another = trail.snapshot_head(bytes(other_changes(named).latest("seq").after or b""))
    for row in list(named_changes(named).values()):
        for side in ("before", "after"):
            if (now := row[side]) is None:
                values: list[Any] = [b"", b"\0", another]
            else:
                head = trail.snapshot_head(bytes(now))
                values = [None, b"", b"\0", another, head[:-1], head[:-2] + b"\0", head + b"\0", head + b"x"]
            for value in values:
                changed = HEADS | {side: Value(value, models.BinaryField())}
                refuses_update(named_changes(named).filter(pk=row["id"]), **changed)


def test_a_removed_body_or_note_cannot_be_restored(named: Agent) -> None:
    bodies, notes = list(named_changes(named).values()), list(note(named, NAMED).values())
    trail.strip(named.pk, [NAMED], [row["seq"] for row in notes])
    for row in bodies:
        for side in ("before", "after"):
            if row[side] is not None and trail.has_body(bytes(row[side])):
                refuses_update(named_changes(named).filter(pk=row["id"]), **{side: row[side]})
    for row in notes:
        refuses_update(entries(named).filter(pk=row["id"]), sealed=row["sealed"])


@pytest.mark.parametrize("value", [b"", b"\0", b"x"], ids=repr)
def test_a_note_can_only_become_null(named: Agent, value: bytes) -> None:
    refuses_update(note(named, NAMED), sealed=value)


@pytest.mark.parametrize("column", ["id", *columns(Change, "before", "after")])
def test_no_other_column_of_a_change_can_change(named: Agent, column: str) -> None:
    for row in list(named_changes(named).values()):
        for value in [row["id"] + 1000] if column == "id" else others(Change, column, row[column]):
            refuses_update(named_changes(named).filter(pk=row["id"]), **HEADS, **{column: value})


@pytest.mark.parametrize("column", ["id", *columns(AuditEntry, "sealed")])
def test_no_other_column_of_an_entry_can_change(named: Agent, column: str) -> None:
    [row] = note(named, NAMED).values()
    for value in [row["id"] + 1000] if column == "id" else others(AuditEntry, column, row[column]):
        refuses_update(entries(named).filter(pk=row["id"]), sealed=None, **{column: value})


def forge(agent: Agent, *numbers: int, operation: str = "redacted") -> None:
    """Insert by SQL an entry that changes these memories."""
    entry = last_entry(agent)
    entry.pk, entry.seq, entry.operation, entry.sealed = None, entry.seq + 1, operation, None
    entry.detail = {"redacted": {str(OTHER): []}, "notes": list(note(agent, OTHER).values_list("seq", flat=True))}
    entry.save(force_insert=True)
    for number in numbers:
        Change.objects.create(agent_id=agent.pk, seq=entry.seq, number=number)


def test_the_database_accepts_a_forged_change_and_verification_finds_it(named: Agent) -> None:
    redacted = last_entry(named)
    Change.objects.create(agent_id=named.pk, seq=redacted.seq, number=OTHER)
    assert other_changes(named).update(**HEADS) == 3
    trail.strip(named.pk, [NAMED], list(note(named, NAMED).values_list("seq", flat=True)))
    found = {(problem.seq, problem.problem.partition(":")[0]) for problem in problems(named)}
    assert {(redacted.seq, "inserted"), (3, "wiped"), (5, "wiped")} <= found


@pytest.mark.parametrize(
    "operation", ["no change", "another agent", "redaction_requested", "rolled_back", "erased", "discarded"]
)
def test_a_forged_entry_without_a_redacted_change_allows_nothing(named: Agent, bob: Agent, operation: str) -> None:
    if operation == "no change":
        forge(named)
        forge(named, NAMED)
    elif operation == "another agent":
        forge(bob, OTHER)
    else:
        forge(named, OTHER, operation=operation)
    refuses_update(other_changes(named), **HEADS)
    refuses_update(note(named, OTHER), sealed=None)


@pytest.mark.postgresql
@pytest.mark.parametrize("table", ["TEMP TABLE audit_auditentry", "TABLE evil.audit_auditentry"])
def test_the_triggers_ignore_a_table_of_the_same_name_in_the_search_path(named: Agent, table: str) -> None:
    after_a_gap = "SELECT id + 1, " + ", ".join(columns(AuditEntry)).replace("seq", "1001")
    last = last_entry(named).pk
    sql("CREATE SCHEMA evil")
    sql(f"CREATE {table} AS SELECT * FROM audit_auditentry")
    sql("SET search_path = pg_temp, evil, public")
    assert AuditEntry.objects.filter(pk=last).update(seq=1000) == 1
    assert AuditEntry.objects.update(operation="redacted") > 1
    refuses_update(other_changes(named), **HEADS)
    into = f"INSERT INTO public.audit_auditentry (id, {', '.join(columns(AuditEntry))})"
    with refused("the entry before it is missing"):
        sql(f"{into} {after_a_gap} FROM public.audit_auditentry WHERE id = {last}")


@pytest.mark.postgresql
def test_a_function_without_its_search_path_counts_as_missing(ada: Agent) -> None:
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
def test_every_kind_of_update_statement_is_refused(named: Agent, statement: str) -> None:
    head = "{0} = substring(audit_change.{0} from 1 for position('\\x00'::bytea in audit_change.{0}))"
    with refused():
        sql(statement.format(heads=", ".join(head.format(side) for side in HEADS)))


@pytest.fixture
def plain(transactional_db: None, named: Agent) -> Iterator[sqlite3.Connection]:
    """A client with the default pragmas."""
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as client:
        yield client


SQL_HEADS = ", ".join(f"{side} = {SnapshotHead.sql['sqlite'].format(side)}" for side in HEADS)


@pytest.mark.sqlite
def test_a_plain_client_can_only_redact_the_named_rows(plain: sqlite3.Connection, named: Agent) -> None:
    before = everything()
    for change in (
        f"{SQL_HEADS} WHERE number = {OTHER}",
        f"{SQL_HEADS}, number = {OTHER} WHERE number = {NAMED}",
        f"{SQL_HEADS}, id = (SELECT max(id) FROM audit_change) WHERE number = {NAMED}",
        f"{SQL_HEADS}, rowid = (SELECT max(id) FROM audit_change) WHERE number = {NAMED}",
        f"before = NULL, after = NULL WHERE number = {NAMED}",
        "before = CAST(substr(before, 1, instr(before, x'00')) AS TEXT), "
        f"after = CAST(substr(after, 1, instr(after, x'00')) AS TEXT) WHERE number = {NAMED}",
        f"after = 5 WHERE number = {NAMED}",
    ):
        for verb in ("", *(f"OR {way}" for way in ("REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK"))):
            with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
                plain.execute(f"UPDATE {verb} audit_change SET {change}")
            assert everything() == before
    done = plain.execute(f"UPDATE audit_change SET {SQL_HEADS} WHERE agent_id = {named.pk} AND number = {NAMED}")
    assert done.rowcount == 3


@pytest.mark.sqlite
def test_the_triggers_ignore_a_temporary_table_of_a_plain_client(plain: sqlite3.Connection, named: Agent) -> None:
    plain.execute("CREATE TEMP TABLE audit_auditentry AS SELECT * FROM main.audit_auditentry")
    plain.execute("UPDATE temp.audit_auditentry SET operation = 'redacted'")
    with pytest.raises(sqlite3.IntegrityError, match="kept for ever"):
        plain.execute(f"UPDATE audit_change SET {SQL_HEADS} WHERE number = {OTHER}")
