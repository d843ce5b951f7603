"""What every view of the API shares: who calls, whom it is for, whose data it is about, and how often.

The caller is the holder of an agent's key or of a tenant's. There is no session, no cookie and no password. A view says
which of the two it is for. A view that says neither is for nobody.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from django.conf import settings
from django.core.cache import cache as counts
from django.db.models import Model, QuerySet
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from audit.trail import Actor
from memory.access.authentication import either_key, new_request, request_key
from memory.api.base.bodies import Body
from memory.errors import Invalid
from memory.models import Agent, AgentKey, Creation, Tenant, TenantKey
from memory.silo.silo import Silo
from memory.writing import edits

S = TypeVar("S", bound=serializers.Serializer[Any])
T = TypeVar("T")
M = TypeVar("M", bound=Model)
Out = type[serializers.Serializer[Any]]
F = TypeVar("F", bound=Callable[..., Any])

CHALLENGE = 'Bearer realm="palimpsest"'  # with every 401 (RFC 6750, 3)
MAX_HEADER = 200  # characters; a key has 60
WINDOW = 60  # seconds
KEPT = timedelta(days=1)
MAX_KEY = 200  # characters

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="any text of up to 200 characters; repeating the request within a day creates nothing new",
)


class KeyReused(APIException):
    status_code = status.HTTP_409_CONFLICT
    default_code = "idempotency_key_reused"
    default_detail = "This Idempotency-Key was used for another body."


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer KEY`. The key's row is `request.user` and `request.auth`. Raises KeyRejected."""

    def authenticate(self, request: Request) -> tuple[AgentKey | TenantKey, AgentKey | TenantKey] | None:
        scheme, _, key = str(request.META.get("HTTP_AUTHORIZATION", ""))[:MAX_HEADER].partition(" ")
        if scheme.lower() != "bearer" or not key:
            return None
        row = either_key(key)
        request_key.set(row)
        return row, row

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class PerKey(BaseThrottle):
    """API_RATE requests a minute for each key, in fixed windows, with headers that say how many are left.

    The count is in the cache. If the cache is local to a process, each process counts for itself.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        now = time.time()
        window = int(now // WINDOW)
        place = f"api-rate/{view.key.prefix}/{window}"
        counts.add(place, 0, timeout=2 * WINDOW)
        try:
            used = counts.incr(place)
        except ValueError:  # the cache has dropped it
            used = 1
        self._wait = (window + 1) * WINDOW - now
        limit = settings.API_RATE
        view.headers |= {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(max(0, limit - used)),
            "X-RateLimit-Reset": str((window + 1) * WINDOW),
        }
        return used <= limit

    def wait(self) -> float:
        """Seconds until the next window."""
        return self._wait


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes the authentication in the schema."""

    target_class = KeyAuthentication
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An agent's key (`pal_…`), which opens one silo, or a tenant's (`palt_…`), which opens none",
        }


@cache
def shared(form: type[S]) -> S:
    """The one serializer of a class, which keeps nothing of a request: DRF copies all fields of each new one."""
    return form()


