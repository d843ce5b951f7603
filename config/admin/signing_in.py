"""Signing in: address, password and the code of a second factor, told apart in no answer."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from config.plain import plain
from memory import people

WRONG = "The address, the password or the code is not right. Each is checked; a code is good for once."


class SignIn(AuthenticationForm):  # type: ignore[misc]  # Unfold comes without types
    """Whoever has no second factor does not get in: `manage.py create_superuser` and an owner's invitation make one."""

    error_messages = {"invalid_login": WRONG, "inactive": WRONG}
    code = forms.CharField(
        label="Code",
        max_length=7,
        help_text="the six digits your authenticator app shows",
        widget=UnfoldAdminTextInputWidget(
            attrs={"autocomplete": "one-time-code", "inputmode": "numeric", "pattern": "[0-9 ]*"}
        ),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        person = self.get_user()
        if person is not None:
            person.otp_device = people.is_verified(person, cleaned.get("code", ""))
            if person.otp_device is None:
                raise ValidationError(WRONG, code="invalid_login")
        return cleaned


def typed_address(request: HttpRequest | None, credentials: dict[str, Any] | None) -> str:
    """By which attempts are counted: however it is written, it is one person's."""
    given = (credentials or {}).get("username") or (request.POST.get("username", "") if request else "")
    return str(given).strip().casefold()[:254]


@plain
def locked_out(request: HttpRequest, *_: Any) -> HttpResponse:
    """What whoever tried too often is answered. Whose address it was is not repeated."""
    wait = settings.AXES_COOLOFF_TIME.seconds
    answer = render(request, "admin/locked.html", {"minutes": wait // 60}, status=429)
    answer["Retry-After"] = str(wait)
    return answer
