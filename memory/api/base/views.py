"""The base of every view of the API: authentication, permission, throttling and lists.

The caller sends an agent's key or a tenant's key. There is no session, no cookie and no password. AgentView is
for agents' keys, and TenantView is for tenants' keys. Their base class View refuses every request.
"""

import json
import select
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.core.cache import cache as counts
from django.db.models import Model, QuerySet
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import NotFound, ParseError, Throttled
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from audit.trail import Actor
from config import at_once
from config.errors import DomainError
from config.queue import redis_error
from memory.access import recovery
from memory.access.authentication import either_key, new_request, request_key, require_valid_key
from memory.api.base.bodies import Body
from memory.api.base.idempotency import Kept
from memory.errors import Invalid, KeyRejected, KeySuspended
from memory.models import Agent, AgentKey, Tenant, TenantKey
from memory.policy import switches
from memory.silo.silo import Silo
from memory.vault import writer
from memory.writing import edits

S = TypeVar("S", bound=serializers.Serializer[Any])
T = TypeVar("T")
M = TypeVar("M", bound=Model)
Out = type[serializers.Serializer[Any]]
F = TypeVar("F", bound=Callable[..., Any])

log = structlog.get_logger("palimpsest.api")

CHALLENGE = 'Bearer realm="palimpsest"'  # sent with every 401 (RFC 6750, section 3)
MAX_HEADER = 200  # characters of Authorization; a key has 60
WINDOW = 60  # seconds
LARGE_BODY = 50_000  # bytes
TURNS = 2  # requests of an agent that a process works on at the same time: Python gives each thread the same CPU time
DOWNLOADS = 2  # exports of an agent that a process makes at the same time, and one more of its tenant
MAX_KEY = 200  # characters of an Idempotency-Key

IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="any text of up to 200 characters; if you repeat the request within a day, you get the first result",
)


class KeyAuthentication(BaseAuthentication):
    """Reads `Authorization: Bearer KEY`. `request.user` and `request.auth` become the key's row. Raises KeyRejected."""

    exchanges = False

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        scheme, _, key = str(request.META.get("HTTP_AUTHORIZATION", ""))[:MAX_HEADER].partition(" ")
        if scheme.lower() != "bearer" or not key:
            return None
        if self.exchanges and key.startswith(recovery.FORM):
            return key, key
        try:
            row = either_key(key, exchanges=self.exchanges)
        except KeySuspended:
            raise
        except KeyRejected:
            if self.exchanges and "Idempotency-Key" in request.headers:
                return key, key
            raise
        request_key.set(row)
        return row, row

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class ExchangeAuthentication(KeyAuthentication):
    """Also accepts a recovery code. With an Idempotency-Key, it accepts an invalid key, because a request that ended
    its own key may be repeated. `request.auth` is then the text, which the view checks, after the throttle."""

    exchanges = True


