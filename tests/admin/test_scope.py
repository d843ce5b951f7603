"""The admin shows only rows of a person's tenants, and never the content of a memory."""

import itertools
import logging
import re
from typing import Any

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from audit.models import AccessRequest, AuditEntry
from memory.access import tenants
from memory.accounts import invitations
from memory.admin.base import export
from memory.agents import lifecycle
from memory.models import Agent, AgentKey, Invitation, Membership, Memory, Person, Role, Tenant, TenantKey
from refinement import loop
from refinement.models import RefinementSession
from tests import many_rows, steps
from tests.admin.actions import html, messages_of
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.members import join
from tests.privacy import logbook
from tests.privacy.marker import MARKER
from tests.steps import fresh

OTHER_TIME_FORMATS = re.compile(r"\d [ap]\.m\.|\b(?:noon|midnight)\b|\b[A-Z][a-z]{2,8}\.? \d{1,2}, 20\d\d")
DESCRIBED = re.compile(r'aria-describedby="([^"]+)"')
LINK = re.compile(r'href="(/admin/[^"#]*|\?[^"#]*)"')
SAME_PAGE = re.compile(r"/logout|\?o=|\?_changelist_filters=|=.*=")  # another order, or several filters at a time
OF_AGENTS = (AuditEntry, AccessRequest, Memory, RefinementSession)
MODELS = {Agent, Memory, RefinementSession, AuditEntry, AccessRequest, AgentKey, TenantKey}
MODELS |= {Membership, Invitation, Tenant, Person}


@pytest.fixture
def agents(house: House) -> House:
    """Both agents have memories, a session and a trail."""
    for agent in (house.ada, house.bob):
        text = f"{MARKER} meets at 09:45 on the quay"
        steps.remember(agent, text, f"{text} always", f"{MARKER} likes tea")
        loop.refine(fresh(agent), trigger="manual")
        tenants.issue_key(agent.tenant.slug)
    root = Person.objects.create_user("made@service.test", is_superuser=True)
    outsider = Person.objects.create_user("bob@globex.test")
    join(person=outsider, tenant=house.bob.tenant, role=Role.OWNER)
    for tenant in (house.ada.tenant, house.bob.tenant):
        invitations.invite(tenant, f"more@{tenant.slug}.test", Role.ADMIN, root)
    return house


def address_of(model: Any, kind: str, *ids: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}", args=ids)


def crawl(client: Client, most: int = 400) -> dict[str, str]:
    """Every page that links lead to, by address. Each filter is followed with one value."""
    pages: dict[str, str] = {}
    filters: set[str] = set()
    waiting = ["/admin/"]
    while waiting and len(pages) < most:
        address = waiting.pop()
        name, is_filter, _ = address.partition("=")
        if address in pages or SAME_PAGE.search(address) or name in filters:
            continue
        if is_filter:
            filters.add(name)
        response = client.get(address)
        assert response.status_code in (200, 302), (address, response.status_code)
        pages[address] = html(response)
        links = LINK.findall(pages[address].replace("&amp;", "&"))
        waiting += [link if link.startswith("/") else address.partition("?")[0] + link for link in links]
    return pages


def test_every_model_of_the_admin_is_tested_here() -> None:
    reverse("admin:index")  # registers the pages
    assert set(site._registry) == MODELS


@pytest.mark.parametrize("role", ["owner", "auditor"])  # an admin sees nothing that an owner does not
def test_a_crawl_finds_no_other_tenant_and_no_content(role: str, agents: House, enter: Enter) -> None:
    pages = crawl(enter(role))
    assert len(pages) > 40
    assert any("acme/ada" in page for page in pages.values())
    assert any("Invited by" in page and "made@service.test" in page for page in pages.values()) == (role == "owner")
    for address, page in pages.items():
        assert not re.search(rf"globex|\bbob\b|{MARKER}", page), address
        described = {each for ids in DESCRIBED.findall(page) for each in ids.split()}
        assert not {each for each in described if f'id="{each}"' not in page}, address


def test_a_superuser_sees_every_tenant_and_no_content(agents: House, enter: Enter) -> None:
    pages = "".join(crawl(enter("superuser")).values())
    assert "globex/bob" in pages
    assert MARKER not in pages
    assert not OTHER_TIME_FORMATS.search(pages)


def test_a_person_without_a_membership_sees_nothing(agents: House, enter: Enter) -> None:
    client = enter("stranger")
    assert not re.search(r"acme|globex", html(client.get("/admin/")))
    assert {client.get(address_of(model, "changelist")).status_code for model in MODELS} == {403}


