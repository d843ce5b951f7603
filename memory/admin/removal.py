"""Admin actions to request that content is deleted permanently. A tenant's owner asks, and the agent's side decides."""

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from audit.consent import PROPOSAL, REMOVALS, Request
from audit.models import ActorKind, State
from audit.trail import Actor
from config.templatetags.moments import moment
from config.wording import several
from memory.access.roles import Action
from memory.admin.base import links
from memory.admin.base.actions import MAX_LISTED, AdminAction, MemoryAction, by_agent
from memory.admin.base.forms import AdminForm
from memory.admin.base.permissions import actor_of
from memory.admin.base.texts import who_decides
from memory.consent import erasure, redaction, requests, versions
from memory.consent.requests import MAX_REASON
from memory.mail import wording
from memory.models import Agent, Memory


class ReasonForm(AdminForm):
    reason = forms.CharField(
        max_length=MAX_REASON,
        widget=forms.Textarea({"rows": 3}),
        help_text="stored permanently, and the agent's side can read it. Give a ticket's number, and no personal data.",
    )


class RedactionForm(ReasonForm):
    excluded = forms.CharField(
        required=False,
        max_length=1_000,
        label="Keep",
        help_text="numbers of memories of the lineage that stay, separated by commas",
    )

    def clean_excluded(self) -> list[int]:
        given = self.cleaned_data["excluded"].replace(",", " ").split()
        if not all(_NUMBER.fullmatch(each) for each in given):
            raise forms.ValidationError("Enter numbers of memories, separated by commas.")
        return [int(each) for each in given]


_NUMBER = re.compile("[1-9][0-9]{0,17}")


class AskRedaction(MemoryAction):
    name, label, needs, form, is_destructive = ("ask_redaction", "Ask for removal", Action.REMOVE, RedactionForm, True)
    is_split = False  # it makes one request, and changes no memory

    def is_offered(self, row: Memory) -> bool:
        return row.redacted_at is None or not versions.gone(row.agent, [row])

    def preview(self, rows: Sequence[Memory]) -> Iterable[str]:
        chosen = by_agent(filter(self.is_offered, rows))
        if left := len(rows) - sum(map(len, chosen.values())):
            yield f"Already redacted, therefore skipped: {left:,}."
        for agent, numbers in chosen.items():
            yield from _preview(agent, numbers)
        yield _NOTHING_YET

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, values: dict[str, Any]) -> str:
        return _filed(agent, requests.ask_redaction(agent, numbers, by, **values))


def _preview(agent: Agent, numbers: list[int]) -> Iterator[str]:
    figures = redaction.preview(agent, numbers)
    yield (
        f"{agent.label}: if the agent's side agrees, this permanently deletes the content of "
        f"{several(len(figures.memories), 'memory', 'memories')} ({figures.active:,} of them active) and of "
        f"{several(figures.changes, 'earlier version')} in the audit trail. "
        f"Core tokens: {figures.tokens_before:,} → {figures.tokens_after:,}."
    )
    if figures.lineage:
        listed = wording.numbered([each.number for each in figures.lineage])
        yield f"{agent.label}: this includes their lineage: {listed}."
    if figures.constitutional:
        yield f"{agent.label}: these memories are protected: {wording.numbered(figures.constitutional)}."
    if figures.related:
        listed = wording.numbered([each.number for each in figures.related])
        yield f"{agent.label}: other memories may have the same content, but are not deleted: {listed}."
    yield from _former_vault_lines(agent, figures.former_vaults)


def _former_vault_lines(agent: Agent, former_vaults: Iterable[str]) -> Iterator[str]:
    for path in former_vaults:
        yield f"{agent.label}: files in a former vault are not deleted. Delete them yourself: {path}"


class AskErasure(AdminAction):
    name, label, needs, form, is_destructive = "ask_erasure", "Ask for erasure", Action.REMOVE, ReasonForm, True

    def is_offered(self, row: Agent) -> bool:
        return bool(row.wrapped_key)

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        for row in filter(self.is_offered, rows):
            figures = erasure.preview(row)
            yield (
                f"{row.label}: if the agent's side agrees, this destroys the key to "
                f"{several(figures.memories, 'memory', 'memories')} and to their copies in "
                f"{several(figures.entries, 'audit entry', 'audit entries')}. Older backups contain this key, wrapped "
                f"by silo key {figures.silo_key}. Such a backup stays readable until you delete it."
            )
            if figures.file:
                yield f"{row.label}: the memory file is not deleted. Delete it yourself: {figures.file}"
            if figures.vault:
                yield f"{row.label}: the files in the vault are deleted: {figures.vault}"
            yield from _former_vault_lines(row, figures.former_vaults)
        yield _NOTHING_YET

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        return _filed(row, requests.ask_erasure(row, actor_of(by), **values))


