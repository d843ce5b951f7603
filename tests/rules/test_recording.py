"""Recording of interactions: what the settings allow, what is stored, and what is refused (seed 004)."""

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.agents import rule_changes
from memory.errors import Invalid
from memory.markdown import sections
from memory.markdown.sections import fact
from memory.models import Agent, RecordedSession
from memory.policy import settings_document
from memory.policy.validation import MAX_CONTENT
from memory.recording.interactions import (
    KINDS,
    LEVELS,
    Captured,
    Interaction,
    contents,
    divided,
    is_worth_recording,
    kind_of,
    significance,
    unfenced,
)
from memory.recording.recorder import Recorded, prepare, record
from memory.recording.sessions import end_session
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from tests.privacy import logbook
from tests.rules.recordings import PROMPT, RESPONSE, auto_record, of_category, sessions, settings, talk, text_of
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, refused, row, says, state

AUTO = {"auto_recording__enabled": True}
TOKEN = "ghp_" + "a1B2c3D4" * 4 + "wxyz"


def parts_of(agent: Agent, number: int | None) -> dict[str, str]:
    return sections.split(text_of(agent, number), "user_interaction")


def related(agent: Agent, number: int) -> str:
    return parts_of(agent, number).get("Related Interactions", "")


def test_by_default_nothing_is_recorded_automatically(ada: Agent) -> None:
    """One line of the log has the reason, and not the prompt."""
    before = state(ada)
    with logbook.kept() as log:
        assert auto_record(ada) == Recorded(skipped="recording_off")
    assert (state(ada), sessions(ada)) == (before, [])
    [line] = [line for line in log.records if "palimpsest.recording" in line]
    assert ("recording_off" in line, PROMPT in log.text) == (True, False)


def test_switched_on_it_records_automatically(ada: Agent) -> None:
    settings(ada, **AUTO)
    found = auto_record(ada)
    assert (found.number, found.skipped, found.significance) == (1, None, "medium")
    settings(ada, **AUTO, auto_recording__interaction_threshold="high")
    assert auto_record(ada, "No, from now on always use tabs.").number == 2
    settings(ada)
    assert talk(ada, "hi", "hi").number == 3  # a request needs neither the switch nor the threshold


def test_the_current_settings_count_even_if_the_agents_row_is_stale(ada: Agent) -> None:
    settings(ada, **AUTO)
    stale = fresh(ada)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    assert record(stale, Interaction(PROMPT, RESPONSE), ME).skipped == "memory_off"
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    stale = settings(ada, capture_settings__sensitive_data_masking=False)
    prepared = prepare(stale, Interaction("my password is hunter2"), requested=True)
    settings(ada)
    assert prepared.keep(fresh(ada), ME).masked == 1
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


def test_recordings_link_to_their_neighbours_unless_protected_or_discarded(ada: Agent) -> None:
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
    operations.protect(fresh(ada), [5], PERSON)
    talk(ada)
    operations.discard(fresh(ada), [6], ME)
    talk(ada)
    assert (related(ada, 5), related(ada, 7)) == ("- Previous: memory 4", "")
    assert problems(ada) == []


def test_settings_choose_what_is_captured(ada: Agent) -> None:
    rows = [
        ({}, True, True),
        ({"categories__user_interaction__capture_responses": False}, True, False),
        ({"auto_recording__record_all_prompts": False}, False, True),
        ({"auto_recording__record_all_responses": False}, True, False),
    ]
    for changed, has_prompt, has_response in rows:
        settings(ada, **AUTO, **changed)
        text = text_of(ada, auto_record(ada).number)
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
    captured = replace(captured, parts=divided(captured))
    texts = contents(captured, "monday", previous="memory 3", parts_at=lambda place: f"memory {7 + place}")
    assert all(len(text) <= MAX_CONTENT for text in texts)
    assert joined(texts, "User Prompt") == prompt * times
    assert joined(texts, "Agent Response") == response * times
    assert fact(sections.split(texts[0], "user_interaction")["Context"], "Session") == "monday"


@pytest.mark.parametrize("letter", ["`", "`~" * 50, "\n## Context\n"])
def test_the_longest_hostile_prompt_is_stored(ada: Agent, letter: str) -> None:
    text = (letter * 200_000)[:200_000]
    found = talk(ada, text, "")
    assert joined([text_of(ada, number) for number in found.numbers], "User Prompt") == text


