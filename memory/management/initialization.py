"""The twelve steps of `project init`, which set up memory for a project."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from time import time
from typing import Any, NamedTuple

from django.db.models import Count

from config import PROGRAM
from config.commandline.progress import progress
from config.wording import several
from memory.agents import lifecycle, rule_changes
from memory.consent import requests
from memory.errors import FileFault, Invalid
from memory.git_history import report, storage
from memory.git_history.analysis import Analysis, Limits, Parts, analyze, limits_of
from memory.git_history.repository import Repository
from memory.management import agent_command, found_memories
from memory.management.agent_command import KEY, AgentCommand, agents_side, project_of, repository, shown_path
from memory.models import Agent, HistoryAnalysis, Memory, Source, VaultFile
from memory.policy import settings_document, switches
from memory.policy.categories import PROJECT, SCOPES
from memory.policy.paths import INDEX, PROJECTS
from memory.policy.projects import VARIABLE
from memory.vault import base, comparing
from memory.vault.disk import ASIDE, LOCK
from memory.writing import edits

QUESTION = "Memory rules are currently disabled. Enable memory functionality? (y/n)"
ENOUGH = 10  # a project with so many memories needs no analysis of its git history
_FOLDERS = ("common", "private", PROJECTS, ASIDE)  # folders of a vault
_PREVIEWED = 10  # number of memories of other systems that are shown before the question


class Initialization:
    """Carries out the twelve steps. Each step uses the results of the earlier steps."""

    def __init__(self, command: AgentCommand, agent: Agent, folder: Path, options: Mapping[str, Any]) -> None:
        self.command, self.agent, self.options = command, agent, options
        self.folder = folder.absolute()
        self.root = repository(folder)
        self.project = ""
        self.known = 0  # number of memories of the project
        self.analysis: Analysis | None = None
        self.found: found_memories.Found | None = None
        self.how = "skip"

    def steps(self) -> Iterator[tuple[str, str]]:
        """Carry out the steps. For each step, yield its name and its result. Raises Invalid, FileFault, KeyRejected."""
        state = "on" if self.agent.memory_enabled else "off"
        yield "Settings", f"memory is {state}, rules {settings_document.value(self.rules, 'version')}"
        yield "Switch", self._switch()
        if not self.agent.memory_enabled:
            return
        yield "Storage path", self._storage_path()
        yield "Folders", self._folders()
        yield "Repository", self._repository()
        yield "Memories", self._memories()
        yield "Git history", self._git_history()
        yield "Other systems", self._other_systems()
        yield "Migration", self._migration()
        yield "Migrated", self._migrated()
        yield "Git memories", self._git_memories()
        yield "Index", self._index()

    @property
    def rules(self) -> Mapping[str, Any]:
        return switches.rules_of(self.agent)

    def _is_on(self, *path: str) -> bool:
        return settings_document.is_on(self.rules, *path)

    def _refresh(self) -> None:
        self.agent = Agent.objects.select_related("tenant").get(pk=self.agent.pk)

    def _switch(self) -> str:
        if self.agent.memory_enabled:
            return "already on"
        master = settings_document.MASTER
        if not self.command.agrees_to_enable([master], yes=self.options["yes"], question=QUESTION):
            return "memory stays off; nothing was done"
        self.agent = self.command.enable(self.agent, master)
        return "memory is on now"

    # --- the vault

    def _storage_path(self) -> str:
        if self.options["readable_names"]:
            names = settings_document.READABLE_NAMES
            wanted, side = rule_changes.Wanted(key=names, value="true"), agents_side(self.agent)
            self.agent = rule_changes.make(self.agent, self.command.operator, wanted, agreed=[names], side=side).agent
        try:
            return self._vault() if self.options["vault"] is None else self._new_vault()
        except Invalid as wrong:
            raise Invalid("vault", f"{wrong.problem}{self._alternatives()}") from None
        except FileFault as fault:
            raise FileFault(f"{fault}{self._alternatives()}", fault.reason) from None

    def _alternatives(self) -> str:
        found = base.alternatives(self.agent)
        return f"; possible folders: {' or '.join(found)}" if found else ""

    def _vault(self) -> str:
        if not self.agent.vault_path:
            return "no vault, so memories have no files; --vault creates a vault"
        base.require_usable(self.agent.vault_path, self.agent)
        return f"{self.agent.vault_path}, which can be written to"

    def _new_vault(self) -> str:
        before = self.agent.vault_path
        folder = self.options["vault"] or settings_document.value(self.rules, "storage.base_path")
        try:
            path = base.resolve_path(folder, self.root or self.folder)
        except Invalid:  # the default is a folder of the project, which may be outside VAULT_ROOTS
            path = "" if self.options["vault"] else next(iter(base.alternatives(self.agent)), "")
            if not path:
                raise
        if path == before:
            base.require_usable(path, self.agent)
            return f"{path}, as before"
        _require_no_other_system(Path(path))
        base.require_usable(path, self.agent)
        if before:
            self.command.say(f"{self.agent.label} has a vault: {before}. Its files stay, but are not updated any more.")
        question = f"This writes every memory in clear to {path}. Continue? (y/n)"
        if not self.command.confirms(question, yes=self.options["yes"]):
            return f"{before or 'none'}, as before; no vault was created in {path}"
        if not os.environ.get(KEY):
            return self._propose(path)
        side = agents_side(self.agent)
        with edits.locked(self.agent) as row:
            requests.require_side(row, side)
            lifecycle.change(row, side, vault_path=path)
        self._refresh()
        return f"{path}, because the agent's side agreed (entry {self.agent.audit_seq})"

    def _propose(self, path: str) -> str:
        there = requests.open_proposal(self.agent)
        already = " already"
        if there is None or there.proposed != {"vault_path": path}:
            there, already = requests.propose(self.agent, self.command.operator, vault_path=path), ""
        return (
            f"{path} is{already} proposed to the agent's side: the runtime accepts with "
            f"POST /api/v1/proposals/{there.number}/accept, or the steward by a link in a mail. With the agent's key "
            f"in {KEY}, this command creates the vault at once"
        )

    def _folders(self) -> str:
        if not self.agent.vault_path:
            return "no vault"
        files = VaultFile.objects.filter(agent_id=self.agent.pk, state=VaultFile.State.THERE).count()
        others = comparing.whole(self.agent).unknown
        return f"{several(files, 'file')} of this vault; not changed: {several(others, 'other file')}"

    # --- the project

    def _repository(self) -> str:
        self.project = project_of(self.folder, self.rules)
        place = f"the git repository {self.root}" if self.root else "no git repository"
        by = f", as {VARIABLE} says" if os.environ.get(VARIABLE) else ""
        return f"{place}; the project is {self.project}{by}{self._gitignore()}"

    def _gitignore(self) -> str:
        """Return a text with the .gitignore lines that exclude the vault from the repository. Return "" if the vault is
        not in the repository, or if git ignores it already."""
        vault = Path(self.agent.vault_path)
        if self.root is None or not self.agent.vault_path or not vault.is_relative_to(self.root):
            return ""
        below = vault.relative_to(self.root)
        inside = [str(below / name) for name in (*(f"{folder}/x" for folder in _FOLDERS), INDEX, LOCK)]
        if agent_command.are_ignored(self.root, inside):
            return ""
        names = {*_FOLDERS, INDEX, LOCK}
        top = PurePosixPath("/", below)
        lines = [f"{top}/"]
        if vault == self.root or any(each.name not in names for each in vault.glob("*")):  # it has other files
            lines = [*(f"{top / folder}/" for folder in _FOLDERS), str(top / INDEX), str(top / LOCK)]
        return f"; the vault is inside: if you do not want to share it, add to .gitignore: {' '.join(lines)}"

    def _memories(self) -> str:
        rows = Memory.objects.of(self.agent).active().exclude(source=Source.SYSTEM)
        counts = dict(rows.values_list("category").annotate(Count("id")))
        off = switches.closed(self.agent)
        each = [f"{name}{' (off)' if name in off else ''} {counts[name]:,}" for name in SCOPES if name in counts]
        of_projects = [name for name, scope in SCOPES.items() if scope == PROJECT and name not in off]
        self.known = rows.filter(project=self.project, category__in=of_projects).count()
        return f"{', '.join(each) or 'none yet'}; {self.known:,} of this project"

    def _git_history(self) -> str:
        settings = ("project_support", "git_history_analysis")
        if self.root is None:
            return "not analyzed: this is not a git repository"
        if not self._is_on(*settings, "enabled"):
            return "not analyzed: git_history_analysis is off"
        if storage.CATEGORY in switches.closed(self.agent):
            return f"not analyzed: the category {storage.CATEGORY} is off"
        if self.known >= ENOUGH and self._is_on(*settings, "trigger_on_unknown_context"):
            return f"not analyzed: the project already has {self.known:,} memories"
        limits, parts = limits_of(self.rules), Parts.of(self.rules)
        looked = look_at_history(self.agent, self.folder, self.project, limits, parts)
        self.analysis = looked.analysis
        return looked.summary

    # --- memories of other systems

    def _other_systems(self) -> str:
        if not self._is_on("migration_settings", "auto_detect_existing_memories"):
            return "not searched: auto_detect_existing_memories is off"
        self.found = found_memories.find(self.agent, self.folder, self.project)
        return found_memories.summary(self.found)

    def _migration(self) -> str:
        if self.found is None or not self.found.plan.open:
            return "nothing to import"
        if self.options["migrate"]:
            self.how = self.options["migrate"]
            return f"{self.how}, as --migrate says"
        later = f"'{PROGRAM} project migrate {self.agent.label}'"
        if not self._is_on("migration_settings", "prompt_user_for_migration"):
            return f"not asked: prompt_user_for_migration is off; {later} imports them"
        if self.options["json"] or not self.command.can_ask():
            return f"not asked, because the input is not a terminal: use --migrate, or {later} later"
        for line in found_memories.preview(self.found, self.found.plan.open[:_PREVIEWED]):
            self.command.say(line)
        if (more := len(self.found.plan.open) - _PREVIEWED) > 0:
            self.command.say(f"… and {more:,} more ({later[:-1]} --dry-run' lists all)")
        self.how = found_memories.ask_how(self.command, self.agent)
        return found_memories.HOWS[self.how]

    def _migrated(self) -> str:
        if self.found is None or self.how == "skip":
            return "nothing"
        steps = self.found.plan.open
        if self.how == "select":
            steps = found_memories.ask_which(self.command, steps)
        choices = {name: self.options[name] for name in ("yes", "instructions")}
        done = found_memories.take_in(self.command, self.agent, steps, self.how, **choices)
        self._refresh()
        return "; ".join(found_memories.in_words(done)) or "nothing"

    # --- the results

    def _git_memories(self) -> str:
        if self.analysis is None:
            return "none"
        stored = store_history(self.command, self.agent, self.project, self.analysis)
        file = f", {stored['file']}" if stored["file"] else ""
        return f"memory {stored['id']}{'' if stored['new'] else ', updated'}{file}"

    def _index(self) -> str:
        if not self.agent.vault_path:
            return "no index pages, because there is no vault; search uses its own index"
        done = comparing.repair(self.agent)
        differences = several(len(done.left), "difference")
        check = f"'{PROGRAM} vault index {self.agent.label} --check'"
        left = f"; {differences} remain ({check})" if done.left else ""
        moved = [(shown_path(self.agent, path), shown_path(self.agent, to)) for path, to in done.aside]
        aside = "".join(f"; {path} does not belong to the vault, and is kept as {to}" for path, to in moved)
        return f"{several(done.indexed, 'file')} listed, {done.repaired:,} repaired{left}{aside}"


def _require_no_other_system(folder: Path) -> None:
    """Check that the folder has no memories of another system. Such a system has index pages with the same names as the
    index pages of a vault, so a vault would replace them. Raises Invalid."""
    if not (folder / LOCK).exists() and any((folder / name).is_dir() for name in ("common", "private", "projects")):
        problem = "has memories of another system, which must not be changed: choose another folder"
        raise Invalid("vault", f"{folder} {problem}")


# --- the git history; `project analyze_git` also uses these functions


class Looked(NamedTuple):
    """The result of `look_at_history`: a new analysis, or an earlier analysis that is still current. If both are None,
    nothing was analyzed. `summary` says what happened."""

    summary: str
    analysis: Analysis | None = None
    earlier: HistoryAnalysis | None = None


def look_at_history(
    agent: Agent, folder: Path, project: str, limits: Limits, parts: Parts, *, again: bool = False
) -> Looked:
    """Analyze the git history, unless an earlier analysis is still current. If `again` is true, always analyze the
    history. Raises Invalid."""
    with Repository(folder) as repository:
        earlier, head, rules = storage.last(agent, project), repository.head, switches.rules_of(agent)
        if earlier and head and not again and storage.is_current(agent, earlier, head, limits, parts, rules):
            at = f"{earlier.at:%Y-%m-%d %H:%M} UTC"
            return Looked(f"nothing was committed since the analysis of {at}", earlier=earlier)
        with progress("Analyzing", unit="commits") as advance:
            found = analyze(repository, limits, parts, now=int(time()), progress=advance)
    if found is None:
        return Looked("nothing to analyze: the repository has no commits")
    return Looked(report.covered(found), found)


def store_history(command: AgentCommand, agent: Agent, project: str, found: Analysis) -> dict[str, Any]:
    """Store an analysis as a memory. Return a dict about the memory for JSON output, with the path of its file."""
    done = storage.store(agent, project, found, command.operator)
    return {
        "id": done.number,
        "project": project,
        "commits": len(found.facts),
        "head": found.head,
        "new": done.is_new,
        "file": command.file_of(agent, done.number),
    }
