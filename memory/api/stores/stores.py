"""Memory stores: `/v1/memory_stores`."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Text
from memory.api.stores.wire import PageQuery, StoresView, cursor, number_of, paged, store_id
from memory.models import Agent, Store, TenantKey
from memory.policy import switches
from memory.writing import stores
from memory.writing.stores import MAX_PAIRS, About


class Metadata(serializers.DictField):
    """Pairs of texts. Their number is checked first: each wrong pair makes an error. A change can also remove pairs."""

    default_error_messages = {"too_many": f"must have at most {MAX_PAIRS} pairs"}

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and len(data) > 2 * MAX_PAIRS:
            self.fail("too_many")
        return super().to_internal_value(data)


class StoreIn(Body):
    name = Text()
    description = Text(required=False, allow_blank=True, allow_null=True)
    metadata = Metadata(child=Text(allow_blank=True), required=False, allow_null=True)


class StoreChangeIn(Body):
    name = Text(required=False, allow_null=True)
    description = Text(required=False, allow_blank=True, allow_null=True)
    metadata = Metadata(child=Text(allow_blank=True, allow_null=True), required=False, allow_null=True)


class StoresQuery(PageQuery):
    created_at_gte = serializers.DateTimeField(required=False)
    created_at_lte = serializers.DateTimeField(required=False)
    include_archived = serializers.BooleanField(default=False)


class Stores(StoresView):
    tenant: Any = None

    def check_permissions(self, request: Request) -> None:
        """A tenant's key may list stores, without names and content."""
        if isinstance(request.auth, TenantKey) and request.method == "GET":
            self.key, self.tenant = request.auth, request.auth.tenant  # type: ignore[assignment]
        else:
            super().check_permissions(request)

    def get(self, request: Request) -> Response:
        """List stores, newest first."""
        query = self.query(StoresQuery)
        before, limit = cursor(query, None), query["limit"]
        rows = self._rows()
        rows = rows if query["include_archived"] else rows.filter(archived_at=None)
        wanted = {"pk__lt": before, "created_at__gte": query.get("created_at_gte")}
        wanted |= {"created_at__lte": query.get("created_at_lte")}
        rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
        found, following = paged(list(rows.order_by("-pk")[: limit + 1]), limit, lambda store: store.pk)
        return Response({"data": [self._shown(store) for store in found], "next_page": following})

    def _rows(self) -> Any:
        if self.tenant:
            return Store.objects.filter(agent__tenant=self.tenant, deleted_at=None).select_related("agent__tenant")
        switches.require_on(self.agent)
        return Store.objects.filter(agent_id=self.agent.pk, deleted_at=None)

    def _shown(self, store: Store) -> dict[str, Any]:
        """For a tenant's key, the metadata names the agent: stores of two agents can have the same id."""
        if self.tenant:
            return _without_words(store) | {"metadata": {"agent": store.agent.label}}
        return to_json(self.agent, store)

    def post(self, request: Request) -> Response:
        payload = {name: value for name, value in self.payload(StoreIn).items() if value is not None}
        return Response(to_json(self.agent, stores.create(self.agent, About(**payload), self.actor)))


class OneStore(StoresView):
    def get(self, request: Request, store: str) -> Response:
        switches.require_on(self.agent)
        return Response(to_json(self.agent, stores.find(self.agent, _number(store))))

    def post(self, request: Request, store: str) -> Response:
        payload = {name: value for name, value in self.payload(StoreChangeIn).items() if value is not None}
        return Response(to_json(self.agent, stores.change(self.agent, _number(store), payload, self.actor)))

    def delete(self, request: Request, store: str) -> Response:
        stores.delete(self.agent, _number(store), self.actor)
        return Response({"id": store, "type": "memory_store_deleted"})


class Archive(StoresView):
    def post(self, request: Request, store: str) -> Response:
        return Response(to_json(self.agent, stores.archive(self.agent, _number(store), self.actor)))


def _number(store: str) -> int:
    return number_of(store, "memstore_")


def to_json(agent: Agent, store: Store) -> dict[str, Any]:
    about = stores.about(agent, store)
    words = {"name": about.name, "description": about.description, "metadata": dict(about.metadata)}
    return _without_words(store) | words


def _without_words(store: Store) -> dict[str, Any]:
    return {
        "id": store_id(store.number),
        "type": "memory_store",
        "name": "",
        "description": "",
        "metadata": {},
        "created_at": store.created_at,
        "updated_at": store.updated_at,
        "archived_at": store.archived_at,
    }
