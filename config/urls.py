"""The service's URLs. Each app has its own URLs in its folder `api`, `admin` or `monitoring`."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from config import assets

handler400 = "memory.api.base.errors.bad_request"
handler403, handler404, handler500 = "config.plain.forbidden", "config.plain.missing", "config.plain.failed"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("", include("refinement.monitoring.urls")),
    path("", include("refinement.mcp.urls")),
    path("api/v1/", include("refinement.api.urls")),
    path("api/v1/", include("audit.api.urls")),
    path("api/v1/", include("memory.api.urls")),  # last: it handles all other paths
    path("v1/", include("refinement.api.dreams.urls")),
    path("v1/", include("memory.api.stores.urls")),  # last: it handles all other paths
    path("admin/", admin.site.urls),
    path("", include("memory.admin.plain_pages.urls")),
    path("static/<path:name>", assets.asset),
]
