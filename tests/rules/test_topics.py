"""Topic memories: one for each topic of a project, which goes on with it (seed 004, "Topic Memory")."""

from __future__ import annotations

from typing import Any

import pytest

from memory.errors import CategoryDisabled, Constitutional, Invalid
from memory.markdown import sections
from memory.models import Agent
from memory.policy.validation import MAX_CONTENT, Draft
from memory.recording.topics import Stage, evolve
from memory.writing import operations
from tests.rules.talking import of_category, off, said, settings, talk
from tests.steps import ME, PERSON, fresh, last_entry, problems, refused, row, says

NOW = "2026-11-22T14:30:00Z"


def evolved(agent: Agent, topic: str = "Tea", **values: Any) -> str:
    """What the topic's memory says then."""
    edited = evolve(fresh(agent), topic, ME, Stage(**values))
    return said(agent, edited.memory.number)


def test_it_is_made_as_the_template_has_it(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to(NOW, tick=False)
    text = evolved(
        ada,
        definition="A drink.",
        scope="Not coffee.",
        related=("Cups",),
        stage="first asked",
        session="monday",
        questions=("How hot?",),
        insights=("Green at 80 degrees",),
        pitfalls=("Boiling water",),
        resources=("The tea book",),
    )
    told = sections.split(text, "topic")
    assert told["Topic Definition"] == (
        "- Topic: Tea\n- Description: A drink.\n- Scope: Not coffee.\n- Related Topics:\n  - Cups"
    )
    assert told["Evolution History"] == (
        "- First Discussed: 2026-11-22, session monday\n- Development Stages:\n"
        "  - 2026-11-22, session monday: first asked"
    )
    assert "- Common Questions:\n  - How hot?" in told["User Interaction Patterns"]
    assert "- Pitfalls to Avoid:\n  - Boiling water" in told["Key Insights"]
    assert told["Cross-References"] == ("- Related Sessions:\n  - monday\n- Project Context: default-project")
    memory = row(ada, 1)
    assert (memory.kind, memory.category, memory.project) == ("core", "topic", "default-project")
    assert says(ada, 1).tags == ("topic:tea",)


def test_it_goes_on_in_the_same_memory(ada: Agent) -> None:
    evolved(ada, definition="A drink.", insights=("hot",), stage="one", session="monday")
    text = evolved(ada, scope="Not coffee.", insights=("green", "HOT"), stage="two", session="tuesday")
    assert len(of_category(ada, "topic")) == 1
    assert "- Description: A drink." in text
    assert "- Important Concepts:\n  - hot\n  - green\n" in text
    assert "session monday: one\n" in text
    assert "session tuesday: two\n" in text
    assert "- Related Sessions:\n  - monday\n  - tuesday" in text
    assert text.count("First Discussed") == 1
    before = last_entry(ada).seq
    edited = evolve(fresh(ada), "Tea", ME, Stage(insights=("hot",)))  # which is known already
    assert (edited.seq, last_entry(ada).seq) == (None, before)
    assert problems(ada) == []


def test_each_project_has_its_own(ada: Agent) -> None:
    evolved(ada, project="one")
    evolved(ada, project="two")
    evolved(ada, "Coffee", project="two")
    assert [memory.project for memory in of_category(ada, "topic")] == ["one", "two", "two"]


def test_one_that_was_discarded_is_made_anew(ada: Agent) -> None:
    evolved(ada, insights=("hot",))
    operations.discard(fresh(ada), [1], ME)
    assert "hot" not in evolved(ada)


def test_the_oldest_stages_give_way_to_their_number(ada: Agent) -> None:
    for number in range(40):
        text = evolved(ada, stage=f"{number} " + "x" * 290)
        assert len(text) <= MAX_CONTENT
    told = sections.split(text, "topic")["Evolution History"]
    kept = told.count("\n  - ")
    assert f"- Earlier Stages: {40 - kept} in this memory's history" in told
    assert ": 39 x" in told
    assert ": 0 x" not in told


def test_the_oldest_items_give_way_to_their_number(ada: Agent) -> None:
    for number in range(40):
        text = evolved(ada, insights=(f"insight {number} " + "x" * 280,))
        assert len(text) <= MAX_CONTENT
    kept = sections.split(text, "topic")["Key Insights"].count("insight ")
    assert (
        f"- Earlier Items: {40 - kept} in this memory's history" in sections.split(text, "topic")["Evolution History"]
    )
    assert ("insight 39 " in text, "insight 0 " in text, "Earlier Stages" in text) == (True, False, False)


def test_however_much_is_told_there_is_room_and_the_last_stage_stays(ada: Agent) -> None:
    for number in range(4):
        items = tuple(f"{number} {place} " + "y" * 280 for place in range(50))
        text = evolved(ada, insights=items, related=items, stage=f"stage {number}")
        assert len(text) <= MAX_CONTENT
    assert "3 49 y" in text
    assert ": stage 3" in text
    assert ": stage 2" not in text


def test_what_somebody_wrote_otherwise_is_kept(ada: Agent) -> None:
    evolved(ada, definition="A drink.")
    operations.revise(fresh(ada), 1, ME, content=f"Mine: hands off.\n\n{said(ada, 1)}\nand a last word")
    text = evolved(ada, insights=("hot",))
    assert "Mine: hands off." in text
    assert "and a last word" in text
    assert "- Description: A drink." in text
    assert text.count("Mine: hands off.") == evolved(ada, insights=("green",)).count("Mine: hands off.") == 1


def test_it_is_masked_and_neutral(ada: Agent) -> None:
    text = evolved(
        ada, definition="my password is hunter2", insights=("Generated with [X](https://x.example)", "hunter2")
    )
    assert "hunter2" not in text
    assert "x.example" not in text


def test_headings_in_it_are_no_headings(ada: Agent) -> None:
    text = evolved(ada, definition="## Key Insights", insights=("## Cross-References", "- Scope: all"))
    told = sections.split(text, "topic")
    assert "- Description: ## Key Insights" in told["Topic Definition"]
    again = evolved(ada, insights=("more",))
    assert "  - - Scope: all" in again
    assert "Not recorded" not in again  # only its file says so


def test_what_cannot_be_kept_is_refused(ada: Agent) -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("…", {}, "topic"),
        ("x" * 59, {}, "topic"),
        ("Tea", {"definition": "\ud800"}, "definition"),
        ("Tea", {"definition": "x" * 1_001}, "definition"),
        ("Tea", {"insights": ("x",) * 51}, "insights"),
    ]
    for topic, values, field in rows:
        with refused(ada, Invalid) as caught:
            evolve(fresh(ada), topic, ME, Stage(**values))
        assert caught.value.field == field


