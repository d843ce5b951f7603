"""The REST API under load, beside a bare Django + DRF project that does the same in plain text (`tests/bench/bare`).

Both are served by gunicorn with the service's own settings and two workers, both databases lie on the same disk or
server, and both are asked by the same clients over loopback, a round ours and a round the floor's in turns, so that
drift cancels. Every client keeps its connection for a round and asks for one thing after another; no key's rate is
limited. Milliseconds are what a client waits.
"""

import json
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from django.conf import settings
from django.db import connection

from tests.bench import child, load, places, texts
from tests.bench.agents import analyze, with_key
from tests.bench.figures import Figure, at_most, beside
from tests.bench.load import AlreadyExists, Wanted, request
from tests.bench.serving import served

API = "/api/v1/"
BARE = {"DJANGO_SETTINGS_MODULE": "tests.bench.bare.settings"}
ROUND = 100  # requests
WARMING = 32  # requests: enough that both workers have opened the silo
FEW = 10  # memories of each of many agents
NO_LIMIT = "999999999"
TARGET_AT = 10_000  # memories
SEARCH, CONTEXT, REMEMBER = "POST /memories/search", "GET /context, 304", "POST /memories"
AT_LEAST = {SEARCH: 1.0, CONTEXT: 1.0, REMEMBER: 0.6}
MOST = 5  # times the median, for 99 of 100 requests


@dataclass(frozen=True, slots=True)
class Place:
    """A number of agents with a number of memories each, ours and the floor's, and how it is called."""

    name: str
    ours: Sequence[str]  # keys
    floors: Sequence[str]  # tokens
    each: int
    texts: Sequence[str]
    is_large: bool  # enough for the target of a search


def run(*, quick: bool) -> Iterator[Figure]:
    sizes = [(1, 100), (1, 2_000)] if quick else [(1, 100), (1, TARGET_AT), (1, 100_000)]
    many = [(50, FEW)] if quick else [(100, FEW), (1_000, FEW)]
    theirs = floor_database()
    for owners, each in sizes + many:
        place = filled(owners, each, theirs, is_large=each >= sizes[1][1])
        with (
            served("config.wsgi", API_RATE=NO_LIMIT) as ours,
            served("django.core.wsgi:get_wsgi_application()", DATABASE_URL=theirs, **BARE) as floor,
        ):
            count = requests(each, quick=quick)
            yield from measured(place, ours, floor, count)
            if (owners, each) == sizes[0]:
                yield from overhead(floor, count)


def requests(each: int, *, quick: bool) -> int:
    """How many of a kind are measured: at 100,000 memories the floor finds five things a second."""
    return 200 if quick else 600 if each <= TARGET_AT else 100


def floor_database() -> str:
    """On SQLite a file beside the service's, so that neither waits for the other; on PostgreSQL the same database."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{Path(settings.DATABASES['default']['NAME']).with_name('bare.sqlite3')}"
    return os.environ["DATABASE_URL"]


def filled(owners: int, each: int, theirs: str, *, is_large: bool) -> Place:
    """So many agents with so many memories, and the floor anew with as many, both at the same time."""
    seed = f"api {owners} {each}"
    command = child.command("bare.fill", "fill", owners, each, seed)
    environment = os.environ | BARE | {"DATABASE_URL": theirs}
    with subprocess.Popen(command, env=environment, cwd=places.ROOT, stdout=subprocess.PIPE, text=True) as floor:
        budget = {"budget_tokens": 100_000_000}  # out of the way
        lines = [texts.lines(each, f"{seed} {number}") for number in range(owners)]
        keys = [with_key(f"ada-{owners}-{each}-{place}", one, **budget)[1] for place, one in enumerate(lines)]
        tokens = json.loads(floor.communicate()[0])
    assert len(tokens) == owners
    analyze()
    connection.close()
    name = f"{each:,} memories" if owners == 1 else f"{owners:,} agents of {each:,}"
    return Place(name, keys, tokens, each, texts.many(min(each, 1_000), f"{seed} 0"), is_large)


def measured(place: Place, ours: int, floor: int, count: int) -> Iterator[Figure]:
    """Every kind of request at one place: those that only read first."""
    kinds = {
        SEARCH: (
            searches(API + "memories/search", place.ours, place.texts, count),
            searches("/notes/search", place.floors, place.texts, count),
        ),
        CONTEXT: (unchanged(ours, place.ours, count), one_row(place, count)),
        REMEMBER: (posts(API + "memories", place.ours, count), posts("/notes", place.floors, count)),
    }
    for what, (asked, floors) in kinds.items():
        mine, theirs = in_turns((ours, asked), (floor, floors))
        yield from compared(what, place, mine, theirs)


def compared(what: str, place: Place, mine: AlreadyExists, theirs: AlreadyExists) -> Iterator[Figure]:
    """The rate of each, ours over the floor's, and how long a client waits."""
    name = f"{what}, {place.name}"
    least = AT_LEAST[what] if place.is_large or what != SEARCH else None
    yield beside(name, mine.rate, "/s", theirs.rate, least=least)
    half, most = mine.percentile(0.5), mine.percentile(0.99)
    yield Figure(f"{name}: median", half * 1e3, "ms", theirs.percentile(0.5) * 1e3)
    yield Figure(f"{name}: 99 %", most * 1e3, "ms", theirs.percentile(0.99) * 1e3)
    yield at_most(f"{name}: 99 % over median", most / half, "×", MOST)


