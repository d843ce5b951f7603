"""A check of a long trail takes seconds, so it comes before the locks."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from memory.access import authority
from memory.access import heads as own_heads
from memory.accounts import people
from memory.agents import lifecycle
from memory.errors import AgentConsentRequired
from memory.models import Agent, Person
from tests.access_requests import PAT, ask
from tests.members import with_account
from tests.steps import ME, fresh, remember

pytestmark = pytest.mark.database


@pytest.mark.parametrize("what", ["a request to read", "a first key", "a new password"])
def test_a_long_trail_is_checked_before_the_locks_of_a_person(
    ada: Agent, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path, what: str
) -> None:
    """Otherwise 120,000 new entries were checked under SQLite's lock: for two to four seconds."""
    settings.VAR_DIR = tmp_path
    own_heads.write()
    remember(ada, *(f"tea {n}" for n in range(3)))
    monkeypatch.setattr(own_heads, "FEW", 0)
    own_heads.proven_ends.clear()
    steps, continues, require = list[str](), own_heads._continues, authority.require
    with_account(PAT, ada)
    if what == "a new password":
        ask(ada)
        own_heads.proven_ends.clear()

    def locks(agent: Agent, before: Agent | None = None) -> None:
        steps.append("checked ahead" if before is None else "locked")
        require(agent, before)

    monkeypatch.setattr(own_heads, "_continues", lambda *given: steps.append("checked") or continues(*given))
    monkeypatch.setattr(authority, "require", locks)
    with suppress(AgentConsentRequired):
        if what == "a first key":
            lifecycle.first_key(fresh(ada), ME)
        elif what == "a request to read":
            ask(ada)
        else:
            people.set_password(Person.objects.get(pk=PAT.id), "a new long password 42!")
    assert steps[:3] == ["checked ahead", "checked", "locked"]
    assert steps.count("checked") == 1
