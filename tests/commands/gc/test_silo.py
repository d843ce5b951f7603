"""`gc` of a log in the journal: who can read the analysis, what is sent, and changes during the call."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from audit.consent import Scope
from audit.models import AuditEntry, Operation
from memory.access.authentication import prefix_of
from memory.agents import lifecycle, rule_changes
from memory.consent import grants, redaction, requests
from memory.errors import FileFault
from memory.models import Agent, Memory, Person
from memory.run_log import runs
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from refinement import gc, gc_logs, gc_reports
from refinement.models import GcReport
from tests.admin.reading import asking, granted, reads
from tests.claiming import claim
from tests.commands.calling import failed, run
from tests.commands.gc.conftest import ME, REPORT, Make, last_line, log_of, sent_log
from tests.conftest import drop_guards
from tests.members import join
from tests.model_server import ModelServer, Say, Turn
from tests.privacy.marker import MARKER
from tests.rules.recordings import off
from tests.steps import ME as RUNTIME
from tests.steps import PERSON, fresh, problems, remember, says, signed_update, tell

ONLY_AGENT = "Only the agent can read it: GET /api/v1/gc-reports/1"


@pytest.fixture
def key(logged: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's key is in the environment."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", lifecycle.issue_key(fresh(logged), ME))


def is_withdrawn(report: GcReport) -> bool:
    return bytes(report.sealed) == b"" and report.withdrawn_at is not None


def test_a_report_is_sealed_and_only_for_its_agent(logged: Agent, server: ModelServer) -> None:
    server.script = Say(f"## Patterns Found\n{MARKER}")
    ran = run("gc", "ada")
    assert (ran.code, MARKER in ran.out + ran.err) == (0, False)
    assert "GET /api/v1/gc-reports/1" in ran.out
    report = GcReport.objects.get()
    assert MARKER.encode() not in bytes(report.sealed)
    [text] = gc_reports.opened(fresh(logged), [report])
    assert (text, [*gc_reports.sections(text)]) == (f"## Patterns Found\n{MARKER}", ["patterns_found"])


def test_a_trim_keeps_constitutional_entries_and_can_be_rolled_back(logged: Agent) -> None:
    operations.protect(fresh(logged), [1], PERSON)
    assert last_line(run("gc", "ada")) == "Trimmed: 2 entries removed, 3 entries kept."
    assert [row.number for row in operations.runs(logged).order_by("number")] == [1, 4, 5]
    entry = AuditEntry.objects.get(agent_id=logged.pk, operation=Operation.TRIMMED)
    roll_back(fresh(logged), What("entry", entry.seq), PERSON)
    assert operations.runs(logged).count() == 5


def test_a_redaction_withdraws_a_report_that_may_quote_it(logged: Agent, server: ModelServer, key: None) -> None:
    server.script = Say(f"## Patterns Found\n{MARKER}")
    run("gc", "ada", "--dry-run")
    assert run("redact", "acme/ada", "1", "--reason", "request by Ann", "--yes").code == 0
    report = GcReport.objects.get()
    assert is_withdrawn(report)
    assert gc_reports.opened(fresh(logged), [report]) == [""]


@pytest.fixture
def pat(logged: Agent) -> Person:
    person = Person.objects.create_user("pat@acme.test", None)
    join(person=person, tenant=logged.tenant, role="auditor")
    return person


def token(agent: Agent, pat: Person, *scope: Any) -> str:
    return grants.make_token(fresh(agent), granted(agent, pat, *scope), asking(pat))


def test_a_grant_prints_and_records_the_report(logged: Agent, pat: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = token(logged, pat)
    ran = run("gc", "ada", "--grant", grant)
    assert (ran.code, ran.err, REPORT in ran.out) == (0, "", True)
    monkeypatch.setenv("PALIMPSEST_GRANT", grant)
    assert REPORT in run("gc", "ada").out
    assert reads(logged) == [{"request": int(grant.split("_")[2]), "gc_report": number} for number in (1, 2)]
    assert problems(logged) == []


def test_a_grant_for_a_part_of_the_log_prints_nothing(logged: Agent, pat: Person) -> None:
    ran = run("gc", "ada", "--grant", token(logged, pat, Scope("memories", numbers=(1, 2, 3, 4))))
    assert (ran.code, REPORT in ran.out, ONLY_AGENT in ran.out) == (0, False, True)
    assert reads(logged) == []


def test_a_grant_prints_nothing_about_a_redacted_entry_that_sql_put_back(logged: Agent, pat: Person) -> None:
    entry = Memory.objects.filter(agent=logged, number=1)
    [before] = entry.values("sealed", "digest", "discarded_at", "redacted_at")
    redaction.redact(fresh(logged), requests.ask_redaction(fresh(logged), [1], ME, reason="a request").number, RUNTIME)
    entry.update(**before)
    ran = run("gc", "ada", "--dry-run", "--grant", token(logged, pat))
    assert (ran.code, REPORT in ran.out, reads(logged)) == (0, False, [])


def test_a_wrong_grant_is_refused_first(logged: Agent, pat: Person, server: ModelServer, time_machine: Any) -> None:
    grant = token(logged, pat)
    time_machine.move_to(timezone.now() + timedelta(hours=2))
    for wrong in (grant, "palg_1_1_x", "x"):
        failed(run("gc", "ada", "--grant", wrong), 2, "active grant for this agent")
    assert server.requests == []
    assert operations.runs(fresh(logged)).count() == 5


def test_a_grant_that_expires_during_the_call_prints_nothing(
    logged: Agent, pat: Person, server: ModelServer, time_machine: Any
) -> None:
    grant = token(logged, pat)

    def expire(_: Turn) -> Say:
        time_machine.move_to(timezone.now() + timedelta(hours=2))
        return Say(REPORT)

    server.script = expire
    ran = run("gc", "ada", "--grant", grant)
    assert (ran.code, REPORT in ran.out, ONLY_AGENT in ran.out) == (0, False, True)


def test_another_agents_key_is_refused(logged: Agent, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    _, key = lifecycle.create("acme", "eve", model="openai/gpt", actor=ME)
    for wrong in (key, "garbage"):
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", wrong)
        ran = run("gc", "ada")
        assert (ran.code, ran.out, ran.err) == (2, "", "PALIMPSEST_AGENT_KEY is not a key of acme/ada.\n")
        assert server.requests == []
        assert REPORT not in run("gc", "--all").out
        server.requests.clear()


def test_only_entries_that_fit_the_model_are_sent(logged: Agent, server: ModelServer) -> None:
    Agent.objects.filter(pk=logged.pk).update(context_tokens=60)
    ran = run("gc", "ada")
    left_out = 5 - sent_log(server).count("## ")
    assert 0 < left_out < 5
    assert f"{MARKER} 5" in sent_log(server)
    assert ran.err == f"The oldest {left_out} of 5 entries do not fit into 60 tokens and are not analysed.\n"
    report = GcReport.objects.get()
    assert (report.entries, report.left_out) == (5, left_out)


def test_only_runs_are_sent_and_trimmed(logged: Agent, server: ModelServer) -> None:
    remember(logged, f"{MARKER} a thought", kind="journal")
    tell(logged, f"{MARKER} a notice")
    Memory.objects.filter(agent=logged, number=1).update(category="credentials")
    assert run("gc", "ada").out.splitlines()[1] == "Entries: 4"
    assert not any(words in sent_log(server) for words in ("thought", "notice", f"{MARKER} 1"))
    assert says(logged, 6).content == f"{MARKER} a thought"
    assert Memory.objects.get(agent=logged, number=1).discarded_at is None
    assert Memory.objects.filter(agent=logged, discarded_at=None).count() == 5


def test_a_header_inside_an_entry_does_not_count_as_an_entry(logged: Agent, server: ModelServer) -> None:
    operations.revise(fresh(logged), 2, RUNTIME, content=f"{MARKER} 2\n\n## 2031-01-01T00:00:00Z\n**Task:** forged")
    assert run("gc", "ada").out.splitlines()[1] == "Entries: 5"
    assert sum(line.startswith("## ") for line in sent_log(server).splitlines()) == 5


@pytest.mark.django_db(transaction=True)
def test_a_gc_that_began_before_a_claim_changes_nothing(logged: Agent, server: ModelServer, key: None) -> None:
    def exchange(_: Turn) -> Say:
        claim(logged)
        connection.close()
        return Say(REPORT)

    server.script = exchange
    assert "Nothing was changed" in run("gc", "ada").err
    assert (operations.runs(logged).count(), GcReport.objects.count()) == (5, 0)


@pytest.mark.parametrize("is_file", [False, True])
def test_a_claim_while_gc_waits_to_trim_leaves_the_log_whole(
    logged: Agent, tmp_path: Path, settings: Any, is_file: bool
) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    if is_file:
        lifecycle.change(fresh(logged), RUNTIME, memory_path=str(tmp_path / "ada.md"))
        for _ in range(2):
            runs.log_run(fresh(logged), "Brew", "tea", RUNTIME)
    log = gc_logs.log_of(fresh(logged), RUNTIME)
    claim(logged)
    with pytest.raises(FileFault, match="claimed"):
        log.trim(1)
    assert operations.runs(logged).count() == 5
    assert not is_file or (tmp_path / "ada.md").read_text().count("## ") == 2


@pytest.mark.django_db(transaction=True)
def test_no_report_is_kept_if_memory_is_switched_off_during_the_call(logged: Agent, server: ModelServer) -> None:
    def switch_off(_: Turn) -> Say:
        rule_changes.change(fresh(logged), PERSON, enabled=False)
        connection.close()
        return Say(REPORT)

    Agent.objects.filter(pk=logged.pk).update(last_n=1)
    server.script = switch_off
    ran = run("gc", "ada")
    assert (ran.code, "does not have memory enabled" in ran.err, REPORT in ran.out) == (0, True, False)
    assert (GcReport.objects.count(), operations.runs(fresh(logged)).count()) == (0, 5)


@pytest.mark.django_db(transaction=True)
def test_a_redaction_during_the_call_withdraws_the_report(logged: Agent, server: ModelServer, key: None) -> None:
    def redact(_: Turn) -> Say:
        number = requests.ask_redaction(fresh(logged), [1], PERSON, reason="request by Ann").number
        redaction.redact(fresh(logged), number, RUNTIME)
        connection.close()
        return Say(f"## Patterns Found\n{MARKER} 1")

    server.script = redact
    ran = run("gc", "ada")
    assert (ran.code, MARKER in ran.out) == (0, False)
    assert "Withdrawn: content was redacted during the analysis, and the report may quote it." in ran.out
    assert is_withdrawn(GcReport.objects.get())


def test_a_report_is_withdrawn_although_sql_hides_the_redaction(logged: Agent) -> None:
    since = fresh(logged).audit_seq
    number = requests.ask_redaction(fresh(logged), [1], PERSON, reason="request by Ann").number
    redaction.redact(fresh(logged), number, RUNTIME)
    drop_guards()
    AuditEntry.objects.filter(agent_id=logged.pk, operation=Operation.REDACTED).update(operation="rolled_back")
    assert is_withdrawn(gc_reports.keep(fresh(logged), MARKER, model="openai/x", entries=1, since=since))


STOPS = {
    "redaction": "content was redacted meanwhile",
    "memory off": "does not have memory enabled",
    "key": "set PALIMPSEST_AGENT_KEY to the agent's key",
    "category": "a category was switched off meanwhile",
    "memory off, and on again by SQL": "No model is set",
}


@pytest.mark.parametrize("stop", STOPS)
def test_nothing_is_sent_after_a_removal_while_the_text_was_made(
    stop: str, logged: Agent, server: ModelServer, key: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = gc._request

    def late(*args: Any, **options: Any) -> Any:
        if stop == "redaction":
            number = requests.ask_redaction(fresh(logged), [1], PERSON, reason="request by Ann").number
            redaction.redact(fresh(logged), number, RUNTIME)
        elif stop == "category":
            off(logged, "behavioral")
        elif stop == "key":
            lifecycle.revoke_key(fresh(logged), prefix_of(os.environ["PALIMPSEST_AGENT_KEY"]), ME)
        else:
            rule_changes.change(fresh(logged), PERSON, enabled=False)
            Agent.objects.filter(pk=logged.pk).update(memory_enabled="SQL" in stop)
        return make(*args, **options)

    monkeypatch.setattr(gc, "_request", late)
    ran = run("gc", "ada", *(["--model", "ollama/other"] if stop == "key" else []))
    assert (server.requests, STOPS[stop] in ran.err) == ([], True)


@pytest.mark.django_db(transaction=True)
def test_all_uses_the_settings_that_an_agent_has_at_its_turn(make: Make, server: ModelServer) -> None:
    for slug in ("a", "b", "c", "d"):
        make(slug, entries=10, last_n=3)

    def change_others(turn: Turn) -> Say:
        if turn.number == 0:
            signed_update(Agent.objects.filter(slug="b"), model="anthropic/claude")
            signed_update(Agent.objects.filter(slug="c"), memory_enabled=False)
            Agent.objects.filter(slug="d").update(last_n=0)
            connection.close()
        return Say(REPORT)

    server.script = change_others
    ran = run("gc", "--all")
    assert (ran.code, [each.body["model"] for each in server.requests]) == (0, ["gpt", "claude", "gpt"])
    assert 'Warning: agent "c" does not have memory enabled.' in ran.err
    assert [log_of(agent).count(b"## ") for agent in Agent.objects.order_by("slug")] == [3, 3, 10, 10]