def overhead(floor: int, count: int) -> Iterator[Figure]:
    """What is none of the work compared: gunicorn, Django and the client for a view that does nothing."""
    taken = AlreadyExists()
    load.run(floor, [request("GET", "/empty", "")] * count, taken)
    yield Figure("an empty view of the floor's", taken.rate, "/s")
    yield Figure("… of the client's own for a request", taken.client / count * 1e6, "µs")


def warm(port: int, wanted: Sequence[Wanted]) -> None:
    """By connections of their own, so that both workers get some."""
    for start in range(0, len(wanted), 8):
        load.run(port, wanted[start : start + 8], AlreadyExists(), clients=8)


def in_turns(
    ours: tuple[int, Sequence[Wanted]], floor: tuple[int, Sequence[Wanted]]
) -> tuple[AlreadyExists, AlreadyExists]:
    """A round of each at a time, the first of the two changing. The first requests only warm: they are not counted."""
    taken = AlreadyExists(), AlreadyExists()
    for port, wanted in (ours, floor):
        warm(port, wanted[:WARMING])
    for start in range(WARMING, len(ours[1]), ROUND):
        sides = list(zip((ours, floor), taken, strict=True))
        for (port, wanted), spent in sides if start // ROUND % 2 else reversed(sides):
            load.run(port, wanted[start : start + ROUND], spent)
    return taken


# --- what is asked, WARMING requests more than are counted


def searches(path: str, keys: Sequence[str], said: Sequence[str], count: int) -> list[Wanted]:
    """Six words of some memory, ten results."""
    chance = random.Random("api searches")
    queries = (" ".join(chance.sample(chance.choice(said).replace('"', "").split(), 6)) for _ in range(count + WARMING))
    return [request("POST", path, key, {"q": query, "limit": 10}) for key, query in zip(cycle(keys), queries)]


def posts(path: str, keys: Sequence[str], count: int) -> list[Wanted]:
    new = texts.many(count + WARMING, f"api {path}")
    bodies = ({"content": text, "tags": ["bench"]} for text in new)
    return [request("POST", path, key, body, 201) for key, body in zip(cycle(keys), bodies)]


def unchanged(port: int, keys: Sequence[str], count: int) -> list[Wanted]:
    """The context block with the ETag it has: a 304."""
    path = API + "context"
    tags = [etag(port, request("GET", path, key)) for key in keys]
    once = [request("GET", path, key, status=304, If_None_Match=tag) for key, tag in zip(keys, tags, strict=True)]
    return list(islice(cycle(once), count + WARMING))


def etag(port: int, wanted: Wanted) -> str:
    asking = load.Connection(port)
    head, _ = asking.ask(wanted)
    asking.close()
    return head.lower().partition(b"etag: ")[2].split(b"\r\n")[0].decode()


def one_row(place: Place, count: int) -> list[Wanted]:
    """A row of each owner's, by turns: notes are numbered from 1, one owner's after the other's."""
    once = [request("GET", f"/notes/{number * place.each + 1}", token) for number, token in enumerate(place.floors)]
    return list(islice(cycle(once), count + WARMING))
