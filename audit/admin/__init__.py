"""The admin's page of the trail. It registers itself when it is imported."""

from audit.admin import entries
