"""Sessions that the runtime drives: the same Knife, limits and lease; nothing happens after a session's end."""

import re
from typing import Any

import pytest
import time_machine
from django.utils import timezone

from memory.agents import rule_changes
from memory.consent import redaction, requests
from memory.models import Agent, Creation
from memory.time_machine.rollback import What, roll_back
from memory.writing import edits
from refinement import ledger, limits, schedule
from refinement import session as sessions
from refinement.models import Outcome, RefinementSession
from tests import queueing, refining, steps
from tests.api.calling import Answer, Caller
from tests.rules.recordings import off
from tests.steps import ME, PERSON, problems, signed_update

MERGE = {"ids_to_merge": [1, 2], "new_content": "Tea is hot, says Ann"}
SERVER = {"driver": "server"}


class Driver:
    """A runtime with an open session."""

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
    briefing = driver.brief().json
    assert [message["role"] for message in briefing["messages"]] == ["system", "user"]
    assert "Milk is white" in briefing["messages"][1]["content"]
    assert (briefing["batch"], briefing["batches"]) == (1, 1)
    merged = driver.call("consolidate_memories", **MERGE)
    assert (merged.status, merged.json["ok"], merged.json["session_ended"]) == (200, True, False)
    completed = driver.call("complete_refinement", summary="Merged two.").json
    assert (completed["session_ended"], completed["result"]["outcome"]) == (True, "completed")
    read = driver.read()
    assert (read["outcome"], read["merged"], read["driver"], read["steps"]) == ("completed", 2, "runtime", 2)
    assert (read["cost"]["price"], read["cost"]["prompt_tokens"]) == (None, 0)
    assert "Merged two." in steps.says(ada, 6).content
    assert problems(ada) == []


def test_a_repeated_briefing_shows_what_the_session_has_made(driver: Driver) -> None:
    """So a runtime that lost its conversation can continue."""
    driver.brief()
    made = driver.call("consolidate_memories", **MERGE).json["result"]["id"]
    ledger = driver.brief().json["messages"][1]["content"]
    assert f"[{made}," in ledger
    assert "Milk is white" in ledger
    assert driver.call("protect_memory", id=made).json["ok"]


def test_undone_by_names_the_rollback_of_a_session(driver: Driver, ada: Agent) -> None:
    driver.brief()
    driver.call("demote_memory", id=4)
    assert driver.abort().json["undone_by"] is None
    rollback = roll_back(steps.fresh(ada), What("session", 1), PERSON).entry
    assert Driver(driver.runtime).read()["undone_by"] is None
    assert driver.read()["undone_by"] == rollback
    listed = driver.runtime.get("refinement-sessions").json["results"]
    assert [(session["id"], session["undone_by"]) for session in listed] == [(2, None), (1, rollback)]
    roll_back(steps.fresh(ada), What("entry", rollback), PERSON)
    assert driver.read()["undone_by"] is None


def test_tools_have_the_form_of_the_provider(driver: Driver) -> None:
    for form, keys in (("openai", {"type", "function"}), ("anthropic", {"name", "description", "input_schema"})):
        assert [set(tool) for tool in driver.brief(form).json["tools"]] == [keys] * 10


def test_an_invalid_call_is_answered_for_the_model(driver: Driver) -> None:
    driver.brief()
    for arguments in (None, [], "x", 5, {"id": "x"}, {"id": 1, "y": 2}, {}):
        answer = driver.runtime.post(f"{driver.path}/tools/delete_memory", {"arguments": arguments})
        assert (answer.status, answer.json["ok"], answer.json["code"]) == (200, False, "bad_arguments"), arguments
    assert driver.call("no_such_tool").json["code"] == "unknown_tool"


def test_calls_of_one_reply_are_one_step_and_its_name_is_not_stored(driver: Driver) -> None:
    driver.brief()
    for reply in ("r1", "r1", "r2", "", "", "a name that says much"):
        driver.call("search_memories", reply, query="tea")
    assert driver.read()["steps"] == 5
    stored = RefinementSession.objects.get().last_reply
    assert (len(stored), "name" in stored) == (64, False)


def test_only_the_last_result_of_a_reply_has_figures(driver: Driver) -> None:
    driver.brief()
    for is_last in (False, True):
        body = {"arguments": {"query": "tea"}, "reply": "r", "last": is_last}
        result = driver.runtime.post(f"{driver.path}/tools/search_memories", body).json["result"]
        assert ("left" in result, "tokens" in result) == (is_last, is_last)


