"""The pages of a grant. The person can see what the grant covers, read content, and end the grant.

Only the person who asked for the grant can open these pages, after sign-in with both factors. Everybody else gets a
404. Content can be read only while the grant is active. The grant's first page shows only metadata, and opening it is
not recorded. Each read is a POST. The audit trail records it before the content is shown
(`memory.consent.granted_reads`).
"""

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from functools import partial, wraps
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from audit.consent import Person
from audit.consent import Request as AccessRequest
from audit.models import ActorKind, AuditEntry, Operation
from audit.models import State as RequestState
from audit.trail import Actor
from config import PROGRAM
from config.errors import DomainError
from config.plain import plain
from config.templatetags.moments import moment
from memory.access import authentication
from memory.access.roles import Action, may
from memory.admin.base.permissions import visible_tenant_ids
from memory.consent import granted_reads, grants, requests
from memory.consent.granted_reads import State, Step
from memory.errors import Invalid, NotFound
from memory.mail import wording
from memory.models import Agent, Kind, Layer, layer_of

PAGE_SIZE = 50  # memories or entries per list page
LISTS = {"active": "Active memories", "beneath": "Memories beneath", "discarded": "Discarded memories"}
CHANGES = {"edits": "Changes"}
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


class Grant(NamedTuple):
    """An access request and its present state. The person who opens the page made this request."""

    agent: Agent
    request: AccessRequest
    person: Person

    @property
    def url(self) -> str:
        return grant_url(self.agent.label, self.request.number)

    @property
    def is_open(self) -> bool:
        """Whether the grant is active. Each read checks this again in the audit trail."""
        return self.request.state == RequestState.ACTIVE and bool(self.agent.wrapped_key)

    @property
    def lists(self) -> dict[str, str]:
        """The lists of the page. Memories that the request names are in one list."""
        scope = self.request.scope
        if scope.kind not in grants.OF_MEMORIES:
            return CHANGES
        return ({"listed": "Memories"} if scope.numbers else LISTS) | CHANGES

    def context(self) -> dict[str, Any]:
        """The template context of every page of the grant. The clock on the page uses milliseconds."""
        until = self.request.until
        return {
            "grant": self,
            "scope": wording.scope(self.request.scope),
            "is_of_memories": self.request.scope.kind in grants.OF_MEMORIES,
            "until_ms": int(until.timestamp() * 1_000) if until else 0,
            "now_ms": int(timezone.now().timestamp() * 1_000),
        }


View = Callable[[HttpRequest, Grant], HttpResponse]


def grant_url(agent_label: str, number: int) -> str:
    """The URL of a grant's page. A grant has the same number as its access request."""
    tenant, _, agent = agent_label.partition("/")
    return reverse("reading", args=[tenant, agent, number])


def grant_view(view: View) -> Callable[..., HttpResponse]:
    """A decorator for views of a grant. The view returns a 404 unless the grant belongs to the signed-in person.

    If the view raises a DomainError, a page shows the error.
    """

    @plain
    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def wrapped(request: HttpRequest, tenant: str, agent: str, number: int) -> HttpResponse:
        label = f"{tenant}/{agent}"
        if not admin.site.has_permission(request):
            return redirect_to_login(grant_url(label, number), reverse("admin:login"))
        grant = _own_grant(request, label, number)
        visible_tenant_ids(request)  # so that the session and the role are checked again under the agent's lock
        try:
            return view(request, grant)
        except DomainError as refusal:
            status = 400 if isinstance(refusal, Invalid) else 409
            return render(request, "reading/refused.html", grant.context() | {"refusal": str(refusal)}, status=status)

    return wrapped


def post_view(view: View) -> Callable[..., HttpResponse]:
    """A decorator like `grant_view`, for views that only accept POST. A GET redirects to the grant's page."""

    @wraps(view)
    def checked(request: HttpRequest, grant: Grant) -> HttpResponse:
        return view(request, grant) if request.method == "POST" else HttpResponseRedirect(grant.url)

    return grant_view(checked)


def _own_grant(request: HttpRequest, label: str, number: int) -> Grant:
    account: Any = request.user
    person = Person(account.pk, account.email)
    try:
        agent = authentication.agent_named(label)
    except (NotFound, Invalid):
        raise Http404 from None
    found = requests.get(agent, number)
    is_own = found is not None and (found.person_id, found.asker) == (person.id, person.address)
    if found is None or not (is_own and may(account, Action.ASK, agent.tenant)):
        raise Http404
    requests.expire(agent)
    return Grant(agent, found.at(requests.clock(agent)), person)


