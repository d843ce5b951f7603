"""Which answer names what which operation takes: the schema's links, by which a client, or a test, goes on."""

from __future__ import annotations

from typing import Any

_MEMORY = ("memories_read", "memories_revise", "memories_discard", "memories_restore")
_SESSION = ("sessions_read", "sessions_briefing", "sessions_call", "sessions_abort")
_AGENT = ("agents_read", "agents_change", "agents_key_issue")
_ACCESS = ("access_requests_approve", "access_requests_deny", "grants_revoke")
_PROPOSAL = ("proposals_accept", "proposals_decline")
_REMOVAL = ("removal_requests_read", "removal_requests_agree", "removal_requests_decline")

# (operation, status) → (parameter of the next, where its value stands in the answer, the next operations)
_FROM: dict[tuple[str, str], list[tuple[str, str, tuple[str, ...]]]] = {
    ("memories_create", "201"): [("number", "/id", _MEMORY)],
    ("memories_create_batch", "201"): [("number", "/results/0/id", _MEMORY)],
    ("memories_list", "200"): [("number", "/results/0/id", _MEMORY), ("cursor", "/next", ("memories_list",))],
    ("memories_search", "200"): [("number", "/results/0/id", _MEMORY)],
    ("memories_retrieve", "200"): [("number", "/results/0/id", _MEMORY)],
    ("cleanup_list", "200"): [("number", "/suggestions/0/id", _MEMORY)],
    ("cleanup_decide", "200"): [("number", "/discarded/0", ("memories_restore",))],
    ("memories_revise", "200"): [("seq", "/version", ("audit_read",))],
    ("sessions_open", "201"): [("number", "/id", _SESSION)],
    ("runs_log", "201"): [("number", "/id", ("memories_read",))],
    ("recordings_create", "201"): [
        ("number", "/id", ("memories_read",)),
        ("name", "/session", ("recorded_sessions_end",)),
    ],
    ("vault_read", "200"): [("number", "/differences/0/id", _MEMORY)],
    ("gc_reports_list", "200"): [("number", "/results/0/id", ("gc_reports_read",))],
    ("sessions_list", "200"): [("number", "/results/0/id", _SESSION)],
    ("sessions_read", "200"): [("number", "/id", _SESSION[1:])],
    ("agent_read", "200"): [("seq", "/audit_seq", ("audit_read",))],
    ("audit_list", "200"): [("seq", "/results/0/seq", ("audit_read",)), ("cursor", "/next", ("audit_list",))],
    ("audit_read", "200"): [("number", "/results/0/id", ("memories_read",))],
    ("access_requests_list", "200"): [
        ("number", "/results/0/number", _ACCESS),
        ("cursor", "/next", ("access_requests_list",)),
    ],
    ("access_requests_approve", "200"): [("number", "/number", ("grants_revoke",))],
    ("content_reads_list", "200"): [("seq", "/results/0/seq", ("audit_read",))],
    ("proposals_list", "200"): [("number", "/results/0/number", _PROPOSAL), ("cursor", "/next", ("proposals_list",))],
    ("removal_requests_list", "200"): [
        ("number", "/results/0/number", _REMOVAL),
        ("cursor", "/next", ("removal_requests_list",)),
    ],
    ("agents_create", "201"): [("slug", "/agent", _AGENT)],
    ("agents_list", "200"): [("slug", "/results/0/agent", _AGENT)],
}


def of(operation_id: str, status: str) -> dict[str, Any]:
    """The links of an operation's answer, by name."""
    links = {
        f"{following}_by_{parameter}": {"operationId": following, "parameters": {parameter: f"$response.body#{place}"}}
        for parameter, place, followings in _FROM.get((operation_id, status), ())
        for following in followings
    }
    if (operation_id, status) == ("agents_create", "201"):
        named = {"slug": "$response.body#/agent", "prefix": "$response.body#/prefix"}
        links["agents_key_revoke"] = {"operationId": "agents_key_revoke", "parameters": named}
    if (operation_id, status) == ("agents_key_issue", "201"):
        named = {"slug": "$request.path.slug", "prefix": "$response.body#/prefix"}
        links["agents_key_revoke"] = {"operationId": "agents_key_revoke", "parameters": named}
    return links
