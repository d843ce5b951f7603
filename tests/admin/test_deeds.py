"""What people do in the admin: who may, by button and by forged form; what it says before; what becomes of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from audit.consent import Person as Asking
from audit.consent import Scope
from audit.models import AccessRequest, AuditEntry
from audit.trail import Actor
from config import queue
from memory.accounts import invitations
from memory.agents import lifecycle, rule_changes
from memory.consent import grants, proposals, removal_requests
from memory.models import Agent, AgentKey, Invitation, Membership, Memory, Person, Tenant, TenantKey
from memory.writing import operations
from refinement import backlog, loop, schedule, scheduling
from refinement.models import Provider, RefinementSession, Waiting
from tests import refining, steps
from tests.admin.acting import confirm, pages_of, post, said
from tests.admin.conftest import Enter
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER
from tests.steps import fresh

SignedIn = Callable[[Person], Client]
WHY = "A customer was told an opening hour that is wrong."
RUNTIME = Actor.agent("runtime")

STEERS, SEES = {"owner", "admin", "superuser"}, {"owner", "admin", "auditor", "superuser"}
EVERYBODY = sorted(SEES | {"stranger"})
# Each deed of the table in 50-admin: whose it is, and the row it is done to.
TABLE: dict[str, tuple[set[str], type[Any]]] = {
    "refine_now": (STEERS, Agent),
    "pause": (STEERS, Agent),
    "resume": (STEERS, Agent),
    "memory_off": (STEERS, Agent),
    "memory_on": (STEERS, Agent),
    "verify": (SEES, Agent),
    "protect": (STEERS, Memory),
    "unprotect": (STEERS, Memory),
    "restore": (STEERS, Memory),
    "ask_to_read": (SEES, Memory),
    "roll_back": (STEERS, RefinementSession),
    "roll_back_entry": (STEERS, AuditEntry),
    "roll_back_before": (STEERS, AuditEntry),
    "revoke": (STEERS, AccessRequest),
    "ask_redaction": ({"owner"}, Memory),
    "ask_erasure": ({"owner"}, Agent),
    "withdraw_removals": ({"owner"}, Agent),
    "withdraw_proposal": ({"admin"}, Agent),  # who proposed
    "revoke_key": (STEERS, AgentKey),  # and of tenants
    "remove": ({"owner", "superuser"}, Membership),
    "withdraw": ({"owner", "superuser"}, Invitation),
}
OF_SUPERUSERS = {"deactivate", "reactivate"}  # tests/admin/test_people.py
OF_ONES_OWN = {"revoke", "withdraw_proposal"}  # lists offer them to whoever may have one
LEADS_ON = {"ask_to_read", "roll_back", "roll_back_entry", "roll_back_before"}  # to a page that asks
IN_NO_TRAIL = LEADS_ON | {"verify", "remove", "withdraw"}


@pytest.fixture
def lived(house: House, staff: dict[str, Person]) -> House:
    """Both agents with memories in each state, a session, a proposal, and a grant in force of somebody else."""
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} likes tea", f"{MARKER} likes tea", f"{MARKER} sails", f"{MARKER} paints")
        operations.protect(fresh(agent), [3], Actor.person("owner@acme.test"))
        loop.refine(fresh(agent), trigger="manual")
        other = Asking(999, "other@acme.test")
        asked = grants.ask(fresh(agent), other, purpose=WHY, scope=Scope("silo"))
        grants.approve(fresh(agent), asked.number, RUNTIME)
        proposals.propose(fresh(agent), Actor.person("admin@acme.test"), model="openai/gpt")
    return house


def someone() -> Person:
    return Person.objects.get_or_create(email="someone@else.test")[0]


def invitation_to(tenant: Tenant) -> Invitation:
    root = Person.objects.filter(is_superuser=True).first()
    invitations.invite(tenant, "new@else.test", "auditor", root)
    return Invitation.objects.get(tenant=tenant)


def row_for(deed: str, agent: Agent) -> Any:
    """A row of the agent's to which the deed makes sense."""
    if deed == "resume":
        lifecycle.change(fresh(agent), RUNTIME, paused=True)
    if deed == "memory_on":
        rule_changes.change(fresh(agent), OPERATOR, enabled=False)
    if deed == "withdraw_removals":
        removal_requests.ask_erasure(fresh(agent), Actor.person("owner@acme.test"), reason="request 17")
    memories = Memory.objects.filter(agent=agent)
    return {
        "protect": lambda: memories.get(number=4),
        "unprotect": lambda: memories.get(number=3),
        "restore": lambda: memories.filter(discarded_at__isnull=False).first(),
        "ask_to_read": lambda: memories.get(number=4),
        "ask_redaction": lambda: memories.get(number=4),
        "roll_back": lambda: RefinementSession.objects.get(agent=agent),
        "roll_back_entry": lambda: AuditEntry.objects.filter(agent_id=agent.pk, changes=1).last(),
        "roll_back_before": lambda: AuditEntry.objects.filter(agent_id=agent.pk, changes=1).last(),
        "revoke": lambda: AccessRequest.objects.get(agent_id=agent.pk),
        "revoke_key": lambda: AgentKey.objects.get(agent=agent),
        "remove": lambda: Membership.objects.get_or_create(tenant=agent.tenant, person=someone(), role="admin")[0],
        "withdraw": lambda: invitation_to(agent.tenant),
    }.get(deed, lambda: fresh(agent))()


