from memory.admin import access_requests, agents, keys, memories, people, tenants

__all__ = ["access_requests", "agents", "keys", "memories", "people", "tenants"]
