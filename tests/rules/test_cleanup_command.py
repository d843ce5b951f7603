"""`memory_rules cleanup`: a list for anybody; with the agent's key, a question for each, or numbers in scripts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from memory.agents import rule_changes
from memory.models import Agent, CleanupDecision, Recall
from memory.writing import operations
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.rules.talking import settings as settle
from tests.rules.test_cleanup import old
from tests.steps import ME, PERSON, active, fresh, last_entry, row

SAID = "ZEBRA"


@pytest.fixture
def past(house: House, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """Three memories that are overdue, and the agent's key at hand."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    old(house.ada, f"{SAID} one", f"{SAID} two " + "x" * 300, f"{SAID} three", days=100)
    return house.ada


@pytest.fixture
def no_key(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")


def clean(*args: str, stdin: str = "", terminal: bool = False) -> Ran:
    is_shown = mock.patch("memory.management.commands.cleanup.is_shown", return_value=terminal)
    with mock.patch("memory.management.agent_command.is_attended", return_value=terminal), is_shown:
        return run("cleanup", "acme/ada", *args, stdin=stdin.encode())


def seen(agent: Agent, *numbers: int) -> str:
    """As the list has them."""
    return ",".join(f"{number}@{row(agent, number).version}" for number in numbers)


def decided() -> dict[int, bool]:
    return dict(CleanupDecision.objects.values_list("number", "is_kept"))


@pytest.mark.parametrize("terminal", [False, True])
def test_without_a_key_it_lists_and_shows_nothing(past: Agent, no_key: None, terminal: bool) -> None:
    ran = clean(terminal=terminal, stdin="d\nd\nd\n")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == (
        f"{seen(past, 1):>10}  technical, low importance, {row(past, 1).tokens} tokens: 100 days old, "
        "suggested retention 90 days; never recalled"
    )
    assert "Nothing is discarded unless you say so" in ran.err
    assert (len(ran.out.splitlines()), SAID in ran.out + ran.err, decided()) == (3, False, {})


def test_as_json_and_of_one_category(past: Agent, no_key: None) -> None:
    told = clean("--json").json
    assert [each["number"] for each in told["suggestions"]] == [1, 2, 3]
    assert (told["more"], told["kept_back"]) == (0, 0)
    ran = clean("--category", "behavioral")
    assert (ran.out, "Nothing is suggested." in ran.err) == ("", True)


def test_each_is_asked_about_at_a_terminal(past: Agent) -> None:
    ran = clean(terminal=True, stdin="d\n\nk\n")
    assert (ran.code, active(past)) == (0, [2, 3])
    assert decided() == {1: False, 3: True}
    assert f"{SAID} one" in ran.out
    assert f"{SAID} two {'x' * 190}…" in ran.out
    assert "1 kept, 1 memory discarded, as entry" in ran.err
    assert last_entry(past).actor_kind == "agent"


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        ("", [1, 2, 3]),
        ("\n\n\n", [1, 2, 3]),
        ("yes\nall\n!\n", [1, 2, 3]),
        ("q\nd\nd\n", [1, 2, 3]),
        ("d\nq\n", [2, 3]),
        ("D\nd\nd\n", []),
        ("delete\nDon't\ny\nk\ndiscard\n", [1, 3]),
    ],
)
def test_nothing_goes_that_was_not_said_to(past: Agent, answers: str, left: list[int]) -> None:
    assert clean(terminal=True, stdin=answers).code == 0
    assert active(past) == left


def test_what_was_rewritten_while_it_was_asked_about_stays(past: Agent) -> None:
    answers = iter("dq")

    def answer() -> str:
        operations.revise(fresh(past), 1, ME, content="something else altogether")
        return next(answers)

    with mock.patch("config.commandline.input", answer, create=True):
        ran = clean(terminal=True)
    assert (ran.code, "Changed since you read them: 1." in ran.err) == (1, True)
    assert (active(past), decided()) == ([1, 2, 3], {})


def test_interrupted_nothing_is_done(past: Agent) -> None:
    with mock.patch("config.commandline.input", side_effect=["d", KeyboardInterrupt], create=True):
        ran = clean(terminal=True)
    assert (ran.code, active(past), decided()) == (1, [1, 2, 3], {})
    assert ran.err.endswith("Nothing was decided.\nerror: interrupted\n")


def test_where_nobody_is_asked_nothing_is_decided(past: Agent) -> None:
    """No terminal is there, or only a list was asked for."""
    for args in ((), ("--dry-run",), ("--dry-run", "--discard", "1@1"), ("--json",)):
        ran = clean(*args, stdin="d\nd\nd\n")
        assert (ran.code, active(past), decided()) == (0, [1, 2, 3], {})
        assert SAID not in ran.out + ran.err
    for args in (("--dry-run",), ("--json",)):
        assert clean(*args, terminal=True, stdin="d\nd\nd\n").code == 0
        assert active(past) == [1, 2, 3]


