"""Making agents, changing their settings, issuing and ending their keys. Each is an entry in the agent's trail."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable
from copy import copy
from datetime import timedelta
from pathlib import Path, PurePath
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from audit.models import AuditEntry, Change, Operation
from audit.patience import alone
from audit.trail import Actor
from memory.access import tenants
from memory.access.authentication import new_key
from memory.agents import due_dates
from memory.errors import AgentsSide, FileFault, Invalid, NotFound, Taken
from memory.mail import letters
from memory.models import Agent, AgentKey, DueReason, Tenant
from memory.run_log import runs
from memory.search.words import LANGUAGES
from memory.silo.keys import new_wrapped_key
from memory.vault import base, removing, writer
from memory.vault.disk import ANOTHERS, NO_MARK
from memory.writing import edits

FILES = ("memory_path", "vault_path")  # what is kept where files are, by its side's consent
TOKENS = ("budget_tokens", "target_tokens")
MOST = 2**31 - 1  # of whole numbers, as the columns have them
MOST_CONTEXT = 2_000_000  # tokens that gc looks through to see what of a log fits
OFTENEST, RAREST = timedelta(hours=1), timedelta(days=3_652)  # a cadence: to ten years, so that its next date is one


def create(tenant_slug: str, slug: str, *, model: str, actor: Actor, **settings: Any) -> tuple[Agent, str]:
    """Make an agent, its tenant if need be, its data key and its first key, which is returned and never shown again.

    `settings` are fields of Agent. Raises Invalid, Taken.
    """
    with transaction.atomic():
        tenant = _tenant(tenant_slug)
        agent = _agent(tenant, slug, model, settings)
        with edits.begin(agent, Operation.AGENT_CREATED, actor, is_notice=True) as edit:
            edit.detail = {"model": model, "has_steward": bool(agent.steward)}
            edit.detail |= {name: value for name in FILES if (value := getattr(agent, name))}
            edit.finish(always=True)
        if agent.vault_path:
            _require_nobody_elses(agent)
        return agent, _issue_key(agent, actor, is_handed_out=True)


def _tenant(slug: str) -> Tenant:
    there = Tenant.objects.filter(slug=slug).first()
    if there is not None:
        return there
    try:
        return tenants.create(slug)
    except Taken:  # made by somebody else meanwhile
        return Tenant.objects.get(slug=slug)
    except Invalid as invalid:
        raise Invalid("tenant", invalid.problem) from None


def _agent(tenant: Tenant, slug: str, model: str, settings: dict[str, Any]) -> Agent:
    agent = Agent(tenant=tenant, slug=slug, model=model, **settings)
    _clean(agent, (*TOKENS, "language", "steward", "memory_path", "vault_path", "context_tokens"))
    try:
        with transaction.atomic():
            agent.save()
    except IntegrityError:
        if Agent.objects.filter(tenant=tenant, slug=slug).exists():
            raise Taken(f"There is already an agent {agent.label}.") from None
        raise _refused_by_table(agent) from None
    agent.wrapped_key = new_wrapped_key(agent.pk)
    _set_cadence(agent)
    agent.save(update_fields=["wrapped_key", "due_at"])
    return agent


def _set_cadence(agent: Agent) -> None:
    """Its next date by schedule, where no other reason to refine it comes first."""
    if agent.due_reason != DueReason.WEEKLY:
        return
    since, every = agent.last_refined_at or agent.created_at, agent.refine_every
    agent.due_at = None if every is None or not agent.wrapped_key else due_dates.following(since, every, agent.pk)


_PLACES = 0x70616C70  # of PostgreSQL's advisory locks: one agent at a time is given a place for its files


def _clean(agent: Agent, setting: Collection[str]) -> None:
    """Django's own field checks and ours, told as a domain error without the value. `setting` is what is being set."""
    if "memory_path" in setting:
        agent.memory_path = runs.path_in_roots(agent.memory_path)
    if "vault_path" in setting:
        agent.vault_path = base.resolve_path(agent.vault_path)
    placed = [name for name in FILES if name in setting]
    if placed:
        alone(_PLACES)
    if clash := _clash(agent, placed):
        raise clash
    field = tenants.wrong_field(agent) or _wrong_field(agent) or _unfit(agent, setting)
    if field:
        raise Invalid("agent" if field == "slug" else field, _ADVICE.get(field, "is not valid"))


def _wrong_field(agent: Agent) -> str:
    if agent.slug != unicodedata.normalize("NFC", agent.slug).lower() or _looks_like_another(agent.slug):
        return "slug"
    if agent.model != agent.model.strip() or not agent.model.isprintable():
        return "model"
    if agent.refine_every is not None and not OFTENEST <= agent.refine_every <= RAREST:
        return "refine_every"
    return ""


def _looks_like_another(slug: str) -> bool:
    """Whether letters are mixed that look alike in several scripts."""
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in slug if letter.isalpha()}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1


