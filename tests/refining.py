"""Short words for the tests of refinement: an open session, calls of its tools, and what a refusal must leave alone."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from audit.models import AuditEntry, Change
from memory.models import Agent, Memory
from memory.silo.silo import Silo
from memory.time_machine import replay
from memory.writing import operations
from refinement import ledger
from refinement import session as sessions
from refinement.knife import Knife
from refinement.models import Mode, RefinementSession
from tests import steps

_SYLLABLES = [one + two for one in "bdfgklmnprst" for two in "aeiou"]


def filler(tokens: int, seed: object = 0) -> str:
    """A text of exactly so many tokens, without specifics; another seed gives another text."""
    syllables = random.Random(f"filler {seed}")
    text = ""
    while len(text) < 4 * tokens:
        text += " " + "".join(syllables.choices(_SYLLABLES, k=4))
    return text.strip()[: 4 * tokens - 1].rstrip().ljust(4 * tokens, "x")


def fill(agent: Agent, count: int, tokens: int, seed: object = "") -> list[int]:
    """So many core memories of so many tokens each; their numbers."""
    return steps.remember(agent, *(filler(tokens, f"{seed}/{place}") for place in range(count)))


@dataclass(frozen=True)
class Held:
    """A session and its Knife, as a driver holds them."""

    session: RefinementSession
    knife: Knife

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The tool's answer, as the model reads it."""
        return self.send(tool, arguments)

    def send(self, tool: str, arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.knife.call(tool, arguments).text)
        return answer

    @property
    def row(self) -> RefinementSession:
        return RefinementSession.objects.get(pk=self.session.pk)


def opened(agent: Agent, *, mode: str = Mode.FULL, shown: bool = True, **settings: Any) -> Held:
    """Open a session and show it the whole ledger. `settings` are set on the agent first."""
    if settings:
        change(agent, **settings)
    session = sessions.open_session(steps.fresh(agent), trigger="manual", mode=mode)
    held = Held(session, Knife(session))
    if shown:
        held.knife.show(0, 1, entries(agent))
    return held


def entries(agent: Agent) -> list[ledger.Entry]:
    fresh = steps.fresh(agent)
    return ledger.read(fresh)


def change(agent: Agent, **settings: Any) -> None:
    Agent.objects.filter(pk=agent.pk).update(**settings)


def everything(agent: Agent) -> dict[str, Any]:
    """All the database has of an agent and its memories, its trail and what was counted of its session's edits."""
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
    """Nothing of the agent's changes in here: no memory, no counter, no entry of the trail."""
    before = everything(agent)
    yield
    assert everything(agent) == before


def refused(held: Held, code: str, tool: str, arguments: Any) -> dict[str, Any]:
    """Make a call that must be refused with this code and leave everything as it was; its answer."""
    with untouched(held.session.agent):
        answer = held.send(tool, arguments)
    assert (answer["ok"], answer["code"]) == (False, code), answer
    assert answer["error"]
    return answer


def notice(agent: Agent) -> str:
    """The newest journal memory the system left the agent."""
    last = Memory.objects.filter(agent_id=agent.pk, source="system").order_by("number").last()
    assert last is not None
    return steps.says(agent, last.number).content


def dropped(agent: Agent, entry: AuditEntry) -> list[str]:
    """What an entry keeps, sealed, of what a merge or rewrite left out on purpose."""
    assert entry.sealed is not None
    return Silo.for_agent(steps.fresh(agent)).open_text("note", entry.seq, bytes(entry.sealed)).split("\n")


def sound(agent: Agent) -> bool:
    """Whether the trail verifies and the state equals its replay."""
    return list(replay.problems(steps.fresh(agent))) == []


def protected(agent: Agent, *numbers: int) -> None:
    """A person makes them constitutional."""
    operations.protect(agent, numbers, steps.PERSON)


def outside(agent: Agent, number: int, content: str) -> None:
    """Somebody else, the agent's runtime, rewrites a memory."""
    operations.revise(agent, number, steps.ME, content=content)
