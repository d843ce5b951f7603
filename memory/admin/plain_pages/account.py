"""One's own account: another password, another second factor. Each asks for both factors, and ends what they opened."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import logout
from django.core.exceptions import ValidationError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from config.errors import DomainError
from config.plain import plain
from memory.accounts import people
from memory.admin.plain_pages.enrolling import NonceForm, TwiceForm, code_field, new_nonce, password_field, shown, tell
from memory.errors import Invalid, NotAllowed
from memory.models import Authenticator, Person

WRONG = "The present password or the code is not right. A code is good for once: wait for the next one."


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
