"""A steward's address has one meaning for people, for the service and for every mail server."""

from email.utils import parseaddr

import pytest
from django.core import mail
from hypothesis import example, given
from hypothesis import strategies as st

from audit.trail import Actor
from memory import errors
from memory.agents import lifecycle
from memory.consent import approval, requests
from memory.models import Agent
from tests.conftest import OPERATOR
from tests.steps import ME, fresh, refused, signed_update

ADMIN = Actor.person("admin@acme.test")
ODD = ['"stew"@acme.test', '"stew art"@acme.test', '"stew\\"@acme.test', '"a@acme.test,b"@evil.test']
ODD += ['"\x01"@acme.test', '"\x7f"@acme.test', '"<stew@acme.test>"@evil.test', "stew%acme.test@evil.test"]
ODD += ["acme.test!stew@evil.test", "`stew`@acme.test", "stew@[127.0.0.1]", "stew@[::1]", "stew@b\u00fccher.example"]
ODD += ["stew@\u0430cme.test", "stew@acme\u3002test", "st\u0435w@acme.test", "stew@acme.test\n"]
ODD += ["stew@acme.test\nBcc: eve@evil.test", "stew\u202e@acme.test", "stew\u200b@acme.test", "stew@acme.test\0"]
ODD += [" stew@acme.test", "Stew <stew@acme.test>", "stew@acme.test,eve@evil.test", "nobody", "@acme.test", "stew@"]
PLAIN = ["stew@acme.test", "Stew.Art+agents@Acme-2.co.test", "o'brien@acme.test", "s_t-9@xn--bcher-kva.example"]


def test_an_odd_address_is_refused_and_not_quoted(ada: Agent) -> None:
    for address in ODD:
        with pytest.raises(errors.Invalid) as caught:
            lifecycle.create("acme", "eve", model="builtin/dedupe", actor=OPERATOR, steward=address)
        assert (caught.value.field, Agent.objects.filter(slug="eve").exists()) == ("steward", False)
        assert "plain email address" in str(caught.value)
        assert address not in str(caught.value)
        with refused(ada, errors.Invalid):
            lifecycle.change(fresh(ada), ME, steward=address)
        with refused(ada, errors.Invalid):
            requests.propose(fresh(ada), ADMIN, steward=address)


def test_a_plain_address_is_accepted(ada: Agent) -> None:
    for address in (*PLAIN, "root@localhost"):
        lifecycle.change(ada, ME, steward=address)
        assert fresh(ada).steward == address
        number = requests.propose(fresh(ada), ADMIN, steward="tom@acme.test").number
        assert approval.approve(fresh(ada), number, Actor.steward(address)).state == "accepted"


ADDRESS = st.text(st.sampled_from("aB9.+-_'\"\\<>(),;: @%!`[]\n\r\t\0\x7f\u00e9\u0430\u202e\uff41\u3002"), max_size=14)


@given(local=ADDRESS, domain=ADDRESS)
@example(local='"a"', domain="b.test")
@example(local="a", domain="b.test")
def test_an_accepted_address_is_where_the_letter_goes(ada: Agent, local: str, domain: str) -> None:
    address = f"{local}@{domain}"
    try:
        lifecycle.check(ada, steward=address)
    except errors.Invalid:
        return
    assert address.isascii()
    assert address.isprintable()
    assert not set(address) & set('"\\<>(),;: %!`[]')
    assert parseaddr(address) == ("", address)
    assert mail.EmailMessage("about", "text", "from@x.test", [address]).message()["To"] == address


def test_an_odd_address_in_an_old_proposal_is_refused(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may be older than the rule."""
    with monkeypatch.context() as before:
        before.setattr(lifecycle, "check", lambda *_, **__: None)
        number = requests.propose(ada, ADMIN, steward='"stew"@acme.test').number
    with refused(ada, errors.Invalid):
        approval.approve(fresh(ada), number, ME)


@pytest.mark.parametrize("address", ["stew@b\u00fccher.example", '"stew"@acme.test'])
def test_with_an_odd_address_from_before_the_rule_other_settings_can_be_changed(ada: Agent, address: str) -> None:
    signed_update(Agent.objects.filter(pk=ada.pk), steward=address)
    lifecycle.change(fresh(ada), ADMIN, paused=True)
    assert fresh(ada).paused
    with refused(ada, errors.Invalid):
        lifecycle.change(fresh(ada), ME, steward='"next"@acme.test')
    lifecycle.change(fresh(ada), ME, steward="")
    assert fresh(ada).steward == ""
