"""An agent's memory file: named by the operator when it is made, later proposed and accepted by its own side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core import mail

from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import erasure, proposals, removal_requests
from memory.mail import wording
from memory.models import Agent
from memory.run_log import runs
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from tests.queueing import work
from tests.steps import ME, entries, fresh, last_entry, problems, refused, remember

ADMIN = Actor.person("admin@acme.test")
MODEL = "openai/gpt-4.1"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, settings: Any) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path / "vault"), str(tmp_path / "other")]
    return tmp_path / "vault"


@pytest.fixture
def led(ada: Agent) -> Agent:
    remember(ada, "tea")
    return fresh(ada)


def propose(agent: Agent, **settings: Any) -> int:
    return proposals.propose(fresh(agent), ADMIN, **settings).number


def test_what_its_side_accepts_is_where_its_runs_go_and_back_to_the_journal(led: Agent, root: Path) -> None:
    number = propose(led, memory_path="ada.md")
    path = str(root / "acme" / "ada.md")
    assert last_entry(led).detail == {"proposed": {"memory_path": path}}
    assert fresh(led).memory_path == ""
    proposals.accept(fresh(led), number, ME)
    assert fresh(led).memory_path == path
    assert last_entry(led).detail == {"changed": {"memory_path": path}, "proposal": number}
    assert runs.log_run(fresh(led), "Brew", "tea", ME) is None
    assert Path(path).read_text().endswith("**Task:** Brew\n**Result:** tea\n\n")
    assert operations.runs(fresh(led)).count() == 0
    proposals.accept(fresh(led), propose(led, memory_path=""), ME)
    assert runs.log_run(fresh(led), "Brew", "tea", ME) is not None
    assert operations.runs(fresh(led)).count() == 1
    assert problems(led) == []


def test_a_path_is_kept_whole(led: Agent, root: Path, tmp_path: Path) -> None:
    for given in ("ada.md", "./logs/../ada.md", f"{root}/acme/ada.md"):
        propose(led, memory_path=given)
        assert last_entry(led).detail["proposed"] == {"memory_path": f"{root}/acme/ada.md"}
    propose(led, memory_path=str(tmp_path / "other" / "acme" / "ada.md"))  # the operator's second folder will do


def test_nobody_proposes_a_file_elsewhere(led: Agent, root: Path) -> None:
    (root / "acme").mkdir(parents=True)
    (root / "globex").mkdir()
    (root / "acme" / "linked").symlink_to(root / "globex")
    (root / "acme" / "a file").touch()
    rows = [
        "../globex/bob.md",
        "{root}/globex/bob.md",
        "{root}/bob.md",
        "../../acme/ada.md",
        "/etc/passwd",
        "~/ada.md",
        "~nobody-of-this-name/ada.md",
        "a\nb.md",
        "a\0b.md",
        ".",
        "..",
        "x" * 5_000,
        "linked/ada.md",
        "sub/",
        "{root}/acme",
        "a file/below.md",
    ]
    for given in rows:
        with refused(led, errors.Invalid) as caught:
            propose(led, memory_path=given.format(root=root))
        assert caught.value.field == "memory_path"


def test_another_agents_file_is_refused_when_it_is_proposed_and_when_it_is_accepted(led: Agent, root: Path) -> None:
    path = str(root / "acme" / "shared.md")
    number = propose(led, memory_path=path)
    lifecycle.create("acme", "eve", model="builtin/dedupe", actor=ME, memory_path=path)
    with refused(led, errors.Invalid):
        proposals.accept(fresh(led), number, ME)
    with refused(led, errors.Invalid):
        propose(led, memory_path=path)
    with pytest.raises(errors.Invalid):
        lifecycle.create("acme", "sue", model="builtin/dedupe", actor=ME, memory_path=path)


@pytest.mark.database
def test_the_database_itself_refuses_a_second_agent_of_a_file(led: Agent, root: Path, monkeypatch: Any) -> None:
    """As where two are set at once."""
    path = str(root / "acme" / "shared.md")
    lifecycle.create("acme", "eve", model="builtin/dedupe", actor=ME, memory_path=path)
    looked = iter([False, True])
    monkeypatch.setattr(lifecycle, "_file_overlaps", lambda _: next(looked))
    with refused(led, errors.Invalid) as caught:
        lifecycle.change(fresh(led), ME, memory_path=path)
    assert caught.value.field == "memory_path"


def test_a_folder_the_operator_no_longer_lists_is_refused_when_it_is_accepted(led: Agent, settings: Any) -> None:
    number = propose(led, memory_path="ada.md")
    settings.VAULT_ROOTS = ["/elsewhere"]
    with refused(led, errors.Invalid):
        proposals.accept(fresh(led), number, ME)


def test_a_file_the_operator_named_keeps_nobody_from_proposing_a_model(root: Path, db: None) -> None:
    eve, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=ME, memory_path="eve.md")
    assert entries(eve)[0].detail["memory_path"] == fresh(eve).memory_path == f"{root}/eve.md"
    number = propose(eve, model=MODEL, steward="", is_steward_only=False, memory_path=f"{root}/eve.md")
    assert proposals.find(fresh(eve), number).proposed == {"model": MODEL}


def test_the_steward_is_told(led: Agent, root: Path) -> None:
    lifecycle.change(led, ME, steward="sue@acme.test")
    work()
    mail.outbox.clear()
    proposals.accept(fresh(led), propose(led, memory_path="ada.md"), ME)
    work()
    told = "its log of runs is now in this file, in clear text:"
    assert any(f"{told} {root}/acme/ada.md" in message.body for message in mail.outbox)
    mail.outbox.clear()
    lifecycle.change(fresh(led), ME, memory_path="")
    work()
    assert any(f"{told} none; the log is encrypted in its memory" in message.body for message in mail.outbox)


def test_what_it_would_change_is_told_in_words(led: Agent, root: Path) -> None:
    [said] = wording.changes(led, {"memory_path": "/vault/ada.md"})
    assert "the file /vault/ada.md" in said
    assert "no longer encrypted" in said
    led.memory_path = "/vault/ada.md"
    [said] = wording.changes(led, {"memory_path": ""})
    assert "moves from the file /vault/ada.md to its memory" in said
    assert wording.proposed({"memory_path": ""}) == ["its memory file: none"]
    (root / "acme").mkdir(parents=True)
    (root / "acme" / "ada.md").write_text("## old\n")
    [said] = wording.changes(led, {"memory_path": f"{root}/acme/ada.md"})
    assert "the file exists, and its content becomes part of the log" in said


def test_numbers_of_a_log_that_are_none(led: Agent) -> None:
    for name, number in (("last_n", -1), ("max_entries", -1), ("context_tokens", -1), ("context_tokens", 0)):
        with refused(led, errors.Invalid) as caught:
            lifecycle.change(led, ME, **{name: number})
        assert caught.value.field == name
    assert lifecycle.change(led, ME, context_tokens=None).context_tokens is None


def test_a_folder_is_no_file_and_no_file_is_anothers_folder(root: Path, db: None) -> None:
    """Also one that is not there yet."""
    for path in (str(root), ".", "sub/"):
        with pytest.raises(errors.Invalid, match="is a folder"):
            lifecycle.create("acme", "eve", model="builtin/dedupe", actor=ME, memory_path=path)
    for one, other in (("notes.md", "notes.md/more.md"), ("a/b/c.md", "a")):
        lifecycle.create("acme", f"eve-{one[0]}", model="builtin/dedupe", actor=ME, memory_path=one)
        with pytest.raises(errors.Invalid, match="overlaps with"):
            lifecycle.create("acme", "sue", model="builtin/dedupe", actor=ME, memory_path=other)


def test_folders_that_are_made_are_for_their_owner_alone(db: None, root: Path) -> None:
    eve, _ = lifecycle.create("acme", "eve", model="builtin/dedupe", actor=ME, memory_path="one/two/three.md")
    runs.log_run(eve, "Brew", "tea", ME)
    made = [root, root / "one", root / "one" / "two"]
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3


def test_an_erased_agent_lets_go_of_its_file(led: Agent, root: Path) -> None:
    proposals.accept(fresh(led), propose(led, memory_path="ada.md"), ME)
    runs.log_run(fresh(led), "Brew", "tea", ME)
    path = root / "acme" / "ada.md"
    held = fresh(led)
    erasure.erase(fresh(led), removal_requests.ask_erasure(fresh(led), ADMIN, reason="the contract ended").number, ME)
    assert (fresh(led).memory_path, last_entry(led).detail["memory_path"]) == ("", str(path))
    before = path.read_bytes()
    for row in (fresh(led), held):
        with pytest.raises(errors.Erased):
            runs.log_run(row, "Brew", "more tea", ME)
    assert path.read_bytes() == before
    assert problems(led) == []


def test_a_files_trim_is_not_rolled_back_and_says_so(led: Agent) -> None:
    seq = operations.record_file_trim(fresh(led), {"removed": 3}, ME)
    assert seq is not None
    for what in (What.entry(seq), What.since_entry(seq - 1)):
        with pytest.raises(errors.NothingToUndo, match="A trimmed memory file cannot be restored"):
            roll_back(fresh(led), what, ME)