def test_a_repeated_apply_with_the_same_key_gets_the_first_result(runtime: Caller, ada: Agent) -> None:
    """Also after the session has ended. The stored result is sealed, because it can have content."""
    steps.remember(ada, "Ann drinks tea.", "Ann drinks green tea.")
    refining.fill(ada, 20, 20)
    driver = Driver(runtime)
    driver.brief()
    merge = {"ids_to_merge": [1, 2], "new_content": "Somebody drinks green tea."}
    named = [("demote_memory", {"id": 4}), ("consolidate_memories", merge), ("delete_memory", {"id": 999})]
    edits = [{"tool": tool, "arguments": arguments} for tool, arguments in named]

    def apply(key: str, edits: list[Any] = edits) -> Answer:
        return driver.runtime.post(f"{driver.path}/tools/apply", {"arguments": {"edits": edits}}, idempotency_key=key)

    first, seq = apply("k1"), steps.last_entry(ada).seq
    assert [edit.get("code", "ok") for edit in first.json["result"]["edits"]] == ["ok", "ok", "unknown_memory"]
    assert [lost["text"] for lost in first.json["result"]["edits"][1]["left_out"]] == ["Ann", "Ann"]
    assert not {"Ann", "left_out"} & set(re.findall(r"\w+", str(Creation.objects.get().numbers)))
    assert (apply("k1").json, steps.last_entry(ada).seq) == (first.json, seq)
    assert apply("k1", edits[:1]).codes == ["idempotency_key_reused"]
    driver.abort()
    assert (apply("k1").json, apply("k2").codes) == (first.json, ["session_ended"])
    off(ada, "behavioral")  # what the result says about memories of this category can no longer be read
    assert apply("k1").codes == ["result_not_kept"]


def test_a_large_result_is_not_kept(driver: Driver, ada: Agent) -> None:
    """A search could store 12 MB, which somebody's request deleted a day later, while all other writers waited."""
    steps.remember(ada, *[f"{number} " + "\U0001f600" * 9_000 for number in range(3)])
    large = steps.active(ada)[-3:]
    driver.brief()

    def call(tool: str, **arguments: Any) -> Answer:
        return driver.runtime.post(f"{driver.path}/tools/{tool}", {"arguments": arguments}, idempotency_key=tool)

    assert [len(call("search_memories", query="0 1 2").json["result"]["found"]) for _ in range(2)] == [3, 3]
    assert [driver.runtime.patch(f"memories/{number}", {"tags": ["new"]}).status for number in large] == [200] * 3
    edits = [{"tool": "update_memory", "arguments": {"id": each, "content": "tea"}} for each in large]
    assert [edit["code"] for edit in call("apply", edits=edits).json["result"]["edits"]] == ["stale_memory"] * 3
    assert call("apply", edits=edits).codes == ["result_not_kept"]
    assert len(str(list(Creation.objects.values_list("numbers")))) < 100


def test_too_many_calls_under_one_reply_end_the_session(driver: Driver, ada: Agent, monkeypatch: Any) -> None:
    """Without this limit, a runtime that gives all calls the same reply would never reach its last step."""
    monkeypatch.setattr(limits, "MAX_CALLS_PER_REPLY", 3)
    driver.brief()
    for reply in ("r1", "r1", "r1", "r2", "r2", "r2"):
        assert driver.call("search_memories", reply, query="tea").json["ok"]
    last = driver.call("demote_memory", "r2", id=1)
    assert (last.json["code"], last.json["session_ended"]) == ("limit", True)
    assert (driver.read()["outcome"], driver.read()["reason"]) == ("incomplete", "limit_calls_per_reply")
    assert {1, 2, 3, 4} <= set(steps.active(ada))


def abandon(driver: Driver, ada: Agent) -> None:
    RefinementSession.objects.update(lease_until=timezone.now())
    assert [closed.outcome for closed in sessions.close_stale()] == ["abandoned"]


def redact(driver: Driver, ada: Agent) -> None:
    request = requests.ask_redaction(ada, [1], PERSON, reason="request 17")
    redaction.redact(ada, request.number, ME)


@pytest.mark.parametrize(
    ("end", "outcome", "reason"),
    [
        (lambda driver, _: driver.call("complete_refinement", summary="done"), "completed", None),
        (lambda driver, _: driver.abort("shutting down"), "incomplete", "aborted"),
        (abandon, "abandoned", None),
        (redact, "incomplete", "redaction"),
    ],
)
def test_after_its_end_every_call_is_refused(driver: Driver, ada: Agent, end: Any, outcome: str, reason: Any) -> None:
    driver.brief()
    end(driver, ada)
    read = driver.read()
    assert (read["outcome"], reason in (None, read["reason"])) == (outcome, True)
    calls = [driver.call("search_memories", query="tea"), driver.call("demote_memory", id=1)]
    for answer in (driver.brief(), *calls, driver.abort()):
        assert (answer.status, answer.codes) == (409, ["session_ended"])


