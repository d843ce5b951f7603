"""Attacks on a trail by SQL, and the problems that verification finds. The suite's conftest loads it for `past`."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, models, transaction
from django.db.models import F, QuerySet

from audit import verify
from audit.models import ActorKind, AuditEntry, Change, Operation
from audit.trail import changes_digest, entry_mac
from config.keyring import keyring
from memory.models import Agent, AgentKey, Memory
from memory.writing import operations
from memory.writing.counters import recount
from memory.writing.edits import fields_of
from tests.conftest import drop_guards
from tests.steps import ME, PERSON, SESSION, fresh, problems, remember, signed_update

SECRET = "marmalade"  # in the content of the memories
LAST = 9  # the number of the last entry of `past`


@pytest.fixture
def past(ada: Agent, bob: Agent) -> Agent:
    """An agent whose trail has entries of every kind, in a database without triggers."""
    remember(ada, f"{SECRET} one", f"{SECRET} two", "three", f"{SECRET} one", tags=("jam",))
    remember(ada, "log", kind="journal", project="site")
    operations.revise(ada, 3, ME, content=f"{SECRET} three", session=SESSION)
    operations.protect(ada, [4], ME, session=SESSION)
    operations.consolidate(ada, [1, 2], f"{SECRET} one and two", ME, session=SESSION)
    operations.unprotect(ada, [4], PERSON, reason="requested")
    operations.demote(ada, [3], ME, reason=SECRET)
    remember(bob, SECRET)
    assert problems(ada) == problems(bob) == []
    drop_guards()
    return ada


# --- problems


def found(agent: Agent) -> list[verify.Problem]:
    """The problems. There must be at least one, and none may quote content."""
    result = problems(agent)
    assert result
    assert not any(secret in repr(result) for secret in (SECRET, SECRET.encode().hex()))
    return result


def called(problem: verify.Problem) -> tuple[int, str]:
    """The number of the entry, and the kind of problem."""
    return problem.seq, problem.problem.split(":")[0]


def first(agent: Agent) -> tuple[int, str]:
    return called(found(agent)[0])


def all_called(agent: Agent) -> set[tuple[int, str]]:
    return {called(problem) for problem in found(agent)}


@contextmanager
def undone() -> Iterator[None]:
    """Roll back the block at its end, so that one test can try many attacks."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


# --- rows


def entries(agent: Agent) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq")


def changes(agent: Agent) -> QuerySet[Change]:
    return Change.objects.filter(agent_id=agent.pk).order_by("seq", "number")


def memories(agent: Agent) -> QuerySet[Memory]:
    return Memory.objects.filter(agent_id=agent.pk).order_by("number")


def columns(model: type[models.Model], *without: str) -> list[str]:
    """Every column but the id, which has no meaning."""
    return [field.attname for field in model._meta.concrete_fields if field.attname not in ("id", *without)]


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


# --- other values for a column

_BY_COLUMN: dict[str, Iterable[Any]] = {
    "actor_kind": ActorKind.values,
    "operation": ("remembered", "imported", "key_issued", "rolled_back", "redacted", "erased"),
    "kind": ("core", "journal"),
    "category": ("technical", "topic"),
    "scope": ("common", "private", "project"),
    "source": ("agent", "run", "system"),
    "constitutional": (True, False),
    "is_instruction": (True, False),
    "key_id": ("other", ""),
    # No number of another row: to move a row onto another is a separate attack.
    "agent_id": (10_077,),
    "seq": (77, 10_000_000_000),
    "number": (77, 10_000_000_000),
}

_FOR_NULL: dict[str, Iterable[Any]] = {
    "BinaryField": (b"", b"x", bytes(32)),
    "PositiveBigIntegerField": (0, 1),
    "DateTimeField": (datetime(2001, 1, 1, tzinfo=UTC), datetime(2990, 1, 1, tzinfo=UTC)),
}


def others(model: type[models.Model], column: str, now: Any) -> list[Any]:
    """Other values for a column that holds `now`: similar ones and very different ones."""
    field = next(field for field in model._meta.concrete_fields if field.attname == column)
    if column in _BY_COLUMN:
        values = list(_BY_COLUMN[column])
    elif now is None:
        values = list(_FOR_NULL[field.get_internal_type()])
    else:
        values = list(_near(now)) + ([None] if field.null else [])
    values = [value for value in values if value != now or type(value) is not type(now)]
    assert values
    return values


