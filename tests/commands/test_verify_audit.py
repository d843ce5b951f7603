from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from audit import guards
from memory.models import Agent
from memory.writing import operations
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import drop_guards
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database


@pytest.fixture
def trail(ada: Agent) -> Agent:
    """Entries 1 and 2 make ada; 3 to 7 are these."""
    for word in ("one", "two", "three"):
        steps.remember(ada, f"{MARKER} {word}")
    operations.revise(ada, 1, steps.ME, content=f"{MARKER} won")
    operations.discard(ada, [2], steps.ME)
    return ada


def tampered(*statements: str) -> None:
    """As somebody who owns the database would: the guards taken away, put back afterwards."""
    drop_guards()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    guards.restore_triggers()


def verify(*args: str) -> Ran:
    return run("verify_audit", *(args or ("acme/ada",)))


def test_a_whole_trail(trail: Agent) -> None:
    ran = verify("acme/ada", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == '{"valid": true, "agents": 1, "entries": 7, "problems": []}\n'
    assert verify().out == "1 trail, 7 entries: valid\n"


def test_all_trails(trail: Agent) -> None:
    assert verify("--all", "--json").json == {"valid": True, "agents": 2, "entries": 9, "problems": []}


@pytest.mark.parametrize("args", [["--json"], ["acme/ada", "--all"]])
def test_one_agent_or_all_must_be_named(args: list[str], ada: Agent) -> None:
    failed(verify(*args), 2, "--all")


# What is done to ada's trail → the first bad entry.
ENTRY = "WHERE seq = 5 AND agent_id = {ada}"


def test_a_missing_guard_is_found(trail: Agent) -> None:
    drop_guards("audit_change")
    try:
        ran = verify("acme/ada", "--json")
    finally:
        guards.restore_triggers()
    assert ran.code == 1
    assert "trigger" in ran.json["problems"][0]["problem"]
    assert "manage.py migrate" in ran.json["problems"][0]["problem"]


def test_another_tenants_trouble_is_not_ours(trail: Agent, bob: Agent) -> None:
    tampered(f"UPDATE audit_auditentry SET actor_label = 'mallory' WHERE agent_id = {bob.pk}")
    assert verify("acme/ada").code == 0
    assert verify("--all", "--json").json["problems"][0]["agent"] == "globex/bob"


def test_a_trail_whose_agent_is_gone_is_found(trail: Agent, bob: Agent) -> None:
    tampered(
        f"DELETE FROM memory_agentkey WHERE agent_id = {bob.pk}",
        f"DELETE FROM memory_agent WHERE id = {bob.pk}",
    )
    ran = verify("--all", "--json")
    assert ran.code == 1
    assert ran.json["problems"] == [{"agent": "globex/bob", "seq": 1, "problem": "the agent of this trail is missing"}]


def test_an_orphan_without_its_first_entry_is_found(trail: Agent, bob: Agent) -> None:
    steps.remember(bob, MARKER)
    tampered(
        f"DELETE FROM audit_auditentry WHERE agent_id = {bob.pk} AND seq = 1",
        f"DELETE FROM memory_memory WHERE agent_id = {bob.pk}",
        f"DELETE FROM memory_agentkey WHERE agent_id = {bob.pk}",
        f"DELETE FROM memory_agent WHERE id = {bob.pk}",
    )
    assert [p["agent"] for p in verify("--all", "--json").json["problems"]] == ["globex/bob"]
    tampered(f"DELETE FROM audit_auditentry WHERE agent_id = {bob.pk}")
    assert [p["problem"] for p in verify("--all", "--json").json["problems"]] == ["the agent of this trail is missing"]


# What is done to ada's rows, which SQLite lets be → the entry named.
ILL_TYPED: dict[str, tuple[str, int]] = {
    "a time": (f"UPDATE audit_auditentry SET at = 'garbage' {ENTRY}", 5),
    "a snapshot": (f"UPDATE audit_change SET after = 'zz' {ENTRY}", 5),
    "a memory's digest": ("UPDATE memory_memory SET digest = 'zz' WHERE number = 3 AND agent_id = {ada}", 0),
    "a counter": ("UPDATE memory_agent SET core_tokens = 'zz' WHERE id = {ada}", 0),
    "the head": ("UPDATE memory_agent SET audit_seq = 'zz' WHERE id = {ada}", 0),
    "how often": ("UPDATE memory_agent SET refine_every = 'zz' WHERE id = {ada}", 0),
}


@pytest.mark.sqlite
@pytest.mark.parametrize("name", ILL_TYPED)
def test_a_value_of_a_wrong_type_is_found_and_ends_nothing(name: str, trail: Agent, bob: Agent) -> None:
    statement, first = ILL_TYPED[name]
    tampered(
        statement.format(ada=trail.pk), f"UPDATE audit_auditentry SET actor_label = 'mallory' WHERE agent_id = {bob.pk}"
    )
    ran = verify("--all", "--json")
    assert (ran.code, ran.err) == (1, "")
    problems = ran.json["problems"]
    assert (problems[0]["agent"], problems[0]["seq"]) == ("acme/ada", first)
    assert any("wrong type or form" in problem["problem"] for problem in problems)
    assert "globex/bob" in {problem["agent"] for problem in problems}
    assert MARKER not in ran.out
    assert "zz" not in ran.out
    named = verify("acme/ada", "--json")
    assert (named.code, named.err, named.json["agents"]) == (1, "", 1)


@pytest.mark.postgresql
def test_an_agent_whose_row_cannot_be_loaded_ends_nothing(trail: Agent, bob: Agent) -> None:
    tampered(f"UPDATE memory_agent SET due_at = 'infinity' WHERE id = {trail.pk}")
    [problem] = verify("--all", "--json").json["problems"]
    assert (problem["agent"], "wrong type or form" in problem["problem"]) == ("acme/ada", True)
    assert verify("acme/ada", "--json").json["problems"] == [problem]


def test_an_audit_key_that_is_not_in_the_keyring_is_named(trail: Agent, settings: Any) -> None:
    from config.keyfiles import new_key

    settings.AUDIT_KEY = new_key()
    ran = verify("acme/ada", "--json")
    assert ran.code == 1
    assert "not in the keyring" in ran.json["problems"][0]["problem"]


def test_many_problems_are_counted_and_a_hundred_shown(trail: Agent) -> None:
    steps.remember(trail, *(f"{MARKER} {n}" for n in range(150)))
    tampered(f"UPDATE memory_memory SET project = 'other' WHERE agent_id = {trail.pk} AND number > 3")
    ran = verify()
    assert ran.code == 1
    assert len(ran.out.splitlines()) == 101
    assert ran.out.splitlines()[-1].endswith("150 problems")
    assert len(verify("acme/ada", "--json").json["problems"]) == 100
