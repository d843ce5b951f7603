"""The dedupe_only mode: the Knife deletes a memory only while a near duplicate says as much."""

import pytest

from memory.models import Agent, Kind
from memory.writing import operations
from refinement import effects, similarity
from refinement.models import Mode
from tests.refining import Held, fill, opened, protected, refused
from tests.steps import ME, active, remember

PLAIN = "The tomatoes on the balcony need water every evening."
FULLER = "The tomatoes on the balcony really need water every evening."
OTHER_NUMBER = "The 3 tomatoes on the balcony need water every evening."


def dedupe_only(agent: Agent) -> Held:
    fill(agent, 10, 20)
    return opened(agent, mode=Mode.DEDUPE_ONLY)


def refuses_deletion(held: Held, *numbers: int, code: str = "no_double") -> None:
    for number in numbers:
        refused(held, code, "delete_memory", {"id": number})


def test_a_near_duplicate_can_be_deleted(ada: Agent) -> None:
    remember(ada, *(f"The tomatoes on balcony {n} need water every evening." for n in range(40)))
    [plain, _] = remember(ada, PLAIN, FULLER)
    assert dedupe_only(ada).call("delete_memory", id=plain)["ok"]


def test_few_long_texts_are_compared_those_of_similar_length_first(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "MAX_COMPARED", 3 * len(PLAIN))
    [other] = remember(ada, *(f"The tomatoes on balcony {n} need water every evening. {PLAIN}" for n in range(40)))[:1]
    [plain, _] = remember(ada, PLAIN, FULLER)
    held, compared, wording = dedupe_only(ada), [], similarity._wording
    monkeypatch.setattr(similarity, "_wording", lambda text: compared.append(text) or wording(text))
    refuses_deletion(held, other)
    assert len(compared) == 2
    assert held.call("delete_memory", id=plain)["ok"]


def test_the_floor_holds_also_for_near_duplicates(ada: Agent) -> None:
    [plain, _] = remember(ada, PLAIN, FULLER)
    refuses_deletion(opened(ada, mode=Mode.DEDUPE_ONLY), plain, code="floor")


def test_a_near_duplicate_of_a_constitutional_memory_can_be_deleted(ada: Agent) -> None:
    plain, kept = remember(ada, PLAIN, FULLER)
    protected(ada, kept)
    assert dedupe_only(ada).call("delete_memory", id=plain)["ok"]
    assert kept in active(ada)


def test_the_last_of_two_duplicates_cannot_be_deleted(ada: Agent) -> None:
    first, second = remember(ada, PLAIN, f"{PLAIN} ")
    held = dedupe_only(ada)
    assert [held.call("delete_memory", id=n)["ok"] for n in (first, second)].count(True) == 1


def test_the_fuller_of_two_duplicates_cannot_be_deleted(ada: Agent) -> None:
    [_, fuller] = remember(ada, PLAIN, FULLER)
    refuses_deletion(dedupe_only(ada), fuller)


@pytest.mark.parametrize("other", [OTHER_NUMBER, PLAIN.replace("need", "do not need"), PLAIN.replace("every", "no")])
def test_a_similar_memory_is_not_a_duplicate(ada: Agent, other: str) -> None:
    numbers = remember(ada, PLAIN, other)
    refuses_deletion(dedupe_only(ada), *numbers)


def test_a_duplicate_in_another_project_does_not_count(ada: Agent) -> None:
    alone, here = remember(ada, OTHER_NUMBER, PLAIN, project="shop")
    remember(ada, PLAIN, project="blog")
    remember(ada, PLAIN, project="shop", kind=Kind.JOURNAL)
    operations.discard(ada, remember(ada, FULLER, project="shop"), ME)
    refuses_deletion(dedupe_only(ada), alone, here)


def test_a_duplicate_is_found_despite_search_syntax_in_its_text(ada: Agent) -> None:
    texts = [
        "Run the build -fast and never -slow on the server.",
        'The sign says "keep out" in red paint on the door.',
        "Use tag:garden for notes about the garden and its beds.",
    ]
    doubles, kept = remember(ada, *texts), remember(ada, *(f"{text} " for text in texts))
    held = dedupe_only(ada)
    assert all(held.call("delete_memory", id=number)["ok"] for number in doubles)
    assert set(kept) <= set(active(ada))


def test_dedupe_only_has_no_other_edits(ada: Agent) -> None:
    held = dedupe_only(ada)
    for tool in ("consolidate_memories", "update_memory", "promote_memory", "decline_refinement"):
        refused(held, "unknown_tool", tool, {"id": 1, "content": "x"})
    assert held.call("search_memories", query="tea")["ok"]
    assert held.call("protect_memory", id=1)["ok"]
    assert held.call("complete_refinement", summary="Done.")["session"] == "completed"
