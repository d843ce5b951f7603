"""What one key or one person asks for makes no other wait."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from time import sleep, thread_time
from timeit import timeit
from typing import Any

import pytest
from django.core import mail
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit import disk
from config import at_once
from memory import tasks
from memory.access import authority, heads
from memory.admin.base.page import MOST_WORDS
from memory.agents import lifecycle
from memory.api.base import views
from memory.api.base.idempotency import KEPT, Kept
from memory.consent import redaction, requests
from memory.consent.claims import CLEARED
from memory.errors import Invalid
from memory.mail import letters
from memory.masking.neutral import neutral
from memory.models import Agent, Creation, LetterKind, Role
from memory.recording import topics
from memory.search import cache, query
from memory.silo.silo import Silo
from memory.time_machine import rollback
from memory.time_machine.selection import What
from memory.writing import edits
from refinement import backlog, knife, scheduling, worker
from refinement import session as sessions
from refinement.llm.base import arguments_of
from refinement.models import Driver, Waiting
from refinement.tasks import close_stale
from tests import queueing
from tests.access_requests import ask
from tests.admin.conftest import enrolled, sign_in
from tests.api.calling import Caller
from tests.claiming import claim
from tests.conftest import House
from tests.members import join
from tests.steps import ME, PERSON, fresh, remember

pytestmark = pytest.mark.database


def test_a_session_builds_the_index_before_it_locks_the_agent(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "Ana lives in Bern.", "Ana has a dog.", "Ana plays chess.")
    session = sessions.open_session(ada, trigger="api", driver=Driver.RUNTIME)
    monkeypatch.setattr(cache, "MOST_WHILE_LOCKED", 2)
    cache.forget()
    built, document = set(), cache._document

    def note(*args: Any) -> Any:
        built.add(ada.pk in edits._locked_here.get())
        return document(*args)

    monkeypatch.setattr(cache, "_document", note)
    result = knife.call(ada, session.number, "search_memories", {"query": "dog"})
    assert (result.code, len(result.answer["found"]), built) == ("ok", 1, {False})

    server = sessions.open_session(bob, trigger="api")
    remember(bob, "Bob has a dog.", "Bob has a cat.", "Bob has a cow.")
    lifecycle.change(bob, ME, language="german")  # the session has an older copy of the agent
    assert knife.Knife(server).call("search_memories", {"query": "cat"}).code == "ok"


def test_a_briefing_opens_no_memory_while_the_agent_is_locked(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "One.", "Two.")
    session, opening, locked = sessions.open_session(ada, trigger="api", driver=Driver.RUNTIME), Silo.open, []
    monkeypatch.setattr(Silo, "open", lambda *args: locked.append(ada.pk in edits._locked_here.get()) or opening(*args))
    for _ in range(2):
        assert '"Two."' in knife.briefing(fresh(ada), session.number).messages[1].text
    assert set(locked) == {False}


@pytest.mark.own_database
@pytest.mark.django_db(transaction=True)
def test_one_thread_writes_for_an_agent_at_a_time(ada: Agent, bob: Agent) -> None:
    done = []

    def write(agent: Agent) -> None:
        remember(agent, "A memory.")
        done.append(agent.slug)
        connection.close()

    with edits._turns[ada.pk % len(edits._turns)]:
        threads = [Thread(target=write, args=(agent,)) for agent in (ada, bob)]
        for thread in threads:
            thread.start()
        threads[1].join(20)
        assert done == ["bob"]
    threads[0].join(20)
    assert done == ["bob", "ada"]


def test_a_preview_of_a_rollback_locks_nothing(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "One.")
    monkeypatch.delattr(edits, "locked")
    assert rollback.preview(ada, What("entry", 3)).discarded == 1


def test_further_phrases_of_a_query_are_ignored() -> None:
    parsed = query.parse(" ".join(f'-"a b{n}" "c d{n}"' for n in range(100)))
    assert (len(parsed.without), len(parsed.phrases)) == (query.MOST, query.MOST)


def test_a_person_has_a_few_requests_at_once(
    db: None, client: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two are answered, and a few more wait."""
    person = enrolled("ann@acme.test")
    sign_in(client, person)
    settings.WEB_THREADS = 16
    monkeypatch.setattr(at_once, "MAX_WAIT", 0)
    for name, most in (("page", 4), ("page turn", 2)):
        for _ in range(most):
            assert at_once.begin({(name, person.pk): most})
        try:
            assert client.get("/admin/").status_code == 429
        finally:
            at_once.end([(name, person.pk)] * most)
        assert client.get("/admin/").status_code == 200


