"""A redaction and an erasure remove text from all files of the vault."""

import fcntl
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.consent import claims, erasure, redaction
from memory.errors import FileFault, Invalid
from memory.models import Agent, AgentKey, Memory, RecordedSession, Vault, VaultFile
from memory.policy.validation import Draft
from memory.recording import recorder, sessions
from memory.recording.interactions import Interaction
from memory.vault import base, comparing, writer
from memory.vault.disk import LOCK
from memory.vault.files import AT_ONCE
from memory.vault.writer import open_file
from memory.writing import operations
from tests.rules.recordings import talk
from tests.steps import ME, PERSON, fresh, problems, remember
from tests.vault.tree import all_text, block, differences, erase, memory_files, redact, tree, unblock

TECHNICAL = "common/technical"


def store(agent: Agent, *texts: str) -> list[int]:
    return remember(agent, *texts, category="technical")


def write(folder: Path, text: str, *names: str) -> None:
    for name in names:
        (folder / name).write_text(text)


def write_as_an_editor(path: Path, text: str) -> None:
    """Change a file by hand: without the line of its number, and in another encoding."""
    lines = [line for line in path.read_text().splitlines() if "Memory ID" not in line]
    path.write_bytes("\n".join([*lines, text, "h\xe9"]).encode("latin-1"))


def test_a_redaction_removes_files_changed_files_and_copies(ada: Agent, vault: Path) -> None:
    one, two, three, four = store(ada, "heather blooms", "heather fades", "moss grows", "heather is purple")
    operations.discard(ada, [two], PERSON)
    (vault / "common" / "copy.md").write_bytes((vault / TECHNICAL / "000001.md").read_bytes())
    changed = vault / TECHNICAL / "000004.md"
    changed.write_text(changed.read_text() + "more heather")
    redact(ada, one, two)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    redact(ada, four)
    assert "heather" not in all_text(vault)
    assert memory_files(vault) == [f"{TECHNICAL}/000003.md"]
    assert list(VaultFile.objects.values_list("number", flat=True)) == [three]
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    assert differences(ada) == []


def test_a_redaction_removes_files_whatever_sql_set_in_the_vaults_row(ada: Agent, vault: Path) -> None:
    [number] = store(ada, "heather")
    Vault.objects.update(seq=10**6)
    redact(ada, number)
    assert memory_files(vault) == []
    assert Vault.objects.get().seq == fresh(ada).audit_seq


def test_the_next_edit_removes_files_whose_removal_failed_and_sql_hides_it(ada: Agent, vault: Path) -> None:
    [number] = store(ada, "heather")
    with mock.patch.object(writer, "sync", side_effect=FileFault("")):
        redact(ada, number)
    assert len(memory_files(vault)) == 1
    Vault.objects.update(fault="", fault_at=None, seq=fresh(ada).audit_seq)
    store(ada, "moss")
    assert "heather" not in all_text(vault)


def test_a_redaction_removes_the_file_of_a_row_that_sql_changed(ada: Agent, vault: Path) -> None:
    one, two = store(ada, "heather", "moss")
    VaultFile.objects.update(sealed_path=b"x")
    redact(ada, one)
    assert (memory_files(vault), "heather" in all_text(vault)) == ([f"{TECHNICAL}/00000{two}.md"], False)
    assert {each.number for each in comparing.whole(fresh(ada)).differences if each.number} == {two}


def test_a_redaction_removes_files_below_a_foreign_mark(ada: Agent, vault: Path) -> None:
    [number] = store(ada, "heather")
    (vault / TECHNICAL / LOCK).write_text("f" * 32)
    redact(ada, number)
    assert "heather" not in all_text(vault)


def test_a_redaction_removes_files_that_lost_their_number(ada: Agent, vault: Path) -> None:
    [number] = store(ada, "heather blooms")
    path = vault / TECHNICAL / "000001.md"
    write_as_an_editor(path, "more heather")
    operations.revise(ada, number, PERSON, content="heather fades")
    kept = vault / ".discarded" / TECHNICAL / "000001-found-1.md"
    assert "more heather" in kept.read_bytes().decode("latin-1")
    write_as_an_editor(path, "heather again")
    write(vault / "common", "no number in it", "000001-heather-of-an-editor.md")
    write(path.parent, "half a heather", ".palimpsest-new-0123456789abcdef")
    (vault / "common" / "copied.md").write_bytes(b"## Metadata\n- **Memory ID**: 1\nh\xe9 heather")
    others = ["0000010-notes.md", "20261123-notes.md", "notes-found-1.md"]
    write(path.parent, "mine", *others)
    redact(ada, number)
    assert memory_files(vault) == [f"{TECHNICAL}/{name}" for name in others]
    assert VaultFile.objects.count() == 0


