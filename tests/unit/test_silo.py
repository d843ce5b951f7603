"""Sealing and opening: only its own agent, at its own place, unaltered."""

from __future__ import annotations

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
from memory.silo import keys
from memory.silo import silo as silos
from memory.silo.silo import Silo, forget_unwrapped
from memory.writing import operations
from tests import steps
from tests.steps import ME, remember, row, says

SECRET = "marmalade"


@pytest.fixture
def silo(ada: Agent) -> Silo:
    return Silo.for_agent(ada)


def test_what_is_sealed_opens_again_and_shows_nothing(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a", "é", SECRET])
    opened = silo.open_sealed(7, sealed)
    assert (opened.content, opened.tags) == (SECRET, ("a", "é", SECRET))
    assert SECRET.encode() not in sealed
    assert silo.seal(7, SECRET, ["a", "é", SECRET]) != sealed


def refuses(silo: Silo, number: int, sealed: bytes) -> None:
    with pytest.raises(errors.SealBroken) as caught:
        silo.open_sealed(number, sealed)
    assert f"Record {number} " in str(caught.value)
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_seal_opens_at_its_place_alone(silo: Silo, bob: Agent) -> None:
    refuses(silo, 8, silo.seal(7, SECRET, ["a"]))
    refuses(Silo.for_agent(bob), 7, silo.seal(7, SECRET, ["a"]))


def test_even_with_the_same_data_key_the_agent_is_part_of_the_seal(silo: Silo, ada: Agent) -> None:
    twin = Silo(ada.pk + 1, keys.unwrap(ada.pk, bytes(ada.wrapped_key)))
    refuses(twin, 7, silo.seal(7, SECRET, []))


def test_neither_tags_as_content_nor_tags_of_another_memory_open(silo: Silo) -> None:
    content, tags = silo._parts(7, silo.seal(7, "x", [SECRET]))
    refuses(silo, 7, b"\x01" + len(tags).to_bytes(4, "big") + tags)
    _, of_another = silo._parts(8, silo.seal(8, SECRET, ["a"]))
    refuses(silo, 7, b"\x01" + len(content).to_bytes(4, "big") + content + of_another)


def test_a_seal_with_any_byte_altered_does_not_open(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a"])
    for place in range(len(sealed)):
        refuses(silo, 7, sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :])


def test_a_seal_cut_short_anywhere_does_not_open_as_it_was(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a"])
    end_of_content = 5 + int.from_bytes(sealed[1:5], "big")
    for length in range(len(sealed)):
        if length != end_of_content:  # the tags cut off whole: found by the trail, not by the seal
            refuses(silo, 7, sealed[:length])


def test_texts_of_entries_open_only_as_what_they_are(silo: Silo) -> None:
    sealed = silo.seal_text("note", 7, SECRET)
    assert silo.open_text("note", 7, sealed) == SECRET
    for field, number in (("note", 8), ("summary", 7), ("content", 7)):
        with pytest.raises(errors.SealBroken):
            silo.open_text(field, number, sealed)


def test_retagging_keeps_the_contents_seal(silo: Silo) -> None:
    sealed = silo.seal(7, SECRET, ["a"])
    again = silo.retag(7, sealed, ["b"])
    assert silo._parts(7, again)[0] == silo._parts(7, sealed)[0]
    assert silo.open_sealed(7, again).tags == ("b",)


def test_digests_are_equal_for_equal_text_of_one_agent_only(silo: Silo, bob: Agent) -> None:
    assert silo.digest(SECRET) == silo.digest(SECRET)
    assert silo.digest(SECRET) != silo.digest(SECRET + " ")
    assert silo.digest(SECRET) != Silo.for_agent(bob).digest(SECRET)


def test_contents_swapped_by_sql_do_not_open(ada: Agent) -> None:
    one, two = remember(ada, SECRET, "other")
    Memory.objects.filter(agent=ada, number=one).update(sealed=bytes(row(ada, two).sealed))
    with pytest.raises(errors.SealBroken, match=f"Record {one} of agent {ada.pk}"):
        says(ada, one)


# Data keys


def test_without_its_key_encryption_key_a_silo_names_the_key_that_is_missing(ada: Agent, settings: Settings) -> None:
    missing = keyring().silo[0].id
    settings.SILO_KEYS = new_key()
    forget_unwrapped()
    with pytest.raises(errors.SiloKeyMissing, match=missing):
        Silo.for_agent(ada)


def test_a_wrapped_key_of_another_agent_does_not_open(ada: Agent, bob: Agent) -> None:
    with pytest.raises(errors.SealBroken, match=f"agent {bob.pk}"):
        keys.unwrap(bob.pk, bytes(ada.wrapped_key))


def test_a_wrapped_key_with_any_byte_altered_does_not_open(ada: Agent) -> None:
    wrapped = bytes(ada.wrapped_key)
    for place in range(1, len(wrapped)):
        altered = wrapped[:place] + bytes([wrapped[place] ^ 1]) + wrapped[place + 1 :]
        with pytest.raises((errors.SealBroken, errors.SiloKeyMissing)):
            keys.unwrap(ada.pk, altered)


def turn(settings: Settings) -> None:
    old = ",".join(base64.b64encode(key.secret).decode() for key in keyring().silo)
    settings.SILO_KEYS = f"{new_key()},{old}"


def test_rotation_rewraps_and_keeps_what_is_sealed(ada: Agent, settings: Settings) -> None:
    remember(ada, SECRET)
    sealed = bytes(row(ada, 1).sealed)
    turn(settings)
    forget_unwrapped()
    assert says(ada, 1).content == SECRET, "before the rotation reaches it, its old wrap still opens"
    ada.wrapped_key = keys.rewrap(ada.pk, bytes(ada.wrapped_key))
    ada.save(update_fields=["wrapped_key"])
    assert keys.wrapping_key_id(ada.wrapped_key) == keyring().silo[0].id
    assert keys.rewrap(ada.pk, bytes(ada.wrapped_key)) == bytes(ada.wrapped_key)
    assert bytes(row(ada, 1).sealed) == sealed
    assert says(ada, 1).content == SECRET


def test_after_rotation_the_old_key_is_no_longer_needed(ada: Agent, settings: Settings) -> None:
    turn(settings)
    rewrapped = keys.rewrap(ada.pk, bytes(ada.wrapped_key))
    settings.SILO_KEYS = base64.b64encode(keyring().silo[0].secret).decode()
    forget_unwrapped()
    keys.unwrap(ada.pk, rewrapped)
    with pytest.raises(errors.SiloKeyMissing):
        keys.unwrap(ada.pk, bytes(ada.wrapped_key))


def test_the_least_recently_used_key_is_dropped_first(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silos, "CACHED", 2)
    forget_unwrapped()
    agents = {agent_id: Agent(pk=agent_id, wrapped_key=keys.new_wrapped_key(agent_id)) for agent_id in (1, 2, 3)}
    for agent_id in (1, 2, 1, 3):
        Silo.for_agent(agents[agent_id])
    assert [place[0] for place in silos._silos] == [1, 3]


def test_a_rotated_or_erased_key_is_missed_in_the_cache_at_once(ada: Agent, settings: Settings) -> None:
    before = Silo.for_agent(ada)
    assert Silo.for_agent(ada) is before
    turn(settings)
    rotated = Agent(pk=ada.pk, wrapped_key=keys.rewrap(ada.pk, bytes(ada.wrapped_key)))
    assert Silo.for_agent(rotated) is not before
    forget_unwrapped()
    assert Silo.for_agent(ada) is not before
    with pytest.raises(errors.SiloKeyMissing, match="erased"):
        Silo.for_agent(Agent(pk=ada.pk, wrapped_key=b""))


# No plaintext in what can be had without a silo


def shown(memory: Memory) -> list[str]:
    return [
        repr(vars(memory)),
        repr(memory),
        str(memory),
        repr(pickle.dumps(memory)),
        serializers.serialize("json", [memory]),
        serializers.serialize("python", [memory]).__repr__(),
        repr(model_to_dict(memory)),
    ]


@pytest.mark.parametrize("road", ["from the database", "from a verb"])
def test_a_memory_shows_nothing_of_what_it_says(ada: Agent, road: str) -> None:
    from memory.policy.validation import Draft

    edited = operations.remember(ada, [Draft(SECRET, tags=[SECRET])], ME)
    memory = edited.memory if road == "from a verb" else row(ada, 1)
    encoded = [SECRET, base64.b64encode(SECRET.encode()).decode().rstrip("=")]
    assert not [text for text in shown(memory) for form in encoded if form in text]


def test_an_entry_and_its_changes_show_nothing(ada: Agent) -> None:
    remember(ada, SECRET, tags=(SECRET,))
    operations.revise(ada, 1, ME, content="other", dropping=[SECRET])
    entry = steps.last_entry(ada)
    for instance in (entry, *steps.changes(ada, entry.seq)):
        assert SECRET not in repr(vars(instance)) + str(instance) + serializers.serialize("json", [instance])


def test_an_agent_shows_no_key(ada: Agent) -> None:
    raw = keys.unwrap(ada.pk, bytes(ada.wrapped_key))
    text = repr(vars(ada)) + repr(pickle.dumps(ada)) + serializers.serialize("json", [ada])
    assert base64.b64encode(raw).decode() not in text
    assert repr(raw)[2:-1] not in text


def test_a_silo_and_a_cipher_print_nothing(silo: Silo) -> None:
    assert SECRET not in repr(silo)
    assert not hasattr(silo, "__dict__")
    with pytest.raises(TypeError):
        json.dumps(silo)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pickle.dumps(silo)
