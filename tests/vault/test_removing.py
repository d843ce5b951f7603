"""What is removed for good is in no file of the vault either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from audit.trail import Actor
from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.consent import erasure, redaction, removal_requests
from memory.errors import Invalid
from memory.models import Agent, Memory, RecordedSession, Vault, VaultFile
from memory.policy.validation import Draft
from memory.recording import recorder, sessions
from memory.recording.interactions import Interaction
from memory.vault import comparing, writer
from memory.vault.files import AT_ONCE, open_file
from memory.writing import operations
from tests.rules.talking import talk
from tests.steps import ME, PERSON, fresh, problems, remember
from tests.vault.tree import differ, memories, tree

OWNER = Actor.person("owner@acme.test")


def redact(agent: Agent, *numbers: int) -> None:
    asked = removal_requests.ask_redaction(agent, numbers, OWNER, reason="request 17").number
    redaction.redact(agent, asked, ME)


def words(vault: Path) -> str:
    return "".join(path + (vault / path).read_text() for path in tree(vault))


def test_what_is_redacted_is_in_no_file(ada: Agent, vault: Path) -> None:
    one, two, three = remember(ada, "heather blooms", "heather fades", "moss grows", category="technical")
    operations.discard(ada, [two], PERSON)
    copy = vault / "common" / "copy.md"
    copy.write_bytes((vault / memories(vault)[1]).read_bytes())
    redact(ada, one, two)
    assert "heather" not in words(vault)
    assert [path.split("/")[-1] for path in memories(vault)] == ["000003.md"]
    assert list(VaultFile.objects.values_list("number", flat=True)) == [three]
    assert differ(ada) == []


def test_also_what_somebody_wrote_to_and_while_memory_is_off(ada: Agent, vault: Path) -> None:
    one, two = remember(ada, "heather blooms", "heather fades", category="technical")
    path = vault / memories(vault)[0]
    path.write_text(path.read_text() + "more heather")
    redact(ada, one)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    redact(fresh(ada), two)
    assert "heather" not in words(vault)


def edited(path: Path, said: str) -> None:
    """As an editor of another kind leaves it: without the number, and in another encoding."""
    lines = [line for line in path.read_text().splitlines() if "Memory ID" not in line]
    path.write_bytes("\n".join([*lines, said, "h\xe9"]).encode("latin-1"))


def test_also_what_bears_its_number_no_more(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "heather blooms", category="technical")
    path = vault / memories(vault)[0]
    edited(path, "more heather")
    operations.revise(ada, number, PERSON, content="heather fades")
    assert "more heather" in (vault / ".discarded/common/technical/000001-found-1.md").read_bytes().decode("latin-1")
    edited(path, "heather again")
    (vault / "common" / "000001-heather-of-an-editor.md").write_text("no number in it")
    (vault / "common" / "technical" / ".palimpsest-new-0123456789abcdef").write_text("half a heather")
    (vault / "common" / "copied.md").write_bytes(b"## Metadata\n- **Memory ID**: 1\nh\xe9 heather")
    for mine in ("20261123-notes.md", "0000010-notes.md", "notes-found-1.md"):
        (vault / "common" / "technical" / mine).write_text("mine")
    redact(ada, number)
    assert memories(vault) == [
        f"common/technical/{mine}" for mine in ("0000010-notes.md", "20261123-notes.md", "notes-found-1.md")
    ]
    assert VaultFile.objects.count() == 0


LEFT_BEHIND = [
    "000001-heather-blooms.md.bak",
    "000001-heather-blooms.md.orig",
    "000001-heather-blooms.md~",
    "000001-heather-blooms.md.~1~",
    "#000001-heather-blooms.md#",
    ".000001-heather-blooms.md.swp",
    "Copy of 000001-heather-blooms.md",
    "000001-heather-blooms (1).md",
    "000001-notes.txt",
    "000001.txt",
]
MINE = ["20261123-notes.md", "0000010-notes.md", "1.md", "000001ab34.bin", "000010-mine.md", "2026-000001-mine.md"]


def test_also_what_editors_leave_of_it(ada: Agent, vault: Path) -> None:
    rules = {"storage": {"readable_names": True}}
    rule_changes.make(ada, PERSON, Wanted(rules=rules), side=ME)
    [number] = remember(fresh(ada), "heather blooms", category="technical")
    for name in (*LEFT_BEHIND, *MINE):
        (vault / "common" / "technical" / name).write_text("heather" if name in LEFT_BEHIND else "mine")
    (vault / "elsewhere.md.bak").write_text("mine")
    redact(ada, number)
    assert sorted(memories(vault)) == sorted([*(f"common/technical/{name}" for name in MINE), "elsewhere.md.bak"])


def test_also_what_is_left_or_put_aside_of_a_named_credential(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "heather", category="credentials", tags=("service:mail",))
    folder = vault / "private" / "credentials"
    edited(folder / "mail-key.md", "heather in clear")
    comparing.repair(fresh(ada))
    kept = (vault / ".discarded/private/credentials/mail-key-found-1.md").read_bytes()
    assert "heather in clear" in open_file(fresh(ada), kept).content
    assert "heather" not in words(vault)
    for name in ("mail-key.md~", ".mail-key.md.swp", "#mail-key.md#", "mail-key-found-1.md.bak"):
        (folder / name).write_text("heather")
    for name in ("gmail-key.md", "mail-key.mdx", "mail-key-2.md"):
        (folder / name).write_text("mine")
    redact(ada, number)
    assert [Path(path).name for path in memories(vault)] == ["gmail-key.md", "mail-key-2.md", "mail-key.mdx"]


COPIES: list[Callable[[str], bytes]] = [
    lambda text: text.encode("utf-16"),
    lambda text: text.encode("utf-16-be"),
    lambda text: text.encode("utf-16-le"),
    lambda text: text.encode("utf-8-sig"),
    lambda text: text.replace("\n", "\r").encode(),
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: "".join(f"> {line}" for line in text.splitlines(keepends=True)).encode(),
    lambda text: f"Of my own.\n````\n{text}````\n".encode(),
]


def test_also_a_copy_in_another_form(ada: Agent, vault: Path) -> None:
    one, _ = remember(ada, "heather blooms", "moss grows", category="technical")
    heather, moss = (vault / path for path in memories(vault))
    for nth, made in enumerate(COPIES):
        (vault / f"copy-{nth}.md").write_bytes(made(heather.read_text()))
        (vault / f"other-{nth}.md").write_bytes(made(moss.read_text()))
    redact(ada, one)
    others = sorted(f"other-{nth}.md" for nth in range(len(COPIES)))
    assert sorted(Path(path).name for path in memories(vault)) == ["000002.md", *others]


def test_what_cannot_be_removed_keeps_nothing_else(ada: Agent, vault: Path, as_nobody: None) -> None:
    one, two = remember(ada, "heather blooms", "heather fades", category="technical")
    closed = vault / "aaa"
    closed.mkdir()
    (closed / "000001-heather.md").write_text("heather")
    closed.chmod(0)
    redact(ada, one, two)
    assert memories(vault / "common") == []
    assert VaultFile.objects.count() == 2  # owed
    closed.chmod(0o700)
    writer.catch_up()
    assert (memories(vault), VaultFile.objects.count()) == ([], 0)


def test_an_erased_agents_files_are_removed_and_others_stay(ada: Agent, vault: Path) -> None:
    remember(ada, "heather blooms", category="technical")
    remember(ada, "heather fades", category="topic", project="site")
    (vault / "common" / "mine.md").write_text("mine")
    assert erasure.preview(ada).vault == str(vault)
    erasure.erase(ada, removal_requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    assert tree(vault) == ["common/mine.md"]
    assert (fresh(ada).vault_path, Vault.objects.count(), VaultFile.objects.count()) == ("", 0, 0)
    assert problems(ada) == []


def test_an_erasure_that_finds_no_disk_is_made_up_for(ada: Agent, vault: Path) -> None:
    remember(ada, "heather blooms", category="technical")
    aside = vault.with_name("elsewhere")
    vault.rename(aside)
    vault.write_text("no folder")
    erasure.erase(ada, removal_requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    vault.unlink()
    aside.rename(vault)
    writer.catch_up()
    assert tree(vault) == []
    assert fresh(ada).vault_path == ""


def test_an_erasure_removes_what_somebody_made_of_its_files(ada: Agent, vault: Path, as_nobody: None) -> None:
    remember(ada, "heather blooms", "heather fades", category="technical")
    one, two = (vault / path for path in memories(vault))
    one.write_bytes(one.read_text().replace("heather", "h\xe9ather").encode("latin-1"))
    two.write_text("heather, and no word of whose")
    (vault / ".palimpsest-new-0123456789abcdef").write_bytes("heather \xe9".encode()[:-1])
    dated = vault / "common" / "technical" / "20261123-notes.md"
    dated.write_text("mine as well")
    closed = vault / "common" / "mine.txt"
    closed.write_text("mine")
    closed.chmod(0)
    erasure.erase(ada, removal_requests.ask_erasure(ada, OWNER, reason="request 18").number, ME)
    assert tree(vault) == ["common/mine.txt", "common/technical/20261123-notes.md"]
    assert fresh(ada).vault_path == ""


def test_a_former_vault_is_told_and_left(ada: Agent, vault: Path, root: Path) -> None:
    [number] = remember(ada, "heather blooms", category="technical")
    lifecycle.change(ada, ME, vault_path=str(root / "second"))
    assert redaction.preview(fresh(ada), [number]).former_vaults == (str(vault),)
    assert erasure.preview(fresh(ada)).former_vaults == (str(vault),)
    redact(fresh(ada), number)
    assert "heather" in words(vault)
    assert "heather" not in words(root / "second")


def test_a_vault_that_owes_a_removal_stays_where_it_is(ada: Agent, vault: Path, root: Path, as_nobody: None) -> None:
    [number] = remember(ada, "heather blooms", category="technical")
    folder = (vault / memories(vault)[0]).parent
    folder.chmod(0o500)
    redact(ada, number)
    assert "heather" in words(vault)
    with pytest.raises(Invalid, match="cannot change while"):
        lifecycle.change(fresh(ada), ME, vault_path=str(root / "second"))
    folder.chmod(0o700)
    writer.catch_up()
    assert "heather" not in words(vault)
    assert lifecycle.change(fresh(ada), ME, vault_path=str(root / "second")).vault_path == str(root / "second")


def test_a_folder_that_is_gone_keeps_no_vault(ada: Agent, vault: Path, root: Path) -> None:
    [number] = remember(ada, "heather blooms", category="technical")
    vault.rename(root / "lost")
    vault.write_text("no folder")
    redact(ada, number)
    assert lifecycle.change(fresh(ada), ME, vault_path="").vault_path == ""


def test_what_repeats_a_recording_is_told_and_its_session_loses_its_name(ada: Agent, vault: Path) -> None:
    rain = Interaction("Shall we never water the heather again?", "Never.", session="heather-talk", topic="garden")
    [number] = recorder.record(ada, rain, ME, requested=True).numbers
    told = sessions.end_session(fresh(ada), "heather-talk", ME).memory
    related = {each.number: each.why for each in redaction.preview(fresh(ada), [number]).related}
    [topic] = Memory.objects.filter(category="topic").values_list("number", flat=True)
    assert related == {told.number: "told", topic: "told"}
    redact(fresh(ada), number, *related)
    assert "heather" not in words(vault)
    [session] = RecordedSession.objects.all()
    assert session.name == f"redacted-{session.pk}"


def test_a_session_may_have_been_called_so(ada: Agent) -> None:
    first = talk(ada, session="monday", project="site").number
    session = RecordedSession.objects.get(agent=ada)
    talk(ada, session=f"redacted-{session.pk}", project="site")
    assert first is not None
    redact(ada, first)
    session.refresh_from_db()
    assert session.name == f"redacted-{session.pk}-2"


def test_what_was_redacted_goes_whatever_keeps_others_from_being_written(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "Heather blooms.", category="technical")
    (vault / "common" / "behavioral").write_text("a person's")
    operations.remember(fresh(ada), [Draft(f"Moss {nth}.", category="behavioral") for nth in range(AT_ONCE + 10)], ME)
    redact(fresh(ada), number)
    assert [path for path in vault.rglob("*") if "heather" in path.name or holds(path, "eather")] == []


def holds(path: Path, word: str) -> bool:
    return path.is_file() and word in path.read_text()
