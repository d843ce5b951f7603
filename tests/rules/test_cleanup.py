"""Cleanup: what it suggests, in which order, and that only the agent's side discards, by number (seed 004)."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.trail import Actor
from memory import errors
from memory.access import authority
from memory.models import Agent, CleanupDecision, Memory
from memory.policy.settings_document import DEFAULTS
from memory.recording import cleanup, usage
from memory.recording.cleanup import Facts, Importance, review
from memory.silo.silo import Silo
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from tests.conftest import OPERATOR
from tests.rules.recordings import settings
from tests.steps import ME, PERSON, active, fresh, last_entry, problems, protect, refused, remember, row, tell
from tests.unit.test_architecture import MODULES, calls, importers
from tests.unit.test_queries import asked

NOW = datetime.now(UTC)
CATEGORIES = DEFAULTS["memory_rules"]["categories"]
DAYS: dict[str, int] = {name: each["suggested_retention_days"] for name, each in CATEGORIES.items()}


def decide(agent: Agent, keep: list[int], discard: list[int], actor: Actor, now: datetime | None = None) -> int | None:
    """Decide with the current versions of the memories."""
    rows = Memory.objects.filter(agent=agent, number__in=discard)
    versions = dict.fromkeys(discard, 1) | dict(rows.values_list("number", "version"))
    return cleanup.decide(fresh(agent), keep, discard, actor, expect=versions, now=now)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def old(agent: Agent, *texts: str, days: float = 100, **values: Any) -> list[int]:
    """Store technical memories of this age. Their suggested retention is 90 days."""
    return remember(agent, *texts, **{"category": "technical", "origin": ago(days)} | values)


def suggested(agent: Agent, **how: Any) -> list[int]:
    return [each.number for each in review(fresh(agent), now=how.pop("now", NOW), **how).suggestions]


def review_with_content(agent: Agent) -> cleanup.Review:
    return review(fresh(agent), now=NOW, is_read=True)


def test_a_memory_older_than_its_categorys_days_is_suggested(ada: Agent) -> None:
    for category, days in DAYS.items():
        remember(ada, "younger", category=category, origin=ago(days - 1))
        [older] = remember(ada, "older", category=category, origin=ago(days + 1))
        [one] = review(fresh(ada), category=category, now=NOW).suggestions
        assert (one.number, one.category, one.retention_days) == (older, category, days)
        assert (one.age_days, one.importance) == (days + 1, 0)
    with pytest.raises(errors.Invalid):
        suggested(ada, category="nothing")


def test_a_suggestion_has_no_content(ada: Agent) -> None:
    old(ada, "ZEBRA", project="shop")
    [one] = review(fresh(ada), now=NOW).suggestions
    numbers = {"number": 1, "version": row(ada, 1).version, "tokens": one.tokens, "recalled": 0}
    reason = "100 days old, suggested retention 90 days; never recalled"
    texts = {"category": "technical", "project": "shop", "importance": "low", "reason": reason}
    assert one.as_record() == {"age_days": 100, "retention_days": 90} | numbers | texts
    assert "ZEBRA" not in repr(one)


OFF: list[dict[str, Any]] = [
    {"cleanup_guidance__enabled": False},
    {"cleanup_guidance__suggest_cleanup_actions": False},
    {"cleanup_guidance__batch_cleanup_limit": 0},
    {"categories__technical__enabled": False},
    *({"categories__technical__suggested_retention_days": days} for days in (0, 101, 1_000_000)),
]


def test_each_of_these_settings_switches_suggestions_off(ada: Agent) -> None:
    old(ada, "tea")
    assert suggested(ada) == [1]
    for values in OFF:
        settings(ada, **values)
        assert suggested(ada) == []
        with refused(ada, errors.Invalid):
            decide(ada, [], [1], ME)


def test_constitutional_discarded_system_and_other_agents_memories_are_not_suggested(ada: Agent, bob: Agent) -> None:
    old(bob, *["tea"] * 5)
    constitutional, discarded, plain = old(ada, "constitutional", "discarded", "plain")
    protect(ada, constitutional)
    operations.discard(fresh(ada), [discarded], ME)
    Memory.objects.filter(number=tell(ada)).update(origin=ago(1_000))
    assert suggested(ada) == [plain]


def test_importance_follows_from_the_facts() -> None:
    medium = [{"recalled": 1, "last_at": ago(60)}, {"is_merged": True}, {"was_kept": True}, {"decides": True}]
    high = [{"recalled": 5, "last_at": ago(60)}, {"recalled": 1, "last_at": ago(29)}, {"is_tagged": True}]
    assert Facts().importance(NOW) == Importance.LOW
    assert {Facts(**facts).importance(NOW) for facts in medium} == {Importance.MEDIUM}  # type: ignore[arg-type]
    assert {Facts(**facts).importance(NOW) for facts in high} == {Importance.HIGH}  # type: ignore[arg-type]


@given(st.integers(0, 20), st.integers(0, 400), st.booleans(), st.booleans(), st.booleans())
def test_no_further_fact_lowers_the_importance(
    times: int, days: int, is_tagged: bool, is_merged: bool, was_kept: bool
) -> None:
    facts = Facts(times, ago(days) if times else None, is_tagged, is_merged, was_kept)
    further = ({name: True} for name in ("is_tagged", "is_merged", "was_kept", "decides"))
    more = [replace(facts, recalled=times + 1, last_at=ago(days)), *(replace(facts, **fact) for fact in further)]
    assert all(each.importance(NOW) >= facts.importance(NOW) for each in more)


def test_the_facts_come_from_tags_merges_recalls_and_content(ada: Agent) -> None:
    plain, recalled, often = old(ada, "plain", "recalled", "often")
    [tagged] = old(ada, "tagged", tags=["Keep"])
    operations.consolidate(fresh(ada), old(ada, "one", "two"), "one and two", ME)
    [merged] = set(active(ada)) - {plain, recalled, often, tagged}
    [decision] = old(ada, "We decided on the night ferry.")
    usage.note(ada, [recalled], ago(50))
    for _ in range(5):
        usage.note(ada, [often], ago(50))
    settings(ada, cleanup_guidance__preserve_important_memories=False)
    found = {each.number: each for each in review_with_content(ada).suggestions}
    importance = {number: each.importance.name for number, each in found.items()}
    medium = dict.fromkeys((recalled, merged, decision), "MEDIUM")
    assert importance == {plain: "LOW"} | medium | {tagged: "HIGH", often: "HIGH"}
    assert "decision" not in "".join(each.reason for each in review(fresh(ada), now=NOW).suggestions)


def test_important_memories_are_held_back_and_counted(ada: Agent) -> None:
    old(ada, "tea", "milk", tags=["important"])
    [plain] = old(ada, "water")
    found = review_with_content(ada)
    assert ([each.number for each in found.suggestions], found.kept_back) == ([plain], 2)
    with refused(ada, errors.Invalid):
        decide(ada, [], [1], ME)
    settings(ada, cleanup_guidance__preserve_important_memories=False)
    found = review_with_content(ada)
    assert ([each.number for each in found.suggestions], found.kept_back) == ([plain, 1, 2], 0)


def test_tags_are_opened_for_the_agents_side_only(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    old(ada, "tea", tags=["keep"])

    def opened(*_: Any) -> Any:
        raise AssertionError("opened")

    monkeypatch.setattr("memory.silo.silo.Silo.open", opened)
    assert suggested(ada) == [1]
    with pytest.raises(AssertionError, match="opened"):
        review_with_content(ada)


def test_the_least_important_come_first_then_the_oldest(ada: Agent) -> None:
    for days in (100, 300, 500, 200):
        old(ada, f"tea for {days} days", days=days)
    usage.note(ada, [3], ago(50))
    assert suggested(ada) == [2, 4, 1, 3]


def test_a_review_suggests_at_most_the_batch_limit_and_changes_nothing(ada: Agent) -> None:
    old(ada, *["tea"] * 13)
    before = last_entry(ada).seq
    found = review_with_content(ada)
    assert (len(found.suggestions), found.more) == (10, 3)
    settings(ada, cleanup_guidance__batch_cleanup_limit=2)
    found = review_with_content(ada)
    assert ([each.number for each in found.suggestions], found.more) == ([1, 2], 11)
    assert (len(active(ada)), last_entry(ada).seq, CleanupDecision.objects.count()) == (13, before + 1, 0)
    with refused(ada, errors.Invalid):
        decide(ada, [1], [2, 3], ME)


def test_categories_whose_memories_are_mostly_kept_come_last(ada: Agent) -> None:
    technical = old(ada, *["tea"] * 6, days=500)
    behavioral = old(ada, "younger", category="behavioral", days=70)
    assert suggested(ada) == [*technical, *behavioral]
    decide(ada, technical[:4], [], ME, now=NOW)
    assert suggested(ada) == [*technical[4:], *behavioral]
    decide(ada, technical[4:5], [], ME, now=NOW)
    assert suggested(ada) == [*behavioral, technical[5]]


def test_discards_that_were_undone_do_not_count(ada: Agent) -> None:
    def decided(number: int, *, is_kept: bool) -> None:
        row = {"agent": ada, "category": "technical", "at": ago(300)}
        CleanupDecision.objects.create(number=number, is_kept=is_kept, **row)

    technical = old(ada, *["tea"] * 6, days=500)
    behavioral = old(ada, "younger", category="behavioral", days=70)
    for number in technical:
        decided(number, is_kept=False)
    for number in range(3):
        decided(900 + number, is_kept=True)
    assert suggested(ada)[0] == technical[0]  # three decisions are too few
    for number in (3, 4):
        decided(900 + number, is_kept=True)
    assert suggested(ada)[0] == behavioral[0]


@pytest.mark.parametrize("count", [2, 100])
def test_the_queries_do_not_grow_with_the_memories(ada: Agent, count: int) -> None:
    usage.note(ada, old(ada, *(f"tea {n}" for n in range(count))), ago(50))
    agent = fresh(ada)
    authority.require(agent)
    for is_read in (False, True):
        assert asked(lambda: review(agent, now=NOW, is_read=is_read)) == [  # noqa: B023
            "SELECT memory_cleanupdecision",  # overdue memories with their decisions and recalls
            "SELECT memory_cleanupdecision",  # decisions by category
        ]
    statements = asked(lambda: decide(agent, [1], [], ME, now=NOW))
    assert statements.count("SELECT memory_cleanupdecision") == 1, "a decision does not count all decisions"


def test_decisions_are_made_by_suggested_number_in_one_entry(ada: Agent) -> None:
    old(ada, "one", "two", "three")
    seq = decide(ada, [1], [3], ME)
    assert seq == last_entry(ada).seq
    assert (active(ada), last_entry(ada).operation) == ([1, 2], "discarded")
    assert decide(ada, [], [], ME) is None
    assert last_entry(ada).seq == seq
    rows = CleanupDecision.objects.order_by("number").values_list("number", "category", "is_kept")
    assert list(rows) == [(1, "technical", True), (3, "technical", False)]
    assert (suggested(ada), problems(ada)) == ([2], [])
    remember(ada, "young", category="technical")
    refusals: list[tuple[list[int], list[int]]] = [([], [9]), ([], [1]), ([], [4]), ([2], [2]), ([], [2, 2])]
    for keep, discard in refusals:  # not suggested, or repeated
        with refused(ada, errors.Invalid) as caught:
            decide(ada, keep, discard, ME)
        assert caught.value.field == "discard"
    assert CleanupDecision.objects.count() == 2


def test_a_memory_is_discarded_only_in_the_version_that_was_read(ada: Agent) -> None:
    old(ada, "one", "two")
    versions = {number: row(ada, number).version for number in (1, 2)}
    with refused(ada, errors.Invalid) as caught:
        cleanup.decide(fresh(ada), [], [1, 2], ME, expect={1: versions[1]})
    assert (caught.value.field, "2" in str(caught.value)) == ("expect", True)
    operations.revise(fresh(ada), 2, ME, content="something else")
    for keep, discard in (([], [1, 2]), ([2], [1])):
        with refused(ada, errors.Stale) as stale:
            cleanup.decide(fresh(ada), keep, discard, ME, expect=versions)
        assert tuple(stale.value.numbers) == (2,)
    assert (active(ada), CleanupDecision.objects.exists()) == ([1, 2], False)
    assert cleanup.decide(fresh(ada), [2], [1], ME, expect={1: versions[1]})
    assert active(ada) == [2]


def test_a_decision_reads_no_content_and_only_its_own_memories(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read ten thousand takes seconds, and the agent is locked."""
    numbers, opened, read = old(ada, *["tea"] * 11), [], Silo.open_tags
    monkeypatch.delattr(Silo, "open")
    monkeypatch.setattr(Silo, "open_tags", lambda silo, memory: opened.append(memory.number) or read(silo, memory))
    decide(ada, numbers[:1], [], ME)
    with refused(ada, errors.Invalid) as caught:
        decide(ada, numbers, [], ME)
    assert (opened, "batch_cleanup_limit" in str(caught.value)) == (numbers[:1], True)
    monkeypatch.setattr(cleanup, "MOST_BYTES", 10)  # long tags are read, too
    with refused(ada, errors.Invalid) as caught:
        decide(ada, [], numbers[:2], ME)
    assert (opened, " 10 bytes" in str(caught.value)) == (numbers[:1], True)


