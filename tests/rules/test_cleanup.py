"""Cleanup: what is suggested, in which order, and that nothing goes but what the agent's side names, one by one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.trail import Actor
from memory import errors
from memory.models import Agent, CleanupDecision, Memory
from memory.policy.settings_document import DEFAULTS
from memory.recording import cleanup, usage
from memory.recording.cleanup import Decided, Facts, Importance, review
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.rules.talking import settings as settle
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, protect, refused, remember, row, tell
from tests.unit.test_architecture import MODULES, calls, importers
from tests.unit.test_queries import asked

NOW = datetime.now(UTC)
DAYS: dict[str, int] = {
    name: each["suggested_retention_days"] for name, each in DEFAULTS["memory_rules"]["categories"].items()
}


def decide(agent: Agent, keep: list[int], discard: list[int], actor: Actor, now: datetime | None = None) -> Decided:
    """By whoever has just looked at them."""
    rows = Memory.objects.filter(agent=agent, number__in=discard)
    seen = dict.fromkeys(discard, 1) | dict(rows.values_list("number", "version"))
    return cleanup.decide(agent, keep, discard, actor, expect=seen, now=now)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def old(agent: Agent, *texts: str, days: float = 100, **values: Any) -> list[int]:
    """Technical memories, suggested to be kept for 90 days."""
    return remember(agent, *texts, **{"category": "technical", "origin": ago(days)} | values)


def suggested(agent: Agent, **how: Any) -> list[int]:
    return [each.number for each in cleanup.review(fresh(agent), now=how.pop("now", NOW), **how).suggestions]


def looked_through(agent: Agent, **how: Any) -> cleanup.Review:
    return review(fresh(agent), now=how.pop("now", NOW), is_read=True, **how)


# --- what is suggested


def test_a_memory_older_than_its_categorys_days_is_suggested(ada: Agent) -> None:
    for category, days in DAYS.items():
        remember(ada, "younger", category=category, origin=ago(days - 1))
        [older] = remember(ada, "older", category=category, origin=ago(days + 1))
        [one] = cleanup.review(fresh(ada), category=category, now=NOW).suggestions  # of this one alone
        assert (one.number, one.category, one.retention_days) == (older, category, days)
        assert (one.age_days, one.importance) == (days + 1, 0)
    with pytest.raises(errors.Invalid):
        suggested(ada, category="nothing")


def test_what_a_suggestion_says(ada: Agent) -> None:
    old(ada, "ZEBRA", project="shop")
    [one] = cleanup.review(fresh(ada), now=NOW).suggestions
    assert one.as_record() == {
        "number": 1,
        "version": row(ada, 1).version,
        "category": "technical",
        "project": "shop",
        "age_days": 100,
        "retention_days": 90,
        "importance": "low",
        "tokens": one.tokens,
        "recalled": 0,
        "reason": "100 days old, suggested retention 90 days; never recalled",
    }
    assert "ZEBRA" not in repr(one)


def test_what_switches_suggestions_off(ada: Agent) -> None:
    old(ada, "tea")
    assert suggested(ada) == [1]
    rows: list[dict[str, Any]] = [
        {"cleanup_guidance__enabled": False},
        {"cleanup_guidance__suggest_cleanup_actions": False},
        {"cleanup_guidance__batch_cleanup_limit": 0},
        {"categories__technical__enabled": False},
        *({"categories__technical__suggested_retention_days": days} for days in (0, 101, 1_000_000)),
    ]
    for settings in rows:
        settle(ada, **settings)
        assert suggested(ada) == []
        with refused(ada, errors.Invalid):
            decide(fresh(ada), [], [1], ME)


def test_what_is_never_suggested(ada: Agent, bob: Agent) -> None:
    old(bob, *["tea"] * 5)
    constitutional, gone, kept = old(ada, "constitutional", "gone", "kept")
    protect(ada, constitutional)
    operations.discard(fresh(ada), [gone], ME)
    Memory.objects.filter(number=tell(ada)).update(origin=ago(1_000))
    assert suggested(ada) == [kept]


# --- how important it is


def test_importance() -> None:
    medium = [{"recalled": 1, "last_at": ago(60)}, {"is_merged": True}, {"was_kept": True}, {"decides": True}]
    high = [{"recalled": 5, "last_at": ago(60)}, {"recalled": 1, "last_at": ago(29)}, {"is_tagged": True}]
    assert Facts().importance(NOW) == Importance.LOW
    assert {Facts(**facts).importance(NOW) for facts in medium} == {Importance.MEDIUM}  # type: ignore[arg-type]
    assert {Facts(**facts).importance(NOW) for facts in high} == {Importance.HIGH}  # type: ignore[arg-type]


@given(st.integers(0, 20), st.integers(0, 400), st.booleans(), st.booleans(), st.booleans())
def test_whatever_speaks_for_a_memory_makes_it_no_less_important(
    times: int, days: int, is_tagged: bool, is_merged: bool, was_kept: bool
) -> None:
    facts = Facts(times, ago(days) if times else None, is_tagged, is_merged, was_kept)
    more = [
        Facts(times + 1, ago(days), is_tagged, is_merged, was_kept),
        Facts(facts.recalled, facts.last_at, True, is_merged, was_kept),
        Facts(facts.recalled, facts.last_at, is_tagged, True, was_kept),
        Facts(facts.recalled, facts.last_at, is_tagged, is_merged, True),
        Facts(facts.recalled, facts.last_at, is_tagged, is_merged, was_kept, decides=True),
    ]
    assert all(each.importance(NOW) >= facts.importance(NOW) for each in more)


def test_importance_is_found_in_what_is_kept_of_a_memory(ada: Agent) -> None:
    plain, recalled, often = old(ada, "plain", "recalled", "often")
    [tagged] = old(ada, "tagged", tags=["Keep"])
    operations.consolidate(fresh(ada), old(ada, "one", "two"), "one and two", ME)
    [merged] = set(active(ada)) - {plain, recalled, often, tagged}
    [decided] = old(ada, "We decided on the night ferry.")
    usage.note(ada, [recalled], ago(50))
    for _ in range(5):
        usage.note(ada, [often], ago(50))
    settle(ada, cleanup_guidance__preserve_important_memories=False)
    told = {each.number: each for each in looked_through(ada).suggestions}
    assert {number: each.importance.name for number, each in told.items()} == {
        plain: "LOW",
        recalled: "MEDIUM",
        merged: "MEDIUM",
        decided: "MEDIUM",
        tagged: "HIGH",
        often: "HIGH",
    }
    assert "made of other memories" in told[merged].reason
    assert "tagged to be kept" in told[tagged].reason
    assert "mentions a decision or a preference" in told[decided].reason
    assert "decision" not in "".join(each.reason for each in review(fresh(ada), now=NOW).suggestions)
    assert "recalled 5 times, last on" in told[often].reason


def test_important_ones_are_held_back_and_counted(ada: Agent) -> None:
    old(ada, "tea", "milk", tags=["important"])
    [plain] = old(ada, "water")
    found = looked_through(ada)
    assert ([each.number for each in found.suggestions], found.kept_back) == ([plain], 2)
    with refused(ada, errors.Invalid):
        decide(fresh(ada), [], [1], ME)
    settle(ada, cleanup_guidance__preserve_important_memories=False)
    found = looked_through(ada)
    assert ([each.number for each in found.suggestions], found.kept_back) == ([plain, 1, 2], 0)


def test_tags_are_opened_for_the_agents_side_alone(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    old(ada, "tea", tags=["keep"])

    def opened(*_: Any) -> Any:
        raise AssertionError("opened")

    monkeypatch.setattr("memory.silo.silo.Silo.open", opened)
    assert suggested(ada) == [1]
    with pytest.raises(AssertionError, match="opened"):
        looked_through(ada)


# --- order


def test_the_least_important_come_first_and_then_the_oldest(ada: Agent) -> None:
    old(ada, "one", days=100)
    old(ada, "two", days=300)
    old(ada, "three", days=500)
    old(ada, "four", days=200)
    usage.note(ada, [3], ago(50))
    assert suggested(ada) == [2, 4, 1, 3]


def test_so_many_at_a_time(ada: Agent) -> None:
    old(ada, *["tea"] * 13)
    found = looked_through(ada)
    assert (len(found.suggestions), found.more) == (10, 3)
    settle(ada, cleanup_guidance__batch_cleanup_limit=2)
    found = looked_through(ada)
    assert ([each.number for each in found.suggestions], found.more) == ([1, 2], 11)
    with refused(ada, errors.Invalid):
        decide(fresh(ada), [1], [2, 3], ME)


@pytest.mark.parametrize("many", [2, 100])
def test_queries_do_not_grow(ada: Agent, many: int) -> None:
    usage.note(ada, old(ada, *(f"tea {n}" for n in range(many))), ago(50))
    agent = fresh(ada)
    for is_read in (False, True):
        assert asked(lambda: review(agent, now=NOW, is_read=is_read)) == [  # noqa: B023
            "SELECT memory_memory",  # which were made of others
            "SELECT memory_cleanupdecision",  # what is overdue, when it was kept, and how often it was recalled
            "SELECT memory_cleanupdecision",  # what was decided of each category
        ]


# --- decisions


def test_each_is_decided_by_its_number(ada: Agent) -> None:
    old(ada, "one", "two", "three")
    done = decide(fresh(ada), [1], [3], ME)
    assert (done.kept, done.discarded, done.seq) == ((1,), (3,), last_entry(ada).seq)
    assert active(ada) == [1, 2]
    assert last_entry(ada).operation == "discarded"
    assert decide(fresh(ada), [], [], ME).seq is None  # which does nothing
    assert last_entry(ada).seq == done.seq
    rows = CleanupDecision.objects.order_by("number").values_list("number", "category", "is_kept")
    assert list(rows) == [(1, "technical", True), (3, "technical", False)]
    assert suggested(ada) == [2]
    assert problems(ada) == []


def test_what_is_not_suggested_or_said_twice_is_refused_whole(ada: Agent) -> None:
    old(ada, "one")
    remember(ada, "young", category="technical")
    refusals: list[tuple[list[int], list[int]]] = [([], [9]), ([], [2]), ([1], [1]), ([], [1, 1])]
    for keep, discard in refusals:
        with refused(ada, errors.Invalid) as caught:
            decide(fresh(ada), keep, discard, ME)
        assert caught.value.field == "discard"
    assert not CleanupDecision.objects.exists()


def test_what_was_not_seen_is_not_discarded(ada: Agent) -> None:
    old(ada, "one", "two")
    seen = {number: row(ada, number).version for number in (1, 2)}
    with refused(ada, errors.Invalid) as caught:
        cleanup.decide(fresh(ada), [], [1, 2], ME, expect={1: seen[1]})
    assert (caught.value.field, "2" in str(caught.value)) == ("expect", True)
    operations.revise(fresh(ada), 2, ME, content="something else")
    for keep, discard in (([], [1, 2]), ([2], [1])):
        with refused(ada, errors.Stale) as stale:
            cleanup.decide(fresh(ada), keep, discard, ME, expect=seen)
        assert tuple(stale.value.numbers) == (2,)
    assert active(ada) == [1, 2]
    assert not CleanupDecision.objects.exists()
    assert cleanup.decide(fresh(ada), [2], [1], ME, expect={1: seen[1]}).discarded == (1,)


def test_the_agents_side_alone_decides(ada: Agent) -> None:
    old(ada, "one")
    for actor in (PERSON, OPERATOR, Actor.system("cleanup")):
        with refused(ada, errors.AgentConsentRequired):
            decide(fresh(ada), [], [1], actor)
    assert decide(fresh(ada), [], [1], Actor.steward("sue@acme.test")).discarded == (1,)


def test_the_days_share_holds(ada: Agent) -> None:
    numbers = old(ada, *(f"tea {n}" for n in range(30)))
    Memory.objects.filter(agent=ada).update(created_at=ago(9))
    settle(ada, cleanup_guidance__batch_cleanup_limit=100)
    with refused(ada, errors.DiscardShare):
        decide(fresh(ada), numbers[25:], numbers[:25], ME)
    assert not CleanupDecision.objects.exists()
    assert len(decide(fresh(ada), [], numbers[:20], ME).discarded) == 20


# --- what is learned


def test_what_was_kept_is_suggested_again_after_as_many_days(ada: Agent) -> None:
    old(ada, "one")
    decide(fresh(ada), [1], [], ME, now=NOW)
    assert suggested(ada, now=NOW + timedelta(days=89)) == []
    [again] = cleanup.review(fresh(ada), now=NOW + timedelta(days=91)).suggestions
    assert (again.importance, "kept in an earlier review" in again.reason) == (Importance.MEDIUM, True)
    decide(fresh(ada), [1], [], ME, now=NOW + timedelta(days=91))
    assert suggested(ada, now=NOW + timedelta(days=92)) == []


def _restored(ada: Agent, seq: int) -> None:
    operations.restore(fresh(ada), [1], ME)


def _rolled_back(ada: Agent, seq: int) -> None:
    roll_back(fresh(ada), What.entry(seq), OPERATOR)


@pytest.mark.parametrize("bring_back", [_restored, _rolled_back])
def test_a_discarded_one_that_is_brought_back_may_be_suggested_again(
    ada: Agent, bring_back: Callable[[Agent, int], None]
) -> None:
    old(ada, "one")
    seq = decide(fresh(ada), [], [1], ME, now=NOW).seq
    assert seq is not None
    assert suggested(ada) == []
    bring_back(ada, seq)
    assert suggested(ada) == [1]


def test_categories_of_which_most_is_kept_come_last(ada: Agent) -> None:
    technical = old(ada, *["tea"] * 6, days=500)
    behavioral = old(ada, "younger", category="behavioral", days=70)
    assert suggested(ada) == [*technical, *behavioral]
    decide(fresh(ada), technical[:4], [], ME, now=NOW)
    assert suggested(ada) == [*technical[4:], *behavioral]
    decide(fresh(ada), technical[4:5], [], ME, now=NOW)
    assert suggested(ada) == [*behavioral, technical[5]]


def test_a_discard_that_was_undone_counts_for_nothing(ada: Agent) -> None:
    technical = old(ada, *["tea"] * 6, days=500)
    behavioral = old(ada, "younger", category="behavioral", days=70)
    for place, number in enumerate(technical):
        CleanupDecision.objects.create(agent=ada, number=number, category="technical", is_kept=False, at=ago(300))
        if place >= 3:
            continue
        CleanupDecision.objects.create(agent=ada, number=900 + place, category="technical", is_kept=True, at=ago(300))
    assert suggested(ada)[0] == technical[0]  # 6 discards, undone; 3 kept: too few to tell
    for place in (3, 4):
        CleanupDecision.objects.create(agent=ada, number=900 + place, category="technical", is_kept=True, at=ago(300))
    assert suggested(ada)[0] == behavioral[0]  # 5 kept against none that lasted


# --- never by itself


def test_nothing_discards_without_numbers() -> None:
    """The one function of the rules that discards is told which, and is called where the agent's side speaks."""
    rules = ("memory/recording/", "memory/policy/", "memory/masking/", "memory/agents/rule_changes.py")
    takers = {module for module in MODULES if module.startswith(rules)}
    discards = {
        m for m in takers for called, _ in calls(m) if called in ("operations.discard", "discard", "operations.trim")
    }
    assert discards == {"memory/recording/cleanup.py"}
    deciders = {module for module in MODULES for called, _ in calls(module) if called == "cleanup.decide"}
    assert (
        deciders
        == {"memory/api/recording.py", "memory/management/commands/cleanup.py"}
        == importers("memory.recording.cleanup")
    )
    for name in ("keep", "discard", "expect"):
        assert inspect.signature(cleanup.decide).parameters[name].default is inspect.Parameter.empty
    discarding = [
        name
        for name, function in inspect.getmembers(cleanup, inspect.isfunction)
        if function.__module__ == cleanup.__name__ and "operations.discard" in inspect.getsource(function)
    ]
    assert discarding == ["decide"]


def test_looking_changes_nothing(ada: Agent) -> None:
    old(ada, *["tea"] * 12)
    before = last_entry(ada).seq
    for _ in range(3):
        looked_through(ada)
    assert (len(active(ada)), last_entry(ada).seq, CleanupDecision.objects.count()) == (12, before, 0)
