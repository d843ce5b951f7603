"""Find the session to which an interaction belongs. Store the memory of a session when the session ends.

The name, the times and the memory numbers of a session are stored unencrypted. The content of a session is stored only
encrypted. The memory of a session is made from its recordings and from the outcomes that the caller sets. Missing
values are not guessed.
"""

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any, Self

from django.db.models import QuerySet
from django.utils import timezone

from audit import redactions
from audit.trail import Actor
from memory.errors import AlreadyExists, Invalid, NotFound, NotOpen
from memory.markdown import labels, sections
from memory.models import Agent, Kind, Memory, RecordedSession
from memory.policy import paths, settings_document, switches
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import MAX_TAG, Draft, checked_project
from memory.recording import topics
from memory.recording.interactions import QUOTED, SEVERAL, TEXTS, Quotable, quotable
from memory.recording.texts import checked_name, cleaned, reference, short
from memory.silo.silo import Silo
from memory.writing import edits, operations

CATEGORY = "session"
# The recordings that were read before the agent was locked. The key is the number and the version of a memory.
Ahead = dict[tuple[int, int], Quotable]
NEXT = ("Session Overview", "Next Session")
_MOST = 500  # characters of an outcome


@dataclass(frozen=True, slots=True, repr=False)
class Outcomes:
    """The outcomes of a session. The caller sets these texts. Each text has at most 500 characters."""

    goal: str = ""
    achieved: str = ""
    understandings: str = ""
    follow_up: str = ""
    clarity: str = ""
    resolution: str = ""
    satisfaction: str = ""
    depth: str = ""

    def checked(self) -> Self:
        """Return a copy with each text on one line, without secrets and brands. Raises Invalid."""
        return replace(self, **cleaned(asdict(self), _MOST))

    def filled_from(self, text: str) -> Self:
        """Return a copy. Empty fields get the values from `text`, the text of the session's earlier memory."""
        earlier = {name: sections.fact_in(text, CATEGORY, *place) for name, place in _OUTCOME_FIELDS.items()}
        return replace(self, **{name: getattr(self, name) or value for name, value in earlier.items()})


# Outcomes that only the caller can set → their section and field.
_OUTCOME_FIELDS = {
    "goal": ("Session Overview", "Session Goal"),
    "achieved": ("Outcomes", "Goals Achieved"),
    "follow_up": ("Outcomes", "Follow-up Needed"),
    "clarity": ("Session Quality Metrics", "Clarity of Communication"),
    "satisfaction": ("Session Quality Metrics", "User Satisfaction"),
    "depth": ("Topic Evolution", "Depth Reached"),
}
# Sections that a setting of the category can switch off.
_SWITCHES = {"Topic Evolution": "topic_tracking", "Session Quality Metrics": "quality_metrics"}


def render(
    session: RecordedSession,
    recordings: Sequence[Quotable],
    outcomes: Outcomes,
    rules: Mapping[str, Any],
    *,
    titles: Mapping[str, str],
    before: tuple[str, str],
) -> str:
    """Return the text of a session's memory. `titles` maps the normalized name of each topic to its title. `before` has
    two texts about the previous session of the project: a reference to its memory, and its unresolved items."""
    kinds = _all(recordings, "Kind")
    flow = [titles[topics.folded(name)] for name in _all(recordings, "Topic")]
    ranked = [topic for topic, _ in Counter(flow).most_common()]
    values = {
        "Session": session.name,
        "Session Type": type_of(kinds),
        "Period": f"{_moment(session.began_at)} to {_moment(session.last_at)}",
        "Duration": _duration(session.last_at - session.began_at),
        "Interactions": str(len(kinds)),
        "Primary Topic": "".join(ranked[:1]),
        "Secondary Topics": _joined(ranked[1:]),
        "Previous Session": before[0],
        "Carried Over": before[1],
        "Topic Flow": " → ".join(name for name, _ in islice(groupby(flow), 20)),
        "User Engagement": ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common()),
        "New Understandings": outcomes.understandings or _joined(_all(recordings, "Key Learnings")),
        "Problem Resolution": outcomes.resolution or _joined(_all(recordings, "Response Effectiveness")),
        "Opening Prompt": "".join(_all(recordings[:1], "User Prompt")),
        "Closing Exchange": _exchange(recordings),
    }
    values |= {field: getattr(outcomes, name) for name, (_, field) in _OUTCOME_FIELDS.items()}
    values |= {field: _joined(_all(recordings, *(f"{field} of {name}" for name in TEXTS))) for field in QUOTED}
    found = sections.filled(CATEGORY, values)
    for section, switch in _SWITCHES.items():
        if not settings_document.is_on(rules, "categories", CATEGORY, switch):
            del found[section]
    return sections.join(found)


