"""An agent's memory file: the operator names it at creation; later the agent's side accepts a proposal."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle, overlaps
from memory.consent import approval, erasure, requests
from memory.models import Agent
from memory.run_log import log_file, runs
from memory.time_machine.rollback import What, roll_back
from memory.writing import edits, operations
from tests.claiming import claim
from tests.conftest import OPERATOR
from tests.steps import ME, entries, fresh, last_entry, problems, refused, remember
from tests.unit.test_steward_mail import sent_mail

ADMIN = Actor.person("admin@acme.test")
MODEL = "openai/gpt-4.1"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, settings: Any) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path / "vault"), str(tmp_path / "other")]
    return tmp_path / "vault"


@pytest.fixture
def agent(ada: Agent) -> Agent:
    """An agent whose own side holds its key."""
    remember(ada, "tea")
    return fresh(ada)


def propose(agent: Agent, path: str) -> int:
    return requests.propose(fresh(agent), ADMIN, memory_path=path).number


def accept(agent: Agent, path: str) -> None:
    approval.approve(fresh(agent), propose(agent, path), ME)


def create(slug: str, path: str) -> Agent:
    return lifecycle.create("acme", slug, model="builtin/dedupe", actor=ME, memory_path=path)[0]


def log_run(agent: Agent) -> Any:
    return runs.log_run(fresh(agent), "Brew", "tea", ME)


def test_an_accepted_path_moves_the_log_of_runs_to_the_file_and_an_empty_one_back(agent: Agent, root: Path) -> None:
    number = propose(agent, "ada.md")
    path = str(root / "acme" / "ada.md")
    assert last_entry(agent).detail == {"proposed": {"memory_path": path}}
    assert fresh(agent).memory_path == ""
    approval.approve(fresh(agent), number, ME)
    assert fresh(agent).memory_path == path
    assert last_entry(agent).detail == {"changed": {"memory_path": path}, "proposal": number}
    assert log_run(agent) is None
    assert Path(path).read_text().endswith("**Task:** Brew\n**Result:** tea\n\n")
    assert operations.runs(fresh(agent)).count() == 0
    accept(agent, "")
    assert log_run(agent) is not None
    assert (operations.runs(fresh(agent)).count(), problems(agent)) == (1, [])


def test_a_proposed_path_is_stored_as_an_absolute_path(agent: Agent, root: Path, tmp_path: Path) -> None:
    for path in ("ada.md", "./logs/../ada.md", f"{root}/acme/ada.md"):
        propose(agent, path)
        assert last_entry(agent).detail["proposed"] == {"memory_path": f"{root}/acme/ada.md"}
    propose(agent, str(tmp_path / "other" / "acme" / "ada.md"))  # in the operator's second folder


def test_a_symlink_leads_to_no_file_of_another_agent(agent: Agent, root: Path) -> None:
    log_run(create("eve", "acme/eve/log.md"))
    (root / "acme" / "link").symlink_to(root / "acme" / "eve")
    with refused(agent, errors.Invalid):
        propose(agent, "link/log.md")
    number, eves = propose(agent, "ada/log.md"), (root / "acme" / "eve" / "log.md").read_bytes()
    (root / "acme" / "ada").symlink_to(root / "acme" / "eve")
    with refused(agent, errors.Invalid):
        approval.approve(fresh(agent), number, ME)
    (root / "acme" / "ada").unlink()
    (root / "globex").mkdir()
    (root / "acme" / "ada").symlink_to(root / "globex")
    with refused(agent, errors.Invalid) as caught:
        approval.approve(fresh(agent), number, ME)
    assert caught.value.problem.startswith("now leads elsewhere")
    (root / "acme" / "ada").unlink()
    approval.approve(fresh(agent), number, ME)
    (root / "acme" / "ada").symlink_to(root / "acme" / "eve")
    with pytest.raises(errors.FileOutsideRoots, match="symlink"):
        log_run(agent)
    assert (root / "acme" / "eve" / "log.md").read_bytes() == eves


def test_a_run_that_waits_for_its_file_during_a_claim_is_not_written(agent: Agent, root: Path) -> None:
    accept(agent, "ada.md")
    log_run(agent)
    before, locked_to_append = (root / "acme" / "ada.md").read_bytes(), log_file.locked_to_append

    def claimed_first(place: Any) -> Any:
        claim(fresh(agent))
        return locked_to_append(place)

    with mock.patch.object(log_file, "locked_to_append", claimed_first), pytest.raises(errors.FileFault):
        log_run(agent)
    assert (root / "acme" / "ada.md").read_bytes() == before


def test_a_run_is_written_while_the_agent_is_locked(agent: Agent, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its key could end between the check and the write."""
    accept(agent, "ada.md")
    locked, add = list[bool](), log_file.Opened.add
    note = lambda *of: locked.append(agent.pk in edits._locked_here.get()) or add(*of)  # noqa: E731
    monkeypatch.setattr(log_file.Opened, "add", note)
    log_run(agent)
    assert locked == [True]


def test_a_path_outside_the_tenants_folder_is_refused(agent: Agent, root: Path) -> None:
    (root / "acme").mkdir(parents=True)
    (root / "globex").mkdir()
    (root / "acme" / "linked").symlink_to(root / "globex")
    (root / "acme" / "a file").touch()
    paths = ["../globex/bob.md", f"{root}/globex/bob.md", f"{root}/bob.md", "../../acme/ada.md", "/etc/passwd"]
    paths += ["~/ada.md", "~nobody-of-this-name/ada.md", "a\nb.md", "a\0b.md", ".", "..", "x" * 5_000]
    paths += ["linked/ada.md", "sub/", f"{root}/acme", "a file/below.md"]
    for path in paths:
        with refused(agent, errors.Invalid) as caught:
            propose(agent, path)
        assert caught.value.field == "memory_path"


