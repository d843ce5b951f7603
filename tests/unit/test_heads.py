"""Exported heads: they prove what the trail alone cannot prove."""

import base64
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.db import connection
from django.db.models import TextField, Value
from django.db.models.functions import Cast
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit import guards, heads, trail
from audit.models import AuditEntry, Change
from config.errors import Busy
from config.keyfiles import new_key
from memory import tasks
from memory.access import authority
from memory.access import heads as own_heads
from memory.agents import lifecycle
from memory.errors import AuthorityBroken, TrailShortened
from memory.models import Agent, AgentKey, Memory, Tenant
from memory.writing import operations
from memory.writing.counters import recount
from tests.commands.calling import failed, run
from tests.conftest import drop_guards
from tests.servers import until
from tests.steps import ME, fresh, problems, remember


@pytest.fixture
def exported(ada: Agent, bob: Agent, tmp_path: Path) -> Path:
    remember(ada, "tea", "milk")
    operations.discard(ada, [1], ME)
    remember(bob, "beer")
    file = tmp_path / "heads.json"
    file.write_text(run("audit_heads").out)
    return file


def verify(file: Path, agents: str = "--all") -> Any:
    return run("verify_audit", agents, "--heads", str(file), "--json")


def delete_trail(agent: Agent, after: int = 0) -> None:
    drop_guards()
    for model in (AuditEntry, Change):
        model.objects.filter(agent_id=agent.pk, seq__gt=after).delete()


def test_an_export_names_the_last_entry_of_each_trail_and_is_signed(exported: Path, ada: Agent, bob: Agent) -> None:
    export = json.loads(exported.read_text())
    rows = [("acme/ada", fresh(ada).audit_seq), ("globex/bob", fresh(bob).audit_seq)]
    assert [(head["agent"], head["seq"]) for head in export["heads"]] == rows
    assert export["heads"][0]["mac"] == bytes(fresh(ada).audit_mac).hex()
    assert "tea" not in exported.read_text()
    signature = base64.b64decode(export.pop("signature"))  # anybody can check it
    signed = json.dumps(export, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    Ed25519PublicKey.from_public_bytes(base64.b64decode(export["public_key"])).verify(signature, signed)
    remember(ada, "sugar")
    assert (verify(exported).code, verify(exported, "acme/ada").code) == (0, 0)


def test_only_heads_show_that_a_trail_was_reset_to_an_earlier_state(exported: Path, ada: Agent) -> None:
    earlier = fresh(ada)
    remember(ada, "sugar", "lemon")
    exported.write_text(run("audit_heads").out)
    delete_trail(ada, earlier.audit_seq)
    Memory.objects.filter(agent=ada, number__gte=earlier.next_number).delete()
    earlier.save()
    assert problems(ada) == []
    found = verify(exported)
    assert (found.code, [p["problem"] for p in found.json["problems"] if p["agent"] == "acme/ada"]) == (
        1,
        ["truncated: this entry was the last at the export and is missing"],
    )


def test_only_heads_show_that_a_trail_was_rewritten_with_the_real_key(exported: Path, ada: Agent) -> None:
    last = fresh(ada).audit_seq
    delete_trail(ada, last - 1)
    before = AuditEntry.objects.get(agent_id=ada.pk, seq=last - 1)
    Memory.objects.filter(agent=ada, number=1).update(discarded_at=None, version=before.seq)
    row = fresh(ada)
    row.audit_seq, row.audit_mac, row.audit_at = before.seq, before.mac, before.at
    row.save()
    for name, value in recount(row).items():
        setattr(row, name, value)
    authority.sign(row)
    row.save()
    operations.discard(fresh(ada), [2], ME)
    assert problems(ada) == []
    found = verify(exported)
    assert (found.code, [p["seq"] for p in found.json["problems"] if "replaced" in p["problem"]]) == (1, [last])


def test_heads_show_that_an_agent_was_deleted(exported: Path, bob: Agent) -> None:
    delete_trail(bob)
    Memory.objects.filter(agent=bob).delete()
    AgentKey.objects.filter(agent=bob).delete()
    Agent.objects.filter(pk=bob.pk).delete()
    assert verify(exported).json["problems"][-1]["agent"] == "globex/bob"


def changed(text: str, **parts: Any) -> str:
    return json.dumps(json.loads(text) | parts)


ALTERED = {
    "not JSON": lambda text: text[:-5],
    "another number": lambda text: text.replace('"seq": 4', '"seq": 3', 1),
    "a missing head": lambda text: changed(text, heads=json.loads(text)["heads"][1:]),
    "another signature": lambda text: changed(text, signature=base64.b64encode(bytes(64)).decode()),
    "no signature": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "signature"}),
    "a list": lambda _: "[]",
    "another format": lambda text: changed(text, format="x"),
    "a number for a list": lambda text: changed(text, heads=7),
}


