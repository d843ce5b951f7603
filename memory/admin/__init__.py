"""The admin's pages of memory. Each registers itself when it is imported."""

from memory.admin import access_requests, agents, keys, memories, people, tenants
