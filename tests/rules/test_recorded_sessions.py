"""Recorded sessions: when one begins and ends, and what its memory contains (seed 004, "Session Memory")."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from memory.errors import AlreadyExists, Invalid, NotFound, NotOpen
from memory.markdown import sections
from memory.markdown.sections import fact
from memory.models import Agent, RecordedSession
from memory.recording import sessions as recorded_sessions
from memory.recording.sessions import Outcomes, begin, end_session, tag_of, type_of
from memory.writing import edits, operations
from tests.conftest import House
from tests.plans import plans
from tests.rules.recordings import of_category, off, sessions, settings, talk, text_of
from tests.steps import ME, PERSON, fresh, problems, refused, remember, row, says


def pause(agent: Agent, minutes: float) -> None:
    """Move the last record of the last session back in time."""
    last = sessions(agent)[-1]
    RecordedSession.objects.filter(pk=last.pk).update(last_at=last.last_at - timedelta(minutes=minutes))


def test_a_new_session_begins_after_half_an_hour(ada: Agent) -> None:
    talk(ada)
    pause(ada, 29)
    talk(ada)
    assert [session.numbers for session in sessions(ada)] == [[1, 2]]
    pause(ada, 31)
    found = talk(ada)
    first, second = sessions(ada)
    assert (first.ended_at is None, first.memory, second.numbers) == (False, 3, [4])
    assert "- Previous: memory 2" in text_of(ada, found.number)
    assert problems(ada) == []


@pytest.mark.sqlite
def test_a_recording_does_not_read_all_sessions_of_the_agent(ada: Agent) -> None:
    """With 600,000 sessions, a recording in a new project held SQLite's writer for more than a second."""
    talk(ada)
    with CaptureQueriesContext(connection) as captured:
        for name in ("", "monday"):
            recorded_sessions.current(ada, name, "new", timezone.now())
        recorded_sessions._generated_name(ada, timezone.now())
        recorded_sessions.find(ada, "")
    for plan in plans(captured):
        assert re.search(r"\(agent_id=\? AND (project|name)=\?|recorded_session_current", plan)


def test_a_named_session_ends_after_half_an_hour_and_can_go_on(ada: Agent) -> None:
    talk(ada, session="main")
    pause(ada, 29)
    talk(ada, session="main")
    assert sessions(ada)[0].memory is None
    pause(ada, 3 * 24 * 60)
    talk(ada, "And in the evening?", session="main")
    [session] = sessions(ada)
    assert (session.memory, session.numbers, session.ended_at) == (3, [1, 2, 4], None)
    assert "- Interactions: 2" in text_of(ada, 3)
    pause(ada, 31)
    talk(ada, session="main")
    assert "And in the evening?" in text_of(ada, 3)
    assert problems(ada) == []


@pytest.mark.parametrize("category", ["credentials", "session"])
def test_a_session_does_not_overwrite_a_memory_that_sql_put_into_its_row(ada: Agent, category: str) -> None:
    [other] = remember(ada, "The door code is 4711.", category=category)
    talk(ada, session="main")
    RecordedSession.objects.update(memory=other)
    end_session(ada, "main", ME)
    assert text_of(ada, other) == "The door code is 4711."
    assert sessions(ada)[0].memory != other


@pytest.mark.parametrize("name", ["", "main"])
def test_boundary_detection_can_be_switched_off(ada: Agent, name: str) -> None:
    settings(ada, capture_settings__session_boundary_detection=False)
    for _ in range(2):
        talk(ada, session=name)
        pause(ada, 6_000)
    assert [(each.numbers, each.memory) for each in sessions(ada)] == [([1, 2], None)]


