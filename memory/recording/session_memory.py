"""What a session's memory says (seed 004, "Session Memory Template"): made of its recordings, and of what is told of
it. What nobody told is not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any

from memory.markdown import labels, sections
from memory.markdown.sections import fact
from memory.models import RecordedSession
from memory.policy import settings_document
from memory.recording.interactions import DECIDES, unfenced
from memory.recording.texts import cleaned, cut
from memory.recording.topics import folded

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


@dataclass(frozen=True, slots=True, repr=False)
class Before:
    """The session before it in its project: a reference to its memory, and what was left open in it."""

    reference: str = ""
    left_open: str = ""


def composed(
    session: RecordedSession,
    recordings: Recordings,
    told: Outcomes,
    rules: Mapping[str, Any],
    *,
    titles: Mapping[str, str],
    before: Before,
) -> str:
    """The text of a session's memory. `titles` are the names of its topics, by folded name."""
    values = {
        "Session": session.name,
        "Period": f"{_moment(session.began_at)} to {_moment(session.last_at)}",
        "Duration": _duration(session.last_at - session.began_at),
        "Session Goal": told.goal,
        "Previous Session": before.reference,
        "Carried Over": before.left_open,
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


def followed(text: str, reference: str) -> str:
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
