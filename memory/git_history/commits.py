"""What a commit says it is: its type, and whether it decided something (seed 004, "Git History Analysis", step 6).

Pure functions of messages. Conventional Commits say their type; of others the first word tells, as people write them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPES = (
    "feature",
    "fix",
    "refactoring",
    "performance",
    "documentation",
    "test",
    "build",
    "dependency",
    "style",
    "chore",
    "revert",
    "release",
    "merge",
    "other",
)

_CONVENTIONAL = re.compile(r"(?P<type>[A-Za-z]+)(?P<scope>\([^()\r\n]*\))?(?P<breaking>!)?:\s+\S")
_OF_CONVENTIONAL = {
    "feat": "feature",
    "feature": "feature",
    "fix": "fix",
    "bugfix": "fix",
    "hotfix": "fix",
    "refactor": "refactoring",
    "perf": "performance",
    "docs": "documentation",
    "doc": "documentation",
    "test": "test",
    "tests": "test",
    "build": "build",
    "ci": "build",
    "deps": "dependency",
    "style": "style",
    "chore": "chore",
    "revert": "revert",
    "release": "release",
}
_DEPENDENCY_SCOPES = ("(deps)", "(deps-dev)", "(dependencies)")
# "Cleanup discards what was seen" tells of a thing of that name; "Cleanup tests" asks for one.
_TOLD = "what|the|an?|each|no|only|its|it|when|where|whether|which|how"
_IS_TOLD_OF = rf"\s+(?:\w+s\s+(?:{_TOLD})|is|was|has|can|must|now|never|no)\b"
# Of free words, in order: the first that is found says it.
_OF_WORDS: tuple[tuple[str, str], ...] = (
    ("merge", r"merge (?:branch|pull request|remote-tracking|tag|commit)\b|merged? in\b"),
    ("revert", r"revert(?:s|ed)?\b|back out\b|roll back\b"),
    ("release", r"(?:release|prepare release|tag)[ :]+v?\d|v?\d+\.\d+(?:\.\d+)?\s*\Z|bump version\b|version \d"),
    ("dependency", r"(?:bump|upgrade|update|pin|unpin)\b.*?\b(?:from v?\d.*\bto v?\d|dependenc|requirements\b)"),
    (
        "documentation",
        r"(?:add|update|improve|fix|write|correct|clarify)?\s*(?:the )?(?:docs?|documentation|readme|changelog|"
        r"docstrings?|comments?)\b|(?:fix|correct) (?:a )?typos?\b|document\b",
    ),
    ("test", r"(?:add|update|fix|write|improve|more)?\s*(?:the )?(?:(?:unit|regression|integration) )?tests?\b"),
    (
        "fix",
        r"(?:hot|bug)?fix(?:e[sd])?\b|correct\b|resolve[sd]?\b|close[sd]? #\d|repair\b|patch\b|work ?around\b|"
        r"prevent\b|handle\b|avoid\b|don'?t\b|do not\b",
    ),
    ("performance", r"(?:speed up|optimi[sz]e|faster|cache)\b|improve (?:the )?(?:performance|speed)\b"),
    (
        "refactoring",
        r"(?:refactor|restructure|reorgani[sz]e|simplify|extract|rename|move|split|clean up|tidy|rewrite|"
        rf"cleanup(?!{_IS_TOLD_OF})|"
        r"deduplicate|inline)\w*\b",
    ),
    ("build", r"(?:ci|build|docker|makefile|travis|github actions?|pipeline)\b"),
    ("style", r"(?:format|reformat|lint|style|whitespace)\w*\b|run (?:black|ruff|prettier)\b"),
    ("feature", r"(?:add|implement|introduce|support|allow|create|enable|new|initial|first)\w*\b"),
    ("chore", r"(?:chore|remove|delete|drop|update|change|adjust|bump|upgrade)\w*\b"),
)
_WORDS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _OF_WORDS)
_AREA = re.compile(r"\A\s*(?:\[[^\]]*\]|[\w./-]+:(?=\s)|:\w+:|\W)+\s*")  # [area], area: and :sparkles:
_BREAKING = re.compile(r"^BREAKING[ -]CHANGE: ", re.MULTILINE)
_TRAILER = re.compile(r"[A-Za-z][A-Za-z-]*(?:: | #)\S")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n(?=[-*•] )")
_DECIDES = re.compile(
    r"\b(?:because|instead of|rather than|decided?|so that|in favou?r of|chose|trade-?off|the reason|no longer)\b",
    re.IGNORECASE,
)
_SECURITY = re.compile(r"\b(?:security|vulnerab\w+|CVE-\d+|XSS|CSRF|injection)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a message says of its commit."""

    type: str
    is_conventional: bool = False
    is_breaking: bool = False
    is_security: bool = False


def kind_of(subject: str, body: str = "", *, is_merge: bool = False) -> Kind:
    """The type of a commit. One with two parents is a merge, whatever it says."""
    is_security = bool(_SECURITY.search(subject) or _SECURITY.search(body[:2_000]))
    said = _CONVENTIONAL.match(subject)
    named = _OF_CONVENTIONAL.get(said["type"].lower()) if said else None
    is_breaking = bool(said and named and said["breaking"]) or bool(_BREAKING.search(body))
    if is_merge:
        return Kind("merge", False, is_breaking, is_security)
    if said and named:
        is_dependency = named in ("build", "chore", "fix") and said["scope"] in _DEPENDENCY_SCOPES
        return Kind("dependency" if is_dependency else named, True, is_breaking, is_security)
    words = _AREA.sub("", subject) or subject
    found = next((name for name, pattern in _WORDS if pattern.match(words)), "other")
    return Kind(found, False, is_breaking, is_security)


def decisions(body: str, most: int = 2) -> list[str]:
    """The sentences of a message that give a reason, or say what was chosen; without trailers."""
    found = (" ".join(part.split()).lstrip("-*• ") for part in _SENTENCE.split(without_trailers(body)[:5_000]))
    told = [part for part in found if 15 <= len(part) <= 300 and _DECIDES.search(part)]
    return told[:most]


def without_trailers(body: str) -> str:
    """A message's text without the lines at its end that name people and issues."""
    paragraphs = body.strip().split("\n\n")
    lines = paragraphs[-1].split("\n")
    if all(_TRAILER.match(line) or line.startswith((" ", "\t")) for line in lines if line.strip()):
        paragraphs.pop()
    return "\n\n".join(paragraphs)
