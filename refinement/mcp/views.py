"""The path `/mcp`: the Model Context Protocol over HTTP. Each POST has one message, and its response is JSON.

Keys, limits, turns and the checks of the body are those of the API.
"""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from rest_framework import exceptions, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.views import AgentView
from refinement.mcp.api import Api
from refinement.mcp.content import SERVER
from refinement.mcp.messages import McpError, read
from refinement.mcp.server import Server


class ForeignOrigin(exceptions.PermissionDenied):
    default_detail = "A page of another site must not use this path."
    default_code = "foreign_origin"


class Mcp(AgentView):
    """Answers one message. A notification gets 202 and no body."""

    schema = None  # the protocol describes itself
    http_method_names: Any = ("post",)
    server: Server = SERVER

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Also refuse pages of other sites: the name of their host may lead to this machine (DNS rebinding)."""
        origin = request.headers.get("Origin")
        hosts = request.get_host(), urlsplit(settings.PUBLIC_URL).netloc
        if origin and origin.removeprefix("http://").removeprefix("https://") not in hosts:
            raise ForeignOrigin
        super().initial(request, *args, **kwargs)

    def post(self, request: Request) -> Response:
        body = request.data
        self.take_turn()
        try:
            message = read(body, request.headers)
            if message.id is None:
                return Response(status=status.HTTP_202_ACCEPTED)
            result = self.server.result(message, Api(self))
        except McpError as error:
            number = body.get("id") if isinstance(body, dict) else None
            return Response(_error(number, error.code, error.message, error.data), error.status)
        return Response({"jsonrpc": "2.0", "id": message.id, "result": result})

    def handle_exception(self, exc: Exception) -> Response:
        """The API's refusal of the whole request, as an error of JSON-RPC with the same status."""
        response = super().handle_exception(exc)
        code = PARSE_ERROR if isinstance(exc, exceptions.ParseError) else INVALID_REQUEST
        code = INTERNAL_ERROR if status.is_server_error(response.status_code) else code
        response.data = _error(None, code, str(response.data["errors"][0]["detail"]), response.data)
        return response


def _error(number: Any, code: int, message: str, data: Any) -> dict[str, Any]:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": number if isinstance(number, int | str) else None, "error": error}
