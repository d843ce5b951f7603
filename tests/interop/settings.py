"""Settings of the server that the official test suite checks. The suite sends no key, so this server gives everybody
the silo of one new agent. It does not start with a database that has agents."""

from config.settings import *  # noqa: F403

ROOT_URLCONF = "tests.interop.urls"
API_RATE = 10**9
