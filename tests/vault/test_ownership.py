"""Where a vault may be, and the names of its files. Its folder belongs to one agent: a mark in it says which."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from unittest import mock

import pytest
from django.db import connections
from pytest_django.fixtures import Settings

from audit.models import AuditEntry
from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.consent import approval, requests
from memory.errors import FileFault, Invalid
from memory.models import Agent, Vault
from memory.run_log import runs
from memory.vault import base, comparing, writer
from memory.vault.disk import LARGEST, LOCK
from memory.writing import operations
from refinement.gc_logs import log_of
from tests.conftest import drop_guards
from tests.steps import ME, PERSON, fresh, last_entry, remember, signed_update
from tests.vault.conftest import KEY
from tests.vault.tree import assert_repaired, erase, ferry, memory_files, redact, tree

FIRST_FILE = "common/technical/000001.md"


def fault(agent: Agent) -> str:
    return str(Vault.objects.get(agent_id=agent.pk).fault)


def move(agent: Agent, path: Path | str) -> Agent:
    return lifecycle.change(fresh(agent), ME, vault_path=str(path))


WRONG = {
    "VAULT_ROOTS": ["../outside", "/etc/vault", ".", "link-out/vault"],
    "not a valid path": ["~nobody-here/vault", "x" * 1_001, "/".join(["x" * 300] * 3)],
    "control": ["a\0b", "a\nb", "a\u2028b", "\udc80"],
    "space": [" ", "notes /x"],
    "bytes": ["/".join(["\u00e9" * 100] * 5)],
    "\\.git folder": [".git/notes", "repo/.git"],
}


def test_where_a_vault_is_allowed(ada: Agent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "link-out").symlink_to("/tmp")  # noqa: S108
    before = fresh(ada).vault_path
    for path, why in [(path, why) for why, paths in WRONG.items() for path in paths]:
        with pytest.raises(Invalid, match=why) as caught:
            move(ada, path)
        assert (caught.value.field, fresh(ada).vault_path) == ("vault_path", before)
    monkeypatch.setenv("HOME", str(root / "home"))
    assert move(ada, "some/../other//vault/").vault_path == str(root / "other" / "vault")
    assert move(ada, "~/vault").vault_path == str(root / "home" / "vault")


def test_a_vault_does_not_overlap_another_vault(ada: Agent, root: Path, settings: Settings) -> None:
    """Otherwise a redaction for one agent searches the files of the other."""
    settings.VAULT_ROOTS = [str(root.parent)]
    ferry(ada)
    (root / "link").symlink_to(root / "vault")
    for path in ("vault", "vault/below", ".", "", "link", "link/below", "vault/../vault"):
        with pytest.raises(Invalid, match="overlaps with"):
            lifecycle.create("acme", "eve", model="builtin/dedupe", actor=KEY, vault_path=f"{root}/{path}")
    assert len(memory_files(root / "vault")) == 1


def test_a_vault_does_not_overlap_a_memory_file(ada: Agent, vault: Path, root: Path, settings: Settings) -> None:
    bob = lifecycle.create("acme", "bob", model="builtin/dedupe", actor=ME)[0]
    vault.mkdir(exist_ok=True)
    link = root / "link"
    link.symlink_to(vault)
    for agent in (bob, ada):
        for inside in (vault / "index.md", vault / FIRST_FILE, link / "log.md"):
            with pytest.raises(Invalid, match="memory_path"):
                lifecycle.change(agent, ME, memory_path=str(inside))
    for agent in (bob, ada):
        lifecycle.change(fresh(agent), ME, memory_path=str(root / agent.slug / "log.md"))
        with pytest.raises(Invalid, match="vault_path"):
            move(ada, root / agent.slug)
    settings.MEMORY_FILE_ROOTS = settings.MEMORY_ROOTS = [str(root)]
    signed_update(Agent.objects.filter(pk=bob.pk), memory_path=str(root / "eve" / "MEMORY.md"))
    with pytest.raises(Invalid, match="overlaps with"):
        move(ada, root / "eve")
    assert fresh(ada).vault_path == ada.vault_path


def test_a_memory_file_in_a_vault_is_not_read(ada: Agent, vault: Path) -> None:
    """SQL hid the path of the file until the vault had begun."""
    bob = lifecycle.create("acme", "bob", model="builtin/dedupe", actor=ME)[0]
    signed_update(Agent.objects.filter(pk=bob.pk), memory_path=str(vault / FIRST_FILE))
    ferry(ada)
    for act in (lambda: log_of(fresh(bob), ME), lambda: runs.log_run(fresh(bob), "Brew", "tea", ME)):
        with pytest.raises(FileFault, match="is inside a vault"):
            act()
    assert (vault / FIRST_FILE).exists()


def test_a_vault_and_a_memory_file_do_not_share_a_path(ada: Agent, vault: Path, root: Path) -> None:
    bob = lifecycle.create("acme", "bob", model="builtin/dedupe", actor=ME)[0]
    signed_update(Agent.objects.filter(pk=ada.pk), vault_path=str(root / "new"))  # its folder does not exist yet
    for agent in (bob, ada):
        with pytest.raises(Invalid, match="memory_path: overlaps"):
            lifecycle.change(fresh(agent), ME, memory_path=str(root / "new"))
        lifecycle.change(fresh(agent), ME, memory_path=str(root / agent.slug))
        for path in (root / agent.slug, root / agent.slug / "below"):
            with pytest.raises(Invalid, match="vault_path: overlaps"):
                move(ada, path)


HOSTILE = [
    *("../../../etc/passwd", "/etc/passwd", "..", "CON", "aux.md", "a\\b:c*d?e|f<g>h", "a\x00b", "\x1b[31mred\x07"),
    *("a\u2028b\u2029c\x85d", "\u202egnp.exe", "\N{SNOWMAN}" * 300, "İstanbul", "ı"),
    *("caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"),
    *(".palimpsest", ".hidden", "index", "~root", "-rf", "$(reboot)", "]( javascript:alert(1)"),
    "a very long title " * 20,
]


@pytest.mark.parametrize("readable", [False, True])
def test_hostile_texts_make_safe_file_names(ada: Agent, root: Path, vault: Path, readable: bool) -> None:
    rule_changes.make(ada, PERSON, Wanted(rules={"storage": {"readable_names": readable}}), side=ME)
    texts = [text.replace("\0", "") for text in HOSTILE]
    for category in ("technical", "topic", "credentials"):
        for text in texts:
            tag = text[:50]
            tags = [f"topic:{tag}", f"service:{tag}", f"credential:{tag}"]
            first = ferry(fresh(ada), text, category=category, tags=tags)
            ferry(ada, text, category=category, tags=[f"topic:{tag.upper()}", f"service:{tag.upper()}"])
            operations.revise(ada, first, ME, content=f"{text} again")
    assert fault(ada) == ""
    assert [path.name for path in root.iterdir()] == ["vault"]
    for name in (Path(path).name for path in memory_files(vault)):
        assert name.isprintable()
        assert len(name.encode()) <= 120
        assert name.endswith(".md")
        assert not name.startswith((".", "-"))
    assert len({path.casefold() for path in memory_files(vault)}) == 3 * 2 * len(texts)
    assert_repaired(ada)


def test_each_project_has_its_own_folder(ada: Agent, root: Path, vault: Path) -> None:
    for project in ("..", "../x", "a/../../b", "/etc", "a\nb", "a b", "\0", "x" * 101):
        with pytest.raises(Invalid, match="project"):
            ferry(ada, category="contextual", project=project)
    assert tree(vault) == []
    projects = ["index.md", "A", "x" * 100, "con", "a//b", "a/./b", "host/p.git"]
    for project in (*projects, *(each.swapcase() for each in projects)):
        ferry(ada, f"Of {project}.", category="contextual", project=project)
    assert fault(ada) == ""
    assert [path.name for path in root.iterdir()] == ["vault"]
    folders = [Path(path).parts for path in memory_files(vault)]
    assert {(each[0], each[2], len(each)) for each in folders} == {("projects", "contextual", 4)}
    assert len({each[1].casefold() for each in folders}) == 2 * len(projects)
    assert_repaired(ada)


REFUSAL = r"is another agent's vault|is not the mark of a vault"


@pytest.fixture
def bob(ada: Agent) -> Agent:
    return lifecycle.create("globex", "bob", model="builtin/dedupe", actor=ME)[0]


@pytest.fixture
def mark(vault: Path) -> Path:
    """The place of the mark in an empty folder."""
    vault.mkdir(exist_ok=True)
    (vault / LOCK).unlink(missing_ok=True)
    return vault / LOCK


def store(agent: Agent) -> None:
    remember(fresh(agent), "heather", category="technical")


def test_the_mark_names_only_the_agent(ada: Agent, vault: Path) -> None:
    store(ada)
    assert (vault / LOCK).read_text() == base.mark_of(ada)
    assert len(base.mark_of(ada)) == 32
    (vault / LOCK).write_text(f"{base.mark_of(ada)}\n")  # an editor adds a line end
    store(ada)
    assert len(memory_files(vault)) == 2


def test_a_folder_with_another_mark_is_not_written(ada: Agent, bob: Agent, vault: Path) -> None:
    store(ada)
    marks = ("f" * 32, "f" * 32 + "\n", "f" * 33, "settings of another program\n" * 90, "torn", "\x00" * 32)
    for text in marks:
        (vault / LOCK).write_text(text)
        store(ada)
        assert ((vault / LOCK).read_text(), len(memory_files(vault))) == (text, 1)
        with pytest.raises(FileFault, match=REFUSAL):
            comparing.whole(fresh(ada))
        for agent in (fresh(ada), bob):
            with pytest.raises(FileFault, match=REFUSAL):
                base.require_usable(str(vault), agent)
    (vault / LOCK).write_text(base.mark_of(ada)[:7])  # a crash during the write of the mark
    writer.catch_up()
    assert len(memory_files(vault)) == 1 + len(marks)
    move(ada, "")
    for text in marks:
        (vault / LOCK).write_text(text)
        with pytest.raises(Invalid, match=REFUSAL):
            move(bob, vault)
        with pytest.raises(Invalid, match=REFUSAL):
            lifecycle.create("globex", "eve", model="builtin/dedupe", actor=ME, vault_path=str(vault))


def hard_link(mark: Path, other: Path) -> None:
    other.write_text("")
    mark.hardlink_to(other)


STRANGE_MARKS: list[tuple[Callable[[Path, Path], None], str]] = [
    (hard_link, "its mark has a second hard link"),
    (lambda mark, _: os.mkfifo(mark), "its mark is not a file"),
    (lambda mark, other: mark.symlink_to(other), "its mark is not a file"),
]


@pytest.mark.parametrize(("make", "reported"), STRANGE_MARKS, ids=["hard link", "pipe", "symlink"])
def test_a_strange_mark_is_reported_and_nothing_is_written(
    ada: Agent, mark: Path, root: Path, make: Callable[[Path, Path], None], reported: str
) -> None:
    other = root / "theirs"
    make(mark, other)
    there = sorted(root.iterdir())
    store(ada)
    assert reported in fault(ada)
    assert memory_files(mark.parent) == []
    assert sorted(root.iterdir()) == there
    assert not other.exists() or other.read_text() == ""
    with pytest.raises(FileFault):
        comparing.repair(fresh(ada))
    with pytest.raises(FileFault):
        base.require_usable(str(mark.parent), ada)
    mark.unlink()  # the check of a folder removes only what it made
    writer.catch_up()
    assert len(memory_files(mark.parent)) == 1


def test_a_mark_that_cannot_be_written_is_reported(ada: Agent, mark: Path) -> None:
    with mock.patch("os.pwrite", side_effect=OSError(28, "No space left on device")):
        store(ada)
        with pytest.raises(FileFault, match="no space left on device"):
            comparing.repair(fresh(ada))
    assert fault(ada) == "no space left on device"


def test_a_former_vault_stays_its_agents(ada: Agent, bob: Agent, vault: Path, root: Path) -> None:
    store(ada)
    move(ada, root / "second")
    with pytest.raises(Invalid, match="is another agent's vault"):
        move(bob, vault)
    move(ada, vault)
    assert comparing.repair(fresh(ada)).left == ()


def test_a_return_to_a_former_vault_does_not_look_through_its_folders(
    ada: Agent, vault: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40,000 folders of projects held SQLite's writer for 5 seconds."""
    store(ada)
    move(ada, root / "second")
    looked, look = list[str](), base._marks_in
    monkeypatch.setattr(base, "_marks_in", lambda folder, levels: looked.append(folder) or look(folder, levels))
    for path in (vault / "inside", vault):
        move(ada, path)
        assert (looked, fresh(ada).vault_path) == ([], str(path))
    (root / "above").mkdir()
    vault.rename(root / "above" / "former")
    move(ada, root / "above")
    assert looked == [str(root / "above")]


