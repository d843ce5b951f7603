"""Workers end recorded sessions in which nothing was recorded for half an hour."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.agents import rule_changes
from memory.errors import SealBroken
from memory.models import Agent, RecordedSession
from memory.recording import automatic
from memory.recording import sessions as recorded_sessions
from memory.recording.automatic import end_quiet
from refinement import tasks
from tests.rules.recordings import of_category, sessions, settings, talk, text_of
from tests.steps import PERSON, fresh, last_entry, problems, signed_update, state


def silent(minutes: float = 31, **which: Any) -> None:
    """The last record of these sessions, or of all, is this old."""
    RecordedSession.objects.filter(**which).update(last_at=timezone.now() - timedelta(minutes=minutes))


def test_quiet_sessions_of_all_projects_get_their_memories(ada: Agent) -> None:
    talk(ada, "Which ferry?", session="monday", project="site")
    talk(ada, project="other")
    silent()
    tasks.close_stale()
    assert [each.ended_at is not None for each in sessions(ada)] == [True, True]
    assert [each.memory for each in sessions(ada)] == [memory.number for memory in of_category(ada, "session")]
    assert "Which ferry?" in text_of(ada, sessions(ada)[0].memory)
    assert last_entry(ada).actor_label == "recording"
    assert problems(ada) == []
    assert end_quiet() == 0


@pytest.mark.parametrize("reason", ["memory", "boundaries", "erased"])
def test_no_session_is_ended_if_memory_or_detection_is_off_or_the_agent_erased(ada: Agent, reason: str) -> None:
    talk(ada)
    silent()
    if reason == "memory":
        rule_changes.change(fresh(ada), PERSON, enabled=False)
    elif reason == "boundaries":
        settings(ada, capture_settings__session_boundary_detection=False)
    else:
        signed_update(Agent.objects.filter(pk=ada.pk), wrapped_key=b"")
    before = state(ada)
    assert end_quiet() == 0
    assert (state(ada), sessions(ada)[0].ended_at) == (before, None)


@pytest.mark.parametrize("change", ["record", "switch"])
def test_a_change_before_the_agent_is_locked_counts(ada: Agent, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    talk(ada)
    silent()
    due = list(automatic._due())
    monkeypatch.setattr(automatic, "_due", lambda: due)
    if change == "record":
        silent(0)
    else:
        rule_changes.change(fresh(ada), PERSON, enabled=False)
    assert end_quiet() == 0
    assert sessions(ada)[0].ended_at is None


@pytest.mark.parametrize("fault", [SealBroken("no"), ValueError()])
def test_a_session_that_fails_to_end_does_not_block_others(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    for agent in (ada, bob):
        talk(agent)
    silent()
    end = recorded_sessions.end

    def failing(row: Agent, *args: Any) -> Any:
        if row.pk == bob.pk:
            raise fault
        return end(row, *args)

    monkeypatch.setattr(recorded_sessions, "end", failing)
    assert end_quiet() == 1
    assert (sessions(ada)[0].ended_at is None, sessions(bob)[0].ended_at) == (False, None)


def test_sessions_without_boundaries_do_not_block_others(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "SESSIONS_AT_ONCE", 1)
    talk(bob)
    settings(ada, capture_settings__session_boundary_detection=False)
    talk(ada)
    silent(40, agent=ada)
    silent(60, agent=bob)
    assert end_quiet() == 1
    assert (sessions(ada)[0].ended_at, sessions(bob)[0].ended_at is None) == (None, False)


@pytest.mark.database
def test_many_quiet_sessions_of_an_agent_do_not_block_others(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "SESSIONS_AT_ONCE", 2)
    for number in range(3):
        talk(ada, project=f"p{number}")
    talk(bob)
    silent(31, agent=ada)
    silent(60, agent=bob)
    assert end_quiet() == 2
    assert sessions(bob)[0].ended_at


def test_sessions_that_cannot_be_ended_do_not_block_others_of_their_agent(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "SESSIONS_OF_AN_AGENT", 1)
    for number in range(3):
        talk(ada, project=f"p{number}")
    silent()
    assert len({automatic._due()[0].pk for _ in range(100)}) == 3


def test_one_query_finds_quiet_sessions_a_batch_at_a_time(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        talk(ada, project=f"p{number}")
    silent(29)
    with CaptureQueriesContext(connection) as queries:
        assert end_quiet() == 0
    assert len(queries) == 1
    silent()
    monkeypatch.setattr(automatic, "SESSIONS_AT_ONCE", 3)
    assert [end_quiet(), end_quiet(), end_quiet()] == [3, 1, 0]


@pytest.mark.database
def test_slow_ends_of_one_tenant_leave_turns_to_others(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        talk(ada, project=f"p{number}")
    talk(bob)
    silent()
    assert {each.agent_id for each in automatic._due()[:2]} == {ada.pk, bob.pk}
    monkeypatch.setattr(automatic, "MOST_SECONDS", 0.0)
    assert [end_quiet() for _ in range(5)] == [1, 1, 1, 1, 0]


def test_the_newest_recordings_are_read_up_to_a_size(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for question in ("Which ferry?", "Which train?", "Which bus?"):
        talk(ada, question, session="monday")
    silent()
    monkeypatch.setattr(recorded_sessions, "READ_TOKENS", 2 * of_category(ada, "user_interaction")[0].tokens)
    assert end_quiet() == 1
    text = text_of(ada, sessions(ada)[0].memory)
    assert ("ferry" in text, "bus" in text) == (False, True)
