"""The specifics check in the Knife: what a merge or a rewrite must keep, or name."""

from __future__ import annotations

import pytest

from memory.models import Agent
from tests.refining import Held, dropped, fill, opened, refused, sound
from tests.steps import last_entry, remember, says

# What a memory says, what the rewrite says, and what of it is missing.
LOSSY = [
    ("number", "The hall seats 250 guests at most.", "The hall seats many guests at most.", "250"),
    ("date", "The lease ends on 2026-03-31 for good.", "The lease ends at some time for good.", "2026-03-31"),
    ("time", "The shop opens at 7:30 on weekdays.", "The shop opens early on weekdays.", "7:30"),
    ("quote", 'The sign says "keep out" in red paint.', "The sign warns people in red paint.", '"keep out"'),
    ("name", "The plumber met Katarina at the house.", "The plumber met somebody at the house.", "Katarina"),
    ("url", "The menu is at https://cafe.test/menu now.", "The menu is on the web now.", "https://cafe.test/menu"),
    ("email", "Write to office@cafe.test for a table.", "Write an e-mail for a table.", "office@cafe.test"),
    ("identifier", "The build reads MAX_WORKERS at start.", "The build reads a setting at start.", "MAX_WORKERS"),
    ("negation", "The bridge does not carry lorries.", "The bridge does carry lorries.", "not"),
    ("polarity", "The paint goes on before the varnish.", "The paint goes on after the varnish.", "before"),
]
KINDS = pytest.mark.parametrize(("kind", "source", "rewrite", "text"), LOSSY, ids=[kind for kind, *_ in LOSSY])


@pytest.fixture
def held(ada: Agent, request: pytest.FixtureRequest) -> Held:
    fill(ada, 8, 20)
    remember(ada, request.node.callspec.params["source"], "The weather is often mild here.")
    return opened(ada)


@KINDS
def test_a_rewrite_that_loses_one_is_refused(held: Held, kind: str, source: str, rewrite: str, text: str) -> None:
    answer = refused(held, "specifics_lost", "update_memory", {"id": 9, "content": rewrite})
    assert kind in {lost["kind"] for lost in answer["lost"]}
    assert any(text in lost["text"] for lost in answer["lost"])


@KINDS
def test_a_merge_that_loses_one_is_refused(held: Held, kind: str, source: str, rewrite: str, text: str) -> None:
    merged = {"ids_to_merge": [9, 10], "new_content": f"{rewrite} The weather is often mild here."}
    answer = refused(held, "specifics_lost", "consolidate_memories", merged)
    assert kind in {lost["kind"] for lost in answer["lost"]}


@KINDS
def test_naming_what_is_lost_lets_it_go(held: Held, kind: str, source: str, rewrite: str, text: str) -> None:
    lost = held.call("update_memory", id=9, content=rewrite)["lost"]
    named = [one["text"] for one in lost]
    assert held.call("update_memory", id=9, content=rewrite, dropping=named)["ok"]
    assert dropped(held.session.agent, last_entry(held.session.agent)) == named


@KINDS
def test_naming_something_else_does_not(held: Held, kind: str, source: str, rewrite: str, text: str) -> None:
    wrong = {"id": 9, "content": rewrite, "dropping": ["", " ", "everything", "*", "999", "Zoe"]}
    refused(held, "specifics_lost", "update_memory", wrong)


@KINDS
def test_keeping_all_passes(held: Held, kind: str, source: str, rewrite: str, text: str) -> None:
    merged = {"ids_to_merge": [9, 10], "new_content": f"The weather is often mild here. {source}"}
    assert held.call("consolidate_memories", **merged)["ok"]


@pytest.mark.parametrize("source", ["The fair on 2023-05-07 drew fifty people and took 3 hours."])
def test_the_same_facts_in_other_forms_pass(held: Held, ada: Agent, source: str) -> None:
    rewritten = "On 7 May 2023 the fair drew 50 people and took three hours."
    assert held.call("update_memory", id=9, content=rewritten)["ok"]
    assert says(ada, 9).content == rewritten


@pytest.mark.parametrize("source", ["The hall seats 250 guests at most."])
def test_a_constitutional_source_that_is_left_out_need_not_be_kept(held: Held, ada: Agent, source: str) -> None:
    held.call("protect_memory", id=9)
    merged = {"ids_to_merge": [9, 1, 2], "new_content": f"{says(ada, 1).content} {says(ada, 2).content}"}
    assert held.call("consolidate_memories", **merged)["left_out_as_constitutional"] == [9]


@pytest.mark.parametrize("source", ["The hall seats 250 guests at most."])
def test_dropping_nothing_keeps_no_note(held: Held, ada: Agent, source: str) -> None:
    held.call("update_memory", id=9, content="At most 250 guests: so many the hall seats.")
    assert last_entry(ada).sealed is None
    assert sound(ada)


@pytest.mark.parametrize("source", [" ".join(f"Item {n} costs {n + 100} euros." for n in range(200))])
def test_one_error_lists_fifty_at_most(held: Held, source: str) -> None:
    held.row.__class__.objects.filter(pk=held.row.pk).update(floor_tokens=0)
    assert len(held.call("update_memory", id=9, content="Items cost something.")["lost"]) == 50