@grant_view
def page(request: HttpRequest, grant: Grant) -> HttpResponse:
    """The grant's page, with lists of the memories and entries that the grant covers. If the grant is not active, the
    page shows only the grant's state."""
    if request.method == "POST":
        return HttpResponseRedirect(grant.url)
    if not grant.is_open:
        ended = AuditEntry.objects.filter(agent_id=grant.agent.pk, operation=Operation.ACCESS_REVOKED)
        own = ended.filter(detail__request=grant.request.number, actor_kind=ActorKind.PERSON)
        is_own_end = own.filter(actor_label=grant.person.address).exists()
        return render(request, "reading/over.html", grant.context() | {"is_own_end": is_own_end})
    which, after = _list_position(grant, request.GET)
    found = _list_rows(grant, which, after)
    rows = found[:PAGE_SIZE]
    context = {"which": which, "lists": grant.lists, "after": after, "rows": rows}
    if which != "edits":
        context["readable"] = [row.number for row in rows if row.redacted_at is None]
    if len(found) > PAGE_SIZE:
        context["next_after"] = rows[-1].seq if which == "edits" else rows[-1].number
    return render(request, "reading/grant.html", grant.context() | context)


def _list_rows(grant: Grant, which: str, after: int) -> list[Any]:
    """The rows of one page of a list. If there is a next page, the result has one more row."""
    scope = grant.request.scope
    if which == "edits":
        return list(grants.readable_entries(grant.agent, scope).filter(seq__gt=after)[: PAGE_SIZE + 1])
    rows = grants.readable_memories(grant.agent, scope)
    if which != "listed":
        rows = rows.in_layers(Kind.values if which == "active" else [which])
    return list(rows.filter(number__gt=after)[: PAGE_SIZE + 1])


