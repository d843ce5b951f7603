"""What the tests of Anthropic's SDK call by name: a key, a workspace, a store, a memory and a version with literal ids.

A plugin of pytest posts to `/reset` before each test. Then a new agent is the owner of the key. The tests expect that a
create finds its path free, and that an update changes nothing.
"""

from collections.abc import Callable
from typing import ClassVar

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from audit.trail import Actor
from memory.agents import lifecycle
from memory.models import Agent, RecordedSession, StoreVersion
from memory.writing import edits, stores
from refinement import dreams

WORKSPACE = "wrkspc_011CZkZaBF1tNoB5wlCeusgy"  # the tests send it
ME = Actor.operator("interop")


class Literal:
    """Middleware that replaces the literal ids of a request by those of the fixtures."""

    ids: ClassVar[dict[str, str]] = {}
    key: ClassVar[str] = ""
    count: ClassVar[int] = 0

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info == "/reset":
            return JsonResponse(self.reset(request.GET["test"]))
        request.path_info = "/".join(self.ids.get(part, part) for part in request.path_info.split("/"))
        if "Bearer pal_" not in request.META.get("HTTP_AUTHORIZATION", ""):
            request.META["HTTP_AUTHORIZATION"] = f"Bearer {self.key}"
        if request.META.get("HTTP_ANTHROPIC_WORKSPACE_ID") == WORKSPACE:
            request.META["HTTP_ANTHROPIC_WORKSPACE_ID"] = "wrkspc_sdk"
        return self.get_response(request)

    @classmethod
    def reset(cls, test: str) -> dict[str, str]:
        """Make a new agent with a store and a session. Returns the key and the id of the store."""
        cls.count += 1
        agent, cls.key = lifecycle.create("sdk", f"a{cls.count}", model="builtin/dedupe", actor=ME)
        store = stores.create(agent, stores.About("notes"), ME).number
        RecordedSession(agent=agent, name="s1", began_at=timezone.now(), last_at=timezone.now()).save()
        if test != "sync":
            cls._fill(agent, store, "/Q" if "create" in test else "/P")
            cls._dream(agent, store, is_over="archive" in test)
        return {"key": cls.key, "store": f"memstore_{store}"}

    @classmethod
    def _dream(cls, agent: Agent, store: int, *, is_over: bool) -> None:
        agent.refresh_from_db()
        with edits.locked(agent) as row:
            number = dreams.create(row, store, RecordedSession.objects.filter(agent=agent), is_copy=True).number
            if is_over:
                dreams.cancel(row, number)
        cls.ids["dream_id"] = f"drm_{number}"

    @classmethod
    def _fill(cls, agent: Agent, store: int, path: str) -> None:
        agent.refresh_from_db()
        number = stores.add(agent, store, path, "before", ME).memory.number
        agent.refresh_from_db()
        stores.revise(agent, store, number, ME, content="content")
        first = StoreVersion.objects.filter(agent_id=agent.pk).earliest("seq").seq
        cls.ids = {
            "memory_store_id": f"memstore_{store}",
            "memory_id": f"mem_{number}",
            "memory_version_id": f"memver_{first}_{number}",
        }
