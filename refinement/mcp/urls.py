"""The URL of MCP."""

from django.urls import path

from refinement.mcp.views import Mcp

urlpatterns = [path("mcp", Mcp.as_view())]
