"""One interaction of a person and an agent, as it is given and as its memories say it (seed 004, "User Interaction
Memory Template"). Pure functions: nothing is stored here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memory.errors import Invalid
from memory.markdown import labels, sections
from memory.markdown.sections import listed
from memory.masking.neutral import neutral, neutral_whole
from memory.masking.scanner import holds_token, masked_together
from memory.policy import settings_document
from memory.policy.names import checked_project
from memory.policy.validation import MAX_CONTENT, checked_content
from memory.recording.significance import kind_of, significance

MOST = 200_000  # characters of a prompt, and of a response
EXCERPT = 200  # characters of a prompt that is not captured in full
_LINES = {"topic": 58, "context": 1_000, "intent": 500, "effectiveness": 500, "learnings": 500, "metrics": 500}
_TOOLS, _TOOL = 20, 64  # how many, and characters of each
_LONGEST = 10_000_000  # seconds
_CATEGORY = "memory_rules.categories.user_interaction"
_RESERVED = 300  # characters of a memory for its part, and for references to what comes before and after it
_RUN = {mark: re.compile(re.escape(mark) + "+") for mark in "`~"}


@dataclass(frozen=True, slots=True, repr=False)
class Interaction:
    """What was asked and answered, and what is known of it. All but the prompt may be left out; seconds of the
    response's time."""

    prompt: str
    response: str = ""
    session: str = ""
    project: str = ""
    topic: str = ""
    context: str = ""
    intent: str = ""
    effectiveness: str = ""
    learnings: str = ""
    response_seconds: float | None = None
    tools: Sequence[str] = ()
    metrics: str = ""

    def checked(self) -> Interaction:
        """The same, with all but prompt and response on one line. Raises Invalid."""
        checked_content(self.prompt, "prompt", MOST)
        if self.response != "":
            checked_content(self.response, "response", MOST)
        seconds = self.response_seconds
        if seconds is not None and not (math.isfinite(seconds) and 0 <= seconds <= _LONGEST):
            raise Invalid("response_seconds", f"must be a number from 0 to {_LONGEST:,}")
        if isinstance(self.tools, str) or len(self.tools) > _TOOLS:
            raise Invalid("tools", f"must be a list of at most {_TOOLS} texts")
        lines: dict[str, Any] = {name: one_line(getattr(self, name), name, most) for name, most in _LINES.items()}
        lines["tools"] = tuple(one_line(tool, "tools", _TOOL) for tool in self.tools)
        return replace(self, project=checked_project(self.project), session=checked_name(self.session), **lines)


def one_line(text: object, field: str, most: int) -> str:
    """Text on one line, or none. Raises Invalid."""
    return " ".join(checked_content(text, field, most).split()) if text != "" else ""


def checked_name(name: object) -> str:
    """A session's name, or none. It is kept in clear, so that what looks like a secret is none. Raises Invalid."""
    if name == "":
        return ""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise Invalid("session", "is up to 64 letters, digits and . _ -")
    if holds_token(name):
        raise Invalid("session", "looks like a secret, and a session's name is kept in clear: give it another")
    return name


# --- what of it is kept


@dataclass(frozen=True, slots=True, repr=False)
class Captured:
    """What of an interaction is kept: neutral, masked, and as much as the settings let through."""

    said: Interaction
    kind: str
    level: str
    masked: int
    has_metadata: bool
    preserved: str = "whole"  # or what of it is not kept, in a few words


def captured(given: Interaction, rules: Mapping[str, Any], *, requested: bool) -> Captured:
    """`given` is checked. What is recorded automatically is kept as `auto_recording` says, too."""
    names = ("prompt", "response", *_LINES)
    said = [*(getattr(given, name) for name in names), *given.tools]
    texts = [*map(neutral_whole, said[:2]), *map(neutral, said[2:])]
    lost, count = ["no branding"] if texts != said else [], 0
    if settings_document.is_on(rules, "capture_settings", "sensitive_data_masking"):
        texts, count = masked_together(texts)
    told: dict[str, Any] = dict(zip(names, texts[: len(names)], strict=True))
    for name, most in _LINES.items():
        told[name] = cut(told[name], most)
    told["tools"] = tuple(cut(tool, _TOOL) for tool in texts[len(names) :])
    whole = told["prompt"], told["response"]
    if not settings_document.value(rules, f"{_CATEGORY}.capture_full_prompts"):
        told["prompt"] = cut(told["prompt"], EXCERPT)
    if not (requested or settings_document.is_on(rules, "auto_recording", "record_all_prompts")):
        told["prompt"] = ""
    all_responses = requested or settings_document.is_on(rules, "auto_recording", "record_all_responses")
    if not (all_responses and settings_document.value(rules, f"{_CATEGORY}.capture_responses")):
        told["response"] = ""
    for name, before in zip(("prompt", "response"), whole, strict=True):
        lost += [f"{name} cut" if told[name] else f"no {name}"] if told[name] != before else []
    lost += [f"{count} masked"] if count else []
    return Captured(
        replace(given, **told),
        kind_of(given.prompt, given.response),
        significance(given.prompt, given.response),
        count,
        settings_document.value(rules, f"{_CATEGORY}.include_metadata") is True,
        " and ".join(lost) or "whole",
    )


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


