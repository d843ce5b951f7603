"""Counts the requests of each sender that this process works on. So one sender cannot occupy all threads."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from ipaddress import IPv6Address, ip_address
from threading import Condition
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

PAGES = 2  # of a sender that a process makes at the same time: Python gives each thread the same CPU time
MAX_WAIT = 20  # seconds that a request waits for the others of its sender

# The form that this context carries out: the id of its person, and the key of the row of their session.
session_of_form: ContextVar[tuple[int, str] | None] = ContextVar("session_of_form", default=None)
_running: Counter[object] = Counter()
_ended = Condition()


def begin(limits: Mapping[object, int], *, seconds: float = 0) -> bool:
    """Count a request of these senders that begins. Return False, and count nothing, if one of them already has as many
    requests as its limit, and none ends within `seconds`. Otherwise, the caller must call `end` when it ends."""
    with _ended:
        if not _ended.wait_for(lambda: all(_running[each] < most for each, most in limits.items()), seconds):
            return False
        _running.update(limits.keys())
        return True


def end(senders: Iterable[object]) -> None:
    """Count the end of a request for which `begin` returned True."""
    with _ended:
        for sender in senders:
            _running[sender] -= 1
            if not _running[sender]:
                del _running[sender]
        _ended.notify_all()


def client_address(request: HttpRequest) -> str:
    """The IP address of the client, or the /64 network of an IPv6 address, because one client has a whole /64. Behind a
    proxy, this is the last address in X-Forwarded-For.

    The proxy adds this last address. The client can forge the earlier addresses. REMOTE_ADDR does not help behind a
    proxy, because it is always the proxy's address.
    """
    is_proxied: Any = settings.SECURE_PROXY_SSL_HEADER
    direct = str(request.META.get("REMOTE_ADDR", ""))
    added = request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip() if is_proxied else ""
    for text in (added, direct):
        with suppress(ValueError):
            address = ip_address(text)
            if isinstance(address, IPv6Address):
                return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
            return str(address)
    return direct


def limited(
    view: Callable[..., HttpResponseBase], sender: Callable[[HttpRequest], object] = client_address
) -> Callable[..., HttpResponseBase]:
    """A view that refuses a request if its sender already has too many requests. It answers PAGES of them at a time.
    A streamed response counts until it is closed: its body takes time, too."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        counted, turn, begun = ("page", sender(request)), ("page turn", sender(request)), list[object]()
        response: HttpResponseBase | None = None
        try:
            for each, most, seconds in ((counted, max(1, settings.WEB_THREADS // 4), 0), (turn, PAGES, MAX_WAIT)):
                if not begin({each: most}, seconds=seconds):
                    text = "You have too many requests at once. Load the page again."
                    return HttpResponse(text, "text/plain", 429)
                begun.append(each)
            response = view(request, *args, **kwargs)
            return response.render() if hasattr(response, "render") else response  # this can take long, too
        finally:
            if response is not None and response.streaming:
                response._resource_closers.append(partial(end, begun))  # type: ignore[attr-defined]  # as Django does
            else:
                end(begun)

    return respond


def persons_limited(get_response: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A middleware that limits the requests of each signed-in person. A preview or a verification takes CPU time. Each
    of these requests has a context of its own, so context variables that it sets end with it."""

    def alone(request: HttpRequest) -> HttpResponseBase:
        vars(request)["has_own_context"] = True
        context, session = copy_context(), request.session
        if request.method == "POST":
            context.run(session_of_form.set, (request.user.pk, session.row_key))  # type: ignore[arg-type, attr-defined]
        return context.run(get_response, request)

    limited_response = limited(alone, lambda request: request.user.pk)

    def respond(request: HttpRequest) -> HttpResponseBase:
        is_page = settings.SESSION_COOKIE_NAME in request.COOKIES and not request.path.startswith(settings.STATIC_URL)
        return (limited_response if is_page and request.user.is_authenticated else get_response)(request)

    return respond
