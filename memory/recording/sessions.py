"""Sessions of talk: which one an interaction belongs to, and what is kept of one that is over (seed 004, "Session
Memory").

A session's name, times and numbers are kept in clear; what was said in it is not. Its memory is made of its
recordings, and of what is told of it ("Session Memory Template"): what nobody told is not guessed.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Any

from django.utils import timezone

from audit.trail import Actor
from memory.errors import AlreadyExists, Invalid, NotFound, NotOpen
from memory.markdown import labels, sections
from memory.markdown.sections import fact
from memory.models import Agent, Kind, Memory, RecordedSession
from memory.policy import paths, settings_document, switches
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import MAX_TAG, Draft, checked_project
from memory.recording import interactions, topics
from memory.recording.interactions import DECIDES, unfenced
from memory.recording.texts import checked_name, cleaned, cut, reference
from memory.recording.topics import folded
from memory.silo.silo import Silo
from memory.writing import edits, operations
from memory.writing.edits import Edited

CATEGORY = "session"
Recordings = Sequence[Mapping[str, str]]  # the sections of each interaction, in order
NEXT = ("Session Overview", "Next Session")
_MOST = 500  # characters of what is told of it, each
_QUOTED, _SEVERAL = 160, 5  # characters of what is quoted, and how many of a kind
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_OPEN = re.compile(
    r"\b(?:todo|still (?:need|have) to|open question|unresolved|not sure yet|next time|later on|follow up)\b", re.I
)


@dataclass(frozen=True, slots=True, repr=False)
class Outcomes:
    """What came of a session, by whoever knows: each up to 500 characters."""

    goal: str = ""
    achieved: str = ""
    understandings: str = ""
    follow_up: str = ""
    clarity: str = ""
    resolution: str = ""
    satisfaction: str = ""
    depth: str = ""

    def checked(self) -> Outcomes:
        """Each on one line, neutral and masked. Raises Invalid."""
        return Outcomes(**cleaned(asdict(self), _MOST))

    def going_on(self, text: str) -> Outcomes:
        """With the outcomes of an earlier end; `text` is the session's memory, "" if it has none."""
        return replace(
            self, **{name: getattr(self, name) or sections.told(text, CATEGORY, *_TOLD[name]) for name in _TOLD}
        )


# Outcomes that are only in what is told: section and field.
_TOLD = {
    "goal": ("Session Overview", "Session Goal"),
    "achieved": ("Outcomes", "Goals Achieved"),
    "follow_up": ("Outcomes", "Follow-up Needed"),
    "clarity": ("Session Quality Metrics", "Clarity of Communication"),
    "satisfaction": ("Session Quality Metrics", "User Satisfaction"),
    "depth": ("Topic Evolution", "Depth Reached"),
}
# Sections that a setting of the category can switch off.
_SWITCHES = {"Topic Evolution": "topic_tracking", "Session Quality Metrics": "quality_metrics"}


def composed(
    session: RecordedSession,
    recordings: Recordings,
    told: Outcomes,
    rules: Mapping[str, Any],
    *,
    titles: Mapping[str, str],
    before: tuple[str, str],
) -> str:
    """The text of a session's memory. `titles` are the names of its topics, by folded name. `before` is the session
    before it in its project: a reference to its memory, and what was left open in it."""
    values = {
        "Session": session.name,
        "Period": f"{_moment(session.began_at)} to {_moment(session.last_at)}",
        "Duration": _duration(session.last_at - session.began_at),
        "Session Goal": told.goal,
        "Previous Session": before[0],
        "Carried Over": before[1],
        "Depth Reached": told.depth,
        "Goals Achieved": told.achieved,
        "New Understandings": told.understandings or _joined(_each(recordings, "Analysis", "Key Learnings")),
        "Follow-up Needed": told.follow_up,
        "Clarity of Communication": told.clarity,
        "Problem Resolution": told.resolution or _joined(_each(recordings, "Analysis", "Response Effectiveness")),
        "User Satisfaction": told.satisfaction,
    }
    values |= _of_topics([titles[folded(name)] for name in topics_of(recordings)])
    found = sections.filled(CATEGORY, values | _of_kinds(recordings) | _of_exchanges(recordings))
    for section, switch in _SWITCHES.items():
        if not settings_document.is_on(rules, "categories", CATEGORY, switch):
            del found[section]
    return sections.composed(found)


