"""Creates agents, changes their settings, and issues or revokes their keys. Each change is an entry in the trail."""

import os
import re
import unicodedata
from collections.abc import Collection, Iterable
from copy import copy
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from audit import guards
from audit.models import ActorKind, AuditEntry, Change, Operation
from audit.trail import Actor
from audit.verify import chain
from audit.waiting import advisory_lock, one_snapshot, repeated
from config import PROGRAM
from config.queue import LOCK_SECONDS, SWEEP, put
from memory.access import authority, roles, tenants
from memory.access.authentication import new_key
from memory.agents import due_dates, overlaps, prompts
from memory.errors import AgentConsentRequired, AlreadyExists, ConsentRequired, FileFault, Invalid, NotFound, NotOpen
from memory.mail import letters
from memory.models import Agent, AgentKey, DueReason, Tenant
from memory.run_log import runs
from memory.search import embedding
from memory.search.words import LANGUAGES
from memory.silo.keys import new_wrapped_key
from memory.vault import base, removing, writer
from memory.vault.disk import ANOTHERS, CONTAINS, INSIDE, NO_MARK
from memory.writing import edits

FILES = ("memory_path", "vault_path")  # paths on disk, which need the consent of the agent's side
TOKENS = ("budget_tokens", "target_tokens")
MAX_INT = 2**31 - 1  # the largest value of an integer column
MAX_CONTEXT = 2_000_000  # the largest limit for the log tokens that gc sends to the model
RETRIES = ("failures_in_a_row", "quiet_until", "quiet_below_tokens")
MOST_AGENTS = 10_000  # of a tenant
MOST_UNUSED = 5_000  # entries of an agent that gets another first key, which reads them all under the lock
MOST_KEYS = 50  # of an agent
MOST_LIFTS = 10  # of the suspension of an agent's keys in 24 hours
MODEL = re.compile(r"[\w.:/@+-]+", re.ASCII)
MIN_INTERVAL, MAX_INTERVAL = timedelta(hours=1), timedelta(days=3_652)  # between refinements; up to ten years


def create(
    tenant_slug: str, slug: str, *, model: str, actor: Actor, tenant_id: int | None = None, **settings: Any
) -> tuple[Agent, str]:
    """Create an agent with its data key and its first API key. Returns the agent and the API key, which is not stored.

    If the tenant does not exist, it is created too. If `tenant_id` is given, the tenant must have this number: SQL can
    exchange names. `settings` are fields of Agent. Raises Invalid, AlreadyExists, NotFound.
    """
    with transaction.atomic():
        tenant = _tenant(tenant_slug)
        if tenant.slug != tenant_slug or tenant_id not in (None, tenant.pk):
            raise NotFound(f"The tenant {tenant_slug} does not exist.")
        roles.whole_roles(tenant)
        if Agent.objects.filter(tenant=tenant).count() >= MOST_AGENTS:
            raise Invalid("tenant", f"already has {MOST_AGENTS:,} agents, which is the limit")
        agent = _agent(tenant, slug, model, settings)
        with edits.begin(agent, Operation.AGENT_CREATED, actor, is_notice=True) as edit:
            edit.detail = {"model": model, "has_steward": bool(agent.steward)}
            edit.detail |= {name: value for name in FILES if (value := getattr(agent, name))}
            edit.finish(always=True)
        if agent.vault_path:
            _require_unused(agent)
        return agent, _issue_key(agent, actor)


def _tenant(slug: str) -> Tenant:
    existing = Tenant.objects.filter(slug=slug).first()
    if existing is not None:
        return existing
    try:
        return tenants.create(slug)
    except AlreadyExists:  # another process has just created it
        return Tenant.objects.get(slug=slug)
    except Invalid as invalid:
        raise Invalid("tenant", invalid.problem) from None