def test_a_row_of_another_tenant_gets_the_response_of_a_missing_row(agents: House, client: Client) -> None:
    filters: dict[Any, dict[str, Any]] = {Agent: {"pk": agents.bob.pk}, Person: {"email": "bob@globex.test"}}
    filters |= {each: {"agent": agents.bob} for each in (Memory, RefinementSession, AgentKey)}
    filters |= {each: {"tenant": agents.bob.tenant} for each in (TenantKey, Membership, Invitation)}
    filters[Tenant], filters[AuditEntry] = {"pk": agents.bob.tenant.pk}, {"agent_id": agents.bob.pk}
    for model, kind in itertools.product(MODELS - {AccessRequest}, ("change", "history", "delete")):
        theirs = model.objects.filter(**filters[model]).first()
        responses = [client.get(address_of(model, kind, pk)) for pk in (theirs.pk, 99_999_999)]
        assert len({(each.status_code, each.headers.get("Location")) for each in responses}) == 1, (model, kind)
        assert not re.search(rf"globex|\bbob\b|{MARKER}", html(responses[0]))


def test_a_forged_form_changes_nothing(agents: House, enter: Enter) -> None:
    client = enter("superuser")
    for model, kind in itertools.product(MODELS, ("add", "change", "delete")):
        row, before = model.objects.first(), list(model.objects.order_by("pk").values())
        ids = [] if kind == "add" else [row.pk if row else 1]
        assert client.post(address_of(model, kind, *ids), {"post": "yes"}).status_code in (302, 403)
        assert list(model.objects.order_by("pk").values()) == before, (model, kind)


def test_a_list_accepts_only_its_own_filters(agents: House, client: Client) -> None:
    lookups = ("sealed__startswith=x", "digest=x", "agent__tenant__slug=globex", "agent__system_prompt__contains=a")
    for query in (*lookups, "tokens__gt=1"):
        assert client.get(f"/admin/memory/memory/?{query}").status_code in (302, 400), query


def test_no_filter_or_search_shows_a_row_of_another_tenant(agents: House, client: Client) -> None:
    queries = ("agent=globex/bob", "tenant=globex", "agent=/", "agent=x", "tenant=%00", "kind=%00", "q=%00")
    for query, model in itertools.product(queries, (Memory, RefinementSession, AuditEntry)):
        response = client.get(f"{address_of(model, 'changelist')}?{query}")
        assert response.status_code in (200, 302)
        assert not re.search(rf"\bbob\b.*globex|{MARKER}", html(response).replace(query, ""))
    for search in ("ada", "globex", "bob", '"', "\\", "%", "a" * 5_000, "\u0000"):
        response = client.get("/admin/memory/agent/", {"q": search})
        assert response.status_code in (200, 302)
        found = ["globex/bob" in html(response), "acme/ada" in html(response)]
        assert found == [False, search in ("ada", '"')], "a quotation mark alone is no word to search for"


def test_a_missing_page_of_search_results_is_404(house: House, client: Client) -> None:
    for search in ("/admin/search/?s=age", "/admin/search/?s=age&extended=1"):
        assert "Agents" in html(client.get(search))
        for page in ("abc", "99", "0", "-1", "9" * 40, ""):
            assert client.get(f"{search}&page={page}").status_code == 404, page


def test_the_number_of_queries_does_not_grow_with_the_rows(
    house: House, enter: Enter, django_assert_max_num_queries: Any
) -> None:
    client = enter("superuser")
    acme = house.ada.tenant
    many_rows.add(house.ada, 1_000)
    TenantKey.objects.bulk_create(TenantKey(prefix=f"t{n}", mac=b"", tenant=acme) for n in range(1_000))
    Agent.objects.bulk_create(Agent(tenant=acme, slug=f"a{n}", model="builtin/dedupe") for n in range(1_000))
    for model in MODELS:
        with django_assert_max_num_queries(12):
            assert client.get(address_of(model, "changelist")).status_code == 200
    pages = [(model, model.objects.filter(agent_id=house.ada.pk).latest("pk").pk) for model in OF_AGENTS]
    for model, pk in [*pages, (Agent, house.ada.pk)]:
        with django_assert_max_num_queries(30):
            assert client.get(address_of(model, "change", pk)).status_code == 200


def test_the_page_of_an_agent_reads_its_requests_once_and_those_to_read_never(house: House, client: Client) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address_of(Agent, "change", house.ada.pk)).status_code == 200
    read = [each["sql"] for each in queries if "'change_proposed'" in each["sql"]]
    assert ["LIKE 'access%'" in sql for sql in read] == [True]


# --- error pages: they do not depend on what exists


