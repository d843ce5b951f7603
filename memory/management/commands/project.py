"""Set up memory in a project, and create memories from the project's folder."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memory.errors import Invalid
from memory.git_history import analysis, report, storage
from memory.management import found_memories
from memory.management.agent_command import KEY, PROJECT_HELP, AgentCommand
from memory.management.found_memories import HOWS, INSTRUCTIONS, Found
from memory.management.initialization import Initialization, look_at_history, store_history
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.policy.categories import SCOPES
from memory.transfer.migration import Figures
from memory.transfer.planning import Choice, State, Step
from memory.transfer.systems import SYSTEMS

_FROM_HELP = "; ".join(f"{each.name}: {each.what}" for each in SYSTEMS.values())


class Command(AgentCommand):
    help = (
        "Set up memory in a project (init). Create memories from the project's folder: from memories of other systems "
        "(detect, migrate) and from the git history (analyze_git). Run the command in the project's folder."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(required=True, metavar="ACTION")
        self._add_init(self.add_action(actions, "init", self.init, "set up memory and vault, in twelve steps"))
        detect = self.add_action(actions, "detect", self.detect, "list the memories of other systems in the folder")
        self._add_filters(detect)
        migrate = self.add_action(actions, "migrate", self.migrate, "import memories of other systems if you agree")
        self._add_filters(migrate)
        hows = "; ".join(f"{name}: {summary}" for name, summary in HOWS.items())
        migrate.add_argument("--how", choices=list(HOWS), help=f"default: ask; {hows}")
        migrate.add_argument("--only", metavar="NUMBERS", help="numbers in the list that --dry-run prints: 1-4,7")
        migrate.add_argument("--dry-run", action="store_true", help="show what would be stored, and store nothing")
        secrets = "do not mask secrets, except in private memories"
        migrate.add_argument("--keep-secrets", action="store_true", help=secrets)
        self._add_instructions(migrate)
        migrate.add_argument("--yes", action="store_true", help="do not ask, because a person has already agreed")
        summary = "analyze the git history, and store the result as a memory"
        self._add_analyze_git(self.add_action(actions, "analyze_git", self.analyze_git, summary))

    def _add_init(self, parser: CommandParser) -> None:
        vault = (
            "create a vault with a file for each memory. Default folder: storage.base_path. The agent's side must "
            f"agree: if its key is in {KEY}, it agrees at once; otherwise it must accept a proposal"
        )
        parser.add_argument("--vault", nargs="?", const="", metavar="FOLDER", help=vault)
        titles = f"use the titles of memories in file names; needs {KEY}"
        parser.add_argument("--readable-names", action="store_true", help=titles)
        parser.add_argument("--project-dir", default=".", metavar="FOLDER", help="project folder; default: this folder")
        hows = [name for name in HOWS if name != "select"]
        ways = "; ".join(f"{name}: {HOWS[name]}" for name in hows)
        parser.add_argument("--migrate", choices=hows, help=f"memories of other systems; default: ask; {ways}")
        self._add_instructions(parser)
        yes = "do not ask: turn memory on, write a vault in clear, and do what --migrate says"
        parser.add_argument("--yes", action="store_true", help=yes)
        parser.add_argument("--json", action="store_true", help="one line of JSON")

    def _add_instructions(self, parser: CommandParser) -> None:
        ways = "; ".join(f"{name}: {summary}" for name, summary in INSTRUCTIONS.items())
        parser.add_argument("--instructions", choices=list(INSTRUCTIONS), help=ways)

    def _add_filters(self, parser: CommandParser) -> None:
        parser.add_argument("--project-dir", default=".", metavar="FOLDER", help="where to look; default: this folder")
        project = f"project for the memories that need a project; {PROJECT_HELP}"
        parser.add_argument("--project", metavar="ID", help=project)
        several: dict[str, Any] = {"action": "append", "default": []}
        system = f"only this system; also list files that may belong to it but cannot be read. {_FROM_HELP}"
        parser.add_argument("--from", dest="systems", choices=list(SYSTEMS), metavar="SYSTEM", help=system, **several)
        parser.add_argument("--plain", metavar="FOLDER", help="also import each file in this folder", **several)
        parser.add_argument("--path", metavar="PATTERN", help="only files with a path like docs/*", **several)
        parser.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help="only this category", **several)
        parser.add_argument("--since", metavar="DATE", help="only memories from this date on; ISO 8601")
        parser.add_argument("--until", metavar="DATE", help="only memories up to this date; ISO 8601")
        parser.add_argument("--all", action="store_true", help="list everything that is left out")
        parser.add_argument("--json", action="store_true", help="one line of JSON")

    def _add_analyze_git(self, parser: CommandParser) -> None:
        parser.add_argument("--project-dir", default=".", metavar="FOLDER", help="the repository; default: this folder")
        parser.add_argument("--project", metavar="ID", help="the project of the memory; default: the folder's project")
        parser.add_argument("--days", type=int, metavar="N", help="analyze the commits of the last N days")
        parser.add_argument("--commits", type=int, metavar="N", help="analyze at most this many of the newest commits")
        parser.add_argument("--seconds", type=float, metavar="N", help="how long the analysis may take")
        parser.add_argument("--authors", action="store_const", const=True, help="list people with their commit shares")
        parser.add_argument("--branches", action="store_const", const=True, help="count merged and unmerged branches")
        parser.add_argument("--again", action="store_true", help="analyze even if there are no new commits")
        parser.add_argument("--dry-run", action="store_true", help="print the memory and store nothing")
        parser.add_argument("--yes", action="store_true", help="turn the analysis on and do not ask")

    # --- init

    def init(self, agent: Agent, **options: Any) -> None:
        begun = Initialization(self, agent, _folder(options), options)
        steps = []
        for n, (step, found) in enumerate(begun.steps(), 1):
            steps.append({"step": step, "found": found})
            if not options["json"]:
                self.tell(f"{n:>2}. {step}: {found}")
        if options["json"]:
            self.result({"agent": agent.label, "initialized": begun.agent.memory_enabled, "steps": steps})

    # --- detect and migrate

    def detect(self, agent: Agent, **options: Any) -> None:
        wanted = found_memories.choice(options)
        found = self._find(agent, options)
        found.plan.steps = [step for step in found.plan.steps if wanted.wants(step)]
        if options["json"]:
            self.result(found_memories.as_record(found))
            return
        self._tell_found(found, [], all_of_them=options["all"])
        if found.plan.open:
            self.say(f"Run 'manage.py project migrate {agent.label}' to import them. The import changes no file.")

    def migrate(self, agent: Agent, **options: Any) -> None:
        switches.require_on(agent)
        wanted = found_memories.choice(options)
        is_filtered = bool(options["systems"]) or wanted != Choice()
        if (options["only"] or options["how"] == "select" or is_filtered) and not found_memories.is_selective(agent):
            raise Invalid("how", "selective import is off (migration_settings.selective_import_enabled)")
        found = self._find(agent, options, masks=False if options["keep_secrets"] else None)
        new = found.plan.open
        steps = [step for step in new if wanted.wants(step)]
        if options["only"] is not None:
            steps = found_memories.numbered(steps, options["only"])
        if not options["json"]:
            self._tell_found(found, steps, all_of_them=options["all"])
        done = Figures(None)
        if not steps:
            others = f" Number of new memories that the options exclude: {len(new):,}." if new else ""
            self.say(f"There is nothing to import.{others}")
        elif not options["dry_run"]:
            done = self._take_in(agent, steps, options, is_filtered=is_filtered)
        self._report(found, done, options)

    def _find(self, agent: Agent, options: dict[str, Any], *, masks: bool | None = None) -> Found:
        folder = _folder(options)
        project = self.project(agent, options["project"], folder)
        sources = {name: options[name] for name in ("systems", "plain")}
        return found_memories.find(agent, folder, project, masks=masks, **sources)

    def _tell_found(self, found: Found, steps: list[Step], *, all_of_them: bool) -> None:
        lines = found_memories.overview(found), found_memories.preview(found, steps)
        for line in (*lines[0], *lines[1], *found_memories.left_out(found, all_of_them=all_of_them)):
            self.tell(line)
        self.stdout.flush()

    def _take_in(self, agent: Agent, steps: list[Step], options: dict[str, Any], *, is_filtered: bool) -> Figures:
        how = options["how"]
        if how is None:
            if options["yes"] and not self.can_ask():
                raise Invalid("how", f"is required, because the input is not a terminal: {', '.join(HOWS)}")
            how = found_memories.ask_how(self, agent)
        if how == "select" and not options["only"] and (self.can_ask() or not is_filtered):
            steps = found_memories.ask_which(self, steps)
        return found_memories.take_in(self, agent, steps, how, yes=options["yes"], instructions=options["instructions"])

    def _report(self, found: Found, done: Figures, options: dict[str, Any]) -> None:
        if options["json"]:
            figures = {"entry": done.entry, "stored": done.stored, "revised": done.revised, "tokens": done.tokens}
            left_out: dict[str, Any] = {"left_out": len(found.plan.left_out)}
            more = found_memories.as_record(found) if options["dry_run"] else left_out
            self.result(figures | {"same": len(found.plan.of(State.SAME))} | more)
        else:
            for line in found_memories.in_words(done):
                self.tell(line)

    # --- analyze_git

    def analyze_git(self, agent: Agent, **options: Any) -> None:
        folder = _folder(options)
        switches.require(agent, storage.CATEGORY)
        switch = f"{analysis.SETTINGS}.enabled"
        if not settings_document.value(switches.rules_of(agent), switch):
            if not self.agrees_to_enable([switch], yes=options["yes"]):
                self.say("Nothing was done.")
                return
            agent = self.enable(agent, switch)
        rules = switches.rules_of(agent)
        limits = analysis.limits_of(rules, **{name: options[name] for name in ("days", "commits", "seconds")})
        parts = analysis.Parts.of(rules, authors=options["authors"], branches=options["branches"])
        project = self.project(agent, options["project"] or None, folder)
        looked = look_at_history(agent, folder, project, limits, parts, again=options["again"])
        self.say(f"{looked.summary[:1].upper()}{looked.summary[1:]}.")
        if looked.earlier:
            self.say("--dry-run --again prints an analysis." if options["dry_run"] else "--again repeats the analysis.")
            file = self.file_of(agent, looked.earlier.memory)
            self.result({"id": looked.earlier.memory, "project": project, "unchanged": True, "file": file})
        if looked.analysis is None:
            return
        if off := parts.off():
            self.say(f"Not analyzed, because these settings are off: {', '.join(off)}.")
        if options["dry_run"]:
            self.stdout.write(report.render(looked.analysis, project))
        else:
            self.result(store_history(self, agent, project, looked.analysis))


def _folder(options: dict[str, Any]) -> Path:
    """Return the project's folder. Raises Invalid."""
    folder = Path(options["project_dir"])
    if not folder.is_dir():
        raise Invalid("project-dir", "is not a folder")
    return folder
