"""`memory_rules detect` and `migrate`, and init's steps 8 to 10, as an operator runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.agents import lifecycle
from memory.models import Agent, ImportedPiece
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from tests.commands.calling import run
from tests.conftest import OPERATOR
from tests.moving.calling import FILES, MARKED, at_a_terminal, in_a_site, migrate, rules, with_a_vault  # noqa: F401  fixtures
from tests.rules import talking
from tests.steps import active, entries, fresh, says, state

# --- detect


def test_detect_shows_what_there_is_and_changes_nothing(ada: Agent, site: Path) -> None:
    before = state(ada)
    ran = rules("detect")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == f"site, in {site}"
    assert lines[1].split() == ["--from", "system", "looked", "at", "memories,", "and", "what", "becomes", "of", "them"]
    assert [line.split()[0] for line in lines[2:5]] == ["cursor", "claude", "agents-md"]
    assert all(line.endswith("1 memory: 1 new") for line in lines[2:5])
    assert len({line.index(word) for line, word in zip(lines[1:5], ("memories,", *["1 memory"] * 3), strict=True)}) == 1
    assert lines[5:] == ["left out:", "  .cursor/rules/empty.mdc is empty"]
    assert "Run 'manage.py project migrate acme/ada' to import them." in ran.err
    assert state(ada) == before


def test_detect_says_no_word_of_any_memory(ada: Agent, site: Path) -> None:
    ran = rules("detect", "--json")
    assert not any(word in ran.out + ran.err for word in ("letter", "tide", MARKED))
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


def test_detect_where_there_is_nothing_and_of_systems_that_are_not_supported(ada: Agent, site: Path) -> None:
    (site / "bare").mkdir()
    ran = rules("detect", "--project-dir", str(site / "bare"))
    assert ran.out.splitlines()[1:] == ["nothing of another system"]
    assert rules("detect", "--project-dir", str(site / "none")).code == 2
    talking.settings(ada, migration_settings__supported_source_systems=["cursor"])
    assert {each["system"] for each in rules("detect", "--json").json["memories"]} == {"cursor"}
    refused = rules("detect", "--from", "claude")
    assert (refused.code, "supported_source_systems" in refused.err) == (2, True)


# --- migrate


def test_all_of_it_is_stored_with_a_file_each(ada: Agent, site: Path) -> None:
    ran = migrate("--json")
    assert ran.code == 0, ran.err
    assert (ran.json["stored"], ran.json["revised"]) == (3, 0)
    assert [says(ada, number).content for number in active(ada)] == [
        "A quay has a letter.",
        "The gate's test password is [masked: password].",
        "Ferries wait for the tide.",
    ]
    [file] = [each for each in Path(ada.vault_path).rglob("0*.md") if "quay" in each.read_text()]
    told = file.read_text()
    assert "- **Source System**: cursor" in told
    assert "- **Migration Notes**: from .cursor/rules/quays.mdc" in told
    assert "- **Transformations Applied**: front matter left out; dated by its file" in told
    assert {path: (site / path).read_text() for path in FILES} == FILES


def test_it_is_shown_first_and_how_it_begins_to_the_agents_side_alone(
    ada: Agent, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(ada)
    ran = rules("migrate", "--dry-run")
    assert "   1  .cursor/rules/quays.mdc → contextual of site, 2026-03-04" in ran.out
    assert "“A quay has a letter.”" in ran.out
    assert MARKED not in ran.out
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


def test_where_nobody_can_be_asked_nothing_is_stored(ada: Agent, site: Path) -> None:
    before = state(ada)
    assert "--how" in rules("migrate").err
    ran = rules("migrate", "--yes")
    assert (ran.code, "how: is required" in ran.err) == (2, True)
    assert "pass --yes to confirm" in rules("migrate", "--how", "all").err
    assert "Nothing was stored." in rules("migrate", "--how", "select", "--yes").err
    assert state(ada) == before
    assert steps("--migrate", "all")["Migrated"] == "nothing"
    assert active(ada) == []
    assert steps("--migrate", "all", "--yes")["Migrated"].startswith("3 memories stored")


def test_what_is_selected_alone_and_a_wrong_answer_is_asked_again(ada: Agent, site: Path) -> None:
    ran = at_a_terminal("select\n9\nx\n2\ny\n", "migrate")
    assert "1 memory stored" in ran.out
    assert "It must name numbers from 1 to 3." in ran.err
    assert "It must be numbers of the list, such as 1-4,7." in ran.err
    assert [each["state"] for each in rules("detect", "--json").json["memories"]] == ["new", "same", "new"]
    for only in ("0", "4", "2-1", "1,x", "9" * 30):
        ran = migrate(f"--only={only}")
        assert (ran.code, "only" in ran.err) == (2, True)
    assert migrate("--only", "2", "--json").json["stored"] == 1
    assert says(ada, 2).content.startswith("Ferries")


def test_filters(ada: Agent, site: Path) -> None:
    for filters, count in (
        (["--path", "*.md"], 2),
        (["--category", "technical"], 0),
        (["--since", "2026-03-05"], 0),
        (["--until", "2026-03-05"], 3),
        (["--from", "cursor"], 1),
    ):
        assert len(rules("detect", "--json", *filters).json["memories"]) == count
    assert migrate("--json", "--category", "technical").json["stored"] == 0
    assert migrate("--json", "--path", "*.md").json["stored"] == 2
    assert migrate("--json", "--from", "cursor").json["stored"] == 1


def test_its_own_vault_is_no_source(ada: Agent, site: Path) -> None:
    migrate()
    vault = str(Path(ada.vault_path).parent)
    told = rules("detect", "--project-dir", vault, "--plain", "vault", "--json").json
    assert not [each["key"] for each in told["memories"] if each["key"].startswith("vault/")]
    assert {"key": "vault", "why": "is this agent's own vault"} in told["left_out"]


def test_a_vault_in_a_repository_is_read_by_another_agent(ada: Agent, site: Path) -> None:
    migrate()
    lifecycle.change(fresh(ada), OPERATOR, vault_path="")
    (site / "docs").mkdir()
    Path(ada.vault_path).rename(site / "docs" / "memory")
    other, _ = lifecycle.create("acme", "bob", model="builtin/dedupe", actor=OPERATOR)
    ran = run("project", "migrate", "acme/bob", "--from", "own", "--how", "all", "--yes", "--json")
    assert ran.json["stored"] == 3, ran.err
    assert {says(other, n).content for n in active(other)} >= {"A quay has a letter.", "Ferries wait for the tide."}


def test_no_vault_is_begun_among_the_frameworks_memories(ada: Agent, site: Path) -> None:
    (site / "memory" / "common").mkdir(parents=True)
    (site / "memory" / "index.md").write_text("# Mine\n")
    ran = rules("init", "--vault", str(site / "memory"), "--yes")
    assert (ran.code, "has memories of another system" in ran.err) == (2, True)
    assert (site / "memory" / "index.md").read_text() == "# Mine\n"


def test_selection_can_be_switched_off(ada: Agent, site: Path) -> None:
    talking.settings(ada, migration_settings__selective_import_enabled=False)
    for args in (["--only", "1"], ["--path", "*.md"], ["--from", "cursor"]):
        ran = migrate(*args)
        assert (ran.code, "selective_import_enabled" in ran.err) == (2, True)
    assert migrate("--json").json["stored"] == 3


def test_what_stays_beside_is_not_asked_about_again(ada: Agent, site: Path) -> None:
    before = state(ada)
    assert "3 memories left in place" in rules("migrate", "--how", "alongside", "--yes").err
    assert state(ada) == before
    assert "There is nothing to import." in rules("migrate").err
    (site / "CLAUDE.md").write_text("Ferries wait for nobody.\n")
    assert migrate("--json").json["stored"] == 1
    (site / "CLAUDE.md").write_text("Ferries wait for the fog.\n")
    assert "1 memory left in place" in rules("migrate", "--how", "alongside", "--yes").err
    assert "nothing to import" in migrate().err
    assert not any("fog" in says(ada, n).content for n in active(ada))
    (site / "CLAUDE.md").write_text("Ferries wait for the moon.\n")
    assert "1 revised" in migrate().out
    assert rules("index", "--check").code == 0  # the index follows a memory that has another date


def test_twice_is_once_and_a_rollback_is_one_operation(ada: Agent, site: Path) -> None:
    entry = migrate("--json").json["entry"]
    before = state(ada)
    ran = migrate("--json")
    assert (ran.json["entry"], ran.json["same"]) == (None, 3)
    assert state(ada) == before
    rolled = run("rollback", "acme/ada", "--import", str(entry), "--yes")
    assert (rolled.code, active(ada)) == (0, [])
    assert not list(Path(ada.vault_path).glob("projects/**/0*.md"))
    assert migrate("--json").json["stored"] == 3


def test_an_import_of_json_lines_is_taken_back_as_one_too(
    ada: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.transfer.importing.BATCH", 10)
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"content": "Sailing {n}."}}\n' for n in range(15)))
    assert run("import_memories", "acme/ada", str(lines)).code == 0
    first = entries(ada)[-2].seq
    assert [entry.detail["import"] for entry in entries(ada)[-2:]] == [first, first]
    roll_back(fresh(ada), What.imported(first), OPERATOR)
    assert active(ada) == []


def test_what_cannot_be_taken_is_told(ada: Agent, site: Path) -> None:
    migrate()
    [number] = [n for n in active(ada) if says(ada, n).content.startswith("Ferries")]
    operations.revise(fresh(ada), number, OPERATOR, content="Of my own.")
    (site / "CLAUDE.md").write_text("Ferries wait for nobody.\n")
    ran = migrate()
    assert f"CLAUDE.md changed, and memory {number} changed here, too" in ran.out
    assert says(ada, number).content == "Of my own."
    talking.off(ada, "contextual")
    (site / "CLAUDE.md").rename(site / "CLAUDE.local.md")
    assert "CLAUDE.local.md has the category contextual, which is off" in migrate().out


def test_memory_off_is_asked_about(ada: Agent, site: Path) -> None:
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    assert "Nothing was done." in migrate().err
    assert active(ada) == []


def test_secrets_are_kept_where_somebody_says_so(ada: Agent, site: Path) -> None:
    migrate("--keep-secrets")
    assert MARKED in " ".join(says(ada, number).content for number in active(ada))


# --- init


def steps(*args: str) -> dict[str, str]:
    return {each["step"]: each["found"] for each in rules("init", "--json", *args).json["steps"]}


def test_a_number_of_any_length_in_metadata_stops_nothing(ada: Agent, site: Path) -> None:
    metadata = '{"n": 1' + "0" * 400 + "}"
    entry = '{"id": "a", "memory": "m", "user_id": "u", "metadata": ' + metadata + "}"
    (site / "mem0.json").write_text(f'{{"results": [{entry}]}}')
    assert migrate("--json").json["stored"] == 4


def test_init_says_what_there_is_and_takes_nothing_in_unasked(ada: Agent, site: Path) -> None:
    told = steps()
    assert told["Other systems"] == (
        "AGENTS.md (1 file), Claude Code (1 file), Cursor (2 files): 3 memories to import, 1 left out "
        "('project detect' says why)"
    )
    assert told["Migration"].startswith("not asked, because the input is not a terminal")
    assert told["Migrated"] == "nothing"
    talking.settings(ada, migration_settings__prompt_user_for_migration=False)
    assert steps()["Migration"].startswith("not asked")
    talking.settings(ada, migration_settings__auto_detect_existing_memories=False)
    assert steps()["Other systems"].startswith("not looked for")
    assert active(ada) == []


def test_init_shows_the_first_before_it_asks(ada: Agent, site: Path) -> None:
    for n in range(30):
        (site / f".cursor/rules/{n}.mdc").write_text(f"Quay {n}.\n")
    ran = at_a_terminal("skip\n", "init")
    assert "  10  .cursor" in ran.err
    assert "  11  .cursor" not in ran.err
    assert "… and 23 more ('manage.py project migrate acme/ada --dry-run' lists all)" in ran.err
    few = [line for line in run("project", "migrate", "acme/ada", "--dry-run").out.splitlines() if "  33  " in line]
    assert len(few) == 1


def test_a_secret_in_a_heading_is_in_no_name(ada: Agent, site: Path) -> None:
    long = "# api_key=abcd1234efgh5678\n\n" + "Words here. " * 600 + "\n\n# Tides\n\n" + "Others here. " * 600
    (site / "AGENTS.md").write_text(long)
    shown, done = rules("migrate", "--dry-run"), migrate()
    tags = " ".join(tag for n in active(ada) for tag in says(ada, n).tags)
    assert "abcd1234" not in shown.out + shown.err + done.out + done.err + tags
    assert "#tides" in tags
