"""`gc` with a memory file: the tests of seed 001, section 7.3, with their names; names, models, providers and files."""

import errno
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from audit.models import AuditEntry, Operation
from memory.agents import rule_changes
from memory.models import Agent
from memory.run_log import runs
from memory.run_log.files import Folder
from memory.writing import operations
from refinement import gc, providers
from tests.commands.calling import failed, run
from tests.commands.gc.cases import PROMPT
from tests.commands.gc.conftest import ME, REPORT, Make, last_line, log_of, sent_log, separators
from tests.model_server import ModelServer, Say, Slow, Status, Turn
from tests.steps import PERSON, fresh, problems
from tests.unit.test_memory_file import entry, of

NO_ENTRIES = 'No memory entries for agent "ada". Nothing to do.\n'


def test_gc_no_args_no_all(db: None) -> None:
    failed(run("gc"), 1, "agent name is required (or use --all)")


def test_gc_all_with_agent_name(db: None) -> None:
    failed(run("gc", "myagent", "--all"), 1, "cannot specify both --all and an agent name")


def test_gc_agent_not_found(db: None) -> None:
    failed(run("gc", "nonexistent"), 2, "not found")


def test_gc_memory_disabled(make: Make, server: ModelServer) -> None:
    make(memory_enabled=False)
    ran = run("gc", "ada")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == 'Warning: agent "ada" does not have memory enabled. Skipping.\n'
    assert server.requests == []


def test_gc_no_memory_file(make: Make, server: ModelServer) -> None:
    make(entries=None)
    ran = run("gc", "ada")
    assert (ran.code, ran.out, ran.err, server.requests) == (0, NO_ENTRIES, "", [])


def test_gc_empty_memory_file(make: Make) -> None:
    make(entries=0)
    assert run("gc", "ada").out == NO_ENTRIES


def test_gc_analyze_and_trim(make: Make) -> None:
    agent = make(last_n=3)
    ran = run("gc", "ada")
    trimmed = "Trimmed: 7 entries removed, 3 entries kept."
    assert (ran.code, ran.out) == (0, f"Agent: ada\nEntries: 10\n--- Analysis ---\n{REPORT}\n{trimmed}\n")
    assert log_of(agent) == entry(8) + entry(9) + entry(10)


def test_gc_dry_run(make: Make) -> None:
    agent = make(last_n=3)
    ran = run("gc", "ada", "--dry-run")
    assert (ran.code, last_line(ran), REPORT in ran.out) == (0, "Dry run: no entries trimmed.", True)
    assert log_of(agent) == of(10)


def test_gc_no_trim_target(make: Make) -> None:
    agent = make()
    ran = run("gc", "ada")
    assert (ran.code, REPORT in ran.out) == (0, True)
    assert last_line(ran) == "No trim target configured (last_n and max_entries are both 0). Skipping trim."
    assert log_of(agent) == of(10)


def test_gc_fallback_to_max_entries(make: Make) -> None:
    agent = make(max_entries=5)
    assert last_line(run("gc", "ada")) == "Trimmed: 5 entries removed, 5 entries kept."
    assert log_of(agent).count(b"## ") == 5


def test_gc_model_override(make: Make, server: ModelServer) -> None:
    make(model="anthropic/claude-3")
    assert run("gc", "ada", "--model", "ollama/llama3").code == 0
    [received] = server.requests
    assert (received.path, received.body["model"]) == ("/api/chat", "llama3")


def test_gc_llm_error(make: Make, server: ModelServer) -> None:
    server.script = Status(500)
    agent = make(last_n=3)
    for requests, provider in enumerate(PROVIDERS, 1):
        ran = run("gc", "ada", "--model", f"{provider}/any")
        assert (ran.code, ran.err, log_of(agent)) == (3, "server: no\n", of(10))
        assert len(server.requests) == requests, "there are no retries"


def test_gc_nothing_to_trim(make: Make) -> None:
    make(entries=3, last_n=10)
    assert last_line(run("gc", "ada")) == "No trimming needed: 3 entries within limit (10)."


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
    assert (ran.code, separators(ran)) == (0, ["=== GC: agent-a ===", "=== GC: agent-c ==="])


def test_gc_all_flag_partial_failure(make: Make, request: pytest.FixtureRequest) -> None:
    make("agent-a", last_n=3)
    Path(make("agent-b").memory_path).chmod(0)
    request.getfixturevalue("as_nobody")
    ran = run("gc", "--all")
    assert ran.code == 1
    assert "Trimmed: 7 entries removed, 3 entries kept." in ran.out
    assert 'Error: gc failed for agent "agent-b": ' in ran.err
    assert ran.err.endswith("gc completed with errors: 1 of 2 agents failed\n")


def test_gc_all_flag_with_dry_run(make: Make) -> None:
    agents = [make("a", last_n=3), make("b", last_n=3)]
    ran = run("gc", "--all", "--dry-run")
    assert (ran.out.count(REPORT), ran.out.count("Dry run: no entries trimmed.")) == (2, 2)
    assert [log_of(agent) for agent in agents] == [of(10)] * 2


