"""SQL makes the database store less than the service writes. Then nothing is done, or what was ended stays ended."""

from typing import Any

import pytest
from django.db import DatabaseError, connection

from audit.models import Operation
from memory.access.authentication import agent_key, either_key, prefix_of
from memory.accounts import people
from memory.agents import lifecycle
from memory.consent import claims, redaction, requests
from memory.errors import KeyRejected, NotAllowed, NotGranted
from memory.models import Agent, AgentKey, Memory, Person
from memory.writing import edits
from memory.writing.signals import edited
from tests.access_requests import granted, read
from tests.conftest import House, drop_guards
from tests.steps import ME, PERSON, fresh, last_entry, remember
from tests.tampering import sql, undone

pytestmark = pytest.mark.database


def ignore(event: str, table: str) -> None:
    """Add a trigger that ignores this event on the table. The service gets no error."""
    if connection.vendor == "postgresql":
        result = "NULL" if event == "INSERT" else "OLD"
        sql(f"CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN {result}; END'")
        sql(f"CREATE TRIGGER aaa BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION ignore()")
    else:
        sql(f"CREATE TRIGGER aaa BEFORE {event} ON {table} BEGIN SELECT RAISE(IGNORE); END")


@pytest.mark.parametrize("end", ["revocation", "claim"])
def test_a_key_ends_although_sql_moves_its_row_meanwhile(
    house: House, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """An UPDATE by its prefix then changes no row, and the key went on."""
    begin, former = edits.begin, lifecycle.issue_key(house.ada, ME) if end == "revocation" else house.ada_key

    def late(agent: Agent, operation: str, *more: Any, **values: Any) -> Any:
        if operation == Operation.KEY_REVOKED:
            AgentKey.objects.filter(prefix=prefix_of(former)).update(prefix="moved")
        return begin(agent, operation, *more, **values)

    monkeypatch.setattr(edits, "begin", late)
    if end == "revocation":
        lifecycle.revoke_key(fresh(house.ada), prefix_of(former), ME)
    else:
        claims.exchange(agent_key(former), ME)
    moved = AgentKey.objects.filter(prefix="moved")
    assert moved.get().mac, "the row is as before"
    moved.update(prefix=prefix_of(former))
    with pytest.raises(KeyRejected):
        either_key(former)


def test_a_redaction_is_not_carried_out_if_sql_moves_the_memory_meanwhile(ada: Agent) -> None:
    [number] = remember(ada, "tea")
    drop_guards()
    request = requests.ask_redaction(fresh(ada), [number], PERSON, reason="x").number
    seq = last_entry(ada).seq

    def move(**_: Any) -> None:
        Memory.objects.filter(agent_id=ada.pk).update(id=1_000)

    edited.connect(move)
    try:
        with pytest.raises(DatabaseError, match="verify_audit"):
            redaction.redact(fresh(ada), request, ME)
    finally:
        edited.disconnect(move)
    assert last_entry(ada).seq == seq


@pytest.mark.parametrize(
    ("event", "table"), [("UPDATE", "memory_agent"), ("UPDATE", "memory_agentkey"), ("INSERT", "audit_auditentry")]
)
def test_nothing_is_ended_or_read_while_a_trigger_ignores_writes(house: House, event: str, table: str) -> None:
    remember(house.ada, "tea")
    other, number = lifecycle.issue_key(fresh(house.ada), ME), granted(house.ada)
    seq = last_entry(house.ada).seq
    ignore(event, table)
    for act in (
        lambda: lifecycle.revoke_key(fresh(house.ada), prefix_of(other), ME),
        lambda: lifecycle.suspend_keys(fresh(house.ada), ME),
        lambda: requests.revoke(fresh(house.ada), number, ME),
        lambda: read(house.ada, number, 1),
    ):
        with undone(), pytest.raises((NotAllowed, NotGranted, DatabaseError)):
            act()
    assert last_entry(house.ada).seq == seq


def test_no_password_is_set_while_a_trigger_ignores_writes(db: None) -> None:
    person = Person.objects.create_user("ann@acme.test", "a good long passphrase")
    ignore("UPDATE", "memory_person")
    with pytest.raises((NotAllowed, DatabaseError)):
        people.set_password(person, "another good passphrase")
