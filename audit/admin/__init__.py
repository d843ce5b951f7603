"""The admin page of the audit trail. Importing it registers it."""

from audit.admin import entries