# --- as memories say it


def contents(kept: Captured, session: str, *, previous: str, parts_at: Callable[[int], str]) -> list[str]:
    """What the memories say that record it, of at most 10,000 characters: one, or parts of which each goes on where the
    one before it ends. `previous` refers to the interaction before, `parts_at` to a part by its place, from 0 on."""
    facts = _facts(kept, session)
    room = MAX_CONTENT - len(sections.composed(facts)) - _RESERVED
    texts = {"User Prompt": kept.said.prompt, "Agent Response": kept.said.response}
    parts = _parts(texts, room, MAX_CONTENT - 300 - _RESERVED)
    told = []
    for place, part in enumerate(parts):
        more = facts if not place else {"Context": listed({"Session": session})}
        if len(parts) > 1:
            more = more | {"Context": f"{more['Context']}\n{listed({'Part': f'{place + 1} of {len(parts)}'})}"}
        links = {"Continues": parts_at(place - 1)} if place else {"Previous": previous}
        links |= {"Continued In": parts_at(place + 1)} if place + 1 < len(parts) else {"Follow-up": ""}
        more = more | {"Related Interactions": listed(links)}
        told.append(sections.composed(part | more))
    return told


def followed(text: str, reference: str) -> str:
    """What the memory of an interaction says once there is one after it."""
    return labels.with_fact(text, "user_interaction", "Related Interactions", "Follow-up", reference)


def _facts(kept: Captured, session: str) -> dict[str, str]:
    said = kept.said
    seconds = "" if said.response_seconds is None else f"{said.response_seconds:.3f}".rstrip("0").rstrip(".") + " s"
    facts = {
        "Context": listed({"Session": session, "Topic": said.topic, "Previous Context": said.context}),
        "Analysis": listed(
            {
                "Kind": kept.kind,
                "Significance": kept.level,
                "User Intent": said.intent,
                "Response Effectiveness": said.effectiveness,
                "Key Learnings": said.learnings,
            }
        ),
    }
    if kept.has_metadata:
        tools = cut(", ".join(said.tools), 500)
        facts["Technical Metadata"] = listed(
            {"Response Time": seconds, "Tools Used": tools, "Success Metrics": said.metrics}
        )
    return facts


def _parts(texts: Mapping[str, str], room: int, room_of_others: int) -> list[dict[str, str]]:
    parts: list[dict[str, str]] = [{}]
    for name, text in texts.items():
        while text:
            length = _fitting(name, text, room)
            if length:
                parts[-1][name] = fenced(text[:length])
                room -= _size(name, text[:length])
            text = text[length:]
            if text:
                parts.append({})
                room = room_of_others
    return parts


def _fitting(name: str, text: str, room: int) -> int:
    """How many of its first characters there is room for, up to the end of a line where one is near."""
    length = min(len(text), max(room, 0))
    while length and (size := _size(name, text[:length])) > room:
        length = min(length - 1, length * room // size)
    if length == len(text):
        return length
    return text.rfind("\n", length // 2, length) + 1 or length


def _size(name: str, text: str) -> int:
    return len(sections.composed({name: fenced(text)})) + len("\n\n")


def fenced(text: str) -> str:
    """Between lines of a mark that is longer than any in the text."""
    longest = {mark: max(map(len, runs.findall(text)), default=0) for mark, runs in _RUN.items()}
    mark = "`" if longest["`"] <= max(longest["~"], 3) else "~"
    fence = mark * max(longest[mark] + 1, 3)
    return f"{fence}\n{text}\n{fence}"


def unfenced(text: str) -> str:
    found = re.match(r"(`{3,}|~{3,})\n(.*)\n\1\Z", text, re.DOTALL)
    return found[2] if found else text
