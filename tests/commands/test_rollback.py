"""rollback: previews, options and refusals. tests/property/test_time_machine.py rolls back random histories."""

from typing import Any

import pytest
from django.utils import timezone

from memory.models import Agent
from memory.writing import operations
from refinement import session as sessions
from refinement.models import RefinementSession
from tests import refining, steps
from tests.commands.calling import Ran, failed, run
from tests.privacy.marker import MARKER
from tests.steps import ME, PERSON, fresh, problems, signed_update

KEYS = {"entry", "undid", "restored", "discarded", "rewritten", "moved", "protection_changed"}
KEYS |= {"tokens_before", "tokens_after"}
KEYS |= {"conflicts", "constitutional", "redacted", "rests", "refused", "applied"}


def rollback(*more: str) -> Ran:
    return run("rollback", "acme/ada", *more)


def seq(agent: Agent) -> str:
    return str(fresh(agent).audit_seq)


@pytest.fixture
def past(ada: Agent) -> Agent:
    steps.remember(ada, f"{MARKER} tea", f"{MARKER} milk", f"{MARKER} sugar")
    return ada


def test_an_entry_is_rolled_back(past: Agent) -> None:
    operations.discard(past, [2], ME)
    undone = seq(past)
    ran = rollback("--entry", undone, "--json")
    assert (ran.code, set(ran.json)) == (0, KEYS)
    assert (ran.json["applied"], ran.json["restored"], ran.json["undid"]) == (True, 1, {"entry": int(undone)})
    assert (ran.json["entry"], steps.last_entry(past).actor_label) == (int(seq(past)), "rollback")
    assert (steps.active(past), problems(past)) == ([1, 2, 3], [])


def test_a_preview_has_counts_and_changes_nothing(past: Agent) -> None:
    operations.discard(past, [2], ME)
    with refining.untouched(past):
        ran = rollback("--to-entry", "0", "--preview", "--json")
        text = rollback("--to-entry", "0", "--preview").out
    assert (ran.code, ran.json["applied"], ran.json["entry"], ran.json["discarded"]) == (0, False, None, 2)
    assert text.startswith("preview of a rollback of everything after entry 0:\n0 memories restored, 2 discarded")
    assert MARKER not in ran.out + text


def test_a_conflict_is_reported_and_can_be_skipped_or_forced(past: Agent) -> None:
    operations.revise(past, 1, ME, content=f"{MARKER} green tea")
    undone = seq(past)
    operations.revise(past, 1, ME, content=f"{MARKER} black tea")
    ran = rollback("--entry", undone, "--json")
    assert (ran.code, ran.json["applied"], "Nothing was changed." in ran.err) == (1, False, True)
    assert ran.json["conflicts"] == [{"memory": 1, "entries": [int(seq(past))]}]
    failed(rollback("--entry", undone, "--skip-conflicts", "--json"), 1, "nothing left to undo")
    assert rollback("--entry", undone, "--force", "--json").json["applied"]
    assert steps.says(past, 1).content == f"{MARKER} tea"


def test_a_constitutional_memory_needs_a_reason(past: Agent) -> None:
    before = seq(past)
    operations.revise(past, 1, ME, content=f"{MARKER} green tea")
    operations.protect(past, [2], PERSON)
    operations.protect(past, [1], PERSON)
    ran = rollback("--to-entry", before, "--json")
    assert (ran.code, ran.json["constitutional"], ran.json["applied"]) == (1, [1, 2], False)
    assert "--include-constitutional --reason TEXT" in ran.err
    failed(rollback("--to-entry", "1", "--include-constitutional"), 2, "--reason")
    ran = rollback("--to-entry", before, "--include-constitutional", "--reason", "x", "--json")
    assert (ran.code, ran.json["protection_changed"]) == (0, 2)


def test_invalid_arguments_change_nothing(past: Agent) -> None:
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
    with refining.untouched(past):
        for arguments, code, words in rows:
            failed(rollback(*arguments), code, words)


def test_an_abandoned_session_is_closed_before_its_rollback(past: Agent) -> None:
    """Also while memory is switched off."""
    opened = sessions.open_session(fresh(past), trigger="manual")
    RefinementSession.objects.filter(pk=opened.pk).update(lease_until=timezone.now())
    operations.revise(past, 1, ME, content=f"{MARKER} green tea", session=opened.number)
    signed_update(Agent.objects.filter(pk=past.pk), memory_enabled=False)
    assert rollback("--session", str(opened.number), "--preview").code == 1
    ran = rollback("--session", str(opened.number), "--json")
    assert (ran.code, ran.json["rewritten"], problems(past)) == (0, 1, [])


def test_a_preview_uses_the_options_and_says_if_the_rollback_is_refused(past: Agent) -> None:
    operations.discard(past, [1, 2], ME)
    undone = seq(past)
    operations.restore(past, [2], ME)
    operations.revise(past, 2, ME, content=f"{MARKER} warm milk")
    steps.protect(past, 2)

    def preview(*options: str) -> tuple[Any, int, int]:
        result = rollback("--entry", undone, *options, "--preview", "--json").json
        return result["refused"], result["restored"], result["protection_changed"]

    with_reason = ("--include-constitutional", "--reason", "a test")
    assert preview() == ("conflict", 1, 1)
    assert preview("--skip-conflicts") == (None, 1, 0)
    assert preview("--force") == ("constitutional", 1, 1)
    assert preview("--force", *with_reason) == (None, 1, 1)
    assert "the rollback is refused because of conflicts" in rollback("--entry", undone, "--preview").out
    skip = ("--entry", undone, "--skip-conflicts", "--json")
    planned, done = rollback(*skip, "--preview").json, rollback(*skip).json
    assert (done["restored"], done["tokens_after"]) == (planned["restored"], planned["tokens_after"]) != (0, 0)


def test_changes_made_while_the_question_waits_are_not_undone(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def remember_and_agree(*_: object, **__: object) -> bool:
        steps.remember(fresh(past), "honey")
        return True

    monkeypatch.setattr("config.commandline.Task.agrees", remember_and_agree)
    ran = rollback("--to-entry", "0")
    assert (ran.code, "Preview it again" in ran.err) == (1, True)
    assert len(steps.active(past)) == 4