@pytest.mark.parametrize("reply", ["same reply", "next reply"])
def test_a_call_while_memory_is_off_is_refused_and_ends_the_session(driver: Driver, ada: Agent, reply: str) -> None:
    driver.brief()
    assert driver.call("search_memories", reply="same reply", query="tea").json["ok"]
    rule_changes.change(ada, PERSON, enabled=False)
    refused = driver.call("demote_memory", reply=reply, id=1)
    assert (refused.status, refused.codes) == (409, ["memory_disabled"])
    assert refused.json["prompt"] == rule_changes.QUESTION
    read = driver.read()
    assert (read["outcome"], read["reason"], read["deleted"]) == ("incomplete", "memory_disabled", 0)
    assert driver.call("demote_memory", reply=reply, id=1).codes == ["session_ended"]
    assert problems(ada) == []


def test_the_service_drives_a_session_on_request(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    first = runtime.post("refinement-sessions", SERVER)
    assert (first.status, first.json["due"]) == (202, "agent")
    assert [(agent.pk, agent.due_reason) for agent in schedule.due()] == [(ada.pk, "agent")]
    assert runtime.post("refinement-sessions", SERVER).status == 202
    assert queueing.work() == [("refine_agent", "completed")], "two requests, one session"
    [session] = runtime.get("refinement-sessions").json["results"]
    assert (session["driver"], session["trigger"], session["outcome"]) == ("server", "agent", "completed")
    signed_update(Agent.objects.all(), memory_enabled=False)
    assert runtime.post("refinement-sessions", SERVER).codes == ["memory_disabled"]


def test_the_service_drives_only_the_full_mode(runtime: Caller, ada: Agent) -> None:
    answer = runtime.post("refinement-sessions", SERVER | {"mode": "dedupe_only"})
    assert (answer.status, answer.attrs, queueing.waiting()) == (422, ["mode"], [])
    assert runtime.post("refinement-sessions", {"mode": "dedupe_only"}).json["mode"] == "dedupe_only"


def test_a_request_to_the_service_waits_for_the_cooldown_after_a_failure(runtime: Caller, ada: Agent) -> None:
    """Each session on request costs the operator of the service calls of the model."""
    sessions.close(refining.opened(ada).session, Outcome.FAILED)
    until = steps.fresh(ada).quiet_until
    assert until is not None
    refused = runtime.post("refinement-sessions", SERVER)
    assert (refused.status, refused.codes) == (409, ["backing_off"])
    assert f"{until:%Y-%m-%d %H:%M:%S} UTC" in refused.json["errors"][0]["detail"]
    assert (queueing.waiting(), steps.fresh(ada).due_at) == ([], until)
    with time_machine.travel(until):
        assert runtime.post("refinement-sessions", SERVER).status == 202
    sessions.close(refining.opened(ada).session, Outcome.COMPLETED)
    assert runtime.post("refinement-sessions", SERVER).status == 202, "a good session ends the cool-down"


def test_only_one_session_is_open_and_only_its_agent_sees_it(driver: Driver, stranger: Caller) -> None:
    answer = driver.runtime.post("refinement-sessions", {})
    assert (answer.status, answer.codes) == (409, ["session_open"])
    for answer in (stranger.get(driver.path), stranger.get(f"{driver.path}/briefing")):
        assert (answer.status, answer.codes) == (404, ["not_found"])


def test_each_call_renews_the_lease(driver: Driver) -> None:
    soon = timezone.now() + timezone.timedelta(seconds=5)
    for call in (driver.brief, lambda: driver.call("search_memories", query="tea")):
        RefinementSession.objects.update(lease_until=soon)
        call()
        assert RefinementSession.objects.get().lease_until > soon


def test_the_runtime_cannot_drive_a_session_of_the_service(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = refining.opened(ada).session.number
    answer = runtime.post(f"refinement-sessions/{number}/tools/delete_memory", {"arguments": {"id": 1}})
    assert (answer.status, answer.codes) == (409, ["session_ended"])


def test_batches_are_computed_without_a_lock_and_once(driver: Driver, ada: Agent, monkeypatch: Any) -> None:
    """For a large silo this takes long, and a lock would block writers; on SQLite those of every tenant."""
    batches, locked = ledger.batches, []

    def noting(entries: Any, context_tokens: Any) -> Any:
        locked.append(ada.pk in edits._locked_here.get())
        RefinementSession.objects.update(plan=[[2], [1]])  # another request stores its plan first
        return batches(entries, context_tokens)

    monkeypatch.setattr(ledger, "batches", noting)
    briefing = driver.brief().json
    assert (locked, briefing["batches"]) == ([False], 2), "the first plan counts for both requests"
    assert "says Ann" in briefing["messages"][1]["content"]
    driver.brief()
    assert len(locked) == 1