def are_one_error_page(responses: list[Any], status: int) -> bool:
    page = html(responses[-1])
    assert {response.status_code for response in responses} == {status}
    assert len({response.content for response in responses}) == 1
    assert "plain.css" in page
    assert not any("unsafe" in response.headers["Content-Security-Policy"] for response in responses)
    return all("no-store" in response.headers["Cache-Control"] for response in responses)


def test_missing_forbidden_and_bad_requests_get_plain_error_pages(house: House, client: Client, enter: Enter) -> None:
    forms = [address_of(Agent, "change_settings", pk) for pk in (house.bob.pk, 99_999_999, house.ada.pk)]
    missing = [*forms[:2], "/admin/nothing/", "/nothing", "/reading/globex/bob/1/"]
    assert are_one_error_page([client.get(address) for address in missing], 404)
    assert reverse("admin:index") in html(client.get("/nothing"))
    auditor, forbidden = enter("auditor"), [forms[2], "/admin/memory/agentkey/", "/admin/memory/tenant/"]
    assert are_one_error_page([auditor.get(address) for address in forbidden], 403)
    for bad, is_about_hosts in (
        (client.get("/admin/", HTTP_HOST="elsewhere.test"), True),
        (client.get("/admin/memory/memory/?" + "a=1&" * 1_001), False),  # too many parameters
    ):
        assert are_one_error_page([bad], 400)
        assert ("ALLOWED_HOSTS" in html(bad)) == is_about_hosts


def test_a_refused_address_is_logged_without_a_stack(house: House, client: Client) -> None:
    lists = "/admin/memory/agent/"
    for address, status in {f"{lists}?_to_field=x": 400, f"{lists}?{'a=1&' * 1_001}": 400, f"{lists}add/": 403}.items():
        with logbook.kept(logging.INFO) as log:
            assert client.get(address).status_code == status
        assert (f"HTTP {status}" in log.text, '"at"' in log.text) == (True, False)


def test_an_unknown_filter_is_removed_from_the_address(client: Client) -> None:
    for query, kept in {"digest=0a1b2c": "", "kind__exact=core&created_at__gte=x&q=a": "kind__exact=core&q=a"}.items():
        response = client.get(f"/admin/memory/memory/?{query}", follow=True)
        assert response.redirect_chain == [(f"/admin/memory/memory/?{kept}", 302)]
        assert f"This list has no such filter: {re.findall('digest|created_at__gte', query)[0]}." in html(response)
        assert "0a1b2c" not in html(response)
    response = client.get("/admin/memory/memory/?constitutional__exact=maybe", follow=True)
    assert response.redirect_chain[-1] == ("/admin/memory/memory/", 302)
    assert "The address had a value that is not valid." in html(response)


def test_an_error_page_keeps_messages_for_the_next_page(house: House, client: Client) -> None:
    form = {"action": "pause", "_selected_action": [str(house.ada.pk)], "confirmed": "1"}
    assert client.post("/admin/memory/agent/", form).status_code == 302
    assert "acme/ada: paused." not in html(client.get("/admin/nothing/"))
    assert "acme/ada: paused." in html(client.get("/admin/memory/agent/"))


def test_the_list_of_entries_says_which_settings_changed(agents: House, client: Client) -> None:
    for paused in (True, False):
        lifecycle.change(fresh(agents.ada), steps.ME, paused=paused)
    page = html(client.get(address_of(AuditEntry, "changelist")))
    assert ("agent changed: paused" in page, "agent changed: resumed" in page) == (True, True)


def test_a_list_shows_its_filters_and_an_export_is_named_after_them(agents: House, client: Client) -> None:
    address, month = address_of(AuditEntry, "changelist"), timezone.now().strftime("%Y-%m")
    page = html(client.get(f"{address}?agent=acme/ada&time={month}&q=ada"))
    assert re.search(r'href="\?q=ada&amp;time=[^"]*" title="Remove this filter">agent: <b>acme/ada</b>', page)
    assert "<option selected>acme/ada</option>" in page
    assert '<input type="hidden" name="q" value="ada">' in page
    assert client.get(f"{address}?q=ada&agent=&time={month}")["Location"] == f"{address}?q=ada&time={month}"
    response = client.get(f"{address}?agent=acme/ada&time={month}&export=csv")
    assert re.search(r'"audit-entries-.*acme-ada.*\.csv"', response["Content-Disposition"])


def test_an_export_of_too_many_rows_is_refused(agents: House, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    address = address_of(AuditEntry, "changelist")
    monkeypatch.setattr(export, "MOST", 1)
    response = client.get(f"{address}?export=csv")
    assert (response.status_code, response.headers["Location"].partition("?")[0]) == (302, address)
    assert "An export can have 1 rows. Use filters" in messages_of(response)
    monkeypatch.undo()
    assert html(client.get(f"{address}?export=csv")).startswith("seq,agent_label,operation")
