"""The pages a steward comes to by a link: what is asked, and yes or no. Signed out: the link is all there is.

To open one decides nothing; a decision is a POST, which leads back to the page. It keeps no session, and no cookie but
that of the form.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from audit.consent import Standing, same_address, same_domain
from audit.models import AccessState, ActorKind
from audit.proposals import Proposal, ProposalState
from audit.removals import Removal, RemovalState
from config.errors import DomainError
from config.plain import plain
from memory.consent import links, notices, redaction
from memory.consent.links import Opened
from memory.errors import InvalidLink
from memory.mail import wording
from memory.mail.link_letters import askers


@plain
@require_http_methods(["GET", "HEAD", "POST"])
def link(request: HttpRequest, token: str) -> HttpResponse:
    try:
        answer = _decided(request, token) if request.method == "POST" else _page(request, links.look(token))
    except InvalidLink:
        answer = HttpResponse(render_to_string("consent/broken.html"), status=404)
    # The token is in the address: no other place is told more than that this one exists. (With "no-referrer" a browser
    # says of a form that it comes from nowhere, and it is refused.)
    answer["Referrer-Policy"] = "strict-origin"
    return answer


def _decided(request: HttpRequest, token: str) -> HttpResponse:
    """Do what the form says, once, and lead back to what is so then: also where somebody else was faster. Where it was
    refused and all is as before, that is told."""
    decision, refused = request.POST.get("decision", ""), ""
    try:
        if decision in ("approve", "deny"):
            links.decide(token, approve=decision == "approve")
        elif decision == "revoke":
            links.revoke(token)
    except DomainError as refusal:
        refused = str(refusal)
    opened = links.look(token)
    if refused and _is_offered(decision, opened):
        return _page(request, opened, refused)
    return HttpResponse(status=303, headers={"Location": reverse("consent", args=[token])})


def _is_offered(decision: str, opened: Opened) -> bool:
    """Whether the page of what it is now has this button."""
    if decision == "revoke":
        return opened.state == AccessState.ACTIVE
    return _may_decide(opened) and timezone.now() < opened.until


def _may_decide(opened: Opened) -> bool:
    return opened.state in _OPEN and not (_is_erased(opened) or _is_own(opened))


_OPEN = (AccessState.REQUESTED, ProposalState.OPEN, RemovalState.OPEN)


def _is_erased(opened: Opened) -> bool:
    """Of an erased silo nothing can be read or changed, but what is sealed in it can still be removed."""
    asked = opened.asked
    return not (opened.agent.wrapped_key or (isinstance(asked, Removal) and not asked.is_erasure))


def _is_own(opened: Opened) -> bool:
    return any(same_address(opened.agent.steward, asker) for asker in askers(opened.asked))


def _page(request: HttpRequest, opened: Opened, refused: str = "") -> HttpResponse:
    agent, asked = opened.agent, opened.asked
    template, shown = _shown(opened)
    may_decide, may_revoke = _may_decide(opened), opened.state == AccessState.ACTIVE
    shown |= {
        "asked": asked,
        "until": opened.until if isinstance(asked, Removal) else asked.decide_until,
        "agent": agent.label,
        "state": opened.state.value,
        "refused": refused,
        "is_open": opened.state in _OPEN,
        "is_erased": _is_erased(opened),
        "may_decide": may_decide,
        "may_revoke": may_revoke,
        "is_of_own_domain": any(same_domain(agent.steward, asker) for asker in askers(asked)),
        "decided_by": "its steward" if asked.decided_by == ActorKind.STEWARD else "its runtime",
        "csrf_token": get_token(request) if may_decide or may_revoke else "",  # which sets the cookie
    }
    return HttpResponse(render_to_string(f"consent/{template}.html", shown), status=409 if refused else 200)


def _shown(opened: Opened) -> tuple[str, dict[str, Any]]:
    """The page's template, and what it says of what is asked."""
    if isinstance(opened.asked, Standing):
        return "request", _request(opened, opened.asked)
    if isinstance(opened.asked, Removal):
        return "removal", _removal(opened, opened.asked)
    return "proposal", _proposal(opened, opened.asked)


def _request(opened: Opened, asked: Standing) -> dict[str, Any]:
    return {
        "purpose": wording.quoted(asked.purpose),
        "scope": wording.scope(asked.scope),
        "numbers": wording.numbered(asked.scope.numbers),
        "duration": wording.duration(asked.seconds),
        "reads": notices.reads(opened.agent, asked.number).count(),
    }


def _proposal(opened: Opened, asked: Proposal) -> dict[str, Any]:
    is_past = opened.state != ProposalState.OPEN
    return {
        "who": wording.proposer(asked.proposer_kind, asked.proposer),
        "changes": wording.proposed(asked.proposed) if is_past else wording.changes(opened.agent, asked.proposed),
    }


def _removal(opened: Opened, asked: Removal) -> dict[str, Any]:
    shown = {
        "is_too_old": timezone.now() >= opened.until,
        "who": wording.asker(asked.asker_kind, asked.asker, asked.asked_by),
        "what": wording.removed(asked),
        "numbers": wording.numbered(asked.memories),
        "reason": wording.quoted(asked.reason),
    }
    if opened.state != RemovalState.OPEN or asked.is_erasure:
        return shown
    figures = redaction.preview(opened.agent, asked.left)
    related = [each.number for each in figures.related]
    return shown | {
        "figures": figures,
        "constitutional": wording.every(figures.constitutional),
        "related": wording.numbered(related),
    }
