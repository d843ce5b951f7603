"""Reading under a grant, well and badly: the marker is on the pages that were read, and left nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from audit.consent import Scope
from memory.admin.plain_pages import reading
from memory.consent import grants
from memory.models import Membership, Memory, Person
from memory.search import cache
from memory.writing import operations
from tests import steps
from tests.admin.conftest import enrolled, sign_in
from tests.admin.reading import at, granted, read, read_entry
from tests.conftest import House
from tests.privacy.test_marker_api import failing
from tests.privacy.watch import Watch
from tests.steps import ME, fresh, last_entry


@pytest.fixture
def pat(watch: Watch, house: House, settings: Any) -> Person:
    settings.ALLOWED_HOSTS = ["testserver"]
    steps.remember(house.ada, watch.text("drinks tea"), watch.text("keeps a dog"), tags=(watch.marker,))
    operations.revise(house.ada, 1, ME, content=watch.text("drinks coffee"))
    person = enrolled("pat@acme.test")
    Membership.objects.create(person=person, tenant=house.ada.tenant, role="auditor")
    return person


@pytest.fixture
def client(pat: Person) -> Client:
    client = Client(raise_request_exception=False)
    assert sign_in(client, pat).status_code == 302
    return client


def told(watch: Watch, answer: Any) -> None:
    """An answer in which the marker has no business."""
    watch.outputs.append(f"{answer.status_code} {answer.content!r} {dict(answer.headers)!r} {answer.cookies!r}")


def shown(watch: Watch, answer: Any) -> None:
    """One in which it has: in the page, and nowhere in its headers, its title or its addresses."""
    page = answer.content.decode()
    assert answer.status_code == 200
    assert watch.marker in page
    head, _, body = page.partition("</head>")
    watch.outputs.append(f"{head} {dict(answer.headers)!r} {answer.cookies!r}")
    watch.outputs += [tag.partition(">")[0] for tag in body.split("<")]  # what the elements' attributes say


def test_reading_leaves_it_nowhere(watch: Watch, house: House, pat: Person, client: Client) -> None:
    revised = last_entry(house.ada).seq
    number = granted(house.ada, pat)
    for query in ("", "?show=discarded", "?show=edits"):
        told(watch, client.get(at(house.ada, number) + query))
    for _ in range(2):
        shown(watch, read(client, house.ada, number, 1, 2))
        shown(watch, read_entry(client, house.ada, number, revised))
    told(watch, client.get(at(house.ada, number)))
    token = client.post(at(house.ada, number, "token"))
    told(watch, token)
    given = next(word for word in token.content.decode().replace("<", " ").replace(">", " ").split() if "palg_" in word)
    ran = watch.run("export_memories", "acme/ada", f"--grant={given}")
    assert watch.marker in ran.out
    watch.outputs.pop()  # what was asked for; what it left is looked for all the same
    client.post(at(house.ada, number, "end"))
    told(watch, read(client, house.ada, number, 1))
    told(watch, client.get(at(house.ada, number)))
    watch.run("export_memories", "acme/ada", f"--grant={given}")
    told(watch, client.get("/admin/"))


def test_what_is_refused_says_nothing(watch: Watch, house: House, pat: Person, client: Client) -> None:
    number = granted(house.ada, pat, Scope("memories", numbers=(2,)))
    told(watch, read(client, house.ada, number, 1))
    for field in ("numbers", "seq", "above", "show", "after"):
        for deed in ((), ("memories",), ("entry",), ("token",)):
            told(watch, client.post(at(house.ada, number, *deed), {field: watch.text("typed")}))
    Memory.objects.filter(agent_id=house.ada.pk, number=2).update(sealed=bytes(steps.row(house.ada, 1).sealed))
    told(watch, read(client, house.ada, number, 2))
    watch.refused(lambda: grants.ask(house.ada, _nobody(), purpose="too short", scope=Scope("silo")))


def _nobody() -> Any:
    from audit.consent import Person as Asking

    return Asking(99, "nobody@acme.test")


@pytest.mark.parametrize("fault", ["the database", "seal_data", "open_data", "digest"])
def test_something_fails(
    fault: str, watch: Watch, house: House, pat: Person, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = granted(house.ada, pat)
    cache.forget()
    with failing(fault, monkeypatch):
        answers = [read(client, house.ada, number, 1, 2), read_entry(client, house.ada, number, 3)]
        answers.append(client.get(at(house.ada, number)))
    for answer in answers:
        if watch.marker not in answer.content.decode():
            told(watch, answer)
    assert any(answer.status_code in (409, 500) for answer in answers)


def test_a_page_that_cannot_be_made(
    watch: Watch, house: House, pat: Person, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that was read in its hands."""

    def fails(*given: Any, **more: Any) -> Any:
        said = [each.opened.content for each in given[2]["reads"]]
        assert len(said) == 2
        raise RuntimeError(f"{given!r} {said}") from ValueError(said)

    number = granted(house.ada, pat)
    with monkeypatch.context() as patch:
        patch.setattr(reading, "render", fails)
        answer = read(client, house.ada, number, 1, 2)
    assert answer.status_code == 500
    told(watch, answer)
    assert fresh(house.ada).audit_seq == last_entry(house.ada).seq