def test_where_asking_is_switched_off_it_lists(past: Agent) -> None:
    settle(past, cleanup_guidance__interactive_cleanup=False)
    ran = clean(terminal=True, stdin="d\nd\nd\n")
    assert ("[d/k/S/q]" in ran.err, f"{SAID} one" in ran.out, active(past)) == (False, True, [1, 2, 3])


def test_at_a_terminal_alone_the_list_says_how_each_begins(past: Agent) -> None:
    for terminal in (False, True):
        ran = clean("--dry-run", terminal=terminal)
        assert (f"{SAID} one" in ran.out, SAID in ran.err) == (terminal, False)
        assert SAID not in clean("--json", terminal=terminal).out


def test_what_was_discarded_is_told_with_what_brings_it_back(past: Agent) -> None:
    told = clean("--discard", seen(past, 1, 2)).err.splitlines()[-1]
    seq = last_entry(past).seq
    assert told == f"manage.py rollback acme/ada --entry {seq} restores them."
    assert run("rollback", "acme/ada", "--entry", str(seq), "--yes").code == 0
    assert active(past) == [1, 2, 3]


def test_what_is_not_suggested_is_told_so(past: Agent) -> None:
    operations.revise(past, 1, ME, tags=["important"])
    assert "1 other old memory not listed" in clean().err
    rows: list[tuple[dict[str, Any], str]] = [
        ({"categories__technical__enabled": False}, "technical is off, so nothing in that category is suggested."),
        ({"categories__technical__suggested_retention_days": 0}, "Nothing in technical is suggested"),
        ({"cleanup_guidance__enabled": False}, "while memory_rules.cleanup_guidance.enabled is off."),
    ]
    for changed, told in rows:
        settle(past, **changed)
        assert told in clean("--category", "technical").err


def test_numbers_decide(past: Agent) -> None:
    ran = clean("--discard", seen(past, 1, 3).replace(",", ", "), "--keep", "2", "--json")
    assert ran.json == {"kept": [2], "discarded": [1, 3], "entry": last_entry(past).seq}
    assert (active(past), decided()) == ([2], {1: False, 2: True, 3: False})


@pytest.mark.parametrize("option", ["--discard", "--keep"])
def test_what_was_rewritten_since_it_was_listed_stays(past: Agent, option: str) -> None:
    listed = clean().out.split()[0]
    operations.revise(fresh(past), 1, ME, content="something else altogether")
    failed(clean(option, listed), 1, "Changed since you read them: 1.")
    assert (active(past), decided()) == ([1, 2, 3], {})


def test_what_is_no_decision_is_refused(past: Agent) -> None:
    rows: list[tuple[tuple[str, ...], str]] = [
        (("--discard", "9@1"), "discard"),
        (("--discard", "1"), "such as 3@390"),
        (("--discard", "1@"), "such as 3@390"),
        (("--discard", "1@x"), "such as 3@390"),
        (("--keep", "1@"), "such as 3,5@12"),
        (("--discard", "all"), "discard"),
        (("--discard", ""), "discard"),
        (("--discard", "1,"), "discard"),
        (("--discard", "-1"), "discard"),
        (("--keep", "1", "--discard", "1@1"), "discard"),
        (("--all",), "--all"),
        (("--category", "nothing"), "--category"),
    ]
    for args, word in rows:
        failed(clean(*args), 2, word)
    assert (active(past), decided()) == ([1, 2, 3], {})


def test_without_the_agents_key_nothing_is_decided(past: Agent, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("", house.bob_key):
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
        failed(clean("--discard", "1@1"), 2, "PALIMPSEST_AGENT_KEY")
        assert SAID not in clean(terminal=True, stdin="d\nd\nd\n").out
    assert active(past) == [1, 2, 3]


def test_a_closed_switch_is_told_with_what_opens_it(past: Agent) -> None:
    rule_changes.change(past, PERSON, enabled=False)
    ran = clean()
    assert (ran.code, ran.out) == (0, "")
    assert "To turn on: memory as a whole (memory_rules.enabled)" in ran.err
    assert "manage.py rules enable acme/ada" in ran.err
    assert "Nothing was done." in ran.err


def test_one_day_is_one(past: Agent) -> None:
    settle(past, categories__technical__suggested_retention_days=1)
    assert "100 days old, suggested retention 1 day" in clean().out
    ago = timezone.now() - timedelta(days=90)
    Recall.objects.create(agent_id=past.pk, number=1, times=1, first_at=ago, last_at=ago)
    assert "recalled once, last on" in clean().out
    assert " 1 day suggested" in run("rules", "status", "acme/ada").out
