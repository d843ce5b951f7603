"""What other systems left in a folder, looked at for `detect`, `migrate` and `init`: which, what of it would become a
memory, and what became of it already (seed 004, "Migration Detection", "Migration Prompting")."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from config.commandline.progress import Advance, progress
from config.wording import several
from memory.access.authentication import is_key_of
from memory.errors import Invalid
from memory.management.removal import KEY
from memory.management.rules.surroundings import project_of, repository
from memory.masking.scanner import masked
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.projects import checked_project
from memory.policy.validation import parse_moment
from memory.transfer.formats.found import LeftOut
from memory.transfer.planning import SETTINGS, planned
from memory.transfer.reading import Item, Source, looked_at, unique
from memory.transfer.steps import Choice, Plan, State, Step
from memory.transfer.systems.table import SYSTEMS

SHOWN = 60  # characters of each memory that a preview shows
_AT_FIRST = 10  # memories that are shown before a question
_LISTED = 20  # of what was left out, unless all of it is asked for
STATES = {State.NEW: "new", State.CHANGED: "changed since", State.SAME: "here already"}


def arguments(parser: CommandParser) -> None:
    parser.add_argument("--project-dir", default=".", metavar="FOLDER", help="to look through; default: this one")
    parser.add_argument("--project", metavar="ID", help="of what belongs to one; default: the folder's")
    parser.add_argument(
        "--from",
        dest="systems",
        action="append",
        choices=list(SYSTEMS),
        default=[],
        metavar="SYSTEM",
        help="this alone, wherever its files lie, and told of those that cannot be read: "
        + "; ".join(f"{each.name}: {each.what}" for each in SYSTEMS.values()),
    )
    parser.add_argument(
        "--plain",
        action="append",
        default=[],
        metavar="FOLDER",
        help="below the other: each text and JSON file there is a memory, too",
    )
    parser.add_argument(
        "--path", action="append", default=[], metavar="PATTERN", help="of the names in the list, such as docs/*"
    )
    parser.add_argument("--category", action="append", choices=sorted(SCOPES), default=[], metavar="NAME")
    parser.add_argument("--since", metavar="DATE", help="of the memories, ISO 8601")
    parser.add_argument("--until", metavar="DATE")
    parser.add_argument("--all", action="store_true", help="list everything that was left out")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


@dataclass(slots=True, repr=False)
class Finding:
    """What was found in a folder, and what would become of it."""

    folder: Path
    project: str
    sources: list[Source]  # its files
    plan: Plan
    is_agents: bool  # whoever asks has the agent's key

    @property
    def fresh(self) -> list[Step]:
        """What a migration would store, or revise."""
        return self.plan.open


def choice(options: dict[str, Any]) -> Choice:
    """What is wanted of it. Raises Invalid."""
    since, until = (parse_moment(name, options[name]) if options[name] else None for name in ("since", "until"))
    return Choice(frozenset(options["category"]), tuple(options["path"]), since, until)


def found(agent: Agent, options: dict[str, Any]) -> Finding:
    """Raises Invalid, FileFault."""
    folder = Path(options["project_dir"])
    if not folder.is_dir():
        raise Invalid("project_dir", "is no folder")
    rules = switches.rules_of(agent)
    project = checked_project(options.get("project") or "") or project_of(folder, rules)
    groups = frozenset(settings_document.value(rules, f"{SETTINGS}.supported_source_systems"))
    root, plain = repository(folder), options.get("plain") or ()
    with looked_at(folder, _named(groups, options), plain, own_vault=agent.vault_path, repository=root) as look:
        is_agents = is_key_of(agent, os.environ.get(KEY, ""))
        sources = [source for source in look.sources if SYSTEMS[source.system].group in groups]
        with progress("Reading", unit="memories") as advance:
            items = unique(_supported(look.parts(), groups, advance))
        left_out = look.left_out
    plan = planned(
        agent,
        items,
        project,
        now=timezone.now(),
        compares=is_agents,
        masks=False if options.get("keep_secrets") else None,
        where="/".join(folder.resolve().relative_to(root.resolve()).parts) if root else "",
    )
    plan.left_out = [*left_out, *plan.left_out]
    return Finding(folder.absolute(), project, sources, plan, is_agents)


def _named(groups: Container[str], options: dict[str, Any]) -> list[str]:
    """The systems that were asked for; none: all. Raises Invalid."""
    named: list[str] = options.get("systems") or []
    for name in named:
        if SYSTEMS[name].group not in groups:
            raise Invalid("from", f"{name} is none of migration_settings.supported_source_systems")
    if "plain" in named and not options.get("plain"):
        raise Invalid("plain", "must name the folders whose files are memories, such as --plain notes")
    return named


def _supported(items: Iterable[Item], groups: Container[str], advance: Advance) -> Iterator[Item]:
    for item in items:
        advance(1)
        if SYSTEMS[item.system].group in groups:
            yield item


# --- told


def table(finding: Finding) -> Iterator[str]:
    """A line for each system, in numbers, below one that says what they are."""
    sources = Counter(source.system for source in finding.sources)
    steps = Counter(step.system for step in finding.plan.steps)
    states = Counter((step.system, step.state) for step in finding.plan.steps)
    if sources:
        yield f"{'--from':14} {'system':28} {'looked at':>10}  memories, and what becomes of them"
    for name, system in SYSTEMS.items():
        if not sources[name]:
            continue
        each = ", ".join(f"{states[name, state]:,} {told}" for state, told in STATES.items() if states[name, state])
        files = several(sources[name], "file")
        yield f"{name:14} {system.title:28} {files:>10}  {several(steps[name], 'memory', 'memories')}: {each or 'none'}"


def summary(finding: Finding) -> str:
    """The same in a sentence."""
    files = Counter(source.system for source in finding.sources)
    told = [f"{SYSTEMS[name].title} ({several(count, 'file')})" for name, count in sorted(files.items())]
    if not told:
        return "none"
    left = f", {len(finding.plan.left_out):,} left out (memory_rules detect says why)" if finding.plan.left_out else ""
    return f"{', '.join(told)}: {several(len(finding.fresh), 'memory', 'memories')} to take in{left}"


def left_out(left: Sequence[LeftOut], *, whole: bool) -> Iterator[str]:
    shown = left if whole else left[:_LISTED]
    if left:
        yield "left out:"
    for each in shown:
        yield f"  {_key(each.key)} {each.why}"
    if len(shown) < len(left):
        yield f"  and {len(left) - len(shown):,} more (--all lists them)"


def previewed(steps: Sequence[Step], *, with_words: bool) -> Iterator[str]:
    """Of each what it would become, and what is done to it; how it begins for the agent's side alone."""
    for n, step in enumerate(steps, 1):
        draft = step.draft
        where = f"{draft.category} of {draft.project}" if draft.project else draft.category
        old = f"memory {step.number}, which is discarded" if step.replaces else f"what memory {step.number} says"
        anew = f", in place of {old}" if step.state is State.CHANGED else ""
        kind = "" if draft.kind == "core" else f", {draft.kind}"
        yield f"{n:>4}  {_key(step.key)} → {where}{kind}, {step.origin:%Y-%m-%d}{anew}"
        if step.transformed:
            yield f"      {'; '.join(step.transformed)}"
        if with_words and SCOPES[draft.category] != PRIVATE:
            yield f"      “{_begins(draft.content)}”"


