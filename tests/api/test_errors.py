"""Errors of the API: one form, stable codes, the field's name, no quoted value, and never a 500. The rate limit."""

import io
import time
import tracemalloc
from threading import Thread
from typing import Any, cast

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test import Client, RequestFactory
from django.urls import resolve
from rest_framework import serializers

from config import at_once
from memory.api.base import bodies
from memory.api.base.bodies import MAX_SIGNS
from memory.api.base.views import TURNS
from memory.models import Agent
from tests import steps
from tests.api.calling import BASE, NDJSON, Caller
from tests.conftest import House
from tests.privacy.marker import unique


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_an_invalid_body_is_refused(runtime: Caller, ada: Agent) -> None:
    contents = [b"NaN", b'"a", "content": "b"', b'"\xff"', b'"\\ud800"', nested(100), nested(100_000)]
    contents += [b'"a", "origin": ' + b"9" * 641, b"[" + b"[]," * 200_000 + b"1]"]
    for raw, status, code in (
        *((b'{"content": ' + content + b"}", 400, "parse_error") for content in contents),
        (b"{", 400, "parse_error"),
        (b"", 422, "required"),
        *((raw, 422, "invalid") for raw in (b"[]", b'"text"', b'{"content": ' + nested(18) + b"}")),
        (b"null", 422, "null"),
        (b'{"content": "a", "x": 1}', 422, "unknown_field"),
    ):
        before = steps.state(ada)
        answer = runtime.post("memories", raw=raw)
        assert (answer.status, answer.codes, steps.state(ada)) == (status, [code], before), raw[:50]


def test_an_invalid_value_is_refused_with_its_field(runtime: Caller, ada: Agent) -> None:
    for body, attr in (
        ({}, "content"),
        *(({"content": value}, "content") for value in (None, 5, "  \n", "a\0b", "x" * 10_001)),
        ({"content": "a", "kind": "dream"}, "kind"),
        ({"content": "a", "project": "a/../b"}, "project"),
        ({"content": "a", "tags": "a"}, "tags"),
        ({"content": "a", "tags": ["x" * 65]}, "tags.0"),
        ({"content": "a", "origin": "0001-01-01T00:00:00+14:00"}, "origin"),
    ):
        before = steps.state(ada)
        answer = runtime.post("memories", body)
        assert (answer.status, answer.attrs) == (422, [attr]), answer.content
        assert steps.state(ada) == before


def test_an_invalid_query_parameter_or_number_is_refused(runtime: Caller) -> None:
    queries = ["limit=0", "limit=501", "limit=x", "limit=1.5", "cursor=-1", "cursor=" + "9" * 400, "kind=dream"]
    for query in [*queries, "since=soon", "nothing=1", "constitutional=maybe", "discarded=%00"]:
        assert runtime.get(f"memories?{query}").status == 422, query
    for number in ("1e400", "-1e400", "1" + "0" * 400, "-0", "1.0", "1.5", "true", '"1"', "[1]", "{}", "null", "-1"):
        answer = runtime.post("memories/search", raw=f'{{"limit": {number}}}'.encode())
        assert (answer.status, answer.attrs) in [(422, ["limit"]), (400, [None])], number


def test_an_unknown_id_is_404(runtime: Caller, ada: Agent) -> None:
    for number in ("0", "99", "9" * 18, "9" * 25):
        answers = [runtime.patch(f"memories/{number}", {"content": "a"}), runtime.delete(f"memories/{number}")]
        answers += [runtime.post(f"memories/{number}/restore")]
        answers += [runtime.get(f"{path}/{number}") for path in ("memories", "audit", "refinement-sessions")]
        for answer in answers:
            assert answer.status == 404, number
            assert answer.codes[0] in ("unknown_memory", "unknown_entry", "not_found"), number
    steps.remember(ada, "tea")
    for number in ("1.0", "1e0", "-1", "+1", "0x1", "١", "1%20", "1;1", "1,2"):
        assert runtime.delete(f"memories/{number}").status == 404, number
    assert steps.active(ada) == [1]


