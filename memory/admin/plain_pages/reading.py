"""What a person does with a grant of theirs: see what it covers, read some of it, end it.

The address is the link: it opens for whoever asked, signed in with both factors, while the grant is in force. For
anybody else there is no such page. Looking at the grant's page shows figures and writes nothing; each read is a POST,
recorded in the agent's trail before a word is shown (`memory.consent.granted_reads`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from functools import partial, wraps
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path, reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from audit.consent import Person, Standing, standings
from audit.models import AccessState
from audit.trail import Actor
from config.errors import DomainError
from config.plain import plain
from memory.access import authentication
from memory.access.roles import Action, may
from memory.consent import grant_tokens, granted_reads, grants
from memory.consent.granted_reads import State, Step
from memory.errors import Invalid, NotFound
from memory.mail import wording
from memory.models import Agent

A_PAGE = 50  # memories, or entries, of a list
LISTS = ("active", "discarded", "edits")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Grant:
    """A request of whoever looks at it, as it stands."""

    agent: Agent
    standing: Standing
    state: AccessState
    person: Person

    @property
    def address(self) -> str:
        return address(self.agent.label, self.standing.number)

    @property
    def is_open(self) -> bool:
        """Whether its page offers anything. Each read asks again, of the trail itself."""
        return self.state == AccessState.ACTIVE and bool(self.agent.wrapped_key)

    @property
    def lists(self) -> tuple[str, ...]:
        return LISTS if self.standing.scope.kind in grants.OF_MEMORIES else LISTS[2:]

    def told(self) -> dict[str, Any]:
        """What each of its pages says about it. Milliseconds are for the clock on the page."""
        until = self.standing.until
        return {
            "grant": self,
            "scope": wording.scope(self.standing.scope),
            "is_of_memories": self.standing.scope.kind in grants.OF_MEMORIES,
            "until_ms": int(until.timestamp() * 1_000) if until else 0,
            "now_ms": int(timezone.now().timestamp() * 1_000),
        }


View = Callable[[HttpRequest, Grant], HttpResponse]


def address(agent_label: str, number: int) -> str:
    """Of the page of the grant that a request of this number became, or may become."""
    tenant, _, agent = agent_label.partition("/")
    return reverse("reading", args=[tenant, agent, number])


def held(view: View) -> Callable[..., HttpResponse]:
    """A view of a grant of one's own. Whatever else is asked for looks like a page that is not there."""

    @plain
    @require_http_methods(["GET", "HEAD", "POST"])
    @wraps(view)
    def opened(request: HttpRequest, tenant: str, agent: str, number: int) -> HttpResponse:
        label = f"{tenant}/{agent}"
        if not admin.site.has_permission(request):
            return redirect_to_login(address(label, number), reverse("admin:login"))
        grant = _held(request, label, number)
        try:
            return view(request, grant)
        except DomainError as refusal:
            status = 400 if isinstance(refusal, Invalid) else 409
            told = {"refusal": str(refusal), "grant": grant}
            return render(request, "reading/refused.html", told, status=status)

    return opened


def posted(view: View) -> Callable[..., HttpResponse]:
    """The same, of what is done by a POST. Whoever comes by its address is sent to the grant's page."""

    @wraps(view)
    def done(request: HttpRequest, grant: Grant) -> HttpResponse:
        return view(request, grant) if request.method == "POST" else HttpResponseRedirect(grant.address)

    return held(done)


def _held(request: HttpRequest, label: str, number: int) -> Grant:
    account: Any = request.user
    person = Person(account.pk, account.email)
    try:
        agent = authentication.agent_named(label)
    except (NotFound, Invalid):
        raise Http404 from None
    standing = standings(agent.pk, number).get(number)
    if standing is None or (standing.person_id, standing.person) != (person.id, person.address):
        raise Http404
    if not may(account, Action.ASK, agent.tenant):
        raise Http404
    return Grant(agent, standing, grants.at_present(agent, standing), person)


@held
def page(request: HttpRequest, grant: Grant) -> HttpResponse:
    """What the grant is, and what may be read by it. Of one that is not in force, its state alone."""
    if request.method == "POST":
        return HttpResponseRedirect(grant.address)
    if not grant.is_open:
        return render(request, "reading/over.html", grant.told())
    which, after = _place(grant, request.GET)
    found = _listed(grant, which, after)
    rows = found[:A_PAGE]
    told = {"which": which, "lists": grant.lists, "after": after, "rows": rows}
    if which != "edits":
        told["readable"] = [row.number for row in rows if row.redacted_at is None]
    if len(found) > A_PAGE:
        told["next_after"] = rows[-1].seq if which == "edits" else rows[-1].number
    return render(request, "reading/grant.html", grant.told() | told)


def _listed(grant: Grant, which: str, after: int) -> list[Any]:
    """A page of a list, and one more where there is another page."""
    scope = grant.standing.scope
    if which == "edits":
        return list(grants.readable_entries(grant.agent, scope).filter(seq__gt=after)[: A_PAGE + 1])
    rows = grants.readable_memories(grant.agent, scope).filter(discarded_at__isnull=which == "active", number__gt=after)
    return list(rows[: A_PAGE + 1])