PROVIDERS = ("anthropic", "openai", "ollama")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_gc_pattern_detection_prompt(make: Make, server: ModelServer, provider: str) -> None:
    turns: list[Turn] = []
    server.script = lambda turn: (turns.append(turn), Say(REPORT))[1]
    make(model=f"{provider}/any")
    run("gc", "ada")
    [turn] = turns
    assert (turn.system, turn.tools) == (PROMPT, ())
    assert [message.text for message in turn.messages] == [of(10).decode()]
    [body] = [received.body for received in server.requests]
    options = body.get("options", body)
    assert (options["temperature"], options.get("max_tokens", options.get("num_predict"))) == (0.3, 4_096)


def test_a_slug_of_several_tenants_needs_its_tenant(make: Make) -> None:
    make(tenant="acme")
    make(tenant="globex")
    failed(run("gc", "ada"), 2, "acme/ada, globex/ada")
    assert run("gc", "globex/ada").out.startswith("Agent: globex/ada\n")
    assert separators(run("gc", "--all")) == ["=== GC: acme/ada ===", "=== GC: globex/ada ==="]
    assert separators(run("gc", "--all", "--tenant", "acme")) == ["=== GC: ada ==="]


def test_wrong_usage_is_exit_code_1(db: None) -> None:
    for args in (["--json"], ["--verbose"], ["a", "b"], ["ada", "--tenant", "acme"]):
        failed(run("gc", *args), 1)
    failed(run("gc", "--all", "--tenant", "nope"), 2, 'tenant "nope" not found')


def test_the_built_in_model_cannot_analyse(make: Make, server: ModelServer) -> None:
    make(model="builtin/dedupe")
    ran = run("gc", "ada")
    assert (ran.code, "anthropic, openai, ollama" in ran.err, server.requests) == (3, True, [])


def test_an_invalid_model_is_refused(make: Make, server: ModelServer) -> None:
    agent = make(last_n=3)
    for provider in ("acme", "OpenAI"):
        ran = run("gc", "ada", "--model", f"{provider}/gpt")
        supported = "supported providers are anthropic, openai, ollama"
        assert (ran.code, ran.err) == (1, f'unsupported provider "{provider}": {supported}\n')
    for model in ("openai/gpt\n", "open\nai/gpt"):
        assert run("gc", "ada", "--model", model).code == 1
    assert (server.requests, log_of(agent)) == ([], of(10))


def test_a_call_that_takes_too_long_is_a_timeout(make: Make, server: ModelServer, settings: Any) -> None:
    settings.MODEL_CALL_SECONDS = 0.3
    server.script = Slow(5)
    agent = make(last_n=3)
    ran = run("gc", "ada")
    assert (ran.code, ran.err) == (3, "timeout: The OpenAI server did not answer in time.\n")
    assert log_of(agent) == of(10)