def test_an_unknown_path_is_404_and_an_unknown_method_405(runtime: Caller) -> None:
    for path in ("", "nothing", "memories/", "memories/x", "memories/1/2/3", "agent/../agent", "%00"):
        answer = runtime.get(path)
        assert (answer.status, answer.codes) == (404, ["not_found"]), path
    answer = runtime.ask("PUT", "agent", {})
    assert (answer.status, answer.codes) == (405, ["method_not_allowed"])


@pytest.mark.database
def test_a_path_with_a_nul_is_404(acme: Caller) -> None:
    assert acme.ask("GET", "agents/%00").status == 404


def test_a_request_without_a_key_learns_how_to_send_it(acme: Caller) -> None:
    assert b"Authorization: Bearer KEY" in Caller().ask("GET", "memories").content


def test_another_content_type_charset_or_encoding_is_415(runtime: Caller) -> None:
    types = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
    types.append("application/json; charset=utf-16")
    answers = [runtime.post("memories", raw=b"{}", kind=kind) for kind in types]
    for kind, encoding in (("application/json; charset", "gzip"), ("application/json", "gzip, identity")):
        answers.append(runtime.post("memories", raw=b"{}", kind=kind, content_encoding=encoding))
    assert [(answer.status, answer.codes) for answer in answers] == [(415, ["unsupported_media_type"])] * 6


def test_a_body_that_is_too_large_is_413(runtime: Caller, ada: Agent, settings: Any) -> None:
    settings.API_BODY_BYTES = settings.API_IMPORT_BYTES = 1_000
    before = steps.state(ada)
    large = runtime.post("memories", {"content": "x" * 1_000})
    lines = runtime.post("import", raw=b'{"content": "a"}\n' * 100, kind=NDJSON)
    for answer in (large, lines):
        assert (answer.status, answer.codes, steps.state(ada)) == (413, ["too_large"], before)


def test_the_body_of_an_import_is_read_before_anything_is_locked(house: House) -> None:
    """Otherwise a slow client would block every other writer."""
    lines = b'{"content": "a"}\n' * 3
    depth, seen = len(connection.savepoint_ids), []

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            seen.append(len(connection.savepoint_ids))
            return super().read(size)

        readline = read  # type: ignore[assignment]

    client = Client(headers={"Authorization": f"Bearer {house.ada_key}"})
    environ: Any = {"wsgi.input": Watched(lines)}
    response = client.generic("POST", f"{BASE}import", lines, NDJSON, **environ)
    assert (response.status_code, set(seen)) == (201, {depth})


@pytest.mark.parametrize(
    ("fault", "status", "code"), [(OperationalError, 503, "unavailable"), (KeyError, 500, "error")]
)
def test_a_server_error_quotes_nothing(runtime: Caller, monkeypatch: Any, fault: Any, status: int, code: str) -> None:
    marker = unique()

    def fails(*_: Any, **__: Any) -> Any:
        raise fault(f"near {marker}")

    monkeypatch.setattr("memory.writing.operations.remember", fails)
    answer = runtime.post("memories", {"content": marker})
    assert (answer.status, answer.codes, answer.json["type"]) == (status, [code], "server_error")
    assert marker.encode() not in answer.content


def test_no_value_header_or_method_is_quoted(runtime: Caller) -> None:
    marker, good = unique(), {"content": "a"}
    fields = ("kind", "category", "project", "origin")
    answers = [runtime.post("memories", good | {name: f"{marker} .."}) for name in fields]
    answers += [
        runtime.post("memories", good | {marker: 1}),
        runtime.ask(marker, "memories"),
        runtime.post("memories", raw=b"{}", kind=f"application/{marker}"),
        runtime.post("memories", raw=b"{}", kind=f"application/json; charset={marker}"),
        runtime.post("memories", good, content_encoding=marker),
        runtime.post("memories", good, idempotency_key=marker * 20),
        runtime.patch("memories/1", good, if_match=marker),
        runtime.get(f"memories/{marker}"),
        Caller(marker).get("agent"),
    ]
    for answer in answers:
        assert 400 <= answer.status < 500
        assert answer.codes
        assert marker.encode() not in answer.content


