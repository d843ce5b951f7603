"""A plugin of pytest for the tests of Anthropic's SDK: each test begins with new fixtures of the service."""

import os
import urllib.parse
import urllib.request

import pytest


@pytest.fixture(autouse=True)
def literal_ids(request: pytest.FixtureRequest) -> None:
    name = urllib.parse.quote(request.node.name)
    urllib.request.urlopen(f"{os.environ['TEST_API_BASE_URL']}/reset?test={name}", timeout=60).close()