def test_another_agents_file_is_refused_when_proposed_and_when_accepted(agent: Agent, root: Path) -> None:
    path = str(root / "acme" / "shared.md")
    number = propose(agent, path)
    create("eve", path)
    with refused(agent, errors.Invalid):
        approval.approve(fresh(agent), number, ME)
    with refused(agent, errors.Invalid):
        propose(agent, path)
    with pytest.raises(errors.Invalid):
        create("sue", path)


@pytest.mark.database
def test_the_database_refuses_a_second_agent_with_the_same_file(agent: Agent, root: Path, monkeypatch: Any) -> None:
    """As when two agents are changed at once."""
    path = str(root / "acme" / "shared.md")
    create("eve", path)
    checks = iter([False, True])
    monkeypatch.setattr(overlaps, "_file_overlaps", lambda _: next(checks))
    with refused(agent, errors.Invalid) as caught:
        lifecycle.change(fresh(agent), ME, memory_path=path)
    assert caught.value.field == "memory_path"


def test_a_folder_that_the_operator_removed_from_the_settings_is_refused(agent: Agent, settings: Any) -> None:
    number = propose(agent, "ada.md")
    settings.VAULT_ROOTS = ["/elsewhere"]
    with refused(agent, errors.Invalid):
        approval.approve(fresh(agent), number, ME)


def test_a_person_cannot_choose_a_file_that_another_agent_left(agent: Agent, root: Path) -> None:
    number, left = propose(agent, "ada.md"), root / "acme" / "ada.md"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("# Runs of another agent\n")
    with refused(agent, errors.Invalid):
        approval.approve(fresh(agent), number, ME)
    with refused(agent, errors.Invalid):
        propose(agent, "ada.md")
    requests.propose(fresh(agent), OPERATOR, memory_path="ada.md")


def test_a_proposal_names_only_the_settings_that_change(root: Path, db: None) -> None:
    """The path that the operator chose does not block the proposal of a model."""
    eve = create("eve", "eve.md")
    assert entries(eve)[0].detail["memory_path"] == fresh(eve).memory_path == f"{root}/eve.md"
    settings = {"model": MODEL, "steward": "", "is_steward_only": False, "memory_path": f"{root}/eve.md"}
    number = requests.propose(fresh(eve), ADMIN, **settings).number
    assert requests.find(fresh(eve), number).proposed == {"model": MODEL}


def test_the_steward_receives_mail_about_the_file(agent: Agent, root: Path) -> None:
    lifecycle.change(agent, ME, steward="sue@acme.test")
    sent_mail()
    text = "its log of runs is now in this file, in clear text:"
    accept(agent, "ada.md")
    assert any(f"{text} {root}/acme/ada.md" in message.body for message in sent_mail())
    lifecycle.change(fresh(agent), ME, memory_path="")
    assert any("its log of runs is now encrypted in its memory" in message.body for message in sent_mail())


def test_a_wrong_number_of_log_entries_or_tokens_is_refused(agent: Agent) -> None:
    for name, number in (("last_n", -1), ("max_entries", -1), ("context_tokens", -1), ("context_tokens", 0)):
        with refused(agent, errors.Invalid) as caught:
            lifecycle.change(agent, ME, **{name: number})
        assert caught.value.field == name
    assert lifecycle.change(agent, ME, context_tokens=None).context_tokens is None


def test_a_folder_or_a_path_that_overlaps_another_file_is_refused(root: Path, db: None) -> None:
    for path in (str(root), ".", "sub/"):
        with pytest.raises(errors.Invalid, match="is a folder"):
            create("eve", path)
    for number, (path, overlapping) in enumerate((("notes.md", "notes.md/more.md"), ("a/b/c.md", "a"))):
        create(f"eve-{number}", path)
        with pytest.raises(errors.Invalid, match="overlaps with"):
            create("sue", overlapping)


def test_new_folders_are_readable_only_by_their_owner(db: None, root: Path) -> None:
    log_run(create("eve", "one/two/three.md"))
    folders = [root, root / "one", root / "one" / "two"]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3


def test_an_erased_agent_writes_no_file(agent: Agent, root: Path) -> None:
    accept(agent, "ada.md")
    log_run(agent)
    path, old = root / "acme" / "ada.md", fresh(agent)
    number = requests.ask_erasure(fresh(agent), ADMIN, reason="the contract ended").number
    erasure.erase(fresh(agent), number, ME)
    assert (fresh(agent).memory_path, last_entry(agent).detail["memory_path"]) == ("", str(path))
    before = path.read_bytes()
    for row in (fresh(agent), old):
        with pytest.raises(errors.Erased):
            runs.log_run(row, "Brew", "more tea", ME)
    assert (path.read_bytes(), problems(agent)) == (before, [])


def test_a_trim_of_the_file_cannot_be_rolled_back(agent: Agent) -> None:
    seq = operations.record_file_trim(fresh(agent), {"removed": 3}, ME)
    assert seq is not None
    for what in (What("entry", seq), What("since_entry", seq - 1)):
        with pytest.raises(errors.NothingToUndo, match="A trimmed memory file cannot be restored"):
            roll_back(fresh(agent), what, ME)