class PerKey(BaseThrottle):
    """Allows API_RATE requests a minute for each key, in fixed windows. Headers say how many requests are left. Of
    requests with a recovery code, or with an invalid key that may repeat an exchange, it allows as many for each
    address of a client as a sign-in.

    The count is in the cache. If the cache is local to a process, each process counts separately. While Redis does not
    answer, all requests are allowed.
    """

    def allow_request(self, request: Request, view: Any) -> bool:
        now = time.time()
        window = int(now // WINDOW)
        is_text = isinstance(request.auth, str)
        place = f"api-rate/{at_once.client_address(request) if is_text else view.key.prefix}/{window}"
        try:
            counts.add(place, 0, timeout=2 * WINDOW)
            used = counts.incr(place)
        except ValueError:  # the cache has dropped it
            used = 1
        except redis_error():
            log.error("request not counted: Redis does not answer")
            used = 0
        self._wait = (window + 1) * WINDOW - now
        limit = settings.AXES_FAILURE_LIMIT if is_text else settings.API_RATE
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
    description = "An agent's key (`pal_…`) opens one silo. A tenant's key (`palt_…`) opens no silo"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": self.description}


class ExchangeScheme(KeyScheme):  # type: ignore[no-untyped-call]
    target_class = ExchangeAuthentication
    name = "keyOrCode"
    description = f"An agent's key (`pal_…`), or a recovery code (`{recovery.FORM}…`)"


def require_client(request: Request) -> None:
    """Raise ParseError if the client has closed the connection. Then nobody waits for the work of this request. A few
    clients close only their side, so only large imports and senders of many requests are checked."""
    connection = request.META.get("gunicorn.socket")
    if connection is not None:
        poll = select.poll()
        poll.register(connection, getattr(select, "POLLRDHUP", 0))  # only Linux has POLLRDHUP
        if poll.poll(0):
            raise ParseError("The client closed the connection.")


@cache
def shared(form: type[S]) -> S:
    """Return one serializer of this class for all requests. Serializers are slow to make, and keep no request data."""
    return form()


def _limits(request: Request) -> dict[object, int]:
    """How many requests of an agent, of a tenant, or of an address without a valid key may run at the same time."""
    key, half = request.auth, max(1, settings.WEB_THREADS // 2)
    if isinstance(key, AgentKey):
        sender: object = ("tenant", key.agent.tenant_id)
        limits: dict[object, int] = {("agent", key.agent_id): half, sender: half + half // 2}
    else:
        sender = ("tenant", key.tenant_id) if isinstance(key, TenantKey) else at_once.client_address(request)
        limits = {sender: half}
    if "Transfer-Encoding" in request.headers or int(request.META.get("CONTENT_LENGTH") or 0) > LARGE_BODY:
        limits["bodies", sender] = 2  # parsing one takes up to a second
    return limits


class View(APIView):
    """The base view. It refuses every request unless a subclass overrides `check_permissions`."""

    authentication_classes: Any = [KeyAuthentication]
    throttle_classes: Any = [PerKey]
    metadata_class = None  # the schema describes each path; OPTIONS is a 405
    shows_later = False  # the response has memories as they are after the request, although it is not a GET
    senders: Any = ()
    turns: Any = ()
    http_method_names = ("get", "head", "post", "put", "patch", "delete")

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        response: Any = None
        try:
            with new_request():
                response = super().dispatch(request, *args, **kwargs)
                response = response.render() if hasattr(response, "render") else response  # while it is counted
        finally:
            at_once.end(self.turns)
            if response is None:
                at_once.end(self.senders)
            else:  # a client that reads slowly occupies a thread
                response._resource_closers.append(partial(at_once.end, self.senders))
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if "\0" in "".join(map(str, kwargs.values())):  # PostgreSQL refuses to look for it
            raise NotFound
        limits = _limits(request)
        if not at_once.begin(limits):
            raise Throttled(1)
        self.senders = list(limits)
        if request.method in SAFE_METHODS:
            self.take_turn()

    def take_turn(self) -> None:
        """Wait until less than TURNS requests of the sender run, and one more of an agent's tenant. A request with a
        body first reads the body, so that a slow client does not make the others wait. Raises Throttled, and ParseError
        if the client is gone."""
        if self.turns:
            return
        turn: dict[object, int] = {("turn", each): TURNS + n for n, each in enumerate(self.senders[:2])}
        is_free = at_once.begin(turn)
        if not is_free and not at_once.begin(turn, seconds=at_once.MAX_WAIT):
            raise Throttled(1)
        self.turns = list(turn)
        if not is_free:
            require_client(self.request)

    def begin_download(self) -> None:
        """Count a response whose body is made while it is sent. Its client may be slow, so it keeps no turn. Raises
        Throttled."""
        download: dict[object, int] = {("download", each): DOWNLOADS + n for n, each in enumerate(self.senders[:2])}
        if not at_once.begin(download):
            raise Throttled(1)
        self.senders += download

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Any:
        """Check the key and the switches once more after a read. So a key that was revoked in the meantime gets nothing
        newer, and nobody gets what was switched off."""
        if (self.shows_later or request.method in SAFE_METHODS) and status.is_success(response.status_code):
            try:
                switches.require_same(require_valid_key(), getattr(self, "agent", None))
            except DomainError as rejected:
                response = self.handle_exception(rejected)
        return super().finalize_response(request, response, *args, **kwargs)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """Each path has one format. `Accept` is ignored."""
        renderer = self.get_renderers()[0]
        return renderer, renderer.media_type

    def check_permissions(self, request: Request) -> None:
        self.permission_denied(request)

    def payload(self, form: type[Body]) -> dict[str, Any]:
        """The checked request body. Raises ValidationError."""
        body = self.request.data
        self.take_turn()
        return dict(shared(form).run_validation(body))

    def query(self, form: type[Body]) -> dict[str, Any]:
        """The checked query string. If a parameter is repeated, its last value counts. Raises ValidationError."""
        return dict(shared(form).run_validation(self.request.query_params.dict()))


class AgentView(View):
    """A view for agents' keys. A key gives access only to its own agent."""

    key: AgentKey
    agent: Agent
    actor: Actor

    def check_permissions(self, request: Request) -> None:
        if not isinstance(request.auth, AgentKey):
            self.permission_denied(request, "This path needs an agent's key.")
        self.key = request.auth
        self.agent, self.actor = self.key.agent, Actor.agent(self.key.prefix)

    def once(self, make: Callable[[Agent], list[int]], *, prepare: Callable[[], object] = lambda: None) -> list[int]:
        """Call `make` once for each Idempotency-Key, and return the numbers that `make` returned.

        The numbers are stored in the transaction of `make`. A repeated request gets the stored numbers. `prepare` does
        slow work before the agent is locked, and only for a first request. Raises KeyReused, Invalid.
        """
        kept = self.kept()
        if kept is None:
            return make(self.agent)
        made = kept.find(self.agent)
        if made is not None:
            self.shows_later = True
            return made
        prepare()
        with edits.locked(self.agent) as row:
            made = kept.find(row)
            if made is None:
                made = make(row)
                kept.store(row, made)
            else:
                self.shows_later = True
            return made

    def files(self, numbers: Sequence[int]) -> list[dict[str, str | None]]:
        """The vault's files of these memories. A later text may have given a file its name, so the key is checked
        after this."""
        self.shows_later |= bool(self.agent.vault_path)
        return writer.files_or_reasons(self.agent, numbers)

    def kept(self) -> Kept | None:
        """The stored result of this request. None if the request has no Idempotency-Key. Raises Invalid."""
        key = self.request.headers.get("Idempotency-Key", "")
        if not key:
            return None
        if len(key) > MAX_KEY:
            raise Invalid("Idempotency-Key", f"is longer than {MAX_KEY} characters")
        silo = Silo.for_agent(self.agent)
        fingerprint = silo.digest(f"{self.request.path}/{json.dumps(self.request.data, sort_keys=True)}", "request")
        # A claim ends what was stored before. The former holder may have altered those memories.
        return Kept(silo.digest(f"{self.agent.claimed_at}/{key}", "idempotency"), fingerprint)


class TenantView(View):
    """A view for tenants' keys. A key gives access only to metadata of its tenant's agents."""

    key: TenantKey
    tenant: Tenant
    actor: Actor

    def check_permissions(self, request: Request) -> None:
        if not isinstance(request.auth, TenantKey):
            self.permission_denied(request, "This path needs a tenant's key.")
        self.key = request.auth
        self.tenant, self.actor = self.key.tenant, Actor.operator(self.key.prefix)


def describe_list(operation_id: str, query: type[Body], name: str, item: Out) -> Callable[[F], F]:
    """Describe a GET that returns one page of a list (`listed`)."""
    page = inline_serializer(name, {"results": item(many=True), "next": serializers.CharField(allow_null=True)})
    return extend_schema(operation_id=operation_id, parameters=[query], responses=page)


def newest_first(model: type[M], agent: Agent, query: dict[str, Any]) -> QuerySet[M]:
    """The agent's rows for one page of `listed`. The row with the highest number is first."""
    rows = model._default_manager.filter(agent_id=agent.pk).order_by("-number")
    rows = rows.filter(number__lt=query["cursor"]) if query["cursor"] else rows
    return rows[: query["limit"] + 1]


PAGE_CHARACTERS = 4_000_000  # of the contents in one response: JSON can make six bytes of a character


def listed(
    found: Iterable[T],
    limit: int,
    cursor: str,
    to_json: Callable[[list[T]], Iterable[Any]],
    weigh: Callable[[T], int] = lambda _: 0,
) -> Response:
    """The response with one page of at most `limit` items. `found` has one more item if there is a next page.

    `next` is the attribute `cursor` of the last item. `weigh` returns the characters of an item: a page has at most
    PAGE_CHARACTERS, or one item.
    """
    page: list[T] = []
    following, characters = None, 0
    for each in found:
        characters += weigh(each)
        if page and (len(page) == limit or characters > PAGE_CHARACTERS):
            following = str(attrgetter(cursor)(page[-1]))
            break
        page.append(each)
    return Response({"results": list(to_json(page)), "next": following})