INVALID: dict[str, list[Any]] = {
    "prompt": [" \n", "a\0b", "x" * 200_001],
    "response": ["a\0b"],
    "session": ["mon day", TOKEN],
    "project": ["../x", TOKEN],
    "topic": ["x" * 59, "…"],
    "context": ["x" * 1_001],
    "tools": [("x",) * 21, ("x" * 65,)],
    "response_seconds": [-1.0],
}


@pytest.mark.parametrize("field", INVALID)
def test_an_invalid_field_is_refused_by_name(ada: Agent, field: str) -> None:
    for wrong in INVALID[field]:
        with refused(ada, Invalid) as caught:
            talk(ada, **{field: wrong})
        assert (caught.value.field, sessions(ada), TOKEN in str(caught.value)) == (field, [], False)


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
    roll_back(fresh(ada), What("since_entry", before), PERSON)
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
    with django_assert_max_num_queries(33):
        talk(ada, session="monday", topic="topic 1", learnings="new")
    with django_assert_max_num_queries(36):
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


def test_the_kind_follows_from_the_prompt_and_the_response() -> None:
    rows = {
        ("When does the ferry leave?", ""): "question",
        ("The ferry leaves at two, right?", ""): "question",
        ("Write a letter to Ann.", ""): "instruction",
        ("Can you rename the function?", ""): "instruction",
        ("Could you tell me why it fails?", ""): "question",
        ("Thanks, that helped!", ""): "feedback",
        ("No, the ferry leaves at 15:00.", ""): "correction",
        ("That's wrong. Can you look again?", ""): "correction",
        ("To clarify: I mean the night ferry.", ""): "clarification",
        ("Book the boat", "Do you mean the ferry or the yacht?"): "clarification",
        ("The ferry was late today.", "I see."): "statement",
        ("", ""): "statement",
    }
    assert {texts: kind_of(*texts) for texts in rows} == rows


def test_the_significance_follows_from_the_prompt_and_the_response() -> None:
    rows = {
        ("When does the ferry leave?", "At two."): "low",
        ("We decided on tea.", "Fine."): "medium",
        ("What is it?", "x" * 2_000): "medium",
        ("Fix this:\n```\nx = 1\n```", "Done."): "medium",
        ("Book it for Ann with Bob at 14:30 on 2026-11-22.", "Done."): "low",
        ("Please book it for Ann with Bob at 14:30 on 2026-11-22.", "Done."): "medium",
        ("No, from now on always use tabs.", "I will."): "high",
        ("Please remember that Ann prefers tea to coffee, at 14:30 and 16:15.", "Noted."): "high",
    }
    assert {texts: significance(*texts) for texts in rows} == rows


LOW, MEDIUM, HIGH = "When does the ferry leave?", "We decided on tea, Ann.", "No, from now on always use tabs."


def is_recorded(prompt: str, response: str = "", threshold: str = "low", minimum: int = 10) -> bool:
    recording = {"interaction_threshold": threshold, "min_interaction_length": minimum}
    rules = settings_document.checked({"memory_rules": {"auto_recording": recording}})
    return is_worth_recording(rules, prompt, response)


def test_the_threshold_and_the_minimum_length_of_the_prompt_are_settings() -> None:
    for threshold, expected in (("low", {LOW, MEDIUM, HIGH}), ("medium", {MEDIUM, HIGH}), ("high", {HIGH})):
        assert {prompt for prompt in (LOW, MEDIUM, HIGH) if is_recorded(prompt, threshold=threshold)} == expected
    assert is_recorded(LOW, minimum=26)
    assert not is_recorded(LOW, "x" * 100, minimum=27)
    assert not is_recorded(LOW + " " * 10, minimum=27)
    by_default = {prompt: is_worth_recording({}, prompt, "x" * 500) for prompt in (MEDIUM, LOW, "decided!")}
    assert by_default == {MEDIUM: True, LOW: False, "decided!": False}


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_interaction_has_a_kind_and_a_significance(prompt: str, response: str) -> None:
    assert kind_of(prompt, response) in KINDS
    assert significance(prompt, response) in LEVELS


def test_no_text_takes_long() -> None:
    for piece in ("we will ", "1-", "return ", "a ", "    "):
        text = piece * (200_000 // len(piece))
        began = time.process_time()
        significance(text, text)
        assert time.process_time() - began < 3, piece