def state(*of: Agent) -> list[Any]:
    """All that a deed could change."""
    ids = [agent.pk for agent in of]
    rows = [Agent.objects.filter(pk__in=ids), Memory.objects.filter(agent__in=ids), AccessRequest.objects.all()]
    rows += [AgentKey.objects.all(), Membership.objects.all(), Invitation.objects.all()]
    return [list(each.order_by("pk").values()) for each in rows]


def test_every_deed_there_is_stands_in_the_table() -> None:
    reverse("admin:index")  # which registers the pages
    there = {(each.name, page.model) for page in site._registry.values() for each in page.row_actions}
    listed = {(name, model) for name, (_, model) in TABLE.items()} | {(name, Person) for name in OF_SUPERUSERS}
    assert there == listed | {("revoke_key", TenantKey)}


@contextmanager
def taken_back() -> Iterator[None]:
    """What the block does is done to no other."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_who_may(lived: House, enter: Enter) -> None:
    clients = {role: enter(role) for role in EVERYBODY}
    for model, role in itertools.product({model for _, model in TABLE.values()}, sorted(SEES)):
        with taken_back():
            offered(model, role, clients[role], lived)
    for deed, role in itertools.product(sorted(TABLE), EVERYBODY):
        with taken_back():
            tried(deed, role, clients[role], lived)


def offered(model: type[Any], role: str, client: Client, lived: House) -> None:
    """The list of these rows offers what the role may do."""
    deeds = {deed for deed, (_, of) in TABLE.items() if of is model}
    in_list, _ = pages_of(row_for(min(deeds), lived.ada))
    choice = set(re.findall(r'<option value="(\w+)"', client.get(in_list).content.decode()))
    assert choice & deeds - OF_ONES_OWN == {deed for deed in deeds if role in TABLE[deed][0]} - OF_ONES_OWN, role


def tried(deed: str, role: str, client: Client, lived: House) -> None:
    """By the button on the row's page, and by a forged form: both say the same."""
    allowed, _ = TABLE[deed]
    row = row_for(deed, lived.ada)
    may = role in allowed
    button = f'name="action" value="{deed}"'
    assert (button in client.get(pages_of(row)[1]).content.decode()) == may, (deed, role)
    before = state(lived.ada, lived.bob)
    asked, done = post(client, deed, row), confirm(client, deed, row)
    if not may:
        for answer in (asked, done):
            assert answer.status_code in (302, 403, 404) or "changelist-form" in answer.content.decode(), "the list"
        assert state(lived.ada, lived.bob) == before, (deed, role)
    elif deed in LEADS_ON:
        assert asked.status_code == 302
        assert client.get(asked["Location"]).status_code == 200
        assert state(lived.ada, lived.bob) == before
    else:
        assert "What will happen" in asked.content.decode(), (deed, role)
        assert done.status_code == 302, (deed, role)
        assert deed == "verify" or state(lived.ada, lived.bob) != before
        assert said(done), "what became of it"


def test_another_tenants_row_is_as_one_that_is_not_there(lived: House, client: Client) -> None:
    for deed in TABLE:
        with taken_back():
            theirs, own = row_for(deed, lived.bob), row_for(deed, lived.ada)
            missing = type(theirs)(pk=99_999_999)
            before = state(lived.ada, lived.bob)
            told = [confirm(client, deed, *rows) for rows in ((theirs,), (missing,), (own, theirs), (own, missing))]
            assert {answer.status_code for answer in told} == {404}, deed
            assert len({answer.content for answer in told}) == 1, deed
            assert state(lived.ada, lived.bob) == before, deed


def test_what_is_no_row_is_a_missing_page(house: House, client: Client) -> None:
    for chosen in ("x", "", "-1", "1.5", "9" * 30, "\u0661", "1 or 1=1", "\0"):
        form = {"action": "pause", "_selected_action": [chosen], "confirmed": "1"}
        assert client.post(reverse("admin:memory_agent_changelist"), form).status_code in (302, 404), chosen
    assert not fresh(house.ada).paused