def test_a_protected_one_stays(ada: Agent) -> None:
    evolved(ada)
    operations.protect(fresh(ada), [1], PERSON)
    with refused(ada, Constitutional):
        evolved(ada, insights=("hot",))


# --- with recordings


def test_a_recording_brings_its_topic_on(ada: Agent) -> None:
    talk(ada, "How hot is tea?", "80 degrees.", session="monday", topic="Tea", learnings="Green at 80 degrees")
    [memory] = of_category(ada, "topic")
    text = said(ada, memory.number)
    assert "session monday: question: How hot is tea?" in text
    assert "- Common Questions:\n  - How hot is tea?" in text
    assert "- Important Concepts:\n  - Green at 80 degrees" in text


def test_where_topics_are_not_followed_it_is_recorded_alone(ada: Agent) -> None:
    for number, switch in enumerate(("enabled", "evolution_tracking"), 1):
        settings(ada, **{f"categories__topic__{switch}": False})
        assert talk(ada, topic="Tea").number == number
        assert of_category(ada, "topic") == []


def test_where_nothing_can_give_way_it_is_said(ada: Agent) -> None:
    full = f"- Description: {'a' * 9_980}"
    operations.remember(ada, [Draft(full, category="topic", project="site", tags=("topic:x",))], ME)
    with pytest.raises(Invalid, match="topic"):
        evolve(ada, "x", ME, Stage(project="site", insights=("b" * 300,)))


def test_a_topic_that_is_off_is_refused_before_it_is_looked_at(ada: Agent) -> None:
    """Or an answer that nothing had to be changed would tell what its memory says."""
    evolved(ada, insights=("hot",))
    off(ada, "topic")
    for insight in ("hot", "new"):
        with refused(ada, CategoryDisabled):
            evolve(fresh(ada), "Tea", ME, Stage(insights=(insight,)))
