"""verify_audit: output, exit codes, exported heads. tests/unit/test_verify_*.py have each kind of attack."""

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from audit import guards
from audit.models import AccessRequest
from config.keyfiles import new_key
from memory.consent import redaction, requests
from memory.models import Agent, AgentKey
from tests import steps, tampering
from tests.access_requests import ask
from tests.commands.calling import Ran, failed, run
from tests.conftest import drop_guards
from tests.privacy.marker import MARKER

pytestmark = pytest.mark.database
AGENT_MISSING = "the agent of this trail is missing"


@pytest.fixture
def trail(ada: Agent) -> Agent:
    """An agent with five entries; the first two create it and its key."""
    for word in ("one", "two", "three"):
        steps.remember(ada, f"{MARKER} {word}")
    return ada


def tamper(*statements: str) -> None:
    """Run SQL as the owner of the database would: without the triggers, which are restored afterwards."""
    drop_guards()
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    guards.restore_triggers()


def alter_entry(agent: Agent) -> str:
    return f"UPDATE audit_auditentry SET actor_label = 'mallory' WHERE agent_id = {agent.pk}"


def verify(*args: str) -> Ran:
    return run("verify_audit", *(args or ("acme/ada",)))


def problems(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.err, ran.json["valid"]) == (1, "", False)
    return list(ran.json["problems"])


def test_a_valid_trail(trail: Agent) -> None:
    ran = verify("acme/ada", "--json")
    assert (ran.code, ran.out) == (0, '{"valid": true, "agents": 1, "entries": 5, "problems": []}\n')
    assert (ran.err, verify().out) == ("", "1 trail, 5 entries: valid\n")
    assert verify("--all", "--json").json == {"valid": True, "agents": 2, "entries": 7, "problems": []}


def test_verify_audit_needs_one_agent_or_all(ada: Agent) -> None:
    for arguments in (["--json"], ["acme/ada", "--all"]):
        failed(verify(*arguments), 2, "--all")


def test_a_missing_trigger_is_a_problem(trail: Agent) -> None:
    drop_guards("audit_change")
    try:
        problem = problems(verify("acme/ada", "--json"))[0]["problem"]
    finally:
        guards.restore_triggers()
    assert ("trigger" in problem, "manage.py migrate" in problem) == (True, True)


def test_an_audit_key_that_is_not_in_the_keyring_is_named(trail: Agent, settings: Any) -> None:
    key = tampering.entries(trail)[0].key_id
    settings.AUDIT_KEY = new_key()
    problem = problems(verify("acme/ada", "--json"))[0]["problem"]
    assert (f"audit key {key[:8]}" in problem, "not in the keyring" in problem) == (True, True)


def test_a_problem_of_another_agent_is_reported_only_by_all(trail: Agent, bob: Agent) -> None:
    tamper(alter_entry(bob))
    assert verify("acme/ada").code == 0
    assert problems(verify("--all", "--json"))[0]["agent"] == "globex/bob"


@pytest.mark.parametrize(
    "rest_of_trail", ["seq > 0", "seq > 1", "FALSE"], ids=["whole trail", "without entry 1", "changes only"]
)
def test_a_trail_without_its_agent_is_a_problem(trail: Agent, bob: Agent, rest_of_trail: str) -> None:
    steps.remember(bob, MARKER)
    tables = ("memory_memory", "memory_agentkey")
    tamper(
        f"DELETE FROM audit_auditentry WHERE agent_id = {bob.pk} AND NOT ({rest_of_trail})",
        *(f"DELETE FROM {table} WHERE agent_id = {bob.pk}" for table in tables),
        f"DELETE FROM memory_agent WHERE id = {bob.pk}",
    )
    found = problems(verify("--all", "--json"))
    if rest_of_trail == "seq > 0":
        assert found == [{"agent": "globex/bob", "seq": 1, "problem": AGENT_MISSING}]
    elif rest_of_trail == "seq > 1":
        assert [problem["agent"] for problem in found] == ["globex/bob"]
    else:
        assert [problem["problem"] for problem in found] == [AGENT_MISSING]


def test_an_access_request_of_no_agent_is_a_problem(trail: Agent) -> None:
    ask(trail)
    AccessRequest.objects.update(agent_id=99_999)
    assert "of no agent" in problems(verify("--all", "--json"))[-1]["problem"]


