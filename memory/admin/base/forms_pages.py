"""Pages with a form, in the theme. Opening one changes nothing: it POSTs to itself. The form says what the page says.

Unfold's buttons are links, opened by GET. Each leads to such a page. A secret that is shown once is shown by the answer
to that POST, on a page that no browser keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from unfold import widgets

from config.errors import DomainError
from config.plain import plain
from memory.errors import Invalid
from memory.models import Tenant

_CLASSES: dict[type[forms.Widget], Any] = {
    forms.Select: widgets.UnfoldAdminSelectWidget,
    forms.CheckboxInput: widgets.UnfoldBooleanWidget,
    forms.Textarea: widgets.UnfoldAdminTextareaWidget,
}


class AdminForm(forms.Form):
    """A form with the CSS classes of the theme. `title` (of `row`), `button` and `lead` are those of its page."""

    title: ClassVar[str] = ""
    button: ClassVar[str] = "Save"
    lead: ClassVar[Sequence[str]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for field in self.fields.values():
            themed = _CLASSES.get(type(field.widget), widgets.UnfoldAdminTextInputWidget)
            field.widget.attrs.setdefault("class", themed().attrs["class"])
            if themed is widgets.UnfoldAdminSelectWidget:
                field.widget.template_name = themed.template_name  # with an arrow


class OfTenantForm(AdminForm):
    """About one of these tenants."""

    tenant: forms.ModelChoiceField[Tenant] = forms.ModelChoiceField(Tenant.objects.none())

    def __init__(self, *args: Any, tenants: QuerySet[Tenant], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants.order_by("slug")  # type: ignore[attr-defined]


def form_page(
    page: Any,
    request: HttpRequest,
    form_class: type[AdminForm],
    save: Callable[[dict[str, Any]], HttpResponse | str],
    *,
    row: Any = None,
    lead: Sequence[str] | None = None,
    warning: str = "",
    **options: Any,
) -> HttpResponse:
    """The page of a list, or of a row. When a valid form is POSTed, `save` returns a message or its own answer."""
    back = page.address_of(row) if row else page.list_address
    form = form_class(request.POST if request.method == "POST" else None, **options)
    if request.method == "POST" and form.is_valid():
        try:
            done = save(form.cleaned_data)
        except DomainError as refusal:
            add_refusal(form, refusal)
        else:
            if not isinstance(done, str):
                return done
            messages.success(request, done)
            return redirect(back)
    context = page.admin_site.each_context(request) | {
        "title": form.title.format(row=row),
        "lines": form.lead if lead is None else lead,
        "warning": warning,
        "form": form,
        "back": back,
        "opts": page.opts,  # the theme makes the way back to the list of it
    }
    return TemplateResponse(request, "admin/form.html", context)


def add_refusal(form: forms.Form, refusal: DomainError) -> None:
    """Show a refusal at its field, if the form has that field."""
    if isinstance(refusal, Invalid) and refusal.field in form.fields:
        problem = refusal.problem.rstrip(".")
        form.add_error(refusal.field, f"{problem[:1].upper()}{problem[1:]}.")
    else:
        form.add_error(None, str(refusal))


@plain
def shown_once(request: HttpRequest, *, title: str, secret: str, lines: Sequence[str], back: str) -> HttpResponse:
    """A page with a secret that is stored nowhere: no message, session or history holds it."""
    return render(request, "shown_once.html", {"title": title, "secret": secret, "lines": lines, "back": back})
