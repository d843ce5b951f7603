"""The command blocks of README.md and of the guides work, in the order of the page, on a new service."""

import json
import re
import sys
from pathlib import Path

import pytest

from tests.commands.calling import ROOT, Installation
from tests.commands.gc.conftest import REPORT
from tests.commands.serving import Serve
from tests.model_server import ModelServer, Say

pytestmark = pytest.mark.slow

CONTENTS = [f"The team {always}meets at 09:45 on the quay." for always in ("", "always ")] + [
    f"The {thing} of the harbour office is in the {place}."
    for thing in ("lamp", "map", "radio", "ladder")
    for place in ("attic", "shed", "boathouse", "cellar")
]
CREATE_GRANT = """
from audit.consent import Person as Reader, Scope
from audit.trail import Actor
from memory.access.authentication import agent_named
from memory.accounts import memberships
from memory.consent import approval, grants, requests
from memory.models import Person

agent = agent_named("acme/ada")
person = Person.objects.create_user("pat@acme.test", None)
memberships.set_role(agent.tenant_id, person.pk, "auditor")
reader = Reader(person.pk, person.email)
number = requests.ask_to_read(agent, reader, purpose="to see why it forgot the customer", scope=Scope("silo")).number
approval.approve(agent, number, Actor.agent())
print(grants.make_token(agent_named("acme/ada"), number, reader))
"""


def blocks(page: str, language: str = "sh") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


def execute(
    service: Installation, *scripts: str, cwd: Path = ROOT, stdin: str = "", program: str = "/bin/sh", **variables: str
) -> str:
    """Run blocks as one script. Returns what they print."""
    script = "\n".join(["set -eu", *scripts]).replace(".venv/bin/python", sys.executable)
    script = script.replace(f"{sys.executable} manage.py", f"{sys.executable} {ROOT}/manage.py")
    ran = service.execute(program, "-c", script, cwd=cwd, stdin=stdin.encode(), **variables)
    assert ran.code == 0, ran.out + ran.err
    return ran.out


@pytest.fixture
def key(service: Installation) -> str:
    """The key of acme/ada, which has 18 memories. Two of them are nearly the same."""
    created = service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe")
    lines = "".join(json.dumps({"content": content}) + "\n" for content in CONTENTS)
    assert service.manage("import_memories", "acme/ada", "-", stdin=lines.encode()).code == 0
    return str(created.json["key"])


def test_a_new_user_follows_the_readme_and_the_tutorial(service: Installation, serve: Serve) -> None:
    address, folder = serve().address, service.environment["VAR_DIR"]
    readme, tutorial = (
        [block.replace("127.0.0.1:8000", address).replace("var/data/", f"{folder}/data/") for block in blocks(page)]
        for page in ("README.md", "docs/start/tutorial.md")
    )
    output = execute(service, *readme)
    assert "Ann prefers green tea to black tea." in output
    assert "valid" in output
    output = execute(service, *tutorial)
    assert '"memories_before":6,"memories_after":5' in output
    assert '"superseded_by":8' in output
    assert '"undone_by":null' in output
    assert '"undone_by":8' in output
    contexts = [text.partition("# Your last days")[0] for text in output.split("# What you remember")[1:]]
    assert ["- Shop opens at 08:30" in context for context in contexts] == [True, False, True]
    assert service.manage("verify_audit", "--all").code == 0


def test_the_api_guide_works(service: Installation, serve: Serve, tmp_path: Path) -> None:
    page = "docs/how-to/use-the-api.md"
    address = serve().address
    [runtime] = blocks(page, "python")
    (tmp_path / "runtime.py").write_text(runtime.replace("127.0.0.1:8000", address), "utf-8")
    snippets = [
        re.sub(r"\b(runtime\.py|memories\.jsonl)", rf"{tmp_path}/\1", block.replace("127.0.0.1:8000", address))
        for block in blocks(page)
    ]
    service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe")
    output = execute(service, *snippets)
    for expected in ("\ncompleted\n", '"imported":', "# What you remember", '"budget":9000'):
        assert expected in output
    assert service.manage("verify_audit", "--all").code == 0


def test_an_operator_rolls_back_and_removes(service: Installation, key: str) -> None:
    assert service.manage("refine", "acme/ada").code == 0
    roll_back, request, agree, erase = blocks("docs/how-to/administer.md")
    assert "a rollback of session 1, done as entry" in execute(service, roll_back)
    waiting = re.search(r"request (\d+) waits", execute(service, request))
    assert waiting is not None
    output = execute(service, agree.replace("41", waiting[1]), ADA_KEY=key)
    assert "redaction of 17: as entry" in output
    assert "valid" in output
    assert "waits for the agent's side" in execute(service, erase)


@pytest.mark.usefixtures("key")
def test_a_person_reads_with_a_grant_token(service: Installation) -> None:
    token = service.manage("shell", "--verbosity", "0", "-c", CREATE_GRANT).out
    [read] = blocks("docs/how-to/read-with-consent.md", "bash")
    lines = execute(service, read, stdin=token, program="bash").splitlines()
    assert [json.loads(line)["content"] for line in lines][: len(CONTENTS)] == CONTENTS


def test_memories_are_moved(service: Installation, tmp_path: Path) -> None:
    output = execute(service, *blocks("docs/how-to/move-memories.md"), cwd=tmp_path)
    assert "imported 2 memories" in output
    assert "1 memory stored" in output
    assert len((tmp_path / "backup.jsonl").read_text("utf-8").splitlines()) == 3, "the migration was rolled back"
    assert list((tmp_path / "backup").rglob("*.md"))


def test_a_log_is_trimmed(service: Installation, tmp_path: Path) -> None:
    with ModelServer(Say(REPORT)) as server:
        model = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        output = execute(service, *blocks("docs/how-to/trim-a-log.md"), cwd=tmp_path, **model)
    assert "Agent: acme/clerk\nEntries: 4\n--- Analysis ---\n## Patterns Found" in output
    assert "Trimmed: 1 entries removed, 3 entries kept." in output
