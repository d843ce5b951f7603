"""Repairs the row of an agent whose authority values were changed with SQL. The values come from the audit trail."""

from typing import Any

from audit import guards
from audit.ill_formed import ill_formed
from audit.models import Operation
from audit.trail import Actor
from audit.verify import intact
from audit.waiting import one_snapshot
from config import PROGRAM
from memory.access import authority
from memory.errors import TrailChanged
from memory.models import Agent
from memory.time_machine import trail_view
from memory.writing import edits

_HEAD = ("audit_seq", "audit_mac", "audit_at")
_WITH_TRAIL = f"The audit trail of {{}} was altered, too. Run '{PROGRAM} verify_audit {{}}', and restore a backup."


def repair(pk: int, label: str, *, is_dry_run: bool) -> list[str]:
    """Put back the values of the last entry that has them, and sign the row. Returns the names of the values that were
    different. An entry records them. If `is_steward_only` is set, it stays set, and is named.

    Raises TrailChanged if the trail was altered, and the errors of a silo that cannot be opened.
    """
    with one_snapshot():
        [wrapped] = Agent.objects.select_for_update().filter(pk=pk).values_list("wrapped_key", flat=True)
        rows = intact(pk, lambda row: isinstance(row, dict), 1, 2**63 - 1)  # SQL could show each query other rows
        names, erased = {row["agent_label"] for row in rows}, any(row["operation"] == Operation.ERASED for row in rows)
        if names != {label} or (wrapped and erased):
            raise TrailChanged(_WITH_TRAIL.format(label, label))
        if erased and is_dry_run:
            return []  # nobody can open its entries, and there is no content that the values could give to somebody
        head = tuple(rows[-1][name] for name in ("seq", "mac", "at"))
        silo = Agent(pk=pk, wrapped_key=bytes(wrapped))
        silo.is_proven = True  # only to open the entry
        values = trail_view.authority_of(silo, [row for row in rows if row["operation"] in authority.OPERATIONS][-1])
        fields: dict[str, Any] = {name: Agent._meta.get_field(name) for name in authority.VALUES}
        # An entry of an earlier release lacks the newest values. They had their defaults then.
        right = {name: field.to_python(values.get(name, field.get_default())) for name, field in fields.items()}
        right |= dict(zip(_HEAD, head, strict=True))
        right["redacted_seq"] = max((row["seq"] for row in rows if row["operation"] == Operation.REDACTED), default=0)
        wrong = [name for name, value in right.items() if not _has(pk, name, value)]
        right["is_steward_only"] |= not _has(pk, "is_steward_only", False)  # only the agent's side clears it
        if guards.changed():  # a view or a policy could show each query other rows
            raise TrailChanged(_WITH_TRAIL.format(label, label))
        if is_dry_run or (not wrong and authority.is_signed(Agent.objects.get(pk=pk))):
            return wrong
        Agent.objects.filter(pk=pk).update(**right)
        agent = Agent.objects.select_related("tenant").get(pk=pk)
        for name, value in (right | {"wrapped_key": silo.wrapped_key}).items():
            setattr(agent, name, value)  # a hidden trigger may have stored another value
        authority.sign(agent)
        agent.save(update_fields=authority.SIGNATURE)
        with edits.begin(agent, Operation.AGENT_CHANGED, Actor.operator("repair_authority"), is_notice=True) as edit:
            edit.detail = {"changed": {}, "repaired": wrong}
            edit.finish(always=True)
        return wrong


def _has(pk: int, name: str, value: Any) -> bool:
    """Whether the row has this value. A value of a wrong type is another value."""
    with ill_formed():
        now = Agent.objects.values_list(name, flat=True).get(pk=pk)
        return isinstance(now, str) == isinstance(value, str) and bool(authority.plain(now) == authority.plain(value))
    return False
