"""Help texts of fields, and what to do when a list is empty."""

from __future__ import annotations

from refinement.limits import DEFAULTS, MAX_FLOOR_REFUSALS, MIN_DEFAULT_CHANGES

LIMITS = {  # of a session: what each one limits, and its default
    "max_changes": (
        "memories that a session may discard or rewrite",
        f"{MIN_DEFAULT_CHANGES}, or half of the core memories if that is more",
    ),
    "max_steps": ("replies of the model", f"{DEFAULTS['max_steps']:,}"),
    "max_searches": ("searches", f"{DEFAULTS['max_searches']:,}"),
    "max_failed_calls": ("failed calls", f"{DEFAULTS['max_failed_calls']:,}"),
    "max_seconds": ("seconds", f"{DEFAULTS['max_seconds']:,}"),
    "max_model_tokens": ("tokens of prompts and replies", f"{DEFAULTS['max_model_tokens']:,}"),
}
WORK = {  # limits of what workers do for a tenant, and their defaults
    "sessions_at_once": (
        "sessions that workers run at the same time; 0: no limit",
        "the setting TENANT_SESSIONS, now {0}",
    ),
    "month_tokens": (
        "model tokens per calendar month; when they are used up, sessions start only when a person requests them",
        "the setting MONTH_TOKENS, now {1}",
    ),
}
HELP_TEXTS = {
    "high_water_tokens": "The largest size of core memory so far, without exact duplicates.",
    "retention": (
        "The share of the target that refinement must keep: 0.75 keeps at least three quarters. If the high-water mark "
        "is lower than the target, the share is of the high-water mark."
    ),
    "breaker_state": (
        "The circuit breaker refuses calls that cut core memory below the floor. The agent's retention sets the floor."
    ),
    "floor_refusals": f"Consecutive calls that the circuit breaker refused; {MAX_FLOOR_REFUSALS} end the session.",
    "timeline": (
        "The model receives a large memory in batches. complete_refinement ends a batch; after the last batch, it ends "
        "the session."
    ),
} | {name: f"{what}; empty: {usual}" for name, (what, usual) in LIMITS.items()}

EMPTY_TEXTS = {
    "agent": "An owner or admin of a tenant adds an agent with the button above. The agent's runtime receives a key.",
    "memory": "An agent's runtime stores memories over the API, with the agent's key: POST /api/v1/memories.",
    "refinementsession": (
        "A session starts when an agent is due: on its date, or over its budget. To start one, use Refine now on the "
        "agent's page."
    ),
    "auditentry": "This list has an entry for everything that happens to an agent. Add an agent first.",
    "accessrequest": "Nobody has asked to read memories. Ask for access on an agent's page; the agent's side decides.",
    "agentkey": "Every new agent has a first key. Add an agent on the list of agents.",
    "tenantkey": "Programs use these keys to set up and monitor a tenant's agents. Create one with the button above.",
    "membership": "No members yet. Invite somebody with the button above.",
    "invitation": "Invite somebody with the button above. The link works once, for 72 hours.",
    "person": "Invite somebody with the button above.",
    "tenant": "Add a tenant with the button above. Then invite its first owner and add its first agent.",
}
