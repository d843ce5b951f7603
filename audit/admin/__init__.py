"""The admin page of the audit trail. An import of this package registers the page."""

from audit.admin import entries
