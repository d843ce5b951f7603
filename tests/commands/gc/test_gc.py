"""`gc` with a memory file: the tests of seed 001, section 7.3, under their names; then names and files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from audit.models import AuditEntry, Operation
from memory.agents import rule_changes
from memory.models import Agent
from memory.run_log import runs
from memory.writing import operations
from refinement import gc, providers
from tests.commands.calling import run
from tests.commands.gc.cases import PROMPT
from tests.commands.gc.logs import ME, REPORT, Make, log_of, refused, separators, told
from tests.model_server import ModelServer, Say, Status, Turn
from tests.steps import PERSON, fresh, problems
from tests.unit.test_memory_file import entry, of


def test_gc_no_args_no_all(db: None) -> None:
    refused(run("gc"), 1, "agent name is required (or use --all)")


def test_gc_all_with_agent_name(db: None) -> None:
    refused(run("gc", "myagent", "--all"), 1, "cannot specify both --all and an agent name")


def test_gc_agent_not_found(db: None) -> None:
    refused(run("gc", "nonexistent"), 2, "not found")


def test_gc_memory_disabled(make: Make, server: ModelServer) -> None:
    make(memory_enabled=False)
    ran = run("gc", "ada")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == 'Warning: agent "ada" does not have memory enabled. Skipping.\n'
    assert server.requests == []


def test_gc_no_memory_file(make: Make, server: ModelServer) -> None:
    make(entries=None)
    ran = run("gc", "ada")
    assert (ran.code, ran.out, ran.err) == (0, 'No memory entries for agent "ada". Nothing to do.\n', "")
    assert server.requests == []


def test_gc_empty_memory_file(make: Make, server: ModelServer) -> None:
    make(entries=0)
    assert run("gc", "ada").out == 'No memory entries for agent "ada". Nothing to do.\n'


def test_gc_analyze_and_trim(make: Make) -> None:
    agent = make(last_n=3)
    ran = run("gc", "ada")
    assert ran.code == 0
    assert (
        ran.out == f"Agent: ada\nEntries: 10\n--- Analysis ---\n{REPORT}\nTrimmed: 7 entries removed, 3 entries kept.\n"
    )
    assert log_of(agent) == entry(8) + entry(9) + entry(10)


def test_gc_dry_run(make: Make) -> None:
    agent = make(last_n=3)
    ran = run("gc", "ada", "--dry-run")
    assert (ran.code, told(ran)[-1]) == (0, "Dry run: no entries trimmed.")
    assert REPORT in ran.out
    assert log_of(agent) == of(10)


def test_gc_no_trim_target(make: Make) -> None:
    agent = make()
    ran = run("gc", "ada")
    assert ran.code == 0
    assert told(ran)[-1] == "No trim target configured (last_n and max_entries are both 0). Skipping trim."
    assert REPORT in ran.out
    assert log_of(agent) == of(10)


def test_gc_fallback_to_max_entries(make: Make) -> None:
    agent = make(max_entries=5)
    assert told(run("gc", "ada"))[-1] == "Trimmed: 5 entries removed, 5 entries kept."
    assert log_of(agent).count(b"## ") == 5


def test_gc_model_override(make: Make, server: ModelServer) -> None:
    make(model="anthropic/claude-3")
    assert run("gc", "ada", "--model", "ollama/llama3").code == 0
    [received] = server.requests
    assert (received.path, received.body["model"]) == ("/api/chat", "llama3")


def test_gc_llm_error(make: Make, server: ModelServer) -> None:
    server.script = Status(500)
    agent = make(last_n=3)
    for number, provider in enumerate(("openai", "anthropic", "ollama"), 1):
        ran = run("gc", "ada", "--model", f"{provider}/any")
        assert (ran.code, ran.err) == (3, "server: no\n")
        assert log_of(agent) == of(10)
        assert len(server.requests) == number, "one call means no retries"


def test_gc_nothing_to_trim(make: Make) -> None:
    make(entries=3, last_n=10)
    assert told(run("gc", "ada"))[-1] == "No trimming needed: 3 entries within limit (10)."


def test_gc_all_flag_no_memory_agents(make: Make) -> None:
    for slug in ("a", "b"):
        make(slug, memory_enabled=False)
    ran = run("gc", "--all")
    assert (ran.code, ran.out, ran.err) == (0, "No agents with memory enabled.\n", "")


def test_gc_all_flag_no_agents(server: ModelServer, db: None) -> None:
    assert run("gc", "--all").out == "No agents with memory enabled.\n"


def test_gc_all_flag_multiple_agents(make: Make) -> None:
    make("agent-a")
    make("agent-b", memory_enabled=False)
    make("agent-c", entries=5)
    ran = run("gc", "--all")
    assert ran.code == 0
    assert separators(ran) == ["=== GC: agent-a ===", "=== GC: agent-c ==="]


def test_gc_all_flag_partial_failure(make: Make, request: pytest.FixtureRequest) -> None:
    make("agent-a", last_n=3)
    unreadable = make("agent-b")
    Path(unreadable.memory_path).chmod(0)
    request.getfixturevalue("as_nobody")
    ran = run("gc", "--all")
    assert ran.code == 1
    assert "Trimmed: 7 entries removed, 3 entries kept." in ran.out
    assert 'Error: gc failed for agent "agent-b": ' in ran.err
    assert ran.err.endswith("gc completed with errors: 1 of 2 agents failed\n")


def test_gc_all_flag_with_dry_run(make: Make) -> None:
    both = [make("a", last_n=3), make("b", last_n=3)]
    ran = run("gc", "--all", "--dry-run")
    assert (ran.out.count(REPORT), ran.out.count("Dry run: no entries trimmed.")) == (2, 2)
    assert [log_of(agent) for agent in both] == [of(10)] * 2


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
def test_gc_pattern_detection_prompt(make: Make, server: ModelServer, provider: str) -> None:
    seen: list[Turn] = []
    server.script = lambda turn: (seen.append(turn), Say(REPORT))[1]
    make(model=f"{provider}/any")
    run("gc", "ada")
    [turn] = seen
    assert turn.system == PROMPT
    assert [message.text for message in turn.messages] == [of(10).decode()]
    assert turn.tools == ()
    [body] = [received.body for received in server.requests]
    options = body.get("options", body)
    assert (options["temperature"], options.get("max_tokens", options.get("num_predict"))) == (0.3, 4_096)


# --- names


def test_a_slug_of_several_tenants_is_named_with_its_tenant(make: Make) -> None:
    make(tenant="acme")
    make(tenant="globex")
    ran = run("gc", "ada")
    assert ran.code == 2
    assert "acme/ada, globex/ada" in ran.err
    assert told(run("gc", "globex/ada"))[0] == "Agent: globex/ada"
    assert separators(run("gc", "--all")) == ["=== GC: acme/ada ===", "=== GC: globex/ada ==="]
    assert separators(run("gc", "--all", "--tenant", "acme")) == ["=== GC: ada ==="]


def test_names_are_of_any_script(make: Make) -> None:
    agent = make("журнал", last_n=3)
    assert run("log_run", "acme/журнал", "--task", "Чай", "--result", "готов").code == 0
    assert told(run("gc", "журнал"))[-1] == "Trimmed: 8 entries removed, 3 entries kept."
    assert "Чай" in log_of(agent).decode()


def test_wrong_usage_is_exit_code_1(db: None) -> None:
    for args in (["--json"], ["--verbose"], ["a", "b"], ["ada", "--tenant", "acme"]):
        refused(run("gc", *args), 1, "")
    refused(run("gc", "--all", "--tenant", "nope"), 2, 'tenant "nope" not found')


def test_the_built_in_model_cannot_analyse(make: Make, server: ModelServer) -> None:
    make(model="builtin/dedupe")
    ran = run("gc", "ada")
    assert ran.code == 3
    assert "anthropic, openai, ollama" in ran.err
    assert server.requests == []


# --- files


def test_a_trim_is_in_the_trail_with_counts_sizes_and_digests(make: Make) -> None:
    agent = make(last_n=3)
    run("gc", "ada")
    [done] = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.TRIMMED)
    file = done.detail["file"]
    assert (file["removed"], file["kept"]) == (7, 3)
    assert [file[when]["entries"] for when in ("before", "after")] == [10, 3]
    assert file["after"]["bytes"] == len(log_of(agent))
    assert problems(agent) == []


def test_a_file_outside_the_operators_folders_is_not_read(make: Make, tmp_path: Path, settings: Any) -> None:
    agent = make()
    settings.VAULT_ROOTS = [str(tmp_path / "vault")]
    ran = run("gc", "ada")
    assert (ran.code, ran.out) == (2, "")
    assert "VAULT_ROOTS" in ran.err
    assert log_of(agent) == of(10)


def test_an_analysis_that_cannot_be_written_out_trims_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make(last_n=3)
    full = mock.Mock(side_effect=OSError(28, os.strerror(28)))
    monkeypatch.setattr("refinement.management.commands.gc.Command.flush", full)
    ran = run("gc", "ada")
    assert ran.code == 1
    assert "nothing was trimmed" in ran.err
    assert log_of(agent) == of(10)


@pytest.mark.parametrize("is_file", [True, False])
def test_memory_that_is_switched_off_before_the_trim_is_an_error(
    make: Make, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    agent, trim = make(last_n=3, **({} if is_file else {"memory_path": ""})), gc._trim
    for nth in range(0 if is_file else 5):
        runs.log_run(agent, f"task {nth}", "done", ME)

    def switch_off_and_trim(*arguments: Any) -> None:
        rule_changes.change(fresh(agent), PERSON, enabled=False)
        trim(*arguments)

    monkeypatch.setattr(gc, "_trim", switch_off_and_trim)
    ran = run("gc", "ada")
    assert ran.code == 1
    assert ran.err.startswith("Error: Memory is off for this agent.")
    assert "Trimmed" not in ran.out
    assert log_of(agent) == of(10) if is_file else operations.runs(fresh(agent)).count() == 5


def test_a_file_that_is_rewritten_while_the_model_thinks_is_an_error(make: Make, server: ModelServer) -> None:
    agent = make(last_n=3)

    def rewriting(_: Turn) -> Say:
        Path(agent.memory_path).write_bytes(of(10).replace(b"task1\n", b"TASK1\n"))
        return Say(REPORT)

    server.script = rewriting
    ran = run("gc", "ada")
    assert ran.code == 1
    assert "rewritten in the meantime" in ran.err
    assert not AuditEntry.objects.filter(operation=Operation.TRIMMED).exists()


def test_what_fits_the_model_is_sent_and_the_rest_is_told(make: Make, server: ModelServer) -> None:
    agent = make(last_n=3)
    Agent.objects.filter(pk=agent.pk).update(context_tokens=40)
    ran = run("gc", "ada")
    [received] = server.requests
    sent = received.body["messages"][-1]["content"]
    assert of(10).decode().endswith(sent)
    left_out = 10 - sent.count("## ")
    assert 0 < left_out < 10
    assert ran.err == f"The oldest {left_out} of 10 entries do not fit into 40 tokens and are not analysed.\n"
    assert told(ran)[-1] == "Trimmed: 7 entries removed, 3 entries kept."


def test_what_one_agents_provider_answers_keeps_no_other_from_being_called(make: Make, server: ModelServer) -> None:
    for slug in ("a", "b", "c"):
        make(slug, last_n=3)
    server.script = lambda turn: Status(429, {"Retry-After": "30"}) if turn.number == 0 else Say(REPORT)
    ran = run("gc", "--all")
    assert len(server.requests) == 3
    assert ran.err.endswith("gc completed with errors: 1 of 3 agents failed\n")
    assert providers.failing_names() == []


def test_all_ends_where_nothing_can_be_written_out(make: Make, server: ModelServer, monkeypatch: Any) -> None:
    both = [make(slug, last_n=3) for slug in ("a", "b")]
    full = mock.Mock(side_effect=OSError(28, os.strerror(28)))
    monkeypatch.setattr("django.core.management.base.OutputWrapper.flush", full)
    ran = run("gc", "--all")
    assert ran.code == 1
    assert "gc ended: what is found cannot be written out; 1 of 2 agents done" in ran.err
    assert [log_of(agent) for agent in both] == [of(10)] * 2
    assert len(server.requests) == 1
