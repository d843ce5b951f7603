"""What kind of interaction one is, and how much it matters (seed 004, "Automatic Interaction Recording Process").

Told by words and length alone, with no model: the same text is always judged the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from memory.policy import settings_document

KINDS = ("question", "instruction", "feedback", "correction", "clarification", "statement")
LEVELS = ("low", "medium", "high")
_MEDIUM, _HIGH = 2, 4  # points

# Looked for at the beginning of what is asked, in this order: a correction that asks something is a correction.
_HEAD = 400  # characters
_CORRECTION = re.compile(
    r"\W{0,3}(?:no[,.!:]|nope\b|wrong\b|incorrect\b|correction\b|actually[, ]|not quite\b|i meant\b|"
    r"that(?:'s| is| was) (?:wrong|incorrect|not (?:right|correct|what|true))|"
    r"you(?:'ve| have)? (?:misunderstood|got (?:it|that) wrong|made a mistake|forgot)|it should (?:be|have been)\b)",
    re.IGNORECASE,
)
_CLARIFICATION = re.compile(
    r"\W{0,3}(?:to clarify|to be clear|clarification\b|in other words|let me (?:rephrase|clarify)|"
    r"(?:what|by that) i mean\b|what do you mean\b|(?:can|could) you (?:clarify|explain (?:that|this|it) again)|"
    r"i don'?t understand\b)",
    re.IGNORECASE,
)
_FEEDBACK = re.compile(
    r"\W{0,3}(?:thanks?\b|thank you\b|great\b|perfect\b|excellent\b|awesome\b|nice\b|well done\b|"
    r"good (?:job|work|answer)\b|"
    r"that(?:'s| is| was) (?:great|perfect|good|helpful|useful|too \w+|very \w+|exactly)|that (?:help|work)(?:s|ed)\b|"
    r"(?:it|this|your answer) (?:is|was) too \w+|i (?:really )?(?:like|love|hate) (?:it|this|that|how|the way)\b|"
    r"i don'?t like\b)",
    re.IGNORECASE,
)
_INSTRUCTION = re.compile(
    r"\W{0,3}(?:please\b|(?:can|could|would|will) you (?:please )?(?!explain why|tell me (?:why|what|how))\w+|"
    r"let'?s\b|"
    r"i (?:want|need|would like|'d like) you to\b|"
    r"(?:add|always|analy[sz]e|answer|apply|avoid|build|call|change|check|clean|compare|convert|copy|create|debug|"
    r"delete|deploy|describe|do|don'?t|draft|explain|find|fix|format|generate|give|implement|improve|install|keep|list|make|"
    r"merge|move|never|open|optimi[sz]e|plan|prepare|put|read|refactor|remember|remove|rename|replace|review|rewrite|"
    r"run|save|search|send|set|show|sort|start|stop|summari[sz]e|tell|test|translate|try|turn|update|use|verify|write)\b)",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\W{0,3}(?:who|whom|whose|what|when|where|which|why|how|is|are|am|was|were|do|does|did|can|could|should|would|will|"
    r"has|have|had|may|might)\b",
    re.IGNORECASE,
)
_ASKS_BACK = re.compile(
    r"\b(?:could you clarify|do you mean|did you mean|which (?:one )?do you|please clarify)\b", re.IGNORECASE
)

DECIDES = re.compile(
    r"\b(?:decided?|decision|(?:we|i)(?:'ll| will) (?:go with|use|take)|let'?s (?:go with|use|take)|agreed|"
    r"cho(?:se|sen)|settled on|from now on|instead of|prefers?|preferred|preference|always|never|must not|"
    r"remember that|important)\b",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"```|^[ ]{4}\S|\b(?:def|class|function|import|SELECT|const|return)\b[ (].{0,80}[;:({=]|Traceback \(", re.MULTILINE
)
_NUMBER = re.compile(r"\b\d[\d.,:/-]*\d\b")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}")


def kind_of(prompt: str, response: str = "") -> str:
    """One of KINDS. A short prompt whose answer asks back is for clarification."""
    head = prompt.lstrip()[:_HEAD]
    for kind, pattern in (("correction", _CORRECTION), ("clarification", _CLARIFICATION), ("feedback", _FEEDBACK)):
        if pattern.match(head):
            return kind
    if len(prompt) < _HEAD and response.rstrip().endswith("?") and _ASKS_BACK.search(response[-_HEAD:]):
        return "clarification"
    if _INSTRUCTION.match(head) and not _asks(head):
        return "instruction"
    return "question" if _asks(head) or prompt.rstrip().endswith("?") else "statement"


def _asks(head: str) -> bool:
    """It begins as a question does. "Can you write …?" asks for a deed, and "do" and "will" begin both."""
    found = _QUESTION.match(head)
    is_deed = re.match(
        r"\W{0,3}(?:(?:can|could|would|will) you|do(?!es)\b(?! (?:you|i|we|they|the|these|those)\b))", head, re.I
    )
    return found is not None and is_deed is None


def significance(prompt: str, response: str = "") -> str:
    """low, medium or high: the sum of these points, medium from 2 on and high from 4 on.

    | points | |
    | --- | --- |
    | 1, 2 | both together have 400 characters, or 2,000 |
    | 2 | it is a correction |
    | 1 | it is an instruction or a clarification |
    | 2 | something is decided, preferred or to be remembered, in words of the prompt; 1 in those of the response |
    | 1 | there is code |
    | 1 | two numbers or names, or more, in the prompt |
    """
    size = len(prompt) + len(response)
    points = (size >= 400) + (size >= 2_000)
    points += {"correction": 2, "instruction": 1, "clarification": 1}.get(kind_of(prompt, response), 0)
    points += 2 if DECIDES.search(prompt) else 1 if DECIDES.search(response) else 0
    points += _CODE.search(prompt) is not None or _CODE.search(response) is not None
    points += len(_NUMBER.findall(prompt[:20_000])) + len(_NAME.findall(prompt[:20_000])) >= 2
    return LEVELS[(points >= _MEDIUM) + (points >= _HIGH)]


def is_worth_recording(rules: Mapping[str, Any], prompt: str, response: str = "") -> bool:
    """Whether it reaches the threshold of the settings: `min_interaction_length` is of the prompt, in characters."""
    recording = "memory_rules.auto_recording"
    if len(prompt.strip()) < settings_document.value(rules, f"{recording}.min_interaction_length"):
        return False
    threshold = settings_document.value(rules, f"{recording}.interaction_threshold")
    return LEVELS.index(significance(prompt, response)) >= LEVELS.index(threshold)
