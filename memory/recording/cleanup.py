"""Suggest memories for cleanup, and apply decisions about them.

Nothing is discarded automatically. The agent's side passes the numbers of memories to `decide`. `decide` discards only
memories that are suggested at that moment. A discarded memory can be restored.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from django.db.models import Count, Exists, F, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Length
from django.utils import timezone

from audit.models import ActorKind
from audit.trail import Actor
from config.wording import several
from memory.errors import AgentConsentRequired, Invalid, Stale
from memory.models import Agent, CleanupDecision, Memory, Recall
from memory.policy import settings_document, switches
from memory.policy.validation import scope_of
from memory.recording import automatic
from memory.recording.interactions import DECIDES
from memory.silo.silo import Silo
from memory.writing import edits, operations

MOST_BYTES = 10_000_000  # of the sealed memories of one decision: they are read under the lock
LOOKED_AT = 10_000  # suggestions are chosen from this number of the oldest overdue memories
OFTEN = 5  # a memory with this number of recalls, or more, counts as often recalled
LATELY = timedelta(days=30)
KEEPING_TAGS = frozenset({"important", "keep"})
ENOUGH = 5  # a category needs this number of decisions before they count


class Importance(IntEnum):
    LOW, MEDIUM, HIGH = range(3)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that decide how important a memory is. They do not include the memory's content."""

    recalled: int = 0
    last_at: datetime | None = None
    is_tagged: bool = False  # tagged important or keep; only the agent's side knows this
    is_merged: bool = False
    was_kept: bool = False
    decides: bool = False  # mentions a decision or a preference; only the agent's side knows this

    def importance(self, now: datetime) -> Importance:
        """Return the importance of the memory. It is high if the memory is tagged as important, or was recalled often
        or recently. It is medium if the memory was ever recalled, was merged from other memories, was kept in an
        earlier review, or mentions a decision or a preference. Otherwise it is low."""
        is_used = self.recalled >= OFTEN or (self.last_at is not None and self.last_at > now - LATELY)
        if self.is_tagged or is_used:
            return Importance.HIGH
        is_worth_a_look = self.recalled or self.is_merged or self.was_kept or self.decides
        return Importance.MEDIUM if is_worth_a_look else Importance.LOW

    def words(self) -> str:
        times = "once" if self.recalled == 1 else f"{self.recalled:,} times"
        reasons = {
            f"recalled {times}, last on {self.last_at:%Y-%m-%d}" if self.last_at else "never recalled": True,
            "merged from other memories": self.is_merged,
            "kept in an earlier review": self.was_kept,
            "tagged to be kept": self.is_tagged,
            "mentions a decision or a preference": self.decides,
        }
        return "; ".join(words for words, is_so in reasons.items() if is_so)


class Suggestion(NamedTuple):
    """A suggestion to discard one memory. It does not include the memory's content."""

    number: int
    version: int
    category: str
    project: str
    age_days: int
    retention_days: int
    importance: Importance
    tokens: int
    recalled: int
    reason: str

    def as_record(self) -> dict[str, Any]:
        """Return the suggestion as a dict for JSON output."""
        return self._asdict() | {"importance": self.importance.name.lower()}


class Review(NamedTuple):
    """The current suggestions. `more` is the number of further suggestions. `kept_back` is the number of old memories
    that are not suggested because they are important."""

    suggestions: tuple[Suggestion, ...] = ()
    more: int = 0
    kept_back: int = 0


def review(agent: Agent, *, now: datetime | None = None, category: str | None = None, is_read: bool = False) -> Review:
    """Return at most `batch_cleanup_limit` suggestions. Less important memories come first. Of equally important
    memories, older ones come first. The memories of a category come last if the category has at least ENOUGH decisions
    and most of these decisions were to keep the memory.

    If `is_read` is true, the importance also depends on the content. Only the agent's side may set `is_read`. Raises
    Invalid, MemoryDisabled, Erased.
    """
    found, kept_back = _found(agent, now or timezone.now(), category, is_read=is_read)
    limit = _limit(agent)
    return Review(tuple(found[:limit]), max(len(found) - limit, 0), kept_back)


def decide(
    agent: Agent,
    keep: Sequence[int],
    discard: Sequence[int],
    actor: Actor,
    *,
    expect: Mapping[int, int],
    now: datetime | None = None,
) -> int | None:
    """Apply all decisions of the agent's side, or none of them. Each memory must be a current suggestion. One call can
    decide about at most `batch_cleanup_limit` memories. Return the number of the audit entry, or None if nothing was
    discarded.

    For each memory to discard, `expect` has the version that was listed. If such a memory has changed since then, no
    decision is applied and Stale is raised. Raises AgentConsentRequired, Invalid, MemoryDisabled, DiscardShare, Stale.
    """
    if actor.kind not in (ActorKind.AGENT, ActorKind.STEWARD):
        raise AgentConsentRequired("Only the agent or its steward can decide what to clean up.")
    now = now or timezone.now()
    with edits.locked(agent) as row:
        if len(keep) + len(discard) > (limit := _limit(row)):
            raise Invalid("discard", f"and `keep` together can have at most {limit:,} memories (batch_cleanup_limit)")
        decided = Memory.objects.of(row).numbered(each for each in (*keep, *discard) if 0 < each < 2**63)
        if decided.aggregate(size=Sum(Length("sealed"), default=0))["size"] > MOST_BYTES:
            raise Invalid("discard", f"and `keep` together can have at most {MOST_BYTES:,} bytes. Decide on fewer")
        found, _ = _found(row, now, None, is_read=True, numbers=[*keep, *discard])  # all of them would take seconds
        _check({"keep": keep, "discard": discard}, {each.number for each in found}, expect)
        if changed := [each.number for each in found if expect.get(each.number, each.version) != each.version]:
            raise Stale(changed)
        category_of = {each.number: each.category for each in found}
        seq = operations.discard(row, discard, actor).seq if discard else None
        _remember(row, {**dict.fromkeys(keep, True), **dict.fromkeys(discard, False)}, category_of, now)
        return seq