class Withdraw(AdminAction):
    name, label, needs = "withdraw_removals", "Withdraw removal requests", Action.REMOVE

    def is_offered(self, row: Agent) -> bool:
        return any(each.is_removal and each.state == State.OPEN for each in requests_of(row))

    def preview(self, rows: Sequence[Agent]) -> Iterable[str]:
        for row in rows:
            waiting = requests.waiting(row, *REMOVALS)
            yield f"{row.label}: {several(len(waiting), 'open removal request')}. This withdraws only your requests."
            for request in waiting[:MAX_LISTED]:
                what = _description(request, len(request.left))
                on = moment(request.asked_at)
                yield format_html("{}: request {}, {} on {}.", row.label, request.number, what, on)
            if len(waiting) > MAX_LISTED:
                yield f"{row.label}: and {len(waiting) - MAX_LISTED:,} more."

    def do(self, row: Agent, by: Any, values: dict[str, Any]) -> str:
        actor = actor_of(by)
        own = [each for each in requests.waiting(row, *REMOVALS) if requests.is_own(each, actor)]
        for request in own:
            requests.deny(row, request.number, actor)
        return f"{several(len(own), 'request')} withdrawn." if own else "none of the open requests is yours."


_NOTHING_YET = "Nothing is deleted now: the agent's side decides first. Nobody can restore deleted content."


def _filed(agent: Agent, request: Request) -> str:
    return f"requested, as entry {request.number} of the audit trail. {_who_decides(agent)}"


def _who_decides(agent: Agent) -> str:
    return f"Next, {who_decides(agent)} decides."


def requests_of(agent: Agent) -> list[Request]:
    """The proposals and the removal requests of a page's agent. A page reads them once."""
    found: list[Request] | None = vars(agent).get("_requests")
    if found is None:
        found = vars(agent)["_requests"] = requests.present(agent, PROPOSAL, *REMOVALS)
    return found


def open_proposal(agent: Agent) -> Request | None:
    return next((each for each in requests_of(agent) if each.operation == PROPOSAL and each.state == State.OPEN), None)


def status(agent: Agent) -> SafeString | None:
    """One line about the open removal requests. If no request is open, the line is about the last decided request."""
    found = [each for each in requests_of(agent) if each.is_removal]
    opened = [each for each in found if each.state == State.OPEN]
    if not opened:
        return _last_settled(agent, found)
    lines = [
        format_html(
            "{} on {} ({}). {} Until then, nothing is removed.",
            *(_description(each, len(each.left)), moment(each.asked_at), _entry(agent, each), _who_decides(agent)),
        )
        for each in opened[:MAX_LISTED]
    ]
    if len(opened) > MAX_LISTED:
        lines.append(format_html("And {} more.", f"{len(opened) - MAX_LISTED:,}"))
    return format_html_join(" ", "{}", ([line] for line in lines))


def _entry(agent: Agent, request: Request) -> SafeString | None:
    return links.link(agent.pk, "entry", request.number, f"entry {request.number}")


def _description(request: Request, memories: int) -> str:
    what = "erasure" if request.is_erasure else several(memories, "memory", "memories")
    return f"{what}, requested by {request.asked_by}"


def _last_settled(agent: Agent, found: Iterable[Request]) -> SafeString | None:
    """One line about the last decided request. Skips requests whose content was deleted by another request."""
    last = max((each for each in found if each.state in _RESULTS), key=attrgetter("settled_by"), default=None)
    if last is None:
        return None
    result, by = _RESULTS[last.state], _SIDES.get(last.decided_by)
    if last.state == State.DECLINED and not by:
        result = "withdrawn"
    side = f" by its {by}" if by else ""
    described = _description(last, len(last.memories))
    return format_html("{} ({}): {} on {}{}.", described, _entry(agent, last), result, moment(last.decided_at), side)


_RESULTS = {State.CARRIED_OUT: "carried out", State.DECLINED: "denied"}
_SIDES = {ActorKind.AGENT.value: "runtime", ActorKind.STEWARD.value: "steward"}
