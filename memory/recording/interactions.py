"""Find the kind and the significance of an interaction between a person and an agent, and make the texts of its
memories.

The functions have no side effects. The same text always has the same kind and significance.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Self

from memory.errors import Invalid
from memory.markdown import sections
from memory.masking.neutral import neutral, neutral_whole
from memory.masking.scanner import masked_together
from memory.policy import settings_document
from memory.policy.validation import MAX_CONTENT, checked_content, checked_project
from memory.recording.texts import checked_name, cut, one_line, short

KINDS = ("question", "instruction", "feedback", "correction", "clarification", "statement")
LEVELS = ("low", "medium", "high")

# Patterns for the beginning of a prompt. The first match counts: a correction that is also a question is a correction.
_HEAD = 400  # characters
_CORRECTION = re.compile(
    r"\W{0,3}(?:no[,.!:]|nope\b|wrong\b|incorrect\b|correction\b|actually[, ]|not quite\b|i meant\b|"
    r"that(?:'s| is| was) (?:wrong|incorrect|not (?:right|correct|what|true))|"
    r"you(?:'ve| have)? (?:misunderstood|got (?:it|that) wrong|made a mistake|forgot)|it should (?:be|have been)\b)",
    re.I,
)
_CLARIFICATION = re.compile(
    r"\W{0,3}(?:to clarify|to be clear|clarification\b|in other words|let me (?:rephrase|clarify)|"
    r"(?:what|by that) i mean\b|what do you mean\b|(?:can|could) you (?:clarify|explain (?:that|this|it) again)|"
    r"i don'?t understand\b)",
    re.I,
)
_FEEDBACK = re.compile(
    r"\W{0,3}(?:thanks?\b|thank you\b|great\b|perfect\b|excellent\b|awesome\b|nice\b|well done\b|"
    r"good (?:job|work|answer)\b|"
    r"that(?:'s| is| was) (?:great|perfect|good|helpful|useful|too \w+|very \w+|exactly)|that (?:help|work)(?:s|ed)\b|"
    r"(?:it|this|your answer) (?:is|was) too \w+|i (?:really )?(?:like|love|hate) (?:it|this|that|how|the way)\b|"
    r"i don'?t like\b)",
    re.I,
)
_INSTRUCTION = re.compile(
    r"\W{0,3}(?:please\b|(?:can|could|would|will) you (?:please )?(?!explain why|tell me (?:why|what|how))\w+|"
    r"let'?s\b|"
    r"i (?:want|need|would like|'d like) you to\b|"
    r"(?:add|always|analy[sz]e|answer|apply|avoid|build|call|change|check|clean|compare|convert|copy|create|debug|"
    r"delete|deploy|describe|do|don'?t|draft|explain|find|fix|format|generate|give|implement|improve|install|keep|list|make|"
    r"merge|move|never|open|optimi[sz]e|plan|prepare|put|read|refactor|remember|remove|rename|replace|review|rewrite|"
    r"run|save|search|send|set|show|sort|start|stop|summari[sz]e|tell|test|translate|try|turn|update|use|verify|write)\b)",
    re.I,
)
_QUESTION = re.compile(
    r"\W{0,3}(?:who|whom|whose|what|when|where|which|why|how|is|are|am|was|were|do|does|did|can|could|should|would|will|"
    r"has|have|had|may|might)\b",
    re.I,
)
_ASKS_BACK = re.compile(r"(?i)\b(?:could you clarify|do you mean|did you mean|which (?:one )?do you|please clarify)\b")

DECIDES = re.compile(
    r"\b(?:decided?|decision|(?:we|i)(?:'ll| will) (?:go with|use|take)|let'?s (?:go with|use|take)|agreed|"
    r"cho(?:se|sen)|settled on|from now on|instead of|prefers?|preferred|preference|always|never|must not|"
    r"remember that|important)\b",
    re.I,
)
_CODE = re.compile(
    r"```|^[ ]{4}\S|\b(?:def|class|function|import|SELECT|const|return)\b[ (].{0,80}[;:({=]|Traceback \(", re.M
)
_NUMBER = re.compile(r"\b\d[\d.,:/-]*\d\b")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{2,}")


def kind_of(prompt: str, response: str = "") -> str:
    """Return the kind of a prompt. The kind is one of KINDS. A short prompt is a clarification if the response asks
    what the prompt means."""
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
    """Return whether a prompt begins like a question. "Can you write …?" is not a question, but an instruction. "Do you
    …" and "Do we …" begin a question, but "Do it" is an instruction."""
    is_instruction = re.match(
        r"\W{0,3}(?:(?:can|could|would|will) you|do(?!es)\b(?! (?:you|i|we|they|the|these|those)\b))", head, re.I
    )
    return _QUESTION.match(head) is not None and is_instruction is None


