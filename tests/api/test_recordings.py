"""Recording over the API: it is kept by the agent's own side alone, once, and never said again."""

from __future__ import annotations

from typing import Any

import pytest

from memory.agents import rule_changes
from memory.masking.scanner import masked_together
from memory.models import Agent, Creation
from memory.recording import interactions, recorder, texts, topics
from memory.writing import edits
from tests.api.calling import Answer, Caller
from tests.conftest import House
from tests.privacy.marker import unique
from tests.rules.talking import PROMPT, of_category, off, said, sessions, settings
from tests.steps import PERSON, active, fresh, problems, state


def record(runtime: Caller, key: str = "", **body: Any) -> Answer:
    headers = {"idempotency_key": key} if key else {}
    return runtime.post("recordings", {"prompt": PROMPT, "response": "I will.", "requested": True} | body, **headers)


def test_what_is_asked_for_is_recorded(runtime: Caller, house: House) -> None:
    answer = record(runtime, session="monday", topic="Tabs", tools=["editor"], response_seconds=2)
    assert (answer.status, answer.json) == (
        201,
        {"id": 1, "session": "monday", "kind": "statement", "significance": "medium", "masked": 0, "skipped": None}
        | {"file": None, "no_file": "no vault: run manage.py project init acme/ada --vault"},
    )
    assert "- Tools Used: editor" in said(house.ada, 1)
    assert problems(house.ada) == []


def test_nothing_that_was_said_is_answered(runtime: Caller, house: House) -> None:
    word = unique()
    answers = [record(runtime, prompt=f"my password is {word}9", response=word, session="monday", topic=word)]
    answers.append(runtime.post("recorded-sessions/monday/end", {"goal": word}))
    answers.append(record(runtime, prompt=f"{word}\0"))
    answers.append(record(runtime, requested=False, prompt=word))
    assert [answer.status for answer in answers] == [201, 200, 422, 200]
    assert answers[0].json["masked"] >= 1
    assert not any(word.encode() in answer.content for answer in answers)


SKIPPED = {"id": None, "session": None, "kind": None, "significance": None, "masked": 0, "file": None, "no_file": None}


def test_what_a_closed_switch_skips_is_told_in_silence(runtime: Caller, house: House) -> None:
    answer = record(runtime, requested=False)
    assert (answer.status, answer.json) == (200, SKIPPED | {"skipped": "recording_off"})
    settings(house.ada, auto_recording__enabled=True)
    assert record(runtime, requested=False, prompt="When?").json["skipped"] == "below_threshold"
    assert record(runtime, requested=False).status == 201
    off(house.ada, "user_interaction")
    assert record(runtime, requested=False).json["skipped"] == "category_off"
    rule_changes.change(fresh(house.ada), PERSON, enabled=False)
    assert record(runtime, requested=False).json["skipped"] == "memory_off"
    assert active(house.ada) == [1]


@pytest.mark.parametrize("code", ["category_disabled", "memory_disabled"])
def test_who_asks_is_told_what_to_ask_a_person(runtime: Caller, house: House, code: str) -> None:
    off(house.ada, "user_interaction")
    rule_changes.change(fresh(house.ada), PERSON, enabled=code == "category_disabled")
    answer = record(runtime)
    assert (answer.status, answer.codes, answer.json["prompt"]) == (409, [code], rule_changes.QUESTION)


def test_one_is_recorded_once_for_each_key(runtime: Caller, house: House) -> None:
    first = record(runtime, key="one", prompt="Thanks, my password is hunter2!")
    again = record(runtime, key="one", prompt="Thanks, my password is hunter2!")
    assert (first.status, again.status) == (201, 201)
    assert first.json == again.json
    assert (first.json["kind"], first.json["masked"]) == ("feedback", 1)
    assert active(house.ada) == [1]
    assert record(runtime, key="one", prompt="other").codes == ["idempotency_key_reused"]


@pytest.fixture
def masking(monkeypatch: pytest.MonkeyPatch, house: House) -> list[bool]:
    """For each time that a text is masked, whether the agent was locked meanwhile."""
    found: list[bool] = []

    def masked(texts: list[str]) -> tuple[list[str], int]:
        found.append(house.ada.pk in edits._locked_here.get())
        return masked_together(texts)

    for module in (interactions, topics, texts):
        monkeypatch.setattr(module, "masked_together", masked)
    return found


@pytest.mark.parametrize("key", ["", "one"])
def test_nothing_is_masked_while_the_agent_is_locked(
    runtime: Caller, house: House, masking: list[bool], key: str
) -> None:
    record(runtime, key=key, session="monday", topic="Tabs", learnings="Ann likes tabs")
    runtime.post("recorded-sessions/monday/end", {"goal": "one style"})
    assert masking
    assert not any(masking)


