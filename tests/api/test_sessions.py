"""Sessions that the runtime drives: the same Knife, limits and lease; over is over."""

from __future__ import annotations

from typing import Any

import pytest
import time_machine
from django.utils import timezone

from memory.agents import rule_changes
from memory.consent import redaction, removal_requests
from memory.models import Agent
from memory.time_machine.rollback import What, roll_back
from memory.writing import edits
from refinement import ledger, limits, schedule
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import queueing, refining, steps
from tests.api.calling import Answer, Caller
from tests.rules.talking import off
from tests.steps import ME, PERSON, problems

MERGE = {"ids_to_merge": [1, 2], "new_content": "Tea is hot, says Ann"}


class Driver:
    """A runtime with a session of its own."""

    def __init__(self, runtime: Caller, **body: Any) -> None:
        opened = runtime.post("refinement-sessions", body)
        assert opened.status == 201, opened.content
        self.runtime, self.path = runtime, f"refinement-sessions/{opened.json['id']}"

    def brief(self, form: str = "openai") -> Answer:
        return self.runtime.get(f"{self.path}/briefing?format={form}")

    def call(self, tool: str, reply: str = "", **arguments: Any) -> Answer:
        return self.runtime.post(f"{self.path}/tools/{tool}", {"arguments": arguments, "reply": reply})

    def abort(self, reason: str = "") -> Answer:
        return self.runtime.post(f"{self.path}/abort", {"reason": reason})

    def read(self) -> Any:
        return self.runtime.get(self.path).json


@pytest.fixture
def driver(runtime: Caller, ada: Agent) -> Driver:
    steps.remember(ada, "Tea is hot", "Tea is hot, says Ann", "Milk is white", "Sugar is sweet")
    return Driver(runtime)


def test_a_session_from_briefing_to_completion(driver: Driver, ada: Agent) -> None:
    told = driver.brief().json
    assert [message["role"] for message in told["messages"]] == ["system", "user"]
    assert "Milk is white" in told["messages"][1]["content"]
    assert (told["batch"], told["batches"]) == (1, 1)
    merged = driver.call("consolidate_memories", ids_to_merge=[1, 2], new_content="Tea is hot, says Ann")
    assert (merged.status, merged.json["ok"], merged.json["session_ended"]) == (200, True, False)
    done = driver.call("complete_refinement", summary="Merged two.")
    assert (done.json["session_ended"], done.json["result"]["outcome"]) == (True, "completed")
    read = driver.read()
    assert (read["outcome"], read["merged"], read["driver"], read["steps"]) == ("completed", 2, "runtime", 2)
    assert "Merged two." in steps.says(ada, 6).content
    assert problems(ada) == []


@pytest.mark.parametrize("briefed", [True, False])
def test_a_category_that_is_switched_off_meanwhile(driver: Driver, ada: Agent, briefed: bool) -> None:
    if briefed:
        driver.brief()
    off(ada, "behavioral")
    for tool, named in (("delete_memory", {"id": 4}), ("protect_memory", {"id": 4}), ("consolidate_memories", MERGE)):
        answer = driver.call(tool, **named)
        assert (answer.status, answer.json["result"]["code"]) == (200, "category_disabled")
        assert not answer.json["session_ended"]
    assert driver.call("complete_refinement", summary="Nothing.").json["result"]["outcome"] == "completed"


def test_its_figures_count_the_duplicates_it_began_with_removing(driver: Driver, ada: Agent) -> None:
    driver.abort()
    steps.remember(ada, *["Tea is hot"] * 2)
    read = Driver(driver.runtime).read()
    assert (read["memories_before"], read["memories_after"], read["duplicates_removed"]) == (6, 4, 2)
    assert read["tokens_before"] - read["tokens_after"] == read["repeated_tokens"] == 6


def test_one_that_was_rolled_back_says_so(driver: Driver, ada: Agent) -> None:
    driver.brief()
    driver.call("delete_memory", id=4)
    assert driver.abort().json["undone_by"] is None
    undone = roll_back(steps.fresh(ada), What.session(1), PERSON).entry
    assert Driver(driver.runtime).read()["undone_by"] is None
    assert driver.read()["undone_by"] == undone
    listed = driver.runtime.get("refinement-sessions").json["results"]
    assert [(session["id"], session["undone_by"]) for session in listed] == [(2, None), (1, undone)]
    roll_back(steps.fresh(ada), What.entry(undone), PERSON)
    assert driver.read()["undone_by"] is None


@pytest.mark.parametrize(
    ("form", "keys"), [("openai", {"type", "function"}), ("anthropic", {"name", "description", "input_schema"})]
)
def test_tools_come_in_the_providers_form(driver: Driver, form: str, keys: set[str]) -> None:
    tools = driver.brief(form).json["tools"]
    assert len(tools) == 8
    assert all(set(tool) == keys for tool in tools)


