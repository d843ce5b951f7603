"""Two paths without a key: `/fixtures` has what the official test suite calls by name, and `/mcp` the real tools."""

from django.core.exceptions import ImproperlyConfigured
from django.urls import include, path
from django.views import View

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent
from refinement.mcp.views import Mcp
from tests.interop.fixtures import Fixtures

if Agent.objects.exists():
    raise ImproperlyConfigured("The database has agents. This server gives everybody the silo of a new agent.")
KEY = lifecycle.create("interop", "ada", model="builtin/dedupe", actor=Actor.operator("tests"))[1]


class _Open:
    """Adds the agent's key to each request."""

    def dispatch(self, request, *args, **kwargs):  # type: ignore[no-untyped-def]
        request.META["HTTP_AUTHORIZATION"] = f"Bearer {KEY}"
        return super().dispatch(request, *args, **kwargs)  # type: ignore[misc]


def _opened(view: type[Mcp]) -> type[View]:
    return type(f"Open{view.__name__}", (_Open, view), {})


urlpatterns = [
    path("mcp", _opened(Mcp).as_view()),
    path("fixtures", _opened(Fixtures).as_view()),
    path("", include("config.urls")),
]
