"""A vault in a project's folder, reached by commands alone."""

from tests.vault.test_commands import ada, key, site, vault

__all__ = ["ada", "key", "site", "vault"]