def test_the_accept_header_is_ignored(runtime: Caller) -> None:
    for path, kind in (("context", "text/plain"), ("export", NDJSON), ("agent", "application/json")):
        for accept in ("text/plain", NDJSON, "text/html", "image/png", ",;q=,"):
            answer = runtime.get(path, accept=accept)
            assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, kind)
    assert runtime.get("nothing", accept="text/html").codes == ["not_found"]


def test_an_import_with_an_invalid_line_is_refused_whole(runtime: Caller, ada: Agent) -> None:
    for line, attr in (
        (b"{", "line 2"),
        (b"[]", "line 2"),
        (b'{"content": "\xff"}', "line 2"),
        (b'{"content": "\\ud800"}', "line 2, content"),
        (b'{"content": "a\\u0000b"}', "line 2, content"),
        (b'{"content": "' + b"x" * 10_001 + b'"}', "line 2, content"),
        (b'{"content": ' + b"[" * 100_000 + b"}", "line 2"),
        (b'{"content": "a", "origin": ' + b"9" * 10_000 + b"}", "line 2"),
        (b'{"content": "a", "origin": 1e400}', "line 2, origin"),
        (b'{"content": "a", "origin": "9999-12-31T23:59:59-14:00"}', "line 2, origin"),
        (b'{"content": "a", "tags": [1e400]}', "line 2, tags"),
        (b'{"content": "a", "kind": {"a": 1}}', "line 2, kind"),
    ):
        before = steps.state(ada)
        answer = runtime.post("import", raw=b'{"content": "fine"}\n' + line, kind=NDJSON)
        assert (answer.status, answer.codes, answer.attrs) == (422, ["bad_line"], [attr]), line[:50]
        assert steps.state(ada) == before, line[:50]


def test_the_length_of_a_list_is_checked_before_its_items(runtime: Caller) -> None:
    for path, body in (
        ("memories/batch", {"memories": [0] * 501}),
        ("memories", {"content": "a", "tags": [0] * 257}),
        ("memories/search", {"tags": [0] * 257}),
    ):
        answer = runtime.post(path, body)
        assert (answer.status, answer.codes, answer.attrs) == (422, ["max_length"], [list(body)[-1]])


def test_a_response_lists_at_most_ten_errors(runtime: Caller) -> None:
    answer = runtime.post("memories/batch", {"memories": [0] * 500})
    assert (answer.status, answer.attrs) == (422, [f"memories.{place}.non_field_errors" for place in range(10)])
    answer = runtime.post("memories", {"content": "a", "tags": ["fine"] + [0] * 200})
    assert (answer.status, answer.attrs) == (422, [f"tags.{place}" for place in range(1, 11)])


def test_many_unknown_fields_are_counted_or_cut(runtime: Caller) -> None:
    unknown = {f"{unique()}{place}": 1 for place in range(1_000)}
    answer = runtime.post("memories/batch", {"memories": [{"content": "a"} | unknown] * 20})
    assert (answer.status, answer.codes) == (422, ["unknown_field"] * 10)
    assert all(error["detail"].startswith("has unknown fields (1000)") for error in answer.json["errors"])
    line = {"content": "a"} | {f"{place:03}{'x' * 1_000}": 1 for place in range(300)}
    answer = runtime.post("import", line, kind=NDJSON)
    assert (answer.status, len(answer.json["ignored"])) == (201, 100)
    assert {len(name) for name in answer.json["ignored"]} == {64}
    answer = runtime.post("import", raw=b'{"content": "a", "\\ud800": 1}', kind=NDJSON)
    assert (answer.status, answer.json["ignored"]) == (201, ["?"])


