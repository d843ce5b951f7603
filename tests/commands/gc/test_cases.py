"""`gc` held to the original program's cases, with a memory file each (seed 001)."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands.calling import run
from tests.commands.gc.cases import CASES, Played, file_for, hold, hold_request, made, set_up
from tests.model_server import ModelServer


@pytest.fixture
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.VAULT_ROOTS = [str(tmp_path)]
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_with_a_memory_file(case: dict[str, Any], folder: Path, db: None, settings: Any, request: Any) -> None:
    files = {agent["name"]: file_for(agent, folder) for agent in case["agents"]}
    before = {name: path.read_bytes() if path.is_file() else None for name, path in files.items()}
    for agent in case["agents"]:
        made(agent, str(files[agent["name"]]))
        if (agent.get("memory_file") or {}).get("kind") == "dir":
            files[agent["name"]].mkdir()
    with ModelServer(Played(case, files)) as server:
        set_up(case, server, settings)
        dirs = [files[a["name"]].parent for a in case["agents"] if "dir_mode" in (a.get("memory_file") or {})]
        for each in dirs:
            each.chmod(0o555)
        if case.get("unprivileged"):
            request.getfixturevalue("as_nobody")
        ran = run(case["args"][0], *case["args"][1:])
        for each in dirs:
            each.chmod(0o755)
    if case.get("unprivileged") and os.getuid() == 0:
        os.seteuid(0)
    hold(case, ran, len(server.requests))
    expected = case["expect"]
    for name, after in (expected.get("memory_file_after_b64") or {}).items():
        path = files[name]
        now = path.read_bytes() if path.is_file() else None
        assert now == (before[name] if after == "unchanged" else after and base64.b64decode(after)), name
    for name, mode in (expected.get("mode_after") or {}).items():
        assert files[name].stat().st_mode & 0o777 == int(mode, 8)
    left = {each for path in files.values() for each in path.parent.iterdir()} - set(files.values())
    assert len([each for each in left if each.is_file()]) == expected["leftover_temp_files"]
    wanted = expected.get("llm_requests") or ([expected["llm_request"]] if expected.get("llm_request") else [])
    for one, received in zip(wanted, server.requests, strict=True):
        name = one.get("agent") or case["agents"][0]["name"]
        hold_request(one, received.body, (before[name] or b"").decode("utf-8", "replace"))
