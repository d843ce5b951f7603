"""Topic memories: one for each topic of a project, which grows with the topic (seed 004, "Topic Memory")."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.errors import CategoryDisabled, Constitutional, Invalid
from memory.markdown import sections
from memory.models import Agent
from memory.policy.validation import MAX_CONTENT, Draft
from memory.recording import topics
from memory.recording.topics import Stage, TopicFull, evolve
from memory.silo.silo import Silo
from memory.writing import edits, operations
from tests.plans import plans
from tests.rules.recordings import of_category, off, settings, talk, text_of
from tests.steps import ME, PERSON, fresh, last_entry, problems, refused, row, says


def evolved(agent: Agent, topic: str = "Tea", **values: Any) -> str:
    """Add to the topic. Returns the text of its memory."""
    return text_of(agent, evolve(fresh(agent), topic, ME, Stage(**values)).memory.number)


def test_the_memory_follows_the_template(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    lists = {"related": ("Cups",), "questions": ("How hot?",), "insights": ("Green at 80 degrees",)}
    lists |= {"pitfalls": ("Boiling water",), "resources": ("The tea book",)}
    text = evolved(ada, definition="A drink.", scope="Not coffee.", stage="first asked", session="monday", **lists)
    parts = sections.split(text, "topic")
    definition = "- Topic: Tea\n- Description: A drink.\n- Scope: Not coffee.\n- Related Topics:\n  - Cups"
    assert parts["Topic Definition"] == definition
    stage = "2026-11-22, session monday"
    history = f"- First Discussed: {stage}\n- Development Stages:\n  - {stage}: first asked"
    assert parts["Evolution History"] == history
    assert "- Common Questions:\n  - How hot?" in parts["User Interaction Patterns"]
    assert "- Pitfalls to Avoid:\n  - Boiling water" in parts["Key Insights"]
    assert parts["Cross-References"] == "- Related Sessions:\n  - monday\n- Project Context: default-project"
    memory = row(ada, 1)
    assert (memory.kind, memory.category, memory.project) == ("core", "topic", "default-project")
    assert says(ada, 1).tags == ("topic:tea",)


def test_a_topic_grows_in_the_same_memory(ada: Agent) -> None:
    evolved(ada, definition="A drink.", insights=("hot",), stage="one", session="monday")
    text = evolved(ada, scope="Not coffee.", insights=("green", "HOT"), stage="two", session="tuesday")
    assert len(of_category(ada, "topic")) == 1
    for line in (
        "- Description: A drink.",
        "- Important Concepts:\n  - hot\n  - green\n",
        "session monday: one\n",
        "session tuesday: two\n",
        "- Related Sessions:\n  - monday\n  - tuesday",
    ):
        assert line in text
    assert text.count("First Discussed") == 1
    before = last_entry(ada).seq
    edited = evolve(fresh(ada), "Tea", ME, Stage(insights=("hot",)))  # nothing new
    assert (edited.seq, last_entry(ada).seq) == (None, before)
    assert problems(ada) == []


def test_each_project_has_its_own_topics_and_a_discarded_one_starts_again(ada: Agent) -> None:
    for topic, project in (("Tea", "one"), ("Tea", "two"), ("Coffee", "two")):
        evolved(ada, topic, project=project, insights=("hot",))
    assert [memory.project for memory in of_category(ada, "topic")] == ["one", "two", "two"]
    operations.discard(fresh(ada), [1], ME)
    assert "hot" not in evolved(ada, project="one")


def test_large_topics_are_looked_through_up_to_a_size(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """This needs the lock."""
    evolved(ada, "Tea")
    drafts = [Draft("x" * 3_000, category="topic", project="site", tags=(f"topic:{place}",)) for place in range(60)]
    operations.remember(fresh(ada), drafts, ME)
    monkeypatch.setattr(topics, "_MOST_BYTES", 10_000)
    read: list[Any] = []
    open_tags = Silo.open_tags
    monkeypatch.setattr(Silo, "open_tags", lambda *both: read.append(1) or open_tags(*both))
    with edits.locked(fresh(ada)) as locked:
        assert topics._found(locked, Silo.for_agent(locked), ["Tea"], "site") == {}
    assert len(read) == 4


@pytest.mark.sqlite
def test_topics_are_found_by_the_index_of_categories(ada: Agent) -> None:
    """With another index, SQLite read all memories of the agent under its lock."""
    with CaptureQueriesContext(connection) as captured:
        topics.number_of(ada, "tea", "")
    assert "(agent_id=? AND kind=? AND category=? AND project=?)" in plans(captured)[-1]


def test_the_oldest_stages_and_items_are_replaced_by_their_number(ada: Agent) -> None:
    for number in range(40):
        stages = evolved(ada, "Stages", stage=f"{number} " + "x" * 290)
        items = evolved(ada, "Items", insights=(f"insight {number} " + "x" * 280,))
        assert max(len(stages), len(items)) <= MAX_CONTENT
    history = sections.split(stages, "topic")["Evolution History"]
    count = history.count("\n  - ")
    assert f"- Earlier Stages: {40 - count} in this memory's history" in history
    assert (": 39 x" in history, ": 0 x" in history) == (True, False)
    parts = sections.split(items, "topic")
    count = parts["Key Insights"].count("insight ")
    assert f"- Earlier Items: {40 - count} in this memory's history" in parts["Evolution History"]
    assert ("insight 39 " in items, "insight 0 " in items, "Earlier Stages" in items) == (True, False, False)


def test_a_number_of_very_many_digits_is_no_count() -> None:
    items = "".join(f"\n  - {number} {'x' * 90}" for number in range(98))
    text = f"- Topic: tea\n- Earlier Items: {'9' * 700} in this memory's history\n- Important Concepts:{items}"
    shorter = topics.evolved(text, "tea", Stage(insights=("y" * 300,)), "2026-11-22")
    assert "- Earlier Items: 9 in this memory's history" in shorter


def test_the_last_stage_always_has_room(ada: Agent) -> None:
    for number in range(4):
        items = tuple(f"{number} {place} " + "y" * 280 for place in range(50))
        text = evolved(ada, insights=items, related=items, stage=f"stage {number}")
        assert len(text) <= MAX_CONTENT
    assert ("3 49 y" in text, ": stage 3" in text, ": stage 2" in text) == (True, True, False)


def test_if_there_is_no_room_at_all_the_topic_is_refused(ada: Agent) -> None:
    full = f"- Description: {'a' * 9_980}"
    operations.remember(ada, [Draft(full, category="topic", project="site", tags=("topic:x",))], ME)
    with pytest.raises(Invalid, match="topic"):
        evolve(ada, "x", ME, Stage(project="site", insights=("b" * 300,)))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("size", [MAX_CONTENT, MAX_CONTENT - 30])
def test_a_topic_that_the_agent_filled_is_refused(size: int, ada: Agent) -> None:
    """Only its last stage could be removed, and that one stays."""
    evolved(ada)
    filled = "## Topic Definition\n- Topic: Tea\n- Description: "
    operations.revise(ada, 1, ME, content=filled.ljust(size, "x"))
    with refused(ada, TopicFull):
        evolved(ada)
    talk(ada, "Which tea?", "Green.", topic="Tea")
    assert text_of(ada, 1) == filled.ljust(size, "x")


def test_text_that_the_agent_added_is_kept(ada: Agent) -> None:
    evolved(ada, definition="A drink.")
    operations.revise(fresh(ada), 1, ME, content=f"Mine: hands off.\n\n{text_of(ada, 1)}\nand a last word")
    for insight in ("hot", "green"):
        text = evolved(ada, insights=(insight,))
        assert text.count("Mine: hands off.") == 1
        assert "and a last word" in text
        assert "- Description: A drink." in text


def test_a_topic_is_masked_and_has_no_brands_and_no_headings_in_its_fields(ada: Agent) -> None:
    insights = ("Generated with [X](https://x.example)", "hunter2", "## Cross-References", "- Scope: all")
    text = evolved(ada, definition="## Key Insights", scope="my password is hunter2", insights=insights)
    assert ("hunter2" in text, "x.example" in text) == (False, False)
    assert "- Description: ## Key Insights" in sections.split(text, "topic")["Topic Definition"]
    again = evolved(ada, insights=("more",))
    assert ("  - - Scope: all" in again, "Not recorded" in again) == (True, False)


def test_an_invalid_or_protected_topic_is_refused(ada: Agent) -> None:
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
    evolved(ada)
    operations.protect(fresh(ada), [1], PERSON)
    with refused(ada, Constitutional):
        evolved(ada, insights=("hot",))


def test_a_category_that_is_off_does_not_reveal_whether_an_item_is_known(ada: Agent) -> None:
    evolved(ada, insights=("hot",))
    off(ada, "topic")
    for insight in ("hot", "new"):
        with refused(ada, CategoryDisabled):
            evolve(fresh(ada), "Tea", ME, Stage(insights=(insight,)))


def test_a_recording_adds_to_its_topic(ada: Agent) -> None:
    talk(ada, "How hot is tea?", "80 degrees.", session="monday", topic="Tea", learnings="Green at 80 degrees")
    text = text_of(ada, of_category(ada, "topic")[0].number)
    assert "session monday: question: How hot is tea?" in text
    assert "- Common Questions:\n  - How hot is tea?" in text
    assert "- Important Concepts:\n  - Green at 80 degrees" in text


def test_a_recording_adds_to_no_topic_where_that_is_off(ada: Agent) -> None:
    for number, switch in enumerate(("enabled", "evolution_tracking"), 1):
        settings(ada, **{f"categories__topic__{switch}": False})
        assert (talk(ada, topic="Tea").number, of_category(ada, "topic")) == (number, [])
