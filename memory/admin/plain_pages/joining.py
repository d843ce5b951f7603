"""Taking a part by invitation: signed out, with a password and a second factor of one's own; or signed in already.

Opening a link does nothing. Nothing is kept of somebody who does not come to the end.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from config.errors import DomainError
from config.plain import plain
from memory.accounts import invitations
from memory.accounts.invitations import Opened
from memory.admin.plain_pages.enrolling import NonceForm, TwiceForm, code_field, new_nonce, shown, tell
from memory.errors import LinkBroken


class JoinForm(TwiceForm, NonceForm):
    field_order = ("name", "password", "again", "code", "nonce")
    name = forms.CharField(label="Your name", max_length=200, required=False, help_text="as others see you")
    code = code_field("Code", "the six digits the app shows now")


@require_http_methods(["GET", "HEAD", "POST"])
@plain
def join(request: HttpRequest, token: str) -> HttpResponse:
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
        except LinkBroken:
            raise
        except (DomainError, ValidationError) as refusal:
            tell(form, refusal)
        else:
            return render(request, "joining/joined.html", {"opened": opened})
    nonce = form.shown_nonce()
    told = {"opened": opened, "form": form, "nonce": nonce} | shown(invitations.candidate(token, nonce))
    return render(request, "joining/join.html", told)
