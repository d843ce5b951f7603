"""Sealing and opening. Only its own agent opens a seal, at its own place, unaltered."""

import base64
import json
import pickle

import pytest
from django.core import serializers
from django.forms.models import model_to_dict
from pytest_django import Settings

from config.keyfiles import new_key
from config.keyring import keyring
from memory import errors
from memory.models import Agent, Memory
from memory.policy.validation import Draft
from memory.silo import keys
from memory.silo import silo as silos
from memory.silo.silo import Silo, forget_unwrapped
from memory.writing import operations
from tests import steps
from tests.steps import ME, remember, row, says, signed_update

SECRET = "marmalade"


@pytest.fixture
def silo(ada: Agent) -> Silo:
    return Silo.for_agent(ada)


def check_refused(silo: Silo, number: int, sealed: bytes) -> None:
    with pytest.raises(errors.SealBroken) as caught:
        silo.open_sealed(number, sealed)
    assert f"Record {number} " in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def altered(value: bytes, place: int) -> bytes:
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]


def test_a_seal_opens_and_shows_nothing(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a", "é", SECRET])
    opened = silo.open_sealed(7, sealed)
    assert (opened.content, opened.tags) == (SECRET, ("a", "é", SECRET))
    assert SECRET.encode() not in sealed
    assert silo.seal(7, SECRET, ["a", "é", SECRET]) != sealed


def test_a_seal_opens_only_at_its_number_and_for_its_agent(silo: Silo, ada: Agent, bob: Agent) -> None:
    sealed = silo.seal(7, SECRET, ["a"])
    check_refused(silo, 8, sealed)
    check_refused(Silo.for_agent(bob), 7, sealed)
    check_refused(Silo(ada.pk + 1, keys.unwrap(ada.pk, bytes(ada.wrapped_key))), 7, sealed)  # with the same data key


def test_tags_do_not_open_as_content_or_for_another_memory(silo: Silo) -> None:
    content, tags = silo._parts(7, silo.seal(7, "x", [SECRET]))
    check_refused(silo, 7, b"\x01" + len(tags).to_bytes(4, "big") + tags)
    _, other_tags = silo._parts(8, silo.seal(8, SECRET, ["a"]))
    check_refused(silo, 7, b"\x01" + len(content).to_bytes(4, "big") + content + other_tags)


def test_an_altered_or_truncated_seal_does_not_open(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a"])
    end_of_content = 5 + int.from_bytes(sealed[1:5], "big")
    for place in range(len(sealed)):
        check_refused(silo, 7, altered(sealed, place))
        if place != end_of_content:  # the trail finds missing tags, not the seal
            check_refused(silo, 7, sealed[:place])


def test_a_sealed_text_opens_only_in_its_field_and_entry(silo: Silo) -> None:
    sealed = silo.seal_text("note", 7, SECRET)
    assert silo.open_text("note", 7, sealed) == SECRET
    for field, number in (("note", 8), ("summary", 7), ("content", 7)):
        with pytest.raises(errors.SealBroken):
            silo.open_text(field, number, sealed)


def test_new_tags_keep_the_seal_of_the_content(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a"])
    again = silo.retag(7, sealed, ["b"])
    assert silo._parts(7, again)[0] == silo._parts(7, sealed)[0]
    assert silo.open_sealed(7, again).tags == ("b",)


def test_digests_are_equal_only_for_equal_texts_of_one_agent(silo: Silo, bob: Agent) -> None:
    assert silo.digest(SECRET) == silo.digest(SECRET)
    others = [silo.digest(SECRET + " "), Silo.for_agent(bob).digest(SECRET), silo.digest(SECRET, "idempotency")]
    file, memory = silo.digest_of_file(SECRET.encode()), silo.digest("file\0" + SECRET)
    assert len({silo.digest(SECRET), *others, file, memory}) == 6


def test_contents_swapped_by_sql_do_not_open(ada: Agent) -> None:
    one, two = remember(ada, SECRET, "other")
    Memory.objects.filter(agent=ada, number=one).update(sealed=bytes(row(ada, two).sealed))
    with pytest.raises(errors.SealBroken, match=f"Record {one} of agent {ada.pk}"):
        says(ada, one)


def rotate(settings: Settings) -> None:
    old = ",".join(base64.b64encode(key.secret).decode() for key in keyring().silo)
    settings.SILO_KEYS = f"{new_key()},{old}"


def test_a_missing_key_encryption_key_is_named(ada: Agent, settings: Settings) -> None:
    missing = keyring().silo[0].id
    settings.SILO_KEYS = new_key()
    forget_unwrapped()
    with pytest.raises(errors.SiloKeyMissing, match=missing):
        Silo.for_agent(ada)


def test_a_wrapped_key_that_is_altered_or_another_agents_does_not_open(ada: Agent, bob: Agent) -> None:
    wrapped = bytes(ada.wrapped_key)
    with pytest.raises(errors.SealBroken, match=f"agent {bob.pk}"):
        keys.unwrap(bob.pk, wrapped)
    for place in range(1, len(wrapped)):
        with pytest.raises((errors.SealBroken, errors.SiloKeyMissing)):
            keys.unwrap(ada.pk, altered(wrapped, place))


def test_a_rotation_rewraps_the_key_and_keeps_the_seals(ada: Agent, settings: Settings) -> None:
    """After it, the old key is not needed."""
    remember(ada, SECRET)
    sealed, old = bytes(row(ada, 1).sealed), bytes(ada.wrapped_key)
    rotate(settings)
    forget_unwrapped()
    assert says(ada, 1).content == SECRET, "the old key still opens"
    signed_update(Agent.objects.filter(pk=ada.pk), wrapped_key=keys.rewrap(ada.pk, old))
    ada.refresh_from_db()
    assert keys.wrapping_key_id(ada.wrapped_key) == keyring().silo[0].id
    assert keys.rewrap(ada.pk, bytes(ada.wrapped_key)) == bytes(ada.wrapped_key)
    settings.SILO_KEYS = base64.b64encode(keyring().silo[0].secret).decode()
    forget_unwrapped()
    assert (bytes(row(ada, 1).sealed), says(ada, 1).content) == (sealed, SECRET)
    with pytest.raises(errors.SiloKeyMissing):
        keys.unwrap(ada.pk, old)


def with_key(agent_id: int, wrapped_key: bytes) -> Agent:
    agent = Agent(pk=agent_id, wrapped_key=wrapped_key)
    agent.is_proven = True
    return agent


def test_the_least_recently_used_key_leaves_the_cache_first(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silos, "CACHED", 2)
    forget_unwrapped()
    for agent_id in (1, 2, 1, 3):
        Silo.for_agent(with_key(agent_id, keys.new_wrapped_key(agent_id)))
    assert [place[0] for place in silos._silos] == [1, 3]


def test_the_cache_has_no_rotated_or_erased_key(ada: Agent, settings: Settings) -> None:
    before = Silo.for_agent(ada)
    assert Silo.for_agent(ada) is before
    rotate(settings)
    rotated = with_key(ada.pk, keys.rewrap(ada.pk, bytes(ada.wrapped_key)))
    assert Silo.for_agent(rotated) is not before
    forget_unwrapped()
    assert Silo.for_agent(ada) is not before
    with pytest.raises(errors.SiloKeyMissing, match="erased"):
        Silo.for_agent(with_key(ada.pk, b""))


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_memory_shows_no_content(ada: Agent, is_stored: bool) -> None:
    edited = operations.remember(ada, [Draft(SECRET, tags=[SECRET])], ME)
    memory = row(ada, 1) if is_stored else edited.memory
    texts = [repr(vars(memory)), repr(memory), str(memory), repr(pickle.dumps(memory)), repr(model_to_dict(memory))]
    texts += [str(serializers.serialize(form, [memory])) for form in ("json", "python")]
    for encoded in (SECRET, base64.b64encode(SECRET.encode()).decode().rstrip("=")):
        assert not [text for text in texts if encoded in text]


def test_an_entry_and_its_changes_show_no_content(ada: Agent) -> None:
    remember(ada, SECRET, tags=(SECRET,))
    operations.demote(ada, [1], ME, reason=SECRET)
    entry = steps.last_entry(ada)
    for instance in (entry, *steps.changes(ada, entry.seq)):
        assert SECRET not in repr(vars(instance)) + str(instance) + serializers.serialize("json", [instance])


def test_an_agent_and_its_silo_show_no_key(ada: Agent, silo: Silo) -> None:
    raw = keys.unwrap(ada.pk, bytes(ada.wrapped_key))
    text = repr(vars(ada)) + repr(pickle.dumps(ada)) + serializers.serialize("json", [ada]) + repr(silo)
    assert base64.b64encode(raw).decode() not in text
    assert repr(raw)[2:-1] not in text
    assert not hasattr(silo, "__dict__")
    for dump in (json.dumps, pickle.dumps):
        with pytest.raises(TypeError):
            dump(silo)  # type: ignore[operator]
