"""Claim a silo for the agent's side. Nothing that was set up before the claim stays in force.

The agent's creator, or anybody else with an earlier key, may have kept this key, chosen the steward or the model, or
approved a grant. So each exchange of a key is a claim, and so is each use of a recovery code.

The response may be lost, and then the agent's side would have no valid key. So a claim can have a seed: a secret text
of the request. The new key and code are derived from it, and the same request gets them again until the key is used.
"""

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from django.dispatch import Signal
from django.utils import timezone

from audit import consent
from audit.models import AuditEntry, Operation, State
from audit.trail import Actor
from memory.access import recovery
from memory.access.authentication import prefix_of, require_not_suspended, seeded_keys, unused_key
from memory.agents import lifecycle, prompts, rule_changes
from memory.consent import requests
from memory.mail import letters
from memory.models import Agent, AgentKey, DueReason
from memory.policy import settings_document, switches
from memory.search import embedding
from memory.vault import removing, writer
from memory.writing import edits

REPEATED = timedelta(days=1)  # how long the response to a claim can be repeated
CLEARED = ("model", "embedder", "steward", "memory_path", "vault_path", *prompts.NAMES)
_ENDS = {State.REQUESTED: State.DENIED, State.OPEN: State.DECLINED, State.ACTIVE: State.REVOKED}  # of requests
claiming = Signal()  # sent in the transaction of a claim, before it; the row of the argument `agent` is locked


@dataclass(frozen=True, slots=True, repr=False)
class Claim:
    """The result of a claim: the new key and recovery code, the settings that were cleared, and the numbers of the
    requests and grants that ended."""

    key: str
    recovery_code: str
    cleared: list[str]
    ended: list[int]


def exchange(present: AgentKey, actor: Actor, *, keep: Collection[str] = (), label: str = "", seed: str = "") -> Claim:
    """Claim the silo with a key. `keep` names the settings in `CLEARED` that stay. Raises KeySuspended, Erased."""
    _remove_redacted(present.agent)
    with edits.locked(present.agent) as row:
        require_not_suspended(row, exchanges=True)
        return _claim(row, actor, keep, label, seed)


def recover(code: str, *, keep: Collection[str] = (), label: str = "", seed: str = "") -> Claim:
    """Claim the silo with a recovery code, or with the steward's code. Raises KeyRejected, KeySuspended, Erased."""
    agent = recovery.agent_of(code)
    _remove_redacted(agent)
    with edits.locked(agent) as row:
        return _claim(row, recovery.actor_of(row, code), keep, label, seed)


def repeated(seed: str) -> Claim | None:
    """The result of the claim with this seed, while its key was never used, for a day. None if there is no such
    claim."""
    for pepper, key in enumerate(seeded_keys(seed)):
        row = unused_key(key)
        claimed_at = row.agent.claimed_at if row else None
        if row and claimed_at and abs(timezone.now() - claimed_at) <= REPEATED:
            code = recovery.seeded_codes(row.agent, seed)[pepper]
            entries = AuditEntry.objects.filter(agent_id=row.agent_id, operation=Operation.CLAIMED)
            detail = entries.latest("seq").detail
            cleared = sorted({*detail["changed"], *({"rules"} & detail.keys())})
            return Claim(key, code, cleared, detail["ended"])
    return None


def _remove_redacted(agent: Agent) -> None:
    """Remove the vault's files of redacted memories. The service removes no other files in a former vault. If a file
    cannot be removed, the log says so, and the claim goes on."""
    if agent.vault_path and removing.pending(agent).exists():
        writer.try_sync(agent.pk)


def _claim(row: Agent, actor: Actor, keep: Collection[str], label: str, seed: str) -> Claim:
    edits.require_key(row)
    claiming.send(Agent, agent=row)
    requests.close_expired(row)
    ended = [each for each in consent.requests(row.pk).values() if each.state in _ENDS]
    for request in ended:
        requests.end(row, request, _ENDS[request.state], actor)
    key = lifecycle.issue_key(row, actor, label=label, is_claim=True, seed=seed)  # this ends the keys that SQL hides
    lifecycle.end_keys(row, lifecycle.prefixes(row) - {prefix_of(key)}, actor)
    empty: dict[str, object] = {name: b"" if name in prompts.NAMES else "" for name in CLEARED if name not in keep}
    if row.embedder == embedding.NONE:
        empty.pop("embedder", None)  # otherwise the server's default would read the memories
    empty["discard_share_lifted_until"] = None
    empty["former_embedder"] = ""  # the claimant cannot keep it
    if "steward" in empty:
        empty["is_steward_only"] = False
    rules = switches.rules_of(row)
    safe = rules if "vault_path" in keep else rule_changes.less_revealing(rules)
    empty["rules"] = rule_changes.as_text(safe)
    cleared = {name: value for name, value in empty.items() if getattr(row, name) != value}
    before = copy(row)
    with edits.begin(row, Operation.CLAIMED, actor, is_notice=True) as edit:
        code = recovery.new_code(row, seed)
        values = {"claimed_at": edit.at, "claimed_by": actor.label, "keys_suspended": False, "keys_lifted_at": None}
        for name, value in (cleared | values).items():
            setattr(row, name, value)
        if row.due_reason in (DueReason.MANUAL, DueReason.AGENT):  # somebody requested a refinement before
            row.due_reason = DueReason.WEEKLY
            lifecycle.set_cadence(row)
        row.save(update_fields=[*cleared, *values, "recovery_mac", "due_at", "due_reason"])
        if "vault_path" in cleared:  # its other files stay
            writer.leave(row, Path(before.vault_path))
        embedding.restart(row)
        recorded = {name: "" if name in prompts.NAMES else value for name, value in cleared.items() if name != "rules"}
        edit.detail = {"changed": recorded, "ended": [request.number for request in ended]}
        edit.detail |= {"rules": settings_document.changes(rules, safe)} if "rules" in cleared else {}
        edit.finish(always=True)
        letters.notify_change(before, edit.seq, cleared | values)  # also if nothing was cleared
        return Claim(key, code, sorted(cleared), edit.detail["ended"])
