"""Read a commit message. Find the type of the change, and the decision that the message explains.

A message in the Conventional Commits format begins with its type. Other messages are classified by their first words.
"""

import re
from dataclasses import dataclass


def table(text: str) -> dict[str, str]:
    """Return a dict made from a text such as "py pyi=Python; js=JavaScript"."""
    pairs = (entry.strip().split("=") for entry in text.split(";"))
    return {name: value for names, value in pairs for name in names.split()}


_CONVENTIONAL = re.compile(r"(?P<type>[A-Za-z]+)(?P<scope>\([^()\r\n]*\))?(?P<breaking>!)?:\s+(?P<rest>\S.*)")
_OF_CONVENTIONAL = table("""
    feat feature=feature; fix bugfix hotfix=fix; docs doc=documentation; test tests=test; build ci=build; style=style;
    chore=chore; revert=revert; release=release; refactor=refactoring; perf=performance; deps=dependency
""")
_OF_SCOPE = table("(deps) (deps-dev)=dependency; (release) (version)=release")
# Each line has a type, and a pattern for the start of a subject. The first pattern that matches decides the type.
_WORDS = tuple(
    (name, re.compile(pattern, re.I))
    for name, pattern in (
        line.split(maxsplit=1)
        for line in r"""
documentation (?:add|update|improve)\w*\b.*\b(?:in|to|of) (?:the )?(?:docs|documentation|readme)\b|.*\btypos?\b
test (?:add|update|improve)\w*\b.*\b(?:tests|test (?:fixtures?|cases?|suite|coverage|files?|data))\b
merge merge (?:branch|pull request|remote-tracking|tag|commit)\b|merged? in\b
revert revert(?:s|ed)?\b|back out\b|roll back\b
release (?:release[ds]?|releasing|tag|version)\b[ :]*(?:\S+ )?v?\d|nightly\b|version bump\b|start version\b
release (?:[\w-]+-)?v?\d+\.\d+[\w.+-]*(?: release)?(?: \(#\d+\))?\s*\Z|(?:start|begin) next section\b
release (?:bump|update|set|increment|raise|change)\w*\s+(?:(?:the|\S+)\s+)?version\b|bump\w* (?:to )?v?\d+\.\d
release (?:prepar(?:e|ing)|prep|cut|make|post)\b.{0,30}\brelease\b|(?:back to|begin|start)\b.{0,30}\bdev(?:elopment)?\b
release prepar(?:e|ing)\b.{0,20}\bdevelopment iteration\b
dependency (?:bump|dependabot)\b|lock ?file maintenance|.{0,20}\bdev dependencies\b
dependency (?:upgrade|update|pin|unpin)\b.*?\b(?:(?:from|to) (?:version )?v?\d|dependenc|requirements\b)
documentation (?:add|update|improve|fix|write|correct|clarify)?\s*(?:the )?(?:docs?|documentation|readme|changelog)\b
documentation (?:some |slight(?:ly)? )*(?:doc )?improve(?:ments?)?\b.{0,50}\b(?:docs|documentation)\b|some slight doc\b
documentation (?:add|update) \S+ changelog\b
documentation (?:add|update|improve|fix)?\s*(?:docstrings?|comments?)\b|document\b
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
_BREAKING = re.compile(r"^BREAKING[ -]CHANGE: ", re.M)
_TRAILER = re.compile(r"[A-Za-z][A-Za-z-]*(?:: | #)\S")
_REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{40,64})\b\.?", re.M)
_SQUASHED = re.compile(r"\(#\d+\)\Z")
# The word "injection" alone does not mean an attack: dependency injection is a design pattern.
_SECURITY = re.compile(
    r"\bCVE-\d{4}-\d+|\bGHSA-\w|\bvulnerabilit|\bsecurity (?:fix|patch|issue|hole|bug|flaw|release|advisory)|"
    r"\b(?:fix|clos|prevent|patch|avoid|block|escap|stop)\w*\b.{0,60}"
    r"\b(?:XSS|CSRF|SSRF|(?:SQL|command|code|shell|header|template|LDAP|prompt)[ -]injection)\b",
    re.I,
)
_DECIDES = re.compile(
    r"\b(?:decided?|in favou?r of|chose|trade-?off|the reason|no longer|deprecated?|replaced? .+ (?:with|by)|"
    r"(?:drop|remove)s?(?:ped|d)? support|(?:switch|migrate)(?:ed|d)? (?:to|from))\b",
    re.I,
)
_EXPLAINS = re.compile(r"\b(?:because|instead of|rather than|so that|given that)\b", re.I)
# Sentences that are unclear without the sentence before them, or that are about the author or tests.
_UNCLEAR = re.compile(
    r"(?:I have|I've|It|They|That|However|Also|But|And|So|Tests?)\b|.*\b(?:here|above|below|these|those)\b",
    re.DOTALL | re.I,
)
_ANY = re.compile("")
_BEGINNING = 3  # paragraphs of a body that are read; later paragraphs describe details
_REMOVES = re.compile(
    r"(?:remove|drop|delete|retire|deprecate|replace)(?:s|d|ed|ped)?\b(?!.*\b(?:unused|trailing|dead)\b)", re.I
)
ROUTINE = frozenset(("merge", "release", "dependency"))
MINOR = ROUTINE.union(("style", "test", "documentation"))  # commits of these types have no decision
_CODE = re.compile(r"```.*?(?:```|\Z)|^(?: {4}|\t|>)[^\n]*$", re.DOTALL | re.M)
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s{0,3}[-*•] )")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!cf\.)\s+(?=[A-Z0-9\"'`(*])")
_WHOLE = re.compile(r"[A-Z0-9\"'`(*].{19,259}(?<!\.\.)[.!?][\"'`)]*", re.DOTALL)


@dataclass(frozen=True, slots=True, repr=False)
class Message:
    """What a commit message says. `is_squashed` is true if the subject ends with the number of a pull request.
    `decision` is a whole sentence, or ""."""

    type: str
    is_conventional: bool = False
    is_breaking: bool = False
    is_security: bool = False
    is_squashed: bool = False
    is_explained: bool = False
    is_removal: bool = False
    decision: str = ""
    reverts: str = ""  # the commit that this one reverts


def read(subject: str, body: str = "", *, is_merge: bool = False) -> Message:
    """Read a commit message. If `is_merge` is true, the type is always "merge", whatever the message says."""
    subject = subject[:1_000]  # the patterns are slow on very long lines
    is_breaking = bool(_BREAKING.search(body))
    body, reverted = without_trailers(body), _REVERTS.search(body)
    first = body.split("\n\n")[0][:1_000]
    name, is_conventional = ("merge", False) if is_merge else _type(subject)
    match = _CONVENTIONAL.match(subject) if is_conventional else None
    is_minor = name in MINOR
    return Message(
        type=name,
        is_conventional=is_conventional,
        is_breaking=bool(match and match["breaking"]) or is_breaking,
        is_security=not is_minor and bool(_SECURITY.search(subject) or _SECURITY.search(first)),
        is_squashed=bool(_SQUASHED.search(subject)),
        is_explained=bool(_REVERTS.sub("", body).strip()),
        is_removal=bool(_REMOVES.match(_AREA.sub("", match["rest"] if match else subject))),
        decision="" if is_minor or name == "fix" else _decision(subject, body),  # a fix explains the bug
        reverts=reverted[1] if reverted else "",
    )


def _type(subject: str) -> tuple[str, bool]:
    match = _CONVENTIONAL.match(subject)
    named = _OF_CONVENTIONAL.get(match["type"].lower()) if match else None
    if match is None or named is None:
        named = _of_words(subject)  # the area of a change can look like a type: "lint: add a flag"
        return named if named in MINOR else _of_words(_AREA.sub("", subject) or subject), False
    if named in ("build", "chore", "fix"):  # releases and dependency updates can also have these types
        is_release = match["type"].lower() in ("build", "chore") and _of_words(match["rest"]) == "release"
        named = _OF_SCOPE.get(match["scope"]) or ("release" if is_release else named)
    return named, True


def _of_words(text: str) -> str:
    return next((name for name, pattern in _WORDS if pattern.match(text)), "other")


def _decision(subject: str, body: str) -> str:
    """Return the sentence of the body that explains a decision. If the body has no such sentence, return the subject,
    provided that the subject states a decision. Otherwise return "".

    If the subject states a decision, sentences with a reason come first, then those with a decision, then all others.
    Otherwise, the sentence itself must state a decision or a reason. Only the first paragraphs of the body are read.
    """
    text = _CODE.sub("", body[:5_000]).strip()
    paragraphs = (" ".join(paragraph.split()).lstrip("-*• ") for paragraph in _PARAGRAPH.split(text)[:_BEGINNING])
    parts = (part for each in paragraphs for part in _SENTENCE.split(each))
    sentences = [part for part in parts if _WHOLE.fullmatch(part) and not _UNCLEAR.match(part)]
    is_decision = any(pattern.search(subject) for pattern in (_DECIDES, _EXPLAINS))
    patterns = (_EXPLAINS, _DECIDES, _ANY) if is_decision else (_DECIDES, _EXPLAINS)
    last = subject if is_decision and not subject.endswith(("…", "...")) else ""
    return next((part for pattern in patterns for part in sentences if pattern.search(part)), last)


def without_trailers(body: str) -> str:
    """Return the body without its trailers. Trailers are lines at the end that name people or issues, such as
    "Signed-off-by: Jo"."""
    paragraphs = body.strip().split("\n\n")
    lines = paragraphs[-1].split("\n")
    if all(_TRAILER.match(line) or line.startswith((" ", "\t")) for line in lines if line.strip()):
        paragraphs.pop()
    return "\n\n".join(paragraphs)
