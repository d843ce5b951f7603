"""Lists in a browser: what they say when they are filtered or empty, and the preview of an action on many rows."""

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from memory.models import Agent, Memory, Person
from memory.writing import operations
from tests import steps
from tests.admin.conftest import enrolled
from tests.browser.conftest import NewWindow
from tests.browser.walk import Walk
from tests.browser.window import USUAL, Window
from tests.conftest import House
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import ME

MEMORIES = reverse("admin:memory_memory_changelist")


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    """An agent with six memories. Memory 1 is protected, and memory 2 is discarded."""
    steps.remember(house.ada, *(f"{MARKER} drinks tea {number}" for number in range(6)))
    operations.protect(house.ada, [1], steps.PERSON)
    operations.discard(house.ada, [2], ME)
    join(person=pat, tenant=house.ada.tenant, role="admin")
    return house.ada


def test_a_preview_counts_only_what_changes(window: Window, past: Agent, pat: Person) -> None:
    walk = Walk(window)
    walk.enter(pat)
    walk.open(f"{MEMORIES}?agent=acme/ada&kind__exact=core")
    for row in Memory.objects.filter(agent=past, number__in=(1, 2, 3, 4)):
        walk.page.locator(f'input[name="_selected_action"][value="{row.pk}"]').check()
    walk.page.get_by_label("Select action to run").select_option("protect")
    walk.press("Run")
    walk.sees("Protects 2 memories of 1 agent", "Already protected, therefore skipped: 1.")
    walk.sees("Discarded or beneath, therefore skipped: 1.")
    walk.press("Protect")
    walk.sees("acme/ada: 2 memories protected")


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_a_filtered_list_offers_to_clear_its_filters(
    size: str, colours: str, new_window: NewWindow, past: Agent, pat: Person
) -> None:
    walk = Walk(new_window(size, colours))
    walk.enter(pat)
    clear = walk.page.get_by_role("heading", level=1).get_by_role("link", name="Clear search and filters")
    walk.open(MEMORIES)
    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("6 results")
    expect(clear).to_have_count(0)
    walk.open(f"{MEMORIES}?layer=discarded")
    walk.page.locator("select[name=agent]").select_option("acme/ada")
    walk.press("Show")
    expect(walk.page).to_have_url(f"{walk.window.origin}{MEMORIES}?layer=discarded&agent=acme%2Fada")
    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("1 result")
    with walk.window.leaving():
        clear.click()
    expect(clear).to_have_count(0)
    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("6 results")
    walk.arrive()


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_the_first_superuser_learns_to_add_a_tenant(
    size: str, colours: str, new_window: NewWindow, transactional_db: None
) -> None:
    walk = Walk(new_window(size, colours))
    walk.enter(enrolled("root@service.test", is_superuser=True))
    if size == "desktop":
        walk.press_key_on(walk.page.get_by_role("link", name="Agents").first)
    walk.open(reverse("admin:memory_agent_changelist"))
    walk.sees("Every agent belongs to a tenant.")
    for name in ("agent_add_agent", "tenantkey_add_key", "membership_invite"):
        walk.open(reverse(f"admin:memory_{name}"))
        walk.sees("There is no tenant yet. Add a tenant first.", "Slug")
    walk.page.get_by_label("Slug").fill("acme")
    walk.press("Add the tenant")
    walk.follow("Add an agent")


def test_a_wrong_address_says_what_is_wrong(window: Window, past: Agent, pat: Person) -> None:
    walk = Walk(window)
    walk.enter(pat)
    walk.open(f"{MEMORIES}?created_at__gte=x&kind__exact=core")
    walk.sees("This list has no such filter: created_at__gte. It was removed from the address.")
    expect(walk.page).to_have_url(f"{walk.window.origin}{MEMORIES}?kind__exact=core")
    walk.open(f"{MEMORIES}?constitutional__exact=maybe")
    walk.sees("The address had a value that is not valid. The list shows all rows instead.")
    walk.window.expected.append("400")
    assert walk.window.open(f"{MEMORIES}?{'a=1&' * 1_001}") == 400
    walk.sees("The address or the form is not valid.")
    assert "ALLOWED_HOSTS" not in walk.page.content()
    walk.arrive()