def test_only_the_agents_side_decides(ada: Agent) -> None:
    old(ada, "one")
    for actor in (PERSON, OPERATOR, Actor.system("cleanup")):
        with refused(ada, errors.AgentConsentRequired):
            decide(ada, [], [1], actor)
    assert decide(ada, [], [1], Actor.steward("sue@acme.test"))
    assert 1 not in active(ada)


def test_the_daily_discard_limit_applies(ada: Agent) -> None:
    numbers = old(ada, *(f"tea {n}" for n in range(30)))
    Memory.objects.filter(agent=ada).update(created_at=ago(9))
    settings(ada, cleanup_guidance__batch_cleanup_limit=100)
    with refused(ada, errors.DiscardShare):
        decide(ada, numbers[25:], numbers[:25], ME)
    assert not CleanupDecision.objects.exists()
    before = active(ada)
    assert decide(ada, [], numbers[:20], ME)
    assert len(before) - len(active(ada)) == 20


def test_a_kept_memory_is_suggested_again_after_its_retention(ada: Agent) -> None:
    old(ada, "one")
    decide(ada, [1], [], ME, now=NOW)
    assert suggested(ada, now=NOW + timedelta(days=89)) == []
    [again] = review(fresh(ada), now=NOW + timedelta(days=91)).suggestions
    assert (again.importance, "kept in an earlier review" in again.reason) == (Importance.MEDIUM, True)
    decide(ada, [1], [], ME, now=NOW + timedelta(days=91))
    assert suggested(ada, now=NOW + timedelta(days=92)) == []


