"""URLs of memory stores, as in Anthropic's API."""

from django.urls import path, re_path

from memory.api.stores import memories, stores, versions
from memory.api.stores.wire import UnknownPath

STORE = "memory_stores/<str:store>"
urlpatterns = [
    path("memory_stores", stores.Stores.as_view()),
    path(STORE, stores.OneStore.as_view()),
    path(f"{STORE}/archive", stores.Archive.as_view()),
    path(f"{STORE}/memories", memories.Memories.as_view()),
    path(f"{STORE}/memories/<str:memory>", memories.OneMemory.as_view()),
    path(f"{STORE}/memory_versions", versions.Versions.as_view()),
    path(f"{STORE}/memory_versions/<str:version>", versions.OneVersion.as_view()),
    path(f"{STORE}/memory_versions/<str:version>/redact", versions.Redact.as_view()),
    re_path("", UnknownPath.as_view()),
]
