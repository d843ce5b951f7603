"""The pages that take a password and a code: sign-in, joining by invitation, and the person's own account.

A new second factor is stored only after a code confirms it. Its secret is derived from a nonce in the form. So the page
shows the same secret again if the person made a mistake in the form.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import qrcode
from axes.attempts import get_cool_off_threshold
from axes.models import AccessAttempt, AccessLog
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import ValidationError
from django.db.models import Q, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods
from qrcode.image.svg import SvgPathImage
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from config import at_once
from config.errors import DomainError
from config.plain import plain
from memory.accounts import invitations, people
from memory.accounts.invitations import Opened
from memory.admin.base.forms import add_error_to
from memory.errors import Invalid, InvalidLink, NotAllowed
from memory.mail import letters
from memory.models import Authenticator, Digest, Person

NONCE = 32  # characters
_NONCE = re.compile(rf"[0-9a-fA-F]{{{NONCE}}}")
MAX_PASSWORD = 1_000  # characters
SIGN_INS_AT_ONCE = 2  # of one address, in one process
MAX_WAIT = 5  # seconds that a sign-in waits for others
MOST_FAILURES = 100  # of one name, from all addresses, within AXES_COOLOFF_TIME
KNOWN = timedelta(days=90)  # after a sign-in, failures from other addresses do not count for its address
SIGN_IN_FAILED = "The email address, the password or the code is wrong. Each code works only once."
WRONG = "The present password or the code is wrong. Each code works only once: wait for the next one."


def code_field(label: str, help_text: str, widget: type[forms.TextInput] = forms.TextInput) -> forms.CharField:
    attrs = {"autocomplete": "one-time-code", "inputmode": "numeric", "pattern": "[0-9 ]*"}
    return forms.CharField(label=label, max_length=7, help_text=help_text, widget=widget(attrs))


def password_field(label: str, help_text: str = "", *, is_new: bool = True) -> forms.CharField:
    attrs = {"autocomplete": "new-password" if is_new else "current-password"}
    widget = forms.PasswordInput(attrs)  # never rendered with a value
    return forms.CharField(label=label, max_length=MAX_PASSWORD, strip=False, help_text=help_text, widget=widget)


class NewPasswordForm(forms.Form):
    """A form in which a person types a new password twice."""

    password = password_field("New password", "at least 12 characters, and not easy to guess")
    again = password_field("Repeat the new password")

    def clean_again(self) -> str:
        again = str(self.cleaned_data["again"])
        if "password" in self.cleaned_data and again != self.cleaned_data["password"]:
            raise ValidationError("The two passwords differ.")
        return again


class NonceForm(forms.Form):
    """A form with a hidden nonce. A new second factor is derived from this nonce."""

    nonce = forms.CharField(max_length=NONCE, min_length=NONCE, widget=forms.HiddenInput)

    def clean_nonce(self) -> str:
        nonce = str(self.cleaned_data["nonce"])
        if not _NONCE.fullmatch(nonce):
            raise ValidationError("This page has expired. Reload it.")
        return nonce

    def current_nonce(self) -> str:
        """Return the nonce of the form, or a new nonce if the form has no valid nonce."""
        nonce = str(self.data.get("nonce", ""))
        return nonce if _NONCE.fullmatch(nonce) else secrets.token_hex(NONCE // 2)


def is_done(form: forms.Form, act: Callable[[dict[str, Any]], object]) -> bool:
    """Call `act` with the values of a valid form. If this fails, add the error to the form. Raises InvalidLink."""
    if not form.is_valid():
        return False
    try:
        act(form.cleaned_data)
    except InvalidLink:
        raise
    except ValidationError as weak:  # Django's password validators raise it
        form.add_error("password", weak)
    except DomainError as refusal:
        add_error_to(form, refusal)
    return form.is_valid()


def setup_context(factor: Authenticator) -> dict[str, Any]:
    """Template context with the QR code and the key for an authenticator app."""
    image = qrcode.make(people.otpauth_url(factor), image_factory=SvgPathImage, border=2)
    key = people.secret_text(factor)
    return {
        "picture": SafeString(image.to_string().decode()),  # SVG without user input
        "key": " ".join(key[start : start + 4] for start in range(0, len(key), 4)),
    }


# --- sign-in: the error never says which of address, password and code is wrong


class SignInForm(AuthenticationForm):  # type: ignore[misc]  # Unfold comes without types
    """The sign-in form. Everybody needs a second factor. `manage.py create_superuser` or an invitation sets it up."""

    error_messages = {"invalid_login": SIGN_IN_FAILED, "inactive": SIGN_IN_FAILED}
    code = code_field("Code", "the six digits in your authenticator app", UnfoldAdminTextInputWidget)

    def clean(self) -> dict[str, Any]:
        with _few_at_once(self.request):
            cleaned: dict[str, Any] = super().clean()
        person = self.get_user()
        if person is not None:
            person.otp_device = people.is_verified(person, cleaned.get("code", ""))
            if person.otp_device is None:  # counts like a wrong password, so that nobody learns which one was right
                credentials = {"username": cleaned.get("username", "")}
                user_login_failed.send(sender=__name__, credentials=credentials, request=self.request)
                raise ValidationError(SIGN_IN_FAILED, code="invalid_login")
        return cleaned


@contextmanager
def _few_at_once(request: HttpRequest) -> Iterator[None]:
    """Let few sign-ins check a password at the same time, because a check takes much CPU time. Others wait, in at most
    half of the threads, so that many addresses cannot stop the service. Raises ValidationError."""
    sender = "sign-in", at_once.client_address(request)
    together: dict[object, int] = {sender: SIGN_INS_AT_ONCE, "sign-in": max(1, settings.WEB_THREADS // 2)}
    checks: dict[object, int] = {"password": max(1, settings.WEB_THREADS // 8)}
    begun: list[object] = []
    try:
        for limits, seconds in ((together, 0), (checks, MAX_WAIT)):
            if not at_once.begin(limits, seconds=seconds):
                raise ValidationError("Too many sign-ins at the same time. Try again.", code="busy")
            begun += limits
        yield
    finally:
        at_once.end(begun)


def typed_address(request: HttpRequest | None, credentials: dict[str, Any] | None) -> str:
    """The email address that the person typed, in lower case. Failed attempts are counted for this address."""
    address = (credentials or {}).get("username") or (request.POST.get("username", "") if request else "")
    return str(address).strip().casefold()[:254]


def counted_by(request: HttpRequest, credentials: dict[str, Any] | None) -> list[Any]:
    """What failed sign-ins are counted by: name and address. After MOST_FAILURES failures of a name from any addresses,
    the name alone counts, except for an address from which this person has signed in lately.

    One address cannot lock a person out for others, because it gets no more than AXES_FAILURE_LIMIT failures.
    """
    name = typed_address(request, credentials)
    recent = AccessAttempt.objects.filter(username=name, attempt_time__gte=get_cool_off_threshold(request))
    failures = recent.aggregate(total=Sum("failures_since_start"))["total"] or 0
    known = AccessLog.objects.filter(username=name, ip_address=at_once.client_address(request))
    is_known = known.filter(attempt_time__gte=timezone.now() - KNOWN).exists()
    return ["username"] if failures >= MOST_FAILURES and not is_known else [["username", "ip_address"]]


@plain
def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """The response after too many failed attempts. It does not contain the email address."""
    wait = settings.AXES_COOLOFF_TIME.seconds
    answer = render(request, "admin/locked.html", {"minutes": wait // 60}, status=429)
    answer["Retry-After"] = str(wait)
    return answer


# --- joining by invitation


class JoinForm(NewPasswordForm, NonceForm):
    field_order = ("name", "password", "again", "code", "nonce")
    name = forms.CharField(label="Your name", max_length=200, required=False, help_text="other people see it")
    code = code_field("Code", "the six digits that the app shows now")


@at_once.limited
@require_http_methods(["GET", "HEAD", "POST"])
@plain
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Accept an invitation. A new person sets a password and a second factor. A person with an account must sign in.

    A GET stores nothing. A POST stores nothing if a field is wrong.
    """
    opened = invitations.look(token)
    return _accept(request, token, opened) if opened.person else _enrol(request, token, opened)


