"""The admin pages of this app. Django registers a page when its module is imported."""

from memory.admin import access_requests, agents, keys, memories, people, tenants