def test_an_altered_missing_or_wrongly_signed_export_is_an_error(exported: Path, settings: Any) -> None:
    text = exported.read_text()
    for alter in ALTERED.values():
        exported.write_text(alter(text))
        failed(run("verify_audit", "--all", "--heads", str(exported)), 2, "The heads file")
    exported.write_text(text)
    failed(run("verify_audit", "--all", "--heads", f"{exported}.none"), 2, "heads: ", "no such file")
    settings.HEADS_KEY = new_key()
    failed(run("verify_audit", "--all", "--heads", str(exported)), 2, "HEADS_KEY")


def test_queries_do_not_grow_with_the_agents(ada: Agent, bob: Agent, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(2):
        heads.export()


# --- the service's own files


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.VAR_DIR = tmp_path
    return tmp_path / "heads"


def shorten(agent: Agent) -> Agent:
    """Write heads, let the agent's steward change, and bring back the row and the trail of before. Returns the row of
    before."""
    remember(agent, "tea")
    earlier = fresh(agent)
    lifecycle.change(earlier, ME, steward="sue@acme.test")
    assert tasks.write_heads() == "written"
    delete_trail(agent, earlier.audit_seq)
    earlier.save()
    return earlier


def is_refused(agent: Agent) -> bool:
    try:
        own_heads.require_not_shortened(fresh(agent), authority._read_again)
    except TrailShortened:
        return True
    return False


def test_a_shortened_trail_is_refused_until_an_operator_confirms(folder: Path, ada: Agent, bob: Agent) -> None:
    shorten(ada)
    with pytest.raises(TrailShortened, match="confirm_trail acme/ada"):
        own_heads.require_not_shortened(fresh(ada), authority._read_again)
    assert (is_refused(ada), is_refused(bob)) == (True, False)
    for _ in range(2):  # the next file keeps the lost head
        assert tasks.write_heads() == "written"
        assert is_refused(ada)
        problems = run("verify_audit", "--all", "--json").json["problems"]
        assert any("truncated" in each["problem"] and each["agent"] == "acme/ada" for each in problems)
    guards.restore_triggers()
    last = fresh(ada).audit_seq
    failed(run("confirm_trail", "acme/ada", "00" * 32), 2, f"not that of entry {last}, the last one now")
    assert run("confirm_trail", "acme/ada", fresh(ada).audit_mac.hex()).code == 0
    assert not is_refused(ada)
    assert run("verify_audit", "--all").code == 0


def test_a_check_of_a_trail_does_not_read_the_changes_of_its_entries(folder: Path, ada: Agent) -> None:
    """One request can change 500 memories, and an hour of them took all threads and SQLite's writer."""
    own_heads.write()
    remember(ada, "tea", "milk")
    own_heads.proven_ends.clear()
    with CaptureQueriesContext(connection) as captured:
        assert not is_refused(ada)
    assert not any("audit_change" in each["sql"] for each in captured)


def test_a_long_trail_is_checked_once_and_most_threads_stay_free(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 150 requests checked a million changes, and together they occupied all threads for minutes."""
    settings.WEB_THREADS = 8  # of which 2 wait for a tenant
    head = {"seq": 1, "mac": "00"}
    checked, may_end = list[int](), Event()
    monkeypatch.setattr(own_heads, "_newest", lambda *_: None)
    monkeypatch.setattr(own_heads, "_by_agent", lambda _: {1: head, 2: head})
    monkeypatch.setattr(own_heads, "_continues", lambda pk, *_: checked.append(pk) or may_end.wait(20))

    def check(pk: int) -> str:
        agent = Agent(pk=pk, tenant_id=pk, slug="ada", audit_seq=99, audit_mac=b"9")
        try:
            own_heads.require_not_shortened(agent, lambda _: None)
        except Busy:
            return "busy"
        return "right"

    try:
        with ThreadPoolExecutor(8) as pool:
            first = [pool.submit(check, 1) for _ in range(7)]
            until(lambda: sum(each.done() for each in first) == 5)
            other = pool.submit(check, 2)
            until(lambda: len(checked) == 2)
            may_end.set()
        assert sorted(each.result() for each in (*first, other)) == ["busy"] * 5 + ["right"] * 3
        assert sorted(checked) == [1, 2]
    finally:
        may_end.set()
        own_heads.proven_ends.clear()


def test_a_trail_of_an_older_release_is_checked_with_its_changes(
    folder: Path, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_heads.write()
    mac = trail.entry_mac

    def older(secret: bytes, previous: bytes, entry: dict[str, Any], changes: bytes) -> bytes:
        entry["changes_digest"] = None
        return mac(secret, previous, entry, changes)

    with monkeypatch.context() as patched:
        patched.setattr(trail, "entry_mac", older)
        remember(ada, "tea", "milk")
    assert AuditEntry.objects.get(agent_id=ada.pk, seq=fresh(ada).audit_seq).changes_digest is None
    own_heads.proven_ends.clear()
    assert not is_refused(ada)
    assert problems(ada) == []


@pytest.mark.sqlite
def test_a_number_of_a_wrong_type_is_a_broken_row(folder: Path, ada: Agent) -> None:
    own_heads.write()
    Agent.objects.filter(pk=ada.pk).update(audit_seq=Cast(Value("many"), TextField()))
    with pytest.raises(AuthorityBroken):
        authority.require(fresh(ada))


def test_an_object_that_is_older_than_the_newest_head_is_read_again(
    folder: Path, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL may show an old row, and the last entry at that time, before it restores both."""
    old = fresh(ada)
    remember(ada, "tea")
    own_heads.write()
    monkeypatch.setattr(authority, "_last_entry", lambda _: [AuditEntry(seq=old.audit_seq)])
    authority.require(old)
    assert old.audit_seq == fresh(ada).audit_seq


def test_another_entry_at_the_number_of_the_head_is_refused(
    folder: Path, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = shorten(ada)
    with monkeypatch.context() as without_heads:
        without_heads.setattr(authority, "require_not_shortened", lambda *_: None)
        for text in ("milk", "sugar"):
            remember(fresh(ada), text)
    assert (fresh(ada).audit_seq > earlier.audit_seq + 1, is_refused(ada)) == (True, True)


def test_a_trail_that_continues_another_history_is_refused(folder: Path, ada: Agent) -> None:
    """SQL restores an earlier state, and later appends the last entries that were written before that."""
    earlier = fresh(ada)
    for text in ("one", "two", "three"):
        remember(fresh(ada), text)
    fork, row = [list(model.objects.filter(agent_id=ada.pk)) for model in (AuditEntry, Change)], fresh(ada)
    delete_trail(ada, earlier.audit_seq)
    Memory.objects.filter(agent=ada).delete()
    earlier.save()
    remember(fresh(ada), "mine")
    own_heads.write()
    remember(fresh(ada), "mine, too")
    assert not is_refused(ada)
    for rows in fork:
        type(rows[0])._default_manager.bulk_create([each for each in rows if each.seq > fresh(ada).audit_seq])
    row.save()
    assert is_refused(ada)


def test_a_row_from_before_the_latest_write_of_another_thread_is_not_refused(folder: Path, ada: Agent) -> None:
    own_heads.write()
    remember(ada, "tea")
    assert not is_refused(ada)
    own_heads.proven_ends[ada.pk] = fresh(ada).audit_seq + 1, bytes(32)
    assert not is_refused(ada)


def test_only_the_agent_that_was_looked_at_is_confirmed(folder: Path, ada: Agent, bob: Agent) -> None:
    remember(ada, "tea")
    own_heads.write()
    for slug, agent in (("x", ada), ("acme", bob), ("globex", ada)):  # SQL exchanges two names
        Tenant.objects.filter(pk=agent.tenant_id).update(slug=slug)
    Agent.objects.filter(pk=ada.pk).update(slug="bob")
    failed(run("confirm_trail", "globex/bob", fresh(ada).audit_mac.hex()), 2, "globex/bob had another name")


def test_a_head_is_confirmed_only_with_its_own_mac(folder: Path, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL could show another state of the trail between the check of the MAC and the export."""
    own_heads.write()
    before, export = own_heads.known(), own_heads.heads.export

    def late(*call: Any, **more: Any) -> Any:
        remember(ada, "tea")
        return export(*call, **more)

    monkeypatch.setattr(own_heads.heads, "export", late)
    ran = run("confirm_trail", "acme/ada", fresh(ada).audit_mac.hex())
    assert (ran.code != 0, "another last entry" in ran.err) == (True, True)
    assert own_heads.known() == before


def test_files_are_private_signed_and_limited(folder: Path, ada: Agent) -> None:
    for _ in range(own_heads.KEPT + 2):
        own_heads.write()
    files = sorted(folder.iterdir())
    assert (len(files), files[-1].name) == (own_heads.KEPT, f"{own_heads.KEPT + 2:010}.json")
    assert {folder.stat().st_mode & 0o777, *(file.stat().st_mode & 0o777 for file in files)} == {0o700, 0o600}
    assert heads.read(files[-1].read_text())[0]["agent"] == "acme/ada"
    files[-1].write_text(files[-1].read_text().replace('"seq": 2', '"seq": 1'))
    own_heads._by_agent.cache_clear()
    assert own_heads.known()[ada.pk]["seq"] == 2, "from the file before"
    own_heads.write()
    assert own_heads.known()[ada.pk]["seq"] == 2


def test_a_foreign_row_disables_no_heads(folder: Path, ada: Agent) -> None:
    """SQL could add a row that makes the whole file unreadable."""
    own_heads.write()
    drop_guards()
    entry = AuditEntry.objects.get(agent_id=ada.pk, seq=1)
    entry.pk, entry.agent_id, entry.mac = None, ada.pk + 1_000, b""
    entry.save(force_insert=True)
    own_heads.write()
    assert own_heads.known()[ada.pk]["seq"] == fresh(ada).audit_seq
    shorten(ada)
    assert is_refused(ada)


def test_verify_audit_says_that_no_heads_are_written(folder: Path, ada: Agent) -> None:
    own_heads.write()
    [file] = folder.iterdir()
    assert own_heads.stale_since() is None
    os.utime(file, (time.time() - 3 * 3600,) * 2)
    remember(ada, "tea")
    assert "No signed heads were written since" in run("verify_audit", "--all").err


def test_verify_audit_names_entries_that_were_hidden_from_the_heads(
    folder: Path, ada: Agent, time_machine: Any
) -> None:
    remember(ada, "tea")
    last = AuditEntry.objects.filter(agent_id=ada.pk).last()
    time_machine.move_to(timezone.now() + timedelta(minutes=40))
    drop_guards()
    AuditEntry.objects.filter(pk=last.pk).update(agent_id=ada.pk + 1_000)
    own_heads.write()
    AuditEntry.objects.filter(pk=last.pk).update(agent_id=ada.pk)
    [file] = folder.iterdir()
    os.utime(file, (timezone.now().timestamp(),) * 2)
    assert ["lack later entries" in each.problem for each in own_heads.problems()] == [True]