def test_each_project_has_its_own_session_named_by_the_time(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    for project in ("one", "two", "one"):
        talk(ada, project=project)
    found = [(each.name, each.project, each.numbers, each.ended_at) for each in sessions(ada)]
    assert found == [("20261122-143000", "one", [1, 3], None), ("20261122-143000-2", "two", [2], None)]


def test_another_named_session_ends_the_open_one_which_can_go_on(ada: Agent) -> None:
    for name in ("monday", "tuesday", "monday"):
        talk(ada, session=name, project="site")
    assert [(each.name, each.ended_at is None) for each in sessions(ada)] == [("monday", True), ("tuesday", True)]


@pytest.mark.database
def test_two_concurrent_recordings_share_one_session(transactional_db: None, house: House) -> None:
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


def test_a_new_session_ends_a_few_open_ones_at_once(ada: Agent) -> None:
    for _ in range(2):
        for name in ("one", "two", "three"):
            talk(ada, session=name)
    for name, still_open in (("four", ["one", "four"]), ("five", ["five"])):
        talk(ada, session=name)
        assert [each.name for each in sessions(ada) if each.ended_at is None] == still_open


def test_little_is_read_while_the_agent_is_locked(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        talk(ada, session="monday")
    tokens = [each.tokens for each in of_category(ada, "user_interaction")]
    monkeypatch.setattr(recorded_sessions, "READ_LOCKED", sum(tokens[1:]))
    with edits.locked(fresh(ada)) as row:
        assert len(recorded_sessions._recordings(row, sessions(ada)[0], {})) == 2
    monkeypatch.setattr(recorded_sessions, "READ_BYTES", 1)  # long tags have no tokens
    with edits.locked(fresh(ada)) as row:
        assert len(recorded_sessions._recordings(row, sessions(ada)[0], {})) == 1
    monkeypatch.undo()
    monkeypatch.setattr(recorded_sessions, "READ_LOCKED", 0)
    assert "- Interactions: 3" in end_and_read(ada)["Session Overview"]


def test_begin_ends_the_open_session_and_refuses_a_used_name(ada: Agent) -> None:
    talk(ada)
    assert begin(fresh(ada), "monday", ME).name == "monday"
    assert [each.ended_at is None for each in sessions(ada)] == [False, True]
    assert talk(ada).session == sessions(ada)[1]
    for name, error in (("monday", AlreadyExists), ("mon day", Invalid)):
        with refused(ada, error):
            begin(fresh(ada), name, ME)


def end_and_read(agent: Agent, name: str = "monday", **values: Any) -> dict[str, str]:
    """End the session. Returns the sections of its memory."""
    edited = end_session(fresh(agent), name, ME, **values)
    assert edited is not None
    return sections.split(text_of(agent, edited.memory.number), "session")


def test_the_memory_has_every_field_of_the_template(ada: Agent, time_machine: Any) -> None:
    time_machine.move_to("2026-11-22T14:30:00Z", tick=False)
    talk(ada, "When does the ferry leave?", "At two.", session="monday", topic="Ferry", learnings="Ann asks early")
    talk(ada, "Please book it.", "We decided on the night ferry. Still need to pay.", session="monday", topic="Booking")
    time_machine.move_to("2026-11-22T14:50:00Z", tick=False)
    talk(ada, "Thanks!", "Have a good trip.", session="monday", topic="ferry ", effectiveness="it worked")
    time_machine.move_to("2026-11-23T08:00:00Z", tick=False)
    outcomes = Outcomes("a trip", achieved="booked", satisfaction="high", depth="prices")
    assert end_and_read(ada, outcomes=outcomes) == {
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
    assert f"{memory.origin:%H:%M}" == "14:50"  # the time of its last record
    assert sessions(ada)[0].memory == memory.number


def test_a_recording_in_several_parts_is_one_interaction_quoted_by_its_beginning(ada: Agent) -> None:
    talk(ada, "first words " + "x " * 9_000, "last words", session="monday")
    memory = end_and_read(ada)
    assert "Closing Exchange: first words x" in memory["Key Interactions"]
    assert "… / last words" in memory["Key Interactions"]
    assert fact(memory["Session Overview"], "Interactions") == "1"
    for label in ("Primary Topic", "Session Goal", "Critical Decisions", "Goals Achieved", "User Satisfaction"):
        assert not fact("\n".join(memory.values()), label)  # unknown fields are left out


def test_the_session_type_follows_the_kinds_of_its_interactions() -> None:
    assert type_of(["question", "question", "instruction"]) == "INFORMATIONAL"
    assert type_of(["instruction", "correction"]) == "COLLABORATIVE"
    assert (type_of(["instruction", "statement"]), type_of([])) == ("INTERACTIVE", "")


def test_a_session_that_goes_on_keeps_its_outcomes_in_the_same_memory(ada: Agent) -> None:
    talk(ada, session="monday")
    memory = end_and_read(ada, outcomes=Outcomes("a trip", achieved="booked", depth="my password is hunter2"))
    assert "hunter2" not in "".join(memory.values())
    talk(ada, "Thanks!", "Bye.", session="monday", learnings="Ann is quick")
    memory = end_and_read(ada)
    overview, outcomes = memory["Session Overview"], memory["Outcomes"]
    assert (fact(overview, "Interactions"), fact(overview, "Session Goal")) == ("2", "a trip")
    assert (fact(outcomes, "Goals Achieved"), fact(outcomes, "New Understandings")) == ("booked", "Ann is quick")
    [row_of_it] = of_category(ada, "session")
    assert says(ada, row_of_it.number).tags == ("session:monday",)


def test_the_period_reaches_from_the_first_record_to_the_last(ada: Agent, time_machine: Any) -> None:
    def at(time: str) -> None:
        time_machine.move_to(f"2026-11-22T{time}:00Z", tick=False)

    at("14:00")
    begin(fresh(ada), "monday", ME)
    for recorded, ended in (("14:10", "15:00"), ("15:30", "16:00")):
        at(recorded)
        talk(ada, session="monday")
        at(ended)
        period = fact(end_and_read(ada)["Session Overview"], "Period")
        assert period == f"2026-11-22T14:10:00Z to 2026-11-22T{recorded}:00Z"
    [memory] = of_category(ada, "session")
    assert f"{memory.origin:%H:%M}" == "15:30"
    assert problems(ada) == []


def test_open_items_are_carried_over_to_the_next_session_of_the_project(ada: Agent) -> None:
    talk(ada, "Book it.", "Still need to pay.", session="monday")
    end_and_read(ada, outcomes=Outcomes(follow_up="print the tickets"))
    talk(ada, session="tuesday")
    overview = end_and_read(ada, "tuesday")["Session Overview"]
    carried = "- Carried Over: Still need to pay.; print the tickets"
    assert overview.splitlines()[-2:] == ["- Previous Session: memory 2", carried]
    assert fact(sections.split(text_of(ada, 2), "session")["Session Overview"], "Next Session") == "memory 4"
    talk(ada, session="friday", project="other")
    assert "Previous Session" not in end_and_read(ada, "friday")["Session Overview"]
    assert problems(ada) == []


def test_topics_refer_to_their_session_and_to_each_other(ada: Agent) -> None:
    for topic in ("Ferry", "Booking", "Tea"):
        talk(ada, session="monday", topic=topic)
    end_and_read(ada)
    ferry, booking, _ = of_category(ada, "topic")
    assert sections.split(text_of(ada, ferry.number), "topic")["Cross-References"] == (
        "- Related Sessions:\n  - monday, memory 7\n- Connected Topics:\n  - Booking, memory 4\n"
        "- Project Context: default-project"
    )
    connected = "- Connected Topics:\n  - Tea, memory 6\n  - Ferry, memory 2\n"
    assert connected in sections.split(text_of(ada, booking.number), "topic")["Cross-References"]
    talk(ada, session="monday", topic="Ferry")
    text = text_of(ada, ferry.number)
    assert (text.count("monday, memory 7"), "  - monday\n" in text) == (1, False)


@pytest.mark.parametrize(("limit", "most"), [("_REFERRING", 1), ("_REFERRING_BYTES", 500)])
def test_only_the_last_topics_of_a_session_refer_to_it(
    ada: Agent, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(f"memory.recording.topics.{limit}", most)
    for topic in ("Ferry", "Booking"):
        talk(ada, session="monday", topic=topic)
    end_and_read(ada)
    assert ["monday, memory" in text_of(ada, topic.number) for topic in of_category(ada, "topic")] == [False, True]


def test_topics_and_metrics_can_be_switched_off(ada: Agent) -> None:
    session = {f"categories__session__{name}": False for name in ("quality_metrics", "topic_tracking")}
    settings(ada, categories__topic__cross_topic_linking=False, **session)
    for topic in ("Ferry", "Booking"):
        talk(ada, session="monday", topic=topic)
    assert not {"Session Quality Metrics", "Topic Evolution"} & set(end_and_read(ada))
    text = text_of(ada, of_category(ada, "topic")[0].number)
    assert ("Connected Topics" in text, "monday, memory" in text) == (False, True)


def test_all_spellings_of_a_topic_are_one_topic_with_the_first_spelling(ada: Agent) -> None:
    talk(ada, session="monday", topic="Sign-in")
    end_and_read(ada)
    for place, spelling in enumerate(("SIGN-IN", " Sign-in ", "\uff33ign-in", "Sign\u00ad-in")):
        for topic in ("Tea", spelling, spelling):
            talk(ada, session=f"day-{place}", topic=topic)
        memory = end_and_read(ada, f"day-{place}")
        overview = memory["Session Overview"]
        assert (fact(overview, "Primary Topic"), fact(overview, "Secondary Topics")) == ("Sign-in", "Tea")
        assert fact(memory["Topic Evolution"], "Topic Flow") == "Tea → Sign-in"
    assert len(of_category(ada, "topic")) == 2


def test_a_protected_session_memory_is_not_rewritten(ada: Agent) -> None:
    talk(ada, session="monday")
    end_and_read(ada)
    operations.protect(fresh(ada), [of_category(ada, "session")[0].number], PERSON)
    talk(ada, session="monday")
    end_and_read(ada)
    assert len(of_category(ada, "session")) == 2


def test_a_session_ends_without_a_memory_if_the_category_is_off_or_it_is_empty(ada: Agent) -> None:
    off(ada, "session")
    talk(ada, session="monday")
    assert end_session(fresh(ada), "monday", ME) is None
    assert sessions(ada)[0].ended_at is not None
    settings(ada)
    begin(fresh(ada), "tuesday", ME)
    assert end_session(fresh(ada), "tuesday", ME) is None
    assert of_category(ada, "session") == []


def test_a_session_memory_leaves_out_discarded_and_switched_off_recordings(ada: Agent) -> None:
    talk(ada, "Always remember zebras.", session="monday")
    talk(ada, "Always remember lions.", session="monday")
    operations.discard(fresh(ada), [1], ME)
    text = "".join(end_and_read(ada).values())
    assert ("zebras" in text, "lions" in text) == (False, True)
    talk(ada, "Always remember bears.", session="tuesday")
    off(ada, "user_interaction")
    assert "bears" not in "".join(end_and_read(ada, "tuesday").values())


REFUSALS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"name": "nobody"}, NotFound),
    ({"project": "shop"}, NotFound),
    ({"name": "a b"}, Invalid),
    ({"outcomes": Outcomes("x" * 501)}, Invalid),
    ({"outcomes": Outcomes(clarity="\0")}, Invalid),
]


def test_a_refused_end_changes_nothing_and_a_session_is_ended_once(ada: Agent) -> None:
    talk(ada, session="monday")
    for values, error in REFUSALS:
        with refused(ada, error):
            end_and_read(ada, **values)
    assert sessions(ada)[0].ended_at is None
    end_and_read(ada)
    for outcomes in (None, Outcomes("one style"), Outcomes(achieved="all of it")):
        with refused(ada, NotOpen) as caught:
            end_and_read(ada, outcomes=outcomes)
        assert "This session ended at" in str(caught.value)
    assert len(of_category(ada, "session")) == 1


def test_several_projects_can_use_the_same_session_name(ada: Agent) -> None:
    for project in ("shop", "site", ""):
        found = talk(ada, f"Only of {project}.", session="monday", project=project)
        assert "- Previous: memory" not in text_of(ada, found.number)
    projects = ["shop", "site", "default-project"]
    assert [(each.name, each.project, len(each.numbers)) for each in sessions(ada)] == [
        ("monday", project, 1) for project in projects
    ]
    assert row(ada, 3).project == "default-project"
    with refused(ada, AlreadyExists):
        begin(fresh(ada), "monday", ME, project="site")
    both = ("default-project, shop, site", "monday of default-project, monday of shop, monday of site")
    for name, choice in zip(("monday", ""), both, strict=True):
        with refused(ada, Invalid) as caught:
            end_session(fresh(ada), name, ME)
        assert choice in str(caught.value)
    assert "Only of site." in end_and_read(ada, project="site")["Key Interactions"]
    assert [each.ended_at is None for each in sessions(ada)] == [True, False, True]


def test_a_name_too_long_for_a_tag_has_a_digest(ada: Agent) -> None:
    one, other = "x" * 63 + "1", "x" * 63 + "2"
    assert (len(tag_of(one)), tag_of(one) == tag_of(other)) == (64, False)
    assert talk(ada, session=one).number == 1


def test_the_queries_at_the_end_do_not_grow_with_the_session(ada: Agent, django_assert_max_num_queries: Any) -> None:
    for _ in range(30):
        talk(ada, session="monday")
    with django_assert_max_num_queries(21):
        end_and_read(ada)
