"""What commits' messages say of them: cases as people write them."""

from __future__ import annotations

import pytest

from memory.git_history.commits import TYPES, decisions, kind_of, without_trailers

CASES = {
    "Cleanup discards what was seen, and keeps the rest": "other",
    "Cleanup tests": "refactoring",
    "Clean up the quay": "refactoring",
    # Conventional Commits 1.0.0
    "feat: allow provided config object to extend other configs": "feature",
    "feat(lang): add Polish language": "feature",
    "feat!: send an email to the customer when a product is shipped": "feature",
    "fix: prevent racing of requests": "fix",
    "fix(parser)!: array parsing issue when spaces were contained": "fix",
    "docs: correct spelling of CHANGELOG": "documentation",
    "refactor(api): one road": "refactoring",
    "perf: cache trees": "performance",
    "test: berths": "test",
    "ci: run on 3.13": "build",
    "style: black": "style",
    "chore: tidy": "chore",
    "chore(deps): bump ropes from 1.2 to 1.3": "dependency",
    "build(deps-dev): bump x": "dependency",
    "revert: let us never again speak of the noodle incident": "revert",
    "FIX: shouting": "fix",
    # words
    "Fix crash when the harbour is closed (#12)": "fix",
    "Fixed a race": "fix",
    "Hotfix for berths": "fix",
    "Resolve #44: no more waiting": "fix",
    "Don't lose what was said": "fix",
    "Handle empty tide tables": "fix",
    "Add a page for winds": "feature",
    "Implement booking": "feature",
    "Initial commit": "feature",
    "Support Python 3.13": "feature",
    "Refactor bookings": "refactoring",
    "Rename berth to slot": "refactoring",
    "Move winds into a module": "refactoring",
    "Simplify the tide table": "refactoring",
    "Speed up search": "performance",
    "Optimize queries": "performance",
    "Update README": "documentation",
    "Fix typo in the guide": "documentation",
    "docs for operators": "documentation",
    "Add tests for winds": "test",
    "Fix tests": "test",
    "Bump django from 5.1 to 5.2": "dependency",
    "Update dependencies": "dependency",
    "Release 1.4.0": "release",
    "v2.0.1": "release",
    "1.0.0": "release",
    "Bump version to 3": "release",
    "Revert \"Add a page for winds\"": "revert",
    "Merge branch 'main' into winds": "merge",
    "Merge pull request #5 from ada/winds": "merge",
    "Reformat": "style",
    "Run ruff": "style",
    "Remove dead code": "chore",
    "[harbour] Add winds": "feature",
    "harbour/winds: fix rounding": "fix",
    ":sparkles: Add a page": "feature",
    "✨ Add a page": "feature",
    # neither
    "Winds": "other",
    "What a day": "other",
    "": "other",
    ":": "other",
    "note: this is no type": "other",
    "http://harbour.test/winds": "other",
}  # fmt: skip


@pytest.mark.parametrize(("subject", "type"), CASES.items())
def test_types(subject: str, type: str) -> None:
    assert kind_of(subject).type == type


def test_each_type_has_a_case() -> None:
    assert set(CASES.values()) == set(TYPES)


def test_two_parents_make_a_merge() -> None:
    assert kind_of("fix: berths", is_merge=True).type == "merge"


@pytest.mark.parametrize(
    ("subject", "body", "is_breaking"),
    [
        ("feat!: winds", "", True),
        ("feat(x)!: winds", "", True),
        ("fix: winds", "Now in knots.\n\nBREAKING CHANGE: were metres a second", True),
        ("fix: winds", "Now in knots.\n\nBREAKING-CHANGE: were metres a second", True),
        ("fix: winds", "no BREAKING CHANGE: here", False),
        ("Stop! winds", "", False),
        ("note!: winds", "", False),
    ],
)
def test_breaking_changes(subject: str, body: str, is_breaking: bool) -> None:
    assert kind_of(subject, body).is_breaking is is_breaking


@pytest.mark.parametrize("text", ["Fix XSS in the guest book", "CVE-2026-1234", "close an SQL injection"])
def test_security(text: str) -> None:
    assert kind_of(text).is_security
    assert kind_of("Winds", text).is_security
    assert not kind_of("Winds", "calm").is_security


def test_decisions() -> None:
    body = """We asked three harbours.

Knots are used instead of metres a second, because pilots think in them. Tables stay.
- The old column is kept so that
  printed tables agree.

Signed-off-by: Ada Quay <ada@quay.test>"""
    assert decisions(body) == [
        "Knots are used instead of metres a second, because pilots think in them.",
        "The old column is kept so that printed tables agree.",
    ]
    assert decisions("Because.") == []
    assert decisions("because " + "x" * 400) == []


def test_trailers() -> None:
    assert without_trailers("Why it is so.\n\nSigned-off-by: Ada <a@b.test>\nRefs: #4") == "Why it is so."
    assert without_trailers("Co-authored-by: Ada <a@b.test>") == ""
    assert without_trailers("Why: because\nand so on") == "Why: because\nand so on"
    assert without_trailers("") == ""