def test_only_what_was_shown_may_be_edited(driver: Driver, ada: Agent) -> None:
    before = driver.call("delete_memory", id=4)
    assert (before.status, before.json["ok"]) == (200, False)
    driver.brief()
    steps.remember(ada, "later")
    assert driver.call("delete_memory", id=5).json["ok"] is False
    assert steps.active(ada) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("arguments", [None, [], "x", 5, {"id": "x"}, {"id": 1, "y": 2}, {}])
def test_a_bad_call_is_answered_for_the_model(driver: Driver, arguments: Any) -> None:
    driver.brief()
    answer = driver.runtime.post(f"{driver.path}/tools/delete_memory", {"arguments": arguments})
    assert (answer.status, answer.json["ok"], answer.json["code"]) == (200, False, "bad_arguments")
    unknown = driver.runtime.post(f"{driver.path}/tools/no_such_tool", {"arguments": {}})
    assert unknown.json["code"] == "unknown_tool"


def test_calls_of_one_reply_are_one_step_and_its_name_is_not_kept(driver: Driver) -> None:
    driver.brief()
    for reply in ("r1", "r1", "r2", "", "", "a name that says much"):
        driver.call("search_memories", reply, query="tea")
    assert driver.read()["steps"] == 5
    assert len(RefinementSession.objects.get().last_reply) == 64
    assert "name" not in RefinementSession.objects.get().last_reply


