"""The files of an edit exist when it returns. They have the structure of the seed, and show no secrets (seed 004)."""

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection, transaction

from memory.agents import lifecycle, rule_changes
from memory.errors import CategoryDisabled, MemoryDisabled
from memory.models import Agent, Vault, VaultFile
from memory.policy.categories import SCOPES
from memory.policy.validation import Draft
from memory.recording.sessions import Outcomes, end_session
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.vault import comparing
from memory.vault.writer import open_file
from memory.writing import operations
from tests.rules.recordings import settings, talk
from tests.rules.test_places import TREE
from tests.steps import ME, PERSON, fresh, last_entry, remember, says, set_rule, wait_for_a_lock
from tests.vault.tree import all_text, differences, memory_files, only_file, tree

DAY = datetime(2026, 2, 1, 9, 30, tzinfo=UTC)


def test_a_memory_is_a_file_a_person_can_read(ada: Agent, vault: Path) -> None:
    remember(ada, "The ferry leaves at 14:30.", category="technical", origin=DAY, tags=["ferry", "times"])
    path = only_file(vault)
    assert path.relative_to(vault).as_posix() == "common/technical/000001.md"
    text = path.read_text()
    assert text.startswith("# Memory Entry: technical - 2026-02-01T09:30:00Z\n\n## Metadata\n- **Version**: 1.0.0\n")
    assert "\n## Understanding\nThe ferry leaves at 14:30.\n" in text
    assert text.endswith("\n## Tags\nferry, times\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert differences(ada) == []


def test_every_category_has_its_place(ada: Agent, vault: Path) -> None:
    for category in SCOPES:
        remember(ada, f"About {category}", category=category, project="site")
    assert {str(Path(path).parent) for path in memory_files(vault)} == set(TREE.values())
    pages = ["index.md", "private/index.md", "projects/site/index.md"]
    assert [path for path in tree(vault) if path.endswith("index.md")] == pages


def test_a_discarded_file_moves_away_and_a_restored_file_moves_back(ada: Agent, vault: Path) -> None:
    [number] = remember(ada, "The ferry leaves at 14:30.", category="technical")
    before = only_file(vault)
    operations.discard(ada, [number], PERSON)
    assert only_file(vault) == vault / ".discarded" / before.relative_to(vault)
    operations.restore(ada, [number], PERSON)
    assert only_file(vault) == before
    assert differences(ada) == []


def test_a_refused_edit_and_a_notice_write_no_file(ada: Agent, vault: Path) -> None:
    with pytest.raises(Exception, match="category"):
        operations.remember(ada, [Draft("one"), Draft("two", category="none such")], ME)
    operations.notify(ada, "Somebody read.", operation="content_read", actor=PERSON, detail={})
    assert tree(vault) == []


@pytest.mark.parametrize("is_whole", [False, True], ids=["category", "memory"])
def test_a_rollback_while_off_moves_files_when_on(ada: Agent, vault: Path, is_whole: bool) -> None:
    def turn(is_on: bool) -> None:
        if is_whole:
            rule_changes.change(fresh(ada), PERSON, enabled=is_on)
        else:
            settings(ada, categories__technical__enabled=is_on)

    remember(ada, "The ferry leaves at 14:30.", category="technical")
    seq = last_entry(ada).seq
    turn(False)
    before = tree(vault)
    rollback.roll_back(fresh(ada), What("entry", seq), PERSON)  # a rollback does not depend on the switches
    assert tree(vault) == before
    turn(True)
    assert memory_files(vault) == [".discarded/common/technical/000001.md"]


# The seed's headings, and the labels below each, for each category that has its own template.
SEED = {
    "technical": """
        Metadata: Version, Generated, Category, Migration Notes
        Context:
        Understanding:
        Decision/Action:
        Outcome:
        Migration Information: Source System, Migration Date, Compatibility, Transformations Applied
        Related Memories:
        Tags:""",
    "git_history": """
        Metadata: Version, Generated, Analysis Type, Time Range, Migration Notes
        Analysis Summary:
        Key Findings: Project Evolution, Development Patterns, Milestones, Architecture Insights
        Commit Analysis: Most Changed Files, Common Commit Types, Author Patterns
        Branch Evolution: Main Branches, Feature Branches, Release Strategy
        Code Evolution Metrics: File Count Growth, Complexity Trends, Technology Stack
        Development Insights: Project Velocity, Quality Indicators, Collaboration Patterns
        Recommendations: Areas for Attention, Best Practices, Future Considerations
        Migration Information: Source System, Analysis Method, Data Preservation, Privacy Applied""",
    "user_interaction": """
        Metadata: Version, Generated, Interaction ID, Migration Notes
        User Prompt:
        Agent Response:
        Context: Session, Topic, Previous Context
        Analysis: User Intent, Response Effectiveness, Key Learnings
        Technical Metadata: Response Time, Tools Used, Success Metrics
        Migration Information: Source System, Migration Date, Data Preservation, Interoperability
        Related Interactions: Previous, Follow-up""",
    "session": """
        Metadata: Version, Generated, Session Type
        Session Overview: Duration, Primary Topic, Secondary Topics, Session Goal
        Key Interactions: Opening Prompt, Closing Exchange, Critical Decisions, Unresolved Items
        Topic Evolution: Topic Flow, Depth Reached, User Engagement
        Outcomes: Goals Achieved, New Understandings, Follow-up Needed
        Session Quality Metrics: Clarity of Communication, Problem Resolution, User Satisfaction""",
    "topic": """
        Metadata: Version, Generated, Topic ID, Last Evolution
        Topic Definition: Description, Scope, Related Topics
        Evolution History: First Discussed, Development Stages, Current Understanding Level
        User Interaction Patterns: Common Questions, Preferred Approaches, Expertise Level, Communication Style
        Key Insights: Important Concepts, Best Practices, Pitfalls to Avoid, Resources Referenced
        Cross-References: Related Sessions, Connected Topics, Project Context""",
}


def seed(category: str) -> dict[str, set[str]]:
    """The labels below each heading."""
    lines = (line.strip().partition(":") for line in SEED[category].strip().splitlines())
    return {heading: {label.strip() for label in labels.split(",") if label.strip()} for heading, _, labels in lines}


def blocks(text: str) -> dict[str, str]:
    """The text below each heading."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {name: block.strip() for name, block in zip(parts[1::2], parts[2::2], strict=True)}


def labels(block: str) -> set[str]:
    """The labels of a list, with those that it names as not recorded."""
    found = dict(re.findall(r"^- (?:\*\*)?([^:*]+?)(?:\*\*)?:(.*)$", block, re.MULTILINE))
    return found.keys() | {label.strip() for label in found.get("Not recorded", "").split(",")}


@pytest.mark.parametrize("category", SEED)
def test_a_stored_memory_has_the_seeds_structure_and_no_invented_values(ada: Agent, vault: Path, category: str) -> None:
    remember(ada, "The ferry leaves at two.", category=category, project="site")
    text = only_file(vault).read_text()
    found, expected = blocks(text), seed(category)
    assert [name for name in found if name in expected] == list(expected)
    for heading, wanted in expected.items():
        assert wanted <= labels(found[heading]) or found[heading] == "The ferry leaves at two."
    assert text.count("The ferry leaves at two.") == 1
    values = [block for heading, block in found.items() if heading not in ("Metadata", "Migration Information", "Tags")]
    lines = {line for block in values for line in block.splitlines() if "ferry" not in line}
    assert [line for line in lines if not re.match(r"### |Not recorded$|- Not recorded: |$", line)] == []
    assert (category == "git_history") == ("\n### Major Commits\nNot recorded\n\n### Pattern Insights\n- Not" in text)
    migration = found.get("Migration Information", "- **Not recorded**")
    assert labels(migration) - {"Not recorded", ""} == expected.get("Migration Information", set())
    assert migration.startswith("- **Not recorded**")
    for invented in ("git log", "git_history_analysis", "masked", "INTERACTIVE", "unnamed", " to 2", "any tool"):
        assert invented not in text
    assert differences(ada) == []


def test_values_of_tags_are_in_the_file(ada: Agent, vault: Path) -> None:
    values = {"analysis": "commits", "range": "2026-01-01 to 2026-02-01", "method": "git log"}
    values |= {"preserved": "100 commits", "privacy": "no authors", "migration": "read as markdown"}
    tags = [f"{name}:{value}" for name, value in values.items()]
    remember(ada, "It grows.", category="git_history", project="site", tags=tags)
    text = only_file(vault).read_text()
    assert "- **Time Range**: 2026-01-01 to 2026-02-01\n" in text
    assert "- **Migration Notes**: read as markdown\n\n" in text
    assert (
        "## Migration Information\n- **Source System**: git_history_analysis\n- **Analysis Method**: git log\n"
        "- **Data Preservation**: 100 commits\n- **Privacy Applied**: no authors\n\n"
    ) in text


@pytest.mark.parametrize("category", ["user_interaction", "session", "topic"])
def test_a_recorded_memory_has_all_labels_of_the_seed(ada: Agent, vault: Path, category: str) -> None:
    talk(ada, session="monday", topic="Ferry")
    end_session(fresh(ada), "monday", ME)
    folder = {"user_interaction": "interactions", "session": "sessions", "topic": "topics"}[category]
    [path] = vault.glob(f"**/{folder}/*.md")
    found = blocks(path.read_text())
    assert [name for name in found if name in seed(category)] == list(seed(category))
    for heading, wanted in seed(category).items():
        assert wanted <= labels(found[heading])


def test_the_title_of_a_session_has_its_name_and_period(ada: Agent, vault: Path, time_machine: Any) -> None:
    name = "m" * 64  # the tag of such a name is cut
    for minute, prompt in (("30", "Add it."), ("55", "Thanks!")):
        time_machine.move_to(f"2026-11-22T14:{minute}:00Z", tick=False)
        talk(ada, prompt, "Done.", session=name)
    time_machine.move_to("2026-11-22T15:10:00Z", tick=False)
    end_session(fresh(ada), name, ME)
    [path] = vault.glob("**/sessions/*.md")
    assert path.name == "000003-2026-11-22-143000.md"
    text = path.read_text()
    assert text.startswith(f"# Session Memory: {name} - 2026-11-22T14:30:00Z to 2026-11-22T14:55:00Z\n")
    assert "- **Session Type**: COLLABORATIVE\n" in text
    first = min(vault.glob("**/interactions/*.md"))
    assert first.read_text().startswith(f"# User Interaction: {name} - 2026-11-22T14:30:00Z\n")


PRESERVATION: list[tuple[dict[str, Any], str, str]] = [
    ({}, "hello there", "whole"),
    ({}, "my password is hunter2", "1 masked"),
    ({"categories__user_interaction__capture_responses": False}, "hello there", "no response"),
    ({"categories__user_interaction__capture_full_prompts": False}, "hello " * 50, "prompt cut"),
]


@pytest.mark.parametrize(("rules", "prompt", "preserved"), PRESERVATION)
def test_a_recording_states_what_is_left_out(
    ada: Agent, vault: Path, rules: dict[str, Any], prompt: str, preserved: str
) -> None:
    settings(ada, **rules)
    talk(ada, prompt)
    assert f"- **Data Preservation**: {preserved}\n" in only_file(vault).read_text()


def linked_memories(vault: Path) -> list[int]:
    """The memories that links lead to. Each link leads to the file of its memory."""
    numbers = []
    for path in memory_files(vault):
        for number, target in re.findall(r"\[memory (\d+)\]\(([^)]+)\)", (vault / path).read_text()):
            linked = ((vault / path).parent / target).resolve()
            assert linked.is_relative_to(vault)
            assert re.search(rf"\*\*(Memory|Interaction|Topic) ID\*\*: {number}\b", linked.read_text())
            numbers.append(int(number))
    return numbers


@pytest.mark.parametrize("moved", [{}, {"categories__session__storage_location": "common"}])
def test_links_lead_to_files(ada: Agent, vault: Path, time_machine: Any, moved: dict[str, Any]) -> None:
    settings(ada, **moved)
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    for session in ("monday", "tuesday"):
        for topic in ("Ferry & Tea", "Booking"):
            talk(ada, "x" * 12_000 if topic == "Booking" else "hello", session=session, topic=topic, project="a/b")
            time_machine.shift(60)
        time_machine.shift(3_600)
        end_session(fresh(ada), session, ME, outcomes=Outcomes(follow_up="more"))
        time_machine.shift(60)
    talk(ada, "again", session="monday", project="a/b")  # the session continues, and keeps its file's name
    end_session(fresh(ada), "monday", ME)
    numbers = linked_memories(vault)
    assert (len(numbers), set(numbers)) == (19, set(range(1, 11)))
    assert differences(ada) == []


def test_there_is_no_link_to_a_discarded_memory(ada: Agent, vault: Path) -> None:
    talk(ada)
    operations.discard(fresh(ada), [1], PERSON)
    talk(ada)
    assert linked_memories(vault) == []


def test_a_project_category_without_a_project_uses_the_default_project(ada: Agent, vault: Path) -> None:
    settings(ada, categories__technical__storage_location="project")
    remember(ada, "The ferry leaves at two.", category="technical")
    assert memory_files(vault) == ["projects/default-project/technical/000001.md"]
    page = "projects/default-project/index.md"
    assert (vault / page).exists()
    for _ in range(2):
        assert f"- projects/default-project: [{page}]" in (vault / "index.md").read_text()
        comparing.repair(fresh(ada))
    assert differences(ada) == []


def test_a_private_memory_is_sealed_whatever_its_category_is(ada: Agent, vault: Path) -> None:
    private = ("personal", "credentials", "sensitive", "keys")
    categories = (*private, "technical", "session", "topic", "user_interaction")
    settings(ada, **{f"categories__{category}__storage_location": "private" for category in categories})
    for category in categories:
        remember(fresh(ada), "sesame opens the door", category=category, tags=["topic:sesame", "door"])
    assert len(memory_files(vault)) == len(categories)
    assert not any(word in all_text(vault) for word in ("sesame", "door"))
    for path in memory_files(vault):
        assert Path(path).match("private/*/00000?.md")
        opened = open_file(fresh(ada), (vault / path).read_bytes())
        assert (opened.content, opened.tags) == ("sesame opens the door", ("topic:sesame", "door"))
    assert differences(ada) == []


def test_a_file_does_not_open_while_memory_or_its_category_is_off(ada: Agent, vault: Path) -> None:
    remember(ada, "sesame", category="personal")
    data = only_file(vault).read_bytes()
    set_rule(ada, PERSON, "memory_rules.categories.personal.enabled", "false")
    with pytest.raises(CategoryDisabled):
        open_file(fresh(ada), data)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    with pytest.raises(MemoryDisabled):
        open_file(fresh(ada), data)


def test_a_file_shows_no_secret_of_its_memory(ada: Agent, vault: Path) -> None:
    secrets = ("hunter2-Kj81-zz", "Xy77-quokka-4")
    content = f"The boat's password: {secrets[0]}\nThe harbour's password: {secrets[1]}\nThe ferry leaves at 14:30."
    [number] = remember(ada, content, category="technical", tags=["times", f"password: {secrets[0]}"])
    assert says(ada, number).content == content
    assert "[masked: password]" in only_file(vault).read_text()
    assert not any(secret in all_text(vault) for secret in secrets)
    assert differences(ada) == []
    VaultFile.objects.all().delete()  # a crash before the row was written
    operations.revise(ada, number, ME, tags=["times"])
    comparing.repair(ada)
    assert not any(secret in all_text(vault) for secret in secrets)
    assert differences(ada) == []


def test_names_of_files_and_lines_of_an_index_show_no_secret(ada: Agent, vault: Path) -> None:
    token = "ghp_" + "a1B2c3D4" * 4 + "wxyz"
    remember(ada, f"{token} is the token of the crane", category="technical")
    with mock.patch("memory.policy.validation.require_names"):  # older versions stored such names
        remember(ada, "open it", category="credentials", tags=[f"service:{token}"])
    assert len(memory_files(vault)) == 2
    assert "a1b2c3d4" not in all_text(vault).lower()


@pytest.mark.postgresql
def test_rows_of_a_vault_are_locked_in_one_order(ada: Agent, vault: Path) -> None:
    """A claim during a sync was a deadlock."""
    remember(ada, "tea")

    def leave() -> None:
        with closing(connection):
            lifecycle.change(ada, ME, vault_path="")

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Vault.objects.select_for_update().get()
        left = pool.submit(leave)
        wait_for_a_lock()
        assert len(VaultFile.objects.select_for_update(nowait=True)) == 1
    left.result(20)
