"""The URL of MCP."""

from django.urls import re_path

from refinement.mcp.views import Mcp

urlpatterns = [re_path("^mcp/?$", Mcp.as_view())]
