"""What the messages of commits say: cases as people write them."""

from __future__ import annotations

import pytest

from memory.git_history.messages import read, without_trailers

CASES = {
    # Conventional Commits 1.0.0
    "feat(lang)!: add Polish language": "feature",
    "refactor(api): one road": "refactoring",
    "chore(deps): bump ropes from 1.2 to 1.3": "dependency",
    "chore(release): 1.2.3": "release",
    # words
    "Fix crash when the harbour is closed (#12)": "fix",
    "Add a page for winds": "feature",
    "Clean up the quay": "refactoring",
    "Fix typo in the guide": "documentation",
    'Revert "Add a page for winds"': "revert",
    "Merge pull request #5 from ada/winds": "merge",
    "[harbour] Add winds": "feature",
    # versions and dependencies
    "Release 1.4.0": "release",
    "[release-plugin] prepare for next development iteration": "release",
    "Bump the ropes group across 1 directory with 9 updates (#12)": "dependency",
    "add v1.8.0 changelog (#3160)": "documentation",
    "Version bump": "release",
    "Bump to 1.3.0.dev0": "release",
    "nightly build 2026-11-20": "release",
    "Bump django from 5.1 to 5.2": "dependency",
    "Update actions/checkout action to v4": "dependency",
    # what a prefix names, and words that say more than "add" and "update"
    "ci: update Go version support to 1.25+ across CI and docs": "build",
    "chore: bump version to 1.2.3": "release",
    "lint: add --fix flag to fix linting": "style",
    "harbour: add winds": "feature",
    "fixed typo in history.md": "documentation",
    "Update ropes in docs to 3.7": "documentation",
    "Add explicit UTF-8 encoding to remaining test fixture": "test",
    # neither
    "What a day": "other",
    "": "other",
    "note: this is no type": "other",
    "http://harbour.test/winds": "other",
}


def test_a_revert_alone_explains_nothing() -> None:
    body = f"This reverts commit {'a' * 40}."
    assert not read('Revert "winds"', body).is_explained
    assert read('Revert "winds"', f"{body}\n\nPilots miss them.").is_explained


def test_types() -> None:
    assert {subject: read(subject).type for subject in CASES} == CASES
    assert read("fix: berths", is_merge=True).type == "merge"


@pytest.mark.parametrize(
    ("subject", "body", "is_breaking"),
    [
        ("feat(x)!: winds", "", True),
        ("fix: winds", "Now in knots.\n\nBREAKING CHANGE: were metres a second", True),
        ("fix: winds", "Now in knots.\n\nBREAKING-CHANGE: were metres a second", True),
        ("fix: winds", "no BREAKING CHANGE: here", False),
        ("Stop! winds", "", False),
    ],
)
def test_breaking_changes(subject: str, body: str, is_breaking: bool) -> None:
    assert read(subject, body).is_breaking is is_breaking


@pytest.mark.parametrize("text", ["Fix XSS in the guest book", "CVE-2026-1234", "close an SQL injection"])
def test_security(text: str) -> None:
    assert read(text).is_security
    assert read("Winds", text).is_security


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("Use dependency injection for the tide table", ""),
        ("Inject the clock", "Constructor injection, as elsewhere."),
        ("Bump ropes from 1.2 to 1.3", "Release notes: fixes CVE-2026-1234."),
        ("Turn CSRF tokens on", ""),
    ],
)
def test_what_is_no_security_fix(subject: str, body: str) -> None:
    assert not read(subject, body).is_security


def test_a_squashed_pull_request() -> None:
    assert read("Add winds (#123)").is_squashed
    assert not read("Add winds (#123) again").is_squashed


BODY = """We asked three harbours, e.g. Kiel because it is near

Knots are used instead of metres a second, e.g. in tables, because pilots think in them. Tables stay.

Signed-off-by: Ada Quay <ada@quay.test>"""


@pytest.mark.parametrize(
    ("subject", "body", "decision"),
    [
        ("Winds", BODY, "Knots are used instead of metres a second, e.g. in tables, because pilots think in them."),
        ("Winds", "- The column stays so that\n  tables agree.", "The column stays so that tables agree."),
        (
            "Winds",
            "These are kept because pilots do. Names are used instead of numbers.",
            "Names are used instead of numbers.",
        ),
        ("Winds", "Cut off, because", ""),
        ("Winds", f"Because {'of winds ' * 40}.", ""),
        ("Winds", "```\nBecause this is code.\n```\n> Because somebody said so.\n    Because it is a log.", ""),
        ("Drop support for Python 3.9", "", "Drop support for Python 3.9"),
        ("Use knots instead of metres a sec… (#3)", "", "Use knots instead of metres a sec… (#3)"),
        ("Use knots instead of metres a sec...", "", ""),
        ("Bump ropes from 1.2 to 1.3", "Because of a bug in the old version.", ""),
        ("Fix winds", "The table was empty because nobody filled it.", ""),
        ("Fix winds", "Winds are no longer measured in metres.", ""),
        (
            "Deprecate metres",
            "Pilots think in knots. Tables are shorter because of it.",
            "Tables are shorter because of it.",
        ),
        ("Deprecate metres", "Pilots think in knots.", "Pilots think in knots."),
        ("Deprecate metres", "One.\n\nTwo.\n\nThree.\n\nA table is kept because pilots read it.", "Deprecate metres"),
    ],
)
def test_decisions_are_whole_sentences(subject: str, body: str, decision: str) -> None:
    assert read(subject, body).decision == decision


def test_trailers() -> None:
    assert without_trailers("Why it is so.\n\nSigned-off-by: Ada <a@b.test>\nRefs: #4") == "Why it is so."
    assert without_trailers("Co-authored-by: Ada <a@b.test>") == ""
    assert without_trailers("Why: because\nand so on") == "Why: because\nand so on"