def test_a_repeat_masks_nothing(runtime: Caller, masking: list[bool], house: House) -> None:
    first = record(runtime, key="one")
    masking.clear()
    rule_changes.change(fresh(house.ada), PERSON, enabled=False)
    assert record(runtime, key="one").json == first.json
    assert masking == []


def test_what_is_kept_of_a_key_says_nothing(runtime: Caller, house: House) -> None:
    record(runtime, key="hunter2", prompt="my password is hunter2")
    [made] = Creation.objects.filter(agent=house.ada).values()
    assert "hunter2" not in str(made)
    assert made["numbers"][0] == 1


def test_rules_that_change_meanwhile_are_followed(
    runtime: Caller, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(house.ada, capture_settings__sensitive_data_masking=False)
    captured = recorder.capture

    def changes(*given: Any, **named: Any) -> Any:
        kept = captured(*given, **named)
        if not kept.masked:
            settings(house.ada)
        return kept

    monkeypatch.setattr(recorder, "capture", changes)
    assert record(runtime, key="one", prompt="my password is hunter2").json["masked"] == 1
    assert "hunter2" not in said(house.ada, 1)


def test_what_was_skipped_uses_no_key_up(runtime: Caller, house: House) -> None:
    assert record(runtime, key="one", requested=False).status == 200
    settings(house.ada, auto_recording__enabled=True)
    assert record(runtime, key="one", requested=False).status == 201


def test_a_session_is_ended(runtime: Caller, house: House) -> None:
    record(runtime, session="monday")
    answer = runtime.post("recorded-sessions/monday/end", {"goal": "one style", "satisfaction": "high"})
    why = "no vault: run manage.py project init acme/ada --vault"
    assert (answer.status, answer.json) == (200, {"id": 2, "file": None, "no_file": why})
    assert "- Session Goal: one style" in said(house.ada, 2)
    assert "- User Satisfaction: high" in said(house.ada, 2)
    for body in ({}, {"goal": "more"}):
        again = runtime.post("recorded-sessions/monday/end", body)
        assert (again.status, again.codes) == (409, ["not_open"])
    assert len(of_category(house.ada, "session")) == 1


def test_of_sessions_with_one_name_the_project_is_said(runtime: Caller, house: House) -> None:
    for project in ("shop", "site"):
        record(runtime, session="monday", project=project)
    unsaid = runtime.post("recorded-sessions/monday/end", {})
    assert (unsaid.status, unsaid.json["errors"][0]["attr"]) == (422, "project")
    assert runtime.post("recorded-sessions/monday/end", {"project": "shop"}).json["id"] == 3


def test_nobody_elses_session_is_there(runtime: Caller, stranger: Caller, acme: Caller, house: House) -> None:
    record(runtime, session="monday")
    assert stranger.post("recorded-sessions/monday/end", {}).status == 404
    assert acme.post("recorded-sessions/monday/end", {}).status == 403
    assert acme.post("recordings", {"prompt": "x"}).status == 403
    assert sessions(house.ada)[0].ended_at is None


def test_what_is_no_recording_is_refused(runtime: Caller, ada: Agent) -> None:
    for body in (
        {"prompt": ""},
        {"prompt": None},
        {"prompt": "x" * 200_001},
        {"response": 5},
        {"session": "a b"},
        {"project": "../x"},
        {"topic": "…"},
        {"tools": "editor"},
        {"tools": ["x"] * 21},
        {"response_seconds": -1},
        {"response_seconds": "soon"},
        {"requested": "perhaps"},
        {"more": 1},
    ):
        assert record(runtime, **body).status == 422, body
        assert active(ada) == [], body


def test_a_refused_end_leaves_all_as_it_was(runtime: Caller, ada: Agent) -> None:
    record(runtime, session="monday")
    before = state(ada)
    assert runtime.post("recorded-sessions/monday/end", {"goal": "x" * 501}).status == 422
    assert runtime.post("recorded-sessions/a%20b/end", {}).status == 422
    assert state(ada) == before
    assert sessions(ada)[0].ended_at is None


def test_with_the_category_off_none_is_ended(runtime: Caller, ada: Agent) -> None:
    record(runtime, session="monday")
    off(ada, "session")
    refused = runtime.post("recorded-sessions/monday/end", {})
    assert (refused.status, refused.codes) == (409, ["category_disabled"])
    assert sessions(ada)[0].ended_at is None
