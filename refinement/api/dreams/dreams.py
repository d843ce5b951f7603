"""Dreams: `/v1/dreams`."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.bodies import Body, Choice, List, Text
from memory.api.stores.wire import BadRequest, PageQuery, StoresView, cursor, number_of, paged, store_id
from memory.errors import Invalid
from memory.models import Agent, RecordedSession
from memory.policy import switches
from memory.writing import edits
from refinement import backlog, dreams
from refinement.api.dreams.sessions import PREFIX, recorded
from refinement.errors import DreamOver, DreamRunning
from refinement.models import Dream, RefinementSession

MAX_SESSIONS = 100
STORE, SESSIONS = "memory_store", "sessions"
COPY, IN_PLACE = "create_new", "update_existing"


class InputIn(Body):
    type = Choice([STORE, SESSIONS])
    memory_store_id = Text(required=False)
    session_ids = List(child=Text(max_length=200), min_length=1, max_length=MAX_SESSIONS, required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        own = {STORE: "memory_store_id", SESSIONS: "session_ids"}[attrs["type"]]
        if attrs.keys() != {"type", own}:
            raise serializers.ValidationError({own: "is required, without other fields"})
        return attrs


class ModelIn(Body):
    id = Text(max_length=256)
    speed = Choice(["standard"], required=False, allow_null=True)


class BehaviorIn(Body):
    type = Choice([COPY, IN_PLACE])
    memory_store_id = Text(required=False)


class DreamIn(Body):
    inputs = List(child=InputIn(), min_length=1, max_length=2)
    model = serializers.JSONField()
    instructions = Text(required=False, allow_null=True, max_length=dreams.MAX_INSTRUCTIONS)
    output_behavior = BehaviorIn(required=False)

    def validate_model(self, value: Any) -> str:
        return str(ModelIn().run_validation(value if isinstance(value, dict) else {"id": value})["id"])

    def validate_inputs(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [name for each in value for name in each.get("session_ids", ())]
        if sorted(each["type"] for each in value) != [STORE, SESSIONS] or len(set(names)) != len(names):
            raise serializers.ValidationError("must be one memory_store and one sessions with different ids")
        return value


class DreamsQuery(PageQuery):
    created_at_gt = serializers.DateTimeField(required=False)
    created_at_lt = serializers.DateTimeField(required=False)
    include_archived = serializers.BooleanField(default=False)
    statuses = List(child=Choice(Dream.Status.values), max_length=20, required=False)


class DreamsView(StoresView):
    betas = ("dreaming-2026-04-21",)

    def handle_exception(self, exc: Exception) -> Response:
        """A dream in a wrong state is a 400, except for a second dream of an agent, which is a 409."""
        return super().handle_exception(BadRequest(str(exc)) if isinstance(exc, DreamOver) else exc)

    def shown(self, *rows: Dream) -> list[dict[str, Any]]:
        numbers = [row.session for row in rows if row.session]
        found = RefinementSession.objects.filter(agent_id=self.agent.pk, number__in=numbers)
        sessions = {session.number: session for session in found}
        ids = [pk for row in rows for pk in row.recorded]
        named = RecordedSession.objects.filter(agent_id=self.agent.pk, pk__in=ids)
        names: dict[int, str] = dict(named.values_list("pk", "name"))
        wanted = dreams.instructions(self.agent, rows)
        return [
            to_json(row, sessions.get(row.session or 0), names) | {"instructions": wanted.get(row.number) or None}
            for row in rows
        ]


class Dreams(DreamsView):
    def get(self, request: Request) -> Response:
        """List dreams, newest first."""
        switches.require_on(self.agent)
        query = self.query(DreamsQuery)
        before, limit = cursor(query, None), query["limit"]
        rows = Dream.objects.filter(agent_id=self.agent.pk)
        rows = rows if query["include_archived"] else rows.filter(archived_at=None)
        wanted = {"number__lt": before, "created_at__gt": query.get("created_at_gt")}
        wanted |= {"created_at__lt": query.get("created_at_lt"), "status__in": query.get("statuses")}
        rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
        found, following = paged(list(rows.order_by("-number")[: limit + 1]), limit, lambda dream: dream.number)
        return Response({"data": self.shown(*found), "next_page": following})

    def post(self, request: Request) -> Response:
        """Request a dream. A worker of the service runs it."""
        payload = self.payload(DreamIn)
        inputs = {each["type"]: each for each in payload["inputs"]}
        id_ = inputs[STORE]["memory_store_id"]
        behavior = payload.get("output_behavior") or {"type": COPY}
        is_copy = behavior["type"] == COPY
        if "memory_store_id" in behavior and (is_copy or behavior["memory_store_id"] != id_):
            raise Invalid("output_behavior.memory_store_id", "must be the memory store in `inputs`, without a copy")
        sessions = _recorded(self.agent, inputs[SESSIONS]["session_ids"])
        with edits.locked(self.agent) as row:
            if payload["model"] not in (row.model, row.model.partition("/")[2]):
                raise Invalid("model", "must be the agent's own model, which `GET /api/v1/agent` shows")
            wanted: dict[str, Any] = {"is_copy": is_copy, "instructions": payload.get("instructions") or ""}
            dream = dreams.create(row, number_of(id_, "memstore_"), sessions, **wanted)
            backlog.add(row)
        return Response(self.shown(dream)[0])


class OneDream(DreamsView):
    def get(self, request: Request, dream: str) -> Response:
        switches.require_on(self.agent)
        return Response(self.shown(dreams.find(self.agent, _number(dream)))[0])


class Cancel(DreamsView):
    def post(self, request: Request, dream: str) -> Response:
        """End a dream. Its edits stay."""
        return Response(self.shown(dreams.cancel(self.agent, _number(dream)))[0])


class Archive(DreamsView):
    def handle_exception(self, exc: Exception) -> Response:
        return super().handle_exception(BadRequest(str(exc)) if isinstance(exc, DreamRunning) else exc)

    def post(self, request: Request, dream: str) -> Response:
        return Response(self.shown(dreams.archive(self.agent, _number(dream)))[0])


def _number(dream: str) -> int:
    return number_of(dream, "drm_")


def _recorded(agent: Agent, ids: list[str]) -> list[RecordedSession]:
    names = [each.removeprefix(PREFIX) for each in ids]
    rows = {row.name: row for row in recorded(agent, names)}
    if rows.keys() != set(names):
        raise Invalid("inputs.session_ids", "must be the names of recorded sessions")
    return [rows[name] for name in names]


def to_json(dream: Dream, session: RefinementSession | None, names: dict[int, str]) -> dict[str, Any]:
    store = {"type": STORE, "memory_store_id": store_id(dream.store)}
    recorded = {"type": SESSIONS, "session_ids": [f"{PREFIX}{names[pk]}" for pk in dream.recorded if pk in names]}
    behavior = {"type": COPY} if dream.is_copy else {**store, "type": IN_PLACE}
    has_output = dream.session is not None and dream.output is not None
    used = session.used if session else None
    failed = {"type": dream.error, "message": dream.problem or dream.error.replace("_", " ")}
    return {
        "id": f"drm_{dream.number}",
        "type": "dream",
        "status": dream.status,
        "inputs": [store, recorded],
        "outputs": [{"type": STORE, "memory_store_id": store_id(dream.output or 0)}] if has_output else [],
        "model": {"id": dream.model, "speed": "standard"},
        "output_behavior": behavior,
        "session_id": f"{PREFIX}{dream.session}" if dream.session else None,
        "usage": {
            "input_tokens": used.prompt - used.cached if used else 0,
            "output_tokens": used.completion if used else 0,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": used.cached if used else 0,
        },
        "error": failed if dream.status == Dream.Status.FAILED else None,
        "created_at": dream.created_at,
        "ended_at": dream.ended_at,
        "archived_at": dream.archived_at,
    }