def test_an_export_of_a_list_counts_until_it_is_closed(
    ada: Agent, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "tea")
    person = enrolled("ann@acme.test")
    join(person, ada.tenant, Role.AUDITOR)
    sign_in(client, person)
    monkeypatch.setattr(at_once, "MAX_WAIT", 0)
    export = partial(client.get, "/admin/memory/memory/", {"agent": "acme/ada", "export": "csv"})
    for _ in range(2):
        one, other = export(), export()
        assert export().status_code == client.get("/admin/").status_code == 429
        assert len(list(one)) == 2, "it is sent"
        next(iter(other))
        other._iterator.close()  # the client goes away
    assert list(export())


def test_a_key_has_a_few_exports_at_once(house: House) -> None:
    remember(house.ada, "tea")
    caller, mine = Caller(house.ada_key), ("download", ("agent", house.ada.pk))
    for _ in range(3):
        assert b"tea" in caller.get("export").content, "each ends when it is sent"
    for _ in range(views.DOWNLOADS):
        assert at_once.begin({mine: views.DOWNLOADS})
    try:
        assert (caller.get("export").status, caller.get("memories").status) == (429, 200)
        assert Caller(house.bob_key).get("export").status == 200
    finally:
        at_once.end([mine] * views.DOWNLOADS)


def test_only_the_first_words_of_a_search_in_the_admin_count(ada: Agent, client: Client) -> None:
    person = enrolled("ann@acme.test")
    join(person, ada.tenant, Role.AUDITOR)
    sign_in(client, person)
    with CaptureQueriesContext(connection) as queries:
        assert client.get("/admin/memory/agent/", {"q": "a " * 2_000}).status_code == 200
    assert max(query["sql"].count("LIKE") for query in queries.captured_queries) == 2 * MOST_WORDS


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_expired_idempotency_keys_that_another_deletes_make_nobody_wait(ada: Agent, bob: Agent) -> None:
    expired = timezone.now() - 2 * KEPT
    for agent in (ada, bob):
        Creation.objects.create(agent=agent, key=b"k", fingerprint=b"f", numbers=[], at=expired)

    def store() -> None:
        with closing(connection), transaction.atomic():
            Kept(b"new", b"f").store(ada, [1])

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Creation.objects.select_for_update().get(agent=bob)
        pool.submit(store).result(20)
    assert set(Creation.objects.values_list("agent", "key")) == {(ada.pk, b"new"), (bob.pk, b"k")}


def test_a_text_of_copyright_signs_takes_no_longer_to_mask_than_another() -> None:
    """Each sign began a search in the next 300 characters."""
    seconds = [timeit(partial(neutral, sign * 20_000), number=1, timer=thread_time) for sign in "©xxx"]
    assert seconds[0] < 15 * max(seconds[1:])


