"""The facts that commit messages contain: type, breaking change, security fix, decision."""

import pytest

from memory.git_history.messages import read, without_trailers

TYPES = {  # the type → subjects
    "feature": ["feat(lang)!: add Polish", "Add a page for winds", "[harbour] Add winds", "harbour: add winds"],
    "refactoring": ["refactor(api): one road", "Clean up the quay"],
    "dependency": [
        *("chore(deps): bump ropes from 1.2 to 1.3", "Bump django from 5.1 to 5.2"),
        *("Bump the ropes group across 1 directory with 9 updates (#12)", "Update actions/checkout action to v4"),
    ],
    "release": [
        *("chore(release): 1.2.3", "Release 1.4.0", "[release-plugin] prepare for next development iteration"),
        *("Version bump", "Bump to 1.3.0.dev0", "nightly build 2026-11-20", "chore: bump version to 1.2.3"),
    ],
    "fix": ["Fix crash when the harbour is closed (#12)"],
    "documentation": [
        *("Fix typo in the guide", "add v1.8.0 changelog (#3160)", "fixed typo in history.md"),
        "Update ropes in docs to 3.7",
    ],
    "revert": ['Revert "Add a page for winds"'],
    "merge": ["Merge pull request #5 from ada/winds"],
    "build": ["ci: update Go version support to 1.25+ across CI and docs"],
    "style": ["lint: add --fix flag to fix linting"],
    "test": ["Add explicit UTF-8 encoding to remaining test fixture"],
    "other": ["What a day", "", "note: this is no type", "http://harbour.test/winds"],
}


def test_types() -> None:
    for name, subjects in TYPES.items():
        assert {subject: read(subject).type for subject in subjects} == dict.fromkeys(subjects, name)
    assert read("fix: berths", is_merge=True).type == "merge"


def test_a_revert_is_explained_only_by_more_than_its_commit() -> None:
    body = f"This reverts commit {'a' * 40}."
    assert not read('Revert "winds"', body).is_explained
    assert read('Revert "winds"', f"{body}\n\nPilots miss them.").is_explained


def test_breaking_changes() -> None:
    for name in ("BREAKING CHANGE", "BREAKING-CHANGE"):
        assert read("fix: winds", f"Now in knots.\n\n{name}: were metres a second").is_breaking
    assert read("feat(x)!: winds").is_breaking
    assert not read("fix: winds", "no BREAKING CHANGE: here").is_breaking
    assert not read("Stop! winds").is_breaking


def test_security_fixes() -> None:
    for text in ("Fix XSS in the guest book", "CVE-2026-1234", "close an SQL injection"):
        assert (read(text).is_security, read("Winds", text).is_security) == (True, True)
    for subject, body in (
        ("Use dependency injection for the tide table", ""),
        ("Inject the clock", "Constructor injection, as elsewhere."),
        ("Bump ropes from 1.2 to 1.3", "Release notes: fixes CVE-2026-1234."),
        ("Turn CSRF tokens on", ""),
    ):
        assert not read(subject, body).is_security


BODY = """We asked three harbours, e.g. Kiel because it is near

Knots are used instead of metres a second, e.g. in tables, because pilots think in them. Tables stay.

Signed-off-by: Ada Quay <ada@quay.test>"""
NAMES = "Names are used instead of numbers."
SHORTER = "Tables are shorter because of it."
CODE = "```\nBecause this is code.\n```\n> Because somebody said so.\n    Because it is a log."


@pytest.mark.parametrize(
    ("subject", "body", "decision"),
    [
        ("Winds", BODY, "Knots are used instead of metres a second, e.g. in tables, because pilots think in them."),
        ("Winds", "- The column stays so that\n  tables agree.", "The column stays so that tables agree."),
        ("Winds", f"These are kept because pilots do. {NAMES}", NAMES),
        ("Winds", "Cut off, because", ""),
        ("Winds", f"Because {'of winds ' * 40}.", ""),
        ("Winds", CODE, ""),
        ("Drop support for Python 3.9", "", "Drop support for Python 3.9"),
        ("Use knots instead of metres a sec… (#3)", "", "Use knots instead of metres a sec… (#3)"),
        ("Use knots instead of metres a sec...", "", ""),
        ("Bump ropes from 1.2 to 1.3", "Because of a bug in the old version.", ""),
        ("Fix winds", "The table was empty because nobody filled it.", ""),
        ("Fix winds", "Winds are no longer measured in metres.", ""),
        ("Deprecate metres", f"Pilots think in knots. {SHORTER}", SHORTER),
        ("Deprecate metres", "Pilots think in knots.", "Pilots think in knots."),
        ("Deprecate metres", "One.\n\nTwo.\n\nThree.\n\nA table is kept because pilots read it.", "Deprecate metres"),
    ],
)
def test_decisions_are_whole_sentences(subject: str, body: str, decision: str) -> None:
    assert read(subject, body).decision == decision


def test_trailers_and_the_number_of_a_pull_request() -> None:
    assert without_trailers("Why it is so.\n\nSigned-off-by: Ada <a@b.test>\nRefs: #4") == "Why it is so."
    assert without_trailers("Co-authored-by: Ada <a@b.test>") == ""
    assert without_trailers("Why: because\nand so on") == "Why: because\nand so on"
    assert read("Add winds (#123)").is_squashed
    assert not read("Add winds (#123) again").is_squashed
