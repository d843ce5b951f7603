"""Exporting under a grant: what it covers, recorded, and one answer to whatever is wrong."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from audit.consent import Scope
from memory.consent import grant_tokens, grants, redaction, removal_requests
from memory.models import Agent, Membership, Memory, Person
from memory.writing import operations
from tests import steps
from tests.admin.reading import asking, granted, reads
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh

WRONG = "error: The token does not belong to an active grant for this agent.\n"


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PALIMPSEST_AGENT_KEY", "PALIMPSEST_GRANT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pat(house: House) -> Person:
    person = Person.objects.create_user("pat@acme.test", None)
    Membership.objects.create(person=person, tenant=house.ada.tenant, role="auditor")
    steps.remember(house.ada, *(f"{MARKER} {thing}" for thing in ("tea", "milk", "sugar")), tags=["kitchen"])
    return person


def token(agent: Agent, pat: Person, *scope: Any, **more: Any) -> str:
    number = granted(agent, pat, *scope, **more)
    return grant_tokens.make(fresh(agent), number, asking(pat))


def export(*more: str) -> Ran:
    return run("export_memories", "acme/ada", *more)


def ids(ran: Ran) -> list[int]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line)["id"] for line in ran.out.splitlines()]


def test_it_prints_what_the_agent_would_and_records_it(
    house: House, pat: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    by_key = export()
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    given = token(house.ada, pat)
    by_grant = export("--grant", given)
    assert (by_grant.code, by_grant.err, by_grant.out) == (0, "", by_key.out)
    assert ids(by_grant) == [1, 2, 3]
    assert reads(house.ada) == [{"request": int(given.split("_")[2]), "memories": [1, 2, 3]}]
    assert steps.problems(house.ada) == []


def test_the_token_is_taken_from_the_environment_and_goes_before_the_key(
    house: House, pat: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALIMPSEST_GRANT", token(house.ada, pat))
    assert ids(export()) == [1, 2, 3]
    assert failed(export("--grant", "palg_1_1_x"), 2) + "\n" == WRONG, "what is given goes before what is set"
    assert failed(export("--grant", ""), 2) + "\n" == WRONG
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert ids(export())[:3] == [1, 2, 3]
    assert len(reads(house.ada)) == 2
    monkeypatch.setenv("PALIMPSEST_GRANT", "")
    assert ids(export())[:3] == [1, 2, 3]
    assert len(reads(house.ada)) == 2, "an empty one is none"


def test_many_are_read_in_pages_each_recorded(house: House, pat: Person) -> None:
    steps.remember(house.ada, *(f"{MARKER} {each}" for each in range(130)))
    assert ids(export("--grant", token(house.ada, pat))) == list(range(1, 134))
    assert [len(read["memories"]) for read in reads(house.ada)] == [100, 33]


def test_it_covers_what_the_scope_does_and_nothing_redacted(house: House, pat: Person) -> None:
    operations.discard(house.ada, [2], ME)
    given = token(house.ada, pat, Scope("memories", numbers=(1, 2)))
    assert ids(export("--grant", given)) == [1]
    assert ids(export("--grant", given, "--with-discarded")) == [1, 2]
    assert [read["memories"] for read in reads(house.ada)] == [[1], [1, 2]]
    request = removal_requests.ask_redaction(fresh(house.ada), [2], ME, reason="asked for")
    redaction.redact(fresh(house.ada), request.number, ME)
    assert ids(export("--grant", token(house.ada, pat), "--with-discarded"))[:2] == [1, 3]


def test_a_scope_of_entries_is_refused_and_says_why(house: House, pat: Person) -> None:
    operations.revise(house.ada, 3, ME, content=f"{MARKER} brown sugar", session=7)
    for scope in (Scope("session", session=7), Scope("entries", first=1, last=3)):
        failed(export("--grant", token(house.ada, pat, scope)), 2, "grant: covers entries of the trail", "page")
    assert reads(house.ada) == []


def test_whatever_is_wrong_gets_the_same_answer(house: House, pat: Person, time_machine: Any) -> None:
    given = token(house.ada, pat, seconds=900)
    form, agent, number, mac = given.split("_")
    of_bob = Person.objects.create_user("bo@globex.test", None)
    Membership.objects.create(person=of_bob, tenant=house.bob.tenant, role="auditor")
    wrong = {
        "empty": "",
        "none": "sesame",
        "another's": token(house.bob, of_bob),
        "of another number": f"{form}_{agent}_{int(number) + 1}_{mac}",
        "altered": f"{form}_{agent}_{number}_{mac[::-1]}",
        "an agent key": house.ada_key,
        "not ascii": f"{given}é",
        "very long": given * 1_000,
    }
    for each in wrong.values():
        assert failed(export(f"--grant={each}"), 2) + "\n" == WRONG
    assert run("export_memories", "globex/bob", "--grant", given).err == WRONG
    assert ids(export("--grant", given)) == [1, 2, 3]
    time_machine.move_to(timezone.now() + timedelta(seconds=901))
    assert export("--grant", given).err == WRONG
    assert len(reads(house.ada)) == 1


def test_nothing_to_read_is_no_way_round_the_check(house: House, pat: Person) -> None:
    given = token(house.ada, pat)
    operations.discard(house.ada, [1, 2, 3], ME)
    assert export("--grant", given).out == ""
    grants.revoke(fresh(house.ada), int(given.split("_")[2]), ME)
    assert export("--grant", given).err == WRONG


def test_a_grant_that_ends_meanwhile_ends_the_export(
    house: House, pat: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pages the agent's side revokes."""
    steps.remember(house.ada, *(f"{MARKER} {each}" for each in range(130)))
    given = token(house.ada, pat)
    from memory.consent import granted_reads

    read = granted_reads.memories

    def then_revoked(*asked: Any) -> Any:
        found = read(*asked)
        grants.revoke(fresh(house.ada), int(given.split("_")[2]), ME)
        return found

    monkeypatch.setattr(granted_reads, "memories", then_revoked)
    ran = export("--grant", given)
    assert (ran.code, len(ran.out.splitlines())) == (1, 100)
    assert "You have no active grant with this number." in ran.err


def test_a_seal_that_does_not_open_is_told_without_content(house: House, pat: Person) -> None:
    Memory.objects.filter(agent=house.ada, number=1).update(sealed=bytes(steps.row(house.ada, 2).sealed))
    failed(export("--grant", token(house.ada, pat)), 1, "cannot be decrypted")
    assert reads(house.ada) == []
