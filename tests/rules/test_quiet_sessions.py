"""Sessions that fell silent have their memory, though nobody records any more: by workers, who say nothing where a
switch is off."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.agents import rule_changes
from memory.errors import SealBroken
from memory.models import Agent, RecordedSession
from memory.recording import quiet_sessions
from memory.recording import sessions as conversations
from memory.recording.quiet_sessions import end_quiet
from refinement import tasks
from tests.rules.talking import of_category, off, said, sessions, settings, talk
from tests.steps import PERSON, fresh, last_entry, problems, state

pytestmark = pytest.mark.database


def silent(minutes: float = 31) -> None:
    """All sessions, since so many minutes."""
    RecordedSession.objects.update(last_at=timezone.now() - timedelta(minutes=minutes))


def test_the_last_talk_of_a_project_has_its_memory(ada: Agent) -> None:
    talk(ada, "Which ferry?", session="monday", project="site")
    talk(ada, project="other")
    silent()
    tasks.close_stale()
    assert [each.ended_at is not None for each in sessions(ada)] == [True, True]
    assert [each.memory for each in sessions(ada)] == [memory.number for memory in of_category(ada, "session")][::-1]
    assert "Which ferry?" in said(ada, sessions(ada)[0].memory)
    assert last_entry(ada).actor_label == "recording"
    assert problems(ada) == []
    assert end_quiet() == 0


def test_one_that_goes_on_is_left(ada: Agent) -> None:
    talk(ada)
    silent(29)
    assert end_quiet() == 0
    assert sessions(ada)[0].ended_at is None


def test_one_that_was_ended_goes_on_by_its_name(ada: Agent) -> None:
    talk(ada, session="monday")
    silent()
    assert end_quiet() == 1
    talk(ada, "One more thing.", session="monday")
    silent()
    assert end_quiet() == 1
    [memory] = of_category(ada, "session")
    assert "- Interactions: 2" in said(ada, memory.number)


@pytest.mark.parametrize("which", ["memory", "bounds", "erased"])
def test_where_a_switch_is_off_nothing_is_done(ada: Agent, which: str) -> None:
    talk(ada)
    silent()
    if which == "memory":
        rule_changes.change(fresh(ada), PERSON, enabled=False)
    elif which == "bounds":
        settings(ada, capture_settings__session_boundary_detection=False)
    else:
        Agent.objects.filter(pk=ada.pk).update(wrapped_key=b"")
    before = state(ada)
    assert end_quiet() == 0
    assert (state(ada), sessions(ada)[0].ended_at) == (before, None)


def test_without_session_memories_it_is_over_and_none_is_kept(ada: Agent) -> None:
    off(ada, "session")
    talk(ada)
    silent()
    before = state(ada)
    assert end_quiet() == 1
    assert (state(ada), sessions(ada)[0].memory) == (before, None)


@pytest.mark.parametrize("what", ["word", "switch"])
def test_what_happened_before_the_agent_was_locked_counts(
    ada: Agent, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    talk(ada)
    silent()
    due = list(quiet_sessions._due())
    monkeypatch.setattr(quiet_sessions, "_due", lambda: due)
    if what == "word":
        RecordedSession.objects.update(last_at=timezone.now())
    else:
        rule_changes.change(fresh(ada), PERSON, enabled=False)
    assert end_quiet() == 0
    assert sessions(ada)[0].ended_at is None


def test_one_that_cannot_be_ended_keeps_no_other(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for agent in (ada, bob):
        talk(agent)
    silent()
    real = conversations.end

    def end(row: Agent, *args: Any) -> Any:
        if row.pk == bob.pk:
            raise SealBroken("no")
        return real(row, *args)

    monkeypatch.setattr(conversations, "end", end)
    assert end_quiet() == 1
    assert (sessions(ada)[0].ended_at is None, sessions(bob)[0].ended_at) == (False, None)


def test_those_without_bounds_keep_no_other_waiting(ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_sessions, "AT_ONCE", 1)
    talk(bob)
    silent(60)
    settings(ada, capture_settings__session_boundary_detection=False)
    talk(ada)
    RecordedSession.objects.filter(agent=ada).update(last_at=timezone.now() - timedelta(minutes=40))
    assert end_quiet() == 1
    assert (sessions(ada)[0].ended_at, sessions(bob)[0].ended_at is None) == (None, False)


def test_they_are_found_by_one_query_and_a_batch_at_a_time(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        talk(ada, project=f"p{number}")
    silent(29)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert end_quiet() == 0
    assert len(queries) == 1
    silent()
    monkeypatch.setattr(quiet_sessions, "AT_ONCE", 3)
    assert [end_quiet(), end_quiet(), end_quiet()] == [3, 1, 0]
