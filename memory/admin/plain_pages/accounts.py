"""Signing in, joining by invitation, and one's own account: pages that take a password and the code of a second factor.

A second factor that does not count yet is kept nowhere: its seed is made of a word that the page carries (`nonce`), so
that the same one is shown again after a mistake, and nothing is left of a page that was closed.
"""

from __future__ import annotations

import re
import secrets
from ipaddress import ip_address
from typing import Any

import qrcode
from django import forms
from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods
from qrcode.image.svg import SvgPathImage
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from config.errors import DomainError
from config.plain import plain
from memory.accounts import invitations, people
from memory.accounts.invitations import Opened
from memory.errors import Invalid, InvalidLink, NotAllowed
from memory.models import Authenticator, Person

NONCE = 32  # characters
_NONCE = re.compile(rf"[0-9a-fA-F]{{{NONCE}}}")
LONGEST_PASSWORD = 1_000  # characters
NOT_RIGHT = "The address, the password or the code is not right. Each is checked; a code is good for once."
WRONG = "The present password or the code is not right. A code is good for once: wait for the next one."


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
        if not _NONCE.fullmatch(nonce):
            raise ValidationError("This page is too old: open it again.")
        return nonce

    def shown_nonce(self) -> str:
        """The one to show the second factor of; another one, where the page came back with none that is right."""
        given = str(self.data.get("nonce", self.initial.get("nonce", "")))
        return given if _NONCE.fullmatch(given) else new_nonce()


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


# --- signing in: address, password and code, told apart in no answer


class SignIn(AuthenticationForm):  # type: ignore[misc]  # Unfold comes without types
    """Whoever has no second factor does not get in: `manage.py create_superuser` and an owner's invitation make one."""

    error_messages = {"invalid_login": NOT_RIGHT, "inactive": NOT_RIGHT}
    code = code_field("Code", "the six digits your authenticator app shows", UnfoldAdminTextInputWidget)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        person = self.get_user()
        if person is not None:
            person.otp_device = people.is_verified(person, cleaned.get("code", ""))
            if person.otp_device is None:  # counted as a wrong password is, or it would tell that this one is right
                told = {"username": cleaned.get("username", "")}
                user_login_failed.send(sender=__name__, credentials=told, request=self.request)
                raise ValidationError(NOT_RIGHT, code="invalid_login")
        return cleaned


def typed_address(request: HttpRequest | None, credentials: dict[str, Any] | None) -> str:
    """By which attempts are counted: however it is written, it is one person's."""
    given = (credentials or {}).get("username") or (request.POST.get("username", "") if request else "")
    return str(given).strip().casefold()[:254]


def client_address(request: HttpRequest) -> str:
    """From where somebody tries. Behind a proxy it is what the proxy itself has added last: what stands before that,
    anybody writes; and of the proxy's own address everybody would keep everybody else out."""
    is_behind: Any = settings.SECURE_PROXY_SSL_HEADER
    direct = str(request.META.get("REMOTE_ADDR", ""))
    added = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()
    try:
        return str(ip_address(added)) if is_behind and added else direct
    except ValueError:
        return direct