@pytest.fixture
def rate_limit(settings: Any) -> None:
    settings.API_RATE = 3
    cache.clear()


@pytest.mark.usefixtures("rate_limit")
def test_a_key_above_its_rate_is_429_for_the_rest_of_the_minute(
    runtime: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    assert [runtime.get("agent").headers["X-RateLimit-Remaining"] for _ in range(3)] == ["2", "1", "0"]
    answer = runtime.get("agent")
    assert (answer.status, answer.codes, answer.headers["X-RateLimit-Limit"]) == (429, ["throttled"], "3")
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert stranger.get("agent").status == 200
    monkeypatch.setattr("memory.api.base.views.time.time", lambda: now + 60)
    assert runtime.get("agent").status == 200


def test_one_agent_cannot_occupy_all_threads(runtime: Caller, house: House, settings: Any) -> None:
    settings.WEB_THREADS, most, sender = 9, 4, ("agent", house.ada.pk)
    for _ in range(most - 1):
        assert at_once.begin({sender: most})
    for _ in range(3):  # a request, also a streamed or refused one, frees its place
        assert [runtime.get(path).status for path in ("memories", "export", "memories/99")] == [200, 200, 404]
    assert at_once.begin({sender: most})
    answer = runtime.get("memories")
    assert (answer.status, answer.codes, answer.headers["Retry-After"]) == (429, ["throttled"], "1")
    assert Caller(house.bob_key).get("memories").status == 200
    for _ in range(most):
        at_once.end([sender])
    assert runtime.get("memories").status == 200


def test_a_request_counts_until_its_response_is_sent(house: House) -> None:
    """One key, whose client read 16 responses slowly, occupied all threads."""
    request = RequestFactory().get(f"{BASE}memories", headers={"Authorization": f"Bearer {house.ada_key}"})
    response, one = resolve(request.path_info).func(request), {("agent", house.ada.pk): 1}
    assert not at_once.begin(one)
    response.close()
    assert at_once.begin(one)
    at_once.end(one)


def test_requests_of_one_agent_take_turns(runtime: Caller, house: House) -> None:
    turn = "turn", ("agent", house.ada.pk)
    for _ in range(TURNS):
        assert at_once.begin({turn: TURNS})
    waiting = Thread(target=at_once.begin, args=[{turn: TURNS}], kwargs={"seconds": 60})
    waiting.start()
    assert Caller(house.bob_key).get("memories").status == 200
    assert waiting.is_alive()
    for _ in range(2):
        at_once.end([turn])
    waiting.join(10)
    assert not waiting.is_alive()
    assert runtime.get("memories").status == 200
    assert not at_once.begin({turn: 1})
    at_once.end([turn])


def test_requests_of_all_agents_of_a_tenant_take_turns(
    runtime: Caller, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_once, "MAX_WAIT", 0)
    turn = "turn", ("tenant", house.ada.tenant_id)
    assert all(at_once.begin({turn: TURNS + 1}) for _ in range(TURNS + 1))
    assert (runtime.get("memories").status, Caller(house.bob_key).get("memories").status) == (429, 200)
    at_once.end([turn])
    assert runtime.get("memories").status == 200
    at_once.end([turn] * TURNS)


def test_a_tenant_has_two_large_bodies_at_a_time(runtime: Caller, house: House) -> None:
    bodies = "bodies", ("tenant", house.ada.tenant_id)
    assert all(at_once.begin({bodies: 2}) for _ in range(2))
    large = b'{"content": "x"}'.ljust(300_000)
    assert runtime.ask("POST", "memories", raw=large, kind="application/json").status == 429
    assert Caller(house.bob_key).ask("POST", "memories", raw=large, kind="application/json").status == 201
    at_once.end([bodies, bodies])
    assert runtime.ask("POST", "memories", raw=large, kind="application/json").status == 201


def test_the_agents_of_one_tenant_cannot_occupy_all_threads(runtime: Caller, house: House, settings: Any) -> None:
    settings.WEB_THREADS, tenant = 9, ("tenant", house.ada.tenant_id)
    for _ in range(6):
        assert at_once.begin({tenant: 6})
    assert runtime.get("memories").status == 429
    assert Caller(house.bob_key).get("memories").status == 200
    at_once.end([tenant] * 6)
    assert runtime.get("memories").status == 200


def test_a_body_has_a_limit_of_values(runtime: Caller) -> None:
    for values in (["0"] * (MAX_SIGNS + 2), ["[]"] * MAX_SIGNS, ['"", '] * MAX_SIGNS):
        answer = runtime.post("memories", raw=f"[{','.join(values)}]".encode())
        assert (answer.status, "has too many values" in str(answer.json)) == (400, True)


def test_the_values_of_a_body_are_counted_without_much_memory() -> None:
    """8 MB with escapes took 400 MB and seconds."""
    text = b'["' + b"\\n" * 1_000_000 + b"," * (MAX_SIGNS + 2) + b'"]'
    values = text + b"," * (MAX_SIGNS + 2)
    tracemalloc.start()
    assert [bool(bodies._TOO_MANY.match(body)) for body in (text, values)] == [False, True]
    assert tracemalloc.get_traced_memory()[1] < 1_000_000, "bytes"
    tracemalloc.stop()


def test_a_list_is_checked_up_to_its_tenth_wrong_item() -> None:
    """200,000 wrong items took 18 seconds."""

    class Seen(bodies.Whole):
        def to_internal_value(self, data: Any) -> int:
            seen.append(data)
            return super().to_internal_value(data)

    items, seen = bodies.List(child=Seen()), list[Any]()
    with pytest.raises(serializers.ValidationError) as refused:
        items.run_validation(["x", 1] * 1_000)
    assert (list(cast(Any, refused.value.detail)), len(seen)) == (list(range(0, 20, 2)), 19)


def test_commas_and_brackets_in_texts_are_no_values(runtime: Caller) -> None:
    memories = [{"content": "1,[2,{3," * 1_200, "tags": ['"\\']}] * 50
    assert runtime.post("memories/batch", {"memories": memories}).status == 201
    unending = b'{"content": "' + b'\\"[' * 2_000_000
    assert "is not JSON" in str(runtime.post("memories", raw=unending).json)


def test_a_batch_has_a_limit_of_characters(runtime: Caller, ada: Agent) -> None:
    before, body = steps.state(ada), {"memories": [{"content": "tea", "tags": [f"{n:064}" for n in range(80)]}] * 199}
    answer = runtime.post("memories/batch", body)
    assert (answer.status, answer.attrs, steps.state(ada)) == (422, ["memories"], before)


@pytest.mark.usefixtures("rate_limit")
def test_requests_without_a_key_or_a_working_cache_are_not_counted(runtime: Caller, monkeypatch: Any) -> None:
    assert [Caller().get("agent").status for _ in range(5)] == [401] * 5
    assert runtime.get("agent").status == 200

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError

    monkeypatch.setattr("memory.api.base.views.counts.incr", fails)
    assert [runtime.get("agent").status for _ in range(5)] == [200] * 5


@pytest.mark.parametrize("path", ["memories", "agent", "docs/", "schema/"])
def test_too_many_parameters_are_refused(runtime: Caller, path: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.DATA_UPLOAD_MAX_NUMBER_FIELDS", 10)
        answer = runtime.get(f"{path}?{'&'.join(f'a{n}=1' for n in range(11))}")
    assert answer.status in ((200, 400) if path in ("agent", "schema/") else (400,)), answer.content


def test_the_page_of_the_api_has_no_other_methods(client: Client) -> None:
    assert client.options(f"{BASE}docs/").status_code == 405
