"""The service for the tests of Anthropic's SDK, with the fixtures that they name."""

from config.settings import *  # noqa: F403
from config.settings import MIDDLEWARE as _MIDDLEWARE

API_RATE = 10**9
MIDDLEWARE = ["tests.interop.sdk_fixtures.Literal", *_MIDDLEWARE]
