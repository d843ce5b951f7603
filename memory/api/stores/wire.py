"""What all paths of Anthropic's memory stores API share: keys, headers, pages, ids and errors.

The shapes and the rules are those of Anthropic's API, so that its clients work unchanged. What differs is in
docs/reference/memory-stores.md.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework import serializers, status
from rest_framework.exceptions import APIException, NotFound, PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from audit.models import ActorKind, AuditEntry
from memory import errors
from memory.access.authentication import require_valid_key
from memory.api.base.bodies import Body, Choice, Text
from memory.api.base.views import AgentView, KeyAuthentication, shared
from memory.errors import Invalid
from memory.search import stores as reading

MAX_PAGE, MAX_FULL_PAGE = 100, 20
_NUMBER = re.compile(r"\d{1,16}")
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_DOMAIN_TYPES: dict[type[Exception], str] = {
    errors.PathTaken: "memory_path_conflict_error",
    errors.ContentChanged: "memory_precondition_failed_error",
}


class BadRequest(APIException):
    status_code = status.HTTP_400_BAD_REQUEST
    default_code = "bad_request"


class StoreKey(KeyAuthentication):
    """Also reads the key from `X-Api-Key`, as earlier clients send it."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        if "HTTP_AUTHORIZATION" not in request.META and "HTTP_X_API_KEY" in request.META:
            request.META["HTTP_AUTHORIZATION"] = f"Bearer {request.META['HTTP_X_API_KEY']}"
        return super().authenticate(request)


class StoresView(AgentView):
    """A path of the memory stores API. `betas` has the values of the header `anthropic-beta` of which exactly one is
    required."""

    authentication_classes: Any = [StoreKey]
    schema = None  # Anthropic describes these paths
    betas: ClassVar[tuple[str, ...]] = ("agent-memory-2026-07-22", "managed-agents-2026-04-01")

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        sent = {each.strip() for each in request.headers.get("anthropic-beta", "").split(",")}
        if len(sent.intersection(self.betas)) != 1:
            raise BadRequest(f"The header anthropic-beta must have one of: {', '.join(self.betas)}.")
        workspace = request.headers.get("anthropic-workspace-id")
        # A tenant is a workspace.
        if workspace and workspace != f"wrkspc_{(getattr(self, 'tenant', None) or self.agent.tenant).slug}":
            raise PermissionDenied("The key does not belong to the workspace in anthropic-workspace-id.")

    def query(self, form: type[Body]) -> dict[str, Any]:
        """The checked query string. A name such as `created_at[gte]` becomes `created_at_gte`."""
        sent = self.request.query_params
        values = {
            name.replace("[]", "").replace("[", "_").replace("]", ""): sent.getlist(name) if "[]" in name else value
            for name, value in sent.items()
            if name != "beta"
        }
        return dict(shared(form).run_validation(values))

    def handle_exception(self, exc: Exception) -> Response:
        """Give the API's error the form of Anthropic's errors. Clients repeat a 409 by themselves, unless a header says
        that this cannot help."""
        try:
            more = self._in_the_way(exc.numbers[0]) if isinstance(exc, errors.PathTaken) else {}
        except Exception as failure:  # noqa: BLE001  such as a database that fails
            return self.handle_exception(failure)
        response = super().handle_exception(exc)
        code = response.status_code
        if code in (405, 406, 415, 422) or isinstance(exc, errors.StoreArchived):
            code = response.status_code = status.HTTP_400_BAD_REQUEST
        if isinstance(exc, errors.ConsentRequired):
            code = response.status_code = status.HTTP_403_FORBIDDEN
        first = response.data["errors"][0]
        field = f"{first['attr']}: " if first["attr"] not in (None, "body") else ""
        kind = _DOMAIN_TYPES.get(type(exc)) or _TYPES.get(code, "api_error")
        error = {"type": kind, "message": f"{field}{first['detail']}"} | more
        if code == status.HTTP_409_CONFLICT:
            response["x-should-retry"] = "false"
        response.data = {"type": "error", "error": error, "request_id": self.request_id}
        return response

    def _in_the_way(self, number: int) -> dict[str, str]:
        """The memory that has the path. Raises KeyRejected if the key has ended meanwhile."""
        path = reading.path_of(self.agent, number)
        require_valid_key()
        return {"conflicting_memory_id": memory_id(number), "conflicting_path": path} if path else {}

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response["request-id"] = self.request_id
        return response

    @property
    def request_id(self) -> str:
        made: str = self.__dict__.setdefault("_request_id", f"req_{secrets.token_hex(12)}")
        return made


class UnknownPath(StoresView):
    authentication_classes: Any = []

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        raise NotFound("Unknown path.")


# --- queries


class ViewQuery(Body):
    view = Choice(["basic", "full"], required=False)


class PageQuery(Body):
    limit = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, default=20)
    page = Text(max_length=500, required=False)


def paged(rows: list[Any], limit: int, following: Any) -> tuple[list[Any], str | None]:
    """The items of a page, and its `next_page`. `rows` may have one more item. `following` makes a cursor from the last
    item."""
    return rows[:limit], f"page_{following(rows[limit - 1])}" if len(rows) > limit else None


def cursor(query: Mapping[str, Any], default: Any, pattern: Any = _NUMBER, read: Any = int) -> Any:
    """What the parameter `page` says. Raises Invalid."""
    page = query.get("page")
    if page is None:
        return default
    found = pattern.fullmatch(page.removeprefix("page_")) if page.startswith("page_") else None
    if found is None:
        raise Invalid("page", "must be `next_page` of an earlier response")
    return read(found[0])


# --- ids


def number_of(id_: str, prefix: str) -> int:
    """The number in an id such as `memstore_3`, or 0 for any other text."""
    digits = id_.removeprefix(prefix)
    is_number = id_.startswith(prefix) and digits.isascii() and digits.isdigit() and len(digits) < 17
    return int(digits) if is_number else 0


def store_id(number: int) -> str:
    return f"memstore_{number}"


def memory_id(number: int) -> str:
    return f"mem_{number}"


def version_id(seq: int, number: int) -> str:
    return f"memver_{seq}_{number}"


def actor(entry: AuditEntry) -> dict[str, str]:
    """Who made an entry of the audit trail."""
    if entry.session is not None:
        return {"type": "session_actor", "session_id": f"sesn_{entry.session}"}
    if entry.actor_kind == ActorKind.AGENT:
        return {"type": "api_actor", "api_key_id": f"apikey_{entry.actor_label}"}
    if entry.actor_kind == ActorKind.SYSTEM:
        return {"type": "service_account_actor", "service_account_id": f"svac_{entry.actor_label}"}
    return {"type": "user_actor", "user_id": f"user_{entry.actor_label}"}


def actor_lookups(query: dict[str, Any]) -> dict[str, Any]:
    """Take the parameters about actors from a query. Returns lookups of audit entries."""
    found: dict[str, Any] = {}
    if session := query.pop("session_id", None):
        found |= {"session": number_of(session, "sesn_")}
    if key := query.pop("api_key_id", None):
        label = key.removeprefix("apikey_")
        found |= {"session": None, "actor_kind": ActorKind.AGENT.value, "actor_label": label}
    if account := query.pop("service_account_id", None):
        label = account.removeprefix("svac_")
        found |= {"session": None, "actor_kind": ActorKind.SYSTEM.value, "actor_label": label}
    return found
