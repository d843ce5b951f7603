"""Attacks by SQL between two reads: a row or table that shows each query something else. Nothing is signed or read."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection, transaction
from django_otp.oath import TOTP
from django_q.models import Schedule

from audit import guards, heads, verify
from audit.consent import Scope
from audit.models import AuditEntry, Change
from audit.waiting import wait_at_most
from config import queue
from memory.access import authority, roles, tenants
from memory.access.authentication import agent_key, new_request, request_key, require_valid_key
from memory.access.roles import roles_in
from memory.accounts import people
from memory.agents import lifecycle, repair
from memory.consent import approval, claims, granted_reads, links, requests
from memory.errors import (
    AgentConsentRequired,
    AuthorityBroken,
    InvalidLink,
    KeyRejected,
    NotAllowed,
    NotFound,
    NotGranted,
    NotOpen,
    TrailChanged,
)
from memory.mail import link_letters
from memory.models import Agent, AgentKey, Authenticator, ImportJob, Person, Role, Tenant
from memory.run_log import runs
from memory.writing import edits, operations
from refinement import gc
from tests import queueing
from tests.access_requests import PAT, PURPOSE, STEWARD, ask, granted, read
from tests.api.calling import Caller
from tests.api.test_import_jobs import lines, send
from tests.conftest import OPERATOR, House, drop_guards
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

    def restoring(*arguments: int) -> Any:
        for entry in entries:
            entry.save()
        return real(*arguments)

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
    operations.revise(house.ada, 3, ME, content="brown sugar", session=7)
    with pytest.raises(NotGranted):  # the session went on after the request
        granted_reads.entry(fresh(house.ada), number, PAT, fresh(house.ada).audit_seq)
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


def test_the_row_of_another_agent_is_not_locked(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view can show a row whose number differs from the number in the condition."""
    other, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR)
    monkeypatch.setattr(edits, "_locking", lambda _: [fresh(house.ada)])
    with pytest.raises(NotFound), edits.locked(fresh(other)):
        pass
    with pytest.raises(AuthorityBroken):
        authority._read_again(shown_as(fresh(house.ada), fresh(other)))


def shown_as(agent: Agent, other: Agent) -> Agent:
    """An object that shows another agent when it is read again."""
    object.__setattr__(agent, "refresh_from_db", lambda **_: agent.__dict__.update(other.__dict__))
    return agent


@pytest.mark.parametrize("shown", ["read", "issue"])
def test_a_key_that_ends_during_a_request_stays_ended_although_sql_puts_it_back(house: House, shown: str) -> None:
    key = agent_key(house.ada_key)
    claims.exchange(agent_key(house.ada_key), ME)
    AgentKey.objects.filter(agent=house.ada).update(revoked_at=None)
    with new_request():
        request_key.set(key)
        with pytest.raises(KeyRejected):
            require_valid_key() if shown == "read" else lifecycle.issue_key(house.ada, ME)


def test_two_exchanged_names_of_tenants_give_no_key(house: House) -> None:
    for new, row in (("x", house.ada.tenant), ("acme", house.bob.tenant), ("globex", house.ada.tenant)):
        Tenant.objects.filter(pk=row.pk).update(slug=new)
    with pytest.raises(NotAllowed):
        tenants.issue_key("globex")
    assert {each.agent for each in roles.problems()} == {"acme", "globex"}


def test_a_key_is_issued_only_for_the_tenant_that_was_chosen(house: House) -> None:
    with pytest.raises(NotFound):
        tenants.issue_key("globex", pk=house.ada.tenant_id)


@pytest.mark.postgresql
def test_an_operator_in_place_of_postgresqls_is_named(db: None) -> None:
    sql("CREATE FUNCTION public.lies(varchar, varchar) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    sql("CREATE OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = public.lies)")
    assert guards.unexpected() == ["unknown operator ="]


@pytest.mark.postgresql
def test_what_can_change_a_row_while_it_is_stored_is_named(db: None) -> None:
    sql("CREATE SCHEMA hidden")
    sql("CREATE TABLE hidden.child () INHERITS (memory_agent)")
    sql("CREATE TABLE hidden.memory_agent (id bigint REFERENCES public.memory_agent ON UPDATE CASCADE)")
    sql("ALTER TABLE memory_tenant ADD CHECK (set_config('search_path', 'hidden', false) <> '')")
    sql("CREATE FUNCTION hidden.lower(varchar) RETURNS varchar LANGUAGE sql AS 'SELECT $1'")
    sql("ALTER TABLE memory_person ALTER name SET DEFAULT hidden.lower('x')")
    named = [each.partition(" in ")[0] for each in guards.unexpected()]
    assert named == ["a child table on memory_agent", "a foreign key of hidden.memory_agent on memory_agent"] + [
        "a function"
    ] * 2 + ["hidden code"]