def test_a_vault_is_neither_above_nor_inside_a_former_vault(ada: Agent, bob: Agent, vault: Path, root: Path) -> None:
    store(ada)
    move(ada, root / "second")
    (root / "above" / "common").mkdir(parents=True)
    vault.rename(root / "above" / "common" / "x")
    for path in ("above", "above/common", "above/common/x/common"):
        with pytest.raises(Invalid, match="vault"):
            move(bob, root / path)
    with pytest.raises(Invalid, match="overlaps"):
        lifecycle.change(fresh(bob), ME, memory_path=str(root / "above" / "common" / "x" / "log.md"))


def test_the_mark_of_a_vault_comes_from_an_entry_of_its_own_trail(ada: Agent, bob: Agent) -> None:
    first = {agent: AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq")[0] for agent in (ada, bob)}
    drop_guards("audit_auditentry")
    AuditEntry.objects.filter(pk=first[bob].pk).update(mac=first[ada].mac)
    base._mark.cache_clear()
    with pytest.raises(FileFault, match="was changed"):
        base.mark_of(fresh(bob))


def test_a_vault_does_not_touch_a_vault_that_was_moved_into_it(ada: Agent, bob: Agent, vault: Path, root: Path) -> None:
    store(ada)
    move(ada, root / "second")
    move(bob, root / "third")
    store(bob)
    vault.rename(root / "third" / "old")
    before = tree(root / "third" / "old")
    assert comparing.whole(fresh(bob)).differences == []
    redact(bob, 1)
    erase(bob)
    assert tree(root / "third" / "old") == before


@pytest.mark.parametrize("more", [0, LARGEST])
def test_a_page_that_is_also_another_file_gets_no_line(ada: Agent, vault: Path, root: Path, more: int) -> None:
    store(ada)
    (root / "log.md").hardlink_to(vault / "index.md")
    os.truncate(root / "log.md", (root / "log.md").stat().st_size + more)
    before = (root / "log.md").read_bytes()
    store(ada)
    assert (root / "log.md").read_bytes() == before
    assert "000002.md" in (vault / "index.md").read_text()
    assert (vault / "index.md").stat().st_size < 1_000  # a large page is not copied, but written again
    assert comparing.whole(fresh(ada)).differences == []


def test_another_agent_can_use_the_folder_after_an_erasure(ada: Agent, bob: Agent, vault: Path) -> None:
    store(ada)
    erase(ada)
    assert not vault.exists()
    assert not Vault.objects.exclude(fault="").exists()
    move(bob, vault)
    store(bob)
    assert len(memory_files(vault)) == 1


def test_a_check_of_a_folder_leaves_no_files(ada: Agent, root: Path) -> None:
    (root / "mine").mkdir()
    before = sorted(root.rglob("*"))
    base.require_usable(str(root / "a" / "b"), ada)
    base.require_usable(str(root / "mine"), ada)
    assert base.alternatives(ada) == [str(root / "acme" / "ada")]
    assert sorted(root.rglob("*")) == before


def test_the_path_is_stored_without_symlinks(ada: Agent, root: Path) -> None:
    (root / "real").mkdir()
    (root / "link").symlink_to(root / "real")
    moved = move(ada, root / "link" / "notes")
    assert moved.vault_path == last_entry(ada).detail["changed"]["vault_path"] == str(root / "real" / "notes")
    assert move(ada, root / "link" / "notes").audit_seq == moved.audit_seq


def test_an_accepted_folder_is_the_proposed_folder(ada: Agent, root: Path) -> None:
    proposal = requests.propose(ada, PERSON, vault_path=str(root / "acme" / "notes"))
    (root / "acme").mkdir()
    (root / "other").mkdir()
    (root / "acme" / "notes").symlink_to(root / "other")
    with pytest.raises(Invalid, match="leads elsewhere"):
        approval.approve(fresh(ada), proposal.number, ME)


def test_a_symlink_in_the_place_of_the_vault_is_not_followed(ada: Agent, vault: Path, root: Path) -> None:
    store(ada)
    (root / "other").mkdir()
    vault.rename(root / "aside")
    vault.symlink_to(root / "other")
    store(ada)
    assert list((root / "other").iterdir()) == []
    assert fault(ada) == "a symlink points elsewhere"


@pytest.mark.database
@pytest.mark.parametrize("below", [False, True])
@pytest.mark.django_db(transaction=True)
def test_one_of_several_agents_gets_a_folder(root: Path, settings: Settings, below: bool) -> None:
    """On PostgreSQL all agents could see that the folder is free before one of them takes it."""
    agents = [lifecycle.create("acme", f"a{n}", model="builtin/dedupe", actor=ME)[0] for n in range(4)]
    paths = [root / "shared" / "in" if below and n % 2 else root / "shared" for n in range(4)]
    start, refused = Barrier(4), []

    def take(agent: Agent, path: Path) -> None:
        try:
            start.wait(20)
            move(agent, path)
        except Invalid as problem:
            refused.append(problem.field)
        finally:
            connections.close_all()

    threads = [Thread(target=take, args=each) for each in zip(agents, paths, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert refused == ["vault_path"] * 3
    assert Agent.objects.exclude(vault_path="").count() == 1
