"""Sheets: a theme's page with a form, or a confirmation, that does one thing and says what. Opening one does nothing.

Unfold offers its buttons as links, which are opened by GET: each leads to such a page, and the page POSTs. What may be
shown once only is shown by the answer to that POST, on a page that nobody keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from unfold.admin import ModelAdmin
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from config.errors import DomainError
from config.plain import plain
from memory.errors import Invalid

View = Callable[..., HttpResponse]


@dataclass(frozen=True, slots=True)
class Sheet:
    """What a page says it will do, and what stands in the way of that. `back` is for whoever thinks better of it."""

    title: str
    button: str
    back: str
    said: Sequence[str] = ()
    is_grave: bool = False
    warned: str = ""


class SheetForm(forms.Form):
    """A form that looks like the theme."""

    required_css_class = "required"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for field in self.fields.values():
            look = _LOOKS.get(type(field.widget), UnfoldAdminTextInputWidget)
            field.widget.attrs["class"] = look().attrs["class"]


_LOOKS: dict[type[forms.Widget], Any] = {
    forms.Select: UnfoldAdminSelectWidget,
    forms.CheckboxInput: UnfoldBooleanWidget,
}


def offered(
    page: ModelAdmin,
    request: HttpRequest,
    sheet: Sheet,
    do: Callable[[dict[str, Any]], HttpResponse],
    form_class: Callable[..., forms.Form] = SheetForm,
    **options: Any,
) -> HttpResponse:
    """The page; when it is POSTed and its form is right, what `do` answers. A refusal is told at its field."""
    form = form_class(request.POST if request.method == "POST" else None, **options)
    if request.method == "POST" and form.is_valid():
        try:
            return do(form.cleaned_data)
        except DomainError as refusal:
            tell(form, refusal)
    context = page.admin_site.each_context(request) | {"title": sheet.title, "sheet": sheet, "form": form}
    return TemplateResponse(request, "admin/sheet.html", context)


def tell(form: forms.Form, refusal: DomainError) -> None:
    """Put a refusal where it belongs."""
    is_of_field = isinstance(refusal, Invalid) and refusal.field in form.fields
    if is_of_field and isinstance(refusal, Invalid):
        problem = refusal.problem.rstrip(".")
        form.add_error(refusal.field, f"{problem[:1].upper()}{problem[1:]}.")
    else:
        form.add_error(None, str(refusal))


def about(request: HttpRequest) -> dict[str, str]:
    """What a form begins with: the tenant it was opened about, where it was opened from a tenant's page."""
    return {name: request.GET[name] for name in ("tenant",) if name in request.GET}


def done(request: HttpRequest, told: str, back: str) -> HttpResponse:
    messages.success(request, told)
    return redirect(back)


def shown_once(request: HttpRequest, *, title: str, secret: str, said: Sequence[str], back: str) -> HttpResponse:
    """A page with what is kept nowhere: no message, session or history holds it, and no browser keeps the page."""
    return _shown_once(request, {"title": title, "secret": secret, "said": said, "back": back})


@plain
def _shown_once(request: HttpRequest, told: dict[str, Any]) -> HttpResponse:
    return render(request, "shown_once.html", told)


def row_or_404(page: ModelAdmin, request: HttpRequest, object_id: str) -> Any:
    """A row that whoever asks may see on this page. Another tenant's is as one that is not there."""
    row: Model | None = page.get_object(request, unquote(object_id))
    if row is None:
        raise Http404
    return row


def button(title: str, path: str, *, to: str = "") -> Callable[[View], View]:
    """A button of a list or row, leading to a page. `to` names the permission of those who are shown it; the page
    looks for itself who comes."""

    def marked(view: View) -> View:
        made: Any = action(description=title, url_path=path)(view)
        if to:
            made.allowed_permissions = [to]
        marked_view: View = made
        return marked_view

    return marked
