"""What a folder can do to a vault: it is refused, or told as a fault; the edit stands, and `repair` makes up for it."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import time_machine
from django.db import OperationalError
from django.utils import timezone
from pytest_django.fixtures import Settings

from audit.trail import Actor
from memory.agents import lifecycle, rule_changes
from memory.agents.rule_changes import Wanted
from memory.consent import redaction, removal_requests
from memory.errors import FileFault, Invalid, SiloKeyMissing
from memory.models import Agent, Vault
from memory.policy.validation import Draft
from memory.run_log.files import lock, write
from memory.vault import comparing, files, writer
from memory.writing import operations
from tests.commands.calling import run
from tests.privacy.marker import unique
from tests.steps import ME, PERSON, fresh, problems, remember, says, set_rule
from tests.vault.tree import differ, memories, the_one, tree

KEY = Actor.agent("runtime")
OWNER = Actor.person("owner@acme.test")
FERRY = "The ferry leaves at 14:30."
PLACE = "common/technical/000001.md"


def ferry(agent: Agent, text: str = FERRY, **values: Any) -> int:
    [number] = remember(agent, text, **{"category": "technical"} | values)
    return number


def fault(agent: Agent) -> str:
    """What `memory_rules status` says is wrong."""
    told = run("rules", "status", agent.label, "--json").json["vault"]
    return str(told["fault"] or "")


def mended(agent: Agent) -> None:
    """Once what was in the way is gone, one repair makes up for everything."""
    assert comparing.repair(fresh(agent)).left == ()
    assert differ(fresh(agent)) == []
    assert fault(agent) == ""
    assert problems(agent) == []


# --- what the system refuses


@pytest.fixture
def closed(ada: Agent, vault: Path, as_nobody: None) -> Iterator[Path]:
    """A folder nobody may write to."""
    ferry(ada)
    vault.chmod(0o500)
    for each in vault.rglob("*"):
        each.chmod(0o500 if each.is_dir() else 0o400)
    yield vault
    opened(vault)


def opened(vault: Path) -> None:
    vault.chmod(0o700)
    for each in sorted(vault.rglob("*")):
        each.chmod(0o700 if each.is_dir() else 0o600)


def refusing(name: str, number: int) -> Any:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return mock.patch(f"os.{name}", refuse)


REFUSED = [("write", errno.ENOSPC), ("replace", errno.EROFS), ("fsync", errno.EIO), ("mkdir", errno.EROFS)]


@pytest.mark.parametrize(("call", "number"), REFUSED, ids=[f"{call}-{errno.errorcode[n]}" for call, n in REFUSED])
def test_what_a_disk_refuses_is_told_and_the_edit_stands(ada: Agent, vault: Path, call: str, number: int) -> None:
    first = ferry(ada)
    with refusing(call, number):
        operations.revise(ada, first, ME, content="It leaves at 15:10.")
        second = ferry(ada, "The ferry is blue.", category="behavioral")
    assert (says(ada, first).content, says(ada, second).content) == ("It leaves at 15:10.", "The ferry is blue.")
    assert fault(ada) == os.strerror(number).lower()
    assert not [path for path in tree(vault) if ".palimpsest-new" in path]
    mended(ada)
    assert len(memories(vault)) == 2


def test_a_file_of_which_half_fits_is_none(ada: Agent, vault: Path) -> None:
    """The system's own limit on a file's size, as a full disk has it: some is written, and then no more."""
    number = ferry(ada)
    before = the_one(vault).read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with mock.patch("memory.vault.disk.write", halved(hard)):
        operations.revise(ada, number, ME, content="It leaves at 15:10. " * 200)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert the_one(vault).read_bytes() == before
    assert fault(ada) == os.strerror(errno.EFBIG).lower()
    mended(ada)


def halved(hard: int) -> Callable[[int, bytes], None]:
    def limited(number: int, data: bytes) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(data) // 2, hard))
        try:
            write(number, data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return limited


def test_a_folder_that_may_not_be_written_to(ada: Agent, closed: Path) -> None:
    operations.revise(ada, 1, ME, content="It leaves at 15:10.")
    assert fault(ada) == "permission denied"
    with pytest.raises(FileFault, match="permission denied"):
        comparing.repair(fresh(ada))
    opened(closed)
    mended(ada)
    assert "15:10" in the_one(closed).read_text()


def test_a_folder_that_may_not_be_read(ada: Agent, closed: Path) -> None:
    closed.chmod(0o000)
    assert writer.file_of(fresh(ada), 1) is None
    operations.discard(ada, [1], PERSON)
    assert fault(ada) == "permission denied"
    opened(closed)
    mended(ada)


def test_a_file_that_may_not_be_read(ada: Agent, vault: Path, as_nobody: None) -> None:
    number = ferry(ada)
    the_one(vault).chmod(0o000)
    operations.revise(ada, number, ME, content="It leaves at 15:10.")
    assert fault(ada) == "permission denied"
    the_one(vault).chmod(0o600)
    mended(ada)


def test_a_vault_that_is_removed_in_the_midst_of_a_writing(ada: Agent, vault: Path) -> None:
    ferry(ada)
    sync = os.fsync

    def then_gone(number: int) -> None:
        sync(number)
        shutil.rmtree(vault, ignore_errors=True)

    with mock.patch("os.fsync", then_gone):
        operations.revise(ada, 1, ME, content="It leaves at 15:10.")
    assert says(ada, 1).content == "It leaves at 15:10."
    assert fault(ada) == "no such file or directory"
    mended(ada)
    assert "15:10" in the_one(vault).read_text()


def test_a_lock_that_is_removed_while_it_is_waited_for(ada: Agent, vault: Path) -> None:
    """Who waited for it would hold a lock that nobody else sees."""
    ferry(ada)
    held: list[bool] = []

    def removed_meanwhile(number: int, patience: float) -> None:
        lock(number, patience)
        if not held:
            (vault / ".palimpsest").unlink()
        held.append(True)

    with mock.patch("memory.vault.base.lock", removed_meanwhile), writer.opened(fresh(ada)):
        assert (vault / ".palimpsest").exists()
    assert len(held) == 2


def test_roots_that_were_changed(ada: Agent, vault: Path, settings: Settings, tmp_path: Path) -> None:
    ferry(ada)
    before, roots = tree(vault), settings.VAULT_ROOTS
    settings.VAULT_ROOTS = [str(tmp_path / "elsewhere")]
    operations.revise(ada, 1, ME, content="It leaves at 15:10.")
    assert tree(vault) == before
    assert "15:10" not in the_one(vault).read_text()
    assert "VAULT_ROOTS" in fault(ada)
    assert says(ada, 1).content == "It leaves at 15:10."
    settings.VAULT_ROOTS = roots
    mended(ada)


def test_a_key_that_is_not_to_be_had_is_told_after_the_edit(ada: Agent, vault: Path) -> None:
    with mock.patch.object(files.Files, "__init__", side_effect=SiloKeyMissing("no key")):
        assert ferry(ada) == 1
    assert fault(ada) == "SiloKeyMissing"
    mended(ada)


def test_a_database_that_refuses_afterwards_undoes_no_edit(ada: Agent, vault: Path) -> None:
    """Whoever made the edit would make it again."""
    locked = OperationalError("database is locked")
    with mock.patch.object(writer, "sync", side_effect=locked), mock.patch.object(Vault, "objects") as rows:
        rows.filter.side_effect = rows.update_or_create.side_effect = locked
        assert ferry(ada) == 1
    writer.catch_up()
    mended(ada)


def test_a_fault_nobody_foresaw_is_noted_and_the_edit_stands(ada: Agent, vault: Path) -> None:
    with mock.patch.object(files.Files, "take", side_effect=RuntimeError("can't start new thread")):
        number = ferry(ada)
    assert (says(ada, number).content, fault(ada)) == (FERRY, "RuntimeError")
    writer.catch_up()
    assert the_one(vault).exists()
    mended(ada)


def test_a_clock_that_goes_back(ada: Agent, vault: Path) -> None:
    ferry(ada, category="topic", tags=["topic:ferries"])
    with time_machine.travel(timezone.now() - timedelta(days=400)):
        operations.revise(ada, 1, ME, content="It leaves at 15:10.")
        ferry(ada, "The ferry is blue.")
        assert differ(ada) == []
    mended(ada)
    assert len(memories(vault)) == 2


# --- what is where a file of ours should be


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def left_open(vault: Path) -> list[str]:
    """What of a vault this process has open."""
    targets = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that by which they were listed
            targets.append(str(each.readlink()))
    return [target for target in targets if target.startswith(str(vault))]


STRANGE = [a_folder, a_pipe, a_link, a_link_to_nothing]


@pytest.mark.parametrize("make", STRANGE)
def test_what_is_no_file_where_ours_should_be(ada: Agent, vault: Path, make: Callable[[Path], None]) -> None:
    ferry(ada)
    path = the_one(vault)
    path.unlink()
    make(path)
    assert differ(ada) == [("missing", 1)]
    for nth in range(3):
        operations.revise(ada, 1, ME, content=f"It leaves at 15:1{nth}.")
    operations.remember(ada, [Draft("After it", category="technical")], ME)  # which does not wait for it
    assert left_open(vault) == []
    mended(ada)
    assert not path.is_file() or path.is_symlink()
    [own] = [each for each in path.parent.glob("000001-*.md") if each != path]
    assert "15:12" in own.read_text()


@pytest.mark.parametrize("make", STRANGE)
def test_what_is_no_file_beside_ours_is_in_nobodys_way(ada: Agent, vault: Path, make: Callable[[Path], None]) -> None:
    ferry(ada)
    make(vault / "common" / "mine.md")
    assert differ(ada) == []
    redaction.redact(ada, removal_requests.ask_redaction(ada, [1], OWNER, reason="17").number, ME)
    assert memories(vault) in ([], ["common/mine.md"])
    assert fault(ada) == ""
    mended(ada)


def test_what_nobody_may_read_keeps_no_redacted_file(ada: Agent, vault: Path, as_nobody: None) -> None:
    """It could be a copy: that is told, and what is known is removed at once."""
    ferry(ada)
    path = the_one(vault)
    mine = vault / "aaa.md"
    mine.write_text("mine")
    mine.chmod(0o000)
    redaction.redact(ada, removal_requests.ask_redaction(ada, [1], OWNER, reason="17").number, ME)
    assert not path.exists()
    assert fault(ada) == "permission denied"
    mine.chmod(0o600)
    mended(ada)
    assert mine.read_text() == "mine"


def test_nor_does_a_folder_nobody_may_read(ada: Agent, vault: Path, as_nobody: None) -> None:
    ferry(ada)
    mine = vault / "mine"
    mine.mkdir()
    (mine / "copy.md").write_bytes(the_one(vault).read_bytes())
    mine.chmod(0o000)
    redaction.redact(ada, removal_requests.ask_redaction(ada, [1], OWNER, reason="17").number, ME)
    assert fault(ada) == "permission denied"
    mine.chmod(0o700)
    mended(ada)
    assert memories(vault) == []


@pytest.mark.parametrize("has_its_number", [True, False])
def test_ten_megabytes_in_the_place_of_ours(ada: Agent, vault: Path, has_its_number: bool) -> None:
    ferry(ada)
    path = the_one(vault)
    big = (path.read_bytes() if has_its_number else b"") + "\N{SNOWMAN}\n".encode() * 2_500_000
    path.write_bytes(big)
    operations.revise(ada, 1, ME, content="It leaves at 15:10.")
    assert any((vault / each).read_bytes() == big for each in tree(vault))
    comparing.repair(fresh(ada))
    assert any((vault / each).read_bytes() == big for each in tree(vault))
    assert says(ada, 1).content == "It leaves at 15:10."


def test_a_file_that_belongs_where_another_is(ada: Agent, vault: Path) -> None:
    ferry(ada)
    set_rule(ada, PERSON, "memory_rules.categories.technical.storage_location", "project")
    taken = vault / "projects/default-project/technical/000001.md"
    taken.parent.mkdir(parents=True)
    taken.write_text("mine")
    mended(ada)
    assert taken.read_text() == "mine"
    assert len(memories(vault)) == 2


def test_a_thousand_projects_need_no_thousand_files_at_once(ada: Agent, vault: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 150, hard))
    try:
        for nth in range(0, 300, 100):
            with mock.patch.object(writer, "try_sync"):
                for each in range(nth, nth + 100):
                    ferry(ada, f"Of project {each}.", category="contextual", project=f"p{each}")
        writer.try_sync(ada.pk)
        assert fault(ada) == ""
        mended(ada)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(memories(vault)) == 300


# --- where a vault may be


def place(agent: Agent, path: str) -> str:
    return lifecycle.change(fresh(agent), PERSON, vault_path=path).vault_path


WRONG = {
    "VAULT_ROOTS": ["../outside", "/etc/vault", ".", "link-out/vault"],
    "not a valid path": ["~nobody-here/vault", "x" * 1_001, "/".join(["x" * 300] * 3)],
    "control": ["a\0b", "a\nb", "a\u2028b", "\udc80"],
    "space": [" ", "notes /x"],
    "bytes": ["/".join(["\u00e9" * 100] * 5)],
    "\\.git folder": [".git/notes", "repo/.git"],
}


def test_where_a_vault_may_be(ada: Agent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "link-out").symlink_to("/tmp")  # noqa: S108  anywhere else
    before = fresh(ada).vault_path
    for path, why in [(path, why) for why, paths in WRONG.items() for path in paths]:
        with pytest.raises(Invalid, match=why) as caught:
            place(ada, path)
        assert caught.value.field == "vault_path"
        assert fresh(ada).vault_path == before
    monkeypatch.setenv("HOME", str(root / "home"))
    assert place(ada, "some/../other//vault/") == str(root / "other" / "vault")
    assert place(ada, "~/vault") == str(root / "home" / "vault")


def test_no_vault_lies_in_anothers_way(ada: Agent, root: Path, settings: Settings) -> None:
    """By whatever name: what one agent redacts would be looked for in the other's files."""
    settings.VAULT_ROOTS = [str(root.parent)]
    ferry(ada)
    (root / "link").symlink_to(root / "vault")
    for path in ("vault", "vault/below", ".", "", "link", "link/below", "vault/../vault"):
        with pytest.raises(Invalid, match="overlaps with"):
            lifecycle.create("acme", "eve", model="builtin/dedupe", actor=KEY, vault_path=f"{root}/{path}")
    assert len(memories(root / "vault")) == 1