@posted
def memories(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Read some memories as they stand."""
    numbers = _numbers(request.POST.get("numbers", ""))
    reads = granted_reads.memories(grant.agent, grant.standing.number, grant.person, numbers)
    silent = sorted(set(numbers) - {read.memory.number for read in reads})
    told = {"reads": reads, "silent": silent, "back": _back(grant, request)}
    return render(request, "reading/memories.html", grant.told() | told)


@posted
def entry(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Read what an entry did, before and after, a page of its memories."""
    seq, after = _number("entry", request.POST.get("seq", "")), request.POST.get("above", "")
    begun = _number("above", after) if after else 0
    steps = granted_reads.entry(grant.agent, grant.standing.number, grant.person, seq, after=begun)
    told = {
        "seq": seq,
        "done": grants.readable_entries(grant.agent, grant.standing.scope).filter(seq=seq).first(),
        "steps": [shown(step) for step in steps],
        "next_above": steps[-1].number if len(steps) == granted_reads.MOST else 0,
        "back": _back(grant, request),
    }
    return render(request, "reading/entry.html", grant.told() | told)


@posted
def token(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Show the token by which a command reads. It is a secret, so it is on no page that is merely looked at."""
    made = grant_tokens.make(grant.agent, grant.standing.number, grant.person)
    return render(request, "reading/token.html", grant.told() | {"token": made})


@posted
def end(request: HttpRequest, grant: Grant) -> HttpResponse:  # noqa: ARG001  the decorator's signature
    """End the grant now."""
    grants.revoke(grant.agent, grant.standing.number, Actor.person(grant.person.address))
    return HttpResponseRedirect(grant.address)


def _numbers(given: str) -> list[int]:
    found = given.split(",", granted_reads.MOST) if given else []
    if not 0 < len(found) <= granted_reads.MOST:
        raise Invalid("numbers", f"must name 1 to {granted_reads.MOST} memories, with commas between them")
    return [_number("numbers", each) for each in found]


def _number(field: str, given: str) -> int:
    if not _NUMBER.fullmatch(given):
        raise Invalid(field, "must be a number from 1 on")
    return int(given)


def _place(grant: Grant, given: Any) -> tuple[str, int]:
    """Which list, and after which number: of an address, where anything else is as nothing."""
    which, after = given.get("show", ""), given.get("after", "")
    return (which if which in grant.lists else grant.lists[0]), (int(after) if _NUMBER.fullmatch(after) else 0)


def _back(grant: Grant, request: HttpRequest) -> str:
    """To the list that was read from."""
    which, after = _place(grant, request.POST)
    return f"{grant.address}?{urlencode({'show': which, 'after': after})}"


# --- what an entry did to a memory: in its words what stayed, was removed and was added


MOST_PAIRS = 250_000  # of words or lines, that are compared: it takes time with the product of both lengths
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """`kind`: same, removed, added."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Shown:
    """What one entry did to one memory. `silent`: what it said was redacted, before, after or both."""

    number: int
    what: str
    silent: bool
    text: list[Piece]
    tags: list[Piece]
    fields: list[tuple[str, str, str]]  # name, before, after; of a new one all that are set

    @property
    def is_same_text(self) -> bool:
        return all(piece.kind == "same" for piece in self.text)


def shown(step: Step) -> Shown:
    before, after = _said(step.before), _said(step.after)
    silent = any(state is not None and state.opened is None for state in (step.before, step.after))
    text = pieces(before[0], after[0])
    return Shown(step.number, _what(step), silent, text, _tags(before[1], after[1]), list(_fields(step)))


def _said(state: State | None) -> tuple[str, tuple[str, ...]]:
    return (state.opened.content, state.opened.tags) if state is not None and state.opened else ("", ())


def _what(step: Step) -> str:
    if step.before is None or step.after is None:
        return "new" if step.after else "gone"
    gone = [state.fields["discarded_at"] is not None for state in (step.before, step.after)]
    if gone[0] != gone[1]:
        return "discarded" if gone[1] else "restored"
    return "rewritten" if _said(step.before) != _said(step.after) else "changed"


def _tags(before: tuple[str, ...], after: tuple[str, ...]) -> list[Piece]:
    kept = [Piece("same" if tag in after else "removed", tag) for tag in before]
    return kept + [Piece("added", tag) for tag in after if tag not in before]


def _fields(step: Step) -> Iterator[tuple[str, str, str]]:
    one, other = (state.fields if state else {} for state in (step.before, step.after))
    for name in NAMES:
        before, after = _written(one.get(name)), _written(other.get(name))
        if before != after:
            yield NAMES[name], before, after


def _written(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M} UTC"
    return "yes" if value is True else str(value or "")


NAMES = {
    "kind": "kind",
    "category": "category",
    "project": "project",
    "origin": "origin date",
    "tokens": "tokens",
    "constitutional": "protected",
    "discarded_at": "discarded",
    "superseded_by": "superseded by",
    "redacted_at": "redacted",
}


def pieces(before: str, after: str) -> list[Piece]:
    """In order; without those added it reads as before, without those removed as after.

    By words where the texts are short enough, by lines else, and as a whole where neither is.
    """
    if before == after:
        return [Piece("same", before)] if before else []
    for split in (_WORDS.findall, partial(str.splitlines, keepends=True)):
        one, other = split(before), split(after)
        if len(one) * len(other) <= MOST_PAIRS:
            return list(_compared(one, other))
    return _changed(before, after)


def _compared(one: list[str], other: list[str]) -> Iterator[Piece]:
    for kind, a, b, c, d in SequenceMatcher(None, one, other).get_opcodes():
        if kind == "equal":
            yield Piece("same", "".join(one[a:b]))
        else:
            yield from _changed("".join(one[a:b]), "".join(other[c:d]))


def _changed(before: str, after: str) -> list[Piece]:
    return [Piece(kind, text) for kind, text in (("removed", before), ("added", after)) if text]


_OF = "<slug:tenant>/<slug:agent>/<int:number>/"
urlpatterns = [
    path(_OF, page, name="reading"),
    path(f"{_OF}memories/", memories, name="reading_memories"),
    path(f"{_OF}entry/", entry, name="reading_entry"),
    path(f"{_OF}token/", token, name="reading_token"),
    path(f"{_OF}end/", end, name="reading_end"),
]
