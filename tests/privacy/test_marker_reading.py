"""Reading under a grant: the marker is on the pages with the content, and nowhere else."""

from typing import Any

import pytest
from django.test import Client

from audit.consent import Person as Requester
from audit.consent import Scope
from memory.admin.plain_pages import reading
from memory.consent import requests
from memory.models import Memory, Person
from memory.search import cache
from memory.writing import operations
from tests import steps
from tests.admin.conftest import enrolled, sign_in
from tests.admin.reading import at, granted, read, read_entry
from tests.conftest import House
from tests.members import join
from tests.privacy.watch import FAULTS, Watch, failing
from tests.steps import ME, fresh, last_entry


@pytest.fixture
def pat(watch: Watch, house: House, settings: Any) -> Person:
    settings.ALLOWED_HOSTS = ["testserver"]
    steps.remember(house.ada, watch.text("drinks tea"), watch.text("keeps a dog"), tags=(watch.marker,))
    operations.revise(house.ada, 1, ME, content=watch.text("drinks coffee"))
    person = enrolled("pat@acme.test")
    join(person=person, tenant=house.ada.tenant, role="auditor")
    return person


@pytest.fixture
def client(pat: Person) -> Client:
    client = Client(raise_request_exception=False)
    assert sign_in(client, pat).status_code == 302
    return client


def with_content(watch: Watch, response: Any) -> None:
    """The marker is in the text of the page, and not in its headers, its head or its attributes."""
    page = response.content.decode()
    assert (response.status_code, watch.marker in page) == (200, True)
    head, _, body = page.partition("</head>")
    watch.outputs.append(f"{head} {dict(response.headers)!r} {response.cookies!r}")
    watch.outputs += [tag.partition(">")[0] for tag in body.split("<")]


def test_reading_and_exporting_leak_nothing(watch: Watch, house: House, pat: Person, client: Client) -> None:
    revised = last_entry(house.ada).seq
    number = granted(house.ada, pat)
    address = at(house.ada, number)
    for query in ("", "?show=discarded", "?show=edits"):
        watch.response(client.get(address + query))
    for _ in range(2):
        with_content(watch, read(client, house.ada, number, 1, 2))
        with_content(watch, read_entry(client, house.ada, number, revised))
    watch.response(client.get(address))
    page = watch.response(client.post(at(house.ada, number, "token"))).content.decode()
    token = next(word for word in page.replace("<", " ").replace(">", " ").split() if "palg_" in word)
    ran = watch.run("export_memories", "acme/ada", f"--grant={token}")
    assert watch.marker in ran.out
    watch.outputs.pop()  # this output may contain the marker
    client.post(at(house.ada, number, "end"))
    watch.response(read(client, house.ada, number, 1))
    watch.response(client.get(address))
    watch.run("export_memories", "acme/ada", f"--grant={token}")
    watch.response(client.get("/admin/"))


def test_a_refused_read_leaks_nothing(watch: Watch, house: House, pat: Person, client: Client) -> None:
    number = granted(house.ada, pat, Scope("memories", numbers=(2,)))
    watch.response(read(client, house.ada, number, 1))
    for field in ("numbers", "seq", "above", "show", "after"):
        for action in ((), ("memories",), ("entry",), ("token",)):
            watch.response(client.post(at(house.ada, number, *action), {field: watch.text("typed")}))
    Memory.objects.filter(agent_id=house.ada.pk, number=2).update(sealed=bytes(steps.row(house.ada, 1).sealed))
    watch.response(read(client, house.ada, number, 2))
    nobody = Requester(99, "nobody@acme.test")
    watch.refused(lambda: requests.ask_to_read(house.ada, nobody, purpose="too short", scope=Scope("silo")))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaks_nothing(
    fault: str, watch: Watch, house: House, pat: Person, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = granted(house.ada, pat)
    cache.forget()
    with failing(fault, monkeypatch):
        responses = [read(client, house.ada, number, 1, 2), read_entry(client, house.ada, number, 3)]
        responses.append(client.get(at(house.ada, number)))
    for response in responses:
        if watch.marker not in response.content.decode():
            watch.response(response)
    assert any(response.status_code in (409, 500, 503) for response in responses)


def test_a_template_that_fails_leaks_nothing(
    watch: Watch, house: House, pat: Person, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*args: Any, **more: Any) -> Any:
        contents = [each.opened.content for each in args[2]["reads"]]
        assert len(contents) == 2
        raise RuntimeError(f"{args!r} {contents}") from ValueError(contents)

    number = granted(house.ada, pat)
    with monkeypatch.context() as patched:
        patched.setattr(reading, "render", fails)
        response = watch.response(read(client, house.ada, number, 1, 2))
    assert response.status_code == 500
    assert fresh(house.ada).audit_seq == last_entry(house.ada).seq
