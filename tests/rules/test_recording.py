"""Interactions are recorded as the settings have it: whole, masked, and in silence where they are not (seed 004)."""

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
from tests.rules.talking import PROMPT, RESPONSE, of_category, off, overhear, said, sessions, settings, talk
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, refused, row, says, state

AUTO = {"auto_recording__enabled": True}


# --- the gate


def skips(agent: Agent, reason: str, **values: Any) -> str:
    """It is skipped, leaves nothing, and says so in one line. The log."""
    before = state(agent)
    with logbook.kept() as log:
        assert overhear(agent, **values) == Recorded(skipped=reason)
    assert state(agent) == before
    assert sessions(agent) == []
    told = [line for line in log.records if "palimpsest.recording" in line]
    assert len(told) == 1
    assert reason in told[0]
    return log.text


def test_by_default_nothing_is_recorded_automatically(ada: Agent) -> None:
    log = skips(ada, "recording_off")
    assert PROMPT not in log


def test_what_is_off_or_below_the_threshold_is_skipped(ada: Agent) -> None:
    settings(ada, **AUTO, auto_recording__interaction_threshold="high")
    skips(ada, "below_threshold", prompt="When does the ferry leave?")
    off(ada, "user_interaction", **AUTO)
    skips(ada, "category_off")
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    skips(ada, "memory_off")
    skips(ada, "memory_off", prompt="")  # nothing is even looked at


def test_switched_on_it_records_automatically(ada: Agent) -> None:
    settings(ada, **AUTO)
    found = overhear(ada)
    assert (found.number, found.skipped, found.significance) == (1, None, "medium")
    settings(ada, **AUTO, auto_recording__interaction_threshold="high")
    assert overhear(ada, "No, from now on always use tabs.").number == 2
    settings(ada)
    assert talk(ada, "hi", "hi").number == 3  # who asks needs neither the switch nor the threshold


def test_who_asks_is_told_of_a_closed_switch(ada: Agent) -> None:
    off(ada, "user_interaction")
    with refused(ada, CategoryDisabled):
        talk(ada)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    with refused(ada, MemoryDisabled):
        talk(ada)
    assert sessions(ada) == []


def test_settings_that_change_meanwhile_are_followed(ada: Agent) -> None:
    """The row that was given is older than the change."""
    settings(ada, **AUTO)
    old = fresh(ada)
    rule_changes.change(fresh(ada), PERSON, enabled=False)
    assert record(old, Interaction(PROMPT, RESPONSE), ME).skipped == "memory_off"
    rule_changes.change(fresh(ada), PERSON, enabled=True)
    settings(ada, capture_settings__sensitive_data_masking=False)
    old = fresh(ada)
    settings(ada)
    assert record(old, Interaction("my password is hunter2"), ME, requested=True).masked == 1
    assert "hunter2" not in said(ada, 1)


# --- what is kept


def test_a_recording_is_a_journal_memory_in_sections(ada: Agent) -> None:
    found = talk(
        ada,
        session="monday",
        project="acme/site",
        topic="Tabs",
        context="we spoke of spaces",
        intent="one style",
        effectiveness="good",
        learnings="Ann likes tabs",
        response_seconds=1.5,
        tools=("editor", "shell"),
        metrics="done",
    )
    memory = row(ada, 1)
    assert (memory.kind, memory.category, memory.project) == ("journal", "user_interaction", "acme/site")
    assert says(ada, 1).tags == (
        "session:monday",
        "kind:statement",
        "significance:medium",
        "preserved:whole",
        "topic:tabs",
    )
    assert (found.kind, found.significance) == ("statement", "medium")
    told = sections.split(said(ada, 1), "user_interaction")
    assert list(told) == ["User Prompt", "Agent Response", "Context", "Analysis", "Technical Metadata"]
    assert (unfenced(told["User Prompt"]), unfenced(told["Agent Response"])) == (PROMPT, RESPONSE)
    assert told["Context"] == "- Session: monday\n- Topic: Tabs\n- Previous Context: we spoke of spaces"
    assert told["Technical Metadata"] == "- Response Time: 1.5 s\n- Tools Used: editor, shell\n- Success Metrics: done"
    assert [fact(told["Analysis"], name) for name in ("Kind", "User Intent", "Key Learnings")] == [
        "statement",
        "one style",
        "Ann likes tabs",
    ]


def parted(agent: Agent, number: int | None) -> dict[str, str]:
    return sections.split(said(agent, number), "user_interaction")


def related(agent: Agent, number: int) -> str:
    return parted(agent, number).get("Related Interactions", "")