def _accept(request: HttpRequest, token: str, opened: Opened) -> HttpResponse:
    """The page for a person who has an account. They confirm the membership after they have signed in."""
    person: Any = request.user
    is_them = person.is_authenticated and person.is_verified() and person == opened.person
    if request.method == "POST" and is_them:
        invitations.accept(token, person)
        return render(request, "joining/joined.html", {"opened": opened})
    context = {"opened": opened, "is_them": is_them, "person": person}
    return render(request, "joining/accept.html", context, status=403 if request.method == "POST" else 200)


def _enrol(request: HttpRequest, token: str, opened: Opened) -> HttpResponse:
    form = JoinForm(request.POST if request.method == "POST" else None)
    names = ("name", "password", "code", "nonce")
    if is_done(form, lambda fields: invitations.join(token, **{name: fields[name] for name in names})):
        return render(request, "joining/joined.html", {"opened": opened})
    nonce = form.current_nonce()
    context = {"opened": opened, "form": form, "nonce": nonce} | setup_context(invitations.candidate(token, nonce))
    return render(request, "joining/join.html", context)


# --- the person's own account: each change requires both factors, and ends sessions and grants


class PasswordForm(NewPasswordForm):
    field_order = ("present", "present_code", "password", "again")
    present = password_field("Present password", is_new=False)
    present_code = code_field("Code", "the six digits that your authenticator app shows now")