def begun(finding: Finding, label: str) -> Iterator[str]:
    """The first of what would be taken in, before a question about all of it."""
    yield from previewed(finding.fresh[:_AT_FIRST], with_words=finding.is_agents)
    if (more := len(finding.fresh) - _AT_FIRST) > 0:
        yield f"… and {more:,} more (manage.py memory_rules migrate {label} --dry-run lists all)"


def _key(key: str) -> str:
    """As it is told: headings are part of it, and may hold what nobody is to see."""
    return masked(key)[0]


def _begins(content: str) -> str:
    told = " ".join(masked(content[: SHOWN * 10])[0].split())
    return told if len(told) <= SHOWN else f"{told[:SHOWN]}…"


def record(finding: Finding) -> dict[str, Any]:
    """The same as programs read it, without a word of any memory."""
    return {
        "folder": str(finding.folder),
        "project": finding.project,
        "memories": [
            {
                "system": step.system,
                "key": _key(step.key),
                "state": step.state.value,
                "memory": step.number,
                "kind": step.draft.kind,
                "category": step.draft.category,
                "scope": SCOPES[step.draft.category],
                "project": step.draft.project,
                "origin": step.origin.isoformat().replace("+00:00", "Z"),
                "tags": len(step.draft.tags),
                "transformed": list(step.transformed),
            }
            for step in finding.plan.steps
        ],
        "left_out": [{"key": _key(each.key), "why": each.why} for each in finding.plan.left_out],
    }
