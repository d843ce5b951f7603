"""`/mcp`: the Model Context Protocol over HTTP. Each POST has one message, and gets one JSON response.

Keys, limits, turns and body checks are those of the API.
"""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from rest_framework import exceptions, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory.api.base.views import AgentView
from refinement.mcp.content import SERVER
from refinement.mcp.inner import Api
from refinement.mcp.messages import McpError, read
from refinement.mcp.server import Server

_STATUS = {METHOD_NOT_FOUND: status.HTTP_404_NOT_FOUND}  # of the newer protocol; others: 400


class ForeignOrigin(exceptions.PermissionDenied):
    default_detail = "A page of another site must not call this address."
    default_code = "foreign_origin"


class Mcp(AgentView):
    """One message of the protocol. A notification gets 202 and no body."""

    schema = None  # the protocol describes itself
    http_method_names = ("post",)
    shows_later = True
    server: Server = SERVER

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        origin = request.headers.get("Origin")
        if origin and urlsplit(origin).netloc not in (request.get_host(), urlsplit(settings.PUBLIC_URL).netloc):
            raise ForeignOrigin
        super().initial(request, *args, **kwargs)

    def post(self, request: Request) -> Response:
        body = request.data
        self.take_turn()
        number = body.get("id") if isinstance(body, dict) else None
        try:
            message = read(body, request.headers)
            if message.id is None:
                return Response(status=status.HTTP_202_ACCEPTED)
            result = self.server.answer(message, Api(self))
        except McpError as error:
            return _error(number, error.code, error.message, error.data, _STATUS.get(error.code, 400))
        return Response({"jsonrpc": "2.0", "id": message.id, "result": result})

    def handle_exception(self, exc: Exception) -> Response:
        """The API's refusal, as an error of JSON-RPC with the same status."""
        response = super().handle_exception(exc)
        code = PARSE_ERROR if isinstance(exc, exceptions.ParseError) else INVALID_REQUEST
        code = INTERNAL_ERROR if response.status_code >= status.HTTP_500_INTERNAL_SERVER_ERROR else code
        first = response.data["errors"][0]
        response.data = _error(None, code, first["detail"], response.data).data
        return response


def _error(number: Any, code: int, message: str, data: Any = None, status_code: int = 400) -> Response:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return Response({"jsonrpc": "2.0", "id": number, "error": error}, status_code)