def test_each_names_the_one_before_and_the_one_after(ada: Agent) -> None:
    talk(ada)
    assert related(ada, 1) == ""
    assert parted(ada, 1)["Analysis"] == ("- Kind: statement\n- Significance: medium")
    assert "Technical Metadata" not in parted(ada, 1)  # of which its file says so
    talk(ada)
    assert related(ada, 1) == "- Follow-up: memory 2"
    assert related(ada, 2) == "- Previous: memory 1"
    assert says(ada, 1).tags == says(ada, 2).tags
    talk(ada, "x" * 15_000)
    assert related(ada, 3) == "- Previous: memory 2\n- Continued In: memory 4"
    talk(ada)
    assert related(ada, 4) == "- Continues: memory 3\n- Follow-up: memory 5"
    assert problems(ada) == []


def test_what_is_protected_or_was_discarded_is_not_made_to_name_the_one_after(ada: Agent) -> None:
    talk(ada)
    operations.protect(fresh(ada), [1], PERSON)
    talk(ada)
    assert related(ada, 1) == ""
    operations.discard(fresh(ada), [2], ME)
    talk(ada)
    assert related(ada, 3) == ""


def test_all_of_one_is_one_edit(ada: Agent) -> None:
    before = last_entry(ada).seq
    talk(ada, "x" * 30_000)
    entry = last_entry(ada)
    assert (entry.seq, entry.operation, entry.detail) == (before + 1, "remembered", {})
    assert problems(ada) == []


def test_what_is_captured_is_set(ada: Agent) -> None:
    rows = [
        ({}, True, True),
        ({"categories__user_interaction__capture_responses": False}, True, False),
        ({"auto_recording__record_all_prompts": False}, False, True),
        ({"auto_recording__record_all_responses": False}, True, False),
    ]
    for changed, has_prompt, has_response in rows:
        settings(ada, **AUTO, **changed)
        kept = said(ada, overhear(ada).number)
        assert (PROMPT in kept, RESPONSE in kept) == (has_prompt, has_response)
    settings(ada, categories__user_interaction__capture_full_prompts=False)
    prompt = unfenced(parted(ada, talk(ada, "word " * 1_000).number)["User Prompt"])
    assert (len(prompt) <= 200, prompt[-1]) == (True, "…")
    settings(ada, categories__user_interaction__include_metadata=False)
    assert "editor" not in said(ada, talk(ada, tools=("editor",)).number)
    settings(ada, capture_settings__sensitive_data_masking=False)
    found = talk(ada, "my password is hunter2")
    assert (found.masked, "hunter2" in said(ada, found.number)) == (0, True)


def test_secrets_are_masked_in_all_that_is_said(ada: Agent) -> None:
    found = talk(
        ada, "my password is hunter2", "hunter2 is noted", context="hunter2", topic="hunter2", tools=("hunter2",)
    )
    kept = [*says(ada, 1).tags, *(said(ada, number) for number in active(ada))]
    assert found.masked >= 4
    assert not any("hunter2" in text for text in kept)


def test_brands_are_left_out(ada: Agent) -> None:
    """Unless a text is nothing else: it is what was said."""
    talk(ada, response="Done.\n\nGenerated with [Some Tool](https://tool.example)")
    assert "Some Tool" not in said(ada, 1)
    talk(
        ada,
        "Generated by GitHub Copilot",
        "Co-Authored-By: Claude <noreply@anthropic.com>",
        context="Made with ChatGPT",
    )
    kept = said(ada, 2)
    assert "Generated by GitHub Copilot" in kept
    assert "noreply@anthropic.com" in kept
    assert "ChatGPT" not in kept


def test_a_name_that_is_a_secret_is_refused(ada: Agent) -> None:
    secret = "ghp_" + "a1B2c3D4" * 4 + "wxyz"
    for name in ("project", "session"):
        with refused(ada, Invalid) as refusal:
            talk(ada, **{name: secret})
        assert (refusal.value.field, secret in str(refusal.value)) == (name, False)


# --- parts


def whole(texts: list[str], section: str) -> str:
    return "".join(unfenced(sections.split(text, "user_interaction").get(section, "")) for text in texts)


def test_a_long_one_goes_on_in_further_memories(ada: Agent) -> None:
    prompt, response = "word one two\n" * 1_500, "word " * 5_000
    found = talk(ada, prompt, response)
    texts = [said(ada, number) for number in found.numbers]
    assert len(texts) > 4
    assert all(len(text) <= MAX_CONTENT for text in texts)
    assert (whole(texts, "User Prompt"), whole(texts, "Agent Response")) == (prompt, response)
    assert f"- Part: 2 of {len(texts)}" in texts[1]
    assert f"- Continues: memory {found.numbers[0]}" in texts[1]
    assert sessions(ada)[0].numbers == list(found.numbers)
    talk(ada)
    assert f"- Previous: memory {found.numbers[-1]}" in said(ada, found.numbers[-1] + 1)


HOSTILE = [
    "## Agent Response",
    "## Context",
    "\\## Analysis",
    "```",
    "~~~~",
    "`",
    "\n",
    "\r",
    "\u2028",
    "\f",
    "- Kind: x",
    " ",
    "ä",
]


