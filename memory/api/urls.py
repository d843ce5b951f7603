"""URLs of memories, recording, consent and transfer under /api/v1/, and of the schema. Any other path is a 404."""

from django.urls import path, re_path
from django.views.decorators.cache import cache_page
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import NotFound
from rest_framework.permissions import AllowAny
from rest_framework.request import Request

from config import at_once
from memory.api import consent, memories, recording, rules, transfer
from memory.api.base.schema import OnceGenerator
from memory.api.base.views import View


class UnknownPath(View):
    """A 404 in the format of the API's errors."""

    schema = None

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        raise NotFound("Unknown path.")


class _Page(SpectacularSwaggerSplitView):
    http_method_names = ("get", "head")


_OPEN = {"permission_classes": [AllowAny]}
_SCHEMA = SpectacularAPIView.as_view(generator_class=OnceGenerator, **_OPEN)

urlpatterns = [
    path("memories", memories.Memories.as_view()),
    path("memories/batch", memories.Batch.as_view()),
    path("memories/search", memories.Search.as_view()),
    path("memories/<int:number>", memories.OneMemory.as_view()),
    path("memories/<int:number>/restore", memories.Restore.as_view()),
    path("retrieve", recording.Retrieve.as_view()),
    path("rules", rules.Rules.as_view()),
    path("recordings", recording.Recordings.as_view()),
    path("recorded-sessions/<str:name>/end", recording.End.as_view()),
    path("cleanup", recording.Cleanup.as_view()),
    path("vault", rules.OneVault.as_view()),
    path("access-requests", consent.AccessRequests.as_view()),
    path("access-requests/<int:number>/approve", consent.Approve.as_view()),
    path("access-requests/<int:number>/deny", consent.Deny.as_view()),
    path("grants/<int:number>/revoke", consent.Revoke.as_view()),
    path("content-reads", consent.ContentReads.as_view()),
    path("proposals", consent.Proposals.as_view()),
    path("proposals/<int:number>/accept", consent.Accept.as_view()),
    path("proposals/<int:number>/decline", consent.Decline.as_view()),
    path("removal-requests", consent.Removals.as_view()),
    path("removal-requests/<int:number>", consent.OneRemoval.as_view()),
    path("removal-requests/<int:number>/agree", consent.AgreeToRemoval.as_view()),
    path("removal-requests/<int:number>/decline", consent.DeclineRemoval.as_view()),
    path("export", transfer.ExportView.as_view()),
    path("import", transfer.Import.as_view()),
    path("import/<int:number>", transfer.ImportState.as_view()),
    path("schema", RedirectView.as_view(pattern_name="schema")),
    path("docs", RedirectView.as_view(pattern_name="docs")),
    path("schema/", at_once.limited(cache_page(3600, cache="local")(_SCHEMA)), name="schema"),
    # This view serves its script as a separate file, because the Content-Security-Policy allows no script in a page.
    path("docs/", _Page.as_view(url_name="schema", **_OPEN), name="docs"),
    re_path("", UnknownPath.as_view()),
]
