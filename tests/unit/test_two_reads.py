"""Attacks by SQL between two reads: a row or table that shows each query something else. Nothing is signed or read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django_otp.oath import TOTP

from audit import heads, verify
from audit.consent import Scope
from audit.models import AuditEntry, Change
from memory.access.roles import roles_in
from memory.accounts import people
from memory.agents import lifecycle, repair
from memory.consent import approval, granted_reads, links, requests
from memory.errors import (
    AgentConsentRequired,
    AuthorityBroken,
    InvalidLink,
    NotFound,
    NotGranted,
    NotOpen,
    TrailChanged,
)
from memory.mail import link_letters
from memory.models import Agent, AgentKey, Authenticator, ImportJob, Person, Role
from memory.run_log import runs
from memory.writing import edits, operations
from refinement import gc
from tests import queueing
from tests.access_requests import PAT, PURPOSE, STEWARD, ask, granted, read
from tests.api.calling import Caller
from tests.api.test_import_jobs import lines, send
from tests.conftest import House, drop_guards
from tests.members import join
from tests.second_factors import enrol
from tests.steps import ME, PERSON, fresh, problems, remember, signed_update
from tests.tampering import real_key, rechain, sql

pytestmark = pytest.mark.database


@pytest.fixture
def altered(house: House) -> Iterator[None]:
    """Something on the trail's table that the service did not make."""
    if connection.vendor == "postgresql":
        sql("CREATE POLICY hides ON audit_auditentry USING (seq < 1000)")
    else:
        sql("CREATE TRIGGER hides AFTER INSERT ON audit_auditentry BEGIN SELECT 1; END")
    yield
    sql("DROP POLICY hides ON audit_auditentry" if connection.vendor == "postgresql" else "DROP TRIGGER hides")


def test_an_agent_whose_tenant_changed_while_waiting_for_the_lock_is_not_found(house: House) -> None:
    stale = fresh(house.ada)
    stale.tenant = house.bob.tenant
    with pytest.raises(NotFound), edits.locked(stale):
        pass


def test_a_grant_gives_nothing_while_a_table_is_altered(house: House, request: pytest.FixtureRequest) -> None:
    remember(house.ada, "tea")
    number = granted(house.ada)
    assert read(house.ada, number, 1) == ["tea"]
    request.getfixturevalue("altered")
    with pytest.raises(NotGranted):
        read(house.ada, number, 1)


@pytest.mark.usefixtures("altered")
def test_nothing_is_signed_or_issued_while_a_table_is_altered(house: House) -> None:
    with pytest.raises(AgentConsentRequired):
        lifecycle.first_key(fresh(house.ada), ME)
    Agent.objects.filter(pk=house.ada.pk).update(steward="eve@acme.test")
    with pytest.raises(TrailChanged):
        repair.repair(house.ada.pk, "acme/ada", is_dry_run=False)


def between_the_reads(monkeypatch: pytest.MonkeyPatch, *entries: AuditEntry) -> None:
    """Restore these entries before the trail is checked, but after the first query."""

    def restoring(agent_id: int) -> Any:
        for entry in entries:
            entry.save()
        return real(agent_id)

    real = verify._redacted
    monkeypatch.setattr(verify, "_redacted", restoring)


def test_a_grant_that_only_the_first_of_two_queries_shows_gives_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(house.ada, "tea")
    entries = AuditEntry.objects.filter(agent_id=house.ada.pk).order_by("seq")
    between_the_reads(monkeypatch, *entries)
    drop_guards()
    detail = {"person_id": PAT.id, "person": PAT.address, "purpose": PURPOSE, "scope": {"kind": "silo"}}
    entries.filter(seq=1).update(operation="access_requested", detail=detail | {"seconds": 3_600})
    entries.filter(seq=2).update(operation="access_granted", detail={"request": 1})
    with pytest.raises(NotGranted):
        read(house.ada, 1, 1)
    assert problems(house.ada) == []


def test_only_the_proposal_that_was_checked_is_carried_out(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label)
    number = requests.propose(fresh(house.ada), PERSON, is_steward_only=True).number
    entry = AuditEntry.objects.filter(agent_id=house.ada.pk, seq=number)
    between_the_reads(monkeypatch, entry.get())
    drop_guards()
    entry.update(detail={"proposed": {"steward": "eve@evil.test"}})
    with pytest.raises(NotOpen):
        approval.approve(fresh(house.ada), number, STEWARD)
    assert (fresh(house.ada).steward, problems(house.ada)) == (STEWARD.label, [])


