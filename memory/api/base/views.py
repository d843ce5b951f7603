"""What every view of the API shares: whom it is for, and whose it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from audit.trail import Actor
from memory.access import request_key
from memory.api.base.bodies import Body
from memory.api.base.keys import AgentSide, Nobody, TenantSide
from memory.models import Agent, AgentKey, Tenant, TenantKey


class OneForm(DefaultContentNegotiation):
    """Each address answers in its own form, whatever `Accept` asks for."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


class View(APIView):
    """For nobody, until a subclass says for whom."""

    permission_classes: Any = [Nobody]
    content_negotiation_class = OneForm
    metadata_class = None  # the schema tells what there is; OPTIONS is a 405, and `Allow` does not name it
    http_method_names = ("get", "head", "post", "put", "patch", "delete")

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        with request_key.request():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        request_key.note(cast("AgentKey | TenantKey | None", request.auth))

    @property
    def actor(self) -> Actor:
        caller: Any = self.request.user
        actor: Actor = caller.actor
        return actor

    def given(self, body: type[Body]) -> dict[str, Any]:
        """The request's body, checked. Raises what is told as 422."""
        checked = body(data=self.request.data)
        checked.is_valid(raise_exception=True)
        return dict(checked.validated_data)

    def asked(self, query: type[Body]) -> dict[str, Any]:
        """The query string, checked likewise. A name given twice counts once, the last."""
        checked = query(data=self.request.query_params.dict())
        checked.is_valid(raise_exception=True)
        return dict(checked.validated_data)


class AgentView(View):
    """For the holder of an agent's key: that agent, and no other."""

    permission_classes: Any = [AgentSide]

    @property
    def key(self) -> AgentKey:
        return cast(AgentKey, self.request.auth)  # `AgentSide` lets nobody else in

    @property
    def agent(self) -> Agent:
        return self.key.agent


class TenantView(View):
    """For the holder of a tenant's key: metadata of that tenant's agents."""

    permission_classes: Any = [TenantSide]

    @property
    def tenant(self) -> Tenant:
        return cast(TenantKey, self.request.auth).tenant


def listed(results: Iterable[Any], cursor: int | None) -> Response:
    """A page: `next` is the cursor of the one after it, null on the last."""
    return Response({"results": list(results), "next": None if cursor is None else str(cursor)})


def asked_page(found: Iterable[dict[str, Any]], asked: dict[str, Any]) -> Response:
    """Of what was asked of the agent's side, by number: the first page of those in the state that is wanted."""
    wanted = [each for each in found if asked.get("state", each["state"]) == each["state"]]
    page = wanted[: asked["limit"]]
    return listed(page, page[-1]["number"] if len(wanted) > len(page) else None)