def _of_topics(flow: Sequence[str]) -> dict[str, str]:
    ranked = [topic for topic, _ in Counter(flow).most_common()]
    return {
        "Primary Topic": "".join(ranked[:1]),
        "Secondary Topics": _joined(ranked[1:]),
        "Topic Flow": " → ".join(name for name, _ in islice(groupby(flow), 20)),
    }


def _of_kinds(recordings: Recordings) -> dict[str, str]:
    kinds = _each(recordings, "Analysis", "Kind")
    return {
        "Session Type": type_of(kinds),
        "Interactions": str(len(kinds)),
        "User Engagement": ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common()),
    }


def _of_exchanges(recordings: Recordings) -> dict[str, str]:
    prompts = [unfenced(each.get("User Prompt", "")) for each in recordings]
    texts = [*prompts, *(unfenced(each.get("Agent Response", "")) for each in recordings)]
    return {
        "Opening Prompt": _quoted(prompts[0]) if prompts else "",
        "Closing Exchange": _exchange(recordings),
        "Critical Decisions": _joined(_sentences(texts, DECIDES)),
        "Unresolved Items": _joined(_sentences(texts, _OPEN)),
    }


def type_of(kinds: Sequence[str]) -> str:
    """INFORMATIONAL where most is asked, COLLABORATIVE where people correct and comment on what they ordered, else
    INTERACTIVE; "" where nothing is known of it."""
    if not kinds:
        return ""
    counted = Counter(kinds)
    if counted["question"] * 2 > len(kinds):
        return "INFORMATIONAL"
    works = counted["instruction"] and counted["correction"] + counted["feedback"] + counted["clarification"]
    return "COLLABORATIVE" if works else "INTERACTIVE"


def topics_of(recordings: Recordings) -> list[str]:
    """What each of them was about, in order and as it was written."""
    return _each(recordings, "Context", "Topic")


def left_open(text: str) -> str:
    """What a session's memory says that there is still to do."""
    where = (("Key Interactions", "Unresolved Items"), ("Outcomes", "Follow-up Needed"))
    return "; ".join(filter(None, (sections.told(text, CATEGORY, *each) for each in where)))


def with_next(text: str, reference: str) -> str:
    """What it says once there is a session after it."""
    return labels.with_fact(text, CATEGORY, *NEXT, reference) if reference else text


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _each(recordings: Recordings, section: str, label: str) -> list[str]:
    return [value for each in recordings if (value := fact(each.get(section, ""), label))]


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(_quoted(text) for text in list(dict.fromkeys(texts))[:_SEVERAL])


def _quoted(text: str) -> str:
    return cut(" ".join(text[: 4 * _QUOTED].split()), _QUOTED)


def _exchange(recordings: Recordings) -> str:
    """What was asked last, and the answer; of one in parts, how each of the two begins."""
    begins = next((at for at in reversed(range(len(recordings))) if "Analysis" in recordings[at]), 0)
    parts = recordings[begins:]
    said = [
        _quoted(unfenced(next((each[section] for each in parts if section in each), "")))
        for section in ("User Prompt", "Agent Response")
    ]
    return " / ".join(text or "no answer" for text in said) if any(said) else ""


