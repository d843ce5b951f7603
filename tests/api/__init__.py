"""The REST API, over Django's own handler."""
