"""If a model does not respond, it is closed: for a while, no process calls it. So an outage does not make every session
fail.

Each provider and each model has a table row. After two failures in a row, of callers of two tenants, a model is closed
for 15 seconds. After this pause, one caller calls the model, and the others wait for the result. After each further
failure, the pause doubles, up to 5 minutes. If a server requests a pause with `Retry-After`, the agent waits, and once
the model is closed, all callers wait.

A provider is closed as a whole if it cannot be reached, or if two of its models fail, for two tenants. If only one
model fails, this model may be slow or over its quota, so the provider's other models stay open. Any response opens the
provider again. One tenant is enough if no other tenant has agents with this model, or with this provider.

Other failures are counted for each agent, and close the model only for this agent: further ones of one tenant, because
its texts may cause them, and those of models that have never answered, because anybody can name such a model.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from memory.access import authority
from memory.errors import AuthorityBroken, TrailShortened
from memory.models import Agent
from refinement.llm.base import ModelError, ModelNotConfigured, NoModel
from refinement.models import Provider

FAILURES = 2  # in a row, after which a model is closed
FIRST, LONGEST = timedelta(seconds=15), timedelta(minutes=5)
RECHECK = timedelta(seconds=30)
EMBEDDER = "embed:"  # at the beginning of the names of embedders
TOO_LONG = 86_400.0  # seconds, more than any call has

log = structlog.get_logger("palimpsest.models")


def of(model: str) -> str:
    """The provider of a model `provider/name`."""
    return model.partition("/")[0][:20]


def is_number(name: str) -> bool:
    """Whether it is the number of an agent."""
    return name.isascii() and name.isdigit() and len(name) < 19 and name[0] != "0"


def closed() -> dict[str, datetime]:
    """The names of the providers and models that are closed now, each with the time when the pause ends. The name of a
    model that is closed for one agent is the agent's number."""
    rows = Provider.objects.filter(_is_closed()).order_by("name")
    return {row.name: row.shut_until for row in rows if row.shut_until is not None}


def failing_names() -> list[str]:
    """The names of the providers and models whose last calls failed, and of those closed now, for all agents. The one
    that opens first comes first. Models that no agent has are left out."""
    rows = Provider.objects.filter(Q(failures__gte=FAILURES) | _is_closed()).exclude(_is_unused())
    return [name for name in rows.order_by("shut_until", "name").values_list("name", flat=True) if not is_number(name)]


def forget_unused() -> None:
    """Delete the rows of models that no agent has and that never answered. Anybody can name such a model."""
    Provider.objects.filter(_is_unused(), has_answered=False).delete()


def _is_unused() -> Q:
    return Q(name__contains="/") & ~Q(name__in=Agent.objects.values("model"))


def using(names: Collection[str]) -> Q:
    """Return a filter for agents, or agents in the backlog, with these providers, models or numbers."""
    found = Q(model__in=list(names)) | Q(pk__in=[*map(int, filter(is_number, names))])
    for provider in (name for name in names if "/" not in name and not is_number(name)):
        found |= Q(model__startswith=f"{provider}/")
    return found


def _is_closed() -> Q:
    now = timezone.now()
    return Q(shut_until__gt=now, shut_until__lte=now + LONGEST)


def refuse(model: str, error: ModelError) -> None:
    """Close a model that cannot be called because of the service's configuration. It is tried again after RECHECK.

    Only workers of the service call this: a command may have another configuration. A missing key is not stored,
    because each process sees that itself.
    """
    problem = "" if isinstance(error, ModelNotConfigured) else str(error)[:200]
    log.warning("a model cannot be called: see /readyz", provider=of(model), code=error.code)
    row = {"failures": FAILURES, "shut_until": timezone.now() + RECHECK, "problem": problem}
    Provider.objects.update_or_create(name=model, defaults=row)


def require_same_model(agent: Agent) -> Agent:
    """The present row, proven. Raises NoModel if the silo was claimed, or got another model, since `agent` was read."""
    return _require(agent, lambda row: row.model == agent.model)


def _require(agent: Agent, is_right: Callable[[Agent], bool]) -> Agent:
    row = Agent.objects.select_related("tenant").get(pk=agent.pk)
    with suppress(AuthorityBroken, TrailShortened):
        authority.require(row)
        if row.claimed_at == agent.claimed_at and is_right(row):
            return row
    raise NoModel


