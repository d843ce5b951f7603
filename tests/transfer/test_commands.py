"""The commands `detect` and `migrate`, and steps 8 to 10 of `init`, as an operator runs them."""

import os
from pathlib import Path
from typing import Any

import pytest

from memory.access.authentication import agent_key
from memory.agents import lifecycle
from memory.consent import claims
from memory.management import found_memories
from memory.models import Agent, ImportedPiece, Memory
from memory.search import context
from memory.time_machine.rollback import What, roll_back
from refinement import ledger, schedule
from tests.commands.calling import run
from tests.conftest import OPERATOR
from tests.rules import recordings
from tests.steps import ME, active, entries, fresh, last_entry, problems, remember, says, signed_update, state
from tests.transfer.calling import (  # noqa: F401  fixtures
    FILES,
    SECRET,
    agent_with_a_vault,
    at_a_terminal,
    migrate,
    rules,
    site_with_files,
)
from tests.transfer.folders import put


def contents(agent: Agent) -> list[str]:
    return [says(agent, number).content for number in active(agent)]


def init_steps(*args: str) -> dict[str, str]:
    return {each["step"]: each["found"] for each in rules("init", "--json", *args).json["steps"]}


def test_detect_shows_what_there_is_and_changes_nothing(ada: Agent, site: Path) -> None:
    before = state(ada)
    ran = rules("detect")
    assert ran.code == 0, ran.err
    title, _, *rows = ran.out.splitlines()
    assert title == f"site, in {site}"
    assert [row.split()[0] for row in rows[:3]] == ["cursor", "claude", "agents-md"]
    assert all(row.endswith("1 memory: 1 new") for row in rows[:3])
    assert len({row.index("1 memory") for row in rows[:3]}) == 1
    assert rows[3:] == ["left out:", "  .cursor/rules/empty.mdc is empty"]
    assert "Run 'manage.py project migrate acme/ada' to import them." in ran.err
    ran = rules("detect", "--json")
    assert not any(word in ran.out + ran.err for word in ("letter", "tide", SECRET))
    [cursor] = [each for each in ran.json["memories"] if each["system"] == "cursor"]
    assert cursor == {
        "system": "cursor",
        "key": ".cursor/rules/quays.mdc",
        "state": "new",
        "memory": None,
        "kind": "core",
        "category": "contextual",
        "scope": "project",
        "project": "site",
        "origin": "2026-03-04T04:53:20Z",
        "tags": 7,
        "transformed": ["front matter left out", "dated by its file"],
    }
    assert ran.json["left_out"] == [{"key": ".cursor/rules/empty.mdc", "why": "is empty"}]
    assert state(ada) == before


def test_detect_searches_supported_systems_alone(ada: Agent, site: Path) -> None:
    (site / "bare").mkdir()
    assert rules("detect", "--project-dir", str(site / "bare")).out.splitlines()[1:] == ["no memories of other systems"]
    assert rules("detect", "--project-dir", str(site / "none")).code == 2
    recordings.settings(ada, migration_settings__supported_source_systems=["cursor"])
    assert {each["system"] for each in rules("detect", "--json").json["memories"]} == {"cursor"}
    refused = rules("detect", "--from", "claude")
    assert (refused.code, "supported_source_systems" in refused.err) == (2, True)


def test_the_agents_own_vault_is_not_a_source(ada: Agent, site: Path) -> None:
    migrate()
    folder = str(Path(ada.vault_path).parent)
    found = rules("detect", "--project-dir", folder, "--plain", "vault", "--json").json
    assert not [each["key"] for each in found["memories"] if each["key"].startswith("vault/")]
    assert {"key": "vault", "why": "is this agent's own vault"} in found["left_out"]