@pytest.mark.parametrize("scope", [Scope("entries", first=2, last=2), Scope("session", session=7)])
def test_a_grant_for_an_entry_opens_only_what_this_entry_changed(house: House, scope: Scope) -> None:
    remember(house.ada, "tea", "milk", "sugar")
    operations.revise(house.ada, 1, ME, content="green tea", session=7)
    seq = fresh(house.ada).audit_seq
    operations.revise(house.ada, 2, ME, content="oat milk", session=8)
    number = granted(house.ada, Scope("entries", first=seq, last=seq) if scope.kind == "entries" else scope)
    [step] = granted_reads.entry(fresh(house.ada), number, PAT, seq)
    assert step.number == 1
    drop_guards()
    [change] = Change.objects.filter(agent_id=house.ada.pk, seq=seq + 1)
    change.pk, change.seq = None, seq
    change.save()
    AuditEntry.objects.filter(agent_id=house.ada.pk, seq=seq + 1).update(session=7)
    for each in (seq, seq + 1):
        with pytest.raises(NotGranted):
            granted_reads.entry(fresh(house.ada), number, PAT, each)


def test_the_agents_side_is_shown_only_what_it_would_approve(house: House) -> None:
    lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label)
    number = ask(house.ada).number
    token = links.make(fresh(house.ada), number)
    entry = AuditEntry.objects.filter(agent_id=house.ada.pk, seq=number)
    drop_guards()
    entry.update(detail=entry.get().detail | {"scope": {"kind": "memories", "numbers": [1]}})
    assert link_letters.send(house.ada.pk, number) == "over"
    with pytest.raises(NotOpen):
        links.look(token)
    assert Caller(house.ada_key).get("access-requests").status == 409
    rechain(house.ada, number, real_key())  # as after a restored trail, in which the service wrote another request
    assert [each["number"] for each in Caller(house.ada_key).get("access-requests").json["results"]] == [number]
    for act in (links.look, lambda token: links.decide(token, approve=True)):
        with pytest.raises(InvalidLink):
            act(token)


def test_a_head_is_never_replaced_by_an_earlier_one(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.issue_key(house.ada, ME)
    [now] = heads.export(house.ada.pk)["heads"]
    entry = AuditEntry.objects.get(agent_id=house.ada.pk, seq=1)
    old = now | {"seq": 1, "mac": bytes(entry.mac).hex()}
    for shown in ([old], []):
        monkeypatch.setattr(heads, "_heads", lambda _, shown=shown: iter(shown))
        assert heads.export(house.ada.pk, earlier=[now])["heads"] == [now]


def test_gc_and_log_run_use_no_row_that_sql_changed(house: House, tmp_path: Path, settings: Any) -> None:
    settings.VAULT_ROOTS = [tmp_path]
    signed_update(Agent.objects.filter(pk=house.ada.pk), memory_path=str(tmp_path / "ada.md"))
    Agent.objects.filter(pk=house.ada.pk).update(model="ollama/evil")
    with pytest.raises(AuthorityBroken):
        gc.collect(fresh(house.ada), "ada", gc.Options(ME), queueing)  # type: ignore[arg-type]  # not used
    Agent.objects.filter(pk=house.ada.pk).update(memory_path=str(tmp_path / "eve.md"))
    with pytest.raises(AuthorityBroken):
        runs.log_run(fresh(house.ada), "task", "result", ME)
    assert not list(tmp_path.iterdir())


def test_the_body_of_an_import_belongs_to_its_key(house: House) -> None:
    assert send(Caller(house.ada_key), lines(501)).status == 202
    ImportJob.objects.update(key=AgentKey.objects.get(agent=house.bob))
    queueing.work()
    assert fresh(house.ada).next_number == 1


def test_a_new_person_with_an_old_number_inherits_nothing(house: House) -> None:
    person = Person.objects.create_user("ann@acme.test")
    join(person, house.ada.tenant, Role.OWNER)
    factor = enrol(person)
    code = f"{TOTP(people._secret(factor)).token():06d}"
    assert roles_in(house.ada.tenant) == {person.pk: Role.OWNER}
    assert people.is_verified(person, code)
    person.joined_at = house.bob.created_at  # another person, whom the service signed
    person.save()
    person.sign()
    assert roles_in(house.ada.tenant) == {}
    Authenticator.objects.update(last_step=-1)
    assert people.is_verified(Person.objects.get(pk=person.pk), code) is None
