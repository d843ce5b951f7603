"""The demo's ledger: its labels are true, and `builtin/dedupe` does on it what the labels say."""

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from refinement import demo
from refinement.llm.base import Message, Request, Tool
from refinement.llm.dedupe import Dedupe
from refinement.similarity import near_groups, similar

FOLDER = Path(demo.__file__).parent


@cache
def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / "ledger.jsonl").read_text(encoding="utf-8").splitlines()]


@cache
def plan() -> dict[str, Any]:
    return json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))


def content(number: int) -> str:
    return rows()[number - 1]["content"]


def tokens(number: int) -> int:
    return math.ceil(len(content(number)) / 4)


def is_core(number: int) -> bool:
    return rows()[number - 1].get("kind", "core") == "core"


def place(number: int) -> tuple[Any, ...]:
    return tuple(rows()[number - 1].get(key) for key in ("kind", "category", "project"))


def after_exact() -> list[int]:
    """The core memories that a session begins with: of equal ones the earliest."""
    later = {number for group in plan()["exact"] for number in group[1:]}
    return [number for number in range(1, len(rows()) + 1) if is_core(number) and number not in later]


@cache
def merged() -> list[tuple[list[int], str]]:
    """What `builtin/dedupe` asks to merge, in its first reply: line numbers and the wording kept."""
    ledger = "\n".join(
        json.dumps({"id": n, "tokens": tokens(n), "constitutional": n in plan()["protect_before"]} | rows()[n - 1])
        for n in after_exact()
    )
    tools = tuple(Tool(name, "", {}) for name in ("consolidate_memories", "complete_refinement"))
    reply = Dedupe().complete(Request("dedupe", (Message("user", ledger),), tools))
    return [
        (call.arguments["ids_to_merge"], call.arguments["new_content"]) for call in reply.tool_calls if call.arguments
    ]


def test_exact_groups_are_equal_and_complete() -> None:
    for group in plan()["exact"]:
        assert len({content(number) for number in group}) == len({place(number) for number in group}) == 1
    different = {content(number) for number in range(1, len(rows()) + 1)}
    assert len(rows()) - len(different) == sum(len(group) - 1 for group in plan()["exact"])


def test_look_alikes_look_alike_and_differ() -> None:
    for pair in plan()["look_alikes"]:
        one, other = map(content, pair)
        assert similar(one, other) > 0.9
        assert near_groups([one, other]) == []
        assert place(pair[0]) == place(pair[1])


def test_planted_clusters_are_merged_whole() -> None:
    wanted, found = set(_pairs(plan()["near"])), set(_pairs([ids for ids, _ in merged()]))
    assert len(found & wanted) >= 0.8 * len(wanted)  # the others have a phrase at another place
    assert found <= wanted


def test_no_look_alikes_are_merged() -> None:
    found = set(_pairs([ids for ids, _ in merged()]))
    assert found.isdisjoint(_pairs(plan()["look_alikes"]))


def test_the_core_shrinks_noticeably() -> None:
    before = sum(tokens(n) for n in range(1, len(rows()) + 1) if is_core(n))
    gone = {number for ids, _ in merged() for number in ids}
    after = sum(tokens(n) for n in after_exact() if n not in gone) + sum(
        math.ceil(len(kept) / 4) for _, kept in merged()
    )
    assert before > 8_000 > 6_000 > after


def _pairs(groups: list[list[int]]) -> Iterator[tuple[int, int]]:
    for group in groups:
        yield from combinations(sorted(group), 2)
