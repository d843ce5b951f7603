"""Help texts of fields, and texts that say what to do when a list is empty."""

from refinement.limits import DEFAULTS, MAX_FLOOR_REFUSALS, MIN_DEFAULT_CHANGES

LIMITS = {  # of a session
    "max_changes": "how many memories a session may discard, demote, promote or rewrite",
    "max_steps": "how many replies of the model a session may have",
    "max_searches": "how many searches a session may make",
    "max_failed_calls": "how many calls may fail in a session",
    "max_seconds": "how many seconds a session may last",
    "max_model_tokens": "how many tokens the prompts and replies of a session may have",
}
USUAL = {name: f"{default:,}" for name, default in DEFAULTS.items()}  # the service's defaults
USUAL["max_changes"] = f"{MIN_DEFAULT_CHANGES}, or twice the number of core memories if that is more"
WORK = {  # limits of what workers do for a tenant
    "sessions_at_once": "how many sessions of the tenant may run in workers at the same time; 0 means no limit",
    "month_tokens": "model tokens of the tenant in a calendar month; after that, only a person can start a session",
}
HELP_TEXTS = {
    "instruction_tokens": "Imported instructions. They are not refined, and not in core tokens.",
    "high_water_tokens": "The largest size of core memory so far, without exact duplicates.",
    "retention": "The share that refinement must keep, of the target, or of the high-water mark if that is lower.",
    "breaker_state": "The circuit breaker refuses calls that would cut core memory below the floor.",
    "floor_refusals": f"How many calls in a row the circuit breaker refused. {MAX_FLOOR_REFUSALS} end the session.",
    "timeline": "The model gets a large memory in batches. The call complete_refinement ends each of them.",
} | {name: f"{what}; default: {USUAL[name]}" for name, what in LIMITS.items()}

EMPTY_TEXTS = {
    "agent": "An owner or admin of a tenant adds an agent with the button above. The agent's runtime receives a key.",
    "memory": "An agent's runtime stores memories over the API, with the agent's key: POST /api/v1/memories.",
    "refinementsession": "A session starts when an agent is due. To start one now, use Refine now on an agent's page.",
    "auditentry": "This list has an entry for everything that happens to an agent. Add an agent first.",
    "accessrequest": "Nobody has asked to read memories. To ask, use Ask for access on an agent's page.",
    "agentkey": "An agent gets its first key when you add it. To add an agent, go to the list of agents.",
    "tenantkey": "Programs use these keys to set up and monitor a tenant's agents. Create a key with the button above.",
    "membership": "No members yet. Invite somebody with the button above.",
    "invitation": "Invite somebody with the button above. The link works once, within 72 hours.",
    "person": "Invite somebody with the button above.",
    "tenant": "Add a tenant with the button above. Then invite its first owner and add its first agent.",
}
