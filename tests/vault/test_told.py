"""A file says what is known, in the seed's structure, and nothing else (seed 004, "Storage Format")."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from memory.agents import rule_changes
from memory.errors import CategoryDisabled, MemoryDisabled
from memory.models import Agent, VaultFile
from memory.recording.sessions import Outcomes, end_session
from memory.vault import comparing
from memory.vault.files import open_file
from memory.writing import operations
from tests.rules.talking import settings, talk
from tests.steps import ME, PERSON, fresh, remember, says, set_rule
from tests.vault.tree import differ, memories, the_one

# The seed's headings and the labels of its lists, for each category that has a template of its own.
SEED: dict[str, dict[str, list[str]]] = {
    "technical": {
        "Metadata": ["Version", "Generated", "Category", "Migration Notes"],
        "Context": [],
        "Understanding": [],
        "Decision/Action": [],
        "Outcome": [],
        "Migration Information": ["Source System", "Migration Date", "Compatibility", "Transformations Applied"],
        "Related Memories": [],
        "Tags": [],
    },
    "git_history": {
        "Metadata": ["Version", "Generated", "Analysis Type", "Time Range", "Migration Notes"],
        "Analysis Summary": [],
        "Key Findings": ["Project Evolution", "Development Patterns", "Milestones", "Architecture Insights"],
        "Commit Analysis": ["Most Changed Files", "Common Commit Types", "Author Patterns"],
        "Branch Evolution": ["Main Branches", "Feature Branches", "Release Strategy"],
        "Code Evolution Metrics": ["File Count Growth", "Complexity Trends", "Technology Stack"],
        "Development Insights": ["Project Velocity", "Quality Indicators", "Collaboration Patterns"],
        "Recommendations": ["Areas for Attention", "Best Practices", "Future Considerations"],
        "Migration Information": ["Source System", "Analysis Method", "Data Preservation", "Privacy Applied"],
    },
    "user_interaction": {
        "Metadata": ["Version", "Generated", "Interaction ID", "Migration Notes"],
        "User Prompt": [],
        "Agent Response": [],
        "Context": [],
        "Analysis": [],
        "Technical Metadata": [],
        "Migration Information": ["Source System", "Migration Date", "Data Preservation", "Interoperability"],
        "Related Interactions": [],
    },
    "session": {
        "Metadata": ["Version", "Generated", "Session Type"],
        "Session Overview": [],
        "Key Interactions": [],
        "Topic Evolution": [],
        "Outcomes": [],
        "Session Quality Metrics": [],
    },
    "topic": {
        "Metadata": ["Version", "Generated", "Topic ID", "Last Evolution"],
        "Topic Definition": [],
        "Evolution History": [],
        "User Interaction Patterns": [],
        "Key Insights": [],
        "Cross-References": [],
    },
}
# What it lists below the sections of what is recorded.
RECORDED = {
    "user_interaction": {
        "Context": ["Session", "Topic", "Previous Context"],
        "Analysis": ["User Intent", "Response Effectiveness", "Key Learnings"],
        "Technical Metadata": ["Response Time", "Tools Used", "Success Metrics"],
        "Related Interactions": ["Previous", "Follow-up"],
    },
    "session": {
        "Session Overview": ["Duration", "Primary Topic", "Secondary Topics", "Session Goal"],
        "Key Interactions": ["Opening Prompt", "Closing Exchange", "Critical Decisions", "Unresolved Items"],
        "Topic Evolution": ["Topic Flow", "Depth Reached", "User Engagement"],
        "Outcomes": ["Goals Achieved", "New Understandings", "Follow-up Needed"],
        "Session Quality Metrics": ["Clarity of Communication", "Problem Resolution", "User Satisfaction"],
    },
    "topic": {
        "Topic Definition": ["Description", "Scope", "Related Topics"],
        "Evolution History": ["First Discussed", "Development Stages", "Current Understanding Level"],
        "User Interaction Patterns": [
            "Common Questions",
            "Preferred Approaches",
            "Expertise Level",
            "Communication Style",
        ],
        "Key Insights": ["Important Concepts", "Best Practices", "Pitfalls to Avoid", "Resources Referenced"],
        "Cross-References": ["Related Sessions", "Connected Topics", "Project Context"],
    },
}


def blocks(text: str) -> dict[str, str]:
    """What stands below each heading."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {name: said.strip() for name, said in zip(parts[1::2], parts[2::2], strict=True)}


