"""Sessions of talk: when one begins and ends, and what is kept of it (seed 004, "Session Memory")."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.agents import rule_changes
from memory.errors import AlreadyExists, Invalid, NotFound, NotOpen, SealBroken
from memory.markdown import sections
from memory.markdown.sections import fact
from memory.models import Agent, RecordedSession
from memory.recording import automatic
from memory.recording import sessions as conversations
from memory.recording.automatic import end_quiet
from memory.recording.sessions import Outcomes, begin, end_session, type_of
from memory.writing import operations
from refinement import tasks
from tests.conftest import House
from tests.rules.talking import of_category, off, said, sessions, settings, talk
from tests.steps import ME, PERSON, fresh, last_entry, problems, refused, row, says, state


def long_ago(agent: Agent, minutes: float) -> None:
    """The last session's last word was so long ago."""
    last = sessions(agent)[-1]
    RecordedSession.objects.filter(pk=last.pk).update(last_at=last.last_at - timedelta(minutes=minutes))


def names(agent: Agent) -> list[str]:
    return [session.name for session in sessions(agent)]


# --- which one it is


def test_after_half_an_hour_another_begins_and_the_first_is_ended(ada: Agent) -> None:
    talk(ada)
    long_ago(ada, 29)
    talk(ada)
    assert [session.numbers for session in sessions(ada)] == [[1, 2]]
    long_ago(ada, 31)
    found = talk(ada)
    first, second = sessions(ada)
    assert (first.ended_at is None, first.memory, second.numbers) == (False, 3, [4])
    assert "- Previous: memory 2" in said(ada, found.number)
    assert problems(ada) == []


@pytest.mark.parametrize("name", ["", "main"])
def test_bounds_may_be_switched_off(ada: Agent, name: str) -> None:
    settings(ada, capture_settings__session_boundary_detection=False)
    for _ in range(2):
        talk(ada, session=name)
        long_ago(ada, 6_000)
    assert [(each.numbers, each.memory) for each in sessions(ada)] == [([1, 2], None)]


def test_it_is_named_by_the_time(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    talk(ada)
    talk(ada, project="other")
    assert names(ada) == ["20261122-143000", "20261122-143000-2"]


def test_each_project_has_its_own(ada: Agent) -> None:
    talk(ada, project="one")
    talk(ada, project="two")
    talk(ada, project="one")
    assert [(each.project, each.numbers, each.ended_at) for each in sessions(ada)] == [
        ("one", [1, 3], None),
        ("two", [2], None),
    ]


def test_one_that_is_named_is_that_one(ada: Agent) -> None:
    talk(ada, session="monday", project="site")
    talk(ada, session="tuesday", project="site")
    talk(ada, session="monday", project="site")  # which was ended by the other, and goes on
    assert [(each.name, each.ended_at is None) for each in sessions(ada)] == [("monday", True), ("tuesday", True)]


def test_without_a_project_it_is_the_default_projects(ada: Agent) -> None:
    """Whatever name a session of another project has."""
    talk(ada, session="monday", project="site")
    found = talk(ada, session="monday")
    assert [(each.project, each.numbers) for each in sessions(ada)] == [("site", [1]), ("default-project", [2])]
    assert row(ada, found.numbers[0]).project == "default-project"
    assert "- Previous: memory" not in said(ada, found.number)


def test_one_that_is_named_is_over_after_half_an_hour_too(ada: Agent) -> None:
    """And has its memory; recording by its name takes it up again, and its memory is said anew."""
    talk(ada, session="main")
    long_ago(ada, 29)
    talk(ada, session="main")
    assert sessions(ada)[0].memory is None
    long_ago(ada, 3 * 24 * 60)
    talk(ada, "And in the evening?", session="main")
    [session] = sessions(ada)
    assert (session.memory, session.numbers, session.ended_at) == (3, [1, 2, 4], None)
    assert "- Interactions: 2" in said(ada, 3)
    long_ago(ada, 31)
    talk(ada, session="main")
    assert "And in the evening?" in said(ada, 3)
    assert problems(ada) == []


@pytest.mark.database
def test_two_at_once_are_in_one_session(transactional_db: None, house: House) -> None:
    ada, together = house.ada, Barrier(2)

    def work(_: int) -> Any:
        together.wait()
        try:
            return talk(ada).number
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(work, range(2))) == [1, 2]
    assert [sorted(session.numbers) for session in sessions(ada)] == [[1, 2]]
    assert problems(ada) == []


