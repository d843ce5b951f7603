"""What a session's memory says (seed 004, "Session Memory Template"): made of its recordings, and of what is told of
it. What nobody told is not guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from memory.rules import document, sections
from memory.rules.interactions import UNKNOWN, cut, fact, listed, one_line, unfenced
from memory.rules.masking import masked_together
from memory.rules.neutral import neutral
from memory.rules.rows import RecordedSession
from memory.rules.significance import DECIDES

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

    def checked(self, goal: str = "") -> Outcomes:
        """Each on one line, neutral and masked. Raises Invalid."""
        names = [field.name for field in fields(self)]
        given = {name: getattr(self, name) for name in names} | ({"goal": goal} if goal else {})
        lines = [neutral(one_line(given[name], name, _MOST)) for name in names]
        return Outcomes(*(cut(text, _MOST) for text in masked_together(lines)[0]))


def composed(
    session: RecordedSession, recordings: Sequence[Mapping[str, str]], told: Outcomes, rules: Mapping[str, Any]
) -> str:
    """The text of its memory. `recordings` are the sections of its interactions, in order."""
    kinds = [kind for each in recordings if (kind := fact(each.get("Analysis", ""), "Kind"))]
    topics = list(dict.fromkeys(_each(recordings, "Context", "Topic")))
    counted = Counter(_each(recordings, "Context", "Topic"))
    ranked = sorted(topics, key=lambda topic: -counted[topic])
    prompts = [unfenced(each.get("User Prompt", "")) for each in recordings]
    responses = [unfenced(each.get("Agent Response", "")) for each in recordings]
    category = "memory_rules.categories.session"
    found = {
        "Session Overview": listed(
            {
                "Session": session.name,
                "Session Type": type_of(kinds),
                "Duration": _duration(session.last_at - session.began_at),
                "Interactions": str(len(kinds)),
                "Primary Topic": "".join(ranked[:1]),
                "Secondary Topics": _joined(ranked[1:]),
                "Session Goal": told.goal,
            }
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
    if document.value(rules, f"{category}.topic_tracking"):
        flow = " → ".join(topics[:20])
        found["Topic Evolution"] = listed(
            {"Topic Flow": flow, "Depth Reached": "", "User Engagement": _engagement(kinds)}
        )
    understandings = told.understandings or _joined(_each(recordings, "Analysis", "Key Learnings"))
    found["Outcomes"] = listed(
        {"Goals Achieved": told.achieved, "New Understandings": understandings, "Follow-up Needed": told.follow_up}
    )
    if document.value(rules, f"{category}.quality_metrics"):
        resolution = told.resolution or _joined(_each(recordings, "Analysis", "Response Effectiveness"))
        metrics = {"Clarity of Communication": told.clarity, "Problem Resolution": resolution}
        found["Session Quality Metrics"] = listed(metrics | {"User Satisfaction": told.satisfaction})
    return sections.composed(found)


def type_of(kinds: Sequence[str]) -> str:
    """INFORMATIONAL where most is asked, COLLABORATIVE where people correct and comment on what they ordered, else
    INTERACTIVE."""
    counted = Counter(kinds)
    if counted["question"] * 2 > len(kinds):
        return "INFORMATIONAL"
    works = counted["instruction"] and counted["correction"] + counted["feedback"] + counted["clarification"]
    return "COLLABORATIVE" if works else "INTERACTIVE"


def _each(recordings: Sequence[Mapping[str, str]], section: str, label: str) -> list[str]:
    return [value for each in recordings if (value := fact(each.get(section, ""), label))]


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(_quoted(text) for text in list(dict.fromkeys(texts))[:_SEVERAL])


def _quoted(text: str) -> str:
    return cut(" ".join(text[: 4 * _QUOTED].split()), _QUOTED)


def _exchange(recordings: Sequence[Mapping[str, str]]) -> str:
    """What was asked last, and the answer; of one in parts, what its first memory says."""
    last = next((each for each in reversed(recordings) if "Analysis" in each), {})
    said = [_quoted(unfenced(last.get(section, ""))) for section in ("User Prompt", "Agent Response")]
    return " / ".join(text or UNKNOWN for text in said) if any(said) else ""


def _sentences(texts: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    found = (each for text in texts for each in _SENTENCE.split(text[:20_000]) if pattern.search(each))
    return [each for each, _ in zip(found, range(_SEVERAL), strict=False)]


def _duration(time: timedelta) -> str:
    minutes = round(time.total_seconds() / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _engagement(kinds: Sequence[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common())