def _check(by_field: Mapping[str, Sequence[int]], suggested: set[int], expect: Mapping[int, int]) -> None:
    numbers = [number for each in by_field.values() for number in each]
    for field, each in by_field.items():
        if unknown := sorted(set(each) - suggested):
            raise Invalid(field, f"has memories that are not suggested now: {', '.join(map(str, unknown[:20]))}")
    if unseen := sorted(set(by_field["discard"]) - expect.keys()):
        raise Invalid("expect", f"needs a version for each of these memories: {', '.join(map(str, unseen[:20]))}")
    if len(set(numbers)) < len(numbers):
        raise Invalid("discard", "and `keep` must not have the same memory twice")


def _remember(agent: Agent, kept: Mapping[int, bool], category_of: Mapping[int, str], now: datetime) -> None:
    decided = [
        CleanupDecision(agent_id=agent.pk, number=number, category=category_of[number], is_kept=is_kept, at=now)
        for number, is_kept in kept.items()
    ]
    CleanupDecision.objects.bulk_create(
        decided, update_conflicts=True, unique_fields=["agent", "number"], update_fields=["category", "is_kept", "at"]
    )


# --- what is suggested


def _limit(agent: Agent) -> int:
    return int(settings_document.value(switches.rules_of(agent), "memory_rules.cleanup_guidance.batch_cleanup_limit"))


def _found(
    agent: Agent, now: datetime, category: str | None, *, is_read: bool, numbers: Sequence[int] | None = None
) -> tuple[list[Suggestion], int]:
    """Return the suggestions (all, or those with these numbers) in order, and the number of old memories that are not
    suggested because they are important. The number of database queries does not depend on the number of memories. With
    `numbers`, only the tags are read, and categories that are mostly kept do not come last."""
    switches.require_on(agent)
    if category is not None:
        scope_of(category)
    rules = switches.rules_of(agent)
    days = {name: each for name, each in automatic.retention(agent).items() if category in (None, name)}
    if not (days and automatic.is_on(rules, "suggest_cleanup_actions")):
        return [], 0
    found = list(_overdue(agent, days, now, is_read=is_read, numbers=numbers))
    offered = [each for each in found if each.importance != Importance.HIGH]
    if not automatic.is_on(rules, "preserve_important_memories"):
        offered = found
    cherished = _mostly_kept(agent) if offered and numbers is None else frozenset()  # it reads all decisions
    offered.sort(key=lambda each: (each.category in cherished, each.importance))  # equal ones stay in order of age
    return offered, len(found) - len(offered)


def _overdue(
    agent: Agent, days: Mapping[str, int], now: datetime, *, is_read: bool, numbers: Sequence[int] | None
) -> Iterator[Suggestion]:
    recall = Recall.objects.filter(agent_id=agent.pk, number=OuterRef("number"))
    rows = automatic.memories(days, now).filter(agent_id=agent.pk).order_by("origin", "number").defer("digest")
    rows = rows if numbers is None else rows.filter(number__among=[each for each in numbers if 0 < each < 2**63])
    rows = rows.annotate(recalls=Subquery(recall.values("times")), recalled_at=Subquery(recall.values("last_at")))
    merged = Memory.objects.filter(agent_id=agent.pk, superseded_by=OuterRef("number"), superseded_by__isnull=False)
    rows = rows.annotate(is_merged=Exists(merged))
    silo = Silo.for_agent(agent) if is_read else None
    for memory in (rows if is_read else rows.defer("sealed"))[:LOOKED_AT]:
        tags = silo.open_tags(memory) if silo is not None else ()
        content = silo.open(memory).content if silo is not None and numbers is None else ""
        known = vars(memory)
        facts = Facts(
            recalled=known["recalls"] or 0,
            last_at=known["recalled_at"],
            is_tagged=any(tag.casefold() in KEEPING_TAGS for tag in tags),
            is_merged=known["is_merged"],
            was_kept=known["kept_at"] is not None,
            decides=DECIDES.search(content) is not None,
        )
        age, suggested = (now - memory.origin).days, days[memory.category]
        reason = f"{several(age, 'day')} old, suggested retention {several(suggested, 'day')}; {facts.words()}"
        which = memory.number, memory.version, memory.category, memory.project
        yield Suggestion(*which, age, suggested, facts.importance(now), memory.tokens, facts.recalled, reason)


def _mostly_kept(agent: Agent) -> frozenset[str]:
    """Return the categories with more decisions to keep a memory than to discard one. Categories with fewer than ENOUGH
    decisions are left out. A decision to discard is not counted if the memory is active again."""
    again = Memory.objects.of(agent).active().filter(number=OuterRef("number"))
    decided = CleanupDecision.objects.filter(agent_id=agent.pk).exclude(Exists(again), is_kept=False)
    counted = decided.values("category").annotate(times=Count("pk"), kept=Count("pk", filter=Q(is_kept=True)))
    mostly = counted.filter(times__gte=ENOUGH, kept__gt=F("times") - F("kept"))
    return frozenset(mostly.values_list("category", flat=True))
