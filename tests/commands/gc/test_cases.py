"""`gc` gives the results of the original program's cases, with a memory file for each agent (seed 001)."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from tests.commands.calling import run
from tests.commands.gc import cases
from tests.commands.gc.cases import CASES
from tests.model_server import ModelServer


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_with_a_memory_file(case: dict[str, Any], tmp_path: Path, db: None, settings: Any, request: Any) -> None:
    settings.VAULT_ROOTS = [str(tmp_path)]
    files = {agent["name"]: cases.write_file(agent, tmp_path) for agent in case["agents"]}
    before = {name: path.read_bytes() if path.is_file() else None for name, path in files.items()}
    read_only = [files[a["name"]].parent for a in case["agents"] if "dir_mode" in (a.get("memory_file") or {})]
    for agent in case["agents"]:
        cases.create(agent, str(files[agent["name"]]))
        if (agent.get("memory_file") or {}).get("kind") == "dir":
            files[agent["name"]].mkdir()
    with ModelServer(cases.CaseModel(case, files)) as server:
        cases.configure(case, server, settings)
        for folder in read_only:
            folder.chmod(0o555)
        if case.get("unprivileged"):
            request.getfixturevalue("as_nobody")
        ran = run(case["args"][0], *case["args"][1:])
        for folder in read_only:
            folder.chmod(0o755)
    if case.get("unprivileged") and os.getuid() == 0:
        os.seteuid(0)
    cases.assert_result(case, ran, len(server.requests))
    expect = case["expect"]
    for name, after in (expect.get("memory_file_after_b64") or {}).items():
        content = files[name].read_bytes() if files[name].is_file() else None
        assert content == (before[name] if after == "unchanged" else after and base64.b64decode(after)), name
    for name, mode in (expect.get("mode_after") or {}).items():
        assert files[name].stat().st_mode & 0o777 == int(mode, 8)
    left_over = {each for path in files.values() for each in path.parent.iterdir()} - set(files.values())
    assert len([each for each in left_over if each.is_file()]) == expect["leftover_temp_files"]
    for expected, received in zip(cases.expected_requests(case), server.requests, strict=True):
        name = expected.get("agent") or case["agents"][0]["name"]
        cases.assert_request(expected, received, (before[name] or b"").decode("utf-8", "replace"))
