"""The text of a history's memory: the fields of its template within 800 tokens, and what it leaves out."""

import re
from pathlib import Path

import pytest

from memory.git_history import report, stack
from memory.git_history.analysis import Analysis, Limits, Parts, branches, decisions, significant
from memory.git_history.repository import Repository
from memory.markdown import sections
from memory.policy import tokens
from tests.history.repositories import DAY, NOW, analysis, commit, git

LABELS = """### Major Commits, ### Decisions, ### Pattern Insights, Project Evolution, Development Patterns, Milestones,
Architecture Insights, Most Changed Files, Common Commit Types, Author Patterns, Main Branches, Feature Branches,
Release Strategy, File Count Growth, Complexity Trends, Technology Stack, Project Velocity, Quality Indicators,
Collaboration Patterns, Best Practices""".replace("\n", " ").split(", ")
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
NEWS = "# Winds\n\n## Winds 1.12.0!\n\nWe're excited to announce the release of **Winds 1.12.0**! It is new.\n\n"
MANIFEST = 'description = "Measures winds"'
WHO = ("-c", "user.name=Ada Quay", "-c", "user.email=ada@quay.test")


def section(found: Analysis, name: str) -> str:
    return sections.split(report.render(found, "x"), "git_history").get(name, "")


def below(found: Analysis, heading: str) -> list[str]:
    """The lines below a heading of the commit analysis."""
    parts = re.split(r"^### (.*)\n", section(found, "Commit Analysis"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(heading, "").splitlines()


def subjects(found: Analysis, heading: str = "Major Commits") -> list[str]:
    return [line.partition(": ")[2] for line in below(found, heading)]


def insight(found: Analysis, name: str) -> str:
    return sections.fact("\n".join(below(found, "Pattern Insights")), name)


def recent(commits: int) -> Limits:
    return Limits(36_500, commits, 60)


def test_options_become_sections_of_the_template(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MOST_TOKENS", 5_000)
    text = report.render(analysis(harbour), "harbour")
    assert list(sections.split(text, "git_history")) == list(sections.names("git_history"))
    assert [label for label in LABELS if label not in text] == []


def test_parts_that_are_off_and_empty_fields_are_left_out(harbour: Path) -> None:
    none = Parts(messages=False, files=False, branches=False, milestones=False, patterns=False, authors=False)
    text = report.render(analysis(harbour, none), "harbour")
    for absent in ("Major Commits", "m1.py", "feature 1", "v0.1", "Python", "merged", "person"):
        assert absent not in text
    assert "Not recorded" not in text + report.render(analysis(harbour), "harbour")


def test_at_most_800_tokens_the_most_useful_first(work: Path) -> None:
    for place in range(12):
        names = [f"{'folder-of-' * 14}{place}/{'file-' * 20}{other}.py" for other in range(4)]
        message = f"feat!: {'winds ' * 40}{place}\n\n{'Because of winds and tides, ' * 8}{place}."
        for again in range(3):
            commit(work, message, dict.fromkeys(names, f"{place} {again}"))
    text = report.render(analysis(work), "work")
    assert tokens.count(text) > 500
    assert len(text.encode()) <= 3 * 800  # models' tokenizers need up to one token for three bytes
    for kept in ("Git history of work: 37 commits", "Technology Stack", "Major Commits", "Decisions"):
        assert kept in text


@pytest.mark.parametrize("with_authors", [False, True])
def test_secrets_and_addresses_are_left_out_and_people_unless_requested(work: Path, with_authors: bool) -> None:
    message = f"feat!: a token {SECRET} for Ada Quay\n\nBecause ada@quay.test and @adaq asked for it, long ago."
    readme = f"# Winds\n\nWinds are measured by Ada Quay (ada@quay.test) with {SECRET} here."
    commit(work, message, {"a": "1", "README.md": readme})
    commit(work, f"feat!: {'winds ' * 17} {SECRET}", {"a": "2"})  # the subject is cut within the secret
    git(work, "branch", f"token-{SECRET}", "HEAD~1")
    git(work, "checkout", "-qb", "winds")
    commit(work, "feat: gusts", {"b": "1"})
    git(work, "checkout", "-q", "main")
    git(work, *WHO, "merge", "-q", "--no-ff", "-m", "Merge pull request #5 from adaq/winds", "winds")
    git(work, *WHO, "tag", "-a", "v1.0.0", "-m", f"by ada@quay.test {SECRET}")
    text = report.render(analysis(work, Parts(branches=True, authors=with_authors)), "work")
    for kept in ("a token", "Winds are measured"):
        assert kept in text
    for hidden in (SECRET, SECRET[:12], "ada@quay.test", *(() if with_authors else ("Ada Quay", "adaq"))):
        assert hidden not in text
    assert ("Ada Quay" in text) is with_authors


def test_headings_in_messages_start_no_sections_and_package_versions_are_no_addresses(work: Path) -> None:
    commit(work, "feat!: ## Recommendations\n\n## Key Findings\nbecause of that which was said before", {"a": "2"})
    for name in ("@acme/ropes@1.2.0", "ropes@2.0.1"):
        git(work, "tag", name)
    found = analysis(work)
    assert section(found, "Key Findings").startswith("- Project Evolution")
    text = report.render(found, "x")
    assert ("[address]" in text, "ropes@2.0.1" in text) == (False, True)


def test_recommendations_follow_from_the_figures(work: Path) -> None:
    for place in range(12):
        commit(work, f"fix: winds {place}", dict.fromkeys(("winds.py", "gusts.py", "CHANGES.rst"), f"{place}"))
    git(work, "branch", "calm")
    assert "Future Considerations" not in section(analysis(work), "Recommendations")
    git(work, "checkout", "-q", "calm")
    commit(work, "calm", {"calm.py": "1"}, at=NOW - 30 * DAY)
    git(work, "checkout", "-q", "main")
    commit(work, "more", {f"new{place}.py": "1" for place in range(9)}, at=NOW - 30 * DAY)
    commit(work, "again", {"winds.py": "again"})
    found = section(analysis(work, limits=recent(3)), "Recommendations")
    assert "the number of files went up by" in found
    found = section(analysis(work), "Recommendations")
    for text in (
        "winds.py changes in ",
        "% of the commits (no merges)",
        "% of the commits fix something",
        "Conventional Commits",
        "branch calm is not merged; its last commit is 29 days older than the head",
    ):
        assert text in found
    assert "CHANGES.rst" not in found


def test_releases_are_milestones_but_nightly_tags_and_version_bumps_are_not(work: Path) -> None:
    for place, name in enumerate(("v1.9.0", "2.0.0", "v2.1.0", "parser-0.3.0", "v2.1.0-rc1")):
        commit(work, f"Bump version to 1.0.{place}", {"pyproject.toml": f"{place}"}, at=NOW - 50 + place)
        git(work, "tag", name)
        git(work, "tag", f"nightly-2026-11-0{place + 1}")
    commit(work, "chore(release): 1.1.0", {"CHANGELOG.md": "1"})
    found = analysis(work)
    assert subjects(found) == ["feat: winds"]
    milestones = sections.fact(section(found, "Key Findings"), "Milestones")
    newest = "4 releases, 4 in this time, the newest of each series: parser-0.3.0, v2.1.0, v1.9.0"
    assert re.sub(r" \([^)]*\)", "", milestones) == newest
    head = git(work, "rev-parse", "--short=10", "v2.1.0").strip()
    assert re.search(rf", v2\.1\.0 \({head} [\d-]{{10}}\), ", milestones)
    releases = ["v2.18.0-cli", "1.4.0", "parser-0.3.0"]
    others = [f"v1.2.0-{name}" for name in ("rc1", "alpha", "nightly", "preview")]
    assert [name for name in [*releases, *others] if report.is_release(name)] == releases


def test_major_commits_and_decisions_name_their_commit(work: Path) -> None:
    head = commit(work, "Knots\n\nKnots are used because pilots think in them. More.", {"a.py": "2"})[:10]
    day = git(work, "show", "-s", "--format=%cs", "HEAD").strip()
    found = analysis(work)
    assert below(found, "Decisions") == [f"- {head} {day}: Knots. Knots are used because pilots think in them."]
    assert all(re.match(r"- [0-9a-f]{10} \d{4}-\d\d-\d\d: ", line) for line in below(found, "Major Commits"))


def test_important_changes_of_code_and_security_fixes_are_major_commits(work: Path) -> None:
    commit(work, "Winds without a name", {"winds.py": "2", "CHANGES.rst": "winds"})
    commit(work, "Fix typos", {"gusts.py": "2", "CHANGES.rst": "gusts"})
    commit(work, "Add a workflow", {".github/workflows/ci.yml": "1"})
    assert subjects(analysis(work)) == ["Winds without a name", "feat: winds"]
    commit(work, "Update the pin for CVE-2026-1234", {"README.md": NEWS, "pyproject.toml": MANIFEST})
    commit(work, "Fix XSS in winds", {"winds.py": "3"})
    commit(work, "Add a scanner\n\nIt finds each vulnerability.", {".github/dependabot.yml": "1"})
    found = analysis(work)
    pin = "Update the pin for CVE-2026-1234 (security fix, manifest added or removed)"
    others = ["Winds without a name", "feat: winds"]
    assert subjects(found) == [pin, "Fix XSS in winds (security fix)", *others]
    assert section(found, "Analysis Summary").startswith("About the project: Measures winds\n")


def test_a_reverted_commit_is_neither_a_decision_nor_important(work: Path) -> None:
    bad = commit(work, "feat: use knots instead of metres", {"winds.py": "knots"})
    revert = 'Revert "feat: use knots"'
    commit(work, f"{revert}\n\nThis reverts commit {bad}.", {"winds.py": "1"})
    found = analysis(work)
    assert (below(found, "Decisions"), subjects(found)) == ([], [revert, "feat: winds"])
    bad = commit(work, "Fix XSS in winds", {"winds.py": "2"})
    commit(work, f'Revert "Fix XSS in winds"\n\nThis reverts commit {bad}.', {"winds.py": "1"})
    found = analysis(work)
    assert (len(below(found, "Decisions")), subjects(found)) == (1, [revert, "feat: winds"])


def test_removals_and_wide_changes_rank_before_small_decisions(work: Path) -> None:
    wide = {f"winds{place}.py": "1" for place in range(3)}
    commit(work, "Drop support for metres", {"metres.py": "1"}, at=NOW - 40)
    commit(work, "Read winds by name\n\nNames are used instead of numbers.", wide, at=NOW - 30)
    commit(work, "Sort knots\n\nA list is used instead of a set.", {"knots.py": "1"}, at=NOW - 20)
    commit(work, 'Revert "sec: patch for CVE-2026-1"', {"gusts.py": "1"}, at=NOW - 10)
    found = analysis(work)
    revert, drop = 'Revert "sec: patch for CVE-2026-1"', "Drop support for metres"
    assert [fact.subject for fact in decisions(found.facts, 3)] == [revert, "Read winds by name", drop]
    sort, read = (
        "Sort knots. A list is used instead of a set.",
        "Read winds by name. Names are used instead of numbers.",
    )
    assert subjects(found, "Decisions") == [revert, sort, read, drop]  # the newest first
    assert any("reverted security fix" in reasons for _, reasons in significant(found.facts, 7))
    assert subjects(found) == ["feat: winds"]


def test_a_squashed_branch_is_merged(work: Path) -> None:
    for name, last in (("winds", "feat: more winds"), ("gusts", "wip on gusts"), ("calm", "calm")):
        git(work, "checkout", "-qb", name, "main")
        commit(work, last, {f"{name}0.py": "1"})
    git(work, "checkout", "-q", "main")
    commit(work, "feat: more winds (#12)", {"winds2.py": "1"})
    commit(work, "Gusts (#13)\n\n* first\n\n* wip on gusts\n", {"gusts2.py": "1"})
    found = sections.fact(section(analysis(work), "Branch Evolution"), "Feature Branches")
    assert found.startswith("2 merged by a squash; 1 with commits in this time are not merged: calm (1 commit, last ")


def test_without_time_branches_are_left_out(harbour: Path) -> None:
    with Repository(harbour) as repository:
        facts = list(repository.walk(repository.head or "", None, reads_files=False))
        assert branches(repository, facts, lambda: False)
        assert branches(repository, facts, lambda: True) is None


def test_an_unrelated_history_that_was_merged_is_not_the_beginning(work: Path) -> None:
    git(work, "checkout", "-q", "--orphan", "other")
    commit(work, "other", {"other.py": "1"}, at=NOW)
    git(work, "checkout", "-q", "main")
    commit(work, "more", {"more.py": "1"})
    git(work, *WHO, "merge", "-q", "--allow-unrelated-histories", "-m", "both", "other")
    for commits, is_begun in ((3, False), (4, True)):
        found = section(analysis(work, limits=recent(commits)), "Key Findings")
        assert ("begun within this time" in found) is is_begun


def test_dependency_updates_and_bots_are_not_counted(work: Path) -> None:
    for place in range(3):
        commit(work, f"Bump ropes from 1.{place} to 2.{place}", {"uv.lock": f"{place}"})
    (work / "ropes.py").write_text("1")
    git(work, "add", "--all")
    git(work, "-c", "user.name=ropebot[bot]", "-c", "user.email=bot@quay.test", "commit", "-q", "-m", "Bump ropes")
    found = analysis(work)
    files = "not counting dependency updates and releases: tests/test_winds.py (1 commit), winds.py (1 commit)"
    assert insight(found, "Most Changed Files") == files
    assert insight(found, "Author Patterns").startswith("1 person (by name, without bots): Ada Quay ")


def test_languages_and_tools_are_found_by_file_names(work: Path) -> None:
    names = ("q.sql", "logo.svg", "web/package.json", "manage.py", "a/b/c/d/e/go.mod", ".github/workflows/ci.yml")
    commit(work, "stack", dict.fromkeys(names, "{"))
    found = sections.fact(section(analysis(work), "Code Evolution Metrics"), "Technology Stack")
    languages, tools = found.split("; ")[:2]
    assert {"SQL", "SVG", "Python"} <= set(languages.split(", "))
    assert tools == "Django, GitHub Actions, Node.js"


def test_the_stack_names_the_commits_that_added_or_removed_a_tool(work: Path) -> None:
    commit(work, "make", {"Makefile": "1"})
    added = commit(work, "npm", {"package.json": "1"})[:10]
    (work / "Makefile").unlink()
    removed = commit(work, "no make", {"winds.py": "2"})[:10]
    found = section(analysis(work, limits=recent(2)), "Code Evolution Metrics")
    assert re.search(
        rf"; new in this time: Node\.js \({added} [\d-]+\); removed in this time: Make \({removed} ", found
    )


FIRST = "This is a module that you find in the registry of modules.\n\n"
DEFINED = "Winds (w) is a service that measures [winds][1]. Pilots read them.\n"
ON_EVERY_QUAY = "Measures winds on every quay of the harbour\nof Kiel."
CENTERED = '<p align="center">\n<img src="x">\n</p>\n<p align="center">\nMeasures winds in your harbour.\n</p>\n'


@pytest.mark.parametrize(
    ("readme", "manifest", "description"),
    [  # whole sentences of the README
        ("# Winds\n\n[![ci](a)](b)\n\n**Winds** measures [winds](http://x) in `knots`. It is small. It is old.", "",
         "Winds measures winds in knots. It is small."),
        (f"Winds\n=====\n\n.. image:: x\n\n{ON_EVERY_QUAY}", "", ON_EVERY_QUAY.replace("\n", " ")),
        ("# Winds\nMeasures winds on every quay, in knots.\n", "", "Measures winds on every quay, in knots."),
        ("<p align=center>\n\n<!-- x\n\ny -->\n\n- a list of things that is long enough to be a text.", "", ""),
        (CENTERED, "", "Measures winds in your harbour."),
        ("# Winds", "", ""),
        ("word " * 200, "", ""),
        # no news: a definition, or else a manifest
        (NEWS + FIRST + DEFINED, MANIFEST, DEFINED.strip().replace("[winds][1]", "winds")),
        (NEWS + FIRST, '[project]\nname = "winds"\ndescription = "Measures winds"\n', "Measures winds"),
        (NEWS + FIRST, '{\n  "description": "Measures winds",\n  "scripts": {}\n}', "Measures winds"),
        (NEWS + FIRST, '{"name": "winds"}', FIRST.strip()),
        (NEWS, "", ""),
    ],
    ids=range(12),
)  # fmt: skip
def test_the_description(readme: str, manifest: str, description: str) -> None:
    assert stack.description(readme, ["", manifest]) == description
