"""SQL adds changes to entries of the trail. The triggers allow it, but these changes decide nothing."""

import json
from typing import Any

import pytest

from audit import verify
from audit.models import AuditEntry, Change, Operation
from memory.consent import redaction
from memory.errors import Invalid
from memory.models import Agent, DueReason, ImportJob, Memory, StoreVersion
from memory.search import stores as reading
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.transfer import import_jobs
from memory.writing import stores
from refinement import session as sessions
from refinement.models import Outcome
from tests import queueing
from tests.access_requests import granted, read
from tests.api.calling import Caller
from tests.api.test_import_jobs import send
from tests.conftest import House
from tests.steps import ME, PERSON, fresh, last_entry, problems, remember, row
from tests.unit.test_stores import new

pytestmark = pytest.mark.database


def add(agent: Agent, seq: int, number: int) -> None:
    """Add a change to an entry: this memory was made."""
    change = Change.objects.filter(agent_id=agent.pk, number=number).latest("seq")
    values: Any = {"before": None, "before_digest": None, "after": change.after, "after_digest": change.after_digest}
    Change.objects.create(agent_id=agent.pk, seq=seq, number=number, **values)
    assert seq in {problem.seq for problem in problems(agent)}


def test_a_change_added_to_a_read_keeps_no_memory_out_of_a_rollback(ada: Agent) -> None:
    remember(ada, "tea")
    start = last_entry(ada).seq
    remember(ada, "bread")
    read(ada, granted(ada), 1)
    add(ada, last_entry(ada).seq, 2)
    rollback.roll_back(fresh(ada), What("since_entry", start), PERSON)
    assert row(ada, 2).discarded_at is not None
    assert [each.source for each in Memory.objects.of(ada).kept().filter(number__gt=1)] == ["system"]


def test_a_change_added_to_a_version_does_not_hide_that_a_model_read_it(ada: Agent) -> None:
    store = new(ada, a="quince")
    first = row(ada, 1).version
    stores.create(fresh(ada), stores.About("other"), ME)
    between = last_entry(ada).seq
    session = sessions.open_session(fresh(ada), trigger=DueReason.MANUAL)
    sessions.end(fresh(ada), session, Outcome.COMPLETED)
    stores.revise(fresh(ada), store, 1, ME, content="milk")
    add(ada, between, 1)
    with pytest.raises(Invalid, match="was read by a model"):
        redaction.redact_version(fresh(ada), StoreVersion.objects.get(number=1, seq=first), ME)


def test_a_change_added_to_an_import_gives_no_memory_another_successor(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = house.ada
    remember(ada, "old tea")
    rows: list[Any] = [{"id": n, "content": f"tea {n}", "layer": "beneath"} for n in range(1, 601)]
    rows += [{"id": 601, "content": "much tea", "sources": [1]}]
    link = import_jobs._link

    def late(*call: Any) -> None:
        add(ada, AuditEntry.objects.filter(agent_id=ada.pk, operation=Operation.IMPORTED).earliest("seq").seq, 1)
        link(*call)

    monkeypatch.setattr(import_jobs, "_link", late)
    send(Caller(house.ada_key), b"".join(json.dumps(each).encode() + b"\n" for each in rows))
    queueing.work()
    assert not Memory.objects.of(ada).filter(superseded_by__isnull=False).exists()
    assert "its lineage" in str(ImportJob.objects.get().error)


def test_an_altered_entry_is_found_without_a_search_in_the_whole_trail(
    ada: Agent, django_assert_max_num_queries: Any
) -> None:
    for each in range(20):
        remember(ada, f"tea {each}")
    add(ada, 5, 1)
    with django_assert_max_num_queries(10):
        assert verify.intact_changes(ada.pk, 5) == []
    assert len(verify.intact_changes(ada.pk, 4, 6)) == 2


def test_a_redaction_during_a_check_does_not_make_an_entry_look_altered(
    ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(ada, "tea")
    checks = iter([[]])
    intact = verify.intact
    monkeypatch.setattr(verify, "intact", lambda *call: next(checks, None) or intact(*call))
    assert len(verify.intact_changes(ada.pk, last_entry(ada).seq)) == 1


def test_the_version_of_a_memory_is_not_that_of_a_later_writer(ada: Agent) -> None:
    store = new(ada, a="quince")
    mine = stores.revise(fresh(ada), store, 1, ME, content="milk")
    stores.revise(fresh(ada), store, 1, ME, content="tea")
    [item] = reading.items(fresh(ada), [mine], is_full=True)
    assert (item.content, item.version) == ("milk", mine.version)