def _sentences(texts: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    found = (each for text in texts for each in _SENTENCE.split(text[:20_000]) if pattern.search(each))
    return list(islice(found, _SEVERAL))


def _duration(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


QUIET = timedelta(minutes=30)  # after so long without a word, another session begins
READ = 500  # memories of a session that are looked through: its first, and its last


def begin(agent: Agent, name: str, actor: Actor, *, project: str = "") -> RecordedSession:
    """Begin a session; older ones of the project are ended. Without a name it is named by the time.

    Raises Invalid, AlreadyExists, MemoryDisabled.
    """
    name, project = checked_name(name), checked_project(project) or DEFAULT_PROJECT
    with edits.locked(agent) as row:
        switches.require_on(row)
        if name and RecordedSession.objects.filter(agent_id=row.pk, project=project, name=name).exists():
            raise AlreadyExists("There is, or was, a session of this name in the project. Choose another.")
        return _begun(row, name, project, actor, timezone.now())


def join(row: Agent, name: str, project: str, actor: Actor, now: datetime) -> tuple[RecordedSession, Memory | None]:
    """The session of this project to record in, of an agent that is locked: the named one, else the one that goes on,
    else a new one; and the last interaction in the project, if its memory is there. A session that is over has its
    memory first, and goes on if it is named."""
    project = project or DEFAULT_PROJECT
    mine = RecordedSession.objects.filter(agent_id=row.pk, project=project)
    last = mine.order_by("-last_at", "-pk").first()
    if name:
        found = mine.filter(name=name).first()
        last = found or last
        if found is not None and found.ended_at is None and not _goes_on(row, found, now):
            end(row, found, actor)
    else:
        found = last if last is not None and _goes_on(row, last, now) else None
    session = found if found is not None else _begun(row, name, project, actor, now)
    memory = _active(row, last.numbers[-1]) if last is not None and last.numbers else None
    return session, memory if memory is not None and memory.category == "user_interaction" else None


def _goes_on(row: Agent, last: RecordedSession, now: datetime) -> bool:
    return last.ended_at is None and not is_quiet(row, last, now)


def is_quiet(row: Agent, last: RecordedSession, now: datetime) -> bool:
    """Whether nothing was said for so long that it is over."""
    has_bounds = settings_document.is_on(switches.rules_of(row), "capture_settings", "session_boundary_detection")
    return has_bounds and now - last.last_at >= QUIET


def _begun(row: Agent, name: str, project: str, actor: Actor, now: datetime) -> RecordedSession:
    for older in RecordedSession.objects.filter(agent_id=row.pk, project=project, ended_at__isnull=True):
        end(row, older, actor)
    name = name or _called(row, now)
    return RecordedSession.objects.create(agent_id=row.pk, name=name, project=project, began_at=now, last_at=now)


def _called(row: Agent, now: datetime) -> str:
    """20261122-143000, or with a number behind it where that is taken."""
    plain = f"{now.astimezone(UTC):%Y%m%d-%H%M%S}"
    taken = set(RecordedSession.objects.filter(agent_id=row.pk, name__startswith=plain).values_list("name", flat=True))
    names = (plain, *(f"{plain}-{number}" for number in range(2, len(taken) + 2)))
    return next(name for name in names if name not in taken)


def note(session: RecordedSession, numbers: list[int], now: datetime) -> None:
    """That these memories record an interaction of it: from the first to the last. One that was over goes on."""
    session.began_at = session.began_at if session.numbers else now
    session.numbers = [*session.numbers, *numbers]
    session.last_at, session.ended_at = now, None
    session.save(update_fields=["numbers", "began_at", "last_at", "ended_at"])


def followed(row: Agent, memory: Memory, reference: str) -> dict[int, str]:
    """What the memory of an interaction says once there is one after it, by its number."""
    return {memory.number: interactions.followed(Silo.for_agent(row).open(memory).content, reference)}


def tag_of(name: str) -> str:
    """session:NAME; of a name that is too long for a tag its beginning and a digest."""
    tag = f"session:{name}"
    if len(tag) > MAX_TAG:
        tag = f"{tag[: MAX_TAG - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return tag


# --- when it is over


def end_session(
    agent: Agent, name: str, actor: Actor, *, project: str = "", outcomes: Outcomes | None = None
) -> Edited | None:
    """End a session, without a name the one that is open, and keep its session memory; None where none is kept:
    nothing was recorded in it, or session memories are switched off. What it was for, and what came of it, is told by
    whoever knows, and not of one that is over.

    Raises Invalid, NotFound, NotOpen, MemoryDisabled.
    """
    given = (outcomes or Outcomes()).checked()
    with edits.locked(agent) as row:
        switches.require_on(row)
        session = meant(row, name, project)
        if session.ended_at is None:
            return end(row, session, actor, given)
        raise NotOpen(
            f"This session was over at {session.ended_at:%Y-%m-%d %H:%M} UTC: nothing more is told of it, unless it "
            "goes on, by recording in it."
        )


def meant(agent: Agent, name: str, project: str = "") -> RecordedSession:
    """The session of this name; without a name, the one that is open. Each project may have one. Raises NotFound;
    Invalid, also if there are several."""
    name, project = checked_name(name), checked_project(project)
    mine = RecordedSession.objects.filter(agent_id=agent.pk).order_by("project")
    mine = mine.filter(project=project) if project else mine
    found = list(mine.filter(name=name) if name else mine.filter(ended_at__isnull=True))
    if not found:
        raise NotFound("There is no recorded session of this name." if name else "No recorded session is open.")
    if len(found) == 1:
        return found[0]
    if name:
        raise Invalid("project", f"is needed: {', '.join(each.project for each in found)} have a session of this name")
    raise Invalid("session", f"is needed; open are {', '.join(f'{each.name} of {each.project}' for each in found)}")


def end(row: Agent, session: RecordedSession, actor: Actor, outcomes: Outcomes | None = None) -> Edited | None:
    """Of an agent that is locked, and has memory on."""
    edited = None
    if CATEGORY not in switches.closed(row) and session.numbers:
        edited = _kept(row, session, actor, outcomes or Outcomes())
        session.memory = edited.memory.number if edited.memories else session.memory
    session.ended_at = timezone.now()
    session.save(update_fields=["memory", "ended_at"])
    return edited


def _kept(row: Agent, session: RecordedSession, actor: Actor, outcomes: Outcomes) -> Edited:
    """Its memory, made; or said anew, where the session was over before and went on. It is of the moment of the last
    record. What comes before it, and its topics, refer to it from then on."""
    rules, recordings = switches.rules_of(row), _recordings(row, session)
    talked_of = topics.discussed(row, topics_of(recordings), session.project)
    earlier, before = _before(row, session)
    own = _active(row, session.memory)
    said = Silo.for_agent(row).open(own).content if own is not None else ""
    outcomes = outcomes.going_on(said)
    text = composed(session, recordings, outcomes, rules, titles=talked_of.titles, before=before)
    text = with_next(text, sections.told(said, CATEGORY, *NEXT))
    number = own.number if own is not None and not own.constitutional else None
    besides = talked_of.referring(row, session.name, _refer(row, number or row.next_number, session, within="topic"))
    if earlier is not None:
        said = Silo.for_agent(row).open(earlier).content
        besides[earlier.number] = with_next(said, _refer(row, number or row.next_number, session))
    if number is not None:
        return operations.revise(row, number, actor, content=text, origin=session.last_at, besides=besides)
    draft = Draft(
        text, Kind.JOURNAL, CATEGORY, session.project, (tag_of(session.name),), session.last_at, is_project_known=True
    )
    return operations.remember(row, [draft], actor, besides=besides)


def _before(row: Agent, session: RecordedSession) -> tuple[Memory | None, tuple[str, str]]:
    """The memory of the session before it in its project, and what is told of that."""
    mine = RecordedSession.objects.filter(agent_id=row.pk, project=session.project, pk__lt=session.pk)
    earlier = mine.filter(memory__isnull=False).order_by("-pk").first()
    memory = _active(row, earlier.memory) if earlier is not None else None
    if earlier is None or memory is None:
        return None, ("", "")
    still_open = left_open(Silo.for_agent(row).open(memory).content)
    return memory, (_refer(row, memory.number, earlier), still_open)


def _active(row: Agent, number: int | None) -> Memory | None:
    return Memory.objects.of(row).active().filter(number=number or 0).first()


def _refer(row: Agent, number: int, session: RecordedSession, *, within: str = CATEGORY) -> str:
    title = paths.dated(session.began_at)
    return reference(row, number, CATEGORY, session.project, title, within=within)


def _recordings(row: Agent, session: RecordedSession) -> list[dict[str, str]]:
    """The sections of its recordings, in order: of those that are there, and read back."""
    if "user_interaction" in switches.closed(row):
        return []
    numbers = session.numbers if len(session.numbers) <= READ else [session.numbers[0], *session.numbers[1 - READ :]]
    memories = Memory.objects.of(row).active().numbered(numbers).filter(category="user_interaction")
    silo = Silo.for_agent(row)
    return [sections.parted(silo.open(memory).content, "user_interaction") for memory in memories.order_by("number")]