@pytest.mark.sqlite
def test_a_value_of_a_wrong_type_is_a_problem_and_other_agents_are_verified(trail: Agent, bob: Agent) -> None:
    """tests/unit/test_verify.py has the columns of the other tables."""
    tamper(alter_entry(bob))
    for column in ("core_tokens", "audit_seq", "refine_every"):
        value = Agent.objects.values_list(column, flat=True).get(pk=trail.pk)
        tamper(f"UPDATE memory_agent SET {column} = 'zz' WHERE id = {trail.pk}")
        ran = verify("--all", "--json")
        found = problems(ran)
        assert (found[0]["agent"], found[0]["seq"]) == ("acme/ada", 0)
        is_span = column == "refine_every"
        problem = "is not a date or time span" if is_span else "wrong type or form"
        assert any(problem in each["problem"] for each in found)
        assert "globex/bob" in {problem["agent"] for problem in found}
        assert (MARKER in ran.out, "zz" in ran.out) == (False, False)
        problems(verify("acme/ada", "--json"))
        tamper(f"UPDATE memory_agent SET {column} = '{value}' WHERE id = {trail.pk}")


@pytest.mark.postgresql
def test_an_agent_whose_row_cannot_be_loaded_is_a_problem(trail: Agent, bob: Agent) -> None:
    tamper(f"UPDATE memory_agent SET due_at = 'infinity' WHERE id = {trail.pk}")
    [problem] = problems(verify("--all", "--json"))
    assert (problem["agent"], "due_at of a row is not a date" in problem["problem"]) == ("acme/ada", True)
    assert problems(verify("acme/ada", "--json")) == [problem]


def test_of_many_problems_a_hundred_are_printed(trail: Agent) -> None:
    steps.remember(trail, *(f"{MARKER} {n}" for n in range(150)))
    tamper(f"UPDATE memory_memory SET project = 'other' WHERE agent_id = {trail.pk} AND number > 3")
    ran = verify()
    lines = ran.out.splitlines()
    assert (ran.code, len(lines), lines[-1].endswith("150 problems")) == (1, 101, True)
    assert len(problems(verify("acme/ada", "--json"))) == 100


def test_exported_heads_prove_a_trail(past: Agent, tmp_path: Path) -> None:
    """A redaction is valid. Heads of another agent prove nothing. A trail rewritten with the audit key is found."""
    guards.restore_triggers()
    every, only_bob = (tmp_path / name for name in ("every.json", "bob.json"))
    every.write_text(run("audit_heads").out)
    only_bob.write_text(run("audit_heads", "globex/bob").out)
    failed_run, valid = (verify(name, "--heads", str(only_bob)) for name in ("acme/ada", "globex/bob"))
    assert (failed_run.code, "has no trail of acme/ada" in failed_run.err) == (2, True)
    assert (valid.code, "compared with 1 head: valid" in valid.out) == (0, True)
    request = requests.ask_redaction(past, [3], steps.PERSON, reason="request 17")
    redaction.redact(past, request.number, steps.ME)
    assert [verify(target, "--heads", str(every)).code for target in ("acme/ada", "--all")] == [0, 0]
    drop_guards()
    tampering.entries(past).filter(seq=5).update(actor_label="mallory")
    tampering.rechain(past, 1, tampering.real_key())
    guards.restore_triggers()
    assert verify("--all").code == 0
    for target in ("acme/ada", "--all"):
        ran, data = verify(target, "--heads", str(every)), verify(target, "--heads", str(every), "--json")
        first = problems(data)[0]
        assert (first["agent"], first["seq"], first["problem"][:8]) == ("acme/ada", tampering.LAST, "replaced")
        assert (ran.code, ran.out.startswith(f"acme/ada entry {tampering.LAST}: replaced")) == (1, True)
        for secret in (tampering.SECRET, tampering.SECRET.encode().hex()):
            assert secret not in ran.out + data.out


@pytest.mark.sqlite
@pytest.mark.own_database
@pytest.mark.django_db(transaction=True)
def test_an_index_that_hides_rows_is_damage(ada: Agent) -> None:
    assert run("verify_audit", "--all").code == 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'memory_agentkey' AND sql LIKE '%agent_id%'"
        )
        [[name, text]] = [row for row in cursor.fetchall() if row[1].startswith("CREATE INDEX")]
        cursor.execute(f'DROP INDEX "{name}"')
        cursor.execute(f"{text} WHERE prefix <> '{AgentKey.objects.get(agent=ada).prefix}'")
        cursor.execute("PRAGMA writable_schema = 1")
        cursor.execute(f"UPDATE sqlite_master SET sql = '{text}' WHERE name = '{name}'")
        cursor.execute("PRAGMA writable_schema = RESET")
    connection.close()
    assert not AgentKey.objects.filter(agent_id=ada.pk).exists()
    ran = run("verify_audit", "--all")
    assert (ran.code, "the database is damaged" in ran.out) == (1, True)
    with connection.cursor() as cursor:
        cursor.execute("REINDEX")
    assert run("verify_audit", "--all").code == 0
