"""Admin actions: who may run them, by button and by forged form, and what they change."""

import itertools
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.db import connection
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
from memory.consent import approval, requests
from memory.models import Agent, AgentKey, Invitation, Membership, Memory, Person, Tenant, TenantKey
from memory.policy.validation import Draft
from memory.writing import operations
from refinement import backlog, loop, schedule, scheduling
from refinement.models import Provider, RefinementSession, Waiting
from tests import refining, steps
from tests.admin.actions import confirm, html, messages_of, pages_of, post, state_of
from tests.admin.conftest import Enter, SignedIn, Staff, sign_in
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, signed_update
from tests.tampering import undone

PURPOSE = "A customer got a wrong opening hour."
OWNER = Actor.person("owner@acme.test")

MANAGERS, VIEWERS = {"owner", "admin", "superuser"}, {"owner", "admin", "auditor", "superuser"}
ROLES = sorted(VIEWERS | {"stranger"})
# Each action: the roles that may run it, and the model of its rows.
ACTIONS: dict[str, tuple[set[str], type[Any]]] = {
    **dict.fromkeys(("refine_now", "pause", "resume", "memory_off", "memory_on"), (MANAGERS, Agent)),
    "suspend_keys": (MANAGERS, Agent),
    "verify": (VIEWERS, Agent),
    **dict.fromkeys(("protect", "unprotect", "restore"), (MANAGERS, Memory)),
    "ask_to_read": (VIEWERS, Memory),
    "roll_back": (MANAGERS, RefinementSession),
    **dict.fromkeys(("roll_back_entry", "roll_back_rest", "roll_back_before"), (MANAGERS, AuditEntry)),
    "revoke": (MANAGERS, AccessRequest),
    "ask_redaction": ({"owner"}, Memory),
    **dict.fromkeys(("ask_erasure", "withdraw_removals", "lift_suspension"), ({"owner"}, Agent)),
    "withdraw_proposal": ({"admin"}, Agent),  # the person who proposed
    "revoke_key": (MANAGERS, AgentKey),  # and TenantKey
    "remove": ({"owner", "superuser"}, Membership),
    "withdraw": ({"owner", "superuser"}, Invitation),
}
FOR_SUPERUSERS = {"deactivate", "reactivate"}  # tests/admin/test_people.py
OFFERED_TO_ALL = {"revoke", "withdraw_proposal"}  # the lists do not know yet whose rows are selected
LEADS_TO_A_FORM = {"ask_to_read", "roll_back", "roll_back_entry", "roll_back_rest", "roll_back_before"}
NOT_IN_THE_TRAIL = LEADS_TO_A_FORM | {"verify", "remove", "withdraw"}


@pytest.fixture
def agents(house: House, staff: Staff) -> House:
    """Both agents have memories in each state, a session, a proposal, and an active grant for another person."""
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} likes tea", f"{MARKER} likes tea", f"{MARKER} sails", f"{MARKER} paints")
        operations.protect(fresh(agent), [3], OWNER)
        loop.refine(fresh(agent), trigger="manual")
        grant_to(Asking(999, "other@acme.test"), agent)
        requests.propose(fresh(agent), Actor.person("admin@acme.test"), model="openai/gpt")
    return house


def grant_to(person: Asking, agent: Agent) -> AccessRequest:
    number = requests.ask_to_read(fresh(agent), person, purpose=PURPOSE, scope=Scope("silo")).number
    approval.approve(fresh(agent), number, ME)
    return AccessRequest.objects.get(agent_id=agent.pk, number=number)


def invitation_to(tenant: Tenant) -> Invitation:
    invitations.invite(tenant, "new@else.test", "auditor", Person.objects.get(is_superuser=True))
    return Invitation.objects.get(tenant=tenant)


def membership_in(tenant: Tenant) -> Membership:
    person, _ = Person.objects.get_or_create(email="someone@else.test")
    return Membership.objects.get_or_create(tenant=tenant, person=person, role="admin")[0]