def test_a_reply_has_only_so_many_calls(driver: Driver, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a runtime that names all it does one reply would never come to its last step."""
    monkeypatch.setattr(limits, "MAX_CALLS_PER_REPLY", 3)
    driver.brief()
    for reply in ("r1", "r1", "r1", "r2", "r2", "r2"):
        assert driver.call("search_memories", reply, query="tea").json["ok"]
    before = steps.active(ada)
    over = driver.call("delete_memory", "r2", id=1)
    assert (over.json["code"], over.json["session_ended"]) == ("limit", True)
    assert (driver.read()["outcome"], driver.read()["reason"]) == ("incomplete", "limit_calls_per_reply")
    assert set(before) <= set(steps.active(ada))


def test_a_limit_ends_the_session(driver: Driver, ada: Agent) -> None:
    RefinementSession.objects.update(max_steps=1)
    driver.brief()
    assert driver.call("search_memories", query="tea").json["session_ended"] is False
    over = driver.call("search_memories", query="tea")
    assert (over.status, over.json["ok"], over.json["session_ended"]) == (200, False, True)
    assert over.json["code"] == "limit"
    assert driver.read()["reason"] == "limit_steps"
    assert problems(ada) == []


def abandon(driver: Driver, ada: Agent) -> None:
    RefinementSession.objects.update(lease_until=timezone.now())
    assert [ended.outcome for ended in sessions.close_stale()] == ["abandoned"]


def redact(driver: Driver, ada: Agent) -> None:
    asked = removal_requests.ask_redaction(ada, [1], PERSON, reason="asked")
    redaction.redact(ada, asked.number, ME)


@pytest.mark.parametrize(
    ("end", "outcome", "reason"),
    [
        (lambda driver, _: driver.call("complete_refinement", summary="done"), "completed", None),
        (lambda driver, _: driver.abort("shutting down"), "incomplete", "aborted"),
        (abandon, "abandoned", None),
        (redact, "incomplete", "redaction"),
    ],
)
def test_after_its_end_every_call_is_refused(
    driver: Driver, ada: Agent, end: Any, outcome: str, reason: str | None
) -> None:
    driver.brief()
    end(driver, ada)
    read = driver.read()
    assert (read["outcome"], reason in (None, read["reason"])) == (outcome, True)
    for answer in (
        driver.brief(),
        driver.call("search_memories", query="tea"),
        driver.call("delete_memory", id=1),
        driver.abort(),
    ):
        assert (answer.status, answer.codes) == (409, ["session_ended"])


@pytest.mark.parametrize("reply", ["the one before", "another"])
def test_a_call_while_memory_is_off_is_refused_and_ends_the_session(driver: Driver, ada: Agent, reply: str) -> None:
    driver.brief()
    assert driver.call("search_memories", reply="the one before", query="tea").json["ok"]
    rule_changes.change(ada, PERSON, enabled=False)
    refused = driver.call("delete_memory", reply=reply, id=1)
    assert (refused.status, refused.codes) == (409, ["memory_disabled"])
    assert refused.json["prompt"] == rule_changes.QUESTION
    read = driver.read()
    assert (read["outcome"], read["reason"], read["deleted"]) == ("incomplete", "memory_disabled", 0)
    assert driver.call("delete_memory", reply=reply, id=1).codes == ["session_ended"]
    assert problems(ada) == []


def test_the_service_is_asked_to_drive(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    asked = runtime.post("refinement-sessions", {"driver": "server"})
    assert (asked.status, asked.json["due"]) == (202, "agent")
    assert [(agent.pk, agent.due_reason) for agent in schedule.due()] == [(ada.pk, "agent")]
    assert runtime.post("refinement-sessions", {"driver": "server"}).status == 202
    assert queueing.work() == [("refine_agent", "completed")], "asked twice, refined once"
    [session] = runtime.get("refinement-sessions").json["results"]
    assert (session["driver"], session["trigger"], session["outcome"]) == ("server", "agent", "completed")
    Agent.objects.update(memory_enabled=False)
    assert runtime.post("refinement-sessions", {"driver": "server"}).codes == ["memory_disabled"]


def test_the_service_drives_no_session_of_another_mode(runtime: Caller, ada: Agent) -> None:
    answer = runtime.post("refinement-sessions", {"driver": "server", "mode": "dedupe_only"})
    assert (answer.status, answer.json["errors"][0]["attr"]) == (422, "mode")
    assert queueing.waiting() == []
    assert runtime.post("refinement-sessions", {"mode": "dedupe_only"}).json["mode"] == "dedupe_only"


def test_after_trouble_the_service_is_not_asked_sooner_than_it_tries_itself(runtime: Caller, ada: Agent) -> None:
    """Each session asked for costs whoever runs the service the calls of its model."""
    ask = {"driver": "server"}
    sessions.close(refining.opened(ada).session, Outcome.FAILED)
    until = steps.fresh(ada).quiet_until
    assert until is not None
    refused = runtime.post("refinement-sessions", ask)
    assert (refused.status, refused.codes) == (409, ["backing_off"])
    assert f"{until:%Y-%m-%d %H:%M:%S} UTC" in refused.json["errors"][0]["detail"]
    assert (queueing.waiting(), steps.fresh(ada).due_at) == ([], until)
    with time_machine.travel(until):
        assert runtime.post("refinement-sessions", ask).status == 202


def test_after_a_good_session_it_may_be_asked_again(runtime: Caller, ada: Agent) -> None:
    for outcome in (Outcome.FAILED, Outcome.COMPLETED):
        sessions.close(refining.opened(ada).session, outcome)
    assert runtime.post("refinement-sessions", {"driver": "server"}).status == 202


def test_one_at_a_time(driver: Driver) -> None:
    answer = driver.runtime.post("refinement-sessions", {})
    assert (answer.status, answer.codes) == (409, ["session_open"])


def test_each_call_renews_the_lease(driver: Driver) -> None:
    soon = timezone.now() + timezone.timedelta(seconds=5)
    RefinementSession.objects.update(lease_until=soon)
    driver.brief()
    assert RefinementSession.objects.get().lease_until > soon
    RefinementSession.objects.update(lease_until=soon)
    driver.call("search_memories", query="tea")
    assert RefinementSession.objects.get().lease_until > soon


def test_a_session_of_the_services_own_is_not_the_runtimes_to_drive(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    held = refining.opened(ada)
    answer = runtime.post(f"refinement-sessions/{held.session.number}/tools/delete_memory", {"arguments": {"id": 1}})
    assert (answer.status, answer.codes) == (409, ["session_ended"])


def test_another_agents_session_is_none(driver: Driver, stranger: Caller) -> None:
    for answer in (stranger.get(driver.path), stranger.get(f"{driver.path}/briefing")):
        assert (answer.status, answer.codes) == (404, ["not_found"])


def test_batches_one_after_the_other(runtime: Caller, ada: Agent, settings: Any) -> None:
    settings.BATCH_TOKENS = 30
    steps.remember(ada, *(f"{word} " * 10 for word in ("alpha", "beta", "gamma", "delta", "omega")))
    driver = Driver(runtime)
    first = driver.brief().json
    assert first["batches"] > 1
    assert driver.brief().json["messages"] == first["messages"]
    seen = []
    for batch in range(1, first["batches"] + 1):
        told = driver.brief().json
        assert told["batch"] == batch
        seen.append(told["messages"][1]["content"])
        done = driver.call("complete_refinement", summary=f"part {batch}")
        assert done.json["batch_done"] == (batch < first["batches"])
    assert done.json["session_ended"]
    assert len(set(seen)) == first["batches"]
    notice = steps.says(ada, 6).content
    assert "part 1" in notice
    assert f"part {first['batches']}" in notice


def test_batches_are_worked_out_while_others_write(driver: Driver, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large silo it takes long: whoever writes meanwhile would wait for it, on SQLite of every tenant."""
    batches, held = ledger.batches, []

    def worked_out(entries: Any) -> Any:
        held.append(ada.pk in edits._locked_here.get())
        RefinementSession.objects.update(plan=[[2], [1]])  # another first briefing, which was sooner
        return batches(entries)

    monkeypatch.setattr(ledger, "batches", worked_out)
    told = driver.brief().json
    assert held == [False]
    assert told["batches"] == 2, "the batches are the same for all"
    assert "says Ann" in told["messages"][1]["content"]
    driver.brief()
    assert len(held) == 1, "they are worked out once"
