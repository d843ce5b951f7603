"""Each kind of attack on a trail, by somebody who owns the database, through the command that has to tell of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit import guards, trail
from audit.models import AuditEntry, Change
from audit.trail import Actor
from memory.consent import erasure, redaction, removal_requests
from memory.models import Agent
from memory.writing.snapshots import restore
from tests import tampering
from tests.commands.calling import run
from tests.conftest import drop_guards
from tests.steps import ME, fresh
from tests.tampering import LAST, SECRET, changes, entries, forge, memories, rechain

pytestmark = pytest.mark.database

OWNER = Actor.person("owner@acme.test")
Attack = Callable[[Agent], object]


def alter(agent: Agent) -> None:
    entries(agent).filter(seq=5).update(actor_label="mallory")


def put_in(agent: Agent) -> None:
    tampering.make_room(agent, 5)
    forge(agent, 5)


def name_as_last(agent: Agent) -> None:
    entry = forge(agent, LAST + 1)
    Agent.objects.filter(pk=agent.pk).update(audit_seq=entry.seq, audit_mac=entry.mac, audit_at=entry.at)


def write_twice(agent: Agent) -> None:
    tampering.allow_repeats(AuditEntry)
    entry = entries(agent).get(seq=5)
    forge(agent, 6, seq=5, pk=10_000, mac=entry.mac, changes=entry.changes)


def cut_with_the_row(agent: Agent) -> None:
    tampering.cut(agent, 5)
    last = entries(agent).latest("seq")
    Agent.objects.filter(pk=agent.pk).update(audit_seq=5, audit_mac=last.mac, audit_at=last.at)


def put_back_an_older_body(agent: Agent, *, row: bool, change: bool) -> None:
    """Memory 3 was made by entry 3, revised by entry 5 and discarded by entry 9."""
    older = changes(agent).get(seq=3, number=3)
    assert older.after is not None
    if row:
        memories(agent).filter(number=3).update(sealed=restore(bytes(older.after))["sealed"])
    if change:
        changes(agent).filter(seq=9, number=3).update(after=older.after, after_digest=older.after_digest)


def redact(agent: Agent) -> int:
    """Entry 10 asks for it, entry 11 does it."""
    asked = removal_requests.ask_redaction(agent, [3], OWNER, reason="request 17")
    redaction.redact(agent, asked.number, ME)
    return asked.number + 1


def put_back_a_redacted_body(agent: Agent) -> None:
    was = changes(agent).get(seq=5, number=3)
    redact(agent)
    changes(agent).filter(pk=was.pk).update(after=was.after)


def put_back_a_redacted_note(agent: Agent) -> None:
    was = entries(agent).get(seq=5)
    redact(agent)
    entries(agent).filter(pk=was.pk).update(sealed=was.sealed)


def make_a_redaction_up(agent: Agent) -> None:
    guards.put_back()
    forge(agent, LAST + 1, operation="redacted", detail={"redacted": {"4": []}, "notes": []}, changes=1)
    Change.objects.create(agent_id=agent.pk, seq=LAST + 1, number=4)
    trail.strip(agent.pk, [4], [])


def put_back_a_data_key(agent: Agent) -> None:
    wrapped = bytes(fresh(agent).wrapped_key)
    erasure.erase(agent, removal_requests.ask_erasure(agent, OWNER, reason="request 18").number, ME)
    Agent.objects.filter(pk=agent.pk).update(wrapped_key=wrapped)


def remove(*models: Any, **which: Any) -> Attack:
    return lambda agent: [model.objects.filter(agent_id=agent.pk, **which).delete() for model in models]


# What is done to the trail of `past`, of nine entries → the entry named first, and what is said of it.
FOUND: dict[str, tuple[Attack, int, str]] = {
    "an entry altered": (alter, 5, "altered"),
    "a snapshot altered": (lambda a: changes(a).filter(seq=5).update(after=b"x\0y"), 5, "altered"),
    "an entry removed": (remove(AuditEntry, seq=5), 5, "missing"),
    "an entry removed with its changes": (remove(AuditEntry, Change, seq=5), 5, "missing"),
    "a change removed": (remove(Change, seq=7, number=1), 7, "missing"),
    "a body wiped": (lambda a: changes(a).filter(seq=5).update(before=None), 5, "wiped"),
    "a note wiped": (lambda a: entries(a).filter(seq=5).update(sealed=None), 5, "wiped"),
    "two entries swapped": (lambda a: tampering.swap(a, 5, 7), 5, "reordered"),
    "an entry put in, the rest renumbered": (put_in, 5, "inserted"),
    "an entry put in at the end": (lambda a: forge(a, LAST + 1), LAST + 1, "altered"),
    "an entry put in that the row names": (name_as_last, LAST + 1, "altered"),
    "an entry there twice": (write_twice, 5, "duplicated"),
    "the rest computed anew": (lambda a: (alter(a), rechain(a, 5, secrets.token_bytes(32))), 5, "altered"),
    "all computed anew": (lambda a: (alter(a), rechain(a, 1, secrets.token_bytes(32))), 1, "altered"),
    "the rest computed anew under a key of another name": (
        lambda a: (alter(a), rechain(a, 5, secrets.token_bytes(32), key_id="mine")),
        5,
        "made under audit key mine",
    ),
    "the tail cut off": (lambda a: tampering.cut(a, 6), 7, "truncated"),
    "the tail cut off with the agent's row": (cut_with_the_row, 3, "memory 1 is not as this entry left it"),
    "a trail removed whole": (remove(AuditEntry, Change), 0, "the trail is empty"),
    "an older body in the row": (
        lambda a: put_back_an_older_body(a, row=True, change=False),
        9,
        "memory 3 is not as this entry left it",
    ),
    "an older body in the change": (lambda a: put_back_an_older_body(a, row=False, change=True), 9, "altered"),
    "an older body in both": (lambda a: put_back_an_older_body(a, row=True, change=True), 9, "altered"),
    "a redacted body there again": (put_back_a_redacted_body, 5, "inserted"),
    "a redacted note there again": (put_back_a_redacted_note, 5, "inserted"),
    "a redaction made up": (make_a_redaction_up, 3, "wiped"),
    "a destroyed data key there again": (put_back_a_data_key, LAST + 2, "inserted"),
}
FOUND_WITH_HEADS: dict[str, tuple[Attack, int, str]] = {
    "the tail cut off with all it changed": (lambda a: tampering.set_back(a, 5), LAST, "truncated"),
    "re-chained whole, with the key": (
        lambda a: (alter(a), rechain(a, 1, tampering.real_key())),
        LAST,
        "replaced",
    ),
}


@pytest.fixture
def exported(past: Agent, tmp_path: Path) -> str:
    file = tmp_path / "heads.json"
    guards.put_back()
    file.write_text(run("audit_heads").out)
    drop_guards()
    return str(file)


def attacked(attack: Attack, agent: Agent) -> None:
    attack(agent)
    guards.put_back()


def told(seq: int, words: str, *args: str) -> None:
    """The command fails, names this entry first and says this of it; nothing that it prints is content."""
    for target in ("acme/ada", "--all"):
        ran = run("verify_audit", target, *args)
        assert (ran.code, ran.err) == (1, "")
        place = f"acme/ada entry {seq}" if seq else "acme/ada"
        assert ran.out.startswith(f"{place}: {words}"), ran.out
        data = run("verify_audit", target, *args, "--json")
        assert (data.code, data.json["valid"]) == (1, False)
        first = data.json["problems"][0]
        assert (first["agent"], first["seq"]) == ("acme/ada", seq)
        assert first["problem"].startswith(words)
        assert SECRET not in ran.out + data.out
        assert SECRET.encode().hex() not in ran.out + data.out


def test_heads_of_another_prove_nothing(past: Agent, bob: Agent, tmp_path: Path) -> None:
    guards.put_back()
    file = tmp_path / "heads.json"
    file.write_text(run("audit_heads", "globex/bob").out)
    ran = run("verify_audit", "acme/ada", "--heads", str(file))
    assert (ran.code, "names no trail of acme/ada" in ran.err) == (2, True)
    ran = run("verify_audit", "globex/bob", "--heads", str(file))
    assert (ran.code, "beside 1 head: whole" in ran.out) == (0, True)


def test_a_trail_that_nobody_attacked_is_whole(past: Agent, exported: str) -> None:
    attacked(redact, past)
    for args in (["acme/ada"], ["--all"]):
        assert run("verify_audit", *args, "--heads", exported).code == 0


@pytest.mark.parametrize("name", FOUND)
def test_an_attack_is_found_and_its_entry_named(past: Agent, name: str) -> None:
    attack, seq, words = FOUND[name]
    attacked(attack, past)
    told(seq, words)


@pytest.mark.parametrize("name", FOUND_WITH_HEADS)
def test_an_attack_that_leaves_a_whole_trail_is_found_with_heads_alone(past: Agent, exported: str, name: str) -> None:
    attack, seq, words = FOUND_WITH_HEADS[name]
    attacked(attack, past)
    assert run("verify_audit", "--all").code == 0
    told(seq, words, "--heads", exported)
