"""The command blocks of docs/how-to/administer.md and read-with-consent.md, on a service with the agent they name."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests.commands.calling import ROOT, Installation, Ran

GUIDES = ROOT / "docs" / "how-to"
CONTENTS = [f"The team {always}meets at 09:45 on the quay." for always in ("", "always ")] + [
    f"The {thing} of the harbour office is in the {place}."
    for thing in ("lamp", "map", "radio", "ladder")
    for place in ("attic", "shed", "boathouse", "cellar")
]
GRANT = """
from audit.consent import Person as Asking, Scope
from audit.trail import Actor
from memory.access.authentication import agent_named
from memory.consent import grant_tokens, grants
from memory.models import Membership, Person

agent = agent_named("acme/ada")
person = Person.objects.create_user("pat@acme.test", None)
Membership.objects.create(person=person, tenant=agent.tenant, role="auditor")
asking = Asking(person.pk, person.email)
number = grants.ask(agent, asking, purpose="to see why it forgot the customer", scope=Scope("silo")).number
grants.approve(agent, number, Actor.agent())
print(grant_tokens.make(agent_named("acme/ada"), number, asking))
"""


@pytest.fixture
def key(service: Installation) -> str:
    """The key of acme/ada, which remembers 18 things, two of them nearly the same."""
    made = service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe")
    lines = "".join(json.dumps({"content": content}) + "\n" for content in CONTENTS)
    assert service.manage("import_memories", "acme/ada", "-", stdin=lines.encode()).code == 0
    return str(made.json["key"])


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (GUIDES / guide).read_text("utf-8"), re.DOTALL)


def run(service: Installation, script: str, stdin: str = "", program: str = "/bin/sh", **more: str) -> Ran:
    done = subprocess.run(
        [program, "-c", "set -eu\n" + script.replace(".venv/bin/python", sys.executable)],
        cwd=ROOT,
        env=service.environment | more,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def test_an_operator_rolls_back_and_removes_as_the_guide_says(service: Installation, key: str) -> None:
    assert service.manage("refine", "acme/ada").code == 0
    roll_back, ask, agree, erase = blocks("administer.md", "sh")
    assert "a rollback of session 1, done as entry" in run(service, roll_back).out
    asked = re.search(r"request (\d+) waits", run(service, ask).out)
    assert asked is not None
    agreed = run(service, agree.replace("41", asked[1]), ADA_KEY=key)
    assert "redaction of 17: as entry" in agreed.out
    assert "valid" in agreed.out
    assert "waits for the agent's side" in run(service, erase).out


@pytest.mark.usefixtures("key")
def test_a_person_reads_by_a_token_as_the_guide_says(service: Installation) -> None:
    token = service.manage("shell", "--verbosity", "0", "-c", GRANT).out.strip()
    [read] = blocks("read-with-consent.md", "bash")
    shown = run(service, read, stdin=f"{token}\n", program="bash").out
    contents = [json.loads(line)["content"] for line in shown.splitlines()]
    assert contents[: len(CONTENTS)] == CONTENTS
