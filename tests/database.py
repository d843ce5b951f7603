"""Which tests have the marker `database`: PostgreSQL runs these too (`.ci/run`), and SQLite runs all.

A test has the marker if the database's vendor can change its result. It tests one of these:

- locks, races and threads, or processes that are killed or stopped;
- transactions, savepoints, triggers, SQL written by hand, constraints, migrations, the number of queries;
- random or hostile operations and texts against what is stored: the store, the trail, its verification, Time Machine,
  consent, removal, sessions, switches, the vault, search;
- lookups that the vendors do in different ways: in JSON, in bytes, by the order of dates, over groups and windows;
- what the database itself says or keeps when something fails (tests/privacy).

All other tests reach the database through Django's ordinary methods. A test with the marker `postgresql` has the marker
`database` in any case.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent

FOLDERS = ("consent", "fault", "jobs")
ELSEWHERE = {  # in those folders
    "fault/test_batches.py",
    "fault/test_models.py",
    "fault/test_refinement.py",
}
FILES = {
    *(f"admin/test_{name}.py" for name in ("joining", "overview", "people", "scope", "withdrawing")),
    *(
        f"api/test_{name}.py"
        for name in ("api_queries", "daily_share", "ended_keys", "keys", "recordings", "schemathesis", "served")
    ),
    *(
        f"commands/test_{name}.py"
        for name in ("attacks", "export_granted", "import", "refine", "removal", "rollback", "rotate", "verify_audit")
    ),
    "commands/gc/test_silo.py",
    "moving/test_growing.py",
    "moving/test_migrating.py",
    *(
        f"privacy/test_{name}.py"
        for name in ("marker", "marker_api", "marker_consent", "marker_recording", "plugin", "queue")
    ),
    *(
        f"property/test_{name}.py"
        for name in (
            *("agreed", "consent", "keys", "proposals", "search_api", "sessions"),
            *("silo", "store", "switches", "time_machine", "undone", "vault"),
        )
    ),
    *(
        f"rules/test_{name}.py"
        for name in ("cleanup", "overdue", "quiet_sessions", "recorded_sessions", "retrieval", "use_is_shown")
    ),
    *(
        f"unit/test_{name}.py"
        for name in (
            *("access", "allowance", "asking_limits", "by_agent", "checks", "consent", "consent_growth"),
            *("duplicates", "editing", "ended_grants", "erasure", "grant_tokens"),
            *("guards", "guards_migrations", "guards_redaction", "heads", "health", "indexes"),
            "bulk",
            *("letters", "line", "line_room", "logged_in_a_file", "metrics", "patience", "proposals", "providers"),
            *("queries", "queue", "read_notices", "redaction", "requests", "roles", "rowset", "schedule", "session"),
            *("silo", "store_consolidate", "store_discard", "store_promote", "store_protect", "store_refusals"),
            *("store_remember", "store_revise", "taken_back", "time_machine", "trail", "traps", "turns"),
            *("verify", "verify_entries", "verify_forms", "verify_memories", "verify_redacted"),
        )
    ),
    *(f"vault/test_{name}.py" for name in ("begun_anew", "neighbours", "owed", "owner", "paths", "storing")),
}


def is_marked(file: Path) -> bool:
    """Whether the tests of this file have the marker."""
    name = file.relative_to(ROOT).as_posix()
    return name in FILES or (name.split("/")[0] in FOLDERS and name not in ELSEWHERE)


def missing() -> list[str]:
    """Files that the lists above name and that do not exist."""
    return sorted(name for name in FILES | ELSEWHERE if not (ROOT / name).is_file())