def test_quotes_in_a_preview_need_the_agents_key(ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(ada)
    ran = rules("migrate", "--dry-run")
    assert "   1  .cursor/rules/quays.mdc → contextual of site, 2026-03-04" in ran.out
    assert "“A quay has a letter.”" in ran.out
    assert SECRET not in ran.out
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    ran = rules("migrate", "--dry-run")
    assert "quays.mdc → contextual" in ran.out
    assert "letter" not in ran.out + ran.err
    assert state(ada) == before


def test_nothing_is_stored_before_a_person_agrees(ada: Agent, site: Path) -> None:
    before = state(ada)
    for answers in ("", "\n", "skip\n", "all\nn\n", "all\n\n", "what\nskip\n", "alongside\nn\n", "select\n9\n"):
        assert at_a_terminal(answers, "migrate").code == 0
        assert state(ada) == before, answers
    for answers in ("\n", "all\nn\n"):
        assert "10. Migrated: nothing" in at_a_terminal(answers, "init").out
        assert active(ada) == []
    assert ImportedPiece.objects.count() == 0


def test_without_a_terminal_nothing_is_stored(ada: Agent, site: Path) -> None:
    before = state(ada)
    assert "--how" in rules("migrate").err
    ran = rules("migrate", "--yes")
    assert (ran.code, "how: is required" in ran.err) == (2, True)
    assert "pass --yes to confirm" in rules("migrate", "--how", "all").err
    assert "Nothing was stored." in rules("migrate", "--how", "select", "--yes").err
    assert state(ada) == before
    assert init_steps("--migrate", "all")["Migrated"] == "nothing"
    assert active(ada) == []
    assert init_steps("--migrate", "all", "--yes")["Migrated"].startswith("3 memories stored")
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    assert "Nothing was done." in migrate().err


def test_instructions_start_no_refinement_and_are_not_refined(ada: Agent, site: Path) -> None:
    put(site, "CLAUDE.md", "Ferries wait for the tide. " * 40)
    put(site, ".claude/memory/MEMORY.md", "Ann owns a boat.\n")
    lifecycle.change(ada, ME, budget_tokens=100, target_tokens=50)
    ran = rules("migrate", "--dry-run")
    assert migrate().code == 0
    row = fresh(ada)
    assert f"instructions: {row.instruction_tokens} tokens. The budget is 100 tokens, and core memory has 0" in ran.out
    kept = Memory.objects.filter(agent_id=ada.pk, is_instruction=False)
    assert [says(ada, each.number).content for each in kept] == ["Ann owns a boat."]
    assert (schedule.why(row), row.core_tokens, row.core_count, row.instruction_count) == ("", 4, 1, 3)
    assert [entry.memory.number for entry in ledger.read(row)] == [kept.get().number]
    assert problems(ada) == []
    assert len(context.read(row).core) == 4
    block = context.read(row, max_tokens=0)
    assert (block.left_out, block.left_out_tokens) == (4, row.core_tokens + row.instruction_tokens)
    assert run("rollback", "acme/ada", "--import", str(last_entry(ada).detail["import"]), "--yes").code == 0
    assert (fresh(ada).instruction_count, active(ada), problems(ada)) == (0, [], [])


@pytest.mark.parametrize("way", ["raise-budget", "protect"])
def test_instructions_can_raise_the_budget_or_be_protected(way: str, ada: Agent, site: Path) -> None:
    put(site, "CLAUDE.md", "Ferries wait for the tide. " * 40)
    lifecycle.change(ada, ME, budget_tokens=100, target_tokens=50)
    ran = at_a_terminal(f"all\ny\n{way}\n", "migrate")
    row = fresh(ada)
    assert ("raise-budget" in ran.err, schedule.why(row), problems(ada)) == (True, "", [])
    state = (row.budget_tokens, row.core_tokens, row.constitutional_count)
    assert state == ((100 + row.core_tokens, row.core_tokens, 0) if way == "raise-budget" else (100, 0, 3))


def test_the_source_tree_of_the_product_is_not_searched(ada: Agent, site: Path) -> None:
    for name in ("audit/AGENTS.md", "memory/AGENTS.md", "refinement/AGENTS.md", "manage.py"):
        put(site, f"clone/{name}", "Not a memory.\n")
    found = rules("detect", "--json").json
    assert not [each["key"] for each in found["memories"] if each["key"].startswith("clone/")]
    assert {"key": "clone", "why": "is the source tree of Palimpsest itself"} in found["left_out"]


def test_memories_are_selected_by_number(ada: Agent, site: Path) -> None:
    """A wrong answer is asked again."""
    ran = at_a_terminal("select\n9\nx\n2\ny\n", "migrate")
    assert "1 memory stored" in ran.out
    assert "It must have numbers from 1 to 3." in ran.err
    assert "It must be up to 3 numbers and ranges, for example 3, 17, 20-25." in ran.err
    assert [each["state"] for each in rules("detect", "--json").json["memories"]] == ["new", "same", "new"]
    for only in ("0", "4", "2-1", "1,x", "9" * 30):
        ran = migrate(f"--only={only}")
        assert (ran.code, "only" in ran.err) == (2, True)
    assert migrate("--only", "2", "--json").json["stored"] == 1
    assert contents(ada)[1].startswith("Ferries")


def test_filters(ada: Agent, site: Path) -> None:
    for filters, count in (
        (["--path", "*.md"], 2),
        (["--category", "technical"], 0),
        (["--since", "2026-03-05"], 0),
        (["--until", "2026-03-05"], 3),
        (["--from", "cursor"], 1),
    ):
        assert len(rules("detect", "--json", *filters).json["memories"]) == count
    for filters, count in ((["--category", "technical"], 0), (["--path", "*.md"], 2), (["--from", "cursor"], 1)):
        assert migrate("--json", *filters).json["stored"] == count


def test_selection_can_be_switched_off(ada: Agent, site: Path) -> None:
    recordings.settings(ada, migration_settings__selective_import_enabled=False)
    for args in (["--only", "1"], ["--path", "*.md"], ["--from", "cursor"]):
        ran = migrate(*args)
        assert (ran.code, "selective_import_enabled" in ran.err) == (2, True)
    assert migrate("--json").json["stored"] == 3


def test_a_migration_stores_each_memory_with_a_file(ada: Agent, site: Path) -> None:
    ran = migrate("--json")
    assert ran.code == 0, ran.err
    assert (ran.json["stored"], ran.json["revised"]) == (3, 0)
    masked = "The gate's test password is [masked: password]."
    assert contents(ada) == ["A quay has a letter.", masked, "Ferries wait for the tide."]
    [text] = [path.read_text() for path in Path(ada.vault_path).rglob("0*.md") if "quay" in path.read_text()]
    assert "- **Source System**: cursor" in text
    assert "- **Migration Notes**: from .cursor/rules/quays.mdc" in text
    assert "- **Transformations Applied**: front matter left out; dated by its file" in text
    assert {path: (site / path).read_text() for path in FILES} == FILES


def test_secrets_are_kept_with_an_option(ada: Agent, site: Path) -> None:
    migrate("--keep-secrets")
    assert SECRET in " ".join(contents(ada))


def test_a_secret_in_a_heading_is_in_no_key(ada: Agent, site: Path) -> None:
    text = "# api_key=abcd1234efgh5678\n\n" + "Words here. " * 600 + "\n\n# Tides\n\n" + "Others here. " * 600
    (site / "AGENTS.md").write_text(text)
    preview, done = rules("migrate", "--dry-run"), migrate()
    tags = " ".join(tag for n in active(ada) for tag in says(ada, n).tags)
    assert "abcd1234" not in preview.out + preview.err + done.out + done.err + tags
    assert "#tides" in tags


def test_another_agent_can_import_a_vault_in_a_repository(ada: Agent, site: Path) -> None:
    migrate()
    lifecycle.change(fresh(ada), OPERATOR, vault_path="")
    (site / "docs").mkdir()
    Path(ada.vault_path).rename(site / "docs" / "memory")
    other, _ = lifecycle.create("acme", "bob", model="builtin/dedupe", actor=OPERATOR)
    ran = run("project", "migrate", "acme/bob", "--from", "own", "--how", "all", "--yes", "--json")
    assert ran.json["stored"] == 3, ran.err
    assert set(contents(other)) >= {"A quay has a letter.", "Ferries wait for the tide."}


def test_memories_left_in_place_are_offered_again_when_they_change(ada: Agent, site: Path) -> None:
    before = state(ada)
    assert "3 memories not imported" in rules("migrate", "--how", "alongside", "--yes").err
    assert state(ada) == before
    assert "There is nothing to import." in rules("migrate").err
    (site / "CLAUDE.md").write_text("Ferries wait for nobody.\n")
    assert migrate("--json").json["stored"] == 1
    (site / "CLAUDE.md").write_text("Ferries wait for the moon.\n")
    assert "1 revised" in migrate().out
    assert rules("index", "--check").code == 0


def test_a_second_migration_stores_nothing_and_a_rollback_undoes_the_first(ada: Agent, site: Path) -> None:
    entry = migrate("--json").json["entry"]
    before = state(ada)
    ran = migrate("--json")
    assert (ran.json["entry"], ran.json["same"], state(ada)) == (None, 3, before)
    rolled_back = run("rollback", "acme/ada", "--import", str(entry), "--yes")
    assert (rolled_back.code, active(ada)) == (0, [])
    assert not list(Path(ada.vault_path).glob("projects/**/0*.md"))
    assert migrate("--json").json["stored"] == 3


def test_an_import_in_batches_is_rolled_back_as_one(
    ada: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.transfer.importing.BATCH", 10)
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"content": "Sailing {n}."}}\n' for n in range(15)))
    assert run("import_memories", "acme/ada", str(lines)).code == 0
    first = entries(ada)[-2].seq
    assert [entry.detail["import"] for entry in entries(ada)[-2:]] == [first, first]
    roll_back(fresh(ada), What("import", first), OPERATOR)
    assert active(ada) == []