@given(
    st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=30).map("".join),
    st.lists(st.sampled_from(HOSTILE), max_size=30).map("".join),
    st.sampled_from([1, 40, 400]),
)
def test_whatever_stands_in_it_is_found_again(prompt: str, response: str, times: int) -> None:
    kept = Captured(Interaction(prompt * times, response * times), "statement", "low", 0, True)
    texts = contents(kept, "monday", previous="memory 3", parts_at=lambda place: f"memory {7 + place}")
    assert all(len(text) <= MAX_CONTENT for text in texts)
    assert whole(texts, "User Prompt") == prompt * times
    assert whole(texts, "Agent Response") == response * times
    assert fact(sections.split(texts[0], "user_interaction")["Context"], "Session") == "monday"


@given(st.text("`~\n x", max_size=40))
def test_no_line_of_a_text_ends_its_fence(text: str) -> None:
    fence, *within, last = fenced(text).split("\n")
    assert fence == last
    assert len(fence) >= 3
    assert not any(fence in line for line in within)


@pytest.mark.parametrize("letter", ["`", "`~" * 50, "\n## Context\n"])
def test_the_longest_of_the_worst_is_stored(ada: Agent, letter: str) -> None:
    text = (letter * 200_000)[:200_000]
    found = talk(ada, text, "")
    assert whole([said(ada, number) for number in found.numbers], "User Prompt") == text


# --- what is refused


def test_what_cannot_be_kept_is_refused_by_its_field(ada: Agent) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
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
    ]
    for values, field in rows:
        with refused(ada, Invalid) as caught:
            talk(ada, **values)
        assert caught.value.field == field
        assert sessions(ada) == []


# --- rollback, privacy, numbers


@pytest.mark.parametrize("first", [True, False])
def test_after_a_rollback_recording_goes_on(ada: Agent, first: bool) -> None:
    before = last_entry(ada).seq
    talk(ada, session="monday", topic="tabs")
    before = before if first else last_entry(ada).seq
    talk(ada, session="monday", topic="tabs", learnings="spaces are gone")
    roll_back(fresh(ada), What.since_entry(before), PERSON)
    found = talk(ada, session="monday", topic="tabs", learnings="tabs are wide")
    assert found.session is not None
    assert found.session.name == "monday"
    [topic] = of_category(ada, "topic")
    assert ("tabs are wide" in said(ada, topic.number), "spaces are gone" in said(ada, topic.number)) == (True, False)
    edited = end_session(fresh(ada), "monday", ME)
    assert edited is not None
    assert ("- Interactions: 1\n" in said(ada, edited.memory.number)) is first
    assert problems(ada) == []


def test_a_refused_one_leaves_nothing(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    talk(ada, session="monday")
    numbers = sessions(ada)[0].numbers

    def fails(*_: Any, **__: Any) -> None:
        raise Invalid("topic", "fails")

    monkeypatch.setattr("memory.recording.topics.evolve_locked", fails)
    with refused(ada, Invalid):
        talk(ada, session="tuesday", topic="tabs")
    assert [(each.name, each.ended_at, each.numbers) for each in sessions(ada)] == [("monday", None, numbers)]


@pytest.mark.parametrize("many", [2, 40])
def test_recording_takes_as_many_queries_however_much_there_is(
    ada: Agent, many: int, django_assert_max_num_queries: Any
) -> None:
    for number in range(many):
        talk(ada, session="monday", topic=f"topic {number}")
    with django_assert_max_num_queries(32):
        talk(ada, session="monday", topic="topic 1", learnings="new")
    with django_assert_max_num_queries(32):
        talk(ada, session="tuesday")
    assert RecordedSession.objects.filter(agent=ada).count() == 2
    assert len(of_category(ada, "session")) == 1


def test_a_topic_that_must_stay_does_not_keep_one_from_being_recorded(ada: Agent) -> None:
    talk(ada, topic="tabs")
    [topic] = of_category(ada, "topic")
    operations.protect(fresh(ada), [topic.number], PERSON)
    before = said(ada, topic.number)
    assert talk(ada, topic="tabs", learnings="new").number == topic.number + 1
    assert said(ada, topic.number) == before
    assert problems(ada) == []


def test_recordings_of_one_are_nobody_elses(ada: Agent, bob: Agent) -> None:
    talk(ada, session="monday")
    talk(bob, session="monday")
    assert len(sessions(bob)) == len(sessions(ada)) == 1
    assert not Memory.objects.filter(agent=bob, number__gt=1).exists()


def test_headings_in_what_was_said_are_kept_as_they_were_said(ada: Agent) -> None:
    for prompt in ("## Context\nread\n## Task\ndo it", "x\n## Agent Response\ny", "```\n## Tags\n```"):
        number = talk(ada, prompt, "## Agent Response\nyes").number
        assert f"\n{prompt}\n" in said(ada, number)
        told = parted(ada, number)
        assert (unfenced(told["User Prompt"]), unfenced(told["Agent Response"])) == (prompt, "## Agent Response\nyes")
