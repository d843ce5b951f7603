"""What the sections of the seed's templates list (seed 004, "Storage Format"): named in a file where nobody told it."""

from __future__ import annotations

from memory.markdown import sections
from memory.markdown.sections import ABSENT, fact, listed

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
    "Branch Evolution": ("Main Branches", "Feature Branches", "Release Strategy"),
    "Code Evolution Metrics": ("File Count Growth", "Complexity Trends", "Technology Stack"),
    "Development Insights": ("Project Velocity", "Quality Indicators", "Collaboration Patterns"),
    "Recommendations": ("Areas for Attention", "Best Practices", "Future Considerations"),
}
_COMMITS = "".join(sections.absent(("Most Changed Files", "Common Commit Types", "Author Patterns")))
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
    "git_history": ("Most Changed Files", "Changed Together", "Common Commit Types", "Author Patterns"),
}
_ALL = {
    category: frozenset({*_BESIDE[category], *(label for names in of_kind.values() for label in names)})
    for category, of_kind in OF.items()
}
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


def with_fact(text: str, category: str, section: str, label: str, value: str) -> str:
    """A memory's text with one thing more in a section; as it is where the section has something under the label."""
    found = sections.parted(text, category)
    before = found.get(section) or absent(category, section)
    if fact(before, label):
        return text
    left = [name for name in fact(before, ABSENT).split(", ") if name not in ("", label)]
    lines = [line for line in before.splitlines() if line != ABSENT and not line.startswith(f"- {ABSENT}: ")]
    found[section] = "\n".join([*lines, listed({label: value} | dict.fromkeys(left, ""))])
    return sections.composed({name: found.get(name, "") for name in sections.names(category)})
