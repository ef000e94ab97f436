"""For the SDK's own tests: the responses that they ask for by name were made before, as nothing else is kept."""

import os

import httpx
import pytest

_NAMES = ("resp_677efb5139a88190b512bc3fef8e535d", "response_id", "previous_response_id")


@pytest.fixture(scope="session")
def keep_responses() -> set[str]:
    """Names that are kept now."""
    return set()


@pytest.fixture(autouse=True)
def kept_responses(request: pytest.FixtureRequest, keep_responses: set[str]) -> None:
    if "responses" not in request.node.nodeid:
        return
    for name in set(_NAMES) - keep_responses:
        body = {"input": "Hi", "metadata": {"id": name}}
        httpx.post(os.environ["TEST_API_BASE_URL"] + "/responses", json=body, timeout=60).raise_for_status()
    keep_responses.update(_NAMES)
    if "delete" in request.node.name:
        keep_responses.clear()
