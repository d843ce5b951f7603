"""`memory_rules detect` and `migrate`: memories of other systems (seed 004, "Migration Detection", "Migration
Prompting", "Cross-System Migration")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.commandline.progress import progress
from config.wording import several
from memory.errors import Invalid
from memory.management.rules import Deed, asking, finding
from memory.management.rules.finding import Finding
from memory.models import Agent
from memory.policy import settings_document, switches
from memory.transfer import migration
from memory.transfer.planning import SETTINGS
from memory.transfer.steps import Choice, State, Step

HOWS = {
    "all": "take in everything that is new",
    "select": "choose from the list by number",
    "alongside": "leave it where it is and in use, and do not ask about it again",
    "skip": "not now",
}
NOTHING = "Nothing was stored."


# --- detect


def _detect(task: Task, agent: Agent, **options: Any) -> None:
    wanted = finding.choice(options)
    there = finding.found(agent, options)
    there.plan.steps = [step for step in there.plan.steps if wanted.wants(step)]
    if options["json"]:
        task.result(finding.record(there))
    else:
        tell(task, agent, there, whole=options["all"])


def tell(task: Task, agent: Agent, there: Finding, *, whole: bool) -> None:
    task.tell(f"{there.project}, in {there.folder}")
    lines = list(finding.table(there))
    for line in lines or ["nothing of another system"]:
        task.tell(line)
    for line in finding.left_out(there.plan.left_out, whole=whole):
        task.tell(line)
    if there.fresh:
        many = several(len(there.fresh), "memory", "memories")
        task.say(f"memory_rules migrate {agent.label} shows and takes in {many}; no file is changed by it.")


# --- migrate


def _for_migrate(parser: CommandParser) -> None:
    finding.arguments(parser)
    parser.add_argument(
        "--how", choices=list(HOWS), help="; ".join(f"{name}: {told}" for name, told in HOWS.items()) + "; else asks"
    )
    parser.add_argument("--only", metavar="NUMBERS", help="of the list that --dry-run prints: 1-4,7")
    parser.add_argument("--dry-run", action="store_true", help="show what would become what, and store nothing")
    parser.add_argument("--keep-secrets", action="store_true", help="do not mask them in what is not private")
    parser.add_argument("--yes", action="store_true", help="a person wants it: do not ask")


def _migrate(task: Task, agent: Agent, **options: Any) -> int | None:
    wanted = finding.choice(options)
    is_selective = options["only"] or options["how"] == "select" or options["systems"] or wanted != Choice()
    if is_selective and not _is_selective_on(agent):
        raise Invalid("how", "selective import is off (migration_settings.selective_import_enabled)")

    def act(row: Agent) -> None:
        switches.require_on(row)
        there = finding.found(row, options)
        steps = [step for step in there.fresh if wanted.wants(step)]
        _moved(task, row, there, _numbered(steps, options["only"]), options)

    asking.done(task, agent, act)
    return None


def _is_selective_on(agent: Agent) -> bool:
    return settings_document.value(switches.rules_of(agent), f"{SETTINGS}.selective_import_enabled") is True


def _moved(task: Task, agent: Agent, there: Finding, steps: list[Step], options: dict[str, Any]) -> None:
    if not options["json"]:
        _show(task, there, steps, whole=options["all"])
    if options["dry_run"]:
        _result(task, there, migration.Figures(None), options)
        return
    if not steps:
        others = f" {len(there.fresh):,} would be, which were not asked for." if there.fresh else ""
        task.say(f"There is nothing to take in.{others}")
        _result(task, there, migration.Figures(None), options)
        return
    done = carry_out(task, agent, steps, options["how"] or asked_how(task, agent, yes=options["yes"]), options)
    _result(task, there, done, options)


def _show(task: Task, there: Finding, steps: Sequence[Step], *, whole: bool) -> None:
    task.tell(f"{there.project}, in {there.folder}")
    for line in finding.table(there):
        task.tell(line)
    for line in finding.previewed(steps, with_words=there.is_agents):
        task.tell(line)
    for line in finding.left_out(there.plan.left_out, whole=whole):
        task.tell(line)
    task.stdout.flush()


def asked_how(task: Task, agent: Agent, *, yes: bool = False) -> str:
    """What a person at the terminal says; where nobody can be asked, nothing is done."""
    if not asking.can_ask():
        if yes:
            raise Invalid("how", f"must say what to do, where nobody can be asked: {', '.join(HOWS)}")
        task.say(f"Nobody can be asked here: --how {'|'.join(HOWS)} says what to do.")
        return "skip"
    hows = {name: told for name, told in HOWS.items() if name != "select" or _is_selective_on(agent)}
    for name, told in hows.items():
        task.say(f"  {name:10} {told}")
    while (answer := asking.answer(task, "What to do? [skip]") or "skip") not in hows:
        task.say(f"One of {', '.join(hows)}.")
    return answer


def carry_out(task: Task, agent: Agent, steps: list[Step], how: str, options: dict[str, Any]) -> migration.Figures:
    """Store them, or note that they stay beside; what was done. Nothing is stored before a person agrees."""
    if how == "select" and not options.get("only") and (asking.can_ask() or not _is_filtered(options)):
        steps = _asked_which(task, steps) if asking.can_ask() else []
    if how == "skip" or not steps:
        task.say(NOTHING)
        return migration.Figures(None)
    if how == "alongside":
        return _left_beside(task, agent, steps, yes=options["yes"])
    question = f"Store {several(len(steps), 'memory', 'memories')}? (y/n)"
    if not asking.confirmed(task, question, yes=options["yes"], hint="; --yes says that a person wants it"):
        task.say(NOTHING)
        return migration.Figures(None)
    with progress("Storing", unit="memories", total=len(steps)) as advance:
        return migration.migrate(agent, steps, asking.OPERATOR, advance=advance)


def _asked_which(task: Task, steps: list[Step]) -> list[Step]:
    """Asked again as long as the answer is none; nothing typed is none of them."""
    while True:
        try:
            return _numbered(steps, asking.answer(task, "Which, such as 1-4,7? [none]"))
        except Invalid as wrong:
            task.say(f"It {wrong.problem}.")


def _is_filtered(options: dict[str, Any]) -> bool:
    return bool(options.get("systems")) or finding.choice(options) != Choice()


def _left_beside(task: Task, agent: Agent, steps: list[Step], *, yes: bool) -> migration.Figures:
    question = f"Leave {several(len(steps), 'memory', 'memories')} beside, and not ask again? (y/n)"
    if asking.confirmed(task, question, yes=yes, hint="; --yes says that a person wants it"):
        left = migration.leave(agent, steps)
        task.say(
            f"{several(left, 'memory', 'memories')} left beside: asked about again when a file says something else."
        )
    else:
        task.say("Nothing was noted.")
    return migration.Figures(None)


def _numbered(steps: list[Step], only: str | None) -> list[Step]:
    """Those with these numbers of the list. Raises Invalid."""
    if only is None:
        return steps
    wanted: set[int] = set()
    for part in filter(None, (part.strip() for part in only.split(","))):
        first, dash, last = part.partition("-")
        ends = (first.strip(), (last if dash else first).strip())
        if not all(each.isascii() and each.isdecimal() and 0 < len(each) < 9 for each in ends):
            raise Invalid("only", "must be numbers of the list, such as 1-4,7")
        begin, end = map(int, ends)
        if not 1 <= begin <= end <= len(steps):
            raise Invalid("only", f"must name numbers from 1 to {len(steps):,}")
        wanted.update(range(begin, end + 1))
    return [step for n, step in enumerate(steps, 1) if n in wanted]


def _result(task: Task, there: Finding, done: migration.Figures, options: dict[str, Any]) -> None:
    if options["json"]:
        told = finding.record(there) if options["dry_run"] else {"left_out": len(there.plan.left_out)}
        task.result(as_record(done) | {"same": len(there.plan.of(State.SAME))} | told)
    elif done.entry is not None:
        for line in in_words(done):
            task.tell(line)


def as_record(done: migration.Figures) -> dict[str, Any]:
    return {"entry": done.entry, "stored": done.stored, "revised": done.revised, "tokens": done.tokens}


def in_words(done: migration.Figures) -> Iterator[str]:
    yield (
        f"{several(done.stored, 'memory', 'memories')} stored, {done.revised:,} revised, "
        f"{several(done.tokens, 'token')}, as entry {done.entry}"
    )
    yield f"rollback --import {done.entry} takes all of it back"


DEEDS = (
    Deed("detect", "look what other systems left in a project, and what it would become", finding.arguments, _detect),
    Deed(
        "migrate", "take in what other systems left: shown first, stored once a person agrees", _for_migrate, _migrate
    ),
)
