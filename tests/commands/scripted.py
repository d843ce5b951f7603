"""A ledger, and what the scripted model `tidy` makes of it (tests/model_server.py), to the last figure."""

from __future__ import annotations

import math
from typing import Any

from tests.privacy.marker import MARKER

_BIRDS = ("a heron", "two coots", "some swans", "a grebe", "one bittern", "a kingfisher", "many gulls")

# The fifth is said twice, the seventh is of the log. Numbers are lines.
LEDGER: list[dict[str, Any]] = [
    {"content": f"{MARKER} likes her tea with lemon", "created_at": "2026-01-05T10:00:00Z", "tags": ["tea"]},
    {"content": f"{MARKER} walks to the harbour on Sundays", "created_at": "2026-01-06T10:00:00Z", "tags": ["walk"]},
    {"content": f"{MARKER} keeps keeps keeps the spare key under the blue pot", "created_at": "2026-01-07T10:00:00Z"},
    {"content": f"{MARKER} once meant to paint the shed", "created_at": "2026-01-08T10:00:00Z"},
    {"content": f"{MARKER} promised to call her sister", "created_at": "2026-01-09T10:00:00Z"},
    {"content": f"{MARKER} promised to call her sister", "created_at": "2026-01-10T10:00:00Z"},
    {"content": f"{MARKER} spoke with the plumber", "created_at": "2026-01-11T10:00:00Z", "kind": "journal"},
    *({"content": f"{MARKER} saw {bird}", "created_at": "2026-02-01T10:00:00Z"} for bird in _BIRDS),
]
MERGED = f"{LEDGER[0]['content']} {LEDGER[1]['content']}"
TIGHTENED = f"{MARKER} keeps the spare key under the blue pot"
NEW, NOTICE = 15, 16  # numbers of the merged memory and of the session's notice
_CORE = [number for number in range(1, len(LEDGER) + 1) if number not in (6, 7)]


def tokens(text: str) -> int:
    return math.ceil(len(text) / 4)


def figures(told: dict[str, Any]) -> None:
    """Assert that `refine --json` told what the script implies, under exactly the promised keys."""
    repeated = tokens(LEDGER[5]["content"])
    before = sum(tokens(LEDGER[number - 1]["content"]) for number in _CORE) + repeated
    rest = sum(tokens(LEDGER[number - 1]["content"]) for number in _CORE if number > 4)
    measured = ("prompt_tokens", "completion_tokens", "model_seconds", "own_seconds")
    assert all(told[name] >= 0 for name in measured)
    assert told["prompt_tokens"] > 0
    assert {name: value for name, value in told.items() if name not in measured} == {
        "session": 1,
        "outcome": "completed",
        "reason": "",
        "tokens_before": before,
        "tokens_after": tokens(MERGED) + tokens(TIGHTENED) + rest,
        "memories_before": 13,
        "memories_after": 10,
        "repeated_tokens": repeated,
        "duplicates_removed": 1,
        "merged": 2,
        "updated": 1,
        "deleted": 1,
        "protected": 1,
        "promoted": 0,
        "refused": 0,
        "model_calls": 2,
        "cached_tokens": 0,
        "error": None,
    }


def outcome(exported: list[dict[str, Any]]) -> None:
    """Assert that the silo, exported with what is discarded, is as the script leaves it."""
    after = {row["id"]: row for row in exported}
    assert list(after) == list(range(1, NOTICE + 1))
    assert (after[NEW]["content"], after[NEW]["kind"]) == (MERGED, "core")
    assert (after[NEW]["origin"], after[NEW]["tags"]) == ("2026-01-05T10:00:00Z", ["tea", "walk"])
    discarded = {number: row["superseded_by"] for number, row in after.items() if row["discarded_at"]}
    assert discarded == {1: NEW, 2: NEW, 4: None, 6: 5}
    assert after[3]["content"] == TIGHTENED
    assert [number for number, row in after.items() if row["constitutional"]] == [5]
    for number in (5, *range(7, 15)):
        assert after[number]["content"] == LEDGER[number - 1]["content"]
        assert after[number]["origin"] == LEDGER[number - 1]["created_at"]
    told = after[NOTICE]
    assert told["kind"] == "journal"
    assert "Compressed 13 → 10 core memories" in told["content"]
    assert "merged 2, rewrote 1, deleted 1, promoted 0; protected 1" in told["content"]
    assert "Merged, tightened, discarded and protected one each." in told["content"]
