"""Invalid Knife calls: each changes nothing, and its answer has a code and says what to do."""

from decimal import Decimal
from typing import Any

import pytest

from audit.trail import Actor
from memory.models import Agent, Kind, Memory
from memory.writing import operations
from refinement import effects
from tests.refining import Held, entries, fill, filler, opened, outside, protected, refused
from tests.rules.recordings import off
from tests.steps import ME, SYSTEM, remember, tell

MARK = "zanzibar"  # in the model's calls, and in no answer
PRIVATE = ("credentials", "keys", "sensitive")
EDITS = ["consolidate_memories", "update_memory", "delete_memory"]
every_tool = pytest.mark.parametrize("tool", [*EDITS, "protect_memory", "promote_memory"])


def naming(tool: str, number: object, other: int = 0) -> dict[str, Any]:
    """Valid arguments of a tool that name this memory."""
    if tool == "consolidate_memories":
        return {"ids_to_merge": [other, number], "new_content": filler(40, MARK)}
    return {"id": number} | ({"content": filler(20, MARK)} if tool == "update_memory" else {})


@pytest.fixture
def held(ada: Agent) -> Held:
    fill(ada, 10, 20)
    return opened(ada)


def test_sources_that_are_too_long_are_not_opened(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """To normalize a thousand long memories made other writers wait for 15 seconds."""
    monkeypatch.setattr(effects, "MAX_SOURCE_CHARACTERS", 5)
    monkeypatch.setattr(effects, "nfkc", lambda _: 1 / 0)
    numbers = sorted(held.row.shown)[:2]
    refused(held, "too_much", "consolidate_memories", naming("consolidate_memories", int(numbers[0]), int(numbers[1])))


@pytest.mark.parametrize("name", [MARK, "", "DELETE_MEMORY", "x" * 10_000])
def test_an_unknown_tool(held: Held, name: str) -> None:
    answer = refused(held, "unknown_tool", name, {"id": 1})
    assert "delete_memory" in answer["error"]
    assert MARK not in answer["error"]


def test_arguments_that_are_wrong_by_themselves(held: Held) -> None:
    """tests/unit/test_tools.py has every tool and value."""
    for arguments in ([1], {}, {"id": 1, MARK: MARK}, {"id": MARK, "content": "x"}, {"id": 1, "content": f"{MARK}\0"}):
        assert MARK not in str(refused(held, "bad_arguments", "update_memory", arguments))


@pytest.mark.parametrize("field", ["since", "until"])
def test_a_search_with_an_invalid_date(held: Held, field: str) -> None:
    assert held.call("search_memories", query="x", **{field: ""})["ok"], "an empty date is no filter"
    for when in ("yesterday", "2026-13-01", "9999-12-31T23:59:59-23:00"):
        answer = refused(held, "invalid", "search_memories", {"query": "x", field: when})
        assert answer["error"].startswith(field)


@every_tool
def test_a_number_of_nobody_or_of_another_agent(held: Held, bob: Agent, tool: str) -> None:
    for number in (999, max(fill(bob, 30, 5))):
        assert str(number) in refused(held, "unknown_memory", tool, naming(tool, number, 1))["error"]


def test_each_unknown_number_is_named(held: Held) -> None:
    answer = refused(held, "unknown_memory", "consolidate_memories", {"ids_to_merge": [1, 77, 88], "new_content": "x"})
    assert answer["error"] == "No such memory: 77, 88."


@every_tool
def test_a_discarded_memory(held: Held, ada: Agent, tool: str) -> None:
    operations.discard(ada, [3], ME)
    assert refused(held, "discarded", tool, naming(tool, 3, 1))["error"] == "Already discarded: 3."


@pytest.mark.parametrize("ids", [[5, 5], [5, "5"], ["#5", 5], [4, 5, 5]], ids=repr)
def test_a_number_given_twice(held: Held, ids: list[object]) -> None:
    answer = refused(held, "repeated", "consolidate_memories", {"ids_to_merge": ids, "new_content": filler(30)})
    assert answer["error"] == "Given more than once: 5."


@pytest.mark.parametrize("tool", [*EDITS, "protect_memory"])
def test_a_journal_memory_where_a_core_one_is_needed(ada: Agent, tool: str) -> None:
    fill(ada, 5, 20)
    [journal] = remember(ada, "Watered the tomatoes.", kind=Kind.JOURNAL)
    held = opened(ada)
    held.call("search_memories", query="tomatoes")
    assert str(journal) in refused(held, "not_core", tool, naming(tool, journal, 1))["error"]


@every_tool
def test_a_notice_of_the_system(ada: Agent, tool: str) -> None:
    fill(ada, 5, 20)
    notice = tell(ada, "Watered the tomatoes.")
    held = opened(ada)
    held.call("search_memories", query="tomatoes")
    refused(held, "notice", tool, naming(tool, notice, 1))


@every_tool
def test_a_private_memory(ada: Agent, tool: str) -> None:
    fill(ada, 5, 20)
    numbers = [remember(ada, "The door opens at four.", category=category)[0] for category in PRIVATE]
    held = opened(ada)
    for number in numbers:
        assert "door" not in str(refused(held, "private_category", tool, naming(tool, number, 1)))


def test_a_private_memory_is_not_found(ada: Agent) -> None:
    for category in PRIVATE:
        remember(ada, "The door opens at four.", category=category)
    assert opened(ada).call("search_memories", query="door")["found"] == []


@pytest.mark.parametrize("when", ["before the session", "after it is shown", "never shown"])
@every_tool
def test_a_memory_of_a_disabled_category_is_not_shown_and_not_edited(ada: Agent, tool: str, when: str) -> None:
    fill(ada, 3, 20)
    [closed] = remember(ada, f"The {MARK} opens at four.", category="technical")
    if when == "before the session":
        off(ada, "technical")
    held = opened(ada, shown=when != "never shown")
    off(ada, "technical")
    assert MARK not in str(refused(held, "category_disabled", tool, naming(tool, closed, 1)))
    held.knife.show(0, 1, entries(ada))
    assert held.call("protect_memory", id=1)["ok"]


def test_memories_of_two_scopes_or_projects_are_not_merged(ada: Agent) -> None:
    remember(ada, filler(20, 1), category="behavioral")
    others = remember(ada, filler(20, 2), category="personal") + remember(ada, filler(20, 3), project="shop")
    held = opened(ada)
    for other in others:
        answer = refused(held, "mixed_scope", "consolidate_memories", naming("consolidate_memories", other, 1))
        assert str(other) in answer["error"]


@pytest.mark.parametrize("category", ["", MARK, "personal", "credentials", "contextual"])
def test_a_merge_of_two_categories_needs_one_of_their_scope(ada: Agent, category: str) -> None:
    remember(ada, filler(20, 1), category="behavioral")
    [other] = remember(ada, filler(20, 2), category="technical")
    arguments = naming("consolidate_memories", other, 1) | {"category": category}
    answer = refused(opened(ada), "invalid", "consolidate_memories", arguments)
    assert answer["error"].startswith("category: ")
    assert MARK not in str(answer)


@pytest.mark.parametrize("tool", ["update_memory", "delete_memory"])
def test_a_constitutional_memory_is_neither_rewritten_nor_deleted(ada: Agent, tool: str) -> None:
    fill(ada, 5, 20)
    protected(ada, 2)
    held = opened(ada, retention=Decimal("1.00"))  # the floor refuses the call too: `constitutional` comes first
    arguments = {"id": 2} | ({"content": "x"} if tool == "update_memory" else {})
    assert "2" in refused(held, "constitutional", tool, arguments)["error"]


@pytest.mark.parametrize("ids", [[1, 2], [1, 2, 3]])
def test_a_merge_with_fewer_than_two_remaining_sources_does_nothing(ada: Agent, ids: list[int]) -> None:
    fill(ada, 5, 20)
    protected(ada, 2, 3)
    answer = refused(opened(ada), "constitutional", "consolidate_memories", {"ids_to_merge": ids, "new_content": "x"})
    assert answer["error"].endswith(": " + ", ".join(str(n) for n in ids if n in (2, 3)) + ".")


def test_a_memory_protected_during_the_session_is_constitutional(held: Held, ada: Agent) -> None:
    protected(ada, 4)
    refused(held, "stale_memory", "delete_memory", {"id": 4})
    refused(held, "constitutional", "delete_memory", {"id": 4})


@every_tool
def test_a_memory_changed_since_it_was_shown(held: Held, ada: Agent, tool: str) -> None:
    outside(ada, 3, "It was rewritten in the meantime.")
    [present] = refused(held, "stale_memory", tool, naming(tool, 3, 1))["present"]
    assert (present["id"], present["content"]) == (3, "It was rewritten in the meantime.")


def test_a_memory_that_was_never_shown(held: Held, ada: Agent) -> None:
    [late] = remember(ada, "Came later.")
    answer = refused(held, "stale_memory", "delete_memory", {"id": late})
    assert answer["present"][0]["content"] == "Came later."
    assert held.call("delete_memory", id=late)["ok"], "the refusal shows it"


def test_a_memory_of_another_batch(ada: Agent) -> None:
    fill(ada, 4, 20)
    held = opened(ada)
    held.call("update_memory", id=2, content=filler(19, "own edit"))
    held.knife.show(1, 2, [entry for entry in entries(ada) if entry.memory.number > 2])
    for number in (1, 2):
        refused(held, "stale_memory", "delete_memory", {"id": number})


def test_one_error_shows_at_most_ten_memories(ada: Agent) -> None:
    numbers = fill(ada, 30, 5)
    arguments = {"ids_to_merge": numbers, "new_content": filler(200)}
    answer = refused(opened(ada, shown=False), "stale_memory", "consolidate_memories", arguments)
    assert [memory["id"] for memory in answer["present"]] == numbers[:10]


def test_an_agent_may_edit_its_own_results_until_another_changes_them(ada: Agent) -> None:
    remember(ada, "One cup of tea is enough.", "Two cups of tea are too many.", "Coffee is for guests.")
    held = opened(ada, retention=0.5, target_tokens=1)
    merge = {"ids_to_merge": [1, 2], "new_content": "One cup of tea, not two cups of tea."}
    number = held.call("consolidate_memories", **merge)["id"]
    assert held.call("update_memory", id=number, content="One cup of tea, never two cups of tea.")["ok"]
    operations.revise(ada, number, ME, content="Two cups.", session=None)
    refused(held, "stale_memory", "delete_memory", {"id": number})
    assert held.call("update_memory", id=number, content="Two cups. So be it.")["ok"], "the refusal shows it"
    assert held.call("protect_memory", id=number)["ok"]


def test_edits_by_the_system_or_another_session_are_not_the_agents_own(ada: Agent) -> None:
    remember(ada, "One cup of tea is enough.", "Coffee is for guests.")
    held = opened(ada)
    operations.revise(ada, 1, SYSTEM, content="Two cups.", session=held.session.number)
    operations.revise(ada, 2, Actor.agent("session 9"), content="For all.", session=held.session.number + 8)
    for number in (1, 2):
        refused(held, "stale_memory", "delete_memory", {"id": number})


def test_a_refusal_is_counted_and_is_in_the_timeline(held: Held) -> None:
    answer = held.call("delete_memory", id=999)
    assert answer["left"]["failed_calls"] == 19
    assert "session_ended" not in answer
    held.call(MARK)
    assert held.row.failed_calls == 2
    steps = held.row.timeline.order_by("pk").values_list("tool", "result", "memories")
    assert list(steps) == [("delete_memory", "unknown_memory", 0), ("unknown", "unknown_tool", 0)]


def test_a_memory_with_a_broken_seal(held: Held, ada: Agent) -> None:
    Memory.objects.filter(agent_id=ada.pk, number=1).update(sealed=MARK.encode())
    assert MARK not in str(refused(held, "seal_broken", "update_memory", naming("update_memory", 1)))


def test_sources_that_take_long_to_compare(ada: Agent) -> None:
    numbers = remember(ada, *(filler(2_500, place) for place in range(21)))
    arguments = {"ids_to_merge": numbers, "new_content": "All of it."}
    refused(opened(ada, retention=0.5, target_tokens=1), "too_much", "consolidate_memories", arguments)


def test_sources_are_limited_in_the_form_that_is_compared(ada: Agent) -> None:
    """A sign can become three letters."""
    numbers = remember(ada, *(f"{place} {'…' * 29 + '/'}" * 300 for place in range(5)))
    arguments = {"ids_to_merge": numbers, "new_content": "All of it."}
    refused(opened(ada, retention=0.5, target_tokens=1), "too_much", "consolidate_memories", arguments)


def test_the_changes_left_are_checked_before_the_comparison(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refinement.losses.missing", lambda *_: pytest.fail("the sources were compared"))
    type(held.row).objects.filter(pk=held.row.pk).update(max_changes=1)
    answer = held.call("consolidate_memories", ids_to_merge=[1, 2], new_content="Both.")
    assert answer["code"] == "too_many_changes"
