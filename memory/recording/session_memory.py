"""What a session's memory says (seed 004, "Session Memory Template"): made of its recordings, and of what is told of
it. What nobody told is not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any

from memory.markdown import labels, sections
from memory.markdown.sections import fact, listed
from memory.masking.neutral import neutral
from memory.masking.scanner import masked_together
from memory.models import RecordedSession
from memory.policy import settings_document
from memory.recording.interactions import cut, one_line, unfenced
from memory.recording.significance import DECIDES
from memory.recording.topic_memory import folded

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

    def checked(self, goal: str = "") -> Outcomes:
        """Each on one line, neutral and masked. Raises Invalid."""
        names = [field.name for field in fields(self)]
        given = {name: getattr(self, name) for name in names} | ({"goal": goal} if goal else {})
        lines = [neutral(one_line(given[name], name, _MOST)) for name in names]
        return Outcomes(*(cut(text, _MOST) for text in masked_together(lines)[0]))

    def going_on(self, text: str) -> Outcomes:
        """With what was told when it was over before; `text` is what its memory says, "" where it has none."""
        return replace(
            self, **{name: getattr(self, name) or sections.told(text, "session", *_TOLD[name]) for name in _TOLD}
        )


# What is made of nothing but what is told: its section and label.
_TOLD = {
    "goal": ("Session Overview", "Session Goal"),
    "achieved": ("Outcomes", "Goals Achieved"),
    "follow_up": ("Outcomes", "Follow-up Needed"),
    "clarity": ("Session Quality Metrics", "Clarity of Communication"),
    "satisfaction": ("Session Quality Metrics", "User Satisfaction"),
    "depth": ("Topic Evolution", "Depth Reached"),
}


@dataclass(frozen=True, slots=True, repr=False)
class Before:
    """The session before it in its project: a reference to its memory, and what was left open in it."""

    reference: str = ""
    left_open: str = ""


def composed(
    session: RecordedSession,
    recordings: Sequence[Mapping[str, str]],
    told: Outcomes,
    rules: Mapping[str, Any],
    *,
    titles: Mapping[str, str],
    before: Before,
) -> str:
    """The text of its memory. `recordings` are the sections of its interactions, in order; `titles` what their topics
    are called, by name folded."""
    kinds = [kind for each in recordings if (kind := fact(each.get("Analysis", ""), "Kind"))]
    flow = [titles[folded(name)] for name in topics_of(recordings)]
    counted = Counter(flow)
    topics = list(counted)  # in order
    ranked = sorted(topics, key=lambda topic: -counted[topic])
    prompts = [unfenced(each.get("User Prompt", "")) for each in recordings]
    responses = [unfenced(each.get("Agent Response", "")) for each in recordings]
    category = "memory_rules.categories.session"
    found = {
        "Session Overview": listed(
            {
                "Session": session.name,
                "Session Type": type_of(kinds),
                "Period": f"{_moment(session.began_at)} to {_moment(session.last_at)}",
                "Duration": _duration(session.last_at - session.began_at),
                "Interactions": str(len(kinds)),
                "Primary Topic": "".join(ranked[:1]),
                "Secondary Topics": _joined(ranked[1:]),
                "Session Goal": told.goal,
            }
            | ({"Previous Session": before.reference} if before.reference else {})
            | ({"Carried Over": before.left_open} if before.left_open else {})
        ),
        "Key Interactions": listed(
            {
                "Opening Prompt": _quoted(prompts[0]) if prompts else "",
                "Closing Exchange": _exchange(recordings),
                "Critical Decisions": _joined(_sentences([*prompts, *responses], DECIDES)),
                "Unresolved Items": _joined(_sentences([*prompts, *responses], _OPEN)),
            }
        ),
    }
    if settings_document.value(rules, f"{category}.topic_tracking"):
        changes = " → ".join(name for name, _ in islice(groupby(flow), 20))
        found["Topic Evolution"] = listed(
            {"Topic Flow": changes, "Depth Reached": told.depth, "User Engagement": _engagement(kinds)}
        )
    understandings = told.understandings or _joined(_each(recordings, "Analysis", "Key Learnings"))
    found["Outcomes"] = listed(
        {"Goals Achieved": told.achieved, "New Understandings": understandings, "Follow-up Needed": told.follow_up}
    )
    if settings_document.value(rules, f"{category}.quality_metrics"):
        resolution = told.resolution or _joined(_each(recordings, "Analysis", "Response Effectiveness"))
        metrics = {"Clarity of Communication": told.clarity, "Problem Resolution": resolution}
        found["Session Quality Metrics"] = listed(metrics | {"User Satisfaction": told.satisfaction})
    return sections.composed(found)


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


def topics_of(recordings: Sequence[Mapping[str, str]]) -> list[str]:
    """What each of them was about, in order and as it was written."""
    return _each(recordings, "Context", "Topic")


def left_open(text: str) -> str:
    """What a session's memory says that there is still to do."""
    where = (("Key Interactions", "Unresolved Items"), ("Outcomes", "Follow-up Needed"))
    return "; ".join(filter(None, (sections.told(text, "session", *each) for each in where)))


def followed(text: str, reference: str) -> str:
    """What it says once there is a session after it."""
    return labels.with_fact(text, "session", *NEXT, reference) if reference else text


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


def _each(recordings: Sequence[Mapping[str, str]], section: str, label: str) -> list[str]:
    return [value for each in recordings if (value := fact(each.get(section, ""), label))]


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(_quoted(text) for text in list(dict.fromkeys(texts))[:_SEVERAL])


def _quoted(text: str) -> str:
    return cut(" ".join(text[: 4 * _QUOTED].split()), _QUOTED)


def _exchange(recordings: Sequence[Mapping[str, str]]) -> str:
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
    return [each for each, _ in zip(found, range(_SEVERAL), strict=False)]


def _duration(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _engagement(kinds: Sequence[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common())
