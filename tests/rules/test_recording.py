"""Recording of interactions: what the settings allow, what is stored, and what is refused (seed 004)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.agents import rule_changes
from memory.errors import CategoryDisabled, Invalid, MemoryDisabled
from memory.markdown import sections
from memory.markdown.sections import fact
from memory.models import Agent, Memory, RecordedSession
from memory.policy.validation import MAX_CONTENT
from memory.recording.interactions import Captured, Interaction, contents, fenced, unfenced
from memory.recording.recorder import Recorded, record
from memory.recording.sessions import end_session
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from tests.privacy import logbook
from tests.rules.talking import (
    PROMPT,
    RESPONSE,
    of_category,
    off,
    record_automatically,
    sessions,
    settings,
    talk,
    text_of,
)
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, refused, row, says, state

AUTO = {"auto_recording__enabled": True}


def parts_of(agent: Agent, number: int | None) -> dict[str, str]:
    return sections.split(text_of(agent, number), "user_interaction")


def related(agent: Agent, number: int) -> str:
    return parts_of(agent, number).get("Related Interactions", "")


def assert_skipped(agent: Agent, reason: str, **values: Any) -> None:
    """The recording is skipped and stores nothing. One line of the log has the reason, and not the prompt."""
    before = state(agent)
    with logbook.kept() as log:
        assert record_automatically(agent, **values) == Recorded(skipped=reason)
    assert (state(agent), sessions(agent)) == (before, [])
    [line] = [line for line in log.records if "palimpsest.recording" in line]
    assert reason in line
    assert PROMPT not in log.text


def test_by_default_nothing_is_recorded_automatically(ada: Agent) -> None:
    assert_skipped(ada, "recording_off")


def test_an_interaction_is_skipped_if_a_switch_is_off_or_it_is_below_the_threshold(ada: Agent) -> None:
    settings(ada, **AUTO, auto_recording__interaction_threshold="high")
    assert_skipped(ada, "below_threshold", prompt="When does the ferry leave?")
    off(ada, "user_interaction", **AUTO)
    assert_skipped(ada, "category_off")
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    assert_skipped(ada, "memory_off")
    assert_skipped(ada, "memory_off", prompt="")  # an invalid prompt is not even validated


def test_switched_on_it_records_automatically(ada: Agent) -> None:
    settings(ada, **AUTO)
    found = record_automatically(ada)
    assert (found.number, found.skipped, found.significance) == (1, None, "medium")
    settings(ada, **AUTO, auto_recording__interaction_threshold="high")
    assert record_automatically(ada, "No, from now on always use tabs.").number == 2
    settings(ada)
    assert talk(ada, "hi", "hi").number == 3  # a request needs neither the switch nor the threshold


def test_a_requested_recording_is_refused_while_a_switch_is_off(ada: Agent) -> None:
    off(ada, "user_interaction")
    with refused(ada, CategoryDisabled):
        talk(ada)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    with refused(ada, MemoryDisabled):
        talk(ada)
    assert sessions(ada) == []


def test_the_current_settings_count_even_if_the_agents_row_is_stale(ada: Agent) -> None:
    settings(ada, **AUTO)
    stale = fresh(ada)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    assert record(stale, Interaction(PROMPT, RESPONSE), ME).skipped == "memory_off"
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    stale = settings(ada, capture_settings__sensitive_data_masking=False)
    settings(ada)
    assert record(stale, Interaction("my password is hunter2"), ME, requested=True).masked == 1
    assert "hunter2" not in text_of(ada, 1)


def test_a_recording_is_a_journal_memory_in_sections(ada: Agent) -> None:
    values = {"session": "monday", "project": "acme/site", "topic": "Tabs", "context": "we spoke of spaces"}
    values |= {"intent": "one style", "effectiveness": "good", "learnings": "Ann likes tabs", "metrics": "done"}
    found = talk(ada, **values, response_seconds=1.5, tools=("editor", "shell"))
    memory = row(ada, 1)
    assert (memory.kind, memory.category, memory.project) == ("journal", "user_interaction", "acme/site")
    tags = ("session:monday", "kind:statement", "significance:medium", "preserved:whole", "topic:tabs")
    assert says(ada, 1).tags == tags
    assert (found.kind, found.significance) == ("statement", "medium")
    parts = parts_of(ada, 1)
    assert list(parts) == ["User Prompt", "Agent Response", "Context", "Analysis", "Technical Metadata"]
    assert (unfenced(parts["User Prompt"]), unfenced(parts["Agent Response"])) == (PROMPT, RESPONSE)
    assert parts["Context"] == "- Session: monday\n- Topic: Tabs\n- Previous Context: we spoke of spaces"
    assert parts["Technical Metadata"] == "- Response Time: 1.5 s\n- Tools Used: editor, shell\n- Success Metrics: done"
    facts = [fact(parts["Analysis"], name) for name in ("Kind", "User Intent", "Key Learnings")]
    assert facts == ["statement", "one style", "Ann likes tabs"]


def test_recordings_link_to_the_previous_and_the_next_one(ada: Agent) -> None:
    talk(ada)
    assert related(ada, 1) == ""
    assert parts_of(ada, 1)["Analysis"] == "- Kind: statement\n- Significance: medium"
    assert "Technical Metadata" not in parts_of(ada, 1)
    talk(ada)
    assert (related(ada, 1), related(ada, 2)) == ("- Follow-up: memory 2", "- Previous: memory 1")
    assert says(ada, 1).tags == says(ada, 2).tags
    talk(ada, "x" * 15_000)
    assert related(ada, 3) == "- Previous: memory 2\n- Continued In: memory 4"
    talk(ada)
    assert related(ada, 4) == "- Continues: memory 3\n- Follow-up: memory 5"
    assert problems(ada) == []


def test_protected_and_discarded_recordings_get_no_links(ada: Agent) -> None:
    talk(ada)
    operations.protect(fresh(ada), [1], PERSON)
    talk(ada)
    assert related(ada, 1) == ""
    operations.discard(fresh(ada), [2], ME)
    talk(ada)
    assert related(ada, 3) == ""


def test_settings_choose_what_is_captured(ada: Agent) -> None:
    rows = [
        ({}, True, True),
        ({"categories__user_interaction__capture_responses": False}, True, False),
        ({"auto_recording__record_all_prompts": False}, False, True),
        ({"auto_recording__record_all_responses": False}, True, False),
    ]
    for changed, has_prompt, has_response in rows:
        settings(ada, **AUTO, **changed)
        text = text_of(ada, record_automatically(ada).number)
        assert (PROMPT in text, RESPONSE in text) == (has_prompt, has_response)
    settings(ada, categories__user_interaction__capture_full_prompts=False)
    prompt = unfenced(parts_of(ada, talk(ada, "word " * 1_000).number)["User Prompt"])
    assert (len(prompt) <= 200, prompt[-1]) == (True, "…")
    settings(ada, categories__user_interaction__include_metadata=False)
    assert "editor" not in text_of(ada, talk(ada, tools=("editor",)).number)
    settings(ada, capture_settings__sensitive_data_masking=False)
    found = talk(ada, "my password is hunter2")
    assert (found.masked, "hunter2" in text_of(ada, found.number)) == (0, True)


def test_secrets_are_masked_in_all_fields(ada: Agent) -> None:
    values = {"context": "hunter2", "topic": "hunter2", "tools": ("hunter2",)}
    found = talk(ada, "my password is hunter2", "hunter2 is noted", **values)
    assert found.masked >= 4
    texts = [*says(ada, 1).tags, *(text_of(ada, number) for number in active(ada))]
    assert not any("hunter2" in text for text in texts)


def test_brands_are_left_out(ada: Agent) -> None:
    """A prompt or response that consists of a brand only is kept."""
    talk(ada, response="Done.\n\nGenerated with [Some Tool](https://tool.example)")
    assert "Some Tool" not in text_of(ada, 1)
    prompt, response = "Generated by GitHub Copilot", "Co-Authored-By: Claude <noreply@anthropic.com>"
    talk(ada, prompt, response, context="Made with ChatGPT")
    text = text_of(ada, 2)
    assert (prompt in text, response in text, "ChatGPT" in text) == (True, True, False)


def joined(texts: list[str], section: str) -> str:
    return "".join(unfenced(sections.split(text, "user_interaction").get(section, "")) for text in texts)


def test_a_long_interaction_is_stored_in_several_memories_by_one_edit(ada: Agent) -> None:
    before = last_entry(ada).seq
    prompt, response = "word one two\n" * 1_500, "word " * 5_000
    found = talk(ada, prompt, response)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.detail) == (before + 1, "remembered", {})
    texts = [text_of(ada, number) for number in found.numbers]
    assert len(texts) > 4
    assert all(len(text) <= MAX_CONTENT for text in texts)
    assert (joined(texts, "User Prompt"), joined(texts, "Agent Response")) == (prompt, response)
    assert f"- Part: 2 of {len(texts)}" in texts[1]
    assert f"- Continues: memory {found.numbers[0]}" in texts[1]
    assert sessions(ada)[0].numbers == list(found.numbers)
    talk(ada)
    assert f"- Previous: memory {found.numbers[-1]}" in text_of(ada, found.numbers[-1] + 1)
    assert problems(ada) == []


HOSTILE = ["## Agent Response", "## Context", "\\## Analysis", "```", "~~~~", "`", "\n", "\r", "\u2028", "\f"]
HOSTILE += ["- Kind: x", " ", "ä"]


@given(
    st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=30).map("".join),
    st.lists(st.sampled_from(HOSTILE), max_size=30).map("".join),
    st.sampled_from([1, 40, 400]),
)
def test_any_prompt_and_response_can_be_read_back(prompt: str, response: str, times: int) -> None:
    captured = Captured(Interaction(prompt * times, response * times), "statement", "low", 0, True)
    texts = contents(captured, "monday", previous="memory 3", parts_at=lambda place: f"memory {7 + place}")
    assert all(len(text) <= MAX_CONTENT for text in texts)
    assert joined(texts, "User Prompt") == prompt * times
    assert joined(texts, "Agent Response") == response * times
    assert fact(sections.split(texts[0], "user_interaction")["Context"], "Session") == "monday"


@given(st.text("`~\n x", max_size=40))
def test_no_line_of_a_text_ends_its_fence(text: str) -> None:
    fence, *within, last = fenced(text).split("\n")
    assert fence == last
    assert len(fence) >= 3
    assert not any(fence in line for line in within)


@pytest.mark.parametrize("letter", ["`", "`~" * 50, "\n## Context\n"])
def test_the_longest_hostile_prompt_is_stored(ada: Agent, letter: str) -> None:
    text = (letter * 200_000)[:200_000]
    found = talk(ada, text, "")
    assert joined([text_of(ada, number) for number in found.numbers], "User Prompt") == text


def test_headings_in_a_prompt_or_response_are_stored_unchanged(ada: Agent) -> None:
    response = "## Agent Response\nyes"
    for prompt in ("## Context\nread\n## Task\ndo it", "x\n## Agent Response\ny", "```\n## Tags\n```"):
        number = talk(ada, prompt, response).number
        assert f"\n{prompt}\n" in text_of(ada, number)
        parts = parts_of(ada, number)
        assert (unfenced(parts["User Prompt"]), unfenced(parts["Agent Response"])) == (prompt, response)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"prompt": " \n"}, "prompt"),
        ({"prompt": "a\0b"}, "prompt"),
        ({"prompt": "x" * 200_001}, "prompt"),
        ({"response": "a\0b"}, "response"),
        ({"session": "mon day"}, "session"),
        ({"project": "../x"}, "project"),
        ({"topic": "x" * 59}, "topic"),
        ({"topic": "…"}, "topic"),
        ({"context": "x" * 1_001}, "context"),
        ({"tools": ("x",) * 21}, "tools"),
        ({"tools": ("x" * 65,)}, "tools"),
        ({"response_seconds": -1.0}, "response_seconds"),
        ({"project": "ghp_" + "a1B2c3D4" * 4 + "wxyz"}, "project"),
        ({"session": "ghp_" + "a1B2c3D4" * 4 + "wxyz"}, "session"),
    ],
)
def test_an_invalid_field_is_refused_by_name(ada: Agent, values: dict[str, Any], field: str) -> None:
    with refused(ada, Invalid) as caught:
        talk(ada, **values)
    assert (caught.value.field, sessions(ada), "ghp_" in str(caught.value)) == (field, [], False)


def test_a_refused_recording_leaves_sessions_unchanged(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    talk(ada, session="monday")
    numbers = sessions(ada)[0].numbers

    def fails(*_: Any, **__: Any) -> None:
        raise Invalid("topic", "fails")

    monkeypatch.setattr("memory.recording.topics.evolve_locked", fails)
    with refused(ada, Invalid):
        talk(ada, session="tuesday", topic="tabs")
    assert [(each.name, each.ended_at, each.numbers) for each in sessions(ada)] == [("monday", None, numbers)]


@pytest.mark.parametrize("first", [True, False])
def test_recording_continues_after_a_rollback(ada: Agent, first: bool) -> None:
    before = last_entry(ada).seq
    talk(ada, session="monday", topic="tabs")
    before = before if first else last_entry(ada).seq
    talk(ada, session="monday", topic="tabs", learnings="spaces are gone")
    roll_back(fresh(ada), What.since_entry(before), PERSON)
    found = talk(ada, session="monday", topic="tabs", learnings="tabs are wide")
    assert found.session is not None
    assert found.session.name == "monday"
    [topic] = of_category(ada, "topic")
    text = text_of(ada, topic.number)
    assert ("tabs are wide" in text, "spaces are gone" in text) == (True, False)
    edited = end_session(fresh(ada), "monday", ME)
    assert edited is not None
    assert ("- Interactions: 1\n" in text_of(ada, edited.memory.number)) is first
    assert problems(ada) == []


@pytest.mark.parametrize("count", [2, 40])
def test_recording_takes_the_same_queries_however_many_records_exist(
    ada: Agent, count: int, django_assert_max_num_queries: Any
) -> None:
    for number in range(count):
        talk(ada, session="monday", topic=f"topic {number}")
    with django_assert_max_num_queries(32):
        talk(ada, session="monday", topic="topic 1", learnings="new")
    with django_assert_max_num_queries(32):
        talk(ada, session="tuesday")
    assert RecordedSession.objects.filter(agent=ada).count() == 2
    assert len(of_category(ada, "session")) == 1


def test_a_protected_topic_does_not_prevent_recording(ada: Agent) -> None:
    talk(ada, topic="tabs")
    [topic] = of_category(ada, "topic")
    operations.protect(fresh(ada), [topic.number], PERSON)
    before = text_of(ada, topic.number)
    assert talk(ada, topic="tabs", learnings="new").number == topic.number + 1
    assert text_of(ada, topic.number) == before
    assert problems(ada) == []


def test_two_agents_have_separate_recordings(ada: Agent, bob: Agent) -> None:
    for agent in (ada, bob):
        talk(agent, session="monday")
    assert len(sessions(bob)) == len(sessions(ada)) == 1
    assert not Memory.objects.filter(agent=bob, number__gt=1).exists()
