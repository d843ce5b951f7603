"""The REST API under /api/v1/: parse, authorise, call a verb, present. What is decided, is decided below."""
