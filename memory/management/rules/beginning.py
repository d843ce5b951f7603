"""`memory_rules init`: the twelve steps of seed 004's "Memory Initialization Process", each reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Count

from config.commandline import Task
from config.wording import several
from memory.agents import lifecycle, rule_changes
from memory.consent import proposals
from memory.errors import FileFault, Invalid
from memory.git_history.analysis import Analysis, Parts, limits_of
from memory.git_history.storage import CATEGORY
from memory.management.removal import KEY
from memory.management.rules import Deed, asking, finding, history, moving
from memory.management.rules.keeping import agents_side, names_of_files
from memory.management.rules.surroundings import are_ignored, project_of, repository
from memory.models import Agent, Memory, Source
from memory.policy import settings_document, switches
from memory.policy.categories import PROJECT, SCOPES
from memory.policy.paths import INDEX, PROJECTS
from memory.policy.projects import VARIABLE
from memory.vault import base, comparing, index_pages, rendering, repair
from memory.vault.disk import ASIDE, LOCK, Disk

QUESTION = "Memory rules are currently disabled. Enable memory functionality? (y/n)"  # the seed's
# A file in each place that a vault has files in.
_OF_EACH_VAULT = ("common/x", "private/x", f"{PROJECTS}/x", f"{ASIDE}/x", INDEX, LOCK)
ENOUGH = 10  # memories of a project that are context enough


@dataclass(slots=True)
class _Begun:
    """What the steps have found out so far."""

    task: Task
    agent: Agent
    folder: Path
    options: dict[str, Any]
    steps: list[dict[str, str]] = field(default_factory=list)
    project: str = ""
    known: int = 0
    analysis: Analysis | None = None
    found: finding.Finding | None = None  # of other systems
    how: str = "skip"  # what is done about it
    is_over: bool = False

    def report(self, name: str, found: str) -> None:
        self.steps.append({"step": name, "found": found})
        if not self.options["json"]:
            self.task.tell(f"{len(self.steps):>2}. {name}: {found}")

    @property
    def rules(self) -> Any:
        return switches.rules_of(self.agent)

    def read_again(self) -> None:
        self.agent = Agent.objects.select_related("tenant").get(pk=self.agent.pk)


def _arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "--vault",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="begin a vault there: a file for each memory; without FOLDER where storage.base_path says. Its agent's "
        f"side has to agree: at once with its key in {KEY}, else to a proposal",
    )
    parser.add_argument(
        "--readable-names",
        action="store_true",
        help=f"put the title of a memory into the name of its file, unless it is private; needs {KEY}",
    )
    parser.add_argument(
        "--project-dir",
        default=".",
        metavar="FOLDER",
        help=f"of the project, unless {VARIABLE} names it; default: this one",
    )
    hows = {name: told for name, told in moving.HOWS.items() if name != "select"}
    parser.add_argument(
        "--migrate",
        choices=list(hows),
        help=f"other systems' memories: {'; '.join(f'{name}: {told}' for name, told in hows.items())}; else asks",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="without asking: switch memory on if it is off, leave a vault for another, do what --migrate says",
    )
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def _init(task: Task, agent: Agent, **options: Any) -> int | None:
    folder = Path(options["project_dir"])
    if not folder.is_dir():
        raise Invalid("project_dir", "is no folder")
    begun = _Begun(task, agent, folder.absolute(), options)
    for step in _STEPS:
        step(begun)
        if begun.is_over:
            break
    if options["json"]:
        task.result({"agent": agent.label, "initialized": not begun.is_over, "steps": begun.steps})
    return None


def _settings(begun: _Begun) -> None:
    state = "on" if begun.agent.memory_enabled else "off"
    begun.report("Settings", f"memory is {state}, rules {settings_document.value(begun.rules, 'version')}")


def _disabled(begun: _Begun) -> None:
    """Nothing is switched on by itself: a no, or nobody there to ask, ends it here."""
    if begun.agent.memory_enabled:
        begun.report("Switch", "nothing to ask")
        return
    if not asking.agreed(begun.task, [settings_document.MASTER], yes=begun.options["yes"], question=QUESTION):
        begun.report("Switch", "memory stays off; nothing was done")
        begun.is_over = True
        return
    rule_changes.change(begun.agent, asking.OPERATOR, enabled=True)
    begun.read_again()
    begun.report("Switch", "memory is on now")


def _storage(begun: _Begun) -> None:
    if begun.options["readable_names"]:
        wanted = rule_changes.Wanted(key=settings_document.READABLE_NAMES, value="true")
        side = agents_side(begun.agent)
        rule_changes.make(begun.agent, asking.OPERATOR, wanted, agreed=[settings_document.READABLE_NAMES], side=side)
        begun.read_again()
    if begun.options["vault"] is not None:
        _begin_vault(begun)
        return
    if begun.agent.vault_path:
        _require_usable(begun.agent.vault_path, begun.agent)
        begun.report("Storage path", f"{begun.agent.vault_path}, which can be written to")
    else:
        begun.report("Storage path", "no vault: memories are kept sealed, and in no files; --vault begins one")


def _begin_vault(begun: _Begun) -> None:
    given = begun.options["vault"] or settings_document.value(begun.rules, "storage.base_path")
    root = repository(begun.folder) or begun.folder
    try:
        path = base.resolved(given, root, base.roots())
    except Invalid as problem:
        raise Invalid(base.FIELD, f"{problem.problem}{_or_else(begun.agent)}") from None
    _require_nobodys_memories(path, begun.agent)
    _require_usable(path, begun.agent)
    if path == begun.agent.vault_path:
        begun.report("Storage path", f"{path}, as before")
    elif begun.agent.vault_path and not _moves(begun, path):
        begun.report("Storage path", f"{begun.agent.vault_path}, as before; nothing was begun in {path}")
    elif os.environ.get(KEY):
        _agree(begun, path)
    else:
        _propose(begun, path)


def _moves(begun: _Begun, path: str) -> bool:
    """An agent has one vault for all of its projects: another one is seldom meant."""
    before = begun.agent.vault_path
    begun.task.say(
        f"{begun.agent.label} has a vault for all of its projects: {before}. In another one every memory is written "
        f"anew; what is in this one stays, and is followed no more."
    )
    return asking.confirmed(begun.task, f"Leave it, and begin one in {path}? (y/n)", yes=begun.options["yes"])


def _agree(begun: _Begun, path: str) -> None:
    side = agents_side(begun.agent)
    proposals.require_side(begun.agent, side)
    lifecycle.change(begun.agent, side, vault_path=path)
    begun.read_again()
    begun.report("Storage path", f"{path}, as the agent's side agreed (entry {begun.agent.audit_seq})")


def _propose(begun: _Begun, path: str) -> None:
    there = proposals.open_one(begun.agent)
    is_there = there is not None and there.proposed == {"vault_path": path}
    number = there.number if there and is_there else _proposed(begun.agent, path)
    begun.report(
        "Storage path",
        f"{path} is proposed to the agent's side{' already' if is_there else ''}: it accepts with POST "
        f"/api/v1/proposals/{number}/accept, or its steward by a letter; with its key in {KEY} it is done at once",
    )


def _proposed(agent: Agent, path: str) -> int:
    return proposals.propose(agent, asking.OPERATOR, vault_path=path).number


def _require_nobodys_memories(path: str, agent: Agent) -> None:
    """A vault has indexes of the names that the rules' framework has: in a folder of its it would put those aside, and
    what is there could not be told from its own. Raises Invalid."""
    folder = Path(path)
    is_kept = (folder / LOCK).exists() or path == agent.vault_path
    if not is_kept and any((folder / name).is_dir() for name in ("common", "private", "projects")):
        raise Invalid(
            base.FIELD,
            f"{path} holds memories of another system, which stay as they are: name another folder{_or_else(agent)}",
        )


def _require_usable(path: str, agent: Agent) -> None:
    try:
        base.require_usable(path, agent)
    except FileFault as fault:
        raise FileFault(f"{fault}{_or_else(agent)}", fault.reason) from None


def _or_else(agent: Agent) -> str:
    found = base.alternatives(agent)
    return f"; it could be {' or '.join(found)}" if found else ""


def _scan(begun: _Begun) -> None:
    if not begun.agent.vault_path:
        begun.report("Folders", "none to look at")
        return
    ours = others = 0
    with comparing.looked_at(begun.agent) as now:
        for path in now.disk.files():
            is_ours = _is_ours(now.disk, path)
            ours, others = ours + is_ours, others + (not is_ours)
    are_left = "which is left alone" if others == 1 else "which are left alone"
    begun.report("Folders", f"{several(ours, 'file')} of this vault, {others:,} of others, {are_left}")


def _is_ours(disk: Disk, path: PurePosixPath) -> bool:
    try:
        data = disk.read(path) or b""
    except FileFault:  # that nobody lets this process read
        return False
    return rendering.read_again(data) is not None or index_pages.is_page(path, data)


def _git(begun: _Begun) -> None:
    root = repository(begun.folder)
    begun.project = project_of(begun.folder, begun.rules)
    where = f"the git repository {root}" if root else "no git repository"
    by = f", as {VARIABLE} says" if os.environ.get(VARIABLE) else ""
    begun.report("Repository", f"{where}; the project is {begun.project}{by}{_exposed(begun, root)}")


def _exposed(begun: _Begun, root: Path | None) -> str:
    """What a person may not have thought of."""
    vault = Path(begun.agent.vault_path)
    if root is None or not begun.agent.vault_path or not vault.is_relative_to(root):
        return ""
    below = vault.relative_to(root)
    if are_ignored(root, [str(below / name) for name in _OF_EACH_VAULT]):
        return ""
    left_out = _left_out(vault, PurePosixPath("/", below))
    return f"; the vault lies in it: unless it is to be shared, add to .gitignore: {' '.join(left_out)}"


def _left_out(vault: Path, below: PurePosixPath) -> list[str]:
    """The lines that leave out the vault, and nothing that a project has in the same folder: its package, say."""
    tops = {PurePosixPath(name).parts[0]: "/" if "/" in name else "" for name in _OF_EACH_VAULT}
    is_shared = len(below.parts) == 1 or any(each.name not in tops for each in vault.glob("*"))
    return [f"{below / name}{slash}" for name, slash in tops.items()] if is_shared else [f"{below}/"]


def _context(begun: _Begun) -> None:
    there = Memory.objects.filter(agent_id=begun.agent.pk, discarded_at__isnull=True).exclude(source=Source.SYSTEM)
    counted = dict(there.values_list("category").annotate(Count("id")))
    off = switches.closed(begun.agent)
    named = {name: f"{name} (off)" if name in off else name for name in SCOPES}
    told = ", ".join(f"{named[name]} {counted[name]:,}" for name in SCOPES if name in counted) or "none yet"
    of_projects = [name for name, scope in SCOPES.items() if scope == PROJECT and name not in off]
    begun.known = there.filter(project=begun.project, category__in=of_projects).count()
    begun.report("Memories", f"{told}; {begun.known:,} of this project")


def _history(begun: _Begun) -> None:
    if why_not := _no_history(begun):
        begun.report("Git history", f"not analysed: {why_not}")
        return
    rules = begun.rules
    looked = history.look(begun.agent, begun.folder, begun.project, limits_of(rules), Parts.of(rules))
    begun.analysis = looked.analysis
    begun.report("Git history", looked.summary)


def _no_history(begun: _Begun) -> str:
    settings = ("project_support", "git_history_analysis")
    if repository(begun.folder) is None:
        return "this is no git repository"
    if not settings_document.is_on(begun.rules, *settings, "enabled"):
        return "git_history_analysis is off"
    if CATEGORY in switches.closed(begun.agent):
        return f"the category {CATEGORY} is off"
    if begun.known >= ENOUGH and settings_document.is_on(begun.rules, *settings, "trigger_on_unknown_context"):
        return f"{begun.known:,} memories of the project are context enough"
    return ""


def _detection(begun: _Begun) -> None:
    if not settings_document.is_on(begun.rules, "migration_settings", "auto_detect_existing_memories"):
        begun.report("Other systems", "not looked for: auto_detect_existing_memories is off")
        return
    wanted = {"project_dir": str(begun.folder), "project": begun.project}
    begun.found = finding.found(begun.agent, wanted)
    begun.report("Other systems", finding.summary(begun.found))


def _prompt(begun: _Begun) -> None:
    """Nothing is taken in but what a person agrees to."""
    if begun.found is None or not begun.found.fresh:
        begun.report("Migration", "nothing to ask")
    elif begun.options["migrate"]:
        begun.how = begun.options["migrate"]
        begun.report("Migration", f"{begun.how}, as --migrate says")
    elif not settings_document.is_on(begun.rules, "migration_settings", "prompt_user_for_migration"):
        begun.report("Migration", "not asked: prompt_user_for_migration is off; memory_rules migrate takes them in")
    elif begun.options["json"] or not asking.can_ask():
        begun.report(
            "Migration", "nobody can be asked: --migrate says what to do, and memory_rules migrate does it later"
        )
    else:
        for line in finding.begun(begun.found, begun.agent.label):
            begun.task.say(line)
        begun.how = moving.asked_how(begun.task, begun.agent)
        begun.report("Migration", moving.HOWS[begun.how])


def _migration(begun: _Begun) -> None:
    if begun.found is None or begun.how == "skip":
        begun.report("Migrated", "nothing")
        return
    done = moving.carry_out(begun.task, begun.agent, begun.found.fresh, begun.how, begun.options)
    begun.read_again()
    begun.report("Migrated", "; ".join(moving.in_words(done)) if done.entry else "nothing")


def _git_memories(begun: _Begun) -> None:
    if begun.analysis is None:
        begun.report("Git memories", "none")
        return
    kept = history.stored(begun.task, begun.agent, begun.project, begun.analysis)
    where = f", {kept['file']}" if kept["file"] else ""
    begun.report("Git memories", f"memory {kept['id']}{'' if kept['new'] else ', said anew'}{where}")


def _indexes(begun: _Begun) -> None:
    if not begun.agent.vault_path:
        begun.report("Index", "of the silo alone, made when it is searched")
        return
    done = repair.repair(begun.agent)
    left = f"; {several(len(done.left), 'difference')} to look at (memory_rules index --check)" if done.left else ""
    name = names_of_files(begun.agent)
    aside = "".join(f"; {name(path)} was not the vault's, and is kept as {name(kept)}" for path, kept in done.aside)
    begun.report("Index", f"{several(done.indexed, 'file')} listed, {done.repaired:,} repaired{left}{aside}")


_STEPS: tuple[Callable[[_Begun], None], ...] = (
    _settings,
    _disabled,
    _storage,
    _scan,
    _git,
    _context,
    _history,
    _detection,
    _prompt,
    _migration,
    _git_memories,
    _indexes,
)

DEEDS = (Deed("init", "begin: settings, vault, project, indexes, each step reported", _arguments, _init),)