def _near(now: Any) -> Iterator[Any]:
    match now:
        case int():
            yield from (each for each in (now + 1, now - 1, 77) if each >= 0)
        case str():
            yield from (now + "x", now.upper(), "")
        case datetime():
            yield from (now + timedelta(microseconds=1), now - timedelta(days=1))
        case bytes():
            yield from (now[:-1] + bytes([now[-1] ^ 1]), now + b"\0", bytes(len(now)), b"")
        case dict():
            yield from ({**now, "x": 1}, [now], *({key: now[key] for key in now if key != gone} for gone in now))


# --- attacks of several statements


def renumber(agent: Agent, *moves: tuple[int, int]) -> None:
    """Give entries and their changes other numbers."""
    for old, new in moves:
        entries(agent).filter(seq=old).update(seq=new)
        changes(agent).filter(seq=old).update(seq=new)


def swap(agent: Agent, one: int, other: int) -> None:
    renumber(agent, (one, 1000), (other, one), (1000, other))


def make_room(agent: Agent, at: int) -> None:
    """Increase by one the number of every entry from `at`, with its changes and every reference to it."""
    for seq in range(fresh(agent).audit_seq, at - 1, -1):
        renumber(agent, (seq, seq + 1))
    memories(agent).filter(version__gte=at).update(version=F("version") + 1)
    signed_update(Agent.objects.filter(pk=agent.pk), audit_seq=F("audit_seq") + 1)


def forge(agent: Agent, place: int, **values: Any) -> AuditEntry:
    """Insert an entry of this number: a copy of the one before it, with these values."""
    entry = entries(agent).get(seq=place - 1)
    entry.pk, entry.seq, entry.changes, entry.mac = None, place, 0, secrets.token_bytes(32)
    for name, value in values.items():
        setattr(entry, name, value)
    entry.save(force_insert=True)
    return entry


def rechain(agent: Agent, start: int, secret: bytes, key_id: str = "") -> None:
    """Compute the MACs from an entry to the last with this key, and update the agent's row."""
    before = entries(agent).filter(seq=start - 1).values_list("mac", flat=True)
    previous = next(map(bytes, before), b"")
    for entry in entries(agent).filter(seq__gte=start).values():
        own: Any = changes(agent).filter(seq=entry["seq"]).values()
        fields = entry | {"key_id": key_id or entry["key_id"]}
        previous = entry_mac(secret, previous, fields, changes_digest(own))
        entries(agent).filter(pk=entry["id"]).update(mac=previous, key_id=fields["key_id"])
    last = entries(agent).latest("seq")
    signed_update(Agent.objects.filter(pk=agent.pk), audit_seq=last.seq, audit_mac=last.mac, audit_at=last.at)


def real_key() -> bytes:
    return keyring().audit[0].secret


def cut(agent: Agent, last: int) -> None:
    """Remove every entry after `last`, with its changes."""
    for rows in (entries(agent), changes(agent)):
        rows.filter(seq__gt=last).delete()


def set_back(agent: Agent, last: int) -> None:
    """Cut the trail, and restore the agent's row, memories, counters and keys of that time."""
    cut(agent, last)
    for memory in memories(agent):
        change = changes(agent).filter(number=memory.number).order_by("-seq").first()
        if change is None:
            memory.delete()
        else:
            assert change.after is not None
            values = fields_of(bytes(change.after)) | {"version": change.seq}
            Memory.objects.filter(pk=memory.pk).update(**values)
    issued = entries(agent).filter(operation=Operation.KEY_ISSUED).values_list("detail", flat=True)
    AgentKey.objects.filter(agent=agent).exclude(prefix__in=[detail["prefix"] for detail in issued]).delete()
    entry = entries(agent).latest("seq")
    highest = max(entries(agent).values_list("distinct_tokens", flat=True))
    head = {"audit_seq": entry.seq, "audit_mac": entry.mac, "audit_at": entry.at}
    values = recount(fresh(agent)) | head
    signed_update(Agent.objects.filter(pk=agent.pk), **values, high_water_tokens=highest)


def allow_repeats(model: type[models.Model]) -> None:
    """Remove a table's constraints, so that a row can exist twice."""
    table = model._meta.db_table
    if connection.vendor == "postgresql":
        for constraint in model._meta.constraints:
            sql(f"ALTER TABLE {table} DROP CONSTRAINT {constraint.name}")
        return
    sql(f"CREATE TABLE without_constraints AS SELECT * FROM {table}")
    sql(f"DROP TABLE {table}")
    sql(f"ALTER TABLE without_constraints RENAME TO {table}")
