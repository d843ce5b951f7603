"""Write the memory of an analysis, with the sections of the Git History template.

Each line has a rank. Lines with a low rank are added first. A line is left out if the memory with this line would have
more than 800 tokens. Three bytes count as at least one token, because ids and paths need more tokens than other text.
Fields without a value are left out. A line about a commit shows the id of the commit.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import groupby, pairwise
from statistics import median
from typing import NamedTuple

from dulwich.diff_tree import CHANGE_ADD, CHANGE_DELETE

from config.wording import several
from memory.git_history.analysis import DAY, LONG, Analysis, Branches, day, decisions, most_changed, significant
from memory.git_history.messages import ROUTINE
from memory.git_history.repository import Commit
from memory.git_history.stack import CHANGELOG, Shape, is_manifest, is_test
from memory.markdown import sections
from memory.masking.neutral import neutral
from memory.masking.scanner import masked_together
from memory.policy import tokens

MOST_TOKENS, _DENSE = 800, 3  # tokens of a memory, and bytes of a token
_MAJOR, _DECISIONS, _FILES, _LISTED, _PEOPLE = 7, 8, 5, 3, 5
_SUBJECT, _LINE = 150, 1_000  # characters
# The part after the @ ends in letters or has four numbers. "config-yaml@1.2.3" is a package with a version.
_ADDRESS = re.compile(
    r"[\w.+'-]+@(?:[\w-]+(?:\.[\w-]+)*\.[A-Za-z][\w-]+|\d{1,3}(?:\.\d{1,3}){3})\b|<[^<>\s]+@[^<>\s]*>"
)
_ACCOUNT = re.compile(r"(?<![\w/.@])@[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})\b(?!/)")
_VERSION = re.compile(r"(?:\A|[^\d.])v?\d{1,6}\.\d{1,6}(?:\.\d{1,6})*(?:-[A-Za-z]{2,}\Z|(?![-.+_]?[A-Za-z\d]))")
_NIGHTLY = re.compile(r"(?i)nightly|snapshot|canary|\d{4}-?\d\d-?\d\d|(?:alpha|beta|rc|dev|pre(?:view)?|next)[\d.-]*\Z")
_IN_SERIES = re.compile(r"(?<![A-Za-z])v(?=\d)|(?<=\d)\.[\d.]+")  # the part of a tag that differs within a series
_HOT, _FIXING, _TESTED, _CONVENTIONAL, _SMALL = 0.25, 0.4, 0.5, 0.8, 5
_DEPTH = 3  # number of folder levels
_ENOUGH = 10  # number of commits that a recommendation needs


class Line(NamedTuple):
    """A line of a section. `heading` is a heading inside the section, or "". The lines with the lowest rank are the
    most useful."""

    rank: int
    section: str
    heading: str
    text: str


_Fields = Iterator[tuple[int, str, str]]  # rank, label and value of each line; lines without a value are left out


def render(analysis: Analysis, project: str) -> str:
    """Return the text of the memory, without secrets and e-mail addresses. Names of people appear only if the analysis
    includes authors."""
    found, clean = list(_Report(analysis).lines(project)), _cleaner(analysis)
    texts, _ = masked_together([one_line(clean(line.text), _LINE) for line in found])
    lines = [line._replace(text=text) for line, text in zip(found, texts, strict=True) if text]
    taken: list[int] = []
    for nth in sorted(range(len(lines)), key=lambda nth: lines[nth].rank):
        text = _composed([lines[each] for each in sorted([*taken, nth])])
        if max(tokens.count(text), len(text.encode()) / _DENSE) <= MOST_TOKENS:
            taken.append(nth)
    return _composed([lines[each] for each in sorted(taken)])


def _composed(lines: list[Line]) -> str:
    texts: dict[str, list[str]] = {}
    for (section, heading), of_it in groupby(lines, key=lambda line: (line.section, line.heading)):
        texts.setdefault(section, []).extend([f"### {heading}"] if heading else [])
        texts[section] += [line.text for line in of_it]
    return sections.join({section: "\n".join(text) for section, text in texts.items()})


def covered(analysis: Analysis) -> str:
    """Return a text that says which commits were analyzed, and what is missing."""
    limits, many = analysis.limits, len(analysis.facts)
    days, is_complete, is_recent = several(limits.days, "day"), analysis.is_complete, not analysis.is_older
    absent = sum(fact.changes is None and not fact.is_merge for fact in analysis.facts)
    absent *= analysis.parts.files or analysis.parts.patterns
    parts = {
        f"{several(many, 'commit')} from {day(analysis.oldest.at)} to {day(analysis.newest.at)}": True,
        f"all older than the last {days}": analysis.is_older,
        f"all of the last {days}": is_complete and is_recent,
        f"the newest; there are more in the last {days}": many == limits.commits and is_recent and not is_complete,
        f"the newest that could be read in {limits.seconds:g} seconds": many < limits.commits and not is_complete,
        f"the files of {absent:,} of them are not in this clone": absent,
        "the clone is shallow: older commits are not in it": analysis.is_shallow,
    }
    return "; ".join(part for part, is_true in parts.items() if is_true)


class _Report:
    def __init__(self, analysis: Analysis) -> None:
        self.analysis, self.parts, self.facts = analysis, analysis.parts, analysis.facts
        self.plain = [fact for fact in self.facts if not fact.is_merge]
        self.known = [fact for fact in self.plain if fact.changes is not None]
        self.types = Counter(fact.message.type for fact in self.facts)
        files = most_changed(self.facts) if self.parts.files else []
        self.files = [each for each in files if _main_type(each[1]) not in ROUTINE][:_FILES]
        signed = self.facts if self.parts.authors else ()
        self.people = Counter(fact.name for fact in signed if not fact.name.endswith("[bot]"))
        self.decided = decisions(self.facts, _DECISIONS)
        self.conventional = sum(fact.message.is_conventional for fact in self.plain)
        self.tested = sum(any(map(is_test, fact.changes or ())) for fact in self.known)
        self.releases = [tag for tag in analysis.tags or () if is_release(tag.name)]

    def lines(self, project: str) -> Iterator[Line]:
        """Yield all lines in the order of the template."""
        a = self.analysis
        summary = (
            f"About the project: {a.description}" if a.description else "",
            f"Git history of {project}: {covered(a)}.",
            f"Head {_reference(a.newest)}, {f'branch {a.branch}' if a.branch else 'a detached head'}.",
        )
        yield from (Line(0, "Analysis Summary", "", text) for text in summary)
        for section, heading, fields in (
            ("Key Findings", "", self.findings()),
            ("Commit Analysis", "Major Commits", self.major()),
            ("Commit Analysis", "Decisions", self.decisions()),
            ("Commit Analysis", "Pattern Insights", self.patterns()),
            ("Branch Evolution", "", self.branches()),
            ("Code Evolution Metrics", "", self.evolution()),
            ("Development Insights", "", self.insights()),
            ("Recommendations", "", self.recommendations()),
        ):
            yield from (Line(rank, section, heading, f"- {label}: {value}") for rank, label, value in fields if value)

    def findings(self) -> _Fields:
        a = self.analysis
        if a.now is not None:
            files = f"{a.before.files:,} files before these commits, {a.now.files:,} now" if a.before else ""
            begun = f"{'begun within this time, ' * a.is_whole}{several(a.now.files, 'file')} now"
            yield 7, "Project Evolution", files or begun
        merges = several(len(self.facts) - len(self.plain), "merge commit")
        explained = _counted(sum(fact.message.is_explained for fact in self.plain), self.plain)
        conventional = f"{_counted(self.conventional, self.plain)} of the other commits follow Conventional Commits"
        yield 7, "Development Patterns", f"{merges}; {conventional}, {explained} have a body"
        if a.tags is not None:
            yield 2, "Milestones", self.milestones() or "no releases"
        if a.now is not None:
            touched = ", ".join(f"{of_path(name)}/ {times:,}" for name, times in folders(self.facts, 5))
            yield 2, "Architecture Insights", f"commits by folder: {touched}" if touched else ""

    def milestones(self) -> str:
        """Return a text about the releases. The text names the newest release of each series in the analyzed time. For
        example, v1.0 and v1.1 belong to one series, and parser-1 belongs to another. If there is no
        release in the analyzed time, the text names the newest of all releases."""
        if not self.releases:
            return ""
        recent = [tag for tag in self.releases if tag.at >= self.analysis.oldest.at]
        series = {_IN_SERIES.sub("", tag.name): tag for tag in recent or self.releases[-1:]}
        newest = sorted(series.values(), reverse=True)[:_LISTED]
        names = ", ".join(f"{one_line(tag.name)} ({tag.commit[:10]} {day(tag.at)})" for tag in newest)
        these = "none in this time, the newest is "
        if recent:
            these = f"{len(recent):,} in this time, the newest of each series: "
        return f"{several(len(self.releases), 'release')}, {these}{names}"

    def major(self) -> _Fields:
        if self.parts.messages:
            listed = {fact.id for fact in self.decided}
            found = significant(self.facts, _MAJOR + len(listed))
            others = [each for each in found if each[0].id not in listed]
            for nth, (fact, reasons) in enumerate(others[:_MAJOR]):
                yield 1 + nth, _reference(fact), one_line(fact.subject) + (f" ({reasons})" if reasons else "")

    def decisions(self) -> _Fields:
        """Yield the lines about decisions, newest first."""
        if self.parts.messages:
            for nth, fact in sorted(enumerate(self.decided), key=lambda each: -each[1].at):
                subject, reason = one_line(fact.subject).rstrip("."), fact.message.decision
                yield 1 + nth, _reference(fact), subject if reason in ("", fact.subject) else f"{subject}. {reason}"

    def patterns(self) -> _Fields:
        files = ", ".join(f"{of_path(path)} ({_why(types)})" for path, types in self.files)
        yield 1, "Most Changed Files", f"not counting dependency updates and releases: {files}" if files else ""
        if self.parts.messages:
            ranked = sorted(self.types.items(), key=lambda each: (each[0] == "other", -each[1], each[0]))
            yield 4, "Common Commit Types", ", ".join(f"{name} {many:,}" for name, many in ranked)
        if self.people:
            ranked = sorted(self.people.items(), key=lambda each: (-each[1], each[0]))
            shares = ", ".join(f"{one_line(name)} {many / len(self.facts):.0%}" for name, many in ranked[:_PEOPLE])
            yield 2, "Author Patterns", f"{several(len(ranked), 'person', 'people')} (by name, without bots): {shares}"

    def branches(self) -> _Fields:
        a = self.analysis
        yield 8, "Main Branches", f"{one_line(a.branch)} (checked out)" if a.branch else "a detached head"
        if a.branches is not None:
            yield 2, "Feature Branches", "; ".join(_features(a.branches))
        if a.tags is not None:
            days = sorted({day(tag.at) for tag in self.releases})[-_ENOUGH:]
            gaps = [(after - before).days for before, after in pairwise(days)]
            pace = f", the newest ones {several(round(median(gaps)), 'day')} apart (median)" if gaps else ""
            many = several(len(self.releases), "tag")
            yield 5, "Release Strategy", f"{many} of versions{pace}" if self.releases else "no releases"

    def evolution(self) -> _Fields:
        a = self.analysis
        if a.now is not None:
            start = f"{a.before.files:,} files ({day(a.oldest.at)}) → " if a.before else ""
            yield 8, "File Count Growth", f"{start}{several(a.now.files, 'file')} ({day(a.newest.at)})"
            yield 6, "Complexity Trends", _complexity(a.now) + (f"; before {_complexity(a.before)}" if a.before else "")
            yield 0, "Technology Stack", "; ".join(filter(None, self.stack(a.now, a.before)))

    def stack(self, now: Shape, before: Shape | None) -> Iterator[str]:
        yield ", ".join(name for name, _ in now.languages.most_common(4))
        yield ", ".join(sorted(now.tools))
        old, new = before.tools if before else now.tools, now.tools
        for word, kind, names in (("new", CHANGE_ADD, new - old), ("removed", CHANGE_DELETE, old - new)):
            found = [f"{name}{self.of_tool(name, kind)}" for name in sorted(names)]
            yield f"{word} in this time: {', '.join(found)}" if found else ""

    def of_tool(self, name: str, kind: str) -> str:
        """Return the id and the day of the newest commit that added or removed a manifest of the tool. `kind` says
        whether to look for added or removed manifests. Return "" if no such commit is known."""
        for fact in self.known:
            if any(each == kind and is_manifest(path, name) for path, each in (fact.changes or {}).items()):
                return f" ({_reference(fact)})"
        return ""

    def insights(self) -> _Fields:
        yield 5, "Project Velocity", _velocity(sorted(fact.at for fact in self.facts))
        if self.parts.messages:
            texts = [f"{name} {_counted(self.types[name], self.plain)}" for name in ("fix", "refactoring", "revert")]
            texts += [f"with tests {_counted(self.tested, self.known)}"] if self.known else []
            yield 8, "Quality Indicators", f"of {several(len(self.plain), 'commit')} (no merges): {', '.join(texts)}"
        if self.people:
            most = max(self.people.values()) / len(self.facts)
            many = several(len(self.people), "person", "people")
            yield 6, "Collaboration Patterns", f"{many}; the most active made {most:.0%} of the commits"

    def recommendations(self) -> _Fields:
        """Yield recommendations that follow directly from the figures."""
        yield 6, "Areas for Attention", "; ".join(self.attention())
        yield 6, "Best Practices", "; ".join(self.practices())
        yield 7, "Future Considerations", "; ".join(self.future())

    def attention(self) -> Iterator[str]:
        for path, types in self.files[:2]:  # a changelog is left out, because it changes often anyway
            if not CHANGELOG.search(path) and len(self.known) >= _ENOUGH and types.total() >= _HOT * len(self.known):
                yield f"{of_path(path)} changes in {types.total() / len(self.known):.0%} of the commits (no merges)"
        if self.parts.messages and self.types["fix"] >= max(_FIXING * len(self.plain), _ENOUGH / 2):
            yield f"{self.types['fix'] / len(self.plain):.0%} of the commits fix something"

    def practices(self) -> Iterator[str]:
        if self.known and self.tested >= _TESTED * len(self.known):
            yield f"{self.tested / len(self.known):.0%} of the commits change tests"
        if self.parts.messages and self.conventional >= _CONVENTIONAL * len(self.plain) > 0:
            yield "messages follow Conventional Commits"
        size = median([len(fact.changes or ()) for fact in self.known] or [0])
        if len(self.known) >= _ENOUGH and size <= _SMALL:
            yield f"commits are small (median of changed files: {size:g})"

    def future(self) -> Iterator[str]:
        a = self.analysis
        for name, _, at in a.branches.newest[:2] if a.branches else ():
            if (days := (a.newest.at - at) // DAY) >= LONG:
                yield f"branch {one_line(name)} is not merged; its last commit is {days:,} days older than the head"
        more = a.now.files / a.before.files - 1 if a.now and a.before and a.before.files else 0
        if abs(more) >= 0.1:
            yield f"the number of files went {'up' if more > 0 else 'down'} by {abs(more):.0%} in this time"


# --- values


def folders(commits: Iterable[Commit], most: int) -> list[tuple[str, int]]:
    """Return the folders with the most commits. A change below the third level counts for the folder on the
    third level."""
    touched = (sorted({"/".join(path.split("/")[:-1][:_DEPTH]) for path in commit.changes or ()}) for commit in commits)
    return Counter(name for names in touched for name in names if name).most_common(most)


def is_release(name: str) -> bool:
    """Return whether a tag is the name of a released version, such as v1.2.0. Return False for pre-releases, such as
    v1.2.0-rc1, and for nightly builds."""
    return bool(_VERSION.search(name)) and not _NIGHTLY.search(name)


def _why(types: Counter[str]) -> str:
    """Return a text with the number of commits that changed a file, and the main type of these commits."""
    name = _main_type(types)
    mostly = f", mostly {name}" if name not in ("", "other") and types.total() > 1 else ""
    return several(types.total(), "commit") + mostly


def _main_type(types: Counter[str]) -> str:
    """Return the type that more than half of the commits have. Return "" if there is no such type."""
    name, many = types.most_common(1)[0]
    return name if many * 2 > types.total() else ""


def _features(found: Branches) -> Iterator[str]:
    if ages := [days for _, days in found.merged]:
        long, commits = sum(days >= LONG for days in ages), sum(many for many, _ in found.merged) / len(ages)
        yield f"{len(ages):,} merged by a merge commit, {long:,} of them after {LONG} days or more"
        yield f"median {median(ages):.1f} days, {commits:.1f} commits each"
    if found.squashed:
        yield f"{found.squashed:,} merged by a squash"
    if not ages and not found.squashed:
        yield "none merged in this time"
    if found.unmerged:
        each = (f"{one_line(name)} ({several(many, 'commit')}, last {day(at)})" for name, many, at in found.newest)
        names = ", ".join(each)
        yield f"{found.unmerged:,} with commits in this time are not merged{f': {names}' if names else ''}"


def _complexity(of: Shape) -> str:
    return f"{of.files / (of.folders + 1):.1f} files per folder, tests {_counted(of.tests, range(of.files))}"


def _velocity(times: list[int]) -> str:
    days = sorted({day(at) for at in times})
    span = (days[-1] - days[0]).days + 1
    pause = max(((after - before).days - 1 for before, after in pairwise(days)), default=0)
    return f"{len(times) * 7 / max(span, 7):.1f} commits a week, longest pause {several(pause, 'day')}"


def _reference(commit: Commit) -> str:
    return f"{commit.id[:10]} {day(commit.at)}"


def _counted(part: int, whole: Sized) -> str:
    return f"{part:,} ({part / max(len(whole), 1):.0%})"


def of_path(path: str) -> str:
    return one_line(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), _LINE)


def one_line(text: str, longest: int = _SUBJECT) -> str:
    """Return the text on one line. A text that is too long is cut between two words, because a secret that is cut in
    the middle is no longer recognized."""
    text = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return text if len(text) <= longest else f"{text[:longest].rpartition(' ')[0]}…"


def _cleaner(analysis: Analysis) -> Callable[[str], str]:
    """Return a function that removes e-mail addresses and licence notices from a text. It also removes names and
    accounts of people, unless the analysis includes them."""
    people = {fact.name for fact in analysis.facts if not analysis.parts.authors}
    whole = sorted((name for name in people if " " in name and len(name) > 5), key=len, reverse=True)
    names = re.compile("|".join(map(re.escape, whole)) or r"(?!)", re.I)

    def clean(text: str) -> str:
        text = _ADDRESS.sub("[address]", neutral(text))
        return text if analysis.parts.authors else names.sub("[somebody]", _ACCOUNT.sub("[somebody]", text))

    return clean
