"""No vector is readable at rest or in a log: not as numbers of any size, and not as text."""

import base64
import json
from array import array

import pytest

from memory.consent import redaction, requests
from memory.models import Agent, Embedding
from memory.search.vectors import packed
from refinement.embedding import embed
from tests.commands.calling import run
from tests.conftest import House
from tests.embedding.server import EmbeddingServer, vector
from tests.embedding.steps import found, retry
from tests.privacy.watch import Watch, kept, watching
from tests.steps import ME, PERSON, fresh, remember

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]
TEXT, QUERY = "Ana fixed the car.", "vehicle repair"


def forms(text: str) -> list[bytes]:
    """How the beginning of a text's vector can look."""
    values = vector(text)
    raw = [array(kind, values).tobytes()[:24] for kind in "fd"] + [packed(values)[:24]]
    written = [json.dumps(values[:4])[1:-1].encode(), ",".join(map(str, values[:4])).encode()]
    return [*raw, *written, *(each.hex().encode() for each in raw), *(base64.b64encode(each) for each in raw)]


def leaks(watch: Watch) -> list[str]:
    places = [*kept(), ("the log", watch.log.raw if isinstance(watch.log.raw, bytes) else watch.log.raw.encode())]
    places += [("an output", str(output).encode()) for output in watch.outputs]
    wanted = [form for text in (TEXT, QUERY) for form in forms(text)]
    return [place for place, value in places if any(form in value for form in wanted)]


def test_the_search_for_vectors_finds_a_planted_one(house: House) -> None:
    with watching() as watch:
        assert leaks(watch) == []
        Embedding(agent=house.ada, embedder="x", problem=json.dumps(vector(TEXT)[:5])).save()
        assert leaks(watch)


def test_vectors_are_only_sealed(ada: Agent, server: EmbeddingServer, house: House) -> None:
    with watching() as watch:
        remember(ada, TEXT, "Bob likes tea.")
        embed(ada.pk)
        assert found(ada, QUERY) == [1]
        for answer in (lambda made: made[1:], lambda made: [*made[:-1], [float("nan")] * 3]):
            remember(ada, "Carl likes tea.")
            server.answer = answer
            watch.attempt(lambda: retry(ada))
        server.recover()
        assert retry(ada) == "embedded"
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
            watch.outputs.append(run("export_memories", "acme/ada").out)
        assert leaks(watch) == []
        redaction.redact(ada, requests.ask_redaction(fresh(ada), [1], PERSON, reason="x").number, ME)
        assert leaks(watch) == []