BACKUPS = [
    *("000001-heather-blooms.md.bak", "000001-heather-blooms.md.orig", "000001-heather-blooms.md~"),
    *("000001-heather-blooms.md.~1~", "#000001-heather-blooms.md#", ".000001-heather-blooms.md.swp"),
    *("Copy of 000001-heather-blooms.md", "000001-heather-blooms (1).md", "000001-notes.txt", "000001.txt"),
]
OTHERS = ["20261123-notes.md", "0000010-notes.md", "1.md", "000001ab34.bin", "000010-mine.md", "2026-000001-mine.md"]


def test_a_redaction_removes_backups_of_editors(ada: Agent, vault: Path) -> None:
    rule_changes.make(ada, PERSON, Wanted(rules={"storage": {"readable_names": True}}), side=ME)
    [number] = store(fresh(ada), "heather blooms")
    write(vault / TECHNICAL, "heather", *BACKUPS)
    write(vault / TECHNICAL, "mine", *OTHERS)
    write(vault, "mine", "elsewhere.md.bak")
    redact(ada, number)
    assert memory_files(vault) == sorted([*(f"{TECHNICAL}/{name}" for name in OTHERS), "elsewhere.md.bak"])


def test_a_redaction_removes_backups_of_a_named_credential(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "heather", category="credentials", tags=("service:mail",))
    folder = vault / "private" / "credentials"
    write_as_an_editor(folder / "mail-key.md", "heather in clear")
    comparing.repair(fresh(ada))
    kept = (vault / ".discarded/private/credentials/mail-key-found-1.md").read_bytes()
    assert "heather in clear" in open_file(fresh(ada), kept).content
    assert "heather" not in all_text(vault)
    write(folder, "heather", "mail-key.md~", ".mail-key.md.swp", "#mail-key.md#", "mail-key-found-1.md.bak")
    others = ["gmail-key.md", "mail-key-2.md", "mail-key.mdx"]
    write(folder, "mine", *others)
    redact(ada, number)
    assert [Path(path).name for path in memory_files(vault)] == others


FORMS: list[Callable[[str], bytes]] = [
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("utf-16-be"),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.encode("utf-8-sig"),
    lambda text: text.replace("\n", "\r").encode(),
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: "".join(f"> {line}" for line in text.splitlines(keepends=True)).encode(),
    lambda text: f"Of my own.\n````\n{text}````\n".encode(),
]


def test_a_redaction_removes_copies_in_other_forms(ada: Agent, vault: Path) -> None:
    one, _ = store(ada, "heather blooms", "moss grows")
    heather, moss = (vault / path for path in memory_files(vault))
    for n, form in enumerate(FORMS):
        (vault / f"copy-{n}.md").write_bytes(form(heather.read_text()))
        (vault / f"other-{n}.md").write_bytes(form(moss.read_text()))
    redact(ada, one)
    others = [f"other-{n}.md" for n in range(len(FORMS))]
    assert sorted(Path(path).name for path in memory_files(vault)) == ["000002.md", *others]


@pytest.mark.parametrize("mode", [0, 0o600])
def test_an_unreadable_folder_delays_only_its_own_removal(ada: Agent, vault: Path, as_nobody: None, mode: int) -> None:
    one, two = store(ada, "heather blooms", "heather fades")
    closed = vault / "aaa"
    closed.mkdir()
    write(closed, "heather", "000001-heather.md")
    closed.chmod(mode)
    redact(ada, one, two)
    assert (memory_files(vault / "common"), VaultFile.objects.count()) == ([], 2)
    closed.chmod(0o700)
    writer.catch_up()
    assert (memory_files(vault), VaultFile.objects.count()) == ([], 0)


def test_a_very_deep_folder_delays_only_its_own_removal(ada: Agent, vault: Path) -> None:
    store(ada, "heather blooms")
    deep = vault / "aaa" / "/".join("b" * 40)
    deep.mkdir(parents=True)
    write(deep, "heather", "000001-heather.md")
    assert comparing.whole(ada).unknown == 1
    erase(ada)
    assert (memory_files(vault / "common"), Vault.objects.get().fault) == ([], "a folder is too deep")
    write(vault, "0" * 32, f"aaa/{LOCK}")  # another agent's vault is left out, and stops nothing
    writer.catch_up()
    assert (tree(vault), VaultFile.objects.count()) == ([str(deep.relative_to(vault) / "000001-heather.md")], 0)


def test_a_redaction_does_not_wait_for_files_that_cannot_be_written(ada: Agent, vault: Path) -> None:
    [number] = store(ada, "Heather blooms.")
    write(vault / "common", "a person's", "behavioral")
    operations.remember(fresh(ada), [Draft(f"Moss {n}.", category="behavioral") for n in range(AT_ONCE + 10)], ME)
    redact(ada, number)
    assert "eather" not in all_text(vault)


