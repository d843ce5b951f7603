"""The admin's site: for people who signed in with both factors, and whose part in a tenant says what is theirs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from unfold.sites import UnfoldAdminSite

from config.admin import overview


class Site(UnfoldAdminSite):  # type: ignore[misc]  # Unfold comes without types
    site_title = site_header = "Palimpsest"
    index_title = "Overview"
    enable_nav_sidebar = True
    index_template = "admin/overview.html"

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return super().index(request, {"overview": overview.figures(request)} | (extra_context or {}))

    def has_permission(self, request: HttpRequest) -> bool:
        """Both factors, or nothing: whoever comes here may ask to read what agents remember."""
        person: Any = request.user  # with what OTPMiddleware adds
        return bool(person.is_active and person.is_verified())


site = Site()
