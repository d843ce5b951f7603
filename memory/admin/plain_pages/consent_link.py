"""The pages that a steward opens with a mailed link. They show a request, and buttons to approve or deny it.

A page needs no sign-in. A GET decides nothing. A POST saves the decision and redirects back to the page. The only
cookie is the CSRF cookie.
"""

from typing import Any

from django.db.models import Count, Max, Min
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from audit.consent import OPEN, PROPOSAL, Request, same_domain
from audit.models import ActorKind, Change, State
from config import at_once
from config.errors import DomainError
from config.plain import plain
from config.wording import several
from memory.access.roles import roles_in
from memory.consent import grants, links, notices, redaction, requests
from memory.consent.links import Opened
from memory.errors import InvalidLink, TrailChanged
from memory.mail import letters, wording
from memory.models import Memory, Person


@at_once.limited
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
            links.decide(token, approve=decision == "approve", shown=request.POST.get("shown", ""))
        elif decision == "revoke":
            links.revoke(token)
    except TrailChanged as refusal:
        error = str(refusal)
    except DomainError as refusal:
        error = f"{refusal} Tell the operator of this service."
    opened = links.look(token)
    if error and _is_offered(decision, opened):
        return _page(request, opened, error)
    return HttpResponse(status=303, headers={"Location": reverse("consent", args=[token])})


def _is_offered(decision: str, opened: Opened) -> bool:
    """Whether the page has the button for this decision now."""
    is_active, may_decide = opened.request.state == State.ACTIVE, _may_decide(opened)
    return is_active if decision == "revoke" else may_decide and timezone.now() < opened.until


def _may_decide(opened: Opened) -> bool:
    is_own = requests.is_by(opened.agent.steward, opened.request.asker, opened.request.asked_by)
    return opened.request.state in OPEN and not (_is_erased(opened) or is_own)


def _is_erased(opened: Opened) -> bool:
    """Whether an erasure prevents a decision. After an erasure, only a request for redaction can still be decided."""
    return not (opened.agent.wrapped_key or (opened.request.is_removal and not opened.request.is_erasure))


def _page(request: HttpRequest, opened: Opened, error: str = "") -> HttpResponse:
    agent, consent_request = opened.agent, opened.request
    template, context = _template(opened)
    may_decide, may_revoke = _may_decide(opened), opened.request.state == State.ACTIVE
    askers = letters.requesters(consent_request.asker, consent_request.asked_by)
    context |= {
        "consent_request": consent_request,
        "who": wording.requester(consent_request),
        "role": _role(opened),
        "reason": wording.quoted(consent_request.reason),
        "until": opened.until if consent_request.is_removal else consent_request.decide_until,
        "agent": agent.label,
        "state": opened.request.state.value,
        "error": error,
        "is_open": opened.request.state in OPEN,
        "is_erased": _is_erased(opened),
        "may_decide": may_decide,
        "may_revoke": may_revoke,
        "is_of_own_domain": any(same_domain(agent.steward, each) for each in askers),
        "decided_by": f"the agent’s {'steward' if consent_request.decided_by == ActorKind.STEWARD else 'runtime'}",
        "csrf_token": get_token(request) if may_decide or may_revoke else "",  # sets the cookie
    }
    return HttpResponse(render_to_string(f"consent/{template}.html", context), status=409 if error else 200)


def _role(opened: Opened) -> str:
    """What the person who asks is here. "" if the person has no role that counts, or is no longer a member."""
    person_id, request = opened.request.person_id, opened.request
    if not person_id and request.asker_kind == ActorKind.PERSON:
        person_id = Person.objects.filter(email=request.asker).values_list("pk", flat=True).first() or 0
    role = roles_in(opened.agent.tenant).get(person_id)
    return f"{role} of the organisation {opened.agent.tenant} in this service" if role else ""


def _template(opened: Opened) -> tuple[str, dict[str, Any]]:
    """The name of the template for this kind of request, and the context of the template."""
    request = opened.request
    if request.is_removal:
        return "removal", _removal(opened, request)
    if request.operation == PROPOSAL:
        changes = wording.changes(opened.agent, request.proposed) if opened.request.state == State.OPEN else None
        return "proposal", {"changes": changes or wording.proposed(request.proposed)}
    return "request", {
        "contents": wording.contents(request.scope, opened.agent.label),
        "scope": wording.scope(request.scope),
        "is_session": request.scope.kind == "session",
        "figures": _figures(opened) if _may_decide(opened) else None,
        "numbers": wording.numbered(request.scope.numbers),
        "duration": wording.duration(request.seconds),
        "reads": notices.reads(opened.agent, request.number).count(),
    }


def _figures(opened: Opened) -> dict[str, Any]:
    """How many memories the person could read. If the request is about changes: also when the changes were made."""
    if opened.request.scope.kind in grants.OF_MEMORIES:
        return {"memories": grants.readable_memories(opened.agent, opened.request.scope).count()}
    entries = grants.readable_entries(opened.agent, opened.request.scope)
    changes = Change.objects.filter(agent_id=opened.agent.pk, seq__in=entries.values("seq"))
    memories = changes.aggregate(memories=Count("number", distinct=True))
    return memories | entries.order_by().aggregate(first=Min("at"), last=Max("at"))


def _removal(opened: Opened, request: Request) -> dict[str, Any]:
    context = {
        "is_too_old": timezone.now() >= opened.until,
        "what": wording.removed(request),
        "numbers": wording.numbered(request.memories),
        "heading": "all memories",
    }
    if opened.request.state != State.OPEN or request.is_erasure:
        return context
    figures = redaction.preview(opened.agent, request.left, request.excluded, request.version)
    many = len(figures.memories)
    times = Memory.objects.of(opened.agent).numbered(figures.memories)
    return context | {
        "heading": "one version of a memory" if request.version else several(many, "memory", "memories"),
        "in_use": "" if request.version else _in_use(figures.active, many),
        "recorded": times.aggregate(first=Min("origin"), last=Max("origin")),
        "lineage": wording.numbered([each.number for each in figures.lineage]),
        "figures": figures,
        "constitutional": ", ".join(map(str, figures.constitutional)),
        "related": wording.numbered([each.number for each in figures.related]),
    }


def _in_use(active: int, many: int) -> str:
    """How many of the memories are active, in a sentence."""
    if many == 1:
        return "It is in use now." if active else "It is not in use now."
    if active in (0, many):
        all_of_them = "Both" if many == 2 else f"All {many:,}"
        return f"{all_of_them} are in use now." if active else "None of them is in use now."
    return f"{active:,} of them {'is' if active == 1 else 'are'} in use now."