def test_a_deed_without_the_token_of_its_form_is_refused(lived: House, staff: dict[str, Person], settings: Any) -> None:
    from tests.admin.conftest import code

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(enforce_csrf_checks=True)
    page = client.get("/admin/login/").content.decode()
    token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', page)
    assert token
    owner = staff["owner"]
    form = {"username": owner.email, "password": "a good long passphrase", "code": code(owner)}
    assert client.post("/admin/login/", form | {"csrfmiddlewaretoken": token[1]}).status_code == 302
    assert confirm(client, "pause", lived.ada).status_code == 403
    assert not fresh(lived.ada).paused


def test_nothing_happens_by_looking(lived: House, client: Client) -> None:
    rows = {deed: row_for(deed, lived.ada) for deed in TABLE}
    before = state(lived.ada, lived.bob)
    for deed, row in rows.items():
        in_list, page = pages_of(row)
        for address in (in_list, page):
            client.get(address, {"action": deed, "_selected_action": row.pk, "confirmed": "1", "index": "0"})
        post(client, deed, row)  # asks
    assert state(lived.ada, lived.bob) == before


# --- what they come to


def test_each_is_in_the_trail_with_the_person(lived: House, enter: Enter) -> None:
    clients = {role: enter(role) for role in ("admin", "owner")}
    done = [deed for deed in sorted(TABLE) if deed not in IN_NO_TRAIL]
    for deed in done:
        role = "admin" if "admin" in TABLE[deed][0] else "owner"
        row = row_for(deed, lived.ada)
        seq = fresh(lived.ada).audit_seq
        confirm(clients[role], deed, row)
        entries = AuditEntry.objects.filter(agent_id=lived.ada.pk, seq__gt=seq)
        assert ("person", f"{role}@acme.test") in set(entries.values_list("actor_kind", "actor_label")), deed
    assert steps.problems(lived.ada) == []
    assert not LogEntry.objects.exists(), "Django's own history has nothing of it"


def test_refining_now_queues_it_though_it_is_paused(lived: House, client: Client) -> None:
    lifecycle.change(fresh(lived.ada), RUNTIME, paused=True)
    assert "no worker ever ran" in post(client, "refine_now", lived.ada).content.decode()
    assert "refinement requested. It waits until a worker runs" in said(confirm(client, "refine_now", lived.ada))
    queue.keep_schedules()
    answer = confirm(client, "refine_now", lived.ada)
    assert "refinement requested. The session appears" in said(answer)
    assert schedule.due().filter(pk=lived.ada.pk).exists()
    assert Waiting.objects.filter(pk=lived.ada.pk).exists()