def _unfit(agent: Agent, setting: Collection[str]) -> str:
    """Looked at only when it is set: what an agent was given before this was asked for keeps nobody from pausing it."""
    for name in setting:
        value = getattr(agent, name)
        if (name in TOKENS and not 1 <= value <= MOST) or (name == "language" and value not in LANGUAGES):
            return name
        if name == "context_tokens" and value is not None and not 0 < value <= MOST_CONTEXT:
            return name
        if name == "steward" and value and not letters.is_plain(value):
            return name
    return ""


_ADVICE = {
    "budget_tokens": f"must be from 1 to {MOST:,} tokens",
    "target_tokens": "must be 1 token or more, and no more than the budget",
    "language": f"must be one of: {', '.join(sorted(LANGUAGES))}",
    "slug": "must be 1 to 64 lower-case letters, digits, '-' and '_', beginning and ending with a letter or digit",
    "last_n": f"must be from 0 to {MOST:,}",
    "max_entries": f"must be from 0 to {MOST:,}",
    "context_tokens": f"must be from 1 to {MOST_CONTEXT:,} tokens, or null for all",
    "steward": letters.ADVICE,
    "memory_path": "must have at most 1,000 characters",
    "vault_path": "must have at most 1,000 characters",
    "model": "must be at most 200 characters, none of them a control character, and no white space at its ends",
    "refine_every": "must be from one hour to ten years, or null for never",
    "retention": "must be a number from 0.50 to 1.00",
}


def issue_key(agent: Agent, actor: Actor, *, label: str = "") -> str:
    """Another key to the silo, for the agent's side. Returned, and never shown again."""
    with edits.locked(agent) as row:
        edits.require_key(row)
        return _issue_key(row, actor, label)


def exchange_key(present: AgentKey, actor: Actor, *, label: str = "") -> str:
    """A new key in the place of all there were: how a runtime makes a silo its own. Who had the present one before may
    have kept it, and made others with it; and may have named a steward, to consent to their own reading: with the first
    exchange that ends, too, and the runtime names whom it trusts."""
    with edits.locked(present.agent) as row:
        before = AgentKey.objects.filter(agent_id=row.pk, revoked_at=None).order_by("pk")
        ending = list(before.values_list("prefix", flat=True))
        key = issue_key(row, actor, label=label)
        for prefix in ending:
            revoke_key(row, prefix, actor)
        if present.is_handed_out and row.steward:
            change(row, actor, steward="", is_steward_only=False)
        return key


def first_key(agent: Agent, actor: Actor, *, label: str = "") -> str:
    """A key for an agent that remembers nothing yet, which its tenant may hand to the runtime.

    For a silo that ever held a memory, or that a runtime has made its own and will fill, the agent's side alone issues
    one (20-silo, The agent's side). Raises AgentsSide.
    """
    with edits.locked(agent) as row:
        issued = AuditEntry.objects.filter(agent_id=row.pk, operation=Operation.KEY_ISSUED)
        is_its_own = any(not detail.get("handed_out") for detail in issued.values_list("detail", flat=True))
        if is_its_own or Change.objects.filter(agent_id=row.pk).exists():  # the rows, SQL may have set back
            raise AgentsSide("The silo holds memories, or is its runtime's: its agent's side alone issues a key to it.")
        return _issue_key(row, actor, label, is_handed_out=True)


def revoke_key(agent: Agent, prefix: str, actor: Actor) -> None:
    """End a key. One that was ended is left as it is. Raises NotFound."""
    with edits.locked(agent) as row:
        key = AgentKey.objects.filter(agent_id=row.pk, prefix=prefix).first()
        if key is None:
            raise NotFound("There is no such key.")
        if key.revoked_at is None:
            with edits.begin(row, Operation.KEY_REVOKED, actor, is_notice=True) as edit:
                AgentKey.objects.filter(pk=key.pk).update(revoked_at=edit.at)
                edit.detail = {"prefix": prefix}
                edit.finish(always=True)
                letters.of_key(row, edit.seq)


def _issue_key(agent: Agent, actor: Actor, label: str = "", *, is_handed_out: bool = False) -> str:
    prefix, mac, key = new_key(AgentKey, agent.pk)
    AgentKey.objects.create(agent_id=agent.pk, prefix=prefix, mac=mac, label=label, is_handed_out=is_handed_out)
    with edits.begin(agent, Operation.KEY_ISSUED, actor, is_notice=True) as edit:
        edit.detail = {"prefix": prefix} | ({"handed_out": True} if is_handed_out else {})
        edit.finish(always=True)
        letters.of_key(edit.agent, edit.seq)
    return key


def check(agent: Agent, **settings: Any) -> None:
    """Raise Invalid for values that these fields cannot have."""
    trial = copy(agent)
    for name, value in settings.items():
        setattr(trial, name, value)
    _clean(trial, settings)