def labels(block: str) -> set[str]:
    """Of what a list tells, and of what it says that nobody told."""
    told = dict(re.findall(r"^- (?:\*\*)?([^:*]+?)(?:\*\*)?:(.*)$", block, re.MULTILINE))
    return told.keys() | {label.strip() for label in told.get("Not recorded", "").split(",")}


@pytest.mark.parametrize("category", SEED)
def test_what_was_stored_by_hand_has_the_seeds_structure_and_claims_nothing(
    ada: Agent, vault: Path, category: str
) -> None:
    remember(ada, "The ferry leaves at two.", category=category, project="site")
    text = the_one(vault).read_text()
    found = blocks(text)
    assert [name for name in found if name in SEED[category]] == list(SEED[category])
    for heading, wanted in (SEED[category] | RECORDED.get(category, {})).items():
        assert set(wanted) <= labels(found[heading]) or found[heading] == "The ferry leaves at two."
    assert text.count("The ferry leaves at two.") == 1
    told = [said for heading, said in found.items() if heading not in ("Metadata", "Migration Information", "Tags")]
    lines = {line for said in told for line in said.splitlines() if "ferry" not in line}
    assert {line for line in lines if not re.match(r"### |Not recorded$|- Not recorded: |$", line)} == set()
    assert (category == "git_history") == ("\n### Major Commits\nNot recorded\n\n### Pattern Insights\n- Not" in text)
    assert labels(found.get("Migration Information", "")) - {"Not recorded", ""} == set(
        SEED[category].get("Migration Information", ())
    )
    assert found.get("Migration Information", "- **Not recorded**").startswith("- **Not recorded**")  # all of it
    for invented in ("git log", "git_history_analysis", "masked", "INTERACTIVE", "unnamed", " to 2", "any tool"):
        assert invented not in text
    assert differ(fresh(ada)) == []


def test_what_tags_tell_is_told(ada: Agent, vault: Path) -> None:
    told = {
        "analysis": "commits",
        "range": "2026-01-01 to 2026-02-01",
        "method": "git log",
        "preserved": "100 commits",
        "privacy": "no authors",
        "migration": "read as markdown",
    }
    tags = [f"{name}:{said}" for name, said in told.items()]
    remember(ada, "It grows.", category="git_history", project="site", tags=tags)
    text = the_one(vault).read_text()
    assert "- **Time Range**: 2026-01-01 to 2026-02-01\n" in text
    assert "- **Migration Notes**: read as markdown\n\n" in text
    assert (
        "## Migration Information\n- **Source System**: git_history_analysis\n- **Analysis Method**: git log\n"
        "- **Data Preservation**: 100 commits\n- **Privacy Applied**: no authors\n\n"
    ) in text


@pytest.mark.parametrize("category", RECORDED)
def test_what_was_recorded_has_all_of_the_seeds_labels(ada: Agent, vault: Path, category: str) -> None:
    talk(ada, session="monday", topic="Ferry")
    end_session(fresh(ada), "monday", ME)
    folder = {"user_interaction": "interactions", "session": "sessions", "topic": "topics"}[category]
    [path] = [path for path in memories(vault) if f"/{folder}/" in path]
    found = blocks((vault / path).read_text())
    assert [name for name in found if name in SEED[category]] == list(SEED[category])
    for heading, wanted in (SEED[category] | RECORDED[category]).items():
        assert set(wanted) <= labels(found[heading])