def test_where_a_due_agent_stands_is_told(lived: House, client: Client) -> None:
    page = pages_of(lived.ada)[1]
    refining.change(lived.ada, due_at=timezone.now(), due_reason="weekly")
    assert "starts after the next sweep" in client.get(page).content.decode()
    Provider.objects.create(name=lived.ada.model, failures=2, shut_until=timezone.now())
    assert f"starts when {lived.ada.model} answers again" in client.get(page).content.decode()
    Provider.objects.all().delete()
    backlog.sweep()
    assert "waiting for a worker since" in client.get(page).content.decode()
    Provider.objects.create(name=lived.ada.model, failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    assert f"starts when {lived.ada.model} answers again" in client.get(page).content.decode()
    Provider.objects.all().delete()
    while scheduling.take() is not None:
        pass
    assert "a worker has started" in client.get(page).content.decode()
    refining.opened(lived.ada)
    assert "a session is open" in client.get(page).content.decode()


def test_that_a_tenant_is_at_its_limit_is_told(lived: House, enter: Enter, settings: Any) -> None:
    settings.TENANT_SESSIONS = 1
    other, _ = lifecycle.create(lived.ada.tenant.slug, "other", model="builtin/dedupe", actor=RUNTIME)
    for agent, days in ((other, 2), (lived.ada, 1)):
        refining.change(agent, due_at=timezone.now() - timedelta(days=days), due_reason="weekly")
    backlog.sweep()
    assert scheduling.take() is not None
    page = enter("owner").get(pages_of(lived.ada)[1]).content.decode()
    assert "the tenant has reached its limit of open sessions" in page


def test_who_is_due_is_counted_also_while_it_is_refined_or_waits_for_next_month(lived: House, client: Client) -> None:
    listed = reverse("admin:memory_agent_changelist") + "?need=due"
    refining.change(lived.ada, due_at=timezone.now(), due_reason="weekly")
    Tenant.objects.update(month_tokens=0)
    assert lived.ada.label in client.get(listed).content.decode()
    refining.opened(lived.ada)
    assert lived.ada.label in client.get(listed).content.decode()


def test_several_memories_are_one_edit_and_those_refused_are_named(lived: House, enter: Enter) -> None:
    rows = list(Memory.objects.filter(agent=lived.ada, kind="core").order_by("number"))
    gone = [row.number for row in rows if row.discarded_at]
    seq = fresh(lived.ada).audit_seq
    answer = confirm(enter("owner"), "protect", *rows)
    assert f"Already discarded: {gone[0]}" in said(answer)
    assert f"protected, as entry {seq + 1}" in said(answer)
    assert fresh(lived.ada).audit_seq == seq + 1
    assert Memory.objects.filter(agent=lived.ada, kind="core", constitutional=True).count() == len(rows) - len(gone)


def test_a_superuser_acts_on_agents_of_several_tenants_each_for_itself(lived: House, enter: Enter) -> None:
    answer = confirm(enter("superuser"), "pause", lived.ada, lived.bob)
    assert "acme/ada: paused." in said(answer)
    assert "globex/bob: paused." in said(answer)
    assert fresh(lived.ada).paused
    assert fresh(lived.bob).paused


def test_removing_protection_needs_a_reason(lived: House, client: Client) -> None:
    row = row_for("unprotect", lived.ada)
    answer = post(client, "unprotect", row, confirmed="1", reason="   ")
    assert answer.status_code == 200
    assert "This field is required" in answer.content.decode()
    assert Memory.objects.get(pk=row.pk).constitutional
    confirm(client, "unprotect", row)
    entry = AuditEntry.objects.filter(agent_id=lived.ada.pk, operation="unprotected").get()
    assert entry.detail["reason"] == "asked for by the owner"


def test_what_verifying_found_is_told(lived: House, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    client = enter("auditor")
    assert "the audit trail is intact" in said(confirm(client, "verify", lived.ada))
    Agent.objects.filter(pk=lived.ada.pk).update(core_tokens=1)
    assert "the audit trail is broken" in said(confirm(client, "verify", lived.ada))
    monkeypatch.setattr("memory.admin.agent_actions.MAX_VERIFIED", 3)
    assert "manage.py verify_audit acme/ada" in said(confirm(client, "verify", lived.ada)), "too long for a page"


def test_an_erased_agent_is_left_as_it_is(lived: House, client: Client) -> None:
    Agent.objects.filter(pk=lived.ada.pk).update(wrapped_key=b"")
    for deed in ("refine_now", "protect", "restore"):
        answer = confirm(client, deed, row_for(deed, lived.ada))
        assert answer.status_code == 302
        assert "erased" in said(answer).lower(), deed


def test_ones_own_grant_may_be_ended_by_an_auditor_and_anothers_not(
    lived: House, staff: dict[str, Person], signed_in: SignedIn
) -> None:
    auditor = staff["auditor"]
    client = signed_in(auditor)
    asked = grants.ask(fresh(lived.ada), Asking(auditor.pk, auditor.email), purpose=WHY, scope=Scope("silo"))
    grants.approve(fresh(lived.ada), asked.number, RUNTIME)
    own = AccessRequest.objects.get(agent_id=lived.ada.pk, number=asked.number)
    other = AccessRequest.objects.get(agent_id=lived.ada.pk, person="other@acme.test")
    assert confirm(client, "revoke", other).status_code == 404
    assert "grant revoked" in said(confirm(client, "revoke", own))
    states = dict(AccessRequest.objects.filter(agent_id=lived.ada.pk).values_list("person", "state"))
    assert states == {auditor.email: "revoked", "other@acme.test": "active"}
    assert "There is no grant in force" in said(confirm(client, "revoke", own))


def test_resuming_one_that_is_due_has_it_refined(lived: House, enter: Enter) -> None:
    lifecycle.change(fresh(lived.ada), RUNTIME, paused=True)
    backlog.request(fresh(lived.ada))
    Waiting.objects.all().delete()
    assert "A refinement is due and waits for a worker" in said(confirm(enter("owner"), "resume", lived.ada))
    assert Waiting.objects.filter(pk=lived.ada.pk).exists()


@pytest.mark.parametrize("deed", ["revoke", "revoke_key"])
def test_the_rows_of_many_agents_are_read_at_once(deed: str, lived: House, enter: Enter) -> None:
    """Each is one edit of its agent's; nothing else is asked of the database for each."""
    client, counted = enter("superuser"), []
    for agents in ((lived.ada,), (lived.ada, lived.bob)):
        rows = [row_for(deed, agent) for agent in agents]
        with CaptureQueriesContext(connection) as captured:
            assert post(client, deed, *rows).status_code == 200
        counted.append(len(captured))
    assert counted[0] == counted[1]
    with CaptureQueriesContext(connection) as captured:
        assert confirm(client, deed, *rows).status_code == 302
    agents_alone = [each for each in captured if re.search(r'FROM "memory_agent".*"memory_agent"."id" = ', each["sql"])]
    assert len([each for each in agents_alone if "FOR UPDATE" not in each["sql"]]) <= len(rows), "its edit's own"
