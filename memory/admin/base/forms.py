"""Pages with a form.

Unfold's buttons are links, so they use GET. Each link leads to a page with a form, and the POST of this form makes the
change. A new secret is shown once, in the response to that POST, on a page that the browser does not cache.
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
    """A form with the CSS classes of the theme. `title` may contain `{row}`. `lead` has the paragraphs above the
    form. Fields in no group come first."""

    title: ClassVar[str] = ""
    crumb: ClassVar[str] = ""  # the last breadcrumb, after the row
    button: ClassVar[str] = "Save"
    lead: ClassVar[Sequence[str]] = ()
    groups: ClassVar[dict[str, Sequence[str]]] = {}  # fields by heading
    advanced: ClassVar[Sequence[str]] = ()  # fields that the page folds under "More settings"
    # Fields that the script shown_fields.js hides, unless another field has a value: name, other field, value.
    shown_if: ClassVar[Sequence[tuple[str, str, str]]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for field in self.fields.values():
            themed = _CLASSES.get(type(field.widget), widgets.UnfoldAdminTextInputWidget)
            field.widget.attrs.setdefault("class", themed().attrs["class"])
            if themed is widgets.UnfoldAdminSelectWidget:
                field.widget.template_name = themed.template_name  # this template shows an arrow
        for name, other, value in self.shown_if:
            self.fields[name].widget.attrs |= {"data-shown-if": other, "data-shown-value": value}

    def main_groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        return self._groups(is_advanced=False)

    def more_groups(self) -> list[tuple[str, list[forms.BoundField]]]:
        return self._groups(is_advanced=True)

    def is_more_open(self) -> bool:
        """Whether an advanced field has an error, which the page must show."""
        return not self.errors.keys().isdisjoint(self.advanced)

    def _groups(self, *, is_advanced: bool) -> list[tuple[str, list[forms.BoundField]]]:
        """The visible fields by heading."""
        headings = {name: heading for heading, names in self.groups.items() for name in names}
        found: dict[str, list[forms.BoundField]] = {heading: [] for heading in ("", *self.groups)}
        for field in self.visible_fields():
            if (field.name in self.advanced) == is_advanced:
                found[headings.get(field.name, "")].append(field)
        return [(heading, fields) for heading, fields in found.items() if fields]


class TenantChoiceForm(AdminForm):
    """A form with a field to choose a tenant."""

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
    """A page with a form, for a list or for a row.

    `save` receives the values of a valid form. It returns a message for the next page, or the response itself. If the
    form needs a tenant and no tenant exists, the person gets the form to add a tenant.
    """
    if "tenants" in options and not options["tenants"].exists():
        messages.warning(request, "There is no tenant yet. Add a tenant first.")
        return redirect("admin:memory_tenant_add_tenant")
    back = page.row_url(row) if row else page.list_url
    form = form_class(request.POST if request.method == "POST" else None, **options)
    if request.method == "POST" and form.is_valid():
        try:
            done = save(form.cleaned_data)
        except DomainError as refusal:
            add_error_to(form, refusal)
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
        "original": row,  # with `crumb` and `opts`, for the theme's breadcrumbs
        "crumb": form.crumb,
        "back": back,
        "opts": page.opts,
    }
    return TemplateResponse(request, "admin/form.html", context)


def add_error_to(form: forms.Form, refusal: DomainError) -> None:
    """Show the error at the field that it names. If the form does not have this field, show the error for the whole
    form."""
    if isinstance(refusal, Invalid) and refusal.field in form.fields:
        problem = refusal.problem.rstrip(".")
        form.add_error(refusal.field, f"{problem[:1].upper()}{problem[1:]}.")
    else:
        form.add_error(None, str(refusal))


@plain
def secret_page(request: HttpRequest, *, title: str, secret: str, lines: Sequence[str], back: str) -> HttpResponse:
    """A page that shows a secret once. No message, session or browser history contains the secret."""
    return render(request, "shown_once.html", {"title": title, "secret": secret, "lines": lines, "back": back})