def test_a_session_is_entitled_by_its_name_and_period(ada: Agent, vault: Path, time_machine: Any) -> None:
    name = "m" * 64  # whose tag is cut
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    talk(ada, "Add it.", "Done.", session=name)
    time_machine.move_to("2026-11-22T14:55:00Z", tick=False)
    talk(ada, "Thanks!", "Bye.", session=name)
    time_machine.move_to("2026-11-22T15:10:00Z", tick=False)
    end_session(fresh(ada), name, ME)
    [path] = [path for path in memories(vault) if "/sessions/" in path]
    assert path.endswith("sessions/000003-2026-11-22-143000.md")
    text = (vault / path).read_text()
    assert text.startswith(f"# Session Memory: {name} - 2026-11-22T14:30:00Z to 2026-11-22T14:55:00Z\n")
    assert "- **Session Type**: COLLABORATIVE\n" in text
    [first, _] = [path for path in memories(vault) if "/interactions/" in path]
    assert (vault / first).read_text().startswith(f"# User Interaction: {name} - 2026-11-22T14:30:00Z\n")


@pytest.mark.parametrize(
    ("changed", "masked", "told"),
    [
        ({}, "hello there", "whole"),
        ({}, "my password is hunter2", "1 masked"),
        ({"categories__user_interaction__capture_responses": False}, "hello there", "no response"),
        ({"categories__user_interaction__capture_full_prompts": False}, "hello " * 50, "prompt cut"),
    ],
)
def test_what_is_not_kept_of_an_interaction_is_said(
    ada: Agent, vault: Path, changed: dict[str, Any], masked: str, told: str
) -> None:
    settings(ada, **changed)
    talk(ada, masked)
    assert f"- **Data Preservation**: {told}\n" in the_one(vault).read_text()


LINK = re.compile(r"\[memory (\d+)\]\(([^)]+)\)")


