"""The overview, and what a new service shows: figures of a person's tenants, next steps, and texts of empty lists."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from config import queue
from memory.admin.base.help_texts import EMPTY_TEXTS, LIMITS, USUAL
from memory.agents import lifecycle
from memory.consent import approval, requests
from memory.models import Agent, Invitation, Person, Tenant
from memory.time_machine.rollback import What, roll_back
from refinement import backlog, limits, loop, providers
from refinement import session as sessions
from refinement.admin import overview
from refinement.llm.base import ModelRefused
from refinement.models import Provider, RefinementSession
from tests import refining, steps
from tests.admin.actions import html
from tests.admin.conftest import Enter, SignedIn, Staff, enrolled
from tests.admin.reading import asked, granted
from tests.conftest import OPERATOR, House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh

pytestmark = pytest.mark.database

TENANT_FORMS = ("membership_invite", "agent_add_agent")


@pytest.fixture
def root(db: None) -> Person:
    return enrolled("first@service.test", is_superuser=True)


def overview_of(client: Client) -> dict[str, Any]:
    response = client.get("/admin/")
    assert response.status_code == 200
    assert MARKER not in html(response)
    found: dict[str, Any] = response.context["overview"]
    return found


def counts(client: Client) -> dict[str, int]:
    """The counts that are not zero."""
    return {name: count for name, count, _, _ in overview_of(client)["counts"] if count}


def test_it_counts_what_needs_attention(house: House, staff: Staff, enter: Enter) -> None:
    for agent in (house.ada, house.bob):
        steps.remember(agent, f"{MARKER} tea", f"{MARKER} tea", f"{MARKER} boats")
    client = enter("auditor")
    assert counts(client) == {"agents": 1}
    lifecycle.change(fresh(house.ada), ME, paused=True, target_tokens=1, budget_tokens=1)
    granted(house.ada, staff["auditor"])
    asked(house.ada, staff["auditor"])
    paused = {"over budget": 1, "paused": 1, "access requests": 1, "active grants": 1}
    assert counts(client) == {"agents": 1} | paused
    assert ">acme/ada</a><span>1 access request waits for" in html(client.get("/admin/"))
    redaction = requests.ask_redaction(fresh(house.ada), [1], OPERATOR, reason="ticket 1")
    erasure = requests.ask_erasure(fresh(house.bob), OPERATOR, reason="ticket 2")
    assert ">acme/ada</a><span>1 removal request waits for" in html(client.get("/admin/"))
    superuser = enter("superuser")
    labels = lambda: [each.label for each in overview_of(superuser)["requests"]]  # noqa: E731
    assert labels() == ["acme/ada", "acme/ada", "globex/bob"]
    approval.approve(fresh(house.ada), redaction.number, ME)
    requests.deny(fresh(house.bob), erasure.number, ME)
    assert labels() == ["acme/ada"]
    page = html(client.get(reverse("admin:memory_agent_change", args=[house.ada.pk])))
    assert f"{staff['auditor'].email} asks to read (<a " in page
    lifecycle.change(fresh(house.ada), ME, paused=False)
    backlog.request(fresh(house.ada))
    assert counts(client)["due"] == 1
    assert counts(superuser)["agents"] == 2


def test_the_charts_show_sessions_of_the_persons_tenants(
    house: House, enter: Enter, time_machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for agent in (house.ada, house.bob):
        steps.remember(agent, *[f"{MARKER} drinks tea"] * 3)
    saved = 0
    for _ in range(2):
        session = loop.refine(fresh(house.ada), trigger="manual")
        session.refresh_from_db()
        saved += session.tokens_before - session.tokens_after
    loop.refine(fresh(house.bob), trigger="manual")
    owner = enter("owner")
    weekly, outcomes = overview_of(owner)["charts"]
    assert [value for _, value in weekly.figures] == ["0"] * (overview.WEEKS - 1) + [f"{saved:,}"]
    assert saved > 0
    assert outcomes.figures == [("completed", "2")]
    roll_back(fresh(house.ada), What("session", 1), ME)  # what was rolled back is not saved
    rolled_back = RefinementSession.objects.get(agent=house.ada, number=1)
    kept = saved - (rolled_back.tokens_before - rolled_back.tokens_after)
    weekly, outcomes = overview_of(owner)["charts"]
    assert weekly.figures[-1][1] == f"{kept:,}"
    assert outcomes.figures == [("completed", "1"), ("rolled back", "1")]
    assert kept < saved
    monkeypatch.setattr(overview, "MOST_SESSIONS", 1)  # the others are not compared with the rollbacks
    assert overview_of(owner)["charts"][1].figures == [("completed", "2")]
    time_machine.move_to(timezone.now() + timedelta(weeks=overview.WEEKS))
    weekly, outcomes = overview_of(enter("admin"))["charts"]
    assert ({value for _, value in weekly.figures}, outcomes.figures) == ({"0"}, [])


def test_the_number_of_queries_does_not_grow_with_the_agents(
    house: House, client: Client, django_assert_max_num_queries: Any
) -> None:
    values = {"tenant": house.ada.tenant, "model": "builtin/dedupe", "due_at": timezone.now(), "wrapped_key": b"x"}
    Agent.objects.bulk_create(Agent(slug=f"a{n}", core_tokens=n + 1, **values) for n in range(1_000))
    with django_assert_max_num_queries(20):
        heaviest = overview_of(client)["heaviest"]
    assert [row["agent"].slug for row in heaviest][:10] == [f"a{n}" for n in range(999, 989, -1)]
    with django_assert_max_num_queries(12):
        assert client.get(reverse("admin:memory_agent_changelist")).status_code == 200


def test_an_agent_that_grows_faster_than_its_sessions_shorten_it_needs_attention(house: House, client: Client) -> None:
    refining.fill(house.ada, 4, 100)
    lifecycle.change(fresh(house.ada), ME, budget_tokens=1_000, target_tokens=100)
    for number, size in enumerate((300, 200, 350, 390), 1):
        sessions.close(sessions.open_session(fresh(house.ada), trigger="manual"), "completed", "")
        RefinementSession.objects.filter(number=number).update(tokens_after=size)
    assert overview_of(client)["attention"] == []
    RefinementSession.objects.filter(number=2).update(tokens_after=310)
    [item] = overview_of(client)["attention"]
    why = "Core memory grows faster than refinement shortens it: 90 tokens more in 3 sessions."
    assert (item.why, item.advice) == (why, "Propose another model")
    Agent.objects.filter(pk=house.ada.pk).update(budget_tokens=399)
    assert [item.why for item in overview_of(client)["attention"]] == [why]
    assert why in html(client.get(reverse("admin:memory_agent_change", args=[house.ada.pk])))


def test_each_count_links_to_its_rows_and_the_menu_to_every_list(house: House, enter: Enter) -> None:
    client = enter("superuser")
    for name, count, address, _ in overview_of(client)["counts"]:
        assert len(client.get(address).context["cl"].result_list) == count, name
    page = html(client.get("/admin/"))
    for model in site._registry:
        assert reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist") in page


def test_an_agent_over_its_budget_is_marked_as_paused(house: House, enter: Enter) -> None:
    client = enter("auditor")
    steps.remember(house.ada, f"{MARKER} tea")
    over = "<span>over budget{}; no worker runs</span>"
    for paused, due, notes in ((False, over.format(""), []), (True, over.format(", paused"), ["1 paused"])):
        lifecycle.change(fresh(house.ada), ME, target_tokens=1, budget_tokens=1, paused=paused)
        found = overview_of(client)
        assert found["heaviest"][0]["due"] == due
        assert [note for *_, note in found["counts"] if note] == notes
    assert counts(client) == {"agents": 1, "over budget": 1, "paused": 1}
    assert "(1 paused)" in html(client.get("/admin/"))


def test_it_shows_why_due_agents_wait(house: House, enter: Enter) -> None:
    client = enter("auditor")
    said = "<b>Refinement waits:</b> no worker has started yet"
    assert f"{said}. Tell the operator of this service." in html(client.get("/admin/"))
    assert f"{said}: start &#x27;manage.py worker&#x27;." in html(enter("superuser").get("/admin/"))
    page = html(client.get(reverse("admin:memory_agent_change", args=[house.ada.pk])))
    assert "No refinement starts now: no worker has started yet." in page
    queue.keep_schedules()
    assert "Refinement waits" not in html(client.get("/admin/"))
    Provider.objects.create(name="openai", failures=2, shut_until=timezone.now() + timedelta(minutes=1))
    assert "<b>Refinement waits:</b> openai does not respond and is not called until" in html(client.get("/admin/"))


@pytest.mark.parametrize("wrong", ["No OpenAI key on this server: set OPENAI_API_KEY", "answered 404: no such model"])
def test_every_page_says_what_is_wrong_with_the_configuration(
    wrong: str, house: House, enter: Enter, settings: Any
) -> None:
    client, agent = enter("admin"), house.ada
    settings.OPENAI_API_KEY = "" if "key" in wrong else "any"
    refining.change(agent, model="openai/secret-name", due_at=timezone.now(), due_reason="weekly")
    if "404" in wrong:
        refusal = ModelRefused(f"The OpenAI server {wrong} or address.", status=404)
        providers.refuse("openai/secret-name", refusal)
    agents = reverse("admin:memory_agent_changelist")
    pages = ["/admin/", agents, reverse("admin:memory_agent_change", args=[agent.pk])]
    pages += [f"{agents}?need=due", "/readyz"]
    assert [page for page in pages if wrong not in html(client.get(page))] == []
    assert "secret-name" not in client.get("/readyz").json()["models"]


# --- a new service


def test_every_list_has_a_text_for_when_it_is_empty(root: Person, signed_in: SignedIn) -> None:
    assert EMPTY_TEXTS["tenant"] in html(signed_in(root).get(reverse("admin:memory_tenant_changelist")))
    assert {model._meta.model_name for model in site._registry} == set(EMPTY_TEXTS)


def test_a_new_tenant_leads_to_the_next_steps(root: Person, signed_in: SignedIn) -> None:
    client = signed_in(root)
    page = html(client.post(reverse("admin:memory_tenant_add_tenant"), {"slug": "acme"}, follow=True))
    acme = Tenant.objects.get(slug="acme")
    assert "Invite its first owner and add its first agent." in page
    addresses = [f"{reverse(f'admin:memory_{name}')}?tenant={acme.pk}" for name in TENANT_FORMS]
    for address in addresses:
        assert f'href="{address}"' in page
        assert f'<option value="{acme.pk}" selected>' in html(client.get(address))
    form = {"tenant": str(acme.pk), "address": "o@acme.test", "role": "owner"}
    assert client.post(addresses[0], form).status_code == 200
    assert Invitation.objects.get().tenant == acme


def test_a_form_selects_only_a_tenant_of_the_person(house: House, enter: Enter) -> None:
    client = enter("superuser")
    for tenant, name in itertools.product(("x", "\0", "9" * 40, "-1", ""), TENANT_FORMS):
        response = client.get(reverse(f"admin:memory_{name}"), {"tenant": tenant})
        assert response.status_code == 200
        assert f'<option value="{house.ada.tenant_id}" selected>' not in html(response)
    page = html(enter("owner").get(reverse("admin:memory_agent_add_agent"), {"tenant": house.bob.tenant_id}))
    assert f'<option value="{house.bob.tenant_id}"' not in page
    assert "globex" not in page


def test_an_empty_limit_shows_its_default(house: House, root: Person, signed_in: SignedIn) -> None:
    client = signed_in(root)
    tenant = html(client.get(reverse("admin:memory_tenant_change_settings", args=[house.ada.tenant_id])))
    agent = html(client.get(reverse("admin:memory_agent_change_settings", args=[house.ada.pk])))
    defaults = limits.of(house.ada)
    assert set(defaults) == set(LIMITS)
    for name, label in LIMITS.items():
        default = USUAL[name]
        assert default.startswith(f"{defaults[name]:,}"), "the value that a session uses"
        said = label[:1].upper() + label[1:]
        assert f"{said}; default: {default}" in tenant
        assert escape(f"{said}; default: the tenant's limit, or {default} if the tenant has no limit") in agent


def test_the_overview_says_why_an_agent_needs_attention(house: House, enter: Enter) -> None:
    steps.remember(house.ada, f"{MARKER} tea")
    steps.signed_update(Agent.objects.filter(pk=house.ada.pk), target_tokens=1, budget_tokens=1)
    refining.change(house.ada, paused=True)
    overview = overview_of(enter("admin"))
    [item] = overview["attention"]
    assert (item.agent, item.why, item.advice) == (
        house.ada,
        "Over its budget: 5 of 1 tokens, and paused. builtin/dedupe merges only duplicates, so it may stay over its "
        "budget. Then it needs another model.",
        "Resume it",
    )
    assert (item.steers, overview["may_steer"]) == (True, {house.ada.tenant_id})
    assert overview_of(enter("auditor"))["may_steer"] == set(), "an auditor cannot resume"
    session = sessions.open_session(fresh(house.ada), trigger="manual")
    sessions.close(session, "failed", "no_tool_call", problem="The model answered in text.")
    owner = enter("owner")
    [item] = overview_of(owner)["attention"]
    assert (item.why, item.advice) == ("Its last session failed: The model answered in text.", "See the session")
    refining.change(house.ada, model="ollama/new")
    [item] = overview_of(owner)["attention"]
    assert "With its former model builtin/dedupe, its last session failed: The model" in item.why
    assert (item.why.endswith("Its model is now ollama/new."), item.advice) == (True, "Refine it now")
    refining.change(house.ada, paused=False, failures_in_a_row=0, model="builtin/dedupe")
    [item] = overview_of(owner)["attention"]
    assert (item.why.startswith("Over its budget: 5 of 1 tokens. Its next"), item.advice) == (True, "Refine it now")
    RefinementSession.objects.update(outcome="completed", tokens_after=5)
    [item] = overview_of(owner)["attention"]
    assert "Its last refinement could not make it small enough." in item.why
    assert item.path == reverse("admin:memory_agent_propose", args=[house.ada.pk])
    RefinementSession.objects.update(tokens_after=1)
    steps.remember(house.ada, f"{MARKER} boats")
    roll_back(fresh(house.ada), What("entry", steps.last_entry(house.ada).seq), steps.PERSON)
    assert "after a rollback." in overview_of(owner)["attention"][0].why
    Agent.objects.filter(pk=house.ada.pk).update(due_at=timezone.now())
    assert overview_of(owner)["attention"] == [], "a refinement is due, and nothing prevents it yet"
    refining.change(house.ada, model="openai/large")
    [item] = overview_of(owner)["attention"]
    assert item.why.startswith("Its model openai/large cannot be used."), item.why
    assert item.advice == "Propose another model"
