"""Signing in: address, password and the code of a second factor, told apart in no answer."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.contrib.auth.signals import user_login_failed
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from unfold.forms import AuthenticationForm
from unfold.widgets import UnfoldAdminTextInputWidget

from config.plain import plain
from memory.accounts import people
from memory.admin.plain_pages.accounts import code_field

WRONG = "The address, the password or the code is not right. Each is checked; a code is good for once."


class SignIn(AuthenticationForm):  # type: ignore[misc]  # Unfold comes without types
    """Whoever has no second factor does not get in: `manage.py create_superuser` and an owner's invitation make one."""

    error_messages = {"invalid_login": WRONG, "inactive": WRONG}
    code = code_field("Code", "the six digits your authenticator app shows", UnfoldAdminTextInputWidget)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean()
        person = self.get_user()
        if person is not None:
            person.otp_device = people.is_verified(person, cleaned.get("code", ""))
            if person.otp_device is None:  # counted as a wrong password is, or it would tell that this one is right
                told = {"username": cleaned.get("username", "")}
                user_login_failed.send(sender=__name__, credentials=told, request=self.request)
                raise ValidationError(WRONG, code="invalid_login")
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
