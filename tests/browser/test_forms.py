"""Forms of the admin in a browser: few fields at first, and others when they are needed."""

import pytest
from django.urls import reverse
from playwright.sync_api import Locator, expect

from memory.models import Agent, Person
from tests import steps
from tests.browser.conftest import NewWindow
from tests.browser.walk import Walk
from tests.browser.window import USUAL
from tests.conftest import House
from tests.members import join


@pytest.fixture(params=USUAL, ids="-".join)
def walk(request: pytest.FixtureRequest, new_window: NewWindow, pat: Person, house: House) -> Walk:
    """A window in which pat is signed in, who is an admin of acme."""
    join(person=pat, tenant=house.ada.tenant, role="admin")
    walk = Walk(new_window(*request.param))
    walk.enter(pat)
    return walk


def field(walk: Walk, name: str) -> Locator:
    return walk.page.locator(f"#id_{name}")


def shown(walk: Walk) -> list[str]:
    """The names of the fields that the page shows."""
    fields = walk.page.locator(
        "main .pal-field :is(input, select, textarea):visible, form.pal-card .pal-field :visible"
    )
    names = fields.evaluate_all("fields => fields.map(field => field.name).filter(Boolean)")
    return list(dict.fromkeys(names))


def test_an_agent_is_added_with_few_fields(walk: Walk) -> None:
    walk.open(reverse("admin:memory_agent_add_agent"))
    assert shown(walk) == ["tenant", "agent", "model", "budget_tokens"]
    field(walk, "tenant").select_option("acme")
    field(walk, "agent").fill("eve")
    field(walk, "budget_tokens").fill("4000")  # below the target, which is an advanced field
    walk.press("Add the agent")
    expect(field(walk, "target_tokens")).to_be_visible()
    walk.sees("not be more than the budget")
    field(walk, "target_tokens").fill("3000")
    walk.press("Add the agent")
    walk.sees("First key of acme/eve")
    assert Agent.objects.get(slug="eve").model == "builtin/dedupe"


def test_an_agent_can_have_a_model_that_is_not_in_the_list(walk: Walk) -> None:
    walk.open(reverse("admin:memory_agent_add_agent"))
    walk.page.get_by_text("More settings").click()
    walk.arrive()
    for model, text in (("gpt", "Write a model as provider/name."), ("ollama/qwen3:4b", "First key of acme/eve")):
        field(walk, "tenant").select_option("acme")
        field(walk, "agent").fill("eve")
        field(walk, "model").select_option("")
        field(walk, "other_model").fill(model)
        walk.press("Add the agent")
        walk.sees(text)
    assert Agent.objects.get(slug="eve").model == "ollama/qwen3:4b"


def test_the_settings_have_groups(walk: Walk, house: House) -> None:
    walk.open(reverse("admin:memory_agent_change_settings", args=[house.ada.pk]))
    assert shown(walk) == ["budget_tokens", "target_tokens", "refine_every", "paused"]
    groups = walk.page.get_by_role("group")
    for heading in ("Size of core memory", "When refinement starts", "Limits of a refinement session"):
        expect(groups.filter(has_text=heading).first).to_be_attached()
    walk.page.get_by_text("More settings").press("Enter")  # by keyboard
    field(walk, "max_steps").fill("5")
    walk.press("Save")
    assert steps.fresh(house.ada).max_steps == 5


def test_the_form_for_access_shows_the_fields_of_the_scope(walk: Walk, house: House) -> None:
    steps.remember(house.ada, "drinks tea")
    walk.open(reverse("admin:memory_agent_ask", args=[house.ada.pk]))
    always = ["purpose", "kind", "seconds"]
    for scope, names in {
        "selected memories": ["numbers"],
        "changes of one session": ["session"],
        "changes of some audit entries": ["first", "last"],
        "everything that the agent remembers": [],
    }.items():
        walk.page.get_by_label(scope).check()
        assert shown(walk) == [*always[:2], *names, always[2]]
        choice = walk.page.locator("fieldset div", has=walk.page.get_by_label(scope)).last
        for name in names:
            expect(choice.locator(f"#id_{name}")).to_be_visible()  # below its choice
        walk.arrive()
    walk.page.get_by_label("selected memories").check()
    field(walk, "numbers").fill("none")
    walk.page.get_by_label("everything that the agent remembers").check()  # the browser does not send the number
    walk.page.get_by_label("Purpose").fill("A customer got a wrong opening hour.")
    walk.press("Send the request")
    number = steps.last_entry(house.ada).seq
    walk.sees(f"Request sent. It is entry {number} of the agent's audit trail.", f"access request {number} to acme/ada")


def test_the_form_for_access_works_without_its_script(walk: Walk, house: House) -> None:
    steps.remember(house.ada, "drinks tea")
    walk.window.expected += ["shown_fields.js", "Failed to load resource"]
    walk.page.route("**/shown_fields.js", lambda route: route.abort())
    walk.open(reverse("admin:memory_agent_ask", args=[house.ada.pk]))
    assert shown(walk) == ["purpose", "kind", "numbers", "session", "first", "last", "seconds"]
    walk.page.get_by_label("Purpose").fill("A customer got a wrong opening hour.")
    field(walk, "numbers").fill("1")
    walk.press("Send the request")
    walk.sees("Request sent.")


def test_an_admin_cannot_open_the_form_to_invite(walk: Walk) -> None:
    """Only owners and superusers invite people."""
    expect(walk.page.get_by_role("link", name="Invitations")).to_have_count(0)
    walk.window.expected.append("403")
    for model in ("membership", "invitation", "person"):
        assert walk.window.open(reverse(f"admin:memory_{model}_invite")) == 403
        walk.sees("You do not have permission")
        walk.arrive()
