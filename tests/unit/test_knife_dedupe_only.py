"""The mode that removes near-duplicates only: a memory may go while one that says as much stays."""

from __future__ import annotations

import pytest

from memory.models import Agent, Kind
from memory.writing import operations
from refinement.models import Mode
from tests.refining import Held, fill, opened, protected, refused
from tests.steps import ME, active, remember

PLAIN = "The tomatoes on the balcony need water every evening."
FULLER = "The tomatoes on the balcony really need water every evening."
OTHER_NUMBER = "The 3 tomatoes on the balcony need water every evening."


def only(agent: Agent) -> Held:
    fill(agent, 10, 20)
    return opened(agent, mode=Mode.DEDUPE_ONLY)


def test_a_near_duplicate_can_be_deleted(ada: Agent) -> None:
    [going, _] = remember(ada, PLAIN, FULLER)
    assert only(ada).call("delete_memory", id=going)["ok"]


def test_a_memory_without_a_double_cannot(ada: Agent) -> None:
    [only_one] = remember(ada, PLAIN)
    refused(only(ada), "no_double", "delete_memory", {"id": only_one})


def test_the_last_of_two_cannot(ada: Agent) -> None:
    first, second = remember(ada, PLAIN, f"{PLAIN} ")
    held = only(ada)
    assert [held.call("delete_memory", id=n)["ok"] for n in (first, second)].count(True) == 1


def test_the_fuller_of_two_cannot_go_for_the_poorer(ada: Agent) -> None:
    [_, fuller] = remember(ada, PLAIN, FULLER)
    refused(only(ada), "no_double", "delete_memory", {"id": fuller})


@pytest.mark.parametrize("other", [OTHER_NUMBER, PLAIN.replace("need", "do not need"), PLAIN.replace("every", "no")])
def test_a_look_alike_is_no_double(ada: Agent, other: str) -> None:
    first, second = remember(ada, PLAIN, other)
    held = only(ada)
    refused(held, "no_double", "delete_memory", {"id": first})
    refused(held, "no_double", "delete_memory", {"id": second})


def test_a_double_in_another_project_does_not_count(ada: Agent) -> None:
    [here] = remember(ada, PLAIN, project="shop")
    remember(ada, PLAIN, project="blog")
    refused(only(ada), "no_double", "delete_memory", {"id": here})


def test_a_double_in_the_journal_does_not_count(ada: Agent) -> None:
    [here] = remember(ada, PLAIN)
    remember(ada, PLAIN, kind=Kind.JOURNAL)
    refused(only(ada), "no_double", "delete_memory", {"id": here})


def test_a_discarded_double_does_not_count(ada: Agent) -> None:
    here, gone = remember(ada, PLAIN, FULLER)
    operations.discard(ada, [gone], ME)
    refused(only(ada), "no_double", "delete_memory", {"id": here})


def test_a_constitutional_double_counts(ada: Agent) -> None:
    here, kept = remember(ada, PLAIN, FULLER)
    protected(ada, kept)
    assert only(ada).call("delete_memory", id=here)["ok"]
    assert kept in active(ada)


@pytest.mark.parametrize(
    "text",
    [
        "Run the build -fast and never -slow on the server.",
        'The sign says "keep out" in red paint on the door.',
        "Use tag:garden for notes about the garden and its beds.",
    ],
)
def test_a_double_is_found_whatever_signs_it_holds(ada: Agent, text: str) -> None:
    [here, double] = remember(ada, text, f"{text} ")
    assert only(ada).call("delete_memory", id=here)["ok"]
    assert double in active(ada)


def test_a_double_is_found_among_many_alike(ada: Agent) -> None:
    remember(ada, *(f"The tomatoes on balcony {n} need water every evening." for n in range(40)))
    [here, _] = remember(ada, PLAIN, FULLER)
    assert only(ada).call("delete_memory", id=here)["ok"]


def test_the_floor_holds_here_too(ada: Agent) -> None:
    [here, _] = remember(ada, PLAIN, FULLER)
    refused(opened(ada, mode=Mode.DEDUPE_ONLY), "floor", "delete_memory", {"id": here})


@pytest.mark.parametrize("tool", ["consolidate_memories", "update_memory", "promote_memory", "decline_refinement"])
def test_other_edits_do_not_exist(ada: Agent, tool: str) -> None:
    refused(only(ada), "unknown_tool", tool, {"id": 1, "content": "x"})


def test_searching_protecting_and_completing_do(ada: Agent) -> None:
    held = only(ada)
    assert held.call("search_memories", query="tea")["ok"]
    assert held.call("protect_memory", id=1)["ok"]
    assert held.call("complete_refinement", summary="Done.")["session"] == "completed"
