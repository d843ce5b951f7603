"""What each operation is asked and answers, by example: shown on the API's page, and sent by its tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from drf_spectacular.utils import OpenApiExample

from memory.policy.settings_document import DEFAULTS

_KEY = "pal_k3v9x1m7q2aa_aVeryLongSecretThatIsShownOnceAndKeptByNobody"
_AGENT: dict[str, Any] = {
    "tenant": "acme",
    "agent": "ada",
    "model": "builtin/dedupe",
    "language": "english",
    "retention": "0.75",
    "has_steward": False,
    "is_steward_only": False,
    "discard_share_lifted_until": None,
    "is_erased": False,
    "memory_enabled": True,
    "paused": False,
    "usage": {
        "tokens": 7_286,
        "budget": 8_000,
        "target": 5_000,
        "memories": 324,
        "journal": 12,
        "constitutional": 2,
        "duplicate_tokens": 40,
    },
    "log": {"file": None, "last_n": 50, "max_entries": 0, "context_tokens": None},
    "due": "",
    "due_at": "2026-02-08T09:30:00Z",
    "last_refined_at": "2026-02-01T09:30:00Z",
    "audit_seq": 391,
    "created_at": "2026-01-02T08:00:00Z",
}
_MEMORY: dict[str, Any] = {
    "id": 1,
    "kind": "core",
    "category": "personal",
    "scope": "common",
    "project": "",
    "tags": ["ann"],
    "origin": "2026-02-01T09:30:00Z",
    "created_at": "2026-02-01T09:30:00Z",
    "tokens": 6,
    "constitutional": False,
    "content": "Ann prefers green tea.",
    "discarded_at": None,
    "superseded_by": None,
    "version": 5,
}
_VAULT = "/srv/palimpsest/vault/acme/ada"
_FILED = {"file": f"{_VAULT}/private/personal/000001.md", "no_file": None}
_NOT_FILED = {"file": None, "no_file": "no vault: run manage.py project init acme/ada --vault"}
_REMEMBER = {"content": "Ann prefers green tea.", "tags": ["ann"]}
_REPORT: dict[str, Any] = {
    "id": 1,
    "at": "2026-02-01T09:30:00Z",
    "model": "openai/gpt-4.1",
    "entries": 10,
    "left_out": 0,
    "is_withdrawn": False,
    "patterns_found": "Questions about the ferry come every Monday.",
    "repeated_work": "",
    "recommendations": "Keep the timetable as a core memory.",
    "missing": ["Repeated Work"],
    "text": "## Patterns Found\nQuestions about the ferry come every Monday.\n\n"
    "## Recommendations\nKeep the timetable as a core memory.",
}
_RECORDING: dict[str, Any] = {
    "id": 13,
    "session": "20260201-093000",
    "kind": "statement",
    "significance": "medium",
    "masked": 0,
    "skipped": None,
    **_NOT_FILED,
}
_SESSION: dict[str, Any] = {
    "id": 3,
    "driver": "runtime",
    "mode": "full",
    "trigger": "agent",
    "model": "builtin/dedupe",
    "outcome": "open",
    "reason": "",
    "opened_at": "2026-02-01T09:30:00Z",
    "closed_at": None,
    "undone_by": None,
    "lease_until": "2026-02-01T09:40:00Z",
    "budget_tokens": 8_000,
    "target_tokens": 5_000,
    "floor_tokens": 5_464,
    "tokens_before": 7_286,
    "tokens_after": 7_250,
    "memories_before": 324,
    "memories_after": 322,
    "repeated_tokens": 36,
    "duplicates_removed": 2,
    "batch": 0,
    "batches": 1,
    "steps": 0,
    "max_steps": 100,
    "changes": 0,
    "max_changes": 300,
    "merged": 0,
    "updated": 0,
    "deleted": 0,
    "protected": 0,
    "promoted": 0,
}
_ENTRY: dict[str, Any] = {
    "seq": 5,
    "at": "2026-02-01T09:30:00Z",
    "actor_kind": "agent",
    "actor": "k3v9x1m7q2aa",
    "operation": "remembered",
    "session": None,
    "changes": 1,
    "detail": {},
}
_STATE = {
    "kind": "core",
    "category": "personal",
    "scope": "common",
    "project": "",
    "tokens": 6,
    "constitutional": False,
    "origin": "2026-02-01T09:30:00Z",
    "discarded_at": None,
    "superseded_by": None,
    "content": "Ann prefers green tea.",
    "tags": ["ann"],
}
_ASKED: dict[str, Any] = {
    "number": 7,
    "person": "pat@acme.example",
    "purpose_in_their_words": "To see why it forgot the customer who called on Monday.",
    "scope": {"covers": "memories", "memories": [1, 4], "session": None, "first": None, "last": None},
    "seconds": 3_600,
    "state": "requested",
    "asked_at": "2026-02-01T09:30:00Z",
    "decide_until": "2026-02-04T09:30:00Z",
    "decided_at": None,
    "decided_by": "",
    "until": None,
    "ended_at": None,
}
_DECIDED = {"decided_at": "2026-02-01T09:40:00Z", "decided_by": "agent"}
_GRANTED = _ASKED | _DECIDED | {"state": "active", "until": "2026-02-01T10:40:00Z"}
_PROPOSED: dict[str, Any] = {
    "number": 9,
    "proposer_kind": "person",
    "proposer": "pat@acme.example",
    "proposed": {
        "model": "openai/gpt-4.1",
        "steward": None,
        "is_steward_only": None,
        "memory_path": None,
        "vault_path": None,
    },
    "state": "open",
    "asked_at": "2026-02-01T09:30:00Z",
    "decide_until": "2026-02-04T09:30:00Z",
    "decided_at": None,
    "decided_by": "",
}
_REMOVAL: dict[str, Any] = {
    "number": 11,
    "removes": "memories",
    "memories": [1],
    "reason_in_their_words": "request 2026-114",
    "asker_kind": "person",
    "asked_by": "jo@acme.example",
    "state": "open",
    "asked_at": "2026-02-01T09:30:00Z",
    "decided_at": None,
    "decided_by": "",
}
_REMOVES = {
    "memories": 1,
    "constitutional": [],
    "changes": 2,
    "related": [{"id": 3, "why": "merged", "state": "active"}],
    "former_vaults": [],
}
_READ = {
    "seq": 12,
    "at": "2026-02-01T09:45:00Z",
    "person": "pat@acme.example",
    "grant": 7,
    "memories": [1],
    "entry": None,
    "gc_report": None,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "delete_memory",
        "description": "Discard a memory.",
        "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    },
}
_LINE = '{"content": "Ann prefers green tea.", "tags": ["ann"]}\n'
_SUGGESTED: dict[str, Any] = {
    "id": 1,
    "version": 390,
    "category": "technical",
    "project": "",
    "age_days": 120,
    "retention_days": 90,
    "importance": "low",
    "tokens": 6,
    "recalled": 0,
    "reason": "120 days old, where 90 are suggested; never recalled",
}
_RETRIEVED = "# What you remember of this\n- Ann prefers green tea.\n"
_BLOCK = "# What you remember\n- Ann prefers green tea.\n"


@dataclass(frozen=True)
class Example:
    """A body to send, where there is one, and what comes back, by status."""

    request: Any = None
    answers: dict[int, Any] = field(default_factory=dict)
    media_type: str = "application/json"  # of the request


BY_OPERATION = {
    "agent_read": Example(answers={200: _AGENT}),
    "agent_change": Example({"retention": "0.80", "refinement_prompt": "Keep names."}, {200: _AGENT}),
    "agent_key_issue": Example({"exchange": True, "label": "laptop"}, {201: {"key": _KEY, "prefix": "k3v9x1m7q2aa"}}),
    "context_read": Example(
        answers={200: {"core": [_MEMORY], "journal": [], "tokens": 6, "left_out": 0, "left_out_tokens": 0}}
    ),
    "memories_list": Example(answers={200: {"results": [_MEMORY], "next": "1"}}),
    "memories_create": Example(_REMEMBER, {201: _MEMORY | _FILED}),
    "memories_create_batch": Example({"memories": [_REMEMBER]}, {201: {"results": [_MEMORY | _FILED]}}),
    "memories_read": Example(answers={200: _MEMORY}),
    "memories_revise": Example({"content": "Ann prefers green tea to black."}, {200: _MEMORY}),
    "memories_discard": Example(),
    "memories_restore": Example(answers={200: _MEMORY}),
    "memories_search": Example(
        {"q": '"green tea" -black tag:ann', "limit": 5}, {200: {"results": [_MEMORY | {"score": 1.25}]}}
    ),
    "memories_retrieve": Example(
        {"query": "what does Ann drink", "project": "acme/shop", "max_tokens": 500},
        {200: {"results": [_MEMORY | {"score": 1.25, "recalled": 3}], "block": _RETRIEVED, "tokens": 6, "left_out": 0}},
    ),
    "cleanup_list": Example(answers={200: {"suggestions": [_SUGGESTED], "more": 0, "kept_back": 2}}),
    "cleanup_decide": Example(
        {"keep": [4], "discard": [1], "expect": [{"id": 1, "version": 390}]},
        {200: {"kept": [4], "discarded": [1], "entry": 392}},
    ),
    "vault_read": Example(
        answers={
            200: {
                "path": _VAULT,
                "is_there": True,
                "is_behind": False,
                "fault": "",
                "differences": [{"id": 3, "kind": "edited", "path": "common/technical/000003.md"}],
                "unknown": 0,
                "next": None,
            }
        }
    ),
    "runs_log": Example(
        {"task": "Answer the harbour's question", "result": "The ferry leaves at 14:30."}, {201: {"id": 12}}
    ),
    "gc_reports_list": Example(answers={200: {"results": [_REPORT], "next": None}}),
    "gc_reports_read": Example(answers={200: _REPORT}),
    "rules_read": Example(answers={200: DEFAULTS}),
    "recordings_create": Example(
        {"prompt": "From now on always use tabs.", "response": "I will.", "topic": "Style", "requested": True},
        {201: _RECORDING, 200: dict.fromkeys(_RECORDING) | {"masked": 0, "skipped": "recording_off"}},
    ),
    "recorded_sessions_end": Example({"goal": "one style"}, {200: {"id": 14, **_NOT_FILED}}),
    "sessions_list": Example(answers={200: {"results": [_SESSION], "next": None}}),
    "sessions_open": Example({"driver": "runtime"}, {201: _SESSION, 202: _AGENT | {"due": "agent"}}),
    "sessions_read": Example(answers={200: _SESSION}),
    "sessions_briefing": Example(
        answers={
            200: {
                "messages": [
                    {"role": "system", "content": "You refine your own memory."},
                    {"role": "user", "content": '{"id": 1, "content": "Ann prefers green tea."}'},
                ],
                "tools": [_TOOL],
                "batch": 1,
                "batches": 1,
            }
        }
    ),
    "sessions_call": Example(
        {"arguments": {"id": 1}, "reply": "1-0"},
        {
            200: {
                "ok": True,
                "code": "",
                "result": {"ok": True, "discarded": 1},
                "session_ended": False,
                "batch_done": False,
            }
        },
    ),
    "sessions_abort": Example({"reason": "shutting down"}, {200: _SESSION | {"outcome": "incomplete"}}),
    "audit_list": Example(answers={200: {"results": [_ENTRY], "next": "5"}}),
    "audit_read": Example(
        answers={
            200: _ENTRY | {"note": "", "results": [{"id": 1, "before": None, "after": _STATE}], "next": None},
        }
    ),
    "access_requests_list": Example(answers={200: {"results": [_ASKED], "next": None}}),
    "access_requests_approve": Example(answers={200: _GRANTED}),
    "access_requests_deny": Example(answers={200: _ASKED | _DECIDED | {"state": "denied"}}),
    "grants_revoke": Example(answers={200: _GRANTED | {"state": "revoked", "ended_at": "2026-02-01T09:50:00Z"}}),
    "content_reads_list": Example(answers={200: {"results": [_READ], "next": None}}),
    "proposals_list": Example(answers={200: {"results": [_PROPOSED], "next": None}}),
    "proposals_accept": Example(answers={200: _PROPOSED | _DECIDED | {"state": "accepted"}}),
    "proposals_decline": Example(answers={200: _PROPOSED | _DECIDED | {"state": "declined"}}),
    "removal_requests_list": Example(answers={200: {"results": [_REMOVAL], "next": None}}),
    "removal_requests_read": Example(answers={200: _REMOVAL | {"would_remove": _REMOVES}}),
    "removal_requests_agree": Example(
        {"include_constitutional": False}, {200: _REMOVAL | _DECIDED | {"state": "carried_out"}}
    ),
    "removal_requests_decline": Example(answers={200: _REMOVAL | _DECIDED | {"state": "declined"}}),
    "export": Example(answers={200: _LINE}),
    "import": Example(
        _LINE,
        {201: {"imported": 1, "tokens": 6, "discarded": 0, "constitutional": 0, "ignored": []}},
        "application/x-ndjson",
    ),
    "agents_list": Example(answers={200: {"results": [_AGENT], "next": None}}),
    "agents_create": Example(
        {"agent": "eve", "model": "builtin/dedupe", "budget_tokens": 9_000},
        {201: _AGENT | {"agent": "eve", "key": _KEY, "prefix": "k3v9x1m7q2aa"}},
    ),
    "agents_read": Example(answers={200: _AGENT}),
    "agents_change": Example({"budget_tokens": 9_000, "paused": False}, {200: _AGENT}),
    "agents_key_issue": Example({"label": "laptop"}, {201: {"key": _KEY, "prefix": "k3v9x1m7q2aa"}}),
    "agents_key_revoke": Example(),
}
_TEXT = {"export": "application/x-ndjson"}
_FORMS: dict[str, dict[str, Any]] = {  # in which the answer may come, too
    "context_read": {"text/plain": _BLOCK},
    "export": {
        "application/json": {"results": [{"id": "…", "memory": "Ada drinks green tea.", "categories": []}]},
        "text/markdown": "## 2026-02-01T09:30:00Z\n**Task:** (none)\n**Result:** Ada drinks green tea.\n\n",
        "application/gzip": "the bytes of a tar archive",
    },
}
_SENT: dict[str, dict[str, Any]] = {  # in which a body may come, too
    "import": _FORMS["export"],
}


def of(operation_id: str) -> Iterator[OpenApiExample]:
    """Its examples, as the schema takes them. An operation without an entry here is refused by the schema's test."""
    example = BY_OPERATION.get(operation_id, Example())
    if example.request is not None:
        yield OpenApiExample("request", example.request, request_only=True, media_type=example.media_type)
    for status, answer in example.answers.items():
        yield OpenApiExample(
            f"answer {status}",
            answer,
            response_only=True,
            status_codes=[str(status)],
            media_type=_TEXT.get(operation_id, "application/json"),
        )
    for kind, text in _SENT.get(operation_id, {}).items():
        yield OpenApiExample(f"request {kind}", text, request_only=True, media_type=kind)
    for kind, text in _FORMS.get(operation_id, {}).items():
        yield OpenApiExample(kind, text, response_only=True, status_codes=["200"], media_type=kind)
