"""What `verify_audit` says of an attacked trail beside exported heads. Each kind of attack is in
tests/unit/test_verify_entries.py and tests/unit/test_verify_redacted.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit import guards
from audit.trail import Actor
from memory.consent import redaction, removal_requests
from memory.models import Agent
from tests import tampering
from tests.commands.calling import run
from tests.conftest import drop_guards
from tests.steps import ME
from tests.tampering import LAST, SECRET, entries, rechain

OWNER = Actor.person("owner@acme.test")


def alter(agent: Agent) -> None:
    entries(agent).filter(seq=5).update(actor_label="mallory")


def redact(agent: Agent) -> None:
    asked = removal_requests.ask_redaction(agent, [3], OWNER, reason="request 17")
    redaction.redact(agent, asked.number, ME)


def chain_anew_with_the_key(agent: Agent) -> None:
    alter(agent)
    rechain(agent, 1, tampering.real_key())


@pytest.fixture
def exported(past: Agent, tmp_path: Path) -> str:
    file = tmp_path / "heads.json"
    guards.restore_triggers()
    file.write_text(run("audit_heads").out)
    drop_guards()
    return str(file)


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
    guards.restore_triggers()
    file = tmp_path / "heads.json"
    file.write_text(run("audit_heads", "globex/bob").out)
    ran = run("verify_audit", "acme/ada", "--heads", str(file))
    assert (ran.code, "has no trail of acme/ada" in ran.err) == (2, True)
    ran = run("verify_audit", "globex/bob", "--heads", str(file))
    assert (ran.code, "compared with 1 head: valid" in ran.out) == (0, True)


def test_a_trail_that_nobody_attacked_is_whole(past: Agent, exported: str) -> None:
    redact(past)
    guards.restore_triggers()
    for args in (["acme/ada"], ["--all"]):
        assert run("verify_audit", *args, "--heads", exported).code == 0


def test_an_attack_that_leaves_a_whole_trail_is_found_with_heads_alone(past: Agent, exported: str) -> None:
    chain_anew_with_the_key(past)
    guards.restore_triggers()
    assert run("verify_audit", "--all").code == 0
    told(LAST, "replaced", "--heads", exported)
