"""A real server over a scripted engine, for every test of this folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gateway.settings import GatewaySettings
from tests.gateway.running_server import Running, running


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Running]:
    with running() as it:
        yield it


@pytest.fixture
def server(shared_server: Running) -> Running:
    """The default server with a fresh engine."""
    shared_server.put_fresh()
    return shared_server


@pytest.fixture
def serve_with() -> Iterator[Callable[..., Running]]:
    """Start a server with settings of the test's own."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(running(GatewaySettings(**settings)))
