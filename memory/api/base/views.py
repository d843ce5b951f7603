"""What every view of the API shares: whom it is for, and whose data it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.trail import Actor
from memory.access import request_key
from memory.api.base.bodies import Body
from memory.api.base.keys import Nobody
from memory.models import Agent, AgentKey, Tenant, TenantKey

S = TypeVar("S", bound=serializers.Serializer[Any])
T = TypeVar("T")
M = TypeVar("M", bound=Model)
Out = type[serializers.Serializer[Any]]
F = TypeVar("F", bound=Callable[..., Any])


class OneFormat(DefaultContentNegotiation):
    """Each address responds in its own format, whatever `Accept` says."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


@cache
def shared(form: type[S]) -> S:
    """The one serializer of a class, which keeps nothing of a request: DRF copies all fields of each new one."""
    return form()


class View(APIView):
    """For nobody, until a subclass says for whom."""

    permission_classes: Any = [Nobody]
    content_negotiation_class = OneFormat
    metadata_class = None  # the schema describes each address; OPTIONS is a 405
    http_method_names = ("get", "head", "post", "put", "patch", "delete")

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with request_key.request():
            return super().dispatch(request, *args, **kwargs)

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