def test_a_vault_with_a_pending_removal_cannot_move(ada: Agent, vault: Path, root: Path, as_nobody: None) -> None:
    [number] = store(ada, "heather blooms")
    folder = vault / TECHNICAL
    folder.chmod(0o500)
    redact(ada, number)
    assert "heather" in all_text(vault)
    second = str(root / "second")
    with pytest.raises(Invalid, match="cannot change while"):
        lifecycle.change(fresh(ada), ME, vault_path=second)
    folder.chmod(0o700)
    writer.catch_up()
    assert "heather" not in all_text(vault)
    assert lifecycle.change(fresh(ada), ME, vault_path=second).vault_path == second
    [number] = store(fresh(ada), "heather")
    block(root / "second")  # a removed folder does not hold the vault
    redact(ada, number)
    assert lifecycle.change(fresh(ada), ME, vault_path="").vault_path == ""


@pytest.mark.parametrize("is_back", [True, False])
def test_a_claim_removes_files_of_redacted_memories_if_it_can(ada: Agent, vault: Path, is_back: bool) -> None:
    [number] = store(ada, "heather blooms")
    store(fresh(ada), "oak")
    block(vault)
    redact(ada, number)
    if is_back:
        unblock(vault)
    claims.exchange(AgentKey.objects.get(agent=ada), ME)
    assert (fresh(ada).vault_path, Vault.objects.count(), VaultFile.objects.count()) == ("", 0, 0)
    left = all_text(vault if is_back else vault.with_name("moved-vault"))
    assert ("heather" in left, "oak" in left) == (not is_back, True)


def test_a_claim_removes_these_files_while_another_process_has_the_folder(
    ada: Agent, vault: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key did this with a large import of its own. The claim may also wait for the redaction."""
    monkeypatch.setattr(base, "PATIENCE", 0.01)
    number, _ = store(ada, "heather blooms", "oak")
    with (vault / LOCK).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        redact(ada, number)
        assert "heather" in all_text(vault)
        claims.exchange(AgentKey.objects.get(agent=ada), ME)
    assert ("heather" in all_text(vault), "oak" in all_text(vault)) == (False, True)
    assert (Vault.objects.count(), VaultFile.objects.count()) == (0, 0)


def test_a_former_vault_is_reported_and_not_touched(ada: Agent, vault: Path, root: Path) -> None:
    [number] = store(ada, "heather blooms")
    lifecycle.change(ada, ME, vault_path=str(root / "second"))
    assert redaction.preview(fresh(ada), [number]).former_vaults == (str(vault),)
    assert erasure.preview(fresh(ada)).former_vaults == (str(vault),)
    redact(ada, number)
    assert "heather" in all_text(vault)
    assert "heather" not in all_text(root / "second")


def test_an_erasure_removes_the_agents_files_and_keeps_others(ada: Agent, vault: Path, as_nobody: None) -> None:
    store(ada, "heather blooms", "heather fades", "heather")
    remember(ada, "heather fades", category="topic", project="site")
    (one, two), folder = (vault / TECHNICAL / f"00000{n}.md" for n in (1, 2)), vault / TECHNICAL
    one.write_bytes(one.read_text().replace("heather", "h\xe9ather").encode("latin-1"))
    two.write_text("heather, without a number")
    (vault / ".palimpsest-new-0123456789abcdef").write_bytes("heather \xe9".encode()[:-1])
    write(folder, "mine", "20261123-notes.md")
    closed = vault / "common" / "mine.txt"
    closed.write_text("mine")
    closed.chmod(0)
    assert erasure.preview(ada).vault == str(vault)
    erase(ada)
    assert tree(vault) == ["common/mine.txt", f"{TECHNICAL}/20261123-notes.md"]
    assert (fresh(ada).vault_path, Vault.objects.count(), VaultFile.objects.count()) == ("", 0, 0)
    assert problems(ada) == []


def test_an_erasure_is_finished_when_the_folder_is_back(ada: Agent, vault: Path) -> None:
    store(ada, "heather blooms")
    block(vault)
    erase(ada)
    unblock(vault)
    writer.catch_up()
    assert (tree(vault), fresh(ada).vault_path) == ([], "")


def test_a_redacted_recording_takes_the_session_name_with_it(ada: Agent, vault: Path) -> None:
    rain = Interaction("Shall we never water the heather again?", "Never.", session="heather-talk", topic="garden")
    [number] = recorder.record(ada, rain, ME, requested=True).numbers
    summary = sessions.end_session(fresh(ada), "heather-talk", ME).memory
    [topic] = Memory.objects.filter(category="topic").values_list("number", flat=True)
    related = {each.number: each.why for each in redaction.preview(fresh(ada), [number]).related}
    assert related == {summary.number: "told", topic: "told"}
    redact(ada, number, *related)
    assert "heather" not in all_text(vault)
    [session] = RecordedSession.objects.all()
    assert session.name == f"redacted-{session.pk}"


def test_the_new_name_of_a_redacted_session_may_be_in_use(ada: Agent) -> None:
    number = talk(ada, session="monday", project="site").number
    assert number is not None
    session = RecordedSession.objects.get(agent=ada)
    talk(ada, session=f"redacted-{session.pk}", project="site")
    redact(ada, number)
    session.refresh_from_db()
    assert session.name == f"redacted-{session.pk}-2"
