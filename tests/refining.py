"""Common steps of refinement tests: open a session, call its tools, and check that a refusal changes nothing."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from audit.models import AuditEntry, Change
from memory.models import Agent, Memory
from memory.writing import operations
from refinement import ledger
from refinement import session as sessions
from refinement.knife import Knife
from refinement.models import Mode, RefinementSession
from tests import steps
from tests.steps import signed_update

_SYLLABLES = [one + two for one in "bdfgklmnprst" for two in "aeiou"]


def filler(tokens: int, seed: object = 0) -> str:
    """A text of this number of tokens, without specifics. Another seed gives another text."""
    syllables = random.Random(f"filler {seed}")
    text = ""
    while len(text) < 4 * tokens:
        text += " " + "".join(syllables.choices(_SYLLABLES, k=4))
    return text.strip()[: 4 * tokens - 1].rstrip().ljust(4 * tokens, "x")


def fill(agent: Agent, count: int, tokens: int, seed: object = "") -> list[int]:
    """Store `count` core memories of `tokens` tokens each. Return their numbers."""
    return steps.remember(agent, *(filler(tokens, f"{seed}/{place}") for place in range(count)))


@dataclass(frozen=True)
class Held:
    """A session and its Knife."""

    session: RefinementSession
    knife: Knife

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, in a reply of its own that is not counted. Return the result as the model gets it."""
        return self.send(tool, arguments)

    def send(self, tool: str, arguments: Any) -> dict[str, Any]:
        row = self.row
        sessions.row_of(row).update(shown=row.shown | row.pending, pending={})
        result: dict[str, Any] = json.loads(self.knife.call(tool, arguments).text)
        return result

    @property
    def row(self) -> RefinementSession:
        return sessions.row_of(self.session).get()


def opened(agent: Agent, *, mode: str = Mode.FULL, shown: bool = True, **settings: Any) -> Held:
    """Set `settings` on the agent, open a session, and show it the whole ledger unless `shown` is false."""
    if settings:
        change(agent, **settings)
    session = sessions.open_session(steps.fresh(agent), trigger="manual", mode=mode)
    held = Held(session, Knife(session))
    if shown:
        held.knife.show(0, 1, entries(agent))
    return held


def entries(agent: Agent) -> list[ledger.Entry]:
    return ledger.read(steps.fresh(agent))


def change(agent: Agent, **settings: Any) -> None:
    signed_update(Agent.objects.filter(pk=agent.pk), **settings)


def everything(agent: Agent) -> dict[str, Any]:
    """Every row of an agent: its memories, its trail, and the counters of its sessions."""
    counted = ("changes", "lost_tokens", "merged", "updated", "deleted", "protected", "promoted", "outcome", "searches")
    return {
        "agent": Agent.objects.filter(pk=agent.pk).values().get(),
        "memories": list(Memory.objects.filter(agent_id=agent.pk).order_by("number").values()),
        "trail": list(AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq").values()),
        "changes": list(Change.objects.filter(agent_id=agent.pk).order_by("pk").values()),
        "sessions": list(RefinementSession.objects.filter(agent=agent).order_by("number").values(*counted)),
    }


@contextmanager
def untouched(agent: Agent) -> Iterator[None]:
    """The block must change no memory, counter or entry of the agent."""
    before = everything(agent)
    yield
    assert everything(agent) == before


def refused(held: Held, code: str, tool: str, arguments: Any) -> dict[str, Any]:
    """Make a call that must be refused with this code and change nothing. Return the result."""
    with untouched(held.session.agent):
        result = held.send(tool, arguments)
    assert (result["ok"], result["code"]) == (False, code), result
    assert result["error"]
    return result


def notice(agent: Agent) -> str:
    """The content of the newest memory that the system stored."""
    return steps.says(agent, Memory.objects.filter(agent_id=agent.pk, source="system").latest("number").number).content


def sound(agent: Agent) -> bool:
    """Whether the trail is intact and the memories equal its replay."""
    return steps.problems(agent) == []


def protected(agent: Agent, *numbers: int) -> None:
    steps.protect(agent, *numbers)


def outside(agent: Agent, number: int, content: str) -> None:
    """Rewrite a memory outside of the session, as the agent's runtime does."""
    operations.revise(agent, number, steps.ME, content=content)