class FactorForm(NonceForm):
    field_order = ("present", "present_code", "code", "nonce")
    present = password_field("Present password", is_new=False)
    present_code = code_field("Present code", "the six digits that the app shows for your present entry")
    code = code_field("New code", "the six digits that the app shows for the new entry")


class DigestForm(forms.Form):
    digest = forms.ChoiceField(
        label="Mail about agents that need attention",
        choices=Digest.choices,
        required=False,
        help_text="It lists failed sessions, agents that stay over their budgets or grow too fast, suspended keys, and "
        "requests that wait for a decision. You get no mail if there is nothing to list.",
    )


@plain
def account(request: HttpRequest) -> HttpResponse:
    person: Any = request.user
    form = DigestForm(request.POST if request.method == "POST" else None, initial={"digest": person.digest})
    if is_done(form, lambda fields: people.set_digest(person, **fields)):
        messages.success(request, "Your choice is saved.")
        return redirect("admin:account")
    ends = people.ending_summary(Q(person_id=person.pk))
    return render(request, "account/account.html", {"form": form, "ends": ends, "is_printed": letters.are_printed()})


@plain
def password(request: HttpRequest) -> HttpResponse:
    person: Any = request.user
    form = PasswordForm(request.POST if request.method == "POST" else None)
    if is_done(form, partial(_set_password, person)):
        return _changed(request, "Password changed")
    context = {"form": form, "ends": people.ending_summary(Q(person_id=person.pk))}
    return render(request, "account/password.html", context)


@plain
def factor(request: HttpRequest) -> HttpResponse:
    """Replace the second factor. This requires a code of the old factor and a code of the new factor."""
    person: Any = request.user
    form = FactorForm(request.POST if request.method == "POST" else None)
    nonce = form.current_nonce()
    new = people.candidate(person, f"replacing/{person.pk}/{nonce}")
    if is_done(form, partial(_replace, person, new)):
        return _changed(request, "Second factor replaced")
    context = {"form": form, "nonce": nonce, "ends": people.ending_summary(Q(person_id=person.pk))} | setup_context(new)
    return render(request, "account/factor.html", context)


def _set_password(person: Person, fields: dict[str, Any]) -> None:
    _require_both_factors(person, fields)
    people.set_password(person, fields["password"])


def _replace(person: Person, new: Authenticator, fields: dict[str, Any]) -> None:
    if not people.is_present_code(new, fields["code"]):  # first, because checking the old code uses up the old code
        raise Invalid("code", "is not the current code that the app shows for the new entry")
    _require_both_factors(person, fields)
    people.install(new, fields["code"])


def _require_both_factors(person: Person, fields: dict[str, Any]) -> None:
    """Check the code and the password. The code is checked first. So a person who stole a session cannot
    guess the password.

    Raises NotAllowed. The message does not say whether the code or the password is wrong.
    """
    if people.is_verified(person, fields["present_code"]) is None or not person.check_password(fields["present"]):
        raise NotAllowed(WRONG)


def _changed(request: HttpRequest, message: str) -> HttpResponse:
    logout(request)
    return render(request, "account/changed.html", {"message": message})
