"""A steward, the links in the steward's mail, and the pages behind them."""

import re
from typing import Any

from django.test import Client

from audit.consent import Person, Scope
from audit.trail import Actor
from memory.consent import links, requests
from memory.models import Agent
from tests.members import with_account
from tests.privacy.marker import MARKER
from tests.steps import fresh

STEW = "stew@acme.test"
PAT = Person(1, "pat@else.test")
ADMIN = Actor.person("admin@else.test")
PURPOSE = "to see why it <script>forgot</script> the customer"
REASON = "request <b>17</b>"
BUTTONS = ("Approve", "Delete permanently", "Deny", "Revoke")


def with_link(agent: Agent, number: int) -> tuple[int, str]:
    """The number of a request, and the address of its link."""
    return number, f"/consent/{links.make(fresh(agent), number)}"


def request(agent: Agent, person: Person = PAT, **more: Any) -> tuple[int, str]:
    values: dict[str, Any] = {"purpose": PURPOSE, "scope": Scope("silo")} | more
    return with_link(agent, requests.ask_to_read(fresh(agent), with_account(person, agent), **values).number)


def proposal(agent: Agent, actor: Actor = ADMIN, model: str = "openai/gpt-4.1", **settings: Any) -> tuple[int, str]:
    return with_link(agent, requests.propose(fresh(agent), actor, model=model, **settings).number)


def redaction(agent: Agent, *numbers: int, actor: Actor = ADMIN, **more: Any) -> tuple[int, str]:
    made = requests.ask_redaction(fresh(agent), numbers or (1,), actor, reason=REASON, **more)
    return with_link(agent, made.number)


def erasure(agent: Agent) -> tuple[int, str]:
    return with_link(agent, requests.ask_erasure(fresh(agent), ADMIN, reason=REASON).number)


def every_link(agent: Agent) -> list[str]:
    """The address of a link of each kind."""
    return [make(agent)[1] for make in (request, proposal, redaction, erasure)]


def press(client: Client, address: str, decision: str, shown: str = "") -> Any:
    """Press a button on the page, which may have been open for long: `shown` is its list of memories."""
    return client.post(address, {"decision": decision, "shown": shown or listed(client, address)})


def listed(client: Client, address: str) -> str:
    """What stands on the page for the memories that a removal deletes."""
    return "".join(re.findall('name="shown" value="(.+?)"', client.get(address).content.decode()))


def page(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    text = response.content.decode()
    assert MARKER not in text
    return text


def buttons(text: str) -> list[str]:
    return [each for each in BUTTONS if re.search(f">{each}(?: for [^<]*)?</button>", text)]
