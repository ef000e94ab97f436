"""A gateway over one engine that tests script."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from gateway.settings import GatewaySettings
from tests.gateway.relay.fake_engine import FakeEngine, fake_engine
from tests.gateway.relay.serving import Relaying, relaying


@dataclass(slots=True)
class Pair:
    gateway: Relaying
    engine: FakeEngine


@pytest.fixture
def relay_to() -> Iterator[Callable[..., Pair]]:
    """`relay_to(script, profile=..., **settings)`: a gateway and its engine, both for one test."""
    with ExitStack() as stack:

        def make(script: object = None, profile: str = "openai", **settings: object) -> Pair:
            engine = stack.enter_context(fake_engine(script))
            options = HttpOptions(connect_s=20, first_byte_s=60, probe_s=60)
            remote = Remote(OpenAICompatibleEngine("fake", engine.url, (), options, profile))
            return Pair(stack.enter_context(relaying([remote], GatewaySettings(**settings))), engine)

        yield make