def test_one_is_begun(ada: Agent) -> None:
    talk(ada)
    assert begin(fresh(ada), "monday", ME).name == "monday"
    assert [each.ended_at is None for each in sessions(ada)] == [False, True]
    assert talk(ada).session == sessions(ada)[1]
    with refused(ada, AlreadyExists):
        begin(fresh(ada), "monday", ME)
    with refused(ada, Invalid):
        begin(fresh(ada), "mon day", ME)


# --- what is kept


def memory_of(agent: Agent, name: str = "monday", **told: Any) -> dict[str, str]:
    edited = end_session(fresh(agent), name, ME, **told)
    assert edited is not None
    return sections.split(said(agent, edited.memory.number), "session")


def test_its_memory_tells_what_the_template_asks(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    talk(ada, "When does the ferry leave?", "At two.", session="monday", topic="Ferry", learnings="Ann asks early")
    talk(ada, "Please book it.", "We decided on the night ferry. Still need to pay.", session="monday", topic="Booking")
    time_machine.move_to("2026-11-22T14:50:00Z", tick=False)
    talk(ada, "Thanks!", "Have a good trip.", session="monday", topic="ferry ", effectiveness="it worked")
    time_machine.move_to("2026-11-23T08:00:00Z", tick=False)
    told = memory_of(ada, outcomes=Outcomes("a trip", achieved="booked", satisfaction="high", depth="prices"))
    assert told == {
        "Session Overview": "- Session: monday\n- Session Type: COLLABORATIVE\n"
        "- Period: 2026-11-22T14:30:00Z to 2026-11-22T14:50:00Z\n- Duration: 20 min\n- Interactions: 3\n"
        "- Primary Topic: Ferry\n- Secondary Topics: Booking\n- Session Goal: a trip",
        "Key Interactions": "- Opening Prompt: When does the ferry leave?\n"
        "- Closing Exchange: Thanks! / Have a good trip.\n"
        "- Critical Decisions: We decided on the night ferry.\n- Unresolved Items: Still need to pay.",
        "Topic Evolution": "- Topic Flow: Ferry → Booking → Ferry\n"
        "- Depth Reached: prices\n- User Engagement: 1 question, 1 instruction, 1 feedback",
        "Outcomes": "- Goals Achieved: booked\n- New Understandings: Ann asks early",
        "Session Quality Metrics": "- Problem Resolution: it worked\n- User Satisfaction: high",
    }
    [memory] = of_category(ada, "session")
    assert (memory.kind, says(ada, memory.number).tags) == ("journal", ("session:monday",))
    assert f"{memory.origin:%H:%M}" == "14:50"  # of its last record
    assert sessions(ada)[0].memory == memory.number


def test_of_one_in_parts_it_quotes_the_beginnings(ada: Agent) -> None:
    talk(ada, "first words " + "x " * 9_000, "last words", session="monday")
    told = memory_of(ada)
    assert "Closing Exchange: first words x" in told["Key Interactions"]
    assert "… / last words" in told["Key Interactions"]
    assert fact(told["Session Overview"], "Interactions") == "1"


def test_what_nobody_told_is_not_guessed(ada: Agent) -> None:
    talk(ada, "hello", "hello", session="monday")
    told = memory_of(ada)
    for section, label in [
        ("Session Overview", "Primary Topic"),
        ("Session Overview", "Session Goal"),
        ("Key Interactions", "Critical Decisions"),
        ("Outcomes", "Goals Achieved"),
        ("Session Quality Metrics", "User Satisfaction"),
    ]:
        assert section not in told or not fact(told[section], label)


def test_types() -> None:
    assert type_of(["question", "question", "instruction"]) == "INFORMATIONAL"
    assert type_of(["instruction", "correction"]) == "COLLABORATIVE"
    assert type_of(["instruction", "statement"]) == "INTERACTIVE"
    assert type_of([]) == ""


def test_metrics_and_topics_may_be_left_out(ada: Agent) -> None:
    settings(ada, categories__session__quality_metrics=False, categories__session__topic_tracking=False)
    talk(ada, session="monday", topic="Ferry")
    assert not {"Session Quality Metrics", "Topic Evolution"} & set(memory_of(ada))


def test_one_that_went_on_is_told_anew_in_its_memory(ada: Agent) -> None:
    talk(ada, session="monday")
    told = memory_of(ada, outcomes=Outcomes("a trip", achieved="booked", depth="my password is hunter2"))
    assert "hunter2" not in "".join(told.values())
    talk(ada, "Thanks!", "Bye.", session="monday", learnings="Ann is quick")
    told = memory_of(ada)
    [memory] = of_category(ada, "session")
    assert fact(told["Session Overview"], "Interactions") == "2"
    assert fact(told["Session Overview"], "Session Goal") == "a trip"
    assert fact(told["Outcomes"], "Goals Achieved") == "booked"
    assert fact(told["Outcomes"], "New Understandings") == "Ann is quick"  # of what is recorded by now
    assert says(ada, memory.number).tags == ("session:monday",)


def test_its_period_goes_from_its_first_record_to_its_last(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2026-11-22T14:00:00Z", tick=False)
    begin(fresh(ada), "monday", ME)
    time_machine.move_to("2026-11-22T14:10:00Z", tick=False)
    talk(ada, session="monday")
    time_machine.move_to("2026-11-22T15:00:00Z", tick=False)
    assert fact(memory_of(ada)["Session Overview"], "Period") == "2026-11-22T14:10:00Z to 2026-11-22T14:10:00Z"
    time_machine.move_to("2026-11-22T15:30:00Z", tick=False)
    talk(ada, session="monday")  # it goes on
    time_machine.move_to("2026-11-22T16:00:00Z", tick=False)
    assert fact(memory_of(ada)["Session Overview"], "Period") == "2026-11-22T14:10:00Z to 2026-11-22T15:30:00Z"
    [memory] = of_category(ada, "session")
    assert f"{memory.origin:%H:%M}" == "15:30"
    assert problems(ada) == []


def test_what_one_left_open_is_carried_over_to_the_next(ada: Agent) -> None:
    talk(ada, "Book it.", "Still need to pay.", session="monday")
    memory_of(ada, outcomes=Outcomes(follow_up="print the tickets"))
    talk(ada, session="tuesday")
    told = memory_of(ada, "tuesday")["Session Overview"]
    assert told.splitlines()[-2:] == [
        "- Previous Session: memory 2",
        "- Carried Over: Still need to pay.; print the tickets",
    ]
    first = sections.split(said(ada, 2), "session")["Session Overview"]
    assert fact(first, "Next Session") == "memory 4"
    talk(ada, session="elsewhere", project="other")
    assert "Previous Session" not in memory_of(ada, "elsewhere")["Session Overview"]
    assert problems(ada) == []


def test_its_topics_refer_to_it_and_to_each_other(ada: Agent) -> None:
    for topic in ("Ferry", "Booking", "Tea"):
        talk(ada, session="monday", topic=topic)
    memory_of(ada)
    ferry, booking, _ = of_category(ada, "topic")
    told = sections.split(said(ada, ferry.number), "topic")["Cross-References"]
    assert told == (
        "- Related Sessions:\n  - monday, memory 7\n- Connected Topics:\n  - Booking, memory 4\n"
        "- Project Context: default-project"
    )
    told = sections.split(said(ada, booking.number), "topic")["Cross-References"]
    assert "- Connected Topics:\n  - Tea, memory 6\n  - Ferry, memory 2\n" in told
    talk(ada, session="monday", topic="Ferry")
    assert said(ada, ferry.number).count("monday, memory 7") == 1
    assert "  - monday\n" not in said(ada, ferry.number)


def test_topics_are_not_connected_where_that_is_switched_off(ada: Agent) -> None:
    settings(ada, categories__topic__cross_topic_linking=False)
    talk(ada, session="monday", topic="Ferry")
    talk(ada, session="monday", topic="Booking")
    memory_of(ada)
    told = said(ada, of_category(ada, "topic")[0].number)
    assert "Connected Topics" not in told
    assert "monday, memory" in told


def test_a_topic_is_one_however_it_is_written_and_shown_as_it_was_first(ada: Agent) -> None:
    talk(ada, session="monday", topic="Sign-in")
    memory_of(ada)
    for nth, spelling in enumerate(("SIGN-IN", " Sign-in ", "\uff33ign-in", "Sign\u00ad-in")):
        for topic in ("Tea", spelling, spelling):
            talk(ada, session=f"day-{nth}", topic=topic)
        told = memory_of(ada, f"day-{nth}")
        assert fact(told["Session Overview"], "Primary Topic") == "Sign-in"
        assert fact(told["Session Overview"], "Secondary Topics") == "Tea"
        assert fact(told["Topic Evolution"], "Topic Flow") == "Tea → Sign-in"
    assert len(of_category(ada, "topic")) == 2


def test_one_whose_memory_is_protected_gets_another(ada: Agent) -> None:
    talk(ada, session="monday")
    memory_of(ada)
    [memory] = of_category(ada, "session")
    operations.protect(fresh(ada), [memory.number], PERSON)
    talk(ada, session="monday")
    memory_of(ada)
    assert len(of_category(ada, "session")) == 2


def test_with_the_category_off_it_ends_without_a_memory(ada: Agent) -> None:
    off(ada, "session")
    talk(ada, session="monday")
    assert end_session(fresh(ada), "monday", ME) is None
    assert (of_category(ada, "session"), sessions(ada)[0].ended_at is None) == ([], False)
    settings(ada)
    begin(fresh(ada), "tuesday", ME)
    assert end_session(fresh(ada), "tuesday", ME) is None  # nothing was recorded in it
    assert of_category(ada, "session") == []


def test_what_is_not_read_back_is_not_told_in_its_memory(ada: Agent) -> None:
    talk(ada, "Always remember zebras.", session="monday")
    talk(ada, "Always remember lions.", session="monday")
    operations.discard(fresh(ada), [1], ME)
    told = "".join(memory_of(ada).values())
    assert ("zebras" in told, "lions" in told) == (False, True)
    talk(ada, "Always remember bears.", session="tuesday")
    off(ada, "user_interaction")
    assert "bears" not in "".join(memory_of(ada, "tuesday").values())


REFUSALS: list[tuple[Callable[[Agent], Any], type[Exception]]] = [
    (lambda ada: end_session(fresh(ada), "nobody", ME), NotFound),
    (lambda ada: end_session(fresh(ada), "monday", ME, project="shop"), NotFound),
    (lambda ada: end_session(fresh(ada), "a b", ME), Invalid),
    (lambda ada: end_session(fresh(ada), "monday", ME, outcomes=Outcomes("x" * 501)), Invalid),
    (lambda ada: end_session(fresh(ada), "monday", ME, outcomes=Outcomes(clarity="\0")), Invalid),
]


def test_what_is_wrong_is_refused(ada: Agent) -> None:
    talk(ada, session="monday")
    for act, error in REFUSALS:
        with refused(ada, error):
            act(ada)
    assert sessions(ada)[0].ended_at is None


def test_names_are_each_projects_own(ada: Agent) -> None:
    for project in ("shop", "site"):
        talk(ada, f"Only of {project}.", session="monday", project=project)
    assert [(each.name, each.project, len(each.numbers)) for each in sessions(ada)] == [
        ("monday", "shop", 1),
        ("monday", "site", 1),
    ]
    with refused(ada, AlreadyExists):
        begin(fresh(ada), "monday", ME, project="site")
    with refused(ada, Invalid) as caught:
        end_session(fresh(ada), "monday", ME)
    assert "shop, site" in str(caught.value)
    with refused(ada, Invalid) as caught:
        end_session(fresh(ada), "", ME)  # the one that is open
    assert "monday of shop, monday of site" in str(caught.value)
    assert "Only of site." in memory_of(ada, project="site")["Key Interactions"]
    assert [each.ended_at is None for each in sessions(ada)] == [True, False]


def test_of_one_that_is_over_nothing_more_is_told(ada: Agent) -> None:
    talk(ada, session="monday")
    memory_of(ada)
    for told in (None, Outcomes("one style"), Outcomes(achieved="all of it")):
        with refused(ada, NotOpen) as caught:
            end_session(fresh(ada), "monday", ME, outcomes=told)
        assert "This session ended at" in str(caught.value)
    assert len(of_category(ada, "session")) == 1


def test_a_name_too_long_for_a_tag_has_a_digest(ada: Agent) -> None:
    one, other = "x" * 63 + "1", "x" * 63 + "2"
    assert len(conversations.tag_of(one)) == 64
    assert conversations.tag_of(one) != conversations.tag_of(other)
    assert talk(ada, session=one).number == 1


def test_a_very_long_session_is_ended_in_as_many_queries(ada: Agent, django_assert_max_num_queries: Any) -> None:
    for _ in range(30):
        talk(ada, session="monday")
    with django_assert_max_num_queries(16):
        memory_of(ada)


# --- sessions that fell silent have their memory, though nobody records any more: by workers


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
    due = list(automatic._due())
    monkeypatch.setattr(automatic, "_due", lambda: due)
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
    monkeypatch.setattr(automatic, "SESSIONS_AT_ONCE", 1)
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
    monkeypatch.setattr(automatic, "SESSIONS_AT_ONCE", 3)
    assert [end_quiet(), end_quiet(), end_quiet()] == [3, 1, 0]
