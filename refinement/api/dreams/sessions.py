"""A session with the memory stores of its agent: `/v1/sessions/ID`. The folder sync of Anthropic's SDK reads it."""

import re
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.stores.wire import StoresView, store_id
from memory.errors import NotFound
from memory.models import Agent, RecordedSession, Store
from memory.policy import switches
from memory.writing import stores
from refinement.models import RefinementSession

MAX_STORES = 8  # in a session
PREFIX = "sesn_"
MOUNT = "/mnt/memory"
_NO_SLUG = re.compile(r"[^a-z0-9]+")


class OneSession(StoresView):
    def get(self, request: Request, session: str) -> Response:
        """A recorded session, by its name, or a refinement session, by its number."""
        switches.require_on(self.agent)
        began, ended, last = _dates(self.agent, session.removeprefix(PREFIX))
        shown = {
            "id": session,
            "type": "session",
            "agent": _agent(self.agent),
            "resources": resources(self.agent),
            "status": "terminated" if ended else "running",
            "stats": {"duration_seconds": ((ended or last) - began).total_seconds()},
            "created_at": began,
            "updated_at": last,
            "environment_id": "env_none",
            "metadata": {},
            "outcome_evaluations": [],
            "usage": {},
            "vault_ids": [],
            **dict.fromkeys(("archived_at", "budget", "title")),
        }
        return Response(shown)


def recorded(agent: Agent, names: list[str]) -> QuerySet[RecordedSession]:
    """The recorded sessions with these names. If several projects have one, the latest comes last."""
    return RecordedSession.objects.filter(agent_id=agent.pk, name__in=names).order_by("began_at", "pk")


def _dates(agent: Agent, name: str) -> tuple[datetime, datetime | None, datetime]:
    """When a session began, ended, and was last used. Raises NotFound."""
    is_number = name.isascii() and name.isdigit() and len(name) < 17
    refinement = RefinementSession.objects.filter(agent_id=agent.pk, number=int(name)).first() if is_number else None
    if refinement:
        return refinement.opened_at, refinement.closed_at, refinement.closed_at or refinement.opened_at
    found = recorded(agent, [name]).last()
    if found is None:
        raise NotFound("The session does not exist.")
    return found.began_at, found.ended_at, found.last_at


def resources(agent: Agent) -> list[dict[str, Any]]:
    """The newest memory stores of an agent, in the form of a session's resources."""
    rows = Store.objects.filter(agent_id=agent.pk, deleted_at=None).order_by("-number")[:MAX_STORES]
    found: list[dict[str, Any]] = []
    slugs: set[str] = set()
    for store in rows:
        about, id_ = stores.about(agent, store), store_id(store.number)
        slug = _NO_SLUG.sub("-", about.name.lower()).strip("-")
        slug = id_ if slug in slugs | {""} else slug
        slugs.add(slug)
        words = {"name": about.name, "description": about.description, "instructions": None}
        access = "read_only" if store.archived_at else "read_write"
        place = {"memory_store_id": id_, "access": access, "mount_path": f"{MOUNT}/{slug}"}
        found.append({"type": "memory_store", **place, **words})
    return found


def _agent(agent: Agent) -> dict[str, Any]:
    return {
        "id": f"agent_{agent.slug}",
        "type": "agent",
        "name": agent.slug,
        "version": 1,
        "model": {"id": agent.model},
        "execution_identity": {"type": "service_account"},
        **{name: [] for name in ("mcp_servers", "skills", "tools")},
        **dict.fromkeys(("description", "multiagent", "system")),
    }