class View(APIView):
    """For nobody, until a subclass says for whom."""

    authentication_classes: Any = [KeyAuthentication]
    throttle_classes: Any = [PerKey]
    metadata_class = None  # the schema describes each address; OPTIONS is a 405
    http_method_names = ("get", "head", "post", "put", "patch", "delete")

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with new_request():
            return super().dispatch(request, *args, **kwargs)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """Each address responds in its own format, whatever `Accept` says."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    def check_permissions(self, request: Request) -> None:
        self.permission_denied(request)

    def payload(self, form: type[Body]) -> dict[str, Any]:
        """The checked request body. Raises ValidationError."""
        return dict(shared(form).run_validation(self.request.data))

    def query(self, form: type[Body]) -> dict[str, Any]:
        """The checked query string; of a repeated name the last value. Raises ValidationError."""
        return dict(shared(form).run_validation(self.request.query_params.dict()))


class AgentView(View):
    """For the holder of an agent's key: that agent, and no other."""

    key: AgentKey
    agent: Agent
    actor: Actor

    def check_permissions(self, request: Request) -> None:
        if not isinstance(request.auth, AgentKey):
            self.permission_denied(request, "This is for an agent's key.")
        self.key = request.auth
        self.agent, self.actor = self.key.agent, Actor.agent(self.key.prefix)

    def once(self, make: Callable[[Agent], list[int]], *, prepare: Callable[[], object] = lambda: None) -> list[int]:
        """The numbers of what `make` made for the agent, now or when this request's Idempotency-Key was first used.

        A row keeps, for a day, keyed digests of the key and of the body, and the numbers of what was made, but no body.
        It is written in the transaction that creates. `prepare` does the slow part before the agent is locked, and not
        for a repeat. Raises KeyReused, Invalid.
        """
        key = self.request.headers.get("Idempotency-Key", "")
        if not key:
            return make(self.agent)
        if len(key) > MAX_KEY:
            raise Invalid("Idempotency-Key", f"is longer than {MAX_KEY} characters")
        silo = Silo.for_agent(self.agent)
        digest = silo.digest(f"idempotency/{key}")
        fingerprint = silo.digest(f"{self.request.path}/{json.dumps(self.request.data, sort_keys=True)}")
        made = _made_before(self.agent, digest, fingerprint)
        if made is not None:
            return made
        prepare()
        with edits.locked(self.agent) as row:
            now = timezone.now()
            Creation.objects.filter(at__lt=now - KEPT).delete()  # of every agent: some never call again
            made = _made_before(row, digest, fingerprint)
            if made is None:
                made = make(row)
                Creation.objects.create(agent=row, key=digest, fingerprint=fingerprint, numbers=made, at=timezone.now())
            return made


def _made_before(agent: Agent, digest: bytes, fingerprint: bytes) -> list[int] | None:
    before = Creation.objects.filter(agent=agent, key=digest, at__gte=timezone.now() - KEPT).first()
    if before is not None and bytes(before.fingerprint) != fingerprint:
        raise KeyReused
    return None if before is None else list(before.numbers)


class TenantView(View):
    """For the holder of a tenant's key: metadata of that tenant's agents."""

    key: TenantKey
    tenant: Tenant
    actor: Actor

    def check_permissions(self, request: Request) -> None:
        if not isinstance(request.auth, TenantKey):
            self.permission_denied(request, "This is for a tenant's key.")
        self.key = request.auth
        self.tenant, self.actor = self.key.tenant, Actor.operator(self.key.prefix)


def describe_list(operation_id: str, query: type[Body], name: str, item: Out) -> Callable[[F], F]:
    """Describe a GET that answers with a page of a list, as `listed` makes it."""
    page = inline_serializer(name, {"results": item(many=True), "next": serializers.CharField(allow_null=True)})
    return extend_schema(operation_id=operation_id, parameters=[query], responses=page)


def newest_first(model: type[M], agent: Agent, query: dict[str, Any]) -> QuerySet[M]:
    """The agent's rows for `listed`, highest number first."""
    rows = model._default_manager.filter(agent_id=agent.pk).order_by("-number")
    rows = rows.filter(number__lt=query["cursor"]) if query["cursor"] else rows
    return rows[: query["limit"] + 1]


def listed(found: Iterable[T], limit: int, cursor: str, to_json: Callable[[list[T]], Iterable[Any]]) -> Response:
    """A page of `limit` items. `found` has one more if another page follows.

    `cursor` is the attribute of the page's last item that the next page begins after.
    """
    rows = list(found)
    page = rows[:limit]
    following = str(attrgetter(cursor)(page[-1])) if len(rows) > limit else None
    return Response({"results": list(to_json(page)), "next": following})


def listed_requests(found: Iterable[Any], query: dict[str, Any], out: Out) -> Response:
    """A page of what the agent's side was asked, by number: those in the `state` that the query names, if it does."""
    wanted = [each for each in found if query.get("state", each.state) == each.state]
    return listed(wanted, query["limit"], "number", lambda page: out(page, many=True).data)
