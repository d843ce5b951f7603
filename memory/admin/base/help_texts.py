"""What is told to who is new here: what a word means, by its field, and what to do where a list is empty."""

from __future__ import annotations

from refinement.limits import DEFAULTS, MAX_FLOOR_REFUSALS, MIN_DEFAULT_CHANGES

LIMITS = {  # of a session: what each bounds, and what holds where nobody has set it
    "max_changes": (
        "memories that a session discards or rewrites",
        f"{MIN_DEFAULT_CHANGES}, or half its core memories where that is more",
    ),
    "max_steps": ("replies of the model", f"{DEFAULTS['max_steps']:,}"),
    "max_searches": ("searches", f"{DEFAULTS['max_searches']:,}"),
    "max_failed_calls": ("calls that fail", f"{DEFAULTS['max_failed_calls']:,}"),
    "max_seconds": ("seconds", f"{DEFAULTS['max_seconds']:,}"),
    "max_model_tokens": ("tokens of prompts and replies", f"{DEFAULTS['max_model_tokens']:,}"),
}
WORK = {  # of a tenant: what bounds what workers do for it
    "sessions_at_once": (
        "sessions that workers run at the same time, 0 for any number",
        "TENANT_SESSIONS, which is {0}",
    ),
    "month_tokens": (
        "model tokens of its sessions in a calendar month; once they are used up, only people begin sessions",
        "MONTH_TOKENS, which is {1}",
    ),
}
HELP = {
    "high_water_tokens": "The most that its core memory ever weighed, exact repeats not counted.",
    "retention": (
        "The share of its target, or of its high water where that is less, that refinements must leave: 0.75 is three "
        "quarters."
    ),
    "breaker_state": (
        "The circuit breaker refuses each call that would cut core memory below the floor, which the agent's retention "
        "sets."
    ),
    "floor_refusals": f"Calls in a row that the circuit breaker refused; the session ends with {MAX_FLOOR_REFUSALS}.",
    "timeline": (
        "A large memory is shown in batches, one part after the other: complete_refinement ends a batch, and with the "
        "last one the session."
    ),
} | {name: f"{what}; empty: {usual}" for name, (what, usual) in LIMITS.items()}

WHEN_EMPTY = {
    "agent": "An owner or an admin of a tenant adds an agent, above. It is given a key, for its runtime.",
    "memory": "An agent's runtime remembers over the API, with the agent's key: POST /api/v1/memories.",
    "refinementsession": (
        "A session begins when an agent is due, by its date or over its budget, or asked for: Refine now, on its page."
    ),
    "auditentry": "Whatever is done to an agent is an entry here, from when it was made on. Add an agent first.",
    "accessrequest": "Nobody has asked to read anything. Ask for access on an agent's page; its side decides.",
    "agentkey": "An agent is made with its first key: add an agent, on the list of agents.",
    "tenantkey": "A key is for a program that sets up a tenant's agents and watches them. Make one above.",
    "membership": "Nobody has a part here. Invite somebody, above.",
    "invitation": "Invite somebody, above: a link is made, good for one use within 72 hours.",
    "person": "Invite somebody, above.",
    "tenant": "Add a tenant, above; then invite its first owner, and add its first agent.",
}
