"""The admin pages of refinement. Importing a page registers it."""

from refinement.admin import sessions