def links(vault: Path) -> list[tuple[str, int, str]]:
    """From which file, to which memory, and to which file."""
    found = []
    for path in memories(vault):
        for number, target in LINK.findall((vault / path).read_text()):
            real = (vault / path).parent / target
            assert f"**Memory ID**: {number}" in real.read_text().replace("Interaction", "Memory").replace(
                "Topic", "Memory"
            )
            found.append((path, int(number), str(real.resolve().relative_to(vault))))
    return found


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
    talk(ada, "again", session="monday", project="a/b")  # it goes on, and keeps the name of its file
    end_session(fresh(ada), "monday", ME)
    found = links(vault)
    assert len(found) == 19
    assert {number for _, number, _ in found} == {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
    assert differ(fresh(ada)) == []


def test_a_link_is_none_to_what_is_not_there(ada: Agent, vault: Path) -> None:
    talk(ada)
    operations.discard(fresh(ada), [1], PERSON)
    talk(ada)
    assert links(vault) == []


# --- where it is kept


def test_a_projects_memory_without_one_is_the_default_projects(ada: Agent, vault: Path) -> None:
    settings(ada, categories__technical__storage_location="project")
    remember(ada, "The ferry leaves at two.", category="technical")
    assert memories(vault) == ["projects/default-project/technical/000001.md"]
    assert (vault / "projects/default-project/index.md").exists()
    assert "- projects/default-project: [projects/default-project/index.md]" in (vault / "index.md").read_text()
    comparing.repair(fresh(ada))
    assert "- projects/default-project: [projects/default-project/index.md]" in (vault / "index.md").read_text()
    assert differ(fresh(ada)) == []


def everything(vault: Path) -> str:
    return "\n".join([*map(str, vault.rglob("*")), *(each.read_text() for each in vault.rglob("*.md"))])


PRIVATE = ("personal", "credentials", "sensitive", "keys")


def test_what_is_private_is_sealed_whatever_its_category(ada: Agent, vault: Path) -> None:
    categories = (*PRIVATE, "technical", "session", "topic", "user_interaction")
    settings(ada, **{f"categories__{category}__storage_location": "private" for category in categories})
    for category in categories:
        remember(fresh(ada), "sesame opens the door", category=category, tags=["topic:sesame", "door"])
    assert len(memories(vault)) == len(categories)
    assert not any(word in everything(vault) for word in ("sesame", "door"))
    for path in memories(vault):
        assert Path(path).match("private/*/00000?.md")
        opened = open_file(fresh(ada), (vault / path).read_bytes())
        assert (opened.content, opened.tags) == ("sesame opens the door", ("topic:sesame", "door"))
    assert differ(fresh(ada)) == []


def test_a_category_that_becomes_private_is_sealed_at_once_and_opened_again(ada: Agent, vault: Path) -> None:
    remember(ada, "sesame opens the door", category="technical", tags=["door"])
    settings(ada, categories__technical__storage_location="private")
    assert memories(vault) == ["private/technical/000001.md"]
    assert "sesame" not in everything(vault)
    assert "door" not in everything(vault)
    assert "000001.md" in (vault / "private/index.md").read_text()
    assert differ(fresh(ada)) == []
    settings(ada, categories__technical__storage_location="common")
    assert memories(vault) == ["common/technical/000001.md"]
    assert "sesame opens the door" in the_one(vault).read_text()
    assert differ(fresh(ada)) == []


def test_what_is_off_is_not_opened(ada: Agent, vault: Path) -> None:
    remember(ada, "sesame", category="personal")
    data = the_one(vault).read_bytes()
    set_rule(ada, PERSON, "memory_rules.categories.personal.enabled", "false")
    with pytest.raises(CategoryDisabled):
        open_file(fresh(ada), data)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    with pytest.raises(MemoryDisabled):
        open_file(fresh(ada), data)


# --- no file shows a secret

SECRET, OTHER = "hunter2-Kj81-zz", "Xy77-quokka-4"
SAID = f"The boat's password: {SECRET}\nThe harbour's password: {OTHER}\nThe ferry leaves at 14:30."


@pytest.fixture
def boat(ada: Agent) -> int:
    [number] = remember(ada, SAID, category="technical", tags=["times", f"password: {SECRET}"])
    return number


def test_a_file_shows_no_secret_and_the_silo_keeps_it(ada: Agent, boat: int, vault: Path) -> None:
    assert says(ada, boat).content == SAID
    assert "[masked: password]" in the_one(vault).read_text()
    assert SECRET not in everything(vault)
    assert OTHER not in everything(vault)
    assert differ(ada) == []


def test_no_name_of_a_file_or_line_of_an_index_shows_one(ada: Agent, vault: Path) -> None:
    remember(ada, "ghp_" + "a1B2c3D4" * 4 + "wxyz is the token of the crane", category="technical")
    with mock.patch("memory.policy.validation.require_names"):  # as one was stored before such names were refused
        remember(ada, "open it", category="credentials", tags=["service:ghp_" + "a1B2c3D4" * 4 + "wxyz"])
    said = everything(vault).lower()
    assert len(list(vault.rglob("*.md"))) > 2
    assert "a1b2c3d4" not in said


def test_a_vault_masks_nothing_until_a_person_says_so_again(ada: Agent, vault: Path) -> None:
    settings(ada, capture_settings__sensitive_data_masking=False)
    ada.refresh_from_db()
    remember(ada, SAID, category="technical")
    assert SECRET in the_one(vault).read_text()
    settings(ada, capture_settings__sensitive_data_masking=True)
    assert SECRET not in the_one(vault).read_text()
    assert differ(ada) == []


def test_a_secret_after_a_crash_is_known_again(ada: Agent, boat: int, vault: Path) -> None:
    VaultFile.objects.filter(agent=ada).delete()
    operations.revise(ada, boat, ME, tags=["times"])
    comparing.repair(ada)
    assert differ(ada) == []
    assert SECRET not in everything(vault)
