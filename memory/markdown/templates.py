"""The templates of structured memories. A template maps each section to its fields, in order. A section without fields
is free text."""

from functools import cache

Fields = dict[str, tuple[str, ...]]

STANDARD: Fields = dict.fromkeys(("Context", "Understanding", "Decision/Action", "Outcome", "Related Memories"), ())
_TOPIC: Fields = {
    "Topic Definition": ("Topic", "Description", "Scope", "Related Topics"),
    "Evolution History": (
        "First Discussed",
        "Earlier Stages",
        "Earlier Items",
        "Development Stages",
        "Current Understanding Level",
    ),
    "User Interaction Patterns": ("Common Questions", "Preferred Approaches", "Expertise Level", "Communication Style"),
    "Key Insights": ("Important Concepts", "Best Practices", "Pitfalls to Avoid", "Resources Referenced", "Notes"),
    "Cross-References": ("Related Sessions", "Connected Topics", "Project Context"),
}
_SESSION: Fields = {
    "Session Overview": (
        *("Session", "Session Type", "Period", "Duration", "Interactions", "Primary Topic", "Secondary Topics"),
        *("Session Goal", "Previous Session", "Carried Over", "Next Session"),
    ),
    "Key Interactions": ("Opening Prompt", "Closing Exchange", "Critical Decisions", "Unresolved Items"),
    "Topic Evolution": ("Topic Flow", "Depth Reached", "User Engagement"),
    "Outcomes": ("Goals Achieved", "New Understandings", "Follow-up Needed"),
    "Session Quality Metrics": ("Clarity of Communication", "Problem Resolution", "User Satisfaction"),
}
_INTERACTION: Fields = {
    "User Prompt": (),
    "Agent Response": (),
    "Context": ("Session", "Topic", "Previous Context", "Part"),
    "Analysis": ("Kind", "Significance", "User Intent", "Response Effectiveness", "Key Learnings"),
    "Technical Metadata": ("Response Time", "Tools Used", "Success Metrics"),
    "Related Interactions": ("Previous", "Continues", "Continued In", "Follow-up"),
}
_GIT_HISTORY: Fields = {
    "Analysis Summary": (),
    "Key Findings": ("Project Evolution", "Development Patterns", "Milestones", "Architecture Insights"),
    "Commit Analysis": ("Most Changed Files", "Changed Together", "Common Commit Types", "Author Patterns"),
    "Branch Evolution": ("Main Branches", "Feature Branches", "Release Strategy"),
    "Code Evolution Metrics": ("File Count Growth", "Complexity Trends", "Technology Stack"),
    "Development Insights": ("Project Velocity", "Quality Indicators", "Collaboration Patterns"),
    "Recommendations": ("Areas for Attention", "Best Practices", "Future Considerations"),
}
OF = {"topic": _TOPIC, "session": _SESSION, "user_interaction": _INTERACTION, "git_history": _GIT_HISTORY}
# Optional fields. If such a field has no value, a file does not list the field as missing.
OPTIONAL: dict[str, frozenset[str]] = {
    "topic": frozenset({"Topic", "Earlier Stages", "Earlier Items", "Notes"}),
    "session": frozenset(
        {"Session", "Session Type", "Period", "Interactions", "Previous Session", "Next Session", "Carried Over"}
    ),
    "user_interaction": frozenset({"Kind", "Significance", "Part", "Continues", "Continued In"}),
    "git_history": frozenset({"Changed Together"}),
}
AROUND = ("Metadata", "Migration Information", "Tags", "Sealed")  # sections that a file has in addition
SECTIONS = frozenset({*STANDARD, *AROUND}.union(*OF.values()))


@cache
def fields(category: str) -> frozenset[str]:
    """Return the names of all fields of a category. A category with free text has no fields."""
    return frozenset[str]().union(*OF.get(category, {}).values())


def required(category: str, section: str) -> list[str]:
    """Return the fields that are not optional. If such a field has no value, a file lists it as missing."""
    return [field for field in OF.get(category, {}).get(section, ()) if field not in OPTIONAL[category]]