def test_no_vault_lies_around_anothers_memory_file(ada: Agent, root: Path, settings: Settings) -> None:
    settings.MEMORY_FILE_ROOTS = settings.MEMORY_ROOTS = [str(root)]
    eve, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=KEY)
    Agent.objects.filter(pk=eve.pk).update(memory_path=str(root / "eve" / "MEMORY.md"))
    with pytest.raises(Invalid, match="overlaps with"):
        place(ada, str(root / "eve"))


@pytest.fixture
def bob(ada: Agent) -> Agent:
    return lifecycle.create("acme", "bob", model="builtin/dedupe", actor=ME)[0]


def test_no_memory_file_lies_in_a_vault(ada: Agent, bob: Agent, vault: Path) -> None:
    """By no name, and not in the agent's own."""
    vault.mkdir(exist_ok=True)
    link = vault.with_name("link")
    link.symlink_to(vault)
    for agent in (bob, ada):
        for inside in (vault / "index.md", vault / PLACE, link / "log.md"):
            with pytest.raises(Invalid, match="memory_path"):
                lifecycle.change(agent, ME, memory_path=str(inside))
    assert fresh(bob).memory_path == ""


@pytest.mark.parametrize("whose", ["bob", "ada"])
def test_nor_does_a_vault_take_one_in(ada: Agent, bob: Agent, root: Path, whose: str) -> None:
    lifecycle.change({"ada": ada, "bob": bob}[whose], ME, memory_path=str(root / "logs" / "log.md"))
    with pytest.raises(Invalid, match="vault_path"):
        lifecycle.change(fresh(ada), ME, vault_path=str(root / "logs"))
    assert fresh(ada).vault_path == ada.vault_path