def _agent(tenant: Tenant, slug: str, model: str, settings: dict[str, Any]) -> Agent:
    agent = Agent(tenant=tenant, slug=slug, model=model, **settings)
    _clean(agent, (*TOKENS, "model", "language", "steward", "memory_path", "vault_path", "context_tokens"))
    try:
        with transaction.atomic():
            agent.save()
    except IntegrityError:
        if Agent.objects.filter(tenant=tenant, slug=slug).exists():
            raise AlreadyExists(f"The agent {agent.label} already exists.") from None
        raise _refused_by_table(agent) from None
    agent.wrapped_key = new_wrapped_key(agent.pk)
    set_cadence(agent)
    authority.sign(agent)
    agent.save(update_fields=["wrapped_key", "due_at", *authority.SIGNATURE])
    return agent


def set_cadence(agent: Agent) -> None:
    """Set `due_at` to the next scheduled refinement, unless `due_at` was set for another reason."""
    if agent.due_reason != DueReason.WEEKLY:
        return
    since, every = agent.last_refined_at or agent.created_at, agent.refine_every
    agent.due_at = None if every is None or not agent.wrapped_key else due_dates.following(since, every, agent.pk)


_PATHS_LOCK = 0x70616C70  # an advisory lock of PostgreSQL: only one process at a time assigns paths


def _clean(agent: Agent, changed: Collection[str]) -> None:
    """Validate the agent's fields, and normalize paths. `changed` has the names of the changed fields.

    Raises Invalid. The message does not contain the value.
    """
    if "memory_path" in changed:
        agent.memory_path = runs.path_in_roots(agent.memory_path)
    if "vault_path" in changed:
        agent.vault_path = base.resolve_path(agent.vault_path)
    if paths := [name for name in FILES if name in changed]:
        advisory_lock(_PATHS_LOCK)
    if clash := overlaps.clash(agent, paths):
        raise clash
    field = tenants.wrong_field(agent) or _wrong_field(agent) or _wrong_changed_field(agent, changed)
    if field:
        raise Invalid("agent" if field == "slug" else field, _ADVICE.get(field, "is not valid"))


def _wrong_field(agent: Agent) -> str:
    if agent.slug != unicodedata.normalize("NFC", agent.slug).lower() or _mixes_scripts(agent.slug):
        return "slug"
    is_wrong = agent.refine_every is not None and not MIN_INTERVAL <= agent.refine_every <= MAX_INTERVAL
    return "refine_every" if is_wrong else ""


def _mixes_scripts(slug: str) -> bool:
    """Whether the slug has letters of more than one of these scripts: Latin, Cyrillic and Greek.

    Some of these letters look alike, so two different slugs could look the same.
    """
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in slug if letter.isalpha()}
    return len(scripts & {"LATIN", "CYRILLIC", "GREEK"}) > 1


def _wrong_changed_field(agent: Agent, changed: Collection[str]) -> str:
    """The first field in `changed` with an invalid value, or "". Other fields may keep old, invalid values."""
    for name in changed:
        value = getattr(agent, name)
        if (name in TOKENS and not 1 <= value <= MAX_INT) or (name == "language" and value not in LANGUAGES):
            return name
        if name == "context_tokens" and value is not None and not 0 < value <= MAX_CONTEXT:
            return name
        if name == "steward" and value and not letters.is_plain(value):
            return name
        if (name == "model" or (name == "embedder" and value)) and not MODEL.fullmatch(value):
            return name
    return ""


_ADVICE = {
    "budget_tokens": f"must be from 1 to {MAX_INT:,} tokens",
    "target_tokens": "must be at least 1 token, and not more than the budget",
    "language": f"must be one of: {', '.join(sorted(LANGUAGES))}",
    "slug": "must be 1 to 64 lower-case letters, digits, '-' and '_', beginning and ending with a letter or digit",
    "last_n": f"must be from 0 to {MAX_INT:,}",
    "max_entries": f"must be from 0 to {MAX_INT:,}",
    "context_tokens": f"must be from 1 to {MAX_CONTEXT:,} tokens, or null for all",
    "steward": letters.ADVICE,
    "memory_path": "must have at most 1,000 characters",
    "vault_path": "must have at most 1,000 characters",
    "model": "must have 1 to 200 of these characters: letters, digits and . _ - / : @ +",
    "embedder": "must have 1 to 200 of these characters: letters, digits and . _ - / : @ +; or be empty",
    "refine_every": "must be from one hour to ten years, or null for never",
    "retention": "must be a number from 0.50 to 1.00",
}


