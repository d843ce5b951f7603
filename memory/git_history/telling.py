"""What an analysis found, in the sections of seed 004's "Git History Memory Template". Said is what was found, in
figures; what was not looked at is named as that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from memory.git_history import figures
from memory.git_history.analysis import SHOWN, SWITCHES, Analysis, Parts
from memory.git_history.branches import LONG, Merged
from memory.git_history.commits import TYPES
from memory.git_history.facts import DAY
from memory.git_history.figures import is_test
from memory.git_history.growth import Growth, Shape
from memory.git_history.milestones import Milestones, is_major
from memory.git_history.wording import folded, last_days, of_path, one_line, several, share
from memory.markdown import sections
from memory.masking.scanner import masked
from memory.policy.validation import MAX_CONTENT

_Clean = Callable[[str], str]
KIND = "history"  # of analysis
METHOD = "read with dulwich: commits and trees and tags"
PRESERVED = "what the sections say; the repository has the rest"
_NAME = 10  # characters of a commit's name
_ADDRESS = re.compile(r"[\w.+'-]+@[\w-]+(?:\.[\w-]+)+|<[^<>\s]+@[^<>\s]*>")
_AT = re.compile(r"(?<![\w/.@])@[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})\b(?!/)")
HOT, FIXING, WELL_TESTED, CONVENTIONAL, SMALL = 0.25, 0.4, 0.5, 0.8, 5


def told(analysis: Analysis, project: str) -> str:
    """The text of its memory: neither secrets nor addresses in it, and no people unless that was asked for. Lists are
    as long as there is room for."""
    clean = _cleaner(analysis)
    texts = (sections.composed(_sections(analysis, project, clean, most)) for most in range(SHOWN, 0, -1))
    return next((text for text in texts if len(text) <= MAX_CONTENT), _summary(analysis, project))


def _sections(analysis: Analysis, project: str, clean: _Clean, most: int) -> dict[str, str]:
    said = {
        "Analysis Summary": _summary(analysis, project),
        "Key Findings": sections.listed(_findings(analysis, most)),
        "Commit Analysis": _commits(analysis, clean, most),
        "Branch Evolution": _branches(analysis, clean, most),
        "Code Evolution Metrics": _evolution(analysis, most),
        "Development Insights": sections.listed(_insights(analysis)),
        "Recommendations": sections.listed(_recommendations(analysis, clean)),
    }
    return {name: folded(masked(clean(text))[0]) for name, text in said.items()}


# --- the whole


def covered(analysis: Analysis) -> str:
    """What was looked at, and what was not, as a sentence or two."""
    found, limits = analysis.gathered, analysis.limits
    said = [
        f"{several(len(found.facts), 'commit')} from {figures.day(found.oldest.at)} to {figures.day(found.newest.at)}"
    ]
    if found.is_all:
        said.append(f"all of {last_days(limits.days)}")
    elif len(found.facts) < limits.commits:
        said.append(f"the newest, as far as {several(limits.seconds, 'second')} reached")
    else:
        said.append(f"the newest {limits.commits:,} of {last_days(limits.days)}")
    if found.unread:
        within = several(limits.seconds, "second")
        said.append(f"the files of the oldest {found.unread:,} of them were not reached in {within}")
    if found.absent:
        said.append(f"the files of {found.absent:,} of them are not in this clone")
    if analysis.is_shallow:
        said.append("the clone is shallow: what lies further back is not in it")
    return "; ".join(said)


def _summary(analysis: Analysis, project: str) -> str:
    speed = analysis.velocity
    where = f"branch {analysis.branch}" if analysis.branch else "a detached head"
    lines = [
        f"Git history of {project}",
        f"{covered(analysis)}.",
        f"Head {analysis.head[:_NAME]}, {where}.",
        f"{speed.a_week:.1f} commits a week, on {speed.active_days:,} of {several(speed.days, 'day')}.",
    ]
    if analysis.types is not None:
        lines.append(f"{_types(analysis.types)}.")
    return "\n".join(lines)


def _findings(analysis: Analysis, most: int) -> dict[str, str]:
    speed, tags = analysis.velocity, analysis.milestones
    return {
        "Project Evolution": _grown(analysis.growth, is_shallow=analysis.is_shallow),
        "Development Patterns": f"{several(speed.earlier, 'commit')} in the earlier half of the time, "
        f"{speed.later:,} in the later",
        "Milestones": _milestones(tags, analysis.gathered.oldest.at, most) if tags is not None else "",
        "Architecture Insights": _architecture(analysis.growth),
    }


def _grown(growth: Growth | None, *, is_shallow: bool) -> str:
    if growth is None:
        return ""
    if growth.before is None:
        now = f"{several(growth.now.files, 'file')} now"
        return now if is_shallow else f"begun within this time; {now}"  # of a shallow clone nobody can tell
    return f"{several(growth.before.files, 'file')} before, {growth.now.files:,} now"


def _milestones(found: Milestones, since: int, most: int) -> str:
    if not found.tags:
        return "no tags"
    within = found.within(since)
    shown = ", ".join(f"{one_line(tag.name)} ({figures.day(tag.at)})" for tag in reversed(within[-most:]))
    major = [one_line(tag.name) for tag in found.releases if is_major(tag.name)][-most:]
    said = [f"{several(len(found.tags), 'tag')}, {len(within):,} of them in this time{': ' if shown else ''}{shown}"]
    return "; ".join(said + ([f"major versions: {', '.join(major)}"] if major else []))


def _architecture(growth: Growth | None) -> str:
    if growth is None:
        return ""
    now, before = growth.now, growth.before or Shape()
    said = [f"{several(now.folders, 'folder')}, the deepest file {now.deepest:,} below the root"]
    if growth.before is not None and (now.folders, now.deepest) != (before.folders, before.deepest):
        said.append(f"before {before.folders:,} and {before.deepest:,}")
    return "; ".join(said)


# --- commits


def _commits(analysis: Analysis, clean: _Clean, most: int) -> str:
    said = []
    if analysis.significant is not None:
        lines = [
            f"- {each.fact.id[:_NAME]} {figures.day(each.fact.at)}: {one_line(clean(each.fact.subject))} "
            f"({one_line(', '.join(each.reasons))})"
            for each in analysis.significant[:most]
        ]
        said += ["### Major Commits", *(lines or ["none"])]
        reasons = [one_line(clean(text)) for each in analysis.significant for text in each.fact.decided][:most]
        if reasons:
            said += ["### Decisions", *(f"- {text}" for text in reasons)]
    listed = sections.listed(
        {
            "Most Changed Files": _most_changed(analysis, most),
            "Changed Together": _together(analysis, most),
            "Common Commit Types": _types(analysis.types) if analysis.types is not None else "",
            "Author Patterns": _authors(analysis, most),
        }
    )
    return "\n".join([*said, "### Pattern Insights", listed])


def _most_changed(analysis: Analysis, most: int) -> str:
    if analysis.most_changed is None:
        return ""
    return ", ".join(f"{of_path(path)} ({times:,})" for path, times in analysis.most_changed[:most]) or "none"


def _together(analysis: Analysis, most: int) -> str:
    if analysis.together is None:
        return ""
    pairs = analysis.together[:most]
    told = (f"{of_path(two.first)} and {of_path(two.second)} ({two.times:,} of {two.of:,})" for two in pairs)
    return ", ".join(told) or "none"


def _types(types: Counter[str]) -> str:
    ranked = sorted((name for name in TYPES if types[name]), key=lambda name: -types[name])
    return ", ".join(f"{name} {types[name]:,}" for name in ranked)


def _authors(analysis: Analysis, most: int) -> str:
    if analysis.authors is None:
        return ""
    whole = sum(commits for _, commits in analysis.authors)
    shown = ", ".join(f"{one_line(name)} {share(commits, whole)}" for name, commits in analysis.authors[:most])
    return f"{_people(analysis)}: {shown}"


def _people(analysis: Analysis) -> str:
    many = len(analysis.authors or ())
    return "one person" if many == 1 else f"{many:,} people"


# --- branches


def _branches(analysis: Analysis, clean: _Clean, most: int) -> str:
    listed = {
        "Main Branches": one_line(clean(analysis.branch)) or "a detached head",
        "Feature Branches": "",
        "Release Strategy": "",
    }
    if analysis.merged is not None:
        listed["Feature Branches"] = f"{_lived(analysis.merged)}{_open(analysis, clean, most)}"
    tags = analysis.milestones
    if tags is not None:
        pace = f", {several(round(tags.days_between), 'day')} apart (median)" if tags.days_between is not None else ""
        listed["Release Strategy"] = (
            f"{several(len(tags.releases), 'tag')} of versions{pace}" if tags.releases else "no releases"
        )
    return sections.listed(listed)


def _lived(merged: Sequence[Merged]) -> str:
    if not merged:
        return "none was merged in this time"
    long = sum(each.is_long for each in merged)
    middle = sorted(each.days for each in merged)[len(merged) // 2]
    return (
        f"{len(merged):,} merged: {len(merged) - long:,} short-lived, {long:,} of {LONG} days and more; "
        f"{middle:.1f} days in the middle, {sum(each.commits for each in merged) / len(merged):.1f} commits each"
    )


def _open(analysis: Analysis, clean: _Clean, most: int) -> str:
    if not analysis.unmerged:
        return ""
    shown = ", ".join(
        f"{one_line(clean(each.name))} ({several(each.commits, 'commit')}, last {figures.day(each.at)})"
        for each in analysis.unmerged[:most]
    )
    return f"; {len(analysis.unmerged):,} not merged: {shown}"


# --- how it evolved


def _evolution(analysis: Analysis, most: int) -> str:
    growth = analysis.growth
    if growth is None:
        return sections.listed({"File Count Growth": "", "Complexity Trends": "", "Technology Stack": ""})
    points = " → ".join(f"{files:,} ({figures.day(at)})" for at, files in growth.points)
    return sections.listed(
        {
            "File Count Growth": points,
            "Complexity Trends": _complexity(growth),
            "Technology Stack": _stack(growth, most),
        }
    )


def _complexity(growth: Growth) -> str:
    now, before = growth.now, growth.before
    said = f"{now.files_a_folder:.1f} files a folder, {share(now.tests, now.files)} of files are tests"
    if before is None:
        return said
    return f"{said}; before {before.files_a_folder:.1f} and {share(before.tests, before.files)}"


def _stack(growth: Growth, most: int) -> str:
    now, before = growth.now, growth.before
    languages = sorted(now.languages.items(), key=lambda each: (-each[1], each[0]))[:most]
    said = [", ".join(f"{name} {files:,}" for name, files in languages)]
    said += [", ".join(growth.frameworks), ", ".join(now.tools)]
    if before is not None:
        came, went = now.languages.keys() - before.languages.keys(), before.languages.keys() - now.languages.keys()
        said += [f"came: {', '.join(sorted(came))}" if came else "", f"went: {', '.join(sorted(went))}" if went else ""]
    return "; ".join(filter(None, said))


def _insights(analysis: Analysis) -> dict[str, str]:
    speed, good = analysis.velocity, analysis.quality
    weeks = " ".join(map(str, speed.weeks))
    paced = f"{several(speed.commits, 'commit')} on {several(speed.active_days, 'day')}, {speed.a_week:.1f} a week"
    pause = f"the longest pause {several(speed.longest_pause, 'day')}"
    found = {
        "Project Velocity": f"{paced}; {pause}; week by week: {weeks}",
        "Quality Indicators": "",
        "Collaboration Patterns": "",
    }
    if analysis.types is not None:
        parts = {
            "fixes": good.fixes,
            "refactorings": good.refactorings,
            "reverts": good.reverts,
            "that say why": good.explained,
            "Conventional Commits": good.conventional,
        }
        told = [f"{name} {number:,} ({share(number, good.commits)})" for name, number in parts.items()]
        told += [f"with tests {good.with_tests:,} of {good.known:,}"] if good.known else []
        told += [f"{several(good.median_files, 'file')} each (median)"] if good.known else []
        found["Quality Indicators"] = ", ".join(told)
    if analysis.authors is not None:
        most = analysis.authors[0][1]
        found["Collaboration Patterns"] = (
            f"{_people(analysis)}; who did most made {share(most, speed.commits)} of the commits"
        )
    return found


# --- what follows of it


def _recommendations(analysis: Analysis, clean: _Clean) -> dict[str, str]:
    """Nothing but what the figures carry."""
    return {
        "Areas for Attention": "; ".join(_attention(analysis)),
        "Best Practices": "; ".join(_practices(analysis)),
        "Future Considerations": "; ".join(_future(analysis, clean)),
    }


def _attention(analysis: Analysis) -> Iterable[str]:
    good = analysis.quality
    for path, times in (analysis.most_changed or ())[:3]:
        if good.known >= SHOWN and times >= HOT * good.known:
            yield f"{of_path(path)} is changed in {times:,} of {good.known:,} commits"
    if analysis.types is not None and good.commits >= SHOWN and good.fixes >= FIXING * good.commits:
        yield f"{share(good.fixes, good.commits)} of the commits fix something"
    for two in (analysis.together or ())[:3]:
        if two.first.split("/")[0] != two.second.split("/")[0] and not is_test(two.first) | is_test(two.second):
            both = f"who changes {of_path(two.first)} changes {of_path(two.second)}, too"
            yield f"{both} ({two.times:,} of {two.of:,} times)"


def _practices(analysis: Analysis) -> Iterable[str]:
    good = analysis.quality
    if good.known and good.with_tests >= WELL_TESTED * good.known:
        yield f"{share(good.with_tests, good.known)} of the commits come with tests"
    if analysis.types is not None and good.conventional >= CONVENTIONAL * good.commits > 0:
        yield "messages follow Conventional Commits"
    if good.known >= SHOWN and good.median_files <= SMALL:
        yield f"commits are small: {several(good.median_files, 'file')} in the middle"


def _future(analysis: Analysis, clean: _Clean) -> Iterable[str]:
    for each in (analysis.unmerged or ())[:3]:
        days = (analysis.gathered.newest.at - each.at) / DAY
        if days >= LONG:
            yield f"{one_line(clean(each.name))} was last worked on {days:,.0f} days before the head, and is not merged"
    growth = analysis.growth
    if growth is not None and growth.before is not None and growth.before.files:
        more = growth.now.files / growth.before.files - 1
        if abs(more) >= 0.1:
            yield f"the number of files went {'up' if more > 0 else 'down'} by {abs(more):.0%} in this time"


# --- what is left out


def _cleaner(analysis: Analysis) -> _Clean:
    """A text without addresses; and, unless people were asked for, without their names and accounts."""
    people = set() if analysis.parts.authors else {_name_of(fact.author) for fact in analysis.facts}
    whole = sorted((name for name in people if " " in name and len(name) > 5), key=len, reverse=True)
    names = re.compile("|".join(map(re.escape, whole)), re.IGNORECASE) if whole else None

    def clean(text: str) -> str:
        text = _ADDRESS.sub("[address]", text)
        if analysis.parts.authors:
            return text
        text = re.sub(r"(pull request #\d+ from )[^/\s]+/", r"\1", text)
        text = _AT.sub("[somebody]", text)
        return names.sub("[somebody]", text) if names else text

    return clean


def _name_of(author: str) -> str:
    return author.rpartition("<")[0].strip()


def unlooked(parts: Parts) -> list[str]:
    """The settings that keep parts from being looked at."""
    return [SWITCHES[name] for name, on in parts.told().items() if not on]