def type_of(kinds: Sequence[str]) -> str:
    """Return "" if there are no prompts. Return INFORMATIONAL if most are questions. Return COLLABORATIVE if some are
    instructions and others are answers to the agent. Otherwise return INTERACTIVE."""
    if not kinds:
        return ""
    counted = Counter(kinds)
    if counted["question"] * 2 > len(kinds):
        return "INFORMATIONAL"
    works = counted["instruction"] and counted["correction"] + counted["feedback"] + counted["clarification"]
    return "COLLABORATIVE" if works else "INTERACTIVE"


def left_open(text: str) -> str:
    """Return the unresolved items in a session's memory."""
    where = (("Key Interactions", "Unresolved Items"), ("Outcomes", "Follow-up Needed"))
    return "; ".join(filter(None, (sections.fact_in(text, CATEGORY, *each) for each in where)))


def with_next(text: str, reference: str) -> str:
    """Return the text of a session's memory with a reference to the next session."""
    return labels.with_fact(text, CATEGORY, *NEXT, reference) if reference else text


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _all(recordings: Sequence[Quotable], *names: str) -> list[str]:
    return [text for name in names for each in recordings for text in each[name]]


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(short(text) for text in list(dict.fromkeys(texts))[:SEVERAL])


def _exchange(recordings: Sequence[Quotable]) -> str:
    """Return the beginning of the last prompt and the beginning of its response."""
    begins = next((at for at in reversed(range(len(recordings))) if recordings[at]["Kind"]), 0)
    texts = ["".join(_all(recordings[begins:], name)[:1]) for name in TEXTS]
    return " / ".join(text or "no answer" for text in texts) if any(texts) else ""


