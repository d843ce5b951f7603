"""The admin's site: for people who signed in with both factors, and whose part in a tenant says what is theirs.

Pages register themselves on this site when they are imported. So it imports them in its methods, when it is there.
"""

from __future__ import annotations

from typing import Any

from django.core.paginator import InvalidPage
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, URLResolver, path
from unfold.sites import UnfoldAdminSite


class Site(UnfoldAdminSite):  # type: ignore[misc]  # Unfold comes without types
    site_title = site_header = "Palimpsest"
    index_title = "Overview"
    enable_nav_sidebar = True
    index_template = "admin/overview.html"

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Only our own pages: `admin.autodiscover` would add those of django-q and of Django's groups."""
        from audit import admin as audit_pages  # noqa: F401
        from memory import admin as memory_pages  # noqa: F401
        from memory.admin.plain_pages.accounts import SignIn
        from refinement import admin as refinement_pages  # noqa: F401

        self.login_form = SignIn
        urls: list[URLPattern | URLResolver] = super().get_urls()
        return urls

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        from refinement.admin import overview

        return super().index(request, {"overview": overview.figures(request)} | (extra_context or {}))

    def has_permission(self, request: HttpRequest) -> bool:
        """Both factors, or nothing: whoever comes here may ask to read what agents remember."""
        person: Any = request.user  # with what OTPMiddleware adds
        return bool(person.is_active and person.is_verified())

    def extra_urls(self) -> list[URLPattern]:
        from memory.admin.plain_pages import accounts

        return [
            path("account/", self.admin_view(accounts.own), name="account"),
            path("account/password/", self.admin_view(accounts.password), name="account_password"),
            path("account/factor/", self.admin_view(accounts.factor), name="account_factor"),
        ]

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The theme's own, which finds pages by their names; but of a page of results that is not there it breaks."""
        try:
            return super().search(request, extra_context)
        except (InvalidPage, ValueError):
            raise Http404 from None

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Django's own asks for no code, and would leave grants in force: its place is `accounts.password`."""
        return redirect("admin:account_password")

    password_change_done = password_change