class Availability:
    """Says whether one agent can call its model now. Before each attempt, the caller uses `wait`. After the
    attempt, the caller reports the result."""

    longest = LONGEST  # of a pause

    def __init__(self, model: str, agent: Agent, require: Callable[[Agent], None] = lambda _: None) -> None:
        self.model, self.agent, self._require_wanted = model, agent, require
        self._failed_before = False
        self._own_failures = 0  # in a row
        self._reason = ""  # of the last failure
        self._has_answered = False

    def wait(self) -> float:
        """The seconds after which the caller must ask again. If the result is 0, the caller may call the model now.
        After a pause, only one caller gets 0. Raises NoModel, and the errors of `require`."""
        now, rows = timezone.now(), self.rows()
        self._failed_before = any(row.failures for row in rows)
        failing = [row for row in rows if row.failures >= FAILURES]
        if failing and self._own_failures > FAILURES:
            return TOO_LONG  # perhaps this caller's request causes the failures, so others try
        if until := max(filter(None, (_closed_until(row, now) for row in rows)), default=None):
            return (until - now).total_seconds()
        if not self._claimed(failing, now):
            return self.wait()
        self._require_same()  # last, because SQL can lock the rows above
        return 0

    def _require_same(self) -> None:
        self._require_wanted(require_same_model(self.agent))

    def rows(self) -> list[Provider]:
        """The rows of provider, model and agent. Before the model's first answer, only the row of the agent. After it,
        the agent's row counts only for failures of this model."""
        shared, own = self._names()
        rows = list(Provider.objects.filter(name__in=(*shared, own)).order_by("name"))
        self._has_answered = any(row.has_answered for row in rows)
        self.names = (*shared, own) if self._has_answered else (own,)
        rows = [row for row in rows if row.name in self.names]
        return [row for row in rows if row.name != own or not self._has_answered or row.failed_with == self.model]

    def _names(self) -> tuple[tuple[str, ...], str]:
        return (of(self.model), self.model), str(self.agent.pk)

    def answered(self, *, is_reply: bool = True) -> None:
        """Report that the server responded. Unless `is_reply`, the response is an error that concerns only this
        request."""
        self._own_failures = 0
        if is_reply and not self._has_answered:
            Provider.objects.update_or_create(name=self.model, defaults={"has_answered": True})
        if self._failed_before:
            rows = Provider.objects.filter(name__in=self.names)
            if rows.filter(failures__gte=FAILURES).exists():
                log.info("a provider of models answers again", provider=of(self.model))
            with transaction.atomic():
                _locked(*self.names)  # in the order of `failed`: otherwise PostgreSQL finds a deadlock
                rows.update(failures=0, shut_until=None, failed_with="", problem="")

    def failed(self, retry_after: float | None = None, *, is_unreachable: bool = False, reason: str = "") -> None:
        """Report a failure. `retry_after` is the pause in seconds that the server requested. `is_unreachable` is true
        if the connection failed. `reason` is for the log."""
        self._own_failures += 1
        self._reason = reason
        self.rows()
        with transaction.atomic():
            *shared, own = self.names
            is_counted = False  # for all agents that have the model
            for row in _locked(*shared):
                is_provider = row.name != self.model
                is_other = is_unreachable or not is_provider or row.failed_with != self.model
                counts = not row.failures or (is_other and self._is_of_another_tenant(row))
                closes = counts and row.failures + 1 >= FAILURES and not is_provider
                self._record(row, counts=counts, retry_after=retry_after if closes else None)
                is_counted |= closes if retry_after else counts and not is_provider
            if not is_counted:
                self._record(_locked(own)[0], counts=True, retry_after=retry_after)

    def _is_of_another_tenant(self, row: Provider) -> bool:
        """Whether the model or provider failed for another tenant before. Also true if no other tenant uses it."""
        using = Q(model=row.name) | Q(model__startswith=f"{row.name}/")
        others = Agent.objects.filter(using).exclude(tenant_id=self.agent.tenant_id)
        return row.failed_tenant != self.agent.tenant_id or not others.exists()

    def _record(self, row: Provider, *, counts: bool, retry_after: float | None = None) -> None:
        now = timezone.now()
        row.shut_until = _closed_until(row, now)
        if counts and row.shut_until is None:  # otherwise the failure is already counted
            row.failures += 1
            row.failed_with, row.failed_tenant = self.model, self.agent.tenant_id
            if row.failures >= FAILURES:
                row.shut_until = now + self._pause(row.failures)
                log.warning("provider failed", provider=of(self.model), failures=row.failures, reason=self._reason)
        if retry_after:
            until = now + min(timedelta(seconds=retry_after), self.longest)
            row.shut_until = max(row.shut_until or until, until)
        row.save()

    def _claimed(self, failing: Iterable[Provider], now: datetime) -> bool:
        """Whether this caller may make the only attempt after a pause. The result is False if another caller has
        changed one of the rows."""
        for row in sorted(failing, key=lambda row: row.name):
            unchanged = Provider.objects.filter(name=row.name, failures=row.failures, shut_until=row.shut_until)
            if not unchanged.update(failures=row.failures + 1, shut_until=now + self._pause(row.failures + 1)):
                return False
        return True

    def _pause(self, failures: int) -> timedelta:
        """The pause after this number of failures in a row."""
        return min(FIRST * (1 << min(max(failures - FAILURES, 0), 10)), self.longest)


class EmbedderAvailability(Availability):
    """The same for an agent's embedder. Its pauses are short, so that the vectors are soon complete again. Failures of
    models do not close embedders, and failures of embedders do not close models.

    `which` returns the only embedder that may be called for a row of the agent. A server has a row for each address,
    because a command can have another address than the service. Each agent has its own row, because others could send
    texts at which a server fails."""

    longest = timedelta(seconds=15)

    def __init__(self, embedder: str, agent: Agent, which: Callable[[Agent], str]) -> None:
        address = settings.OPENAI_BASE_URL if embedder.startswith("openai/") else settings.OLLAMA_BASE_URL
        at = blake2b(address.encode(), digest_size=4).hexdigest()
        super().__init__(f"{EMBEDDER}{of(embedder)}/{agent.pk}@{at}", agent)
        self._embedder, self._which = embedder, which

    def _require_same(self) -> None:
        _require(self.agent, lambda row: row.memory_enabled and self._which(row) == self._embedder)

    def is_closed(self) -> bool:
        return any(_closed_until(row, timezone.now()) for row in self.rows())

    def has_failed(self) -> bool:
        """Whether the last call failed."""
        return any(row.failures for row in self.rows())

    def _names(self) -> tuple[tuple[str, ...], str]:
        return (), self.model


def _locked(*names: str) -> list[Provider]:
    return [Provider.objects.select_for_update().get_or_create(name=name)[0] for name in names]


def _closed_until(row: Provider, now: datetime) -> datetime | None:
    """The time until which a provider or model is closed. The result is None if it is open. A time that is too far in
    the future is ignored, because it comes from a wrong clock."""
    is_closed = row.shut_until is not None and now < row.shut_until <= now + LONGEST
    return row.shut_until if is_closed else None
