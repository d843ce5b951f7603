"""Exported heads: what they prove that the trail alone cannot."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from audit import heads
from audit.models import AuditEntry, Change
from config.keyfiles import new_key
from memory.models import Agent, AgentKey, Memory
from memory.writing import operations
from memory.writing.counters import recount
from tests.commands.calling import failed, run
from tests.conftest import drop_guards
from tests.steps import ME, fresh, problems, remember


@pytest.fixture
def exported(ada: Agent, bob: Agent, tmp_path: Path) -> Path:
    remember(ada, "tea", "milk")
    operations.discard(ada, [1], ME)
    remember(bob, "beer")
    file = tmp_path / "heads.json"
    file.write_text(run("audit_heads").out)
    return file


def verified(file: Path, *more: str) -> Any:
    return run("verify_audit", *(more or ("--all",)), "--heads", str(file), "--json")


def test_it_names_every_trails_last_entry_and_no_content(exported: Path, ada: Agent, bob: Agent) -> None:
    told = json.loads(exported.read_text())
    assert [(head["agent"], head["seq"]) for head in told["heads"]] == [
        ("acme/ada", fresh(ada).audit_seq),
        ("globex/bob", fresh(bob).audit_seq),
    ]
    assert told["heads"][0]["mac"] == bytes(fresh(ada).audit_mac).hex()
    assert "tea" not in exported.read_text()
    signature = base64.b64decode(told.pop("signature"))  # which anybody can check
    signed = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    Ed25519PublicKey.from_public_bytes(base64.b64decode(told["public_key"])).verify(signature, signed)


def test_a_trail_that_went_on_holds_them(exported: Path, ada: Agent) -> None:
    remember(ada, "sugar")
    assert verified(exported).code == 0
    assert verified(exported, "acme/ada").code == 0


def test_a_trail_cut_back_whole_is_found_with_them_alone(exported: Path, ada: Agent) -> None:
    """To an earlier, true state: entries, the agent's row and its memories."""
    past = fresh(ada)
    remember(ada, "sugar", "lemon")
    exported.write_text(run("audit_heads").out)
    drop_guards()
    for model in (AuditEntry, Change):
        model.objects.filter(agent_id=ada.pk, seq__gt=past.audit_seq).delete()
    Memory.objects.filter(agent=ada, number__gte=past.next_number).delete()
    past.save()
    assert problems(ada) == []
    ran = verified(exported)
    assert ran.code == 1
    assert [p["problem"] for p in ran.json["problems"] if p["agent"] == "acme/ada"] == [
        "truncated: this entry was the trail's last, and is missing"
    ]


def test_a_trail_written_anew_under_the_real_key_is_found_with_them_alone(exported: Path, ada: Agent) -> None:
    last = AuditEntry.objects.filter(agent_id=ada.pk).order_by("-seq")[0]
    drop_guards()
    Change.objects.filter(agent_id=ada.pk, seq=last.seq).delete()
    AuditEntry.objects.filter(pk=last.pk).delete()
    before = AuditEntry.objects.get(agent_id=ada.pk, seq=last.seq - 1)
    Memory.objects.filter(agent=ada, number=1).update(discarded_at=None, version=before.seq)
    row = fresh(ada)
    row.audit_seq, row.audit_mac, row.audit_at = before.seq, before.mac, before.at
    row.save()
    for name, value in recount(row).items():
        setattr(row, name, value)
    row.save()
    operations.discard(fresh(ada), [2], ME)
    assert problems(ada) == []
    ran = verified(exported)
    assert (ran.code, [p["seq"] for p in ran.json["problems"] if "replaced" in p["problem"]]) == (1, [last.seq])


def test_an_agent_that_is_gone_with_all_it_had_is_found(exported: Path, bob: Agent) -> None:
    drop_guards()
    for model in (AuditEntry, Change):
        model.objects.filter(agent_id=bob.pk).delete()
    Memory.objects.filter(agent=bob).delete()
    AgentKey.objects.filter(agent=bob).delete()
    Agent.objects.filter(pk=bob.pk).delete()
    assert verified(exported).json["problems"][-1]["agent"] == "globex/bob"


def changed(text: str, **parts: Any) -> str:
    return json.dumps(json.loads(text) | parts)


ALTERED = {
    "not JSON": lambda text: text[:-5],
    "another number": lambda text: text.replace('"seq": 4', '"seq": 3', 1),
    "a head left out": lambda text: changed(text, heads=json.loads(text)["heads"][1:]),
    "another signature": lambda text: changed(text, signature=base64.b64encode(bytes(64)).decode()),
    "no signature": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "signature"}),
    "a list": lambda _: "[]",
    "another form": lambda text: changed(text, format="x"),
    "a number for a text": lambda text: changed(text, heads=7),
}


@pytest.mark.parametrize("how", ALTERED)
def test_an_export_that_was_altered_proves_nothing_and_is_told(exported: Path, how: str) -> None:
    exported.write_text(ALTERED[how](exported.read_text()))
    failed(run("verify_audit", "--all", "--heads", str(exported)), 2, "The heads file")


def test_an_export_signed_by_another_key_is_told(exported: Path, settings: Any) -> None:
    settings.HEADS_KEY = new_key()
    failed(run("verify_audit", "--all", "--heads", str(exported)), 2, "HEADS_KEY")
    failed(run("verify_audit", "--all", "--heads", f"{exported}.none"), 2, "heads: ", "no such file")


def test_queries_do_not_grow_with_the_agents(ada: Agent, bob: Agent, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):
        heads.export()
