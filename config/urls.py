"""The service's addresses."""

from __future__ import annotations

from django.urls import include, path, register_converter
from django.views.generic import RedirectView

from config import assets, health, joining, metrics, steward
from config.admin import pages  # noqa: F401  which registers them
from config.admin.site import site

register_converter(steward.AnyToken, "any_token")

handler400 = "config.api.errors.bad_request"
handler403, handler404 = "config.plain.forbidden", "config.plain.missing"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("metrics", metrics.shown),
    path("api/v1/", include("config.api.urls")),
    path("admin/", site.urls),
    path("reading/", include("config.reading")),
    path("join/<str:token>", joining.join, name="join"),
    path("consent/<any_token:token>", steward.link, name="consent"),
    path("static/<path:name>", assets.asset),
]