def test_a_very_large_number_in_metadata_is_accepted(ada: Agent, site: Path) -> None:
    entry = '{"id": "a", "memory": "m", "user_id": "u", "metadata": {"n": 1' + "0" * 400 + "}}"
    (site / "mem0.json").write_text(f'{{"results": [{entry}]}}')
    assert migrate("--json").json["stored"] == 4


def test_init_reports_other_systems_and_imports_nothing_without_a_yes(ada: Agent, site: Path) -> None:
    steps = init_steps()
    assert steps["Other systems"] == (
        "AGENTS.md (1 file), Claude Code (1 file), Cursor (2 files): 3 memories to import, 1 left out "
        "('project detect' says why)"
    )
    assert steps["Migration"].startswith("not asked, because the input is not a terminal")
    assert steps["Migrated"] == "nothing"
    recordings.settings(ada, migration_settings__prompt_user_for_migration=False)
    assert init_steps()["Migration"].startswith("not asked")
    recordings.settings(ada, migration_settings__auto_detect_existing_memories=False)
    assert init_steps()["Other systems"].startswith("not searched")
    assert active(ada) == []


def test_init_shows_the_first_ten_memories_before_it_asks(ada: Agent, site: Path) -> None:
    for n in range(30):
        (site / f".cursor/rules/{n}.mdc").write_text(f"Quay {n}.\n")
    ran = at_a_terminal("skip\n", "init")
    assert ("  10  .cursor" in ran.err, "  11  .cursor" in ran.err) == (True, False)
    assert "… and 23 more ('manage.py project migrate acme/ada --dry-run' lists all)" in ran.err
    assert rules("migrate", "--dry-run").out.count("  33  ") == 1


def test_init_refuses_a_vault_in_a_folder_with_memories_of_another_system(ada: Agent, site: Path) -> None:
    (site / "memory" / "common").mkdir(parents=True)
    (site / "memory" / "index.md").write_text("# Mine\n")
    ran = rules("init", "--vault", str(site / "memory"), "--yes")
    assert (ran.code, "has memories of another system" in ran.err) == (2, True)
    assert (site / "memory" / "index.md").read_text() == "# Mine\n"


def test_a_key_that_ends_during_the_search_compares_nothing(
    ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With guesses in the folder, a former key learned which texts the new holder of the silo had stored."""
    make_plan = found_memories.make_plan

    def late(*call: Any, **options: Any) -> Any:
        claims.exchange(agent_key(os.environ["PALIMPSEST_AGENT_KEY"]), ME)
        remember(ada, "Ferries wait for the tide.")
        return make_plan(*call, **options)

    monkeypatch.setattr(found_memories, "make_plan", late)
    ran = rules("detect")
    assert (ran.code, "valid key" in ran.err, "same text" in ran.out + ran.err) == (2, True, False)
