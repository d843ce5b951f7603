"""The command `cleanup`: a list for everybody; questions at a terminal, or numbers in scripts, with the agent's key."""

from typing import Any
from unittest import mock

import pytest

from memory.models import Agent, CleanupDecision
from memory.recording import cleanup
from memory.writing import operations
from tests.claiming import claim
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.rules.recordings import settings
from tests.rules.test_cleanup import old
from tests.steps import ME, active, fresh, last_entry, row

CONTENT = "ZEBRA"


@pytest.fixture
def past(house: House, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with three overdue memories. Its key is in the environment."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    old(house.ada, f"{CONTENT} one", f"{CONTENT} two " + "x" * 300, f"{CONTENT} three", days=100)
    return house.ada


@pytest.fixture
def no_key(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")


def clean(*args: str, stdin: str = "", terminal: bool = False) -> Ran:
    is_shown = mock.patch("memory.management.commands.cleanup.is_shown", return_value=terminal)
    with mock.patch("memory.management.agent_command.is_attended", return_value=terminal), is_shown:
        return run("cleanup", "acme/ada", *args, stdin=stdin.encode())


def listed(agent: Agent, *numbers: int) -> str:
    """Numbers with versions, as the list has them."""
    return ",".join(f"{number}@{row(agent, number).version}" for number in numbers)


def decided() -> dict[int, bool]:
    return dict(CleanupDecision.objects.values_list("number", "is_kept"))


def assert_nothing_decided(agent: Agent) -> None:
    assert (active(agent), decided()) == ([1, 2, 3], {})


@pytest.mark.parametrize("terminal", [False, True])
def test_without_a_key_it_lists_without_content(past: Agent, no_key: None, terminal: bool) -> None:
    ran = clean(terminal=terminal, stdin="d\nd\nd\n")
    lines = ran.out.splitlines()
    facts = f"{row(past, 1).tokens} tokens: 100 days old, suggested retention 90 days; never recalled"
    assert lines[0] == f"{listed(past, 1):>10}  technical, low importance, {facts}"
    assert "Nothing is discarded unless you say so" in ran.err
    assert (ran.code, len(lines), CONTENT in ran.out + ran.err, decided()) == (0, 3, False, {})
    found = clean("--json").json
    assert ([each["number"] for each in found["suggestions"]], found["more"], found["kept_back"]) == ([1, 2, 3], 0, 0)
    ran = clean("--category", "behavioral")
    assert (ran.out, "Nothing is suggested." in ran.err) == ("", True)


def test_the_list_has_the_beginning_of_the_content_only_at_a_terminal(past: Agent) -> None:
    for terminal in (False, True):
        ran = clean("--dry-run", terminal=terminal)
        assert (f"{CONTENT} one" in ran.out, CONTENT in ran.err) == (terminal, False)
        assert CONTENT not in clean("--json", terminal=terminal).out


def test_at_a_terminal_it_asks_about_each_memory(past: Agent) -> None:
    ran = clean(terminal=True, stdin="d\n\nk\n")
    assert (ran.code, active(past), decided()) == (0, [2, 3], {1: False, 3: True})
    assert f"{CONTENT} one" in ran.out
    assert f"{CONTENT} two {'x' * 190}…" in ran.out
    assert "1 kept, 1 memory discarded, as entry" in ran.err
    assert last_entry(past).actor_kind == "agent"


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        *(("", [1, 2, 3]), ("\n\n\n", [1, 2, 3]), ("yes\nall\n!\n", [1, 2, 3]), ("q\nd\nd\n", [1, 2, 3])),
        *(("d\nq\n", [2, 3]), ("D\nd\nd\n", []), ("delete\nDon't\ny\nk\ndiscard\n", [1, 3])),
    ],
)
def test_only_an_explicit_answer_discards(past: Agent, answers: str, left: list[int]) -> None:
    assert clean(terminal=True, stdin=answers).code == 0
    assert active(past) == left