@post_view
def memories(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Read the present content of some memories."""
    numbers = _numbers(request.POST.get("numbers", ""))
    reads = granted_reads.memories(grant.agent, grant.request.number, grant.person, numbers)
    redacted = sorted(set(numbers) - {read.memory.number for read in reads})
    context = {"reads": reads, "redacted": redacted, "back": _back_url(grant, request)}
    return render(request, "reading/memories.html", grant.context() | context)


@post_view
def entry(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Show the memories that an entry changed: before and after the change. A page has up to `MAX_READ` memories."""
    seq, after = _number("entry", request.POST.get("seq", "")), request.POST.get("above", "")
    start = _number("above", after) if after else 0
    steps = granted_reads.entry(grant.agent, grant.request.number, grant.person, seq, after=start)
    until = time.thread_time() + MOST_SECONDS
    context = {
        "seq": seq,
        "done": grants.readable_entries(grant.agent, grant.request.scope).filter(seq=seq).first(),
        "steps": [step_diff(step, until) for step in steps],
        "next_above": steps[-1].number if len(steps) == granted_reads.MAX_READ else 0,
        "back": _back_url(grant, request),
    }
    return render(request, "reading/entry.html", grant.context() | context)


@post_view
def token(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Show the token for commands. The token is a secret, so only the response to a POST shows it."""
    text = grants.make_token(grant.agent, grant.request.number, grant.person)
    return render(request, "reading/token.html", grant.context() | {"token": text, "program": PROGRAM})


@post_view
def end(request: HttpRequest, grant: Grant) -> HttpResponse:  # noqa: ARG001  the signature of a view
    """End the grant now."""
    requests.revoke(grant.agent, grant.request.number, Actor.person(grant.person.address))
    return HttpResponseRedirect(grant.url)


def _numbers(text: str) -> list[int]:
    found = text.split(",", granted_reads.MAX_READ) if text else []
    if not 0 < len(found) <= granted_reads.MAX_READ:
        raise Invalid("numbers", f"must have 1 to {granted_reads.MAX_READ} memory numbers, separated by commas")
    return [_number("numbers", each) for each in found]


def _number(field: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Invalid(field, "must be a whole number, at least 1")
    return int(text)


def _list_position(grant: Grant, query: Any) -> tuple[str, int]:
    """The chosen list, and the number after which the page starts. The default replaces a value that is not valid."""
    which, after = query.get("show", ""), query.get("after", "")
    return (which if which in grant.lists else next(iter(grant.lists))), (int(after) if _NUMBER.fullmatch(after) else 0)


def _back_url(grant: Grant, request: HttpRequest) -> str:
    """The URL of the list from which the person came."""
    which, after = _list_position(grant, request.POST)
    return f"{grant.url}?{urlencode({'show': which, 'after': after})}"


# --- the difference that an entry made to a memory


MAX_PARTS = 500  # words or lines of a text to compare; the time can grow with their third power
MOST_SECONDS = 0.5  # of CPU time for a page; then the other texts are shown whole
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """A part of a text. `kind` is same, removed or added."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class StepDiff:
    """What one entry changed in one memory."""

    number: int
    what: str
    is_redacted: bool  # before the entry, after it, or both
    text: list[Piece]
    tags: list[Piece]
    fields: list[tuple[str, str, str]]  # name, before, after

    @property
    def is_same_text(self) -> bool:
        return all(piece.kind == "same" for piece in self.text)


def step_diff(step: Step, until: float) -> StepDiff:
    before, after = _content(step.before), _content(step.after)
    is_redacted = any(state is not None and state.opened is None for state in (step.before, step.after))
    text = pieces(before[0], after[0], until)
    return StepDiff(step.number, _what(step), is_redacted, text, _tags(before[1], after[1]), list(_fields(step)))


def _content(state: State | None) -> tuple[str, tuple[str, ...]]:
    return (state.opened.content, state.opened.tags) if state is not None and state.opened else ("", ())


def _what(step: Step) -> str:
    if step.before is None or step.after is None:
        return "new" if step.after else "gone"
    was, now = (layer_of(state.fields) for state in (step.before, step.after))
    if was != now:
        moved = "restored" if was == Layer.DISCARDED else f"moved to {now}" if now in Kind.values else "moved beneath"
        return "discarded" if now == Layer.DISCARDED else moved
    return "rewritten" if _content(step.before) != _content(step.after) else "changed"


def _tags(before: tuple[str, ...], after: tuple[str, ...]) -> list[Piece]:
    both = {*before} & {*after}
    kept = [Piece("same" if tag in both else "removed", tag) for tag in before]
    return kept + [Piece("added", tag) for tag in after if tag not in both]


def _fields(step: Step) -> Iterator[tuple[str, str, str]]:
    one, other = (state.fields if state else {} for state in (step.before, step.after))
    for name in _FIELDS:
        before, after = _text(one.get(name)), _text(other.get(name))
        if before != after:
            yield _LABELS.get(name, name.removesuffix("_at").replace("_", " ")), before, after


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return moment(value)
    return "yes" if value is True else str(value or "")


_FIELDS = ["kind", "category", "project", "origin", "origin_latest", "tokens"]
_FIELDS += ["constitutional", "beneath_at", "discarded_at", "superseded_by", "redacted_at"]
_LABELS = {"origin": "origin date", "origin_latest": "latest origin date", "constitutional": "protected"}


def pieces(before: str, after: str, until: float = math.inf) -> list[Piece]:
    """Compare two texts. Returns their equal and different pieces, in order.

    The texts are compared by words. If they have too many words, they are compared by lines. If they also have too many
    lines, or if this thread has used CPU time up to `until`, the result has the whole old text and the whole new text.
    """
    if before == after:
        return [Piece("same", before)] if before else []
    for split in (_WORDS.findall, partial(str.splitlines, keepends=True)) if time.thread_time() < until else ():
        one, other = split(before), split(after)
        if max(len(one), len(other)) <= MAX_PARTS:
            return list(_compare(one, other))
    return _changed(before, after)


def _compare(one: list[str], other: list[str]) -> Iterator[Piece]:
    for kind, a, b, c, d in SequenceMatcher(None, one, other).get_opcodes():
        if kind == "equal":
            yield Piece("same", "".join(one[a:b]))
        else:
            yield from _changed("".join(one[a:b]), "".join(other[c:d]))


def _changed(before: str, after: str) -> list[Piece]:
    return [Piece(kind, text) for kind, text in (("removed", before), ("added", after)) if text]


_GRANT = "<slug:tenant>/<slug:agent>/<int:number>/"
urlpatterns = [
    path(_GRANT, page, name="reading"),
    path(f"{_GRANT}memories/", memories, name="reading_memories"),
    path(f"{_GRANT}entry/", entry, name="reading_entry"),
    path(f"{_GRANT}token/", token, name="reading_token"),
    path(f"{_GRANT}end/", end, name="reading_end"),
]
