"""The admin's pages of refinement. Each registers itself when it is imported."""

from refinement.admin import sessions
