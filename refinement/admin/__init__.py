"""The admin pages of refinement. Each page registers itself when it is imported."""

from refinement.admin import sessions
