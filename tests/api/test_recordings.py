"""Recording over the API: only the agent's side records, once per key, and no response repeats the content."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from memory.agents import rule_changes
from memory.models import Agent, Creation
from memory.recording import interactions, texts, topics
from memory.recording import sessions as recorded_sessions
from memory.writing import edits
from tests.api.calling import Answer, Caller
from tests.conftest import House
from tests.privacy.marker import unique
from tests.rules.recordings import PROMPT, of_category, off, said, sessions, settings
from tests.steps import PERSON, active, fresh, problems, state

NO_VAULT = "the agent has no vault. To create one, run manage.py project init acme/ada --vault"
SKIPPED = {"id": None, "session": None, "kind": None, "significance": None, "masked": 0, "file": None, "no_file": None}


def record(runtime: Caller, key: str = "", **body: Any) -> Answer:
    headers = {"idempotency_key": key} if key else {}
    return runtime.post("recordings", {"prompt": PROMPT, "response": "I will.", "requested": True} | body, **headers)


def end(runtime: Caller, **body: Any) -> Answer:
    return runtime.post("recorded-sessions/monday/end", body)


def test_an_interaction_is_recorded(runtime: Caller, house: House) -> None:
    answer = record(runtime, session="monday", topic="Tabs", tools=["editor"], response_seconds=2)
    result = {"id": 1, "session": "monday", "kind": "statement", "significance": "medium", "masked": 0, "skipped": None}
    assert (answer.status, answer.json) == (201, result | {"file": None, "no_file": NO_VAULT})
    assert "- Tools Used: editor" in said(house.ada, 1)
    assert problems(house.ada) == []


def test_no_response_repeats_the_content(runtime: Caller, house: House) -> None:
    word = unique()
    answers = [record(runtime, prompt=f"my password is {word}9", response=word, session="monday", topic=word)]
    answers += [end(runtime, goal=word), record(runtime, prompt=f"{word}\0")]
    answers += [record(runtime, requested=False, prompt=word)]
    assert [answer.status for answer in answers] == [201, 200, 422, 200]
    assert answers[0].json["masked"] >= 1
    assert not any(word.encode() in answer.content for answer in answers)


def test_an_automatic_recording_is_skipped_with_a_reason(runtime: Caller, house: House) -> None:
    answer = record(runtime, "one", requested=False)
    assert (answer.status, answer.json) == (200, SKIPPED | {"skipped": "recording_off"})
    settings(house.ada, auto_recording__enabled=True)
    assert record(runtime, requested=False, prompt="When?").json["skipped"] == "below_threshold"
    assert record(runtime, "one", requested=False).status == 201, "a skipped recording does not use up the key"
    off(house.ada, "user_interaction")
    assert record(runtime, requested=False).json["skipped"] == "category_off"
    assert record(runtime).codes == ["category_disabled"], "a requested recording is refused"
    rule_changes.change(fresh(house.ada), PERSON, enabled=False)
    assert record(runtime, requested=False).json["skipped"] == "memory_off"
    assert active(house.ada) == [1]


def test_an_idempotency_key_records_once_and_stores_no_text(runtime: Caller, house: House) -> None:
    first = record(runtime, "hunter2", prompt="Thanks, my password is hunter2!")
    again = record(runtime, "hunter2", prompt="Thanks, my password is hunter2!")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert (first.json["kind"], first.json["masked"]) == ("feedback", 1)
    assert active(house.ada) == [1]
    assert record(runtime, "hunter2", prompt="other").codes == ["idempotency_key_reused"]
    [stored] = Creation.objects.filter(agent=house.ada).values()
    assert ("hunter2" in str(stored), stored["numbers"][0]) == (False, 1)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, house: House) -> list[bool]:
    """For each call of a slow function, whether the agent was locked."""
    found: list[bool] = []

    def noting(function: Callable[[Any], Any], given: Any) -> Any:
        found.append(house.ada.pk in edits._locked_here.get())
        return function(given)

    slow = [(module, "masked_together") for module in (interactions, topics, texts)]
    for module, name in (*slow, (interactions, "divided"), (recorded_sessions, "quotable")):
        monkeypatch.setattr(module, name, partial(noting, getattr(module, name)))
    return found


@pytest.mark.parametrize("key", ["", "one"])
def test_slow_work_locks_nothing_and_is_not_repeated(runtime: Caller, house: House, slow: list[bool], key: str) -> None:
    first = record(runtime, key, session="monday", topic="Tabs", learnings="Ann likes tabs")
    record(runtime, session="tuesday")
    record(runtime, session="monday")
    end(runtime, goal="one style")
    assert set(slow) == {False}
    if key:
        slow.clear()
        rule_changes.change(fresh(house.ada), PERSON, enabled=False)
        again = record(runtime, key, session="monday", topic="Tabs", learnings="Ann likes tabs")
        assert (again.json, slow) == (first.json, [])


def test_a_session_is_ended_once(runtime: Caller, house: House) -> None:
    record(runtime, session="monday")
    answer = end(runtime, goal="one style", satisfaction="high")
    assert (answer.status, answer.json) == (200, {"id": 2, "file": None, "no_file": NO_VAULT})
    assert "- Session Goal: one style" in said(house.ada, 2)
    assert "- User Satisfaction: high" in said(house.ada, 2)
    for body in ({}, {"goal": "more"}):
        again = end(runtime, **body)
        assert (again.status, again.codes) == (409, ["not_open"])
    assert len(of_category(house.ada, "session")) == 1


def test_another_caller_cannot_record_or_end(runtime: Caller, stranger: Caller, acme: Caller, house: House) -> None:
    record(runtime, session="monday")
    statuses = [end(stranger).status, end(acme).status, acme.post("recordings", {"prompt": "x"}).status]
    assert statuses == [404, 403, 403]
    assert sessions(house.ada)[0].ended_at is None


def test_an_invalid_recording_is_refused(runtime: Caller, ada: Agent) -> None:
    texts = [{"prompt": ""}, {"prompt": "x" * 200_001}, {"response": 5}, {"session": "a b"}, {"topic": "…"}]
    others = [{"project": "../x"}, {"tools": ["x"] * 21}, {"response_seconds": -1}, {"requested": "perhaps"}]
    for body in (*texts, *others, {"more": 1}):
        assert record(runtime, **body).status == 422, body
        assert active(ada) == [], body


def test_a_refused_end_changes_nothing(runtime: Caller, ada: Agent) -> None:
    record(runtime, session="monday")
    before = state(ada)
    assert end(runtime, goal="x" * 501).status == 422
    assert runtime.post("recorded-sessions/a%20b/end", {}).status == 422
    assert state(ada) == before
    off(ada, "session")
    refused = end(runtime)
    assert (refused.status, refused.codes) == (409, ["category_disabled"])
    assert sessions(ada)[0].ended_at is None