def issue_key(agent: Agent, actor: Actor, *, label: str = "", is_claim: bool = False, seed: str = "") -> str:
    """Issue another API key of the agent, for the agent's side. Returns the key, which is not stored. Raises Invalid if
    the agent has MOST_KEYS keys, except in a claim, which then revokes the other keys, and can have a seed."""
    with edits.locked(agent) as row:
        edits.require_key(row)
        if not is_claim and len(row.live_keys.split()) >= MOST_KEYS:
            raise Invalid("key", f"cannot be issued: the agent has {MOST_KEYS} keys. Revoke one first")
        return _issue_key(row, actor, label, seed)


def first_key(agent: Agent, actor: Actor, *, label: str = "") -> str:
    """Issue a key for an agent whose silo is not in use. It replaces all earlier keys, so their owner notices. A silo
    is in use if it had a memory, if it has a report of `gc`, if its memory file exists or had another path, or if the
    agent's side used a key or changed anything. Raises AgentConsentRequired, and Invalid after MOST_UNUSED entries."""
    authority.require_ahead(agent)
    return repeated(partial(_first_key, agent, actor, label))


def _first_key(agent: Agent, actor: Actor, label: str) -> str:
    with one_snapshot():
        # Before the agent, as everywhere. If a right or a key has ended since the snapshot, it fails and begins again.
        roles.lock(agent.tenant_id)
        with edits.locked(agent, seconds=LOCK_SECONDS) as row:  # others wait for the tenant's people
            used = bool(row.claimed_at) or os.path.lexists(row.memory_path) or row.gc_reports.exists()
            used |= AgentKey.objects.filter(agent_id=row.pk, last_used_at__isnull=False).exists()
            used |= Change.objects.filter(agent_id=row.pk).exists()
            if row.audit_seq > MOST_UNUSED and not used:
                raise Invalid("key", f"cannot be issued after {MOST_UNUSED:,} changes. Create another agent")
            # This reads the trail, because SQL can change the rows of AgentKey. A view could hide entries of the trail.
            its_own = Q(actor_kind__in=(ActorKind.AGENT, ActorKind.STEWARD)) | Q(detail__changed__has_key="memory_path")
            entries = AuditEntry.objects.filter(its_own, agent_id=row.pk)
            if used or entries.exists() or guards.unexpected() or any(chain(row.pk, row.label)):
                raise AgentConsentRequired("Only the agent's side can issue a key to a silo that is in use.")
            earlier, key = prefixes(row), _issue_key(row, actor, label)
            end_keys(row, earlier, actor)
            return key


def revoke_key(agent: Agent, prefix: str, actor: Actor) -> None:
    """Revoke a key, except the last one, unless it is revoked already. Raises NotFound, AgentConsentRequired."""
    with edits.locked(agent) as row:
        key = AgentKey.objects.filter(agent_id=row.pk, prefix=prefix).first()
        if key is None:
            raise NotFound("The agent has no key with this prefix.")
        if key.revoked_at is None or f"{prefix}-" in row.live_keys:  # SQL may have set the date
            end_keys(row, {prefix}, actor)


