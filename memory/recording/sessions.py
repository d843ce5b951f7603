"""Sessions of talk: which one an interaction belongs to, and what is kept of one that is over (seed 004, "Session
Memory"). A session's name, times and numbers are kept in clear; what was said in it is not.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from django.utils import timezone

from audit.trail import Actor
from memory.errors import Invalid, NotFound, NotOpen, Taken
from memory.markdown import sections
from memory.models import Agent, Kind, Memory, RecordedSession
from memory.policy import paths, settings_document, switches
from memory.policy.categories import DEFAULT_PROJECT
from memory.policy.validation import MAX_TAG, Draft, checked_project
from memory.recording import interactions, session_memory, topics
from memory.recording.session_memory import CATEGORY, Before, Outcomes
from memory.recording.texts import checked_name, reference
from memory.silo.silo import Silo
from memory.writing import edits, operations
from memory.writing.edits import Edited

QUIET = timedelta(minutes=30)  # after so long without a word, another session begins
READ = 500  # memories of a session that are looked through: its first, and its last


def begin(agent: Agent, name: str, actor: Actor, *, project: str = "") -> RecordedSession:
    """Begin a session; older ones of the project are ended. Without a name it is named by the time.

    Raises Invalid, Taken, MemoryDisabled.
    """
    name, project = checked_name(name), checked_project(project) or DEFAULT_PROJECT
    with edits.locked(agent) as row:
        switches.require_on(row)
        if name and RecordedSession.objects.filter(agent_id=row.pk, project=project, name=name).exists():
            raise Taken("There is, or was, a session of this name in the project. Choose another.")
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
    return session, _last_of(row, last) if last is not None and last.numbers else None


def _last_of(row: Agent, session: RecordedSession) -> Memory | None:
    memory = _active(row, session.numbers[-1])
    return memory if memory is not None and memory.category == "user_interaction" else None


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
    talked_of = topics.discussed(row, session_memory.topics_of(recordings), session.project)
    earlier, before = _before(row, session)
    own = _active(row, session.memory)
    said = Silo.for_agent(row).open(own).content if own is not None else ""
    outcomes = outcomes.going_on(said)
    text = session_memory.composed(session, recordings, outcomes, rules, titles=talked_of.titles, before=before)
    text = session_memory.followed(text, sections.told(said, CATEGORY, *session_memory.NEXT))
    number = own.number if own is not None and not own.constitutional else None
    besides = talked_of.referring(row, session.name, _refer(row, number or row.next_number, session, within="topic"))
    if earlier is not None:
        said = Silo.for_agent(row).open(earlier).content
        besides[earlier.number] = session_memory.followed(said, _refer(row, number or row.next_number, session))
    if number is not None:
        return operations.revise(row, number, actor, content=text, origin=session.last_at, besides=besides)
    draft = Draft(
        text, Kind.JOURNAL, CATEGORY, session.project, (tag_of(session.name),), session.last_at, is_project_known=True
    )
    return operations.remember(row, [draft], actor, besides=besides)


def _before(row: Agent, session: RecordedSession) -> tuple[Memory | None, Before]:
    """The memory of the session before it in its project, and what is told of that."""
    mine = RecordedSession.objects.filter(agent_id=row.pk, project=session.project, pk__lt=session.pk)
    earlier = mine.filter(memory__isnull=False).order_by("-pk").first()
    memory = _active(row, earlier.memory) if earlier is not None else None
    if earlier is None or memory is None:
        return None, Before()
    left_open = session_memory.left_open(Silo.for_agent(row).open(memory).content)
    return memory, Before(_refer(row, memory.number, earlier), left_open)


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
