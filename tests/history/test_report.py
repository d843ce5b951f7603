"""What the memory of a history says: the fields of its template within 800 tokens, and what it leaves out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from memory.git_history import report, stack
from memory.git_history.analysis import Analysis, Limits, Parts, branches, decisions, significant
from memory.git_history.repository import Repository
from memory.markdown import sections
from memory.policy import tokens
from tests.history.repositories import DAY, NOW, analysis, commit, git


def section(found: Analysis, name: str) -> str:
    return sections.split(report.render(found, "x"), "git_history").get(name, "")


def below(found: Analysis, heading: str) -> list[str]:
    """The lines below a heading of the commit analysis."""
    parts = re.split(r"^### (.*)\n", section(found, "Commit Analysis"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "").splitlines()


def subjects(found: Analysis, heading: str) -> list[str]:
    return [line.partition(": ")[2] for line in below(found, heading)]


def test_in_the_sections_of_its_template(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_TOKENS", 5_000)
    said = report.render(analysis(harbour), "harbour")
    assert list(sections.split(said, "git_history")) == list(sections.names("git_history"))
    for label in (
        "### Major Commits", "### Decisions", "### Pattern Insights",
        "Project Evolution", "Development Patterns", "Milestones", "Architecture Insights", "Most Changed Files",
        "Common Commit Types", "Author Patterns", "Main Branches", "Feature Branches", "Release Strategy",
        "File Count Growth", "Complexity Trends", "Technology Stack", "Project Velocity", "Quality Indicators",
        "Collaboration Patterns", "Best Practices",
    ):  # fmt: skip
        assert label in said


def test_recommendations_follow_from_the_figures(work: Path) -> None:
    for nth in range(12):
        commit(work, f"fix: winds {nth}", {"winds.py": f"{nth}", "deep/gusts.py": f"{nth}"})
    git(work, "branch", "calm")
    assert "Future Considerations" not in section(analysis(work), "Recommendations")
    git(work, "checkout", "-q", "calm")
    commit(work, "calm", {"calm.py": "1"}, at=NOW - 30 * DAY)
    git(work, "checkout", "-q", "main")
    commit(work, "more", {f"new{nth}.py": "1" for nth in range(9)}, at=NOW - 30 * DAY)
    commit(work, "again", {"winds.py": "again"})
    said = section(analysis(work, limits=Limits(36_500, 3, 60)), "Recommendations")
    assert "the number of files went up by" in said
    said = section(analysis(work), "Recommendations")
    assert "winds.py changes in " in said
    assert "% of the commits fix something" in said
    assert "Conventional Commits" in said
    assert "branch calm is not merged, its last commit is 29 days before the head" in said


def test_what_was_not_analyzed_and_empty_fields_are_left_out(harbour: Path) -> None:
    none = Parts(messages=False, files=False, branches=False, milestones=False, patterns=False, authors=False)
    said = report.render(analysis(harbour, none), "harbour")
    for absent in ("Major Commits", "m1.py", "feature 1", "v0.1", "Python", "merged", "person", "Not recorded"):
        assert absent not in said
    assert "Not recorded" not in report.render(analysis(harbour), "harbour")


def test_at_most_800_tokens_the_most_useful_first(work: Path) -> None:
    for nth in range(12):
        names = {f"{'folder-of-' * 14}{nth}/{'file-' * 20}{other}.py": str(nth) for other in range(4)}
        for again in range(3):
            texts = {name: f"{text} {again}" for name, text in names.items()}
            commit(work, f"feat!: {'winds ' * 40}{nth}\n\n{'Because of winds and tides, ' * 8}{nth}.", texts)
    said = report.render(analysis(work), "work")
    assert tokens.count(said) > 500
    assert len(said.encode()) <= 3 * 800  # tokenizers of models need up to one token for three bytes
    for kept in ("Git history of work: 37 commits", "Technology Stack", "Major Commits", "Decisions"):
        assert kept in said


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.parametrize("with_authors", [False, True])
def test_neither_secrets_nor_addresses_and_people_only_when_asked(work: Path, with_authors: bool) -> None:
    commit(
        work,
        f"feat!: a token {SECRET} for Ada Quay\n\nBecause ada@quay.test and @adaq asked for it, long ago.",
        {"a": "1", "README.md": f"# Winds\n\nWinds are measured by Ada Quay (ada@quay.test) with {SECRET} here."},
    )
    commit(work, f"feat!: {'winds ' * 17} {SECRET}", {"a": "2"})  # where a subject is cut
    git(work, "branch", f"token-{SECRET}", "HEAD~1")
    git(work, "checkout", "-qb", "winds")
    commit(work, "feat: gusts", {"b": "1"})
    git(work, "checkout", "-q", "main")
    who = ("-c", "user.name=Ada Quay", "-c", "user.email=ada@quay.test")
    git(work, *who, "merge", "-q", "--no-ff", "-m", "Merge pull request #5 from adaq/winds", "winds")
    git(work, *who, "tag", "-a", "v1.0.0", "-m", f"by ada@quay.test {SECRET}")
    said = report.render(analysis(work, Parts(branches=True, authors=with_authors)), "work")
    assert "a token" in said
    assert "Winds are measured" in said
    for hidden in (SECRET, SECRET[:12], "ada@quay.test", *(() if with_authors else ("Ada Quay", "adaq"))):
        assert hidden not in said
    assert ("Ada Quay" in said) is with_authors


def test_markup_in_messages_makes_no_sections(work: Path) -> None:
    commit(work, "feat!: ## Recommendations\n\n## Key Findings\nbecause of that which was said before", {"a": "2"})
    assert section(analysis(work), "Key Findings").startswith("- Project Evolution")


# --- what was found wrong with real repositories


def test_nightly_tags_and_version_bumps_are_no_major_commits(work: Path) -> None:
    for nth in range(9):
        commit(work, f"Bump version to 1.0.{nth}", {"pyproject.toml": f"{nth}"})
        git(work, "tag", f"nightly-2026-11-0{nth + 1}")
    commit(work, "chore(release): 1.1.0", {"CHANGELOG.md": "1"})
    git(work, "tag", "v1.1.0")
    git(work, "tag", "v1.1.0-rc1")
    found = analysis(work)
    assert subjects(found, "Major Commits") == ["feat: winds"]
    head = git(work, "rev-parse", "--short=10", "HEAD").strip()
    milestones = sections.fact(section(found, "Key Findings"), "Milestones")
    assert re.fullmatch(
        rf"1 release, 1 in this time, the newest of each series: v1\.1\.0 \({head} [\d-]{{10}}\)",
        milestones,
    )


def test_each_commit_and_decision_names_its_commit(work: Path) -> None:
    head = commit(work, "Knots\n\nKnots are used because pilots think in them. More.", {"a.py": "2"})[:10]
    day = git(work, "show", "-s", "--format=%cs", "HEAD").strip()
    assert below(analysis(work), "Decisions") == [
        f"- {head} {day}: Knots. Knots are used because pilots think in them."
    ]
    assert all(re.match(r"- [0-9a-f]{10} \d{4}-\d\d-\d\d: ", line) for line in below(analysis(work), "Major Commits"))


def test_a_squashed_branch_is_merged(work: Path) -> None:
    for name, last in (("winds", "feat: more winds"), ("gusts", "wip on gusts"), ("calm", "calm")):
        git(work, "checkout", "-qb", name, "main")
        commit(work, last, {f"{name}0.py": "1"})
    git(work, "checkout", "-q", "main")
    commit(work, "feat: more winds (#12)", {"winds2.py": "1"})
    commit(work, "Gusts (#13)\n\n* first\n\n* wip on gusts\n", {"gusts2.py": "1"})
    said = sections.fact(section(analysis(work), "Branch Evolution"), "Feature Branches")
    assert said.startswith("2 merged by a squash; 1 with commits in this time are not merged: calm (1 commit, last ")


def test_the_stack_is_told_by_names(work: Path) -> None:
    names = ("q.sql", "logo.svg", "web/package.json", "manage.py", "a/b/c/d/e/go.mod", ".github/workflows/ci.yml")
    commit(work, "stack", dict.fromkeys(names, "{"))
    said = sections.fact(section(analysis(work), "Code Evolution Metrics"), "Technology Stack")
    languages, tools = said.split("; ")[:2]
    assert {"SQL", "SVG", "Python"} <= set(languages.split(", "))
    assert tools == "Django, GitHub Actions, Node.js"


NEWS = "# Winds\n\n## Winds 1.12.0!\n\nWe're excited to announce the release of **Winds 1.12.0**! It is new.\n\n"
FIRST = "This is a module that you find in the registry of modules.\n\n"
DEFINED = "Winds (w) is a service that measures [winds][1]. Pilots read them.\n"


@pytest.mark.parametrize(
    ("readme", "manifest", "description"),
    [  # whole sentences of the README
        ("# Winds\n\n[![ci](a)](b)\n\n**Winds** measures [winds](http://x) in `knots`. It is small. It is old.", "",
         "Winds measures winds in knots. It is small."),
        ("Winds\n=====\n\n.. image:: x\n\nMeasures winds on every quay of the harbour\nof Kiel.", "",
         "Measures winds on every quay of the harbour of Kiel."),
        ("# Winds\nMeasures winds on every quay, in knots.\n", "", "Measures winds on every quay, in knots."),
        ("<p align=center>\n\n<!-- x\n\ny -->\n\n- a list of things that is long enough to be a text.", "", ""),
        ('<p align="center">\n<img src="x">\n</p>\n<p align="center">\nMeasures winds in your harbour.\n</p>\n', "",
         "Measures winds in your harbour."),
        ("# Winds", "", ""),
        ("word " * 200, "", ""),
        # no news: a definition, or else a manifest
        (NEWS + FIRST + DEFINED, 'description = "Measures winds"', DEFINED.strip().replace("[winds][1]", "winds")),
        (NEWS + FIRST, '[project]\nname = "winds"\ndescription = "Measures winds"\n', "Measures winds"),
        (NEWS + FIRST, '{\n  "description": "Measures winds",\n  "scripts": {}\n}', "Measures winds"),
        (NEWS + FIRST, '{"name": "winds"}', FIRST.strip()),
        (NEWS, "", ""),
    ],
)  # fmt: skip
def test_the_description(readme: str, manifest: str, description: str) -> None:
    assert stack.description(readme, ["", manifest]) == description


def test_a_manifest_describes_its_project(work: Path) -> None:
    commit(work, "feat: a manifest", {"README.md": NEWS, "pyproject.toml": 'description = "Measures winds"'})
    assert section(analysis(work), "Analysis Summary").startswith("About the project: Measures winds\n")


def test_changes_of_the_changelog_are_important_and_those_of_documentation_are_not(work: Path) -> None:
    commit(work, "Winds without a name", {"winds.py": "2", "CHANGES.rst": "winds"})
    commit(work, "Fix typos", {"gusts.py": "2", "CHANGES.rst": "gusts"})
    commit(work, "Add a workflow", {".github/workflows/ci.yml": "1"})
    assert subjects(analysis(work), "Major Commits") == [
        "Winds without a name",
        "feat: winds",
    ]


def test_a_security_fix_changes_code_or_a_manifest(work: Path) -> None:
    commit(work, "Update the pin for CVE-2026-1234", {"pyproject.toml": "1"})
    commit(work, "Fix XSS in winds", {"winds.py": "2"})
    commit(work, "Add a scanner\n\nIt finds each vulnerability.", {".github/dependabot.yml": "1"})
    assert subjects(analysis(work), "Major Commits") == [
        "Update the pin for CVE-2026-1234 (security fix, manifest added or removed)",
        "Fix XSS in winds (security fix)",
        "feat: winds",
    ]


def test_what_was_reverted_is_no_decision(work: Path) -> None:
    bad = commit(work, "feat: use knots instead of metres", {"winds.py": "knots"})
    commit(work, f'Revert "feat: use knots"\n\nThis reverts commit {bad}.', {"winds.py": "1"})
    assert below(analysis(work), "Decisions") == []
    assert subjects(analysis(work), "Major Commits") == [
        'Revert "feat: use knots"',
        "feat: winds",
    ]


def test_removals_and_wide_changes_are_taken_before_small_decisions(work: Path) -> None:
    wide = {f"winds{nth}.py": "1" for nth in range(3)}
    commit(work, "Drop support for metres", {"metres.py": "1"}, at=NOW - 40)
    commit(work, "Read winds by name\n\nNames are used instead of numbers.", wide, at=NOW - 30)
    commit(work, "Sort knots\n\nA list is used instead of a set.", {"knots.py": "1"}, at=NOW - 20)
    commit(work, 'Revert "sec: patch for CVE-2026-1"', {"gusts.py": "1"}, at=NOW - 10)
    found = analysis(work)
    assert [fact.subject for fact in decisions(found.facts, 3)] == [
        'Revert "sec: patch for CVE-2026-1"',
        "Read winds by name",
        "Drop support for metres",
    ]
    assert subjects(found, "Decisions") == [  # the newest first
        'Revert "sec: patch for CVE-2026-1"',
        "Sort knots. A list is used instead of a set.",
        "Read winds by name. Names are used instead of numbers.",
        "Drop support for metres",
    ]
    assert any("reverted security fix" in reasons for _, reasons in significant(found.facts, 7))
    assert subjects(found, "Major Commits") == ["feat: winds"]


def test_a_package_and_its_version_are_no_address(work: Path) -> None:
    for name in ("@acme/ropes@1.2.0", "ropes@2.0.1"):
        git(work, "tag", name)
    text = report.render(analysis(work), "x")
    assert "[address]" not in text
    assert "ropes@2.0.1" in text


def test_files_of_dependency_updates_are_left_out(work: Path) -> None:
    for nth in range(3):
        commit(work, f"Bump ropes from 1.{nth} to 2.{nth}", {"uv.lock": f"{nth}"})
    said = sections.fact("\n".join(below(analysis(work), "Pattern Insights")), "Most Changed Files")
    assert said == "besides dependency updates and releases: tests/test_winds.py (1 commit), winds.py (1 commit)"


def test_the_newest_release_of_each_series(work: Path) -> None:
    for nth, name in enumerate(("v1.9.0", "2.0.0", "v2.1.0", "parser-0.3.0")):
        commit(work, f"winds {nth}", {"winds.py": f"{nth}"}, at=NOW - 50 + nth)
        git(work, "tag", name)
    said = sections.fact(section(analysis(work), "Key Findings"), "Milestones")
    assert (
        re.sub(r" \([^)]*\)", "", said)
        == "4 releases, 4 in this time, the newest of each series: parser-0.3.0, v2.1.0, v1.9.0"
    )


def test_what_a_release_is() -> None:
    names = ("v2.18.0-cli", "1.4.0", "parser-0.3.0", "v1.2.0-rc1", "v1.2.0-alpha", "v1.2.0-nightly", "v1.2.0-preview")
    assert [name for name in names if report.is_release(name)] == ["v2.18.0-cli", "1.4.0", "parser-0.3.0"]


def test_a_commit_that_a_decision_reverts_is_not_important(work: Path) -> None:
    bad = commit(work, "Fix XSS in winds", {"winds.py": "2"})
    commit(work, f'Revert "Fix XSS in winds"\n\nThis reverts commit {bad}.', {"winds.py": "1"})
    found = analysis(work)
    assert len(below(found, "Decisions")) == 1
    assert subjects(found, "Major Commits") == ["feat: winds"]


def test_a_history_that_was_merged_in_is_not_the_beginning(work: Path) -> None:
    git(work, "checkout", "-q", "--orphan", "other")
    commit(work, "other", {"other.py": "1"}, at=NOW)
    git(work, "checkout", "-q", "main")
    commit(work, "more", {"more.py": "1"})
    who = ("-c", "user.name=Ada Quay", "-c", "user.email=ada@quay.test")
    git(work, *who, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "other")
    for commits, begun in ((3, False), (4, True)):
        said = section(analysis(work, limits=Limits(36_500, commits, 60)), "Key Findings")
        assert ("begun within this time" in said) is begun


def test_programs_are_no_people(work: Path) -> None:
    (work / "ropes.py").write_text("1")
    git(work, "add", "--all")
    git(work, "-c", "user.name=ropebot[bot]", "-c", "user.email=bot@quay.test", "commit", "-q", "-m", "Bump ropes")
    said = sections.fact("\n".join(below(analysis(work), "Pattern Insights")), "Author Patterns")
    assert said == "1 person (by name, without bots): Ada Quay 50%"


def test_a_tool_that_came_or_went_names_its_commit(work: Path) -> None:
    commit(work, "make", {"Makefile": "1"})
    came = commit(work, "npm", {"package.json": "1"})[:10]
    (work / "Makefile").unlink()
    went = commit(work, "no make", {"winds.py": "2"})[:10]
    said = section(analysis(work, limits=Limits(36_500, 2, 60)), "Code Evolution Metrics")
    assert re.search(rf"; new in this time: Node\.js \({came} [\d-]+\); removed in this time: Make \({went} ", said)


def test_branches_are_left_out_if_there_is_no_time(harbour: Path) -> None:
    with Repository(harbour) as repository:
        facts = list(repository.walk(repository.head or "", None, reads_files=False))
        assert branches(repository, facts, lambda: False)
        assert branches(repository, facts, lambda: True) is None


def test_a_file_that_changes_often_needs_attention_but_a_changelog_does_not(work: Path) -> None:
    for nth in range(9):
        commit(work, f"feat: wind {nth}", {"winds.py": f"{nth}", "CHANGES.rst": f"{nth}"})
    found = section(analysis(work), "Recommendations")
    assert "winds.py changes in 100% of the commits (no merges)" in found
    assert "CHANGES.rst" not in found
