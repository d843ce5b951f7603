"""The pages that a steward opens with a mailed link. They show a request, and buttons to approve or deny it.

A page needs no sign-in. A GET decides nothing. A POST saves the decision and redirects back to the page. The only
cookie is the CSRF cookie.
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
from memory.mail.link_letters import requesters


@plain
@require_http_methods(["GET", "HEAD", "POST"])
def link(request: HttpRequest, token: str) -> HttpResponse:
    try:
        answer = _decided(request, token) if request.method == "POST" else _page(request, links.look(token))
    except InvalidLink:
        answer = HttpResponse(render_to_string("consent/broken.html"), status=404)
    # The URL contains the token, so other sites must not see it. "no-referrer" does not work: browsers then send forms
    # with a null origin, which the CSRF check refuses.
    answer["Referrer-Policy"] = "strict-origin"
    return answer


def _decided(request: HttpRequest, token: str) -> HttpResponse:
    """Save the decision and redirect to the page. If the decision fails, but its button is still on the page,
    show the error instead.

    If somebody else has already decided, redirect too.
    """
    decision, error = request.POST.get("decision", ""), ""
    try:
        if decision in ("approve", "deny"):
            links.decide(token, approve=decision == "approve")
        elif decision == "revoke":
            links.revoke(token)
    except DomainError as refusal:
        error = str(refusal)
    opened = links.look(token)
    if error and _is_offered(decision, opened):
        return _page(request, opened, error)
    return HttpResponse(status=303, headers={"Location": reverse("consent", args=[token])})


def _is_offered(decision: str, opened: Opened) -> bool:
    """Whether the page has the button for this decision now."""
    if decision == "revoke":
        return opened.state == AccessState.ACTIVE
    return _may_decide(opened) and timezone.now() < opened.until


def _may_decide(opened: Opened) -> bool:
    return opened.state in _OPEN and not (_is_erased(opened) or _is_own(opened))


_OPEN = (AccessState.REQUESTED, ProposalState.OPEN, RemovalState.OPEN)


def _is_erased(opened: Opened) -> bool:
    """Whether an erasure prevents a decision. After an erasure, only a request for redaction can still be decided."""
    consent_request = opened.request
    return not (opened.agent.wrapped_key or (isinstance(consent_request, Removal) and not consent_request.is_erasure))


def _is_own(opened: Opened) -> bool:
    return any(same_address(opened.agent.steward, each) for each in requesters(opened.request))


def _page(request: HttpRequest, opened: Opened, error: str = "") -> HttpResponse:
    agent, consent_request = opened.agent, opened.request
    template, context = _template(opened)
    may_decide, may_revoke = _may_decide(opened), opened.state == AccessState.ACTIVE
    context |= {
        "consent_request": consent_request,
        "until": opened.until if isinstance(consent_request, Removal) else consent_request.decide_until,
        "agent": agent.label,
        "state": opened.state.value,
        "error": error,
        "is_open": opened.state in _OPEN,
        "is_erased": _is_erased(opened),
        "may_decide": may_decide,
        "may_revoke": may_revoke,
        "is_of_own_domain": any(same_domain(agent.steward, each) for each in requesters(consent_request)),
        "decided_by": "the agent’s steward"
        if consent_request.decided_by == ActorKind.STEWARD
        else "the agent’s runtime",
        "csrf_token": get_token(request) if may_decide or may_revoke else "",  # sets the cookie
    }
    return HttpResponse(render_to_string(f"consent/{template}.html", context), status=409 if error else 200)


def _template(opened: Opened) -> tuple[str, dict[str, Any]]:
    """The name of the template for this kind of request, and the context of the template."""
    if isinstance(opened.request, Standing):
        return "request", _request(opened, opened.request)
    if isinstance(opened.request, Removal):
        return "removal", _removal(opened, opened.request)
    return "proposal", _proposal(opened, opened.request)


def _request(opened: Opened, consent_request: Standing) -> dict[str, Any]:
    return {
        "purpose": wording.quoted(consent_request.purpose),
        "scope": wording.scope(consent_request.scope),
        "numbers": wording.numbered(consent_request.scope.numbers),
        "duration": wording.duration(consent_request.seconds),
        "reads": notices.reads(opened.agent, consent_request.number).count(),
    }


def _proposal(opened: Opened, consent_request: Proposal) -> dict[str, Any]:
    is_past = opened.state != ProposalState.OPEN
    return {
        "who": wording.proposer(consent_request.proposer_kind, consent_request.proposer),
        "changes": wording.proposed(consent_request.proposed)
        if is_past
        else wording.changes(opened.agent, consent_request.proposed),
    }


def _removal(opened: Opened, consent_request: Removal) -> dict[str, Any]:
    context = {
        "is_too_old": timezone.now() >= opened.until,
        "who": wording.requester(consent_request.asker_kind, consent_request.asker, consent_request.asked_by),
        "what": wording.removed(consent_request),
        "numbers": wording.numbered(consent_request.memories),
        "reason": wording.quoted(consent_request.reason),
    }
    if opened.state != RemovalState.OPEN or consent_request.is_erasure:
        return context
    figures = redaction.preview(opened.agent, consent_request.left)
    related = [each.number for each in figures.related]
    return context | {
        "figures": figures,
        "constitutional": wording.all_numbers(figures.constitutional),
        "related": wording.numbered(related),
    }