def end_keys(row: Agent, ended: Collection[str], actor: Actor) -> None:
    """Revoke the keys with these prefixes in one entry, except the last key. Raises AgentConsentRequired."""
    if not ended:
        return
    with edits.begin(row, Operation.KEY_REVOKED, actor, is_notice=True) as edit:
        # Without its MAC, a row cannot be put back into use.
        AgentKey.objects.filter(agent_id=row.pk, prefix__in=ended).update(revoked_at=edit.at, mac=b"")
        _save_live_keys(edit.agent, [each for each in row.live_keys.split() if each.partition("-")[0] not in ended])
        if not edit.agent.live_keys:
            raise AgentConsentRequired("This is the last key. Only the agent's side can end it: suspend keys.")
        edit.detail = {"prefix": " ".join(sorted(ended))}
        edit.finish(always=True)
        letters.notify_key(row, edit.seq)


def _issue_key(agent: Agent, actor: Actor, label: str = "", seed: str = "") -> str:
    prefix, mac, key = new_key(AgentKey, agent.pk, seed)
    row = AgentKey.objects.create(agent_id=agent.pk, prefix=prefix, mac=mac, label=label)
    with edits.begin(agent, Operation.KEY_ISSUED, actor, is_notice=True) as edit:
        _save_live_keys(edit.agent, [*agent.live_keys.split(), row.fingerprint])
        edit.detail = {"prefix": prefix}
        edit.finish(always=True)
        letters.notify_key(edit.agent, edit.seq)
    return key


def suspend_keys(agent: Agent, actor: Actor) -> Agent:
    """Suspend all keys of the agent. They open nothing."""
    return change(agent, actor, keys_suspended=True, keys_lifted_at=None)


def lift_suspension(agent: Agent, actor: Actor) -> Agent:
    """Lift the suspension, so that the agent's side can get a new key (`memory/consent/claims.py`). The steward gets a
    code by mail, also if the suspension is lifted again. Raises NotOpen."""
    with edits.locked(agent) as row:
        if not row.keys_suspended:
            raise NotOpen("The keys of this agent are not suspended.")
        since = timezone.now() - timedelta(days=1)
        changes = AuditEntry.objects.filter(agent_id=row.pk, operation=Operation.AGENT_CHANGED, at__gt=since)
        lifts = changes.filter(detail__changed__has_key="keys_lifted_at").exclude(detail__changed__keys_lifted_at=None)
        if lifts.count() >= MOST_LIFTS:  # the steward gets a letter about each
            raise NotOpen(f"The keys were suspended and lifted {MOST_LIFTS} times in 24 hours. Try again tomorrow.")
        return change(row, actor, keys_lifted_at=timezone.now())


def prefixes(agent: Agent) -> set[str]:
    """The prefixes of the agent's keys that count."""
    return {each.partition("-")[0] for each in agent.live_keys.split()}


def _save_live_keys(agent: Agent, live: Collection[str]) -> None:
    """Let only the keys with these fingerprints count. A key that SQL hides or changes ends."""
    rows = AgentKey.objects.filter(agent_id=agent.pk, prefix__in={each.partition("-")[0] for each in live})
    agent.live_keys = " ".join(sorted({key.fingerprint for key in rows}.intersection(live)))
    agent.save(update_fields=["live_keys"])


def check(agent: Agent, **settings: Any) -> None:
    """Raise Invalid if these fields cannot have these values."""
    trial = copy(agent)
    for name, value in settings.items():
        setattr(trial, name, value)
    _clean(trial, settings)


