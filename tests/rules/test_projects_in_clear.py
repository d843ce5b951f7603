"""What looks like a secret is no project's name, by whichever road it comes; what is there already is not refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from memory.models import Agent, Memory, RecordedSession
from memory.policy import names, settings_document
from memory.recording import retrieval, sessions
from memory.writing import operations
from tests.api.calling import Answer, Caller
from tests.commands.calling import run
from tests.conftest import House
from tests.rules.talking import of_category, talk
from tests.steps import ME, fresh, remember

TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6"
LINE = json.dumps({"content": "x", "project": TOKEN}).encode() + b"\n"

API: dict[str, Callable[[Caller], Answer]] = {
    "memory": lambda ask: ask.post("memories", {"content": "x", "project": TOKEN}),
    "batch": lambda ask: ask.post("memories/batch", {"memories": [{"content": "x", "project": TOKEN}]}),
    "recording": lambda ask: ask.post("recordings", {"prompt": "x", "requested": True, "project": TOKEN}),
}


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


def test_no_secret_is_a_projects_name(house: House) -> None:
    for road in API.values():
        answer = road(Caller(house.ada_key))
        assert (answer.status, answer.codes, TOKEN.encode() in answer.content) == (422, ["invalid"], False)
    answer = Caller(house.ada_key).post("import", raw=LINE, kind="application/x-ndjson")
    ran = run("import_memories", "acme/ada", "-", stdin=LINE)
    assert (Memory.objects.count(), TOKEN.encode() in answer.content, TOKEN in ran.out + ran.err) == (0, False, False)
    ran = run("rules", "settings", "acme/ada", settings_document.PROJECT_ID, TOKEN)
    assert (ran.code, TOKEN in ran.err, fresh(house.ada).rules) == (2, False, "")


def test_what_is_there_already_is_found_merged_and_ended(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of before this was asked for: two memories of a project that is called by a token, and a talk in it."""
    with monkeypatch.context() as before:
        before.setattr(names, "looks_secret", lambda _: False)
        remember(ada, "tea at four", "tea at five", category="contextual", project=TOKEN)
    talk(ada, session="monday", project="site")
    RecordedSession.objects.update(project=TOKEN)
    Memory.objects.filter(category="user_interaction").update(project=TOKEN)
    assert {each.memory.number for each in retrieval.retrieve(fresh(ada), "tea", project=TOKEN).reads} == {1, 2}
    assert operations.consolidate(fresh(ada), [1, 2], "tea at four and five", ME).memories[0].project == TOKEN
    assert sessions.end_session(fresh(ada), "monday", ME) is not None
    assert [memory.project for memory in of_category(ada, "session")] == [TOKEN]


def test_detectors_are_loaded_for_names_alone() -> None:
    """They take a sixth of a second, and most memories name no project."""
    code = "\n".join(
        (
            "import django, sys; django.setup()",
            "from memory.policy.validation import Draft",
            "Draft('tea', tags=['a', 'topic:b']).checked()",
            "assert 'memory.masking.scanner' not in sys.modules and 'detect_secrets' not in sys.modules",
            "Draft('tea', project='site').checked()",
            "assert 'memory.masking.scanner' in sys.modules",
        )
    )
    subprocess.run([sys.executable, "-c", code], check=True)