def significance(prompt: str, response: str = "") -> str:
    """Return the significance of an interaction: low, medium (at least 2 points) or high (at least 4 points).

    | points | for |
    | --- | --- |
    | 1 | The prompt and the response have 400 characters or more together. |
    | 1 | The prompt and the response have 2,000 characters or more together (2 points in all). |
    | 2 | The prompt is a correction. |
    | 1 | The prompt is an instruction or a clarification. |
    | 2 | The prompt states a decision, a preference or something to remember. |
    | 1 | The response states a decision, a preference or something to remember, but the prompt does not. |
    | 1 | The prompt or the response has code. |
    | 1 | The prompt has two or more numbers or names. |
    """
    size = len(prompt) + len(response)
    points = (size >= 400) + (size >= 2_000)
    points += {"correction": 2, "instruction": 1, "clarification": 1}.get(kind_of(prompt, response), 0)
    points += 2 if DECIDES.search(prompt) else 1 if DECIDES.search(response) else 0
    points += _CODE.search(prompt) is not None or _CODE.search(response) is not None
    points += len(_NUMBER.findall(prompt[:20_000])) + len(_NAME.findall(prompt[:20_000])) >= 2
    return LEVELS[(points >= 2) + (points >= 4)]


def is_worth_recording(rules: Mapping[str, Any], prompt: str, response: str = "") -> bool:
    """Return whether an interaction is significant enough to be recorded. The setting `interaction_threshold` is the
    minimum significance. The setting `min_interaction_length` is the minimum number of characters in the prompt."""
    recording = "memory_rules.auto_recording"
    if len(prompt.strip()) < settings_document.value(rules, f"{recording}.min_interaction_length"):
        return False
    threshold = settings_document.value(rules, f"{recording}.interaction_threshold")
    return LEVELS.index(significance(prompt, response)) >= LEVELS.index(threshold)


# --- the interaction


CATEGORY = "user_interaction"
MOST = 200_000  # characters of a prompt, and of a response
EXCERPT = 200  # characters of a prompt that is not captured in full
_LINES = {"topic": 58, "context": 1_000, "intent": 500, "effectiveness": 500, "learnings": 500, "metrics": 500}
_TOOLS, _TOOL = 20, 64  # number of tools, and characters of a tool's name
_LONGEST = 10_000_000  # seconds
_RESERVED = 300  # characters of a memory that are reserved for its part number and its references
_RUN = {mark: re.compile(re.escape(mark) + "+") for mark in "`~"}


@dataclass(frozen=True, slots=True, repr=False)
class Interaction:
    """One interaction: a prompt, its response, and information about both. Only the prompt is required."""

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

    def checked(self) -> Self:
        """Check the interaction and return it. All texts except the prompt and the response are put on one line. Raises
        Invalid."""
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


# --- what is stored


@dataclass(frozen=True, slots=True, repr=False)
class Captured:
    """The parts of an interaction that are stored. The settings decide which parts these are. Secrets are masked, and
    brands are removed."""

    interaction: Interaction
    kind: str
    level: str
    masked: int
    has_metadata: bool
    preserved: str = "whole"  # or a short note about what is not stored
    parts: Sequence[str] = ()  # the sections with the prompt and the response; each part becomes a memory


def capture(interaction: Interaction, rules: Mapping[str, Any], *, requested: bool) -> Captured:
    """Return the parts of an interaction that are stored. The interaction must already be checked. If the recording is
    not `requested`, the settings of `auto_recording` also apply."""
    is_on = partial(settings_document.is_on, rules)
    names = ("prompt", "response", *_LINES)
    before = [*(getattr(interaction, name) for name in names), *interaction.tools]
    texts = [*map(neutral_whole, before[:2]), *map(neutral, before[2:])]
    lost, count = ["no branding"] if texts != before else [], 0
    if is_on("capture_settings", "sensitive_data_masking"):
        texts, count = masked_together(texts)
    kept: dict[str, Any] = dict(zip(names, texts, strict=False))
    kept |= {name: cut(kept[name], most) for name, most in _LINES.items()}
    kept["tools"] = tuple(cut(tool, _TOOL) for tool in texts[len(names) :])
    prompt, response = kept["prompt"], kept["response"]
    if not is_on("categories", CATEGORY, "capture_full_prompts"):
        kept["prompt"] = cut(prompt, EXCERPT)
    if not (requested or is_on("auto_recording", "record_all_prompts")):
        kept["prompt"] = ""
    is_wanted = requested or is_on("auto_recording", "record_all_responses")
    if not (is_wanted and is_on("categories", CATEGORY, "capture_responses")):
        kept["response"] = ""
    if kept["prompt"] != prompt:
        lost.append("prompt cut" if kept["prompt"] else "no prompt")
    if kept["response"] != response:
        lost.append("no response")
    if count:
        lost.append(f"{count} masked")
    both = interaction.prompt, interaction.response
    has_metadata, preserved = is_on("categories", CATEGORY, "include_metadata"), " and ".join(lost) or "whole"
    facts = kind_of(*both), significance(*both), count, has_metadata, preserved
    captured = Captured(replace(interaction, **kept), *facts)
    return replace(captured, parts=divided(captured))