def change(agent: Agent, actor: Actor, *, proposal: int = 0, **settings: Any) -> Agent:
    """Set fields of an agent; the trail keeps their names, and the values of those that are no prompts.

    Who may set which is for the edge to say: the agent's side its voice, a tenant the rest. `proposal` is the number
    of the one that is accepted by this (`memory.consent.proposals`). Raises Invalid.
    """
    with edits.locked(agent) as row:
        before = copy(row)
        if "vault_path" in settings:
            settings["vault_path"] = _kept(settings["vault_path"], is_agreed=bool(proposal))
        changed = {name: value for name, value in settings.items() if getattr(row, name) != value}
        if not changed and not proposal:
            return row
        with edits.begin(row, Operation.AGENT_CHANGED, actor, is_notice=True) as edit:
            for name, value in changed.items():
                setattr(row, name, value)
            _clean(row, changed)
            if "refine_every" in changed:
                _set_cadence(row)
            if changed.get("vault_path"):
                _require_nobody_elses(row)
            if "vault_path" in changed:  # the next vault begins empty; what the last one holds stays there
                _require_nothing_owed(before)
                writer.forget(row)
            _save(row, changed)
            edit.detail = {"changed": {name: _told(name, value) for name, value in sorted(changed.items())}}
            edit.detail |= {"proposal": proposal} if proposal else {}
            edit.note = before.steward if "steward" in changed and row.wrapped_key else ""
            edit.finish(always=True)
            letters.of_change(before, edit.seq, changed)
        return row


def _kept(path: str, *, is_agreed: bool) -> str:
    """A vault's path as it is kept, without links: one that was agreed to leads where it led then. Raises Invalid."""
    kept = base.resolve_path(path)
    if is_agreed and kept != path:
        raise Invalid("vault_path", "leads elsewhere than when it was proposed; propose it anew")
    return kept


def _require_nobody_elses(agent: Agent) -> None:
    """A vault of another service's agent is known by its mark alone. What keeps it from being read is told later."""
    try:
        base.require_no_other_owner(agent.vault_path, agent)
    except FileFault as fault:
        if fault.reason in (ANOTHERS, NO_MARK):
            raise Invalid("vault_path", fault.reason) from None


def _require_nothing_owed(agent: Agent) -> None:
    """Files of what was redacted would stay in a folder that nobody looks at any more; unless it is gone."""
    if removing.pending(agent).exists() and Path(agent.vault_path).is_dir():
        why = "must stay as it is until what was redacted is removed from its files: see manage.py vault index"
        raise Invalid("vault_path", why)


_PROMPTS = ("system_prompt", "refinement_prompt")


def _told(name: str, value: Any) -> Any:
    """A value as the trail keeps it; a prompt by its length alone."""
    if name in _PROMPTS:
        return {"characters": len(value)}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _save(agent: Agent, fields: Iterable[str]) -> None:
    try:
        with transaction.atomic():
            agent.save(update_fields=list(fields))
    except IntegrityError:
        raise _refused_by_table(agent) from None


def _refused_by_table(agent: Agent) -> Invalid:
    """A path that another agent was given since it was looked at, or else a target above the budget."""
    return _clash(agent, FILES) or Invalid("target_tokens", "must be no more than the budget")


def _clash(agent: Agent, fields: Iterable[str]) -> Invalid | None:
    """What is wrong with the places of its files, if these fields name one that is another agent's."""
    is_taken = {"memory_path": _is_anothers, "vault_path": _is_in_a_way}
    field = next((name for name in fields if is_taken[name](agent)), "")
    return Invalid(field, "is another agent's, or would be in the way of one") if field else None


def _is_anothers(agent: Agent) -> bool:
    """Whether its file is another's, or one of the two would be the other's folder; or it lies in a vault, be it its
    own."""
    path = agent.memory_path
    if not path:
        return False
    above = [str(each) for each in PurePath(path).parents]
    clash = Q(memory_path__in=[path, *above]) | Q(memory_path__startswith=path.rstrip(os.sep) + os.sep)
    # A vault's path has no links in it; a file's may have.
    vaults = [path, *above, *(str(each) for each in Path(os.path.realpath(path)).parents)]
    if agent.vault_path in vaults[1:] or agent.vault_path.startswith(path.rstrip(os.sep) + os.sep):
        return True
    others = Agent.objects.exclude(pk=agent.pk)
    return others.filter(clash | _vault_in(vaults, below=path)).exists()


def _vault_in(paths: list[str], *, below: str) -> Q:
    return Q(vault_path__in=paths) | Q(vault_path__startswith=below.rstrip(os.sep) + os.sep)


def _is_in_a_way(agent: Agent) -> bool:
    """Whether its vault is another's, one of the two lies in the other, or a memory file lies in it, be it its own."""
    path = agent.vault_path
    if not path:
        return False
    below = path.rstrip(os.sep) + os.sep
    above = [str(each) for each in PurePath(path).parents]
    files = [agent.memory_path, os.path.realpath(agent.memory_path)] if agent.memory_path else []
    if any(file == path or file.startswith(below) for file in files):
        return True
    others = Agent.objects.exclude(pk=agent.pk)
    return others.filter(_vault_in([path, *above], below=path) | Q(memory_path__startswith=below)).exists()
