"""The admin pages of memory. Importing a page registers it."""

from memory.admin import access_requests, agents, keys, memories, people, tenants