@plain
def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """What whoever tried too often is answered. Whose address it was is not repeated."""
    wait = settings.AXES_COOLOFF_TIME.seconds
    answer = render(request, "admin/locked.html", {"minutes": wait // 60}, status=429)
    answer["Retry-After"] = str(wait)
    return answer


# --- joining by invitation


class JoinForm(TwiceForm, NonceForm):
    field_order = ("name", "password", "again", "code", "nonce")
    name = forms.CharField(label="Your name", max_length=200, required=False, help_text="as others see you")
    code = code_field("Code", "the six digits the app shows now")


@require_http_methods(["GET", "HEAD", "POST"])
@plain
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Take a part by invitation: signed out, with a password and a second factor of one's own; or signed in already.

    Opening a link does nothing. Nothing is kept of somebody who does not come to the end.
    """
    opened = invitations.look(token)
    return _accept(request, token, opened) if opened.is_enrolled else _enrol(request, token, opened)


def _accept(request: HttpRequest, token: str, opened: Opened) -> HttpResponse:
    """For somebody who signs in already: the part is theirs once they say so, signed in."""
    person: Any = request.user
    is_them = person.is_authenticated and person.is_verified() and person == opened.person
    if request.method == "POST" and is_them:
        invitations.accept(token, person)
        return render(request, "joining/joined.html", {"opened": opened})
    told = {"opened": opened, "is_them": is_them, "person": person}
    return render(request, "joining/accept.html", told, status=403 if request.method == "POST" else 200)


def _enrol(request: HttpRequest, token: str, opened: Opened) -> HttpResponse:
    data = request.POST if request.method == "POST" else None
    form = JoinForm(data, initial={"nonce": new_nonce()})
    if data is not None and form.is_valid():
        given = {name: form.cleaned_data[name] for name in ("name", "password", "code", "nonce")}
        try:
            invitations.join(token, **given)
        except InvalidLink:
            raise
        except (DomainError, ValidationError) as refusal:
            tell(form, refusal)
        else:
            return render(request, "joining/joined.html", {"opened": opened})
    nonce = form.shown_nonce()
    told = {"opened": opened, "form": form, "nonce": nonce} | shown(invitations.candidate(token, nonce))
    return render(request, "joining/join.html", told)


# --- one's own account: each change asks for both factors, and ends what they opened


class PasswordForm(TwiceForm):
    field_order = ("present", "present_code", "password", "again")
    present = password_field("Present password", is_new=False)
    present_code = code_field("Code", "the six digits your authenticator app shows now")


class FactorForm(NonceForm):
    field_order = ("present", "present_code", "code", "nonce")
    present = password_field("Present password", is_new=False)
    present_code = code_field("Present code", "the six digits that what you use up to now shows")
    code = code_field("New code", "the six digits that the new entry shows")


@plain
def own(request: HttpRequest) -> HttpResponse:
    return render(request, "account/own.html", {"ends": people.would_end(Q(person_id=request.user.pk))})


@plain
def password(request: HttpRequest) -> HttpResponse:
    person: Any = request.user
    form = PasswordForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            _require_both_factors(person, form.cleaned_data)
            people.set_password(person, form.cleaned_data["password"])
        except (DomainError, ValidationError) as refusal:
            tell(form, refusal)
        else:
            return _changed(request, "Your password is changed.")
    return render(request, "account/password.html", {"form": form, "ends": people.would_end(Q(person_id=person.pk))})


@plain
def factor(request: HttpRequest) -> HttpResponse:
    """The new one counts, and the old one ends, when a code of each was right: not before."""
    person: Any = request.user
    form = FactorForm(request.POST if request.method == "POST" else None, initial={"nonce": new_nonce()})
    nonce = form.shown_nonce()
    new = people.candidate(person, f"replacing/{person.pk}/{nonce}")
    if form.is_valid():
        try:
            _replace(person, new, form.cleaned_data)
        except DomainError as refusal:
            tell(form, refusal)
        else:
            return _changed(request, "Your second factor is replaced.")
    told = {"form": form, "nonce": nonce, "ends": people.would_end(Q(person_id=person.pk))} | shown(new)
    return render(request, "account/factor.html", told)


def _replace(person: Person, new: Authenticator, given: dict[str, Any]) -> None:
    if not people.shows(new, given["code"]):  # first, or the present code would be used up for nothing
        raise Invalid("code", "is not what the new entry shows now")
    _require_both_factors(person, given)
    people.install(new, given["code"])


def _require_both_factors(person: Person, given: dict[str, Any]) -> None:
    """The code first: who has a session alone tries no passwords. Raises NotAllowed, and tells neither apart."""
    if people.is_verified(person, given["present_code"]) is None or not person.check_password(given["present"]):
        raise NotAllowed(WRONG)


def _changed(request: HttpRequest, told: str) -> HttpResponse:
    logout(request)
    return render(request, "account/changed.html", {"told": told})
