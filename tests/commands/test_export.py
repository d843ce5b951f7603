"""export_memories with the agent's key or with a grant: lines, other formats, files."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from audit.consent import Scope
from memory.access.authentication import new_key
from memory.consent import granted_reads, grants, redaction, requests
from memory.models import Agent, AgentKey, Memory, Person
from memory.transfer import importing
from memory.transfer.export_formats import EXPORTS
from memory.writing import operations
from tests import steps
from tests.admin.reading import asking, granted, reads
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.members import join
from tests.privacy.marker import MARKER
from tests.steps import ME, fresh, problems, signed_update

KEYS = ["id", "kind", "layer", "category", "scope", "project", "tags", "origin", "origin_latest", "created_at"]
KEYS += ["tokens", "constitutional", "content"]
WRONG_GRANT = "error: The token does not belong to an active grant for this agent.\n"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PALIMPSEST_AGENT_KEY", "PALIMPSEST_GRANT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's key is in the environment."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)


def export(*more: str) -> Ran:
    return run("export_memories", "acme/ada", *more)


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def ids(ran: Ran) -> list[int]:
    return [row["id"] for row in rows(ran)]


def test_a_line_has_exactly_the_documented_keys(ada: Agent, key: None) -> None:
    steps.remember(ada, f"{MARKER} tea", tags=["a", "b"], category="contextual", project="site")
    [row] = rows(export())
    assert list(row) == KEYS
    assert (row["id"], row["kind"], row["scope"], row["project"]) == (1, "core", "project", "site")
    assert (row["tags"], row["tokens"], row["constitutional"]) == (["a", "b"], 5, False)
    assert row["content"] == f"{MARKER} tea"
    for name in ("origin", "created_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", row[name])
    steps.remember(ada, f"{MARKER} milk", category="contextual", project="site")
    operations.consolidate(ada, [1, 2], f"{MARKER} both", ME)
    found = rows(export("--with-discarded"))
    assert [list(row) for row in found[:2]] == [[*KEYS, "discarded_at", "superseded_by"]] * 2
    assert [(row["layer"], row["superseded_by"], row.get("sources")) for row in found] == [
        ("beneath", 3, None),
        ("beneath", 3, None),
        ("core", None, [1, 2]),
    ]


def test_layers_and_sources_survive_an_export_and_an_import(ada: Agent, bob: Agent, key: None) -> None:
    steps.remember(bob, "beer")  # so that the numbers change
    steps.remember(ada, "tea", "milk", "sugar", origin=datetime(2024, 1, 1, tzinfo=UTC))
    steps.remember(ada, "lemon", origin=datetime(2025, 1, 1, tzinfo=UTC))
    operations.consolidate(ada, [1, 4], "tea with lemon", ME)
    operations.demote(ada, [2], ME)
    importing.check_lines(export().out.encode().splitlines()).store(bob, ME)
    found = Memory.objects.of(bob).order_by("number").values_list("number", "superseded_by", "origin__year")
    layers = [memory.layer for memory in Memory.objects.of(bob).order_by("number")]
    assert layers == ["core", "beneath", "beneath", "core", "beneath", "core"]
    assert list(found)[1:] == [(2, 6, 2024), (3, None, 2024), (4, None, 2024), (5, 6, 2025), (6, None, 2024)]
    assert Memory.objects.get(agent=bob, number=6).origin_latest == datetime(2025, 1, 1, tzinfo=UTC)
    assert problems(bob) == []


def test_lines_are_the_agents_active_memories_in_order(house: House, key: None) -> None:
    steps.remember(house.bob, f"{MARKER} of bob")
    assert export().out == ""
    numbers = steps.remember(house.ada, *(f"{MARKER} {n}" for n in range(12)))
    operations.discard(house.ada, [3], ME)
    signed_update(Agent.objects.filter(pk=house.ada.pk), memory_enabled=False)  # an export works while memory is off
    assert ids(export()) == [n for n in numbers if n != 3]
    assert AgentKey.objects.get(agent=house.ada).last_used_at is not None
    assert AgentKey.objects.get(agent=house.bob).last_used_at is None


def test_a_text_is_exported_unchanged_on_one_line(ada: Agent, key: None) -> None:
    text = f'{MARKER} 日本 "quoted"\n{{"id": 9, "content": "forged"}}\u2028\x85\x1c end'
    steps.remember(ada, text)
    ran = export()
    assert (ran.out.count("\n"), json.loads(ran.out)["content"], "日本" in ran.out) == (1, text, True)


def test_every_wrong_key_gets_the_same_error(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, f"{MARKER} of ada")
    prefix, number, secret = house.ada_key.split("_", 2)
    wrong = {
        "empty": "",
        "another agent's": house.bob_key,
        "unknown": new_key(AgentKey, 1)[2],
        "a wrong secret": f"{prefix}_{number}_{secret[::-1]}",
        "no secret": f"{prefix}_{number}",
        "malformed": "sesame",
        "not ascii": f"{prefix}_{number}_é" + secret,
        "another type": house.ada_key.replace("pal_", "pat_"),
        "upper case": house.ada_key.upper(),
        "with spaces": f" {house.ada_key} ",
        "very long": "pal_" + "x" * 100_000,
    }
    missing = export()
    failed(missing, 2, "PALIMPSEST_AGENT_KEY")
    for name, key in wrong.items():
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
        assert export() == missing, name
    AgentKey.objects.filter(prefix=number).update(revoked_at=timezone.now())
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert export() == missing


def test_each_format_is_printed_or_written_to_a_private_file(ada: Agent, key: None, tmp_path: Path) -> None:
    steps.remember(ada, f"{MARKER} tea", category="credentials", tags=["service:pier"])
    for name, each in EXPORTS.items():
        to = tmp_path / f"out{each.ending}"
        ran = export("--format", name, "--to", str(to))
        assert (ran.code, ran.out) == (0, "")
        if name == "markdown":
            assert (to / "memory/private/credentials/pier-key.md").read_text("utf-8").count(f"{MARKER} tea") == 1
            assert (to / "memory-rules/settings.json").stat().st_mode & 0o777 == 0o600
            continue
        assert to.stat().st_mode & 0o777 == 0o600
        printed = export("--format", name).out
        assert f"{MARKER} tea" in printed
        if name != "letta":  # it has the time of the export
            assert to.read_text("utf-8") == printed
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"out{each.ending}" for each in EXPORTS.values())


def test_a_warning_names_what_a_format_does_not_hold(ada: Agent, key: None) -> None:
    steps.remember(ada, f"{MARKER} tea", tags=["a"])
    warning = export("--format", "axe").err
    assert ("tags are not exported" in warning, MARKER in warning) == (True, False)
    assert export("--format", "mem0").err == ""


@pytest.mark.parametrize("name", ["jsonl", "markdown"])
def test_an_unusable_path_is_refused_and_no_file_is_left(ada: Agent, key: None, tmp_path: Path, name: str) -> None:
    steps.remember(ada, f"{MARKER} tea")
    existing = tmp_path / "there"
    existing.write_text("mine")
    for to, problem in (("there", "exists already"), ("no/such", "cannot be written")):
        failed(export("--format", name, "--to", str(tmp_path / to)), 2, f"to: {problem}")
    assert ([*tmp_path.iterdir()], existing.read_text()) == ([existing], "mine")


def test_options_that_do_not_fit_the_format_are_refused(ada: Agent, key: None) -> None:
    failed(export("--format", "markdown"), 2, "to: is required for markdown")
    failed(export("--format", "axe", "--with-discarded"), 2, "works only with jsonl")


def test_an_export_that_fails_leaves_no_file(ada: Agent, key: None, tmp_path: Path) -> None:
    steps.remember(ada, f"{MARKER} tea")
    with mock.patch("memory.transfer.formats.mem0.own_fields", side_effect=OSError(28, "No space left on device")):
        failed(export("--format", "mem0", "--to", str(tmp_path / "out")), 2, "No space left on device")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pat(house: House) -> Person:
    """An auditor. The agent has three memories."""
    person = Person.objects.create_user("pat@acme.test", None)
    join(person=person, tenant=house.ada.tenant, role="auditor")
    steps.remember(house.ada, *(f"{MARKER} {thing}" for thing in ("tea", "milk", "sugar")), tags=["kitchen"])
    return person


def token(agent: Agent, pat: Person, *scope: Any, **more: Any) -> str:
    return grants.make_token(fresh(agent), granted(agent, pat, *scope, **more), asking(pat))


def request_of(token: str) -> int:
    return int(token.split("_")[2])


def test_a_grant_exports_the_same_and_is_recorded(house: House, pat: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    by_key = export()
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY")
    grant = token(house.ada, pat)
    assert export("--grant", grant) == by_key
    assert ids(by_key) == [1, 2, 3]
    assert reads(house.ada) == [{"request": request_of(grant), "memories": [1, 2, 3]}]
    assert steps.problems(house.ada) == []


def test_the_option_and_the_grant_take_precedence(house: House, pat: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_GRANT", token(house.ada, pat))
    assert ids(export()) == [1, 2, 3]
    for wrong in ("palg_1_1_x", ""):
        assert failed(export("--grant", wrong), 2) + "\n" == WRONG_GRANT
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    assert ids(export())[:3] == [1, 2, 3]
    assert len(reads(house.ada)) == 2
    monkeypatch.setenv("PALIMPSEST_GRANT", "")
    assert ids(export())[:3] == [1, 2, 3]
    assert len(reads(house.ada)) == 2, "an empty variable is no grant"


def test_a_grant_reads_pages_until_it_is_revoked(house: House, pat: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, *(f"{MARKER} {n}" for n in range(130)))
    grant = token(house.ada, pat)
    assert ids(export("--grant", grant)) == list(range(1, 134))
    assert [len(read["memories"]) for read in reads(house.ada)] == [100, 33]
    read_page = granted_reads.memories

    def read_and_revoke(*arguments: Any) -> Any:
        page = read_page(*arguments)
        requests.revoke(fresh(house.ada), request_of(grant), ME)
        return page

    monkeypatch.setattr(granted_reads, "memories", read_and_revoke)
    ran = export("--grant", grant)
    assert (ran.code, len(ran.out.splitlines())) == (1, 100)
    assert "You have no active grant with this number." in ran.err


def test_a_grant_exports_its_scope_and_nothing_redacted(house: House, pat: Person) -> None:
    operations.discard(house.ada, [2], ME)
    grant = token(house.ada, pat, Scope("memories", numbers=(1, 2)))
    assert ids(export("--grant", grant)) == [1]
    assert ids(export("--grant", grant, "--with-discarded")) == [1, 2]
    assert [read["memories"] for read in reads(house.ada)] == [[1], [1, 2]]
    request = requests.ask_redaction(fresh(house.ada), [2], ME, reason="request 17")
    redaction.redact(fresh(house.ada), request.number, ME)
    assert ids(export("--grant", token(house.ada, pat), "--with-discarded"))[:2] == [1, 3]


def test_a_grant_of_audit_entries_is_refused(house: House, pat: Person) -> None:
    operations.revise(house.ada, 3, ME, content=f"{MARKER} brown sugar", session=7)
    for scope in (Scope("session", session=7), Scope("entries", first=1, last=3)):
        failed(export("--grant", token(house.ada, pat, scope)), 2, "grant: covers entries of the trail", "page")
    assert reads(house.ada) == []


def test_every_wrong_grant_gets_the_same_error(house: House, pat: Person, time_machine: Any) -> None:
    """tests/unit/test_grant_tokens.py has more of them."""
    grant = token(house.ada, pat, seconds=900)
    other = Person.objects.create_user("bo@globex.test", None)
    join(person=other, tenant=house.bob.tenant, role="auditor")
    altered = grant[:-8] + grant[-8:][::-1]
    for wrong in ("sesame", token(house.bob, other), altered, house.ada_key, f"{grant}é", grant * 1_000):
        assert failed(export(f"--grant={wrong}"), 2) + "\n" == WRONG_GRANT
    assert run("export_memories", "globex/bob", "--grant", grant).err == WRONG_GRANT
    assert ids(export("--grant", grant)) == [1, 2, 3]
    time_machine.move_to(timezone.now() + timedelta(seconds=901))
    assert export("--grant", grant).err == WRONG_GRANT
    assert len(reads(house.ada)) == 1


def test_a_revoked_grant_is_refused_even_if_there_is_nothing_to_read(house: House, pat: Person) -> None:
    grant = token(house.ada, pat)
    operations.discard(house.ada, [1, 2, 3], ME)
    assert export("--grant", grant).out == ""
    requests.revoke(fresh(house.ada), request_of(grant), ME)
    assert export("--grant", grant).err == WRONG_GRANT


def test_a_read_that_cannot_be_decrypted_is_an_error(
    house: House, pat: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory.objects.filter(agent=house.ada, number=1).update(sealed=bytes(steps.row(house.ada, 2).sealed))
    failed(export("--grant", token(house.ada, pat)), 1, "cannot be read")
    assert reads(house.ada) == []
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    failed(export(), 1, "Record 1", "cannot be decrypted")