BRING_BACK: list[Callable[[Agent, int], Any]] = [
    lambda ada, _: operations.restore(ada, [1], ME),
    lambda ada, seq: roll_back(ada, What("entry", seq), OPERATOR),
]


@pytest.mark.parametrize("bring_back", BRING_BACK, ids=["restore", "rollback"])
def test_a_discarded_memory_that_is_brought_back_can_be_suggested(ada: Agent, bring_back: Any) -> None:
    old(ada, "one")
    seq = decide(ada, [], [1], ME, now=NOW)
    assert suggested(ada) == []
    bring_back(fresh(ada), seq)
    assert suggested(ada) == [1]


def test_the_only_code_that_discards_needs_numbers_from_the_caller() -> None:
    """Of memory rules, only `cleanup.decide` discards. Only the API and the command call it."""
    parts = ("memory/recording/", "memory/policy/", "memory/masking/", "memory/agents/rule_changes.py")
    discarding = {"operations.discard", "discard", "operations.trim"}
    modules = {module for module in MODULES if module.startswith(parts)}
    assert {module for module in modules for called, _ in calls(module) if called in discarding} == {
        "memory/recording/cleanup.py"
    }
    callers = {module for module in MODULES for called, _ in calls(module) if called == "cleanup.decide"}
    assert callers == {"memory/api/recording.py", "memory/management/commands/cleanup.py"}
    assert callers == importers("memory.recording.cleanup")
    for name in ("keep", "discard", "expect"):
        assert inspect.signature(cleanup.decide).parameters[name].default is inspect.Parameter.empty
    functions = [
        each for _, each in inspect.getmembers(cleanup, inspect.isfunction) if each.__module__ == cleanup.__name__
    ]
    assert [each.__name__ for each in functions if "operations.discard" in inspect.getsource(each)] == ["decide"]