def row_for(action: str, agent: Agent) -> Any:
    """A row of this agent that the action can change."""
    if action == "resume":
        lifecycle.change(fresh(agent), ME, paused=True)
    if action == "memory_on":
        rule_changes.change(fresh(agent), OPERATOR, enabled=False)
    if action == "withdraw_removals":
        requests.ask_erasure(fresh(agent), OWNER, reason="request 17")
    if action == "lift_suspension":
        lifecycle.suspend_keys(fresh(agent), OPERATOR)
    if action == "revoke_key":  # not the last key
        lifecycle.issue_key(fresh(agent), ME)
    memories, entries = Memory.objects.filter(agent=agent), AuditEntry.objects.filter(agent_id=agent.pk, changes=1)
    return {
        "protect": lambda: memories.get(number=4),
        "unprotect": lambda: memories.get(number=3),
        "restore": lambda: memories.filter(discarded_at__isnull=False).first(),
        "ask_to_read": lambda: memories.get(number=4),
        "ask_redaction": lambda: memories.get(number=4),
        "roll_back": lambda: RefinementSession.objects.get(agent=agent),
        "roll_back_entry": entries.last,
        "roll_back_rest": entries.filter(session__isnull=False).first,
        "roll_back_before": entries.last,
        "revoke": lambda: AccessRequest.objects.get(agent_id=agent.pk),
        "revoke_key": lambda: AgentKey.objects.filter(agent=agent).first(),
        "remove": lambda: membership_in(agent.tenant),
        "withdraw": lambda: invitation_to(agent.tenant),
    }.get(action, lambda: fresh(agent))()


def state() -> list[Any]:
    """Every row that an action could change."""
    return state_of(Agent, Memory, AccessRequest, AgentKey, Membership, Invitation)


def test_the_table_lists_every_action() -> None:
    reverse("admin:index")  # registers the pages
    registered = {(each.name, page.model) for page in site._registry.values() for each in page.row_actions}
    listed = {(name, model) for name, (_, model) in ACTIONS.items()} | {(name, Person) for name in FOR_SUPERUSERS}
    assert registered == listed | {("revoke_key", TenantKey)}


def test_each_role_is_offered_and_may_run_its_actions_only(agents: House, enter: Enter) -> None:
    clients = {role: enter(role) for role in ROLES}
    for model, role in itertools.product({model for _, model in ACTIONS.values()}, sorted(VIEWERS)):
        with undone():
            check_the_list(model, role, clients[role], agents)
    for action, role in itertools.product(sorted(ACTIONS), ROLES):
        with undone():
            check_the_action(action, role, clients[role], agents)


def check_the_list(model: type[Any], role: str, client: Client, agents: House) -> None:
    """The list of these rows offers the actions of the role."""
    actions = {action for action, (_, rows) in ACTIONS.items() if rows is model}
    address, _ = pages_of(row_for(min(actions), agents.ada))
    offered = set(re.findall(r'<option value="(\w+)"', html(client.get(address))))
    allowed = {action for action in actions if role in ACTIONS[action][0]}
    assert offered & actions - OFFERED_TO_ALL == allowed - OFFERED_TO_ALL, role


def check_the_action(action: str, role: str, client: Client, agents: House) -> None:
    """The button on the row's page and a forged form give the same result."""
    row, may = row_for(action, agents.ada), role in ACTIONS[action][0]
    assert (f'name="action" value="{action}"' in html(client.get(pages_of(row)[1]))) == may, (action, role)
    before = state()
    preview, done = post(client, action, row), confirm(client, action, row)
    if not may:
        for response in (preview, done):
            assert response.status_code in (302, 403, 404) or "changelist-form" in html(response), "the list"
        assert state() == before, (action, role)
    elif action in LEADS_TO_A_FORM:
        assert preview.status_code == 302
        assert client.get(preview["Location"]).status_code == 200
        assert state() == before
    else:
        assert "What will happen" in html(preview), (action, role)
        assert done.status_code == 302, (action, role)
        assert action == "verify" or state() != before
        assert messages_of(done)


def test_a_row_of_another_tenant_gets_the_response_of_a_missing_row(agents: House, client: Client) -> None:
    for action in ACTIONS:
        with undone():
            theirs, own = row_for(action, agents.bob), row_for(action, agents.ada)
            missing, before = type(theirs)(pk=99_999_999), state()
            selections = ((theirs,), (missing,), (own, theirs), (own, missing))
            responses = [confirm(client, action, *rows) for rows in selections]
            assert {response.status_code for response in responses} == {404}, action
            assert len({response.content for response in responses}) == 1, action
            assert state() == before, action


def test_a_malformed_row_id_changes_nothing(house: House, client: Client) -> None:
    for chosen in ("x", "", "-1", "1.5", "9" * 30, "\u0661", "1 or 1=1", "\0"):
        form = {"action": "pause", "_selected_action": [chosen], "confirmed": "1"}
        assert client.post(reverse("admin:memory_agent_changelist"), form).status_code in (302, 404), chosen
    assert not fresh(house.ada).paused


