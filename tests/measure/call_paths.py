"""Measure three call paths: `python -m tests.measure.call_paths` prints the figures as JSON.

Run it in a process of its own: it uses temporary keys and a temporary SQLite database. Each path runs three times, and
the run with the fewest functions counts: all caches are filled, and none ends in it, as one does each minute. Counted
are:

- files and functions: the product's distinct functions that run, without lambdas, comprehensions and generator
  expressions;
- queries: every statement that Django logs, with BEGIN and COMMIT;
- transactions: the outermost ones.

The figures of a rollback are those of its view: the middleware that loads and saves the HTTP session is left out.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from types import CodeType, FrameType
from typing import Any

from tests import environment
from tests.measure.source import PACKAGES, ROOT

_FOLDERS = tuple(f"{ROOT / package}{os.sep}" for package in PACKAGES)

Figures = dict[str, int]
measured: dict[str, Figures] = {}


@contextmanager
def recording(path: str) -> Iterator[None]:
    """Measure the block. Of the recordings of a path, the one with the fewest functions counts."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    with CaptureQueriesContext(connection) as queries:
        sys.setprofile(profile)
        try:
            yield
        finally:
            sys.setprofile(None)
    codes = {code for code in seen if code.co_filename.startswith(_FOLDERS) and not code.co_name.startswith("<")}
    found = {
        "files": len({code.co_filename for code in codes}),
        "functions": len(codes),
        "queries": len(queries),
        "transactions": sum(query["sql"].startswith("BEGIN") for query in queries),
    }
    measured[path] = min(measured.get(path, found), found, key=itemgetter("functions", "files"))


def recorded_view(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A middleware that measures what the view does, as the path `rollback`."""

    def respond(request: Any) -> Any:
        assert request.user.is_verified()  # loads the session and the person
        with recording("rollback"):
            return get_response(request)

    return respond


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    os.environ["DATABASE_URL"] = f"sqlite:///{environment.FOLDER / 'measure.sqlite3'}"
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from memory.writing import edits
    from tests.api.calling import Caller
    from tests.commands.calling import run

    settings.ALLOWED_HOSTS = ["testserver"]
    settings.PASSWORD_HASHERS = ["tests.admin.conftest.Quick"]
    call_command("migrate", verbosity=0)
    edits.LONG = float("inf")  # seconds: on a busy machine, an edit would pause after its end
    runtime = Caller(run("create_agent", "acme/ada", "--model", "builtin/dedupe").json["key"])
    _remember(runtime)
    _merge(runtime)
    _roll_back(runtime)
    print(json.dumps(measured))


def _remember(runtime: Any) -> None:
    for text in ("Tea is hot.", "Milk is white.", "Salt is dry."):
        with recording("remember"):
            response = runtime.post("memories", {"content": text, "tags": ["kitchen"], "category": "behavioral"})
        assert response.status == 201, response.content


def _merge(runtime: Any) -> None:
    """Three merges in one session."""
    pairs = [
        ("Ann Miller has owned the kettle since 2024-05-01.", "The kettle cost 30 euros."),
        ("Bob Smith has owned the boat since 2023-06-02.", "The boat cost 90 euros."),
        ("Cal Jones has owned the piano since 2022-07-03.", "The piano cost 700 euros."),
    ]
    ids = [[runtime.post("memories", {"content": text}).json["id"] for text in pair] for pair in pairs]
    session = f"refinement-sessions/{runtime.post('refinement-sessions', {}).json['id']}"
    assert runtime.get(f"{session}/briefing").status == 200
    for both, pair in zip(ids, pairs, strict=True):
        arguments = {"ids_to_merge": both, "new_content": " ".join(pair)}
        with recording("merge"):
            response = runtime.post(f"{session}/tools/consolidate_memories", {"arguments": arguments})
        assert response.json["ok"], response.content
    assert runtime.post(f"{session}/abort").status == 200


def _roll_back(runtime: Any) -> None:
    """A person takes back three discards."""
    from django.conf import settings
    from django.test import Client, override_settings
    from django.urls import reverse

    from memory.models import Agent, Role
    from tests.admin.conftest import enrolled, sign_in
    from tests.members import join

    agent = Agent.objects.get()
    person = enrolled("owner@acme.test")
    join(person=person, tenant=agent.tenant, role=Role.OWNER)
    client = Client()
    assert sign_in(client, person).status_code == 302
    with override_settings(MIDDLEWARE=[*settings.MIDDLEWARE, f"{__name__}.recorded_view"]):
        client.handler.load_middleware()  # of this client only
    for number in (1, 2, 3):
        assert runtime.delete(f"memories/{number}").status == 204
        agent.refresh_from_db()
        address = f"{reverse('admin:memory_agent_time_machine', args=[agent.pk])}?kind=entry&entry={agent.audit_seq}"
        assert client.post(address, {"head": agent.audit_seq, "conflicts": "", "reason": ""}).status_code == 302


if __name__ == "__main__":
    main()
