"""What is said to who is new here: what to do where a list is empty, by what it lists."""

from __future__ import annotations

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
