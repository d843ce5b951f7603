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


def test_a_double_elsewhere_does_not_count(ada: Agent) -> None:
    """In no place, another project, the journal, or discarded."""
    alone, here = remember(ada, OTHER_NUMBER, PLAIN, project="shop")
    remember(ada, PLAIN, project="blog")
    remember(ada, PLAIN, project="shop", kind=Kind.JOURNAL)
    operations.discard(ada, remember(ada, FULLER, project="shop"), ME)
    held = only(ada)
    for number in (alone, here):
        refused(held, "no_double", "delete_memory", {"id": number})


def test_a_constitutional_double_counts(ada: Agent) -> None:
    here, kept = remember(ada, PLAIN, FULLER)
    protected(ada, kept)
    assert only(ada).call("delete_memory", id=here)["ok"]
    assert kept in active(ada)


def test_a_double_is_found_whatever_signs_it_holds(ada: Agent) -> None:
    texts = [
        "Run the build -fast and never -slow on the server.",
        'The sign says "keep out" in red paint on the door.',
        "Use tag:garden for notes about the garden and its beds.",
    ]
    going, kept = remember(ada, *texts), remember(ada, *(f"{text} " for text in texts))
    held = only(ada)
    assert all(held.call("delete_memory", id=number)["ok"] for number in going)
    assert set(kept) <= set(active(ada))


def test_a_double_is_found_among_many_alike(ada: Agent) -> None:
    remember(ada, *(f"The tomatoes on balcony {n} need water every evening." for n in range(40)))
    [here, _] = remember(ada, PLAIN, FULLER)
    assert only(ada).call("delete_memory", id=here)["ok"]


def test_the_floor_holds_here_too(ada: Agent) -> None:
    [here, _] = remember(ada, PLAIN, FULLER)
    refused(opened(ada, mode=Mode.DEDUPE_ONLY), "floor", "delete_memory", {"id": here})


def test_other_edits_do_not_exist_and_the_rest_does(ada: Agent) -> None:
    held = only(ada)
    for tool in ("consolidate_memories", "update_memory", "promote_memory", "decline_refinement"):
        refused(held, "unknown_tool", tool, {"id": 1, "content": "x"})
    assert held.call("search_memories", query="tea")["ok"]
    assert held.call("protect_memory", id=1)["ok"]
    assert held.call("complete_refinement", summary="Done.")["session"] == "completed"