def test_a_steward_gets_a_limited_number_of_letters_a_day(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_A_DAY", 3)
    lifecycle.change(ada, ME, steward="sue@acme.example")
    for number in range(3):
        lifecycle.change(ada, ME, model=f"openai/m{number}")
    seqs = [number for _, _, number in queueing.letters()]
    assert len(seqs) == 2, "one key does not fill the database"
    codes = [letters.send(ada.pk, seqs[0] + number, letters.BEFORE + (not number)) for number in range(4)]
    assert (codes, len(mail.outbox)) == (["sent", "sent", "too_many", "too_many"], 2)


def test_letters_about_the_steward_are_limited_for_all_agents_together(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each agent of a tenant sent 50 letters a day to any address."""
    monkeypatch.setattr(letters, "MOST_A_DAY", 5)
    cyd, _ = lifecycle.create("acme", "cyd", actor=ME, model="builtin/dedupe")
    for _ in range(4):
        for agent in (ada.pk, cyd.pk):
            for address in ("sue@acme.example", ""):
                lifecycle.change(Agent.objects.get(pk=agent), ME, steward=address)
    assert len(queueing.letters()) < 2 * letters.MOST_IMPORTANT + letters.MOST_A_DAY


@pytest.mark.parametrize("model", ["openai/now see\nme", "openai/visit evil.example", "openai/<b>"])
def test_a_model_is_a_name(ada: Agent, model: str) -> None:
    with pytest.raises(Invalid):
        lifecycle.change(ada, ME, model=model)


def test_an_agent_does_not_stay_taken_when_the_connection_is_lost(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "One.", "Two.")
    backlog.request_for(ada, ME)
    end, lost = scheduling.end, [OperationalError("lost"), OperationalError("lost")]

    def fail() -> None:
        monkeypatch.setattr(backlog, "wake_next", lambda: None)
        raise lost.pop()

    def end_later(turn: Waiting) -> None:
        if lost:
            raise lost.pop()
        end(turn)

    monkeypatch.setattr(backlog, "wake_next", fail)
    monkeypatch.setattr(scheduling, "end", end_later)
    monkeypatch.setattr("config.queue.time.sleep", lambda _: None)
    with pytest.raises(OperationalError):
        worker.refine_next(ada.pk)
    assert not lost
    assert not Waiting.objects.filter(taken_at__isnull=False).exists()


def test_a_locked_agent_does_not_wait_for_another_search(ada: Agent) -> None:
    remember(ada, "tea")
    with cache.reader(ada), ThreadPoolExecutor(1) as pool:
        row = fresh(ada)
        row.is_locked = True

        def search() -> None:
            with cache.reader(row):
                pass

        with pytest.raises(cache.Behind):
            pool.submit(search).result(10)


@pytest.mark.parametrize("text", ["word " * 1_990, "茶" * 9_900, "tags"])
def test_a_session_does_not_index_much_text_while_the_agent_is_locked(ada: Agent, text: str) -> None:
    """39 memories in Chinese, or 480 with many tags, took 2.5 seconds of a processor, under SQLite's lock."""
    remember(ada, "tea")
    with cache.reader(ada):
        pass
    tags = tuple(str(number).ljust(60, "x") for number in range(256 if text == "tags" else 0))
    remember(ada, *(f"{text}{number}" for number in range(10)), tags=tags)
    cache._edited.blocks.clear()
    with edits.locked(fresh(ada)) as row, pytest.raises(cache.Behind), cache.reader(row):
        pass


def test_very_large_arguments_of_a_model_are_not_kept() -> None:
    assert arguments_of({"ids_to_merge": [1, 2], "new_content": "x" * 10_000})
    assert arguments_of({str(number): 0 for number in range(50_000)}) is None


def test_slow_models_of_one_tenant_leave_a_process_free(db: None) -> None:
    now = timezone.now()
    for agent, tenant in ((1, 1), (2, 1), (3, 2)):
        values: Any = {"agent_id": agent, "tenant_id": tenant, "provider": "builtin", "since": now, "claim": agent}
        Waiting.objects.create(due_at=now, **values)
    taken = [scheduling.take() for _ in range(3)]
    assert [turn and turn.tenant_id for turn in taken] == [1, 2, None]


def test_a_long_series_of_marks_in_a_topics_name_is_cut() -> None:
    assert len(topics.folded("tea" + "\u0301\u0323" * 5_000)) < 100


def test_nobody_can_keep_a_steward_from_learning_about_a_new_one(
    ada: Agent, bob: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "MOST_A_DAY", 3)
    for agent in (ada, bob):
        lifecycle.change(agent, ME, steward="sue@acme.example")
    for _ in range(letters.MOST_IMPORTANT):
        claim(ada, keep=CLEARED)
    for number in range(6):
        lifecycle.change(fresh(bob), ME, model=f"openai/m{number}")
        lifecycle.change(fresh(ada), ME, model=f"openai/m{number}")
    lifecycle.change(fresh(ada), ME, steward="eve@acme.example")
    seq = fresh(ada).audit_seq
    assert [letters.send(ada.pk, seq, whose) for whose in (letters.BEFORE, letters.AFTER)] == ["sent", "sent"]
    assert letters.send(ada.pk, seq - 1, letters.BEFORE) == "too_many"


def test_many_changes_of_the_steward_send_no_links(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_STEWARDS", 2)
    lifecycle.change(ada, ME, steward="sue@acme.example")
    ask(ada)
    asked = []
    for name in ("x", "y", "z"):
        lifecycle.change(fresh(ada), ME, steward=f"{name}@acme.example")
        asked.append(sum(kind == LetterKind.LINK for kind, *_ in queueing.letters()))
    assert asked[-1] == asked[-2]


@pytest.mark.own_database
@pytest.mark.django_db(transaction=True)
def test_after_a_long_edit_on_sqlite_the_agent_waits_in_longer_steps(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its next edit, in another process, would begin before the edits of others. The edit is refused here."""
    steps: list[tuple[str, float | None]] = []
    edits._long_edits.clear()  # another test may have had a long edit of an agent with this number
    monkeypatch.setattr(edits, "LONG", 0.01)
    for agent, seconds in ((house.ada, 0.02), (house.bob, 0.0), (house.ada, 0.0)):
        with suppress(Invalid), edits.locked(agent):
            steps.append((agent.slug, getattr(connection, "step", None)))
            sleep(seconds)
            raise Invalid("keep", "is refused")
    edits._long_edits.clear()
    longer = edits.PAUSE if connection.vendor == "sqlite" else None
    assert steps == [("ada", None), ("bob", None), ("ada", longer)]


@pytest.mark.sqlite
@pytest.mark.own_database
@pytest.mark.django_db(transaction=True)
def test_the_first_check_of_a_long_trail_comes_before_the_lock(
    ada: Agent, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VAR_DIR = tmp_path
    monkeypatch.setattr(heads, "FEW", 0)
    assert tasks.write_heads() == "written"
    remember(ada, "A memory.")
    heads.proven_ends.clear()  # as in a new process
    is_locked, check = [], heads._continues
    monkeypatch.setattr(heads, "_continues", lambda *rest: is_locked.append(connection.in_atomic_block) or check(*rest))
    agent, stale = fresh(ada), fresh(ada)
    lifecycle.change(agent, ME, steward="sue@acme.test")
    heads.proven_ends.clear()
    with edits.locked(stale) as row:
        assert (stale.steward, row.steward) == ("", "sue@acme.test")  # the caller may compare its own row
    assert is_locked == [False, False]
    stale, end = fresh(ada), heads.proven_ends[ada.pk]
    authority.require(stale)
    lifecycle.change(fresh(ada), ME, steward="sam@acme.test")
    heads.proven_ends[ada.pk] = end  # another process wrote the last entry
    with edits.locked(stale):
        assert is_locked == [False] * 3


@pytest.mark.sqlite
@pytest.mark.own_database
@pytest.mark.django_db(transaction=True)
def test_no_writer_waits_for_a_reader_after_a_redaction(ada: Agent) -> None:
    remember(ada, "A memory.")
    request = requests.ask_redaction(ada, [1], PERSON, reason="x").number
    database = connection.settings_dict["NAME"]
    reader, writer = (sqlite3.connect(database, timeout=0, isolation_level=None) for _ in range(2))
    log, locked = Path(f"{database}-wal"), list[bool]()
    with closing(reader), closing(writer):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memory_memory").fetchall()
        redaction.redact(ada, request, ME)
        thread = Thread(target=lambda: (disk.empty_log(), connection.close()))
        thread.start()
        while thread.is_alive():
            try:
                writer.execute("BEGIN IMMEDIATE")
                writer.execute("ROLLBACK")
                locked.append(False)
            except sqlite3.OperationalError:
                locked.append(True)
            sleep(0.01)
        assert len(locked) > 20
        assert locked.count(True) < len(locked) / 5
        assert log.stat().st_size
        reader.execute("COMMIT")
        close_stale()
        assert log.stat().st_size == 0
