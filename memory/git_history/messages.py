"""What the message of a commit says: the type of the change, and what was decided.

Conventional Commits name their type. Other messages are classified by their first words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONVENTIONAL = re.compile(r"(?P<type>[A-Za-z]+)(?P<scope>\([^()\r\n]*\))?(?P<breaking>!)?:\s+(?P<rest>\S.*)")
_OF_CONVENTIONAL = {
    **dict.fromkeys(("feat", "feature"), "feature"),
    **dict.fromkeys(("fix", "bugfix", "hotfix"), "fix"),
    **dict.fromkeys(("docs", "doc"), "documentation"),
    **dict.fromkeys(("test", "tests"), "test"),
    **dict.fromkeys(("build", "ci"), "build"),
    **{name: name for name in ("style", "chore", "revert", "release")},
    "refactor": "refactoring",
    "perf": "performance",
    "deps": "dependency",
}
_OF_SCOPE = {"(deps)": "dependency", "(deps-dev)": "dependency", "(release)": "release", "(version)": "release"}
# A type and a pattern of the start of a subject; the first that matches names the type.
_WORDS = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        line.split(maxsplit=1)
        for line in r"""
merge merge (?:branch|pull request|remote-tracking|tag|commit)\b|merged? in\b
revert revert(?:s|ed)?\b|back out\b|roll back\b
release (?:release[ds]?|releasing|tag|version)\b[ :]*(?:\S+ )?v?\d|v?\d+\.\d+[\w.+-]*\s*\Z|nightly\b|version bump\b
release (?:bump|update|set|increment|raise|change)\w*\s+(?:(?:the|\S+)\s+)?version\b|bump\w* (?:to )?v?\d+\.\d
release (?:prepar(?:e|ing)|prep|cut|make|post)\b.{0,30}\brelease\b|(?:back to|begin|start)\b.{0,30}\bdev(?:elopment)?\b
dependency (?:bump|upgrade|update|pin|unpin)\b.*?\b(?:(?:from|to) v?\d|dependenc|requirements\b)|lock ?file maintenance
documentation (?:add|update|improve|fix|write|correct|clarify)?\s*(?:the )?(?:docs?|documentation|readme|changelog)\b
documentation (?:add|update|improve|fix)?\s*(?:docstrings?|comments?)\b|(?:fix|correct) (?:a )?typos?\b|document\b
test (?:add|update|fix|write|improve|more)?\s*(?:the )?(?:(?:unit|regression|integration) )?tests?\b
fix (?:hot|bug)?fix(?:e[sd])?\b|correct\b|resolve[sd]?\b|close[sd]? #\d|repair\b|patch\b|work ?around\b
fix (?:prevent|handle|avoid|don'?t|do not)\b
performance (?:speed up|optimi[sz]e|faster|cache)\b|improve (?:the )?(?:performance|speed)\b
refactoring (?:refactor|restructure|reorgani[sz]e|simplify|extract|rename|move|split|clean ?up|tidy|rewrite|inline)\w*\b
build (?:ci|build|docker|makefile|travis|github actions?|pipeline)\b
style (?:format|reformat|lint|style|whitespace)\w*\b|run (?:black|ruff|prettier)\b
feature (?:add|implement|introduce|support|allow|create|enable|new|initial|first)\w*\b
chore (?:chore|remove|delete|drop|update|change|adjust|bump|upgrade)\w*\b
""".strip().splitlines()
    )
)
_AREA = re.compile(r"\A\s*(?:\[[^\]]*\]|[\w./-]+:(?=\s)|:\w+:|\W)+\s*")  # [area], area: and :sparkles:
_BREAKING = re.compile(r"^BREAKING[ -]CHANGE: ", re.MULTILINE)
_TRAILER = re.compile(r"[A-Za-z][A-Za-z-]*(?:: | #)\S")
_SQUASHED = re.compile(r"\(#\d+\)\Z")
# "injection" alone is no attack: dependency injection is a design.
_SECURITY = re.compile(
    r"\bCVE-\d{4}-\d+|\bGHSA-\w|\bvulnerabilit|\bsecurity (?:fix|patch|issue|hole|bug|flaw|release|advisory)|"
    r"\b(?:fix|clos|prevent|patch|avoid|block|escap|stop)\w*\b.{0,60}"
    r"\b(?:XSS|CSRF|SSRF|(?:SQL|command|code|shell|header|template|LDAP|prompt)[ -]injection)\b",
    re.IGNORECASE,
)
_DECIDES = re.compile(
    r"\b(?:because|instead of|rather than|decided?|so that|in favou?r of|chose|trade-?off|the reason|no longer|"
    r"(?:drop|remove)s?(?:ped|d)? support|(?:switch|migrate)(?:ed|d)? (?:to|from)|deprecated?|"
    r"replaced? .+ (?:with|by))\b",
    re.IGNORECASE,
)
_UNDECIDED = frozenset(("merge", "release", "dependency", "style", "test"))  # types whose reasons nobody looks for
_CODE = re.compile(r"```.*?(?:```|\Z)|^(?: {4}|\t|>)[^\n]*$", re.DOTALL | re.MULTILINE)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s{0,3}[-*•] )")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!cf\.)\s+(?=[A-Z0-9\"'`(*])")
_WHOLE = re.compile(r"[A-Z0-9\"'`(*].{19,259}(?<!\.\.)[.!?][\"'`)]*", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """`is_squashed`: the subject ends with the number of a pull request. `decision` is a whole sentence, or ""."""

    type: str
    is_conventional: bool = False
    is_breaking: bool = False
    is_security: bool = False
    is_squashed: bool = False
    is_explained: bool = False
    decision: str = ""


def read(subject: str, body: str = "", *, is_merge: bool = False) -> Message:
    """A commit with two parents is a merge, whatever its message says."""
    subject = subject[:1_000]  # the patterns take long for a very long line
    is_breaking = bool(_BREAKING.search(body))
    body = without_trailers(body)
    first = body.split("\n\n")[0][:1_000]
    name, is_conventional = ("merge", False) if is_merge else _type(subject)
    said = _CONVENTIONAL.match(subject) if is_conventional else None
    is_about_code = name not in _UNDECIDED
    return Message(
        type=name,
        is_conventional=is_conventional,
        is_breaking=bool(said and said["breaking"]) or is_breaking,
        is_security=is_about_code and bool(_SECURITY.search(subject) or _SECURITY.search(first)),
        is_squashed=bool(_SQUASHED.search(subject)),
        is_explained=bool(body),
        decision=_decision(subject, body) if is_about_code else "",
    )


def _type(subject: str) -> tuple[str, bool]:
    said = _CONVENTIONAL.match(subject)
    named = _OF_CONVENTIONAL.get(said["type"].lower()) if said else None
    if said is None or named is None:
        return _of_words(_AREA.sub("", subject) or subject), False
    if named in ("build", "chore", "fix"):  # these words also stand before releases and dependencies
        named = _OF_SCOPE.get(said["scope"]) or ("release" if _of_words(said["rest"]) == "release" else named)
    return named, True


def _of_words(text: str) -> str:
    return next((name for name, pattern in _WORDS if pattern.match(text)), "other")


def _decision(subject: str, body: str) -> str:
    """The first whole sentence that gives a reason or names a choice; the subject, if the body has none."""
    text = _CODE.sub("", body[:5_000])
    for paragraph in _PARAGRAPH.split(text):
        for part in _SENTENCE.split(" ".join(paragraph.split()).lstrip("-*• ")):
            if _WHOLE.fullmatch(part) and _DECIDES.search(part):
                return part
    return subject if _DECIDES.search(subject) and not subject.endswith(("…", "...")) else ""


def without_trailers(body: str) -> str:
    """The body without the lines at its end that name people and issues."""
    paragraphs = body.strip().split("\n\n")
    lines = paragraphs[-1].split("\n")
    if all(_TRAILER.match(line) or line.startswith((" ", "\t")) for line in lines if line.strip()):
        paragraphs.pop()
    return "\n\n".join(paragraphs)
