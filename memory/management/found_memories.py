"""Find the memories of other systems in a folder, and import them after a person agrees.

The commands `project detect`, `project migrate` and `project init` use this module.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.utils import timezone

from config.commandline.progress import progress
from config.wording import several
from memory.agents import lifecycle
from memory.errors import Invalid
from memory.management.agent_command import AgentCommand, agents_side, has_agents_key, repository
from memory.masking.scanner import masked
from memory.models import Agent, Memory
from memory.policy import settings_document, switches, tokens
from memory.policy.categories import PRIVATE, SCOPES
from memory.policy.validation import parse_moment, parse_numbers
from memory.transfer import migration
from memory.transfer.planning import SETTINGS, Choice, Plan, State, Step, make_plan
from memory.transfer.reading import Source, detect, unique
from memory.transfer.systems import SYSTEMS
from memory.writing import operations

_EXCERPT = 60  # characters of each memory in a preview
_LISTED = 20  # number of left-out files that are listed without --all
_STATES = {State.NEW: "new", State.CHANGED: "changed", State.SAME: "imported before"}


@dataclass(slots=True, repr=False)
class Found:
    """The files found in a folder, and the memories that an import creates from them."""

    folder: Path
    project: str
    sources: list[Source]  # the files that were found
    plan: Plan
    may_read: bool  # true if the caller has the agent's key
    agent: Agent


def choice(options: Mapping[str, Any]) -> Choice:
    """Return the filters that the options give. The filters choose memories. Raises Invalid."""
    since, until = (parse_moment(name, options[name]) if options[name] else None for name in ("since", "until"))
    return Choice(frozenset(options["category"]), tuple(options["path"]), since, until)


def find(
    agent: Agent,
    folder: Path,
    project: str,
    *,
    systems: Sequence[str] = (),
    plain: Sequence[str] = (),
    masks: bool | None = None,
) -> Found:
    """Read the memories of other systems in the folder. Raises Invalid, FileFault, KeyRejected."""
    supported = frozenset(settings_document.value(switches.rules_of(agent), f"{SETTINGS}.supported_source_systems"))
    for name in systems:
        if SYSTEMS[name].group not in supported:
            raise Invalid("from", f"{name} is not in migration_settings.supported_source_systems")
    if "plain" in systems and not plain:
        raise Invalid("plain", "is required: a folder in which each file is a memory, such as --plain notes")
    root, may_read = repository(folder), has_agents_key(agent)
    with (
        detect(folder, systems, plain, own_vault=agent.vault_path, repository=root) as look,
        progress("Reading", unit="memories") as advance,
    ):
        items = []
        for item in look.parts():
            advance(1)
            if SYSTEMS[item.source.system].group in supported:
                items.append(item)
        where = "/".join(folder.resolve().relative_to(root.resolve()).parts) if root else ""
        now = timezone.now()
        plan = make_plan(agent, unique(items), project, now=now, compares=may_read, masks=masks, where=where)
        if may_read:
            agents_side(agent)  # the key may have ended meanwhile
        sources = [source for source in look.sources if SYSTEMS[source.system].group in supported]
        plan.left_out = [*look.left_out, *plan.left_out]
    return Found(folder.absolute(), project, sources, plan, may_read, agent)


# --- in words


def overview(found: Found) -> Iterator[str]:
    """Yield a line about the project, and a line for each system with the numbers of its files and memories."""
    yield f"{found.project}, in {found.folder}"
    files = Counter(source.system for source in found.sources)
    if not files:
        yield "no memories of other systems"
        return
    memories = Counter(step.system for step in found.plan.steps)
    states = Counter((step.system, step.state) for step in found.plan.steps)
    yield f"{'--from':14} {'system':28} {'files':>10}  memories, and their states"
    for name, system in SYSTEMS.items():
        if files[name]:
            each = [f"{states[name, state]:,} {word}" for state, word in _STATES.items() if states[name, state]]
            many = f"{several(memories[name], 'memory', 'memories')}: {', '.join(each) or 'none'}"
            yield f"{name:14} {system.title:28} {several(files[name], 'file'):>10}  {many}"


def summary(found: Found) -> str:
    """Return the overview in one sentence."""
    files = Counter(source.system for source in found.sources)
    systems = [f"{SYSTEMS[name].title} ({several(count, 'file')})" for name, count in sorted(files.items())]
    if not systems:
        return "none"
    left_out = f", {len(found.plan.left_out):,} left out ('project detect' says why)" if found.plan.left_out else ""
    return f"{', '.join(systems)}: {several(len(found.plan.open), 'memory', 'memories')} to import{left_out}"


def left_out(found: Found, *, all_of_them: bool) -> Iterator[str]:
    left = found.plan.left_out
    listed = left if all_of_them else left[:_LISTED]
    if left:
        yield "left out:"
    for each in listed:
        yield f"  {_masked(each.key)} {each.why}"
    if len(listed) < len(left):
        yield f"  and {len(left) - len(listed):,} more (--all lists them)"


def preview(found: Found, steps: Sequence[Step]) -> Iterator[str]:
    """Yield lines about each memory: its source, its category, and how the import changes the text. If the caller may
    read the memory, also yield the beginning of its text."""
    if weight := _instruction_tokens(steps):
        yield (
            f"instructions: {weight:,} tokens. The budget is {found.agent.budget_tokens:,} tokens, and core memory has "
            f"{found.agent.core_tokens:,}. With --instructions aside, they do not start a refinement."
        )
    for n, step in enumerate(steps, 1):
        draft = step.draft
        place = f"{draft.category} of {draft.project}" if draft.project else draft.category
        kind = "" if draft.kind == "core" else f", {draft.kind}"
        earlier = ""
        if step.state is State.CHANGED:
            old = f"memory {step.number}, which is discarded" if step.replaces else f"the text of memory {step.number}"
            earlier = f", in place of {old}"
        yield f"{n:>4}  {_masked(step.key)} → {place}{kind}, {step.origin:%Y-%m-%d}{earlier}"
        if step.transformed:
            yield f"      {'; '.join(step.transformed)}"
        if found.may_read and SCOPES[draft.category] != PRIVATE:
            text = " ".join(_masked(draft.content[: _EXCERPT * 10]).split())
            yield f"      “{text if len(text) <= _EXCERPT else f'{text[:_EXCERPT]}…'}”"


def _instruction_tokens(steps: Sequence[Step]) -> int:
    return sum(tokens.count(step.draft.content) for step in steps if step.draft.is_instruction)


def _masked(text: str) -> str:
    """Return a text with its secrets masked. Keys of memories need this too, because a key may contain a heading with a
    secret."""
    return masked(text)[0]


def as_record(found: Found) -> dict[str, Any]:
    """Return the found memories as a dict for JSON output. The dict has no content of memories."""
    return {
        "folder": str(found.folder),
        "project": found.project,
        "memories": [_step_record(step) for step in found.plan.steps],
        "left_out": [{"key": _masked(each.key), "why": each.why} for each in found.plan.left_out],
    }


def _step_record(step: Step) -> dict[str, Any]:
    return {
        "system": step.system,
        "key": _masked(step.key),
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


HOWS = {
    "all": "import all new memories",
    "select": "choose from the list by number",
    "alongside": "leave the memories where they are, and do not ask again",
    "skip": "import nothing now",
}
INSTRUCTIONS = {
    "aside": "keep instructions out of refinement and out of the budget (the default)",
    "raise-budget": "refine instructions like other memories, and raise the budget by their tokens",
    "protect": "as aside, and protect instructions: no agent can change them",
}


def is_selective(agent: Agent) -> bool:
    """Return whether the settings allow a person to import only some memories."""
    return settings_document.value(switches.rules_of(agent), f"{SETTINGS}.selective_import_enabled") is True


def ask_how(command: AgentCommand, agent: Agent) -> str:
    """Ask the person at the terminal what to do. Without a terminal, the answer is "skip"."""
    if not command.can_ask():
        command.say(f"The input is not a terminal: choose with --how {'|'.join(HOWS)}.")
        return "skip"
    choices = {name: summary for name, summary in HOWS.items() if name != "select" or is_selective(agent)}
    return _chosen(command, choices, "What to do?", "skip")


def _chosen(command: AgentCommand, choices: Mapping[str, str], question: str, default: str) -> str:
    """Ask until the answer is one of the choices."""
    for name, summary in choices.items():
        command.say(f"  {name:12} {summary}")
    while (answer := command.answer(f"{question} [{default}]") or default) not in choices:
        command.say(f"Answer with one of {', '.join(choices)}.")
    return answer


def ask_which(command: AgentCommand, steps: list[Step]) -> list[Step]:
    """Ask for numbers of the list until the answer is valid. An empty answer means no memory."""
    if not command.can_ask():
        return []
    while True:
        try:
            return numbered(steps, command.answer("Which numbers, such as 1-4,7? [none]"))
        except Invalid as wrong:
            command.say(f"It {wrong.problem}.")


def numbered(steps: list[Step], numbers: str) -> list[Step]:
    """Return the steps that have these numbers in the list. `numbers` has a form such as 1-4,7. Raises Invalid."""
    chosen = parse_numbers("only", numbers, len(steps))
    if chosen[-1:] > [len(steps)]:
        raise Invalid("only", f"must have numbers from 1 to {len(steps):,}")
    return [steps[number - 1] for number in chosen]


def take_in(
    command: AgentCommand, agent: Agent, steps: list[Step], how: str, *, yes: bool, instructions: str | None = None
) -> migration.Figures:
    """Ask a person to agree. Then do what `how` says: store the memories, or record that they are not imported.
    `instructions` is one of INSTRUCTIONS. If it is None, a person at the terminal is asked."""
    many = several(len(steps), "memory", "memories")
    if how == "skip" or not steps:
        command.say("Nothing was stored.")
    elif how == "alongside":
        if command.confirms(f"Leave {many} in place, and do not ask again? (y/n)", yes=yes):
            left = several(migration.skip(agent, steps), "memory", "memories")
            command.say(f"{left} not imported. You are asked again when a file changes.")
        else:
            command.say("Nothing was changed.")
    elif not command.confirms(f"Store {many}? (y/n)", yes=yes):
        command.say("Nothing was stored.")
    else:
        if weight := _instruction_tokens(steps):
            if instructions is None and not yes:
                instructions = _chosen(command, INSTRUCTIONS, "What to do with instructions?", "aside")
            if instructions == "raise-budget":
                agent = lifecycle.change(agent, command.operator, budget_tokens=agent.budget_tokens + weight)
                steps = [replace(step, draft=replace(step.draft, is_instruction=False)) for step in steps]
        with progress("Storing", unit="memories", total=len(steps)) as advance:
            done = migration.migrate(agent, steps, command.operator, advance=advance)
        if instructions == "protect":
            stored = Memory.objects.of(agent).active().filter(is_instruction=True, version__gte=done.entry)
            operations.protect(agent, list(stored.values_list("number", flat=True)), command.operator)
        return done
    return migration.Figures(None)


def in_words(done: migration.Figures) -> list[str]:
    if done.entry is None:
        return []
    stored = f"{several(done.stored, 'memory', 'memories')} stored, {done.revised:,} revised"
    return [
        f"{stored}, {several(done.tokens, 'token')}, as entry {done.entry}",
        f"rollback --import {done.entry} undoes the whole import",
    ]