def test_an_action_without_a_csrf_token_is_refused(agents: House, staff: Staff, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(enforce_csrf_checks=True)
    token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', html(client.get("/admin/login/")))
    assert token
    assert sign_in(client, staff["owner"], csrfmiddlewaretoken=token[1]).status_code == 302
    assert confirm(client, "pause", agents.ada).status_code == 403
    assert not fresh(agents.ada).paused


def test_get_requests_and_unconfirmed_actions_change_nothing(agents: House, client: Client) -> None:
    rows = {action: row_for(action, agents.ada) for action in ACTIONS}
    before = state()
    for action, row in rows.items():
        for address in pages_of(row):
            client.get(address, {"action": action, "_selected_action": row.pk, "confirmed": "1", "index": "0"})
        post(client, action, row)
    assert state() == before


# --- results


def test_each_action_is_in_the_trail_with_its_person(agents: House, enter: Enter) -> None:
    clients = {role: enter(role) for role in ("admin", "owner")}
    for action in sorted(ACTIONS.keys() - NOT_IN_THE_TRAIL):
        role = "admin" if "admin" in ACTIONS[action][0] else "owner"
        row, seq = row_for(action, agents.ada), fresh(agents.ada).audit_seq
        confirm(clients[role], action, row)
        entries = AuditEntry.objects.filter(agent_id=agents.ada.pk, seq__gt=seq)
        assert ("person", f"{role}@acme.test") in set(entries.values_list("actor_kind", "actor_label")), action
    assert steps.problems(agents.ada) == []
    assert not LogEntry.objects.exists(), "Django's own history holds nothing"


def test_refine_now_queues_a_paused_agent(agents: House, client: Client) -> None:
    lifecycle.change(fresh(agents.ada), ME, paused=True)
    assert "no worker has started yet" in html(post(client, "refine_now", agents.ada))
    assert "It does not start until a worker runs" in messages_of(confirm(client, "refine_now", agents.ada))
    queue.keep_schedules()
    assert "The session appears" in messages_of(confirm(client, "refine_now", agents.ada))
    assert schedule.due().filter(pk=agents.ada.pk).exists()
    assert Waiting.objects.filter(pk=agents.ada.pk).exists()


def test_resuming_a_due_agent_queues_its_refinement(agents: House, client: Client) -> None:
    lifecycle.change(fresh(agents.ada), ME, paused=True)
    backlog.request(fresh(agents.ada))
    Waiting.objects.all().delete()
    assert "A refinement is due and waits for a worker" in messages_of(confirm(client, "resume", agents.ada))
    assert Waiting.objects.filter(pk=agents.ada.pk).exists()


def test_the_page_shows_what_a_due_agent_waits_for(agents: House, client: Client) -> None:
    def shows(text: str) -> bool:
        return text in html(client.get(pages_of(agents.ada)[1]))

    name, later = agents.ada.model, timezone.now() + timedelta(minutes=1)
    refining.change(agents.ada, due_at=timezone.now(), due_reason="weekly")
    assert shows("starts after the next check for due agents")
    Provider.objects.create(name=name, failures=2, shut_until=timezone.now())
    assert shows(f"starts when {name} answers again")
    Provider.objects.all().delete()
    backlog.sweep()
    assert shows("waiting for a worker since")
    Provider.objects.create(name=name, failures=2, shut_until=later)
    assert shows(f"starts when {name} answers again")
    Provider.objects.all().delete()
    while scheduling.take() is not None:
        pass
    assert shows("a worker has started")
    refining.opened(agents.ada)
    assert shows("a session is open")


def test_the_page_shows_that_the_tenant_is_at_its_limit(agents: House, client: Client, settings: Any) -> None:
    settings.TENANT_SESSIONS = 1
    other, _ = lifecycle.create(agents.ada.tenant.slug, "other", model="builtin/dedupe", actor=ME)
    for agent, days in ((other, 2), (agents.ada, 1)):
        refining.change(agent, due_at=timezone.now() - timedelta(days=days), due_reason="weekly")
    backlog.sweep()
    assert scheduling.take() is not None
    assert "the tenant has reached its limit of open sessions" in html(client.get(pages_of(agents.ada)[1]))


def test_the_due_filter_includes_agents_in_a_session_or_without_tokens_left(agents: House, client: Client) -> None:
    listed = reverse("admin:memory_agent_changelist") + "?need=due"
    refining.change(agents.ada, due_at=timezone.now(), due_reason="weekly")
    Tenant.objects.update(month_tokens=0)
    assert agents.ada.label in html(client.get(listed))
    refining.opened(agents.ada)
    assert agents.ada.label in html(client.get(listed))


def test_several_memories_are_one_edit_and_refused_ones_are_named(agents: House, client: Client) -> None:
    core = Memory.objects.filter(agent=agents.ada, kind="core").order_by("number")
    [discarded], seq = [row.number for row in core if row.discarded_at], fresh(agents.ada).audit_seq
    messages = messages_of(confirm(client, "protect", *core))
    assert f"Already discarded: {discarded}" in messages
    assert f"protected, as entry {seq + 1}" in messages
    assert fresh(agents.ada).audit_seq == seq + 1
    assert core.filter(constitutional=True).count() == core.count() - 1


def test_a_superuser_acts_on_agents_of_several_tenants(agents: House, enter: Enter) -> None:
    messages = messages_of(confirm(enter("superuser"), "pause", agents.ada, agents.bob))
    assert "acme/ada: paused." in messages
    assert "globex/bob: paused." in messages
    assert all(fresh(agent).paused for agent in (agents.ada, agents.bob))


def test_removing_protection_needs_a_reason(agents: House, client: Client) -> None:
    row = row_for("unprotect", agents.ada)
    assert "This field is required" in html(post(client, "unprotect", row, confirmed="1", reason="   "))
    assert Memory.objects.get(pk=row.pk).constitutional
    confirm(client, "unprotect", row)
    entry = AuditEntry.objects.get(agent_id=agents.ada.pk, operation="unprotected")
    assert entry.detail["reason"] == "requested by the owner"


def test_verify_reports_the_state_of_the_trail(agents: House, enter: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    client = enter("auditor")
    assert "the audit trail is intact" in messages_of(confirm(client, "verify", agents.ada))
    Agent.objects.filter(pk=agents.ada.pk).update(core_tokens=1)
    assert "the audit trail is broken" in messages_of(confirm(client, "verify", agents.ada))
    entries = fresh(agents.ada).audit_seq
    monkeypatch.setattr("memory.admin.agent_actions.MAX_VERIFIED", entries)  # but there are changes, too
    assert "manage.py verify_audit acme/ada" in messages_of(confirm(client, "verify", agents.ada)), "a long trail"


def test_actions_on_an_erased_agent_are_refused(agents: House, client: Client) -> None:
    signed_update(Agent.objects.filter(pk=agents.ada.pk), wrapped_key=b"")
    for action in ("refine_now", "protect", "restore"):
        response = confirm(client, action, row_for(action, agents.ada))
        assert response.status_code == 302
        assert "erased" in messages_of(response).lower(), action


def test_many_large_memories_are_restored_in_several_edits(agents: House, enter: Enter) -> None:
    """Other writers waited for 2.7 s for one edit of 500 memories of 95 kB."""
    drafts, client = [Draft("x" * 90_000, is_beneath=True)] * 70, enter("owner")
    numbers = [row.number for row in operations.remember(fresh(agents.ada), drafts, ME).memories]
    rows = operations.discard(fresh(agents.ada), numbers, ME).memories
    for action, changes in (("restore", [33, 33, 4]), ("ask_redaction", [0])):
        before = fresh(agents.ada).audit_seq
        assert messages_of(confirm(client, action, *rows)).count("acme/ada: 33 memories restored") == 2
        entries = AuditEntry.objects.filter(agent_id=agents.ada.pk, seq__gt=before).order_by("seq")
        assert [entry.changes for entry in entries] == changes


def test_an_auditor_ends_their_own_grant_only(agents: House, staff: Staff, signed_in: SignedIn) -> None:
    auditor = staff["auditor"]
    client, own = signed_in(auditor), grant_to(Asking(auditor.pk, auditor.email), agents.ada)
    other = AccessRequest.objects.get(agent_id=agents.ada.pk, person="other@acme.test")
    assert confirm(client, "revoke", other).status_code == 404
    assert "grant revoked" in messages_of(confirm(client, "revoke", own))
    states = dict(AccessRequest.objects.filter(agent_id=agents.ada.pk).values_list("person", "state"))
    assert states == {auditor.email: "revoked", "other@acme.test": "active"}
    assert "There is no active grant" in messages_of(confirm(client, "revoke", own))


@pytest.mark.parametrize("action", ["revoke", "revoke_key"])
def test_the_number_of_queries_does_not_grow_with_the_rows(action: str, agents: House, enter: Enter) -> None:
    client, counts = enter("superuser"), []
    for selected in ((agents.ada,), (agents.ada, agents.bob)):
        rows = [row_for(action, agent) for agent in selected]
        with CaptureQueriesContext(connection) as captured:
            assert post(client, action, *rows).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1]
    with CaptureQueriesContext(connection) as captured:
        assert confirm(client, action, *rows).status_code == 302
    single = [each for each in captured if re.search(r'FROM "memory_agent".*"memory_agent"."id" = ', each["sql"])]
    assert len([each for each in single if "FOR UPDATE" not in each["sql"]]) <= len(rows), "one for each agent's edit"