STATUSES = (400, 401, 403, 404, 408, 413, 429, 500, 502, 503, 529)
CLASSES = {  # of the statuses that are not "server", as in the original program
    "anthropic": {400: "bad_request", 401: "auth", 429: "rate_limit", 529: "overloaded"},
    "openai": {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 429: "rate_limit"},
    "ollama": {400: "bad_request", 404: "bad_request"},
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_status_decides_the_class_of_the_error(make: Make, server: ModelServer, provider: str) -> None:
    agent = make(model=f"{provider}/any", last_n=3)
    for status in STATUSES:
        server.script = Status(status)
        ran = run("gc", "ada")
        name = CLASSES[provider].get(status, "server")
        assert (ran.code, ran.err) == (1 if name == "bad_request" else 3, f"{name}: no\n"), status
    assert (len(server.requests), log_of(agent)) == (len(STATUSES), of(10))


def test_a_rate_limit_of_one_agent_does_not_stop_the_others(make: Make, server: ModelServer) -> None:
    for slug in ("a", "b", "c"):
        make(slug, last_n=3)
    server.script = lambda turn: Status(429, {"Retry-After": "30"}) if turn.number == 0 else Say(REPORT)
    ran = run("gc", "--all")
    assert len(server.requests) == 3
    assert ran.err.endswith("gc completed with errors: 1 of 3 agents failed\n")
    assert providers.failing_names() == []


def test_only_entries_that_fit_the_model_are_sent(make: Make, server: ModelServer) -> None:
    agent = make(last_n=3)
    Agent.objects.filter(pk=agent.pk).update(context_tokens=40)
    ran = run("gc", "ada")
    sent = sent_log(server)
    assert of(10).decode().endswith(sent)
    left_out = 10 - sent.count("## ")
    assert 0 < left_out < 10
    assert ran.err == f"The oldest {left_out} of 10 entries do not fit into 40 tokens and are not analysed.\n"
    assert last_line(ran) == "Trimmed: 7 entries removed, 3 entries kept."


NO_SPACE = mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def test_a_folder_that_is_not_writable_is_an_error(make: Make, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    agent = make(last_n=3)
    request.getfixturevalue("as_nobody")
    tmp_path.chmod(0o555)
    ran = run("gc", "ada")
    tmp_path.chmod(0o755)
    folder = re.escape(str(tmp_path))
    error = f"failed to create temp file: open {folder}/.palimpsest-trim-[0-9a-f]{{16}}: permission denied\n"
    assert re.fullmatch(f"Error: {error}{error}", ran.err)
    assert (ran.code, REPORT in ran.out, log_of(agent)) == (1, True, of(10))
    assert [each.name for each in tmp_path.iterdir()] == [Path(agent.memory_path).name]


def test_a_read_only_file_system_stops_only_a_trim(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, real_open = make(entries=3, last_n=10), Folder.open

    def open_to_read(folder: Folder, name: str, flags: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real_open(folder, name, flags)

    monkeypatch.setattr(Folder, "open", open_to_read)
    for name in ("remove", "replace", "link", "move", "sync"):
        monkeypatch.setattr(Folder, name, mock.Mock(side_effect=OSError(errno.EROFS, os.strerror(errno.EROFS))))
    ran = run("gc", "ada")
    assert (ran.code, ran.err, last_line(ran)) == (0, "", "No trimming needed: 3 entries within limit (10).")
    Agent.objects.filter(pk=agent.pk).update(last_n=2)
    ran = run("gc", "ada")
    assert ran.code == 1
    assert "failed to create temp file: open " in ran.err
    assert ": read-only file system" in ran.err
    assert log_of(agent) == of(3)


def test_the_temporary_file_is_beside_the_target(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make(last_n=3)
    monkeypatch.delattr(os, "O_TMPFILE")  # so that the temporary file has a name
    folders: list[Path] = []
    real_open = os.open

    def record(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and flags & os.O_EXCL:
            folders.append(Path(f"/proc/self/fd/{named['dir_fd']}").readlink())
        return real_open(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", record)
    assert run("gc", "ada").code == 0
    assert folders == [Path(agent.memory_path).parent]


def test_an_agent_can_have_its_own_path(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "down" / "notes of ada.md"
    path.parent.mkdir(parents=True)
    path.write_bytes(of(10))
    agent = make(entries=None, memory_path="deep/down/notes of ada.md", last_n=3)
    assert agent.memory_path == str(path)
    assert last_line(run("gc", "ada")) == "Trimmed: 7 entries removed, 3 entries kept."
    runs.log_run(agent, "another", "done", ME)
    assert path.read_bytes().startswith(entry(8) + entry(9) + entry(10) + b"## 2")


def test_a_trim_is_in_the_trail_with_counts_and_sizes(make: Make) -> None:
    agent = make(last_n=3)
    run("gc", "ada")
    file = AuditEntry.objects.get(agent_id=agent.pk, operation=Operation.TRIMMED).detail["file"]
    assert (file["removed"], file["kept"], file["before"]["entries"], file["after"]["entries"]) == (7, 3, 10, 3)
    assert file["after"]["bytes"] == len(log_of(agent))
    assert problems(agent) == []


def test_a_file_outside_the_vault_roots_is_not_read(make: Make, tmp_path: Path, settings: Any) -> None:
    agent = make()
    settings.VAULT_ROOTS = [str(tmp_path / "vault")]
    failed(run("gc", "ada"), 2, "VAULT_ROOTS")
    assert log_of(agent) == of(10)


def test_nothing_is_trimmed_if_the_analysis_cannot_be_written_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make(last_n=3)
    monkeypatch.setattr("refinement.management.commands.gc.Command.flush", NO_SPACE)
    ran = run("gc", "ada")
    assert (ran.code, "nothing was trimmed" in ran.err, log_of(agent)) == (1, True, of(10))


def test_all_ends_if_output_cannot_be_written(make: Make, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [make(slug, last_n=3) for slug in ("a", "b")]
    monkeypatch.setattr("django.core.management.base.OutputWrapper.flush", NO_SPACE)
    ran = run("gc", "--all")
    assert ran.code == 1
    assert "gc stopped: cannot write to the output; 1 of 2 agents done" in ran.err
    assert [log_of(agent) for agent in agents] == [of(10)] * 2
    assert len(server.requests) == 1


@pytest.mark.parametrize("has_file", [True, False])
def test_memory_off_before_the_trim_is_an_error(make: Make, monkeypatch: pytest.MonkeyPatch, has_file: bool) -> None:
    agent, trim = make(last_n=3, **({} if has_file else {"memory_path": ""})), gc._trim
    for number in range(0 if has_file else 5):
        runs.log_run(agent, f"task {number}", "done", ME)

    def switch_off_and_trim(*arguments: Any) -> None:
        rule_changes.change(fresh(agent), PERSON, enabled=False)
        trim(*arguments)

    monkeypatch.setattr(gc, "_trim", switch_off_and_trim)
    ran = run("gc", "ada")
    assert (ran.code, "Trimmed" in ran.out) == (1, False)
    assert ran.err.startswith("Error: Memory is off for this agent.")
    assert log_of(agent) == of(10) if has_file else operations.runs(fresh(agent)).count() == 5