# --- the text of its memories


def contents(kept: Captured, session: str, *, previous: str, parts_at: Callable[[int], str]) -> list[str]:
    """Return the texts of an interaction's memories, one for each part. `previous` is the reference to the previous
    interaction. `parts_at` is a function that takes the index of a part and returns the reference to this part."""
    found, count = [], len(kept.parts)
    for place, part in enumerate(kept.parts):
        values = {"Session": session} if place else _values(kept, session)
        values |= {"Continues": parts_at(place - 1)} if place else {"Previous": previous}
        values |= {"Part": f"{place + 1} of {count}"} if count > 1 else {}
        values |= {"Continued In": parts_at(place + 1)} if place + 1 < count else {}
        found.append("\n\n".join(filter(None, (part, sections.join(sections.filled(CATEGORY, values))))))
    return found


def _values(kept: Captured, session: str) -> dict[str, str]:
    interaction = kept.interaction
    time = interaction.response_seconds
    seconds = "" if time is None else f"{time:.3f}".rstrip("0").rstrip(".") + " s"
    values = {
        "Session": session,
        "Topic": interaction.topic,
        "Previous Context": interaction.context,
        "Kind": kept.kind,
        "Significance": kept.level,
        "User Intent": interaction.intent,
        "Response Effectiveness": interaction.effectiveness,
        "Key Learnings": interaction.learnings,
    }
    if kept.has_metadata:
        tools = cut(", ".join(interaction.tools), 500)
        values |= {"Response Time": seconds, "Tools Used": tools, "Success Metrics": interaction.metrics}
    return values


def divided(kept: Captured) -> list[str]:
    """Split the prompt and the response into parts. A part and the other sections of its memory together have at most
    10,000 characters. This can take a second, so it is done before the agent is locked."""
    longest = _values(kept, session="x" * 64)
    room = MAX_CONTENT - len(sections.join(sections.filled(CATEGORY, longest))) - _RESERVED
    texts = {"User Prompt": kept.interaction.prompt, "Agent Response": kept.interaction.response}
    parts: list[dict[str, str]] = [{}]
    for name, text in texts.items():
        while text:
            if length := _fitting(name, text, room):
                parts[-1][name] = fenced(text[:length])
                room -= _size(name, text[:length])
            if text := text[length:]:
                parts.append({})
                room = MAX_CONTENT - 300 - _RESERVED
    return [sections.join(part) for part in parts]


def _fitting(name: str, text: str, room: int) -> int:
    """Return the length to which the text must be cut. The cut text, its name and its code fence have at most `room`
    characters together. If a line ends in the second half of the cut text, the text is cut there."""
    length = min(len(text), max(room, 0))
    while length and (size := _size(name, text[:length])) > room:
        length = min(length - 1, length * room // size)
    return length if length == len(text) else text.rfind("\n", length // 2, length) + 1 or length


def _size(name: str, text: str) -> int:
    return len(sections.join({name: fenced(text)})) + len("\n\n")


def fenced(text: str) -> str:
    """Return the text in a code fence that is longer than any fence inside the text."""
    longest = {mark: max(map(len, runs.findall(text)), default=0) for mark, runs in _RUN.items()}
    mark = "`" if longest["`"] <= max(longest["~"], 3) else "~"
    fence = mark * max(longest[mark] + 1, 3)
    return f"{fence}\n{text}\n{fence}"


def unfenced(text: str) -> str:
    found = re.match(r"(`{3,}|~{3,})\n(.*)\n\1\Z", text, re.DOTALL)
    return found[2] if found else text


# --- quoting


# What a session's memory can quote of a recording: fields, the beginning of each text, and some sentences of each text.
Quotable = Mapping[str, Sequence[str]]
TEXTS = ("User Prompt", "Agent Response")
SEVERAL = 5  # quotations
_FIELDS = {"Topic": "Context"} | dict.fromkeys(("Kind", "Key Learnings", "Response Effectiveness"), "Analysis")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_OPEN = re.compile(
    r"\b(?:todo|still (?:need|have) to|open question|unresolved|not sure yet|next time|later on|follow up)\b", re.I
)
QUOTED = {"Critical Decisions": DECIDES, "Unresolved Items": _OPEN}


def quotable(text: str) -> Quotable:
    """Return what can be quoted of the text of a recording. This can take 20 milliseconds."""
    found = sections.split(text, CATEGORY)
    values = {field: [sections.fact(found.get(section, ""), field)] for field, section in _FIELDS.items()}
    for name in TEXTS:
        whole = unfenced(found.get(name, ""))
        values[name] = [whole]
        for field, pattern in QUOTED.items():
            sentences = (each for each in _SENTENCE.split(whole) if pattern.search(each))
            values[f"{field} of {name}"] = list(islice(sentences, SEVERAL))
    return {name: [short(each) for each in texts if each] for name, texts in values.items()}
