"""The fields that each section of a template lists. A file names those that a memory's text does not have."""

from __future__ import annotations

import re

from memory.markdown import sections
from memory.markdown.sections import ABSENT, fact

_Labels = dict[str, tuple[str, ...]]
TOPIC: _Labels = {
    "Topic Definition": ("Description", "Scope", "Related Topics"),
    "Evolution History": ("First Discussed", "Development Stages", "Current Understanding Level"),
    "User Interaction Patterns": (
        "Common Questions",
        "Preferred Approaches",
        "Expertise Level",
        "Communication Style",
    ),
    "Key Insights": ("Important Concepts", "Best Practices", "Pitfalls to Avoid", "Resources Referenced"),
    "Cross-References": ("Related Sessions", "Connected Topics", "Project Context"),
}
SESSION: _Labels = {
    "Session Overview": ("Duration", "Primary Topic", "Secondary Topics", "Session Goal"),
    "Key Interactions": ("Opening Prompt", "Closing Exchange", "Critical Decisions", "Unresolved Items"),
    "Topic Evolution": ("Topic Flow", "Depth Reached", "User Engagement"),
    "Outcomes": ("Goals Achieved", "New Understandings", "Follow-up Needed"),
    "Session Quality Metrics": ("Clarity of Communication", "Problem Resolution", "User Satisfaction"),
}
INTERACTION: _Labels = {
    "Context": ("Session", "Topic", "Previous Context"),
    "Analysis": ("User Intent", "Response Effectiveness", "Key Learnings"),
    "Technical Metadata": ("Response Time", "Tools Used", "Success Metrics"),
    "Related Interactions": ("Previous", "Follow-up"),
}
GIT_HISTORY: _Labels = {
    "Key Findings": ("Project Evolution", "Development Patterns", "Milestones", "Architecture Insights"),
    "Commit Analysis": ("Most Changed Files", "Common Commit Types", "Author Patterns"),
    "Branch Evolution": ("Main Branches", "Feature Branches", "Release Strategy"),
    "Code Evolution Metrics": ("File Count Growth", "Complexity Trends", "Technology Stack"),
    "Development Insights": ("Project Velocity", "Quality Indicators", "Collaboration Patterns"),
    "Recommendations": ("Areas for Attention", "Best Practices", "Future Considerations"),
}
_COMMITS = "".join(sections.absent(GIT_HISTORY["Commit Analysis"]))
_PARTED = {"Commit Analysis": f"### Major Commits\n{ABSENT}\n\n### Pattern Insights\n{_COMMITS}"}
OF = {"topic": TOPIC, "session": SESSION, "user_interaction": INTERACTION, "git_history": GIT_HISTORY}
# What memories of ours list beside.
_BESIDE = {
    "topic": ("Topic", "Earlier Stages", "Earlier Items", "Notes"),
    "session": (
        *("Session", "Session Type", "Period", "Interactions"),
        *("Previous Session", "Next Session", "Carried Over"),
    ),
    "user_interaction": ("Kind", "Significance", "Part", "Continues", "Continued In"),
    "git_history": ("Changed Together",),
}
_ALL = {
    category: frozenset({*_BESIDE[category], *(label for names in of_kind.values() for label in names)})
    for category, of_kind in OF.items()
}
_BOLD = "git_history"  # the category whose template has the fields of its sections in bold
_FIELD = re.compile(r"^- ([A-Z][A-Za-z -]{1,40}):(?= |$)", re.MULTILINE)
_IN_BOLD = re.compile(rf"^- \*\*({'|'.join(sorted(_ALL[_BOLD]))})\*\*:", re.MULTILINE)
_ANY = f"(?:{'|'.join(sorted(frozenset().union(*_ALL.values())))})"
_ADDED = re.compile(rf"\n- {ABSENT}: {_ANY}(?:, {_ANY})*\Z")
_TOLD_AS_ABSENT = {
    *_PARTED.values(),
    *(line for of_kind in OF.values() for names in of_kind.values() for line in sections.absent(names)),
    ABSENT,
}


def all_of(category: str) -> frozenset[str]:
    """Each label that its memories have; none for a category whose text is free."""
    return _ALL.get(category, frozenset())


def absent(category: str, section: str) -> str:
    """What stands in a section of which nobody told anything."""
    if category == "git_history" and section in _PARTED:
        return _PARTED[section]
    names = OF.get(category, {}).get(section, ())
    return "".join(sections.absent(names)) or ABSENT


def is_absent(said: str) -> bool:
    """Whether a section says that, and nothing else."""
    return said in _TOLD_AS_ABSENT


def completed(text: str, category: str, section: str) -> str:
    """A section that lists fields, as its file shows it: fields are bold where the template has them bold, and a last
    line names the fields that are missing."""
    found = set(_FIELD.findall(text))
    names = OF.get(category, {}).get(section, ())
    if not found & all_of(category):
        return text
    if category == _BOLD:
        text = _FIELD.sub(lambda line: f"- **{line[1]}**:" if line[1] in all_of(category) else line[0], text)
    is_named = "\n- " + ABSENT in text
    return "\n".join([text, *([] if is_named else sections.absent(name for name in names if name not in found))])


def stored(text: str, *, is_bold: bool) -> str:
    """What `completed` was given. A section without text stays as it is."""
    if is_absent(text):
        return text
    text = _ADDED.sub("", text)
    return _IN_BOLD.sub(r"- \1:", text) if is_bold else text


def with_fact(text: str, category: str, section: str, label: str, value: str) -> str:
    """A memory's text with one more field in a section. A field that has a value keeps it."""
    found = sections.parted(text, category)
    before = found.get(section, "")
    if fact(before, label):
        return text
    found[section] = f"{before}\n- {label}: {value}"
    return sections.composed({name: found.get(name, "") for name in sections.names(category)})
