"""Consent and invitations from start to end, in the browsers of both people."""

import base64
import re
from urllib.parse import urlsplit

import pytest
from django.core import mail
from django.urls import reverse
from django_otp.oath import TOTP
from playwright.sync_api import expect

from memory.agents import lifecycle
from memory.models import Agent, Person
from tests import queueing, steps
from tests.admin.conftest import PASSWORD, code
from tests.browser.conftest import NewWindow
from tests.browser.walk import Walk
from tests.browser.window import USUAL
from tests.conftest import House
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import ME

TEA = f"{MARKER} drinks tea"
STEWARD = "sue@stewards.test"
PURPOSE = "A customer got a wrong opening hour."


@pytest.fixture
def past(house: House, pat: Person) -> Agent:
    """An agent with a steward. Pat is an auditor of its tenant."""
    steps.remember(house.ada, TEA, f"{MARKER} drinks milk")
    lifecycle.change(house.ada, ME, steward=STEWARD)
    join(person=pat, tenant=house.ada.tenant, role="auditor")
    queueing.work()  # sends the letters about these changes
    mail.outbox.clear()
    return steps.fresh(house.ada)


def mailed_link() -> str:
    """The path of the link in the steward's letter."""
    assert queueing.work() == [("link", "sent")]
    assert mail.outbox[-1].to == [STEWARD]
    found = re.search(r"https?://\S+/consent/\S+", str(mail.outbox[-1].body))
    assert found
    return urlsplit(found[0]).path


def confirmation() -> str:
    """The letter to the steward about their decision. It has no link and no content."""
    assert queueing.work() == [("decision", "sent")]
    assert mail.outbox[-1].to == [STEWARD]
    text = str(mail.outbox[-1].body)
    assert not [word for word in ("http", MARKER, PURPOSE) if word in text]
    return text


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_a_request_is_approved_used_and_revoked(
    size: str, colours: str, new_window: NewWindow, past: Agent, pat: Person
) -> None:
    reader, steward = Walk(new_window(size, colours)), Walk(new_window(size, colours))
    reader.page.clock.install()
    reader.enter(pat)
    reader.open(reverse("admin:memory_agent_change", args=[past.pk]))
    reader.follow("Ask for access")
    reader.page.get_by_label("Purpose").fill(PURPOSE)
    reader.page.get_by_label("Numbers").fill("1")
    reader.page.get_by_label("For how long").select_option("15 minutes")
    reader.press("Send the request")
    reader.sees("The agent's steward or its runtime decides.", "Waits for a decision")

    link = mailed_link()
    steward.open(link)
    steward.sees("May pat@acme.test read 1 memory of acme/ada?", PURPOSE, "15 minutes", "one memory and its history")
    assert steward.page.context.cookies(reader.window.origin + "/admin/") != [], "the form's cookie only"
    steward.press("Approve for 15 minutes")
    steward.sees("The agent’s steward approved this", "has read nothing so far")
    letter = confirmation()
    assert "pat@acme.test asked to read one memory and its history. You approved this request on" in letter
    assert re.search(r"The access holds until \d+ \w+ 20\d\d at \d\d:\d\d UTC\. To revoke it earlier", letter)

    expect(reader.page.get_by_role("button", name="Revoke")).to_be_visible(timeout=15_000)  # the page is live
    reader.sees("Active:")
    reader.follow("Open the memories")
    grant = reader.page.url
    reader.read("Read memory 1")
    reader.sees(TEA)
    assert "milk" not in reader.page.content()
    reader.page.clock.fast_forward(16 * 60_000)
    expect(reader.page.get_by_role("alert")).to_contain_text("The grant has ended")
    reader.arrive()

    reader.open(grant)
    steward.open(link)
    steward.sees("has read content 1 time so far")
    steward.press("Revoke")
    steward.sees("was revoked on", "Before that, pat@acme.test read content 1 time.")
    assert "The access was revoked on" in confirmation()
    reader.window.expected.append("409")
    reader.press("Read memory 1")
    reader.sees("Request refused")
    reader.follow("Back to the grant")
    reader.sees("Revoked: somebody ended the grant early.")


@pytest.mark.parametrize(("size", "colours"), USUAL)
def test_an_invitation_is_sent_and_accepted(
    size: str, colours: str, new_window: NewWindow, past: Agent, pat: Person
) -> None:
    owner, guest = Walk(new_window(size, colours)), Walk(new_window(size, colours))
    join(pat, past.tenant, "owner")
    owner.enter(pat)
    owner.open(reverse("admin:memory_membership_changelist"))
    owner.choose("Invite somebody")
    owner.page.get_by_label("Tenant").select_option("acme")
    owner.page.get_by_label("Address").fill("new@acme.test")
    owner.page.get_by_label("Role").select_option("auditor")
    owner.press("Create the link")
    link = urlsplit(owner.page.locator("pre.secret").inner_text()).path

    guest.open(link)
    guest.sees("new@acme.test", "auditor in acme")
    expect(guest.page.get_by_role("img", name="QR code").locator("svg")).to_be_visible()
    key = base64.b32decode(guest.page.locator("pre.secret").inner_text().replace(" ", ""))
    guest.page.get_by_label("Your name").fill("New")

    def use(digits: str) -> None:
        for label in ("New password", "Repeat the new password"):
            guest.page.get_by_label(label, exact=True).fill(PASSWORD)
        guest.page.get_by_role("textbox", name="Code").fill(digits)
        guest.press("Join")

    use("000000")  # the page shows the error, and the same second factor
    assert not Person.objects.filter(email="new@acme.test").exists()
    use(f"{TOTP(key).token():06d}")
    guest.sees("You joined acme as auditor")

    new = Person.objects.get(email="new@acme.test")
    guest.window.sign_in(new, code(new, 1))
    guest.arrive()
    expect(guest.page).to_have_title("Overview | Palimpsest")
    guest.open(reverse("admin:memory_agent_change", args=[past.pk]))
    guest.window.expected.append("409")
    assert guest.window.open(link) == 409
    guest.sees("This invitation was already used.")
    guest.arrive()
