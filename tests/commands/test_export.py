from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from memory.access.authentication import new_key
from memory.models import Agent, AgentKey
from memory.transfer.export_formats import EXPORTS
from memory.writing import operations
from tests import steps
from tests.commands.calling import Ran, failed, run
from tests.conftest import House
from tests.privacy.marker import MARKER

KEYS = ["id", "kind", "category", "scope", "project", "tags", "origin", "created_at", "tokens", "constitutional"]


def export(monkeypatch: pytest.MonkeyPatch, key: str | None, *more: str) -> Ran:
    monkeypatch.delenv("PALIMPSEST_AGENT_KEY", raising=False)
    if key is not None:
        monkeypatch.setenv("PALIMPSEST_AGENT_KEY", key)
    return run("export_memories", "acme/ada", *more)


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert (ran.code, ran.err) == (0, "")
    return [json.loads(line) for line in ran.out.splitlines()]


def test_a_line_has_exactly_the_promised_keys(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, f"{MARKER} tea", tags=["a", "b"], category="contextual", project="site")
    [row] = rows(export(monkeypatch, house.ada_key))
    assert list(row) == [*KEYS, "content"]
    assert (row["id"], row["kind"], row["scope"], row["project"]) == (1, "core", "project", "site")
    assert (row["tags"], row["tokens"], row["constitutional"]) == (["a", "b"], 5, False)
    assert row["content"] == f"{MARKER} tea"
    for name in ("origin", "created_at"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z", row[name])


def test_lines_are_in_order_of_id_only_active_and_its_own(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.bob, f"{MARKER} of bob")
    assert export(monkeypatch, house.ada_key).out == ""
    numbers = steps.remember(house.ada, *(f"{MARKER} {n}" for n in range(12)))
    operations.discard(house.ada, [3], steps.ME)
    Agent.objects.filter(pk=house.ada.pk).update(memory_enabled=False)  # switched off, it can still be taken away
    assert [row["id"] for row in rows(export(monkeypatch, house.ada_key))] == [n for n in numbers if n != 3]
    assert AgentKey.objects.get(agent=house.ada).last_used_at is not None
    assert AgentKey.objects.get(agent=house.bob).last_used_at is None


def test_with_discarded_adds_them_and_two_keys(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, f"{MARKER} one", f"{MARKER} two")
    operations.consolidate(house.ada, [1, 2], f"{MARKER} both", steps.ME)
    out = rows(export(monkeypatch, house.ada_key, "--with-discarded"))
    assert [list(row) for row in out] == [[*KEYS, "content", "discarded_at", "superseded_by"]] * 3
    assert [row["superseded_by"] for row in out] == [3, 3, None]
    assert [bool(row["discarded_at"]) for row in out] == [True, True, False]


def test_text_is_written_as_it_is_on_one_line(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'{MARKER} 日本 "quoted"\n{{"id": 9, "content": "forged"}}\u2028\x85\x1c end'
    steps.remember(house.ada, text)
    ran = export(monkeypatch, house.ada_key)
    assert ran.out.count("\n") == 1
    assert json.loads(ran.out)["content"] == text
    assert "日本" in ran.out


def test_every_wrong_key_gets_the_same_answer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, f"{MARKER} of ada")
    unknown = new_key(AgentKey, 1)[2]
    form, ours, secret = house.ada_key.split("_", 2)
    wrong: dict[str, str | None] = {
        "missing": None,
        "empty": "",
        "another agent's": house.bob_key,
        "unknown": unknown,
        "a wrong secret": f"{form}_{ours}_{secret[::-1]}",
        "no secret": f"{form}_{ours}_",
        "a prefix": f"{form}_{ours}",
        "malformed": "sesame",
        "not ascii": f"{form}_{ours}_é" + secret,
        "another form": house.ada_key.replace("pal_", "pat_"),
        "upper case": house.ada_key.upper(),
        "spaced": f" {house.ada_key} ",
        "very long": "pal_" + "x" * 100_000,
    }
    answers = {}
    for name, key in wrong.items():
        ran = export(monkeypatch, key)
        failed(ran, 2, "PALIMPSEST_AGENT_KEY")
        assert MARKER not in ran.err
        answers[name] = ran.err
    AgentKey.objects.filter(prefix=ours).update(revoked_at=timezone.now())
    answers["revoked"] = export(monkeypatch, house.ada_key).err
    assert set(answers.values()) == {answers["missing"]}


def test_a_key_row_put_in_by_sql_opens_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row moved from one agent to another, or copied, is worth nothing: its MAC names the agent."""
    AgentKey.objects.filter(agent=house.bob).update(agent=house.ada)
    failed(export(monkeypatch, house.bob_key), 2, "PALIMPSEST_AGENT_KEY")


def test_a_broken_seal_names_the_record_and_fails(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, f"{MARKER} one")
    from memory.models import Memory

    sealed = bytes(steps.row(house.ada, 1).sealed)
    Memory.objects.filter(agent=house.ada).update(sealed=sealed[:-1] + bytes([sealed[-1] ^ 1]))
    failed(export(monkeypatch, house.ada_key), 1, "Record 1", "cannot be decrypted")


# --- other formats, and into files


def test_each_format_is_printed_or_written_where_it_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps.remember(house.ada, f"{MARKER} tea", category="credentials", tags=["service:pier"])
    for name, each in EXPORTS.items():
        to = tmp_path / f"out{each.ending}"
        ran = export(monkeypatch, house.ada_key, "--format", name, "--to", str(to))
        assert (ran.code, ran.out) == (0, "")
        if name == "markdown":
            assert (to / "memory/private/credentials/pier-key.md").read_text("utf-8").count(f"{MARKER} tea") == 1
            assert (to / "memory-rules/settings.json").stat().st_mode & 0o777 == 0o600
            continue
        assert to.stat().st_mode & 0o777 == 0o600
        printed = export(monkeypatch, house.ada_key, "--format", name)
        assert f"{MARKER} tea" in printed.out
        if name != "letta":  # which says when it was written
            assert to.read_text("utf-8") == printed.out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"out{each.ending}" for each in EXPORTS.values())


def test_what_a_format_loses_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.remember(house.ada, f"{MARKER} tea", f"{MARKER} rum", tags=["a"])
    ran = export(monkeypatch, house.ada_key, "--format", "axe")
    assert "warning: 2 memories: tags are not exported\n" in ran.err
    assert MARKER not in ran.err
    assert export(monkeypatch, house.ada_key, "--format", "mem0").err == ""


@pytest.mark.parametrize("name", ["jsonl", "markdown"])
def test_a_path_that_will_not_do_is_told_and_nothing_is_left(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    steps.remember(house.ada, f"{MARKER} tea")
    (tmp_path / "there").write_text("mine")
    for to, problem in (("there", "exists already"), ("no/such", "cannot be written")):
        ran = export(monkeypatch, house.ada_key, "--format", name, "--to", str(tmp_path / to))
        failed(ran, 2, f"to: {problem}")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_text() == "mine"


def test_a_folder_of_files_wants_a_path(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(export(monkeypatch, house.ada_key, "--format", "markdown"), 2, "to: is required for markdown")
    failed(export(monkeypatch, house.ada_key, "--format", "axe", "--with-discarded"), 2, "only for jsonl")


def test_an_export_that_breaks_off_leaves_no_file(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps.remember(house.ada, f"{MARKER} tea")
    with mock.patch("memory.transfer.formats.mem0.own_fields", side_effect=OSError(28, "No space left on device")):
        ran = export(monkeypatch, house.ada_key, "--format", "mem0", "--to", str(tmp_path / "out"))
    failed(ran, 2, "No space left on device")
    assert list(tmp_path.iterdir()) == []
