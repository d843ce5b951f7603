"""Setting a password and a second factor, on plain pages: what joining and one's own account have in common.

A second factor that does not count yet is kept nowhere: its seed is made of a word that the page carries (`nonce`), so
that the same one is shown again after a mistake, and nothing is left of a page that was closed.
"""

from __future__ import annotations

import secrets
import string
from typing import Any

import qrcode
from django import forms
from django.core.exceptions import ValidationError
from django.utils.safestring import SafeString
from qrcode.image.svg import SvgPathImage

from config.errors import DomainError
from memory.accounts import people
from memory.errors import Invalid
from memory.models import Authenticator

NONCE = 32  # characters
LONGEST_PASSWORD = 1_000  # characters
_HEX = set(string.hexdigits)


def code_field(label: str, told: str, widget: type[forms.TextInput] = forms.TextInput) -> forms.CharField:
    attrs = {"autocomplete": "one-time-code", "inputmode": "numeric", "pattern": "[0-9 ]*"}
    return forms.CharField(label=label, max_length=7, help_text=told, widget=widget(attrs))


def password_field(label: str, told: str = "", *, is_new: bool = True) -> forms.CharField:
    attrs = {"autocomplete": "new-password" if is_new else "current-password"}
    widget = forms.PasswordInput(attrs)  # which never shows again what was typed
    return forms.CharField(label=label, max_length=LONGEST_PASSWORD, strip=False, help_text=told, widget=widget)


class TwiceForm(forms.Form):
    """A new password, typed twice."""

    password = password_field("New password", "12 characters or more, and none that is easily guessed")
    again = password_field("New password, once more")

    def clean_again(self) -> str:
        again = str(self.cleaned_data["again"])
        if "password" in self.cleaned_data and again != self.cleaned_data["password"]:
            raise ValidationError("The two are not the same.")
        return again


class NonceForm(forms.Form):
    """Carries what a second factor is made of until it counts."""

    nonce = forms.CharField(max_length=NONCE, min_length=NONCE, widget=forms.HiddenInput)

    def clean_nonce(self) -> str:
        nonce = str(self.cleaned_data["nonce"])
        if not set(nonce) <= _HEX:
            raise ValidationError("This page is too old: open it again.")
        return nonce

    def shown_nonce(self) -> str:
        """The one to show the second factor of; another one, where the page came back with none that is right."""
        given = str(self.data.get("nonce", self.initial.get("nonce", "")))
        return given if len(given) == NONCE and set(given) <= _HEX else new_nonce()


def new_nonce() -> str:
    return secrets.token_hex(NONCE // 2)


def tell(form: forms.Form, refusal: DomainError | ValidationError) -> None:
    """Show a refusal at its field, as a sentence. The password's own is Django's."""
    if isinstance(refusal, ValidationError):
        form.add_error("password", refusal)
    elif isinstance(refusal, Invalid) and refusal.field in form.fields:
        form.add_error(refusal.field, f"It {refusal.problem}.")
    else:
        form.add_error(None, str(refusal))


def shown(factor: Authenticator) -> dict[str, Any]:
    """What an authenticator app is given: a picture, and the same as text."""
    drawn = qrcode.make(people.address(factor), image_factory=SvgPathImage, border=2)
    written = people.written(factor)
    return {
        "picture": SafeString(drawn.to_string().decode()),  # of squares alone
        "key": " ".join(written[place : place + 4] for place in range(0, len(written), 4)),
    }
