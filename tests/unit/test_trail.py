"""Appending an entry: inside the edit's transaction, with a time that never goes back."""

from datetime import UTC, datetime

import pytest

from audit import trail
from audit.models import AuditEntry
from audit.trail import Actor, Draft
from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.steps import ME, fresh, last_entry, remember, signed_update

pytestmark = pytest.mark.database

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DRAFT = Draft(77, 1, "acme/ada", 1, NOW, ME.kind, ME.label, "remembered")


@pytest.mark.django_db(transaction=True)
def test_an_entry_outside_a_transaction_is_refused() -> None:
    with pytest.raises(RuntimeError):
        trail.append(DRAFT, b"", [])
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("before", [datetime(2999, 1, 1, tzinfo=UTC), NOW])
def test_an_entrys_time_is_never_before_the_last_one(ada: Agent, before: datetime) -> None:
    signed_update(Agent.objects.filter(pk=ada.pk), audit_at=before)
    remember(fresh(ada), "tea")
    assert last_entry(ada).at >= before
    assert (last_entry(ada).at == before) == (before != NOW)


def test_changes_are_written_in_order_of_number(db: None) -> None:
    trail.append(DRAFT, b"", [(number, None, bytes([number])) for number in (3, 1, 2)])
    rows = steps.changes(Agent(pk=77), 1)
    assert [change.number for change in rows] == [1, 2, 3]
    assert bytes(rows[0].after_digest) == trail.snapshot_digest(b"\x01")


def test_equal_edits_of_two_agents_have_different_macs(ada: Agent, bob: Agent) -> None:
    assert bytes(last_entry(ada).mac) != bytes(last_entry(bob).mac)


@pytest.mark.parametrize("kind", ["agent", "system", "operator", "person"])
def test_every_kind_of_actor_is_recorded(ada: Agent, kind: str) -> None:
    remember(ada, "tea")
    operations.discard(ada, [1], getattr(Actor, kind)("somebody"))
    assert (last_entry(ada).actor_kind, last_entry(ada).actor_label) == (kind, "somebody")
