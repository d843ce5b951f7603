"""rollback: previews, refusals, and the road from one moment to another and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.utils import timezone

from memory.models import Agent
from memory.writing import operations
from refinement import session as sessions
from refinement.models import RefinementSession
from tests import refining, steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.model_server import Call, ModelServer, Turn
from tests.privacy.marker import MARKER
from tests.steps import ME, PERSON, fresh, problems

KEYS = {
    "entry",
    "undid",
    "restored",
    "discarded",
    "rewritten",
    "protection_changed",
    "tokens_before",
    "tokens_after",
    "conflicts",
    "constitutional",
    "redacted",
    "rests",
    "refused",
    "applied",
}


def rollback(*more: str) -> Ran:
    return run("rollback", "acme/ada", *more)


def seq(agent: Agent) -> str:
    return str(fresh(agent).audit_seq)


@pytest.fixture
def past(ada: Agent) -> Agent:
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} milk", f"{MARKER} sugar")
    return ada


def test_an_entry_is_taken_back(past: Agent) -> None:
    operations.discard(past, [2], ME)
    undone = seq(past)
    ran = rollback("--entry", undone, "--json")
    assert (ran.code, set(ran.json)) == (0, KEYS)
    assert (ran.json["applied"], ran.json["restored"], ran.json["undid"]) == (True, 1, {"entry": int(undone)})
    assert ran.json["entry"] == int(seq(past))
    assert steps.last_entry(past).actor_label == "rollback"
    assert steps.active(past) == [1, 2, 3]
    assert problems(past) == []


def test_a_preview_says_it_in_numbers_and_changes_nothing(past: Agent) -> None:
    operations.discard(past, [2], ME)
    with refining.untouched(past):
        ran = rollback("--to-entry", "0", "--preview", "--json")
        told = rollback("--to-entry", "0", "--preview")
    assert (ran.code, ran.json["applied"], ran.json["entry"], ran.json["discarded"]) == (0, False, None, 2)
    assert told.out.startswith("preview of a rollback of everything after entry 0:\n0 memories restored, 2 discarded")
    assert MARKER not in ran.out + told.out


def test_a_conflict_is_told_and_settled_as_asked(past: Agent) -> None:
    operations.revise(past, 1, ME, content=f"{MARKER} green tea")
    undone = seq(past)
    operations.revise(past, 1, ME, content=f"{MARKER} black tea")
    ran = rollback("--entry", undone, "--json")
    assert (ran.code, ran.json["applied"]) == (1, False)
    assert ran.json["conflicts"] == [{"memory": 1, "entries": [int(seq(past))]}]
    assert "Nothing was changed." in ran.err
    failed(rollback("--entry", undone, "--skip-conflicts", "--json"), 1, "nothing left to undo")
    assert rollback("--entry", undone, "--force", "--json").json["applied"]
    assert steps.says(past, 1).content == f"{MARKER} tea"


def test_a_constitutional_memory_needs_a_reason(past: Agent) -> None:
    operations.revise(past, 1, ME, content=f"{MARKER} green tea")
    undone = seq(past)
    operations.protect(past, [2], PERSON)
    operations.protect(past, [1], PERSON)
    ran = rollback("--to-entry", str(int(undone) - 1), "--json")
    assert (ran.code, ran.json["constitutional"], ran.json["applied"]) == (1, [1, 2], False)
    assert "--include-constitutional --reason TEXT" in ran.err
    failed(rollback("--to-entry", "1", "--include-constitutional"), 2, "--reason")
    done = rollback("--to-entry", str(int(undone) - 1), "--include-constitutional", "--reason", "asked", "--json")
    assert (done.code, done.json["protection_changed"]) == (0, 2)


def test_what_cannot_be_is_told(past: Agent) -> None:
    rows: Any = [
        ((), 2, "--entry"),
        (("--entry", "1", "--session", "1"), 2, "not allowed"),
        (("--entry", "x"), 2, "--entry"),
        (("--entry", "999"), 1, "Entry 999 does not exist"),
        (("--entry", "1"), 1, "These entries changed no memory"),
        (("--session", "7"), 1, "no session 7"),
        (("--to", "yesterday"), 2, "to: is not a date"),
        (("--to", "2999-01-01"), 1, "These entries changed no memory"),
        (("--to-entry", "-1"), 1, "Entry -1 does not exist"),
        (("--entry", "3", "--force", "--skip-conflicts"), 2, "not allowed"),
    ]
    for more, code, word in rows:
        with refining.untouched(past):
            failed(rollback(*more), code, word)


# --- from one moment to another, and back (issue: byte-identical exports)


def test_a_session_that_nobody_drives_any_more_is_ended_first(past: Agent) -> None:
    """Also while memory is switched off, as when its driver went wrong."""
    opened = sessions.open_session(fresh(past), trigger="manual")
    RefinementSession.objects.filter(pk=opened.pk).update(lease_until=timezone.now())
    operations.revise(past, 1, ME, content=f"{MARKER} green tea", session=opened.number)
    Agent.objects.filter(pk=past.pk).update(memory_enabled=False)
    assert rollback("--session", str(opened.number), "--preview").code == 1
    ran = rollback("--session", str(opened.number), "--json")
    assert (ran.code, ran.json["rewritten"]) == (0, 1)
    assert problems(past) == []


def test_a_preview_is_of_what_was_asked_for(past: Agent) -> None:
    """With these flags; and it says when that would be refused."""
    operations.discard(past, [1, 2], ME)
    undone = seq(past)
    operations.restore(past, [2], ME)
    operations.revise(past, 2, ME, content=f"{MARKER} warm milk")
    steps.protect(past, 2)
    plain = rollback("--entry", undone, "--preview", "--json").json
    assert (plain["refused"], plain["restored"], plain["protection_changed"]) == ("conflict", 1, 1)
    skipped = rollback("--entry", undone, "--skip-conflicts", "--preview", "--json").json
    forced = rollback("--entry", undone, "--force", "--preview", "--json").json
    assert (skipped["refused"], skipped["protection_changed"]) == (None, 0)
    assert (forced["refused"], forced["protection_changed"]) == ("constitutional", 1)
    meant = ("--entry", undone, "--force", "--include-constitutional", "--reason", "a test")
    assert rollback(*meant, "--preview", "--json").json["refused"] is None
    assert "the rollback is refused because of conflicts" in rollback("--entry", undone, "--preview").out
    done = rollback("--entry", undone, "--skip-conflicts", "--json").json
    assert (done["restored"], done["tokens_after"]) == (skipped["restored"], skipped["tokens_after"])


def test_what_came_while_the_question_stood_is_not_undone_unseen(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*_: object, **__: object) -> bool:
        steps.remember(fresh(past), "honey")
        return True

    monkeypatch.setattr("config.commandline.Task.agrees", answers)
    ran = rollback("--to-entry", "0")
    assert (ran.code, "Repeat the preview" in ran.err) == (1, True)
    assert len(steps.active(past)) == 4


def tidy_twice(turn: Turn) -> list[Call]:
    ledger = [memory for memory in turn.ledger() if not memory["constitutional"]]
    one, other, third = ledger[:3]
    return [
        Call(
            "consolidate_memories",
            {"ids_to_merge": [one["id"], other["id"]], "new_content": f"{one['content']} {other['content']}"},
        ),
        Call("delete_memory", {"id": third["id"]}),
        Call("complete_refinement", {"summary": "Merged two, deleted one."}),
    ]


def test_there_and_back_again(house: House, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ada = house.ada
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)

    def exported() -> str:
        assert run("verify_audit", "--all").code == 0
        return run("export_memories", "acme/ada").out

    facts = (f"{MARKER} fact {n}: the shop number {n} opens at {n % 12}:30." for n in range(60))
    lines = [json.dumps({"content": fact}) for fact in facts]
    assert run("import_memories", "acme/ada", "-", stdin="\n".join(lines).encode()).code == 0
    at_first, imported = exported(), seq(ada)
    with ModelServer(tidy_twice) as server:
        settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY = server.openai_url, "any"
        refining.change(ada, model="openai/scripted")
        assert run("refine", "acme/ada", "--json").json["outcome"] == "completed"
        operations.revise(fresh(ada), 9, ME, content=f"{MARKER} by hand")
        before_second = exported()
        assert run("refine", "acme/ada", "--json").json["outcome"] == "completed"
    after_second = exported()
    assert len({at_first, before_second, after_second}) == 3

    done = rollback("--session", "2", "--json")
    assert (done.code, exported()) == (0, before_second)
    assert rollback("--entry", str(done.json["entry"]), "--json").code == 0
    assert exported() == after_second
    assert rollback("--to-entry", imported, "--json").code == 0
    assert exported() == at_first