def test_a_memory_revised_during_the_questions_is_not_discarded(past: Agent) -> None:
    answers = iter("dq")

    def answer() -> str:
        operations.revise(fresh(past), 1, ME, content="something else altogether")
        return next(answers)

    with mock.patch("config.commandline.input", answer, create=True):
        ran = clean(terminal=True)
    assert (ran.code, "have changed since you read them: 1." in ran.err) == (1, True)
    assert_nothing_decided(past)


def test_an_interrupt_discards_nothing(past: Agent) -> None:
    with mock.patch("config.commandline.input", side_effect=["d", KeyboardInterrupt], create=True):
        ran = clean(terminal=True)
    assert (ran.code, ran.err.endswith("Nothing was decided.\nerror: interrupted\n")) == (1, True)
    assert_nothing_decided(past)


def test_without_a_terminal_or_with_a_list_option_nothing_is_decided(past: Agent) -> None:
    for args in ((), ("--dry-run",), ("--dry-run", "--discard", "1@1"), ("--json",)):
        ran = clean(*args, stdin="d\nd\nd\n")
        assert (ran.code, CONTENT in ran.out + ran.err) == (0, False)
    for args in (("--dry-run",), ("--json",)):
        assert clean(*args, terminal=True, stdin="d\nd\nd\n").code == 0
    settings(past, cleanup_guidance__interactive_cleanup=False)
    ran = clean(terminal=True, stdin="d\nd\nd\n")
    assert ("[d/k/S/q]" in ran.err, f"{CONTENT} one" in ran.out) == (False, True)
    assert_nothing_decided(past)


def test_numbers_decide_and_the_entry_can_be_rolled_back(past: Agent) -> None:
    ran = clean("--discard", listed(past, 1, 3).replace(",", ", "), "--keep", "2", "--json")
    seq = last_entry(past).seq
    assert ran.json == {"kept": [2], "discarded": [1, 3], "entry": seq}
    assert (active(past), decided()) == ([2], {1: False, 2: True, 3: False})
    assert run("rollback", "acme/ada", "--entry", str(seq), "--yes").code == 0
    assert active(past) == [1, 2, 3]
    command = f"manage.py rollback acme/ada --entry {seq + 2} restores it."
    assert clean("--discard", listed(past, 1)).err.splitlines()[-1] == command


@pytest.mark.parametrize("option", ["--discard", "--keep"])
def test_a_memory_revised_since_the_list_is_neither_discarded_nor_kept(past: Agent, option: str) -> None:
    number = listed(past, 1)
    operations.revise(past, 1, ME, content="something else altogether")
    failed(clean(option, number), 1, "These memories have changed since you read them: 1.")
    assert_nothing_decided(past)


def test_invalid_arguments_are_refused(past: Agent) -> None:
    for discard in ("9@1", "all", "", "1,", "-1"):
        failed(clean("--discard", discard), 2, "discard")
    for discard in ("1", "1@", "1@x"):
        failed(clean("--discard", discard), 2, "such as 3@390")
    failed(clean("--keep", "1@"), 2, "such as 3,5@12")
    failed(clean("--keep", "1", "--discard", "1@1"), 2, "discard")
    failed(clean("--all"), 2, "--all")
    failed(clean("--category", "nothing"), 2, "--category")
    assert_nothing_decided(past)


def test_without_the_agents_key_nothing_is_decided(past: Agent, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("", house.bob_key):
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
        failed(clean("--discard", "1@1"), 2, "PALIMPSEST_AGENT_KEY")
        assert CONTENT not in clean(terminal=True, stdin="d\nd\nd\n").out
    assert_nothing_decided(past)


def test_a_key_that_ends_after_the_list_is_made_shows_nothing(past: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    review = cleanup.review

    def late(*args: Any, **options: Any) -> Any:
        found = review(*args, **options)
        claim(past)
        return found

    monkeypatch.setattr(cleanup, "review", late)
    ran = clean(terminal=True, stdin="k\nk\nk\n")
    assert (ran.code, CONTENT in ran.out + ran.err) == (2, False)
    assert_nothing_decided(past)
