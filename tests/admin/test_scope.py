"""Whoever looks: rows of their tenants alone, by whatever address, and no word of any memory."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import reverse

from audit.models import AccessRequest, AuditEntry
from memory.access import tenants
from memory.accounts import invitations
from memory.models import Agent, AgentKey, Invitation, Membership, Memory, Person, Role, Tenant, TenantKey
from refinement import loop
from refinement.models import RefinementSession
from tests import steps
from tests.admin.conftest import Enter
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import fresh

OTHERWISE = re.compile(r"\d [ap]\.m\.|\b(?:noon|midnight)\b|\b[A-Z][a-z]{2,8}\.? \d{1,2}, 20\d\d")
DESCRIBED = re.compile(r'aria-describedby="([^"]+)"')
LINK = re.compile(r'href="(/admin/[^"#]*|\?[^"#]*)"')
OF_OWNERS = {AgentKey, TenantKey, Membership, Invitation}
OF_SUPERUSERS = {Tenant, Person}
PAGES = {Agent, Memory, RefinementSession, AuditEntry, AccessRequest} | OF_OWNERS | OF_SUPERUSERS
SEES = ["owner", "auditor"]  # an admin: nothing that an owner does not see


@pytest.fixture
def lived(house: House) -> House:
    """Both have memories, a session and a trail."""
    for agent in (house.ada, house.bob):
        told = f"{MARKER} meets at 09:45 on the quay"
        steps.remember(agent, told, f"{told} always", f"{MARKER} likes tea")
        loop.refine(fresh(agent), trigger="manual")
        tenants.issue_key(agent.tenant.slug)
    root = Person.objects.create_superuser("made@service.test")
    outsider = Person.objects.create_user("bob@globex.test")
    Membership.objects.create(person=outsider, tenant=house.bob.tenant, role=Role.OWNER)
    invitations.invite(house.bob.tenant, "more@globex.test", Role.ADMIN, root)
    invitations.invite(house.ada.tenant, "more@acme.test", Role.ADMIN, root)
    return house


def crawled(client: Client, most: int = 400) -> dict[str, str]:
    """Every page that is reached from the first, by address, and each filter of it with one value."""
    seen: dict[str, str] = {}
    filtered: set[str] = set()
    todo = ["/admin/"]
    while todo and len(seen) < most:
        address = todo.pop()
        if address in seen or re.search(r"/logout|\?o=|\?_changelist_filters=", address):  # which show the same
            continue
        if address.count("=") > 1:  # one filter at a time
            continue
        if "=" in address:
            name = address.partition("=")[0]
            if name in filtered:
                continue
            filtered.add(name)
        answer = client.get(address)
        assert answer.status_code in (200, 302), (address, answer.status_code)
        seen[address] = answer.content.decode()
        path = address.partition("?")[0]
        todo += [
            link if link.startswith("/") else path + link for link in LINK.findall(seen[address].replace("&amp;", "&"))
        ]
    return seen


@pytest.mark.parametrize("role", SEES)
def test_a_crawl_finds_nothing_of_another_tenant_and_no_word(role: str, lived: House, enter: Enter) -> None:
    pages = crawled(enter(role))
    assert len(pages) > 40
    assert any("acme/ada" in page for page in pages.values())
    assert any("Invited by" in page and "made@service.test" in page for page in pages.values()) == (role == "owner")
    for address, page in pages.items():
        assert not re.search(r"globex|\bbob\b", page), address
        assert MARKER not in page, address
        described = {each for ids in DESCRIBED.findall(page) for each in ids.split()}
        assert not {each for each in described if f'id="{each}"' not in page}, address


def test_a_superuser_sees_every_tenant_and_no_word(lived: House, enter: Enter) -> None:
    pages = crawled(enter("superuser"))
    assert any("globex/bob" in page for page in pages.values())
    assert MARKER not in "".join(pages.values())
    assert not any(OTHERWISE.search(page) for page in pages.values()), "a time is written in one way"


def test_who_has_no_part_anywhere_sees_nothing(lived: House, enter: Enter) -> None:
    client = enter("stranger")
    page = client.get("/admin/").content.decode()
    assert not re.search(r"acme|globex", page)
    assert {client.get(place(model, "changelist")).status_code for model in PAGES} == {403}


def test_every_page_there_is_is_looked_at_here() -> None:
    reverse("admin:index")  # which registers the pages, also in a process that had no request before
    assert set(site._registry) == PAGES


def place(model: Any, kind: str, *ids: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}", args=ids)


def test_another_tenants_row_is_as_one_that_is_not_there(lived: House, client: Client) -> None:
    of_bob: dict[Any, dict[str, Any]] = {Agent: {"pk": lived.bob.pk}, Person: {"email": "bob@globex.test"}}
    of_bob |= {each: {"agent": lived.bob} for each in (Memory, RefinementSession, AgentKey)}
    of_bob |= {each: {"tenant": lived.bob.tenant} for each in (TenantKey, Membership, Invitation)}
    of_bob[Tenant] = {"pk": lived.bob.tenant.pk}
    for model in PAGES - {AccessRequest}:
        theirs = model.objects.filter(**of_bob.get(model, {"agent_id": lived.bob.pk})).first()
        for kind in ("change", "history", "delete"):
            answers = [client.get(place(model, kind, pk)) for pk in (theirs.pk, 99_999_999)]
            told = [(answer.status_code, answer.headers.get("Location")) for answer in answers]
            assert told[0] == told[1], (model, kind)
            assert not re.search(rf"globex|\bbob\b|{MARKER}", answers[0].content.decode())


def test_nothing_is_changed_by_a_forged_form(lived: House, enter: Enter) -> None:
    client = enter("superuser")
    for model, kind in itertools.product(PAGES, ("add", "change", "delete")):
        row, before = model.objects.first(), list(model.objects.order_by("pk").values())
        ids = [] if kind == "add" else [row.pk if row else 1]
        assert client.post(place(model, kind, *ids), {"post": "yes"}).status_code in (302, 403)
        assert list(model.objects.order_by("pk").values()) == before, (model, kind)


BEYOND = ("sealed__startswith=x", "digest=x", "agent__tenant__slug=globex", "agent__system_prompt__contains=a")


def test_an_address_asks_only_for_what_its_page_offers(lived: House, client: Client) -> None:
    for asked in (*BEYOND, "tokens__gt=1"):
        assert client.get(f"/admin/memory/memory/?{asked}").status_code in (302, 400), asked


def test_neither_a_filter_nor_a_search_shows_another_tenants_row(lived: House, client: Client) -> None:
    filters = ("agent=globex/bob", "tenant=globex", "agent=/", "agent=x", "tenant=%00", "kind=%00", "q=%00")
    pages = ("memory/memory", "refinement/refinementsession", "audit/auditentry")
    for asked, page in itertools.product(filters, pages):
        answer = client.get(f"/admin/{page}/?{asked}")
        assert answer.status_code in (200, 302)
        assert not re.search(rf"\bbob\b.*globex|{MARKER}", answer.content.decode().replace(asked, ""))
    for search in ("ada", "globex", "bob", '"', "\\", "%", "a" * 5_000, "\u0000"):
        answer = client.get("/admin/memory/agent/", {"q": search})
        assert answer.status_code in (200, 302)
        assert "globex/bob" not in answer.content.decode()
        assert ("acme/ada" in answer.content.decode()) == (search in ("ada", '"')), "the last is no word"


def test_a_page_of_results_that_is_not_there(house: House, client: Client) -> None:
    for search in ("/admin/search/?s=age", "/admin/search/?s=age&extended=1"):
        assert "Agents" in client.get(search).content.decode()
        for page in ("abc", "99", "0", "-1", "9" * 40, ""):
            assert client.get(f"{search}&page={page}").status_code == 404, page


def test_a_list_takes_as_many_queries_however_long(
    house: House, client: Client, django_assert_max_num_queries: Any
) -> None:
    acme = house.ada.tenant
    steps.remember(fresh(house.ada), *(f"{MARKER} {n}" for n in range(40)))
    AgentKey.objects.bulk_create(AgentKey(prefix=f"a{n}", mac=b"", agent=house.ada) for n in range(200))
    TenantKey.objects.bulk_create(TenantKey(prefix=f"t{n}", mac=b"", tenant=acme) for n in range(200))
    Agent.objects.bulk_create(Agent(tenant=acme, slug=f"a{n}", model="builtin/dedupe") for n in range(200))
    for model in PAGES:
        with django_assert_max_num_queries(12):
            client.get(place(model, "changelist"))