def change(agent: Agent, actor: Actor, *, proposal: int = 0, **settings: Any) -> Agent:
    """Set fields of an agent; prompts as texts. The trail records names and values, for a prompt only the length.

    The caller checks permissions. `proposal` is the number of the accepted proposal, if there is one. Raises Invalid.
    """
    with edits.locked(agent) as row:
        before = copy(row)
        for name in settings.keys() & set(FILES):
            settings[name] = _resolved(name, settings[name], is_agreed=bool(proposal))
        if "embedder" in settings:
            settings |= embedding.after(row, settings["embedder"])
        recorded = {name: _recorded(name, value) for name, value in settings.items()}
        settings |= {name: prompts.sealed(row, name, settings[name]) for name in prompts.NAMES if name in settings}
        changed = {name: value for name, value in settings.items() if getattr(row, name) != value}
        if not changed and not proposal:
            return row
        is_stewards = bool(row.steward and row.is_steward_only and changed.keys() & {"steward", "is_steward_only"})
        if is_stewards and actor.kind == ActorKind.AGENT:
            raise ConsentRequired("Only the steward can change this, because only the steward may consent.")
        with edits.begin(row, Operation.AGENT_CHANGED, actor, is_notice=True) as edit:
            for name, value in changed.items():
                setattr(row, name, value)
            _clean(row, changed)
            if "refine_every" in changed:
                set_cadence(row)
            if "vault_path" in changed:
                _leave_vault(before, row)
            _try_again(row, changed, is_own=actor.kind == ActorKind.AGENT and not proposal)
            _save(row, [*changed, *RETRIES])
            if "embedder" in changed:
                embedding.restart(row)
            elif "former_embedder" in changed:
                embedding.remove_unused(row)
            edit.detail = {"changed": {name: recorded[name] for name in sorted(changed)}}
            edit.detail |= {"proposal": proposal} if proposal else {}
            edit.finish(always=True)
            letters.notify_change(before, edit.seq, changed)
        return row


def _try_again(agent: Agent, changed: Collection[str], *, is_own: bool) -> None:
    """After a change of the model, forget the failures and the cool-down of the former one. If `is_own` is true, the
    agent's own key changed it, and nothing is forgotten: each attempt may cost money."""
    if "model" in changed and not is_own:
        agent.failures_in_a_row, agent.quiet_until, agent.quiet_below_tokens = 0, None, None
        if agent.due_reason in (DueReason.RETRY, DueReason.OVER_BUDGET):
            agent.due_at = timezone.now()
            put(SWEEP)  # otherwise it waits for the next one


def _resolved(name: str, path: str, *, is_agreed: bool) -> str:
    """The path in one of FILES, without symlinks. Raises Invalid if the path of an accepted proposal now leads
    elsewhere."""
    resolved = runs.path_in_roots(path) if name == "memory_path" else base.resolve_path(path)
    if is_agreed and resolved != path:
        raise Invalid(name, "now leads elsewhere; propose it again")
    return resolved


def _leave_vault(before: Agent, agent: Agent) -> None:
    """Use another vault. It starts empty, and the files of the old one stay. Raises Invalid."""
    if agent.vault_path:
        _require_unused(agent)
    _require_nothing_pending(before)
    writer.forget(agent)


def _require_unused(agent: Agent) -> None:
    """Raise Invalid if the mark file in the vault's folder has no mark, or has the mark of another agent. Also raise it
    if the folder is inside another agent's vault, or contains one.

    The other agent may belong to another installation. The writer reports all other faults later.
    """
    try:
        base.require_no_other_owner(agent.vault_path, agent)
    except FileFault as fault:
        if fault.reason in (ANOTHERS, NO_MARK, INSIDE, CONTAINS):
            raise Invalid("vault_path", fault.reason) from None


def _require_nothing_pending(agent: Agent) -> None:
    """Raise Invalid while the vault has files of redacted memories. The service removes no files in a former vault."""
    if removing.pending(agent).exists() and Path(agent.vault_path).is_dir():
        why = f"cannot change while the vault still has files of redacted memories: run '{PROGRAM} vault index' first"
        raise Invalid("vault_path", why)


def _recorded(name: str, value: Any) -> Any:
    """The value that the trail records for a field. For a prompt, this is only the length."""
    if name in prompts.NAMES:
        return {"characters": len(value)}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _save(agent: Agent, fields: Iterable[str]) -> None:
    try:
        with transaction.atomic():
            agent.save(update_fields=list(fields))
    except IntegrityError:
        raise _refused_by_table(agent) from None


def _refused_by_table(agent: Agent) -> Invalid:
    """The error for an IntegrityError. Another agent has just got the path, or the target is above the budget."""
    return overlaps.clash(agent, FILES) or Invalid("target_tokens", "must not be more than the budget")
