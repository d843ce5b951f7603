"""A silo in use gets no first key. After a claim, no model is called that the agent's side did not name."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection, transaction

from audit.models import AuditEntry, Change
from memory.access import roles, tenants
from memory.access.authentication import agent_key, either_key, new_request, prefix_of, request_key
from memory.agents import lifecycle
from memory.consent import claims
from memory.errors import AgentConsentRequired, Invalid, KeyRejected
from memory.models import Tenant
from memory.run_log import runs
from refinement import gc, gc_reports
from tests.api.calling import Caller
from tests.conftest import OPERATOR, House, drop_guards
from tests.steps import ME, fresh, problems, remember

pytestmark = pytest.mark.database


def test_a_silo_that_was_claimed_gets_no_first_key_although_sql_hides_its_trail(house: House) -> None:
    claims.exchange(agent_key(house.ada_key), ME)
    drop_guards()
    AuditEntry.objects.filter(agent_id=house.ada.pk).update(actor_kind="operator")
    with pytest.raises(AgentConsentRequired):
        lifecycle.first_key(fresh(house.ada), ME)


def test_a_silo_in_use_gets_no_first_key_although_sql_hides_its_memories(house: House) -> None:
    remember(house.ada, "tea")
    drop_guards()
    Change.objects.filter(agent_id=house.ada.pk).update(agent_id=house.bob.pk, seq=99)
    with pytest.raises(AgentConsentRequired):
        lifecycle.first_key(fresh(house.ada), ME)


def test_first_keys_cannot_be_issued_without_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MOST_UNUSED", 3)
    lifecycle.first_key(house.ada, OPERATOR)
    with pytest.raises(Invalid, match="Create another agent"):
        lifecycle.first_key(fresh(house.ada), OPERATOR)
    remember(house.ada, "tea")
    with pytest.raises(AgentConsentRequired):
        lifecycle.first_key(fresh(house.ada), OPERATOR)


def test_after_a_claim_gc_calls_no_model_that_the_agents_side_did_not_name(
    house: House, tmp_path: Path, settings: Any
) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    lifecycle.change(fresh(house.ada), ME, memory_path=str(tmp_path / "ada.md"))
    claims.exchange(agent_key(house.ada_key), ME, keep=["memory_path"])
    runs.log_run(fresh(house.ada), "Brew", "tea", ME)
    with pytest.raises(gc.GcFailed, match="another model"):
        gc.collect(fresh(house.ada), "ada", gc.Options(OPERATOR, model="ollama/llama3"), mock.Mock())


def test_a_silo_whose_key_was_used_gets_no_first_key(house: House) -> None:
    """Its memory file, or reports about it, may already have content."""
    assert Caller(house.ada_key).get("agent").status == 200
    with pytest.raises(AgentConsentRequired):
        lifecycle.first_key(fresh(house.ada), ME)


def test_an_agent_whose_memory_file_is_in_use_gets_no_first_key(house: House, tmp_path: Path, settings: Any) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    eve = lifecycle.create("acme", "eve", model="m", actor=OPERATOR, memory_path=str(tmp_path / "eve.md"))[0]
    lifecycle.first_key(eve, OPERATOR)
    for step in (
        lambda: runs.log_run(fresh(eve), "Brew", "tea", OPERATOR),
        lambda: [Path(eve.memory_path).unlink(), gc_reports.keep(fresh(eve), "tea", model="m", entries=1)],
        lambda: [eve.gc_reports.all().delete(), lifecycle.change(fresh(eve), OPERATOR, memory_path="")],
    ):
        step()
        with pytest.raises(AgentConsentRequired):
            lifecycle.first_key(fresh(eve), OPERATOR)


def test_a_first_key_replaces_the_earlier_ones(house: House) -> None:
    """Two of them would be a key of the runtime and one of somebody else, who could then end the first."""
    second = lifecycle.first_key(fresh(house.ada), OPERATOR)
    third = lifecycle.first_key(fresh(house.ada), OPERATOR)
    assert [Caller(key).get("agent").status for key in (house.ada_key, second, third)] == [401, 401, 200]
    assert problems(house.ada) == []
    with pytest.raises(AgentConsentRequired):
        lifecycle.revoke_key(fresh(house.ada), prefix_of(third), OPERATOR)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_first_key_is_issued_while_the_agent_changes(house: House) -> None:
    """The row that its snapshot has may change in the meantime. Then it begins again."""
    with after_the_snapshot(lambda: lifecycle.change(fresh(house.ada), OPERATOR, paused=True)):
        key = lifecycle.first_key(fresh(house.ada), OPERATOR)
    assert Caller(key).get("agent").status == 200


@contextmanager
def after_the_snapshot(act: Callable[[], object]) -> Iterator[None]:
    """The first request that is about to lock a tenant has taken its snapshot, and waits until `act` is done."""
    done, lock = list[int](), roles.lock

    def apart() -> None:
        with closing(connection):
            act()

    def locked_late(pk: int) -> Tenant:
        if not done:
            AuditEntry.objects.exists()  # the snapshot begins
            done.append(1)
            with ThreadPoolExecutor(1) as other:
                other.submit(apart).result()
        return lock(pk)

    with mock.patch.object(roles, "lock", locked_late):
        yield
    assert done


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_tenant_key_that_ends_while_it_waits_gets_no_first_key(house: House) -> None:
    key = tenants.issue_key("acme")
    with new_request():
        request_key.set(either_key(key))
        with after_the_snapshot(lambda: tenants.revoke_key("acme", prefix_of(key))), pytest.raises(KeyRejected):
            lifecycle.first_key(fresh(house.ada), OPERATOR)
    assert Caller(house.ada_key).get("agent").status == 200


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_sql_cannot_change_the_isolation_of_transactions() -> None:
    """With the snapshot of its beginning, a check under a lock saw a key that had ended."""
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
        try:
            with transaction.atomic():
                cursor.execute("SHOW transaction_isolation")
                assert cursor.fetchone() == ("read committed",)
        finally:
            cursor.execute("RESET default_transaction_isolation")