@pytest.mark.sqlite
def test_a_repair_signs_no_value_that_a_hidden_table_changes(house: House) -> None:
    """A cascade changes the hidden table, whose trigger changes the agent's row again."""
    row, hidden = house.ada.pk, "REFERENCES memory_agent(id, steward) ON UPDATE CASCADE"
    Agent.objects.filter(pk=row).update(steward="bait@evil.test")
    sql("CREATE UNIQUE INDEX hidden_index ON memory_agent(id, steward)")
    sql(f"CREATE TABLE hidden (id integer, steward text, FOREIGN KEY (id, steward) {hidden})")
    sql(f"INSERT INTO hidden VALUES ({row}, 'bait@evil.test')")
    change = f"UPDATE memory_agent SET steward = 'eve@evil.test' WHERE id = {row} AND steward = ''"
    sql(f"CREATE TRIGGER hidden_trigger AFTER UPDATE ON hidden WHEN NEW.steward = '' BEGIN {change}; END")
    assert "a foreign key of hidden on memory_agent" in guards.unexpected()
    with mock.patch.object(guards, "unexpected", list), pytest.raises(AuthorityBroken):
        repair.repair(row, "acme/ada", is_dry_run=False)


def test_a_data_key_belongs_to_its_row(house: House) -> None:
    """SQL could give the number of a deleted agent to another agent, and keep the other agent's data key."""
    agent = fresh(house.ada)
    agent.wrapped_key = bytes(house.bob.wrapped_key)
    assert not authority.is_signed(agent)


def test_an_agent_is_made_only_in_the_tenant_that_was_chosen(house: House) -> None:
    with pytest.raises(NotFound):
        lifecycle.create("globex", "eve", model="builtin/dedupe", actor=ME, tenant_id=house.ada.tenant_id)


def test_the_date_of_the_last_entry_is_signed(house: House) -> None:
    Agent.objects.filter(pk=house.ada.pk).update(audit_at="2100-01-01T00:00:00Z")
    with pytest.raises(AuthorityBroken):
        authority.require(fresh(house.ada))


def test_a_schedule_for_other_workers_is_removed_and_made_again(db: None) -> None:
    queue.keep_schedules()
    Schedule.objects.update(cluster="x", minutes=9_999)
    queue._remove_foreign()
    assert not Schedule.objects.exists()
    queue.keep_schedules()
    assert {row.minutes for row in Schedule.objects.all()} <= {1, 10, 60}


def test_a_prompt_is_not_the_text_of_its_digest(house: House) -> None:
    lifecycle.change(fresh(house.ada), ME, system_prompt="You are Ada.")
    sealed = bytes(fresh(house.ada).system_prompt)
    agent = fresh(house.ada)
    agent.system_prompt = hashlib.sha256(sealed).hexdigest()  # type: ignore[assignment]
    assert not authority.is_signed(agent)


@pytest.mark.postgresql
def test_a_search_path_that_hides_postgresqls_functions_is_named(db: None) -> None:
    sql("SET search_path = public, pg_catalog")
    try:
        assert any("search_path" in each for each in guards.unexpected())
    finally:
        sql("RESET search_path")


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_repair_reads_one_state_of_the_database(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def look() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            found.append(cursor.fetchone()[0])
        return []

    monkeypatch.setattr(guards, "unexpected", look)
    repair.repair(house.ada.pk, "acme/ada", is_dry_run=True)
    assert found == ["repeatable read"]


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_person_cannot_be_exchanged_while_memberships_are_signed(house: House) -> None:
    person = Person.objects.create_user("ann@acme.test")
    join(person, house.ada.tenant, Role.OWNER)

    def exchange() -> str:
        try:
            with transaction.atomic():
                wait_at_most(1)
                Person.objects.filter(pk=person.pk).update(joined_at=house.bob.created_at)
            return "exchanged"
        except OperationalError:
            return "locked"
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as pool:
        roles.lock(house.ada.tenant_id)
        assert pool.submit(exchange).result() == "locked"


def test_a_grant_that_sql_hides_from_a_claim_gives_nothing(house: House) -> None:
    remember(house.ada, "tea")
    number = granted(house.ada)
    drop_guards()
    hidden = AuditEntry.objects.filter(agent_id=house.ada.pk, operation="access_requested")
    [pk] = hidden.values_list("pk", flat=True)
    hidden.update(operation="content_read")
    claims.exchange(agent_key(house.ada_key), ME)
    AuditEntry.objects.filter(pk=pk).update(operation="access_requested")
    with pytest.raises(NotGranted):
        read(house.ada, number, 1)
    assert problems(house.ada) == []