# --- names


LONG = "a very long title " * 20
HOSTILE = [
    "../../../etc/passwd",
    "/etc/passwd",
    "..",
    "CON",
    "aux.md",
    "a\\b:c*d?e|f<g>h",
    "a\x00b",
    "\x1b[31mred\x07",
    "a\u2028b\u2029c\x85d",
    "\u202egnp.exe",
    "\N{SNOWMAN}" * 300,
    "İstanbul",
    "ı",
    "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
    "cafe\N{COMBINING ACUTE ACCENT}",
    ".palimpsest",
    ".hidden",
    "index",
    "~root",
    "-rf",
    "$(reboot)",
    "]( javascript:alert(1)",
    LONG,
]


@pytest.mark.parametrize("readable", [False, True])
def test_a_name_leads_nowhere(ada: Agent, root: Path, vault: Path, readable: bool) -> None:
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
    for path in memories(vault):
        name = Path(path).name
        assert name.isprintable()
        assert len(name.encode()) <= 120
        assert name.endswith(".md")
        assert not name.startswith((".", "-"))
    assert len({path.casefold() for path in memories(vault)}) == 3 * 2 * len(texts)
    mended(ada)


def test_a_project_has_a_folder_of_its_own(ada: Agent, root: Path, vault: Path) -> None:
    for project in ("..", "../x", "a/../../b", "/etc", "a\nb", "a b", "\0", "x" * 101):
        with pytest.raises(Invalid, match="project"):
            ferry(ada, category="contextual", project=project)
    assert tree(vault) == []
    projects = ["index.md", "A", "x" * 100, "con", "a//b", "a/./b", "host/p.git"]
    for project in (*projects, *(each.swapcase() for each in projects)):
        ferry(ada, f"Of {project}.", category="contextual", project=project)
    assert fault(ada) == ""
    assert [path.name for path in root.iterdir()] == ["vault"]
    folders = [Path(path).parts for path in memories(vault)]
    assert {(each[0], each[2], len(each)) for each in folders} == {("projects", "contextual", 4)}
    assert len({each[1].casefold() for each in folders}) == 2 * len(projects)
    mended(ada)


# --- nothing of it is told


@pytest.mark.parametrize("make", STRANGE)
def test_no_fault_says_what_a_memory_says(
    ada: Agent, vault: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A file's name may have words of its memory in it."""
    word = unique()
    readable = Wanted(rules={"storage": {"readable_names": True}})
    rule_changes.make(ada, PERSON, readable, side=ME)
    ferry(fresh(ada), f"{word} blooms")
    path = the_one(vault)
    assert word.lower() in path.name
    path.unlink()
    make(path)
    operations.revise(ada, 1, ME, content=f"{word} fades")
    ran = run("vault", "index", ada.label)
    check = run("vault", "index", ada.label, "--check", "--json")
    for told in (fault(ada), caplog.text, ran.err, ran.out, check.err, json.dumps(check.out)):
        assert word.lower() not in told.lower()