def _duration(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


# --- the current session


QUIET = timedelta(minutes=30)  # a session is over after this time without an interaction
READ = 500  # number of memories that are read: the first one of the session, and the newest ones
READ_TOKENS = 200_000  # of the memories that are read, which takes up to a second
READ_BYTES = 5_000_000  # of their rows, which also have tags
READ_LOCKED = 10_000  # tokens of the memories that are read while the agent is locked
ENDED_AT_ONCE = 2  # an end can take a quarter of a second


def begin(agent: Agent, name: str, actor: Actor, *, project: str = "") -> RecordedSession:
    """Begin a session, and end the open sessions of the project, but at most ENDED_AT_ONCE. Without a `name`, the name
    of the new session is made from the current time. Raises Invalid, AlreadyExists, MemoryDisabled."""
    name, project = checked_name(name), checked_project(project) or DEFAULT_PROJECT
    mine = RecordedSession.objects.filter(agent_id=agent.pk, project=project)
    ahead = read_ahead(agent, _open(mine))
    with edits.locked(agent) as row:
        switches.require_on(row)
        if name and mine.filter(name=name).exists():
            raise AlreadyExists("The project already has a session with this name. Choose another name.")
        for older in _open(mine):
            end(row, older, actor, ahead)
        return _begun(row, name, project, timezone.now())


def join(
    row: Agent, name: str, project: str, actor: Actor, now: datetime, ahead: Ahead
) -> tuple[RecordedSession, Memory | None]:
    """Return the session for a new interaction. Also return the memory of the previous interaction, or None. The caller
    must hold the lock on the agent's row.

    If `name` is given, the session has this name. Otherwise, it is the current session. If it does not exist, a new one
    begins. If a named session was quiet for too long, it ends and its memory is stored. Later, `note` opens it again.
    """
    found, last, over = current(row, name, project, now)
    for each in over:
        end(row, each, actor, ahead)
    session = found or _begun(row, name, project or DEFAULT_PROJECT, now)
    recorded = Memory.objects.of(row).active().filter(category="user_interaction")
    return session, recorded.filter(number=last.numbers[-1]).first() if last is not None and last.numbers else None


def current(
    agent: Agent, name: str, project: str, now: datetime
) -> tuple[RecordedSession | None, RecordedSession | None, list[RecordedSession]]:
    """Return the session for a new interaction, or None if a new session must begin. Also return the session of the
    previous interaction, or None, and the sessions that end before the new interaction."""
    mine = RecordedSession.objects.filter(agent_id=agent.pk, project=project or DEFAULT_PROJECT)
    named = mine.filter(name=name).first() if name else None
    last = named or mine.order_by("-last_at", "-pk").first()
    goes_on = last is not None and last.ended_at is None and not is_quiet(agent, last, now)
    if named is not None:
        return named, named, [] if goes_on or named.ended_at else [named]
    return (last, last, []) if goes_on and not name else (None, last, _open(mine))


def _open(sessions: QuerySet[RecordedSession]) -> list[RecordedSession]:
    return list(sessions.filter(ended_at=None).order_by("-last_at", "-pk")[:ENDED_AT_ONCE])


def is_quiet(row: Agent, last: RecordedSession, now: datetime) -> bool:
    """Return whether the session is over because it had no interaction for the time QUIET."""
    has_bounds = settings_document.is_on(switches.rules_of(row), "capture_settings", "session_boundary_detection")
    return has_bounds and now - last.last_at >= QUIET


def _begun(row: Agent, name: str, project: str, now: datetime) -> RecordedSession:
    name = name or _generated_name(row, now)
    return RecordedSession.objects.create(agent_id=row.pk, name=name, project=project, began_at=now, last_at=now)


def _generated_name(row: Agent, now: datetime) -> str:
    """Make a new name from the current time, such as 20261122-143000. No session has this name yet."""
    plain = f"{now.astimezone(UTC):%Y%m%d-%H%M%S}"
    names = [plain, *(f"{plain}-{number}" for number in range(2, 50)), f"{plain}-{secrets.token_hex(8)}"]
    taken = set(RecordedSession.objects.filter(agent_id=row.pk, name__in=names).values_list("name", flat=True))
    return next(name for name in names if name not in taken)


def note(session: RecordedSession, numbers: list[int], now: datetime) -> None:
    """Add the memories of an interaction to the session. A session that has ended becomes open again."""
    session.began_at = session.began_at if session.numbers else now
    session.numbers = [*session.numbers, *numbers]
    session.last_at, session.ended_at = now, None
    session.save(update_fields=["numbers", "began_at", "last_at", "ended_at"])


def with_follow_up(row: Agent, memory: Memory, reference: str) -> dict[int, str]:
    """Return the number of an interaction's memory, and its text with a reference to the next interaction."""
    text = Silo.for_agent(row).open(memory).content
    return {memory.number: labels.with_fact(text, memory.category, "Related Interactions", "Follow-up", reference)}


def tag_of(name: str) -> str:
    """Return the tag session:NAME. A tag that is too long is cut and ends with a digest of the name."""
    tag = f"session:{name}"
    if len(tag) > MAX_TAG:
        tag = f"{tag[: MAX_TAG - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return tag


# --- ending a session


def end_session(
    agent: Agent, name: str, actor: Actor, *, project: str = "", outcomes: Outcomes | None = None
) -> edits.Edited | None:
    """End an open session and store its memory. `name` can be "" if only one session is open.

    If the session has no recordings, or if the category `session` is off, no memory is stored. Then return None. Raises
    Invalid, NotFound, NotOpen, MemoryDisabled.
    """
    outcomes = (outcomes or Outcomes()).checked()
    ahead = read_ahead(agent, [find(agent, name, project)])
    with edits.locked(agent) as row:
        switches.require_on(row)
        session = find(row, name, project)
        if session.ended_at is None:
            return end(row, session, actor, ahead, outcomes)
        raise NotOpen(f"This session ended at {session.ended_at:%Y-%m-%d %H:%M} UTC. First record something in it.")


def find(agent: Agent, name: str, project: str = "") -> RecordedSession:
    """Return the session with this name. Without a `name`, return the open session. Raises NotFound. Raises Invalid if
    several sessions are found."""
    name, project = checked_name(name), checked_project(project)
    mine = RecordedSession.objects.filter(agent_id=agent.pk).order_by("project")
    mine = mine.filter(project=project) if project else mine
    found = list((mine.filter(name=name) if name else mine.filter(ended_at__isnull=True))[:SEVERAL])
    if not found:
        raise NotFound("No recorded session has this name." if name else "No recorded session is open.")
    if len(found) == 1:
        return found[0]
    if name:
        raise Invalid("project", f"is required. Sessions were found in: {', '.join(each.project for each in found)}")
    raise Invalid("session", f"is required. Open: {', '.join(f'{each.name} of {each.project}' for each in found)}")


def end(
    row: Agent, session: RecordedSession, actor: Actor, ahead: Ahead, outcomes: Outcomes | None = None
) -> edits.Edited | None:
    """End a session. The caller must hold the lock on the agent's row, and must check that memory is on. `ahead` is
    what `read_ahead` returned for this session before the agent was locked."""
    edited = None
    if CATEGORY not in switches.closed(row) and session.numbers:
        edited = _store(row, session, actor, ahead, outcomes or Outcomes())
        session.memory = edited.memory.number if edited.memories else session.memory
    session.ended_at = timezone.now()
    session.save(update_fields=["memory", "ended_at"])
    return edited


def _store(row: Agent, session: RecordedSession, actor: Actor, ahead: Ahead, outcomes: Outcomes) -> edits.Edited:
    """Store the session's memory. If the session already has a memory that is active and not constitutional, revise
    this memory instead. The date of the memory is the time of the last interaction. References to this memory are added
    to the memories of the previous session and of the topics."""
    rules, recordings = switches.rules_of(row), _recordings(row, session, ahead)
    talked_of = topics.discussed(row, _all(recordings, "Topic"), session.project)
    earlier, before = _before(row, session)
    own = _own(row, session)
    before_text = Silo.for_agent(row).open(own).content if own is not None else ""
    outcomes = outcomes.filled_from(before_text)
    text = render(session, recordings, outcomes, rules, titles=talked_of.titles, before=before)
    text = with_next(text, sections.fact_in(before_text, CATEGORY, *NEXT))
    number = own.number if own is not None and not own.constitutional else None
    besides = talked_of.referring(row, session.name, _refer(row, number or row.next_number, session, within="topic"))
    if earlier is not None:
        earlier_text = Silo.for_agent(row).open(earlier).content
        besides[earlier.number] = with_next(earlier_text, _refer(row, number or row.next_number, session))
    if number is not None:
        return operations.revise(row, number, actor, content=text, origin=session.last_at, besides=besides)
    draft = Draft(
        text, Kind.JOURNAL, CATEGORY, session.project, (tag_of(session.name),), session.last_at, is_project_known=True
    )
    return operations.remember(row, [draft], actor, besides=besides)


def _before(row: Agent, session: RecordedSession) -> tuple[Memory | None, tuple[str, str]]:
    """Return the memory of the previous session in the project, a reference to it, and its unresolved items."""
    mine = RecordedSession.objects.filter(agent_id=row.pk, project=session.project, pk__lt=session.pk)
    earlier = mine.filter(memory__isnull=False).order_by("-pk").first()
    if earlier is None or (memory := _own(row, earlier)) is None:
        return None, ("", "")
    return memory, (_refer(row, memory.number, earlier), left_open(Silo.for_agent(row).open(memory).content))


def _own(row: Agent, session: RecordedSession) -> Memory | None:
    """The memory of a session, if it is active. SQL may have stored the number of another memory, so its tag must be
    that of the session."""
    memory = Memory.objects.of(row).active().filter(number=session.memory or 0, category=CATEGORY).first()
    return memory if memory and tag_of(session.name) in Silo.for_agent(row).open(memory).tags else None


def _refer(row: Agent, number: int, session: RecordedSession, *, within: str = CATEGORY) -> str:
    return reference(row, number, CATEGORY, session.project, paths.dated(session.began_at), within=within)


def read_ahead(agent: Agent, ending: Iterable[RecordedSession]) -> Ahead:
    """Read the recordings of these sessions before the agent is locked, because this can take seconds."""
    ahead: Ahead = {}
    for session in ending:
        _recordings(agent, session, ahead)
    return ahead


def _recordings(row: Agent, session: RecordedSession, ahead: Ahead) -> list[Quotable]:
    """Return the recordings of a session, in order. The list is empty if memory or `user_interaction` is off.

    Recordings that are not in `ahead` are read and added: the newest ones, with at most READ_TOKENS in all. If the
    agent is locked, at most READ_LOCKED tokens are read. The others have changed since then, and are left out."""
    silo, tokens, all_tokens = Silo.for_agent(row), 0, 0  # this reads the row again if it is not current
    if not row.memory_enabled or "user_interaction" in switches.closed(row):
        return []
    numbers = session.numbers if len(session.numbers) <= READ else [session.numbers[0], *session.numbers[1 - READ :]]
    recorded = Memory.objects.of(row).active().numbered(numbers).filter(category="user_interaction")
    memories = recorded.order_by("-number").fitting(READ, READ_BYTES)
    gone = redactions.put_back(row, {(each.number, each.version): edits.snapshot(each) for each in memories})
    memories = [each for each in memories if each.number not in gone]
    for memory in memories:
        all_tokens += memory.tokens
        if (key := (memory.number, memory.version)) not in ahead:
            tokens += memory.tokens
            if all_tokens > READ_TOKENS or (tokens > READ_LOCKED and row.is_locked):
                break
            ahead[key] = quotable(silo.open(memory).content)
    return [ahead[key] for each in reversed(memories) if (key := (each.number, each.version)) in ahead]
