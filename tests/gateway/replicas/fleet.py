"""A gateway over one engine of several replicas, each of them scripted."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import LookOptions, Remote
from gateway.replicas.policy import PoolPolicy
from gateway.replicas.pool import EnginePool
from gateway.settings import GatewaySettings
from gateway.tenants.authenticator import OPEN, Authenticator
from tests.gateway.relay.fake_engine import MODEL, FakeEngine, Script, fake_engine
from tests.gateway.relay.serving import Relaying, relaying

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}


@dataclass(slots=True)
class Fleet:
    gateway: Relaying
    engines: list[FakeEngine]
    pool: EnginePool

    @property
    def asked(self) -> list[int]:
        """How many requests each replica got."""
        return [len(engine.asked) for engine in self.engines]


def replica(
    url: str, name: str, *, first_byte_s: float = 60, probe_s: float = 60, listed: bool = False
) -> Remote:
    """`listed`: it is said to have the model, so that nobody asks it whether it is there."""
    options = HttpOptions(connect_s=20, first_byte_s=first_byte_s, probe_s=probe_s)
    engine = OpenAICompatibleEngine("fleet", url, (MODEL,) if listed else (), options)
    return Remote(engine, {MODEL: MODEL}, replica=f"fleet/{name}", look=LookOptions(every_s=0.5))


@contextmanager
def fleet_of(
    scripts: Sequence[Script | None],
    policy: PoolPolicy | None = None,
    settings: GatewaySettings | None = None,
    *,
    first_byte_s: float = 60,
    tenants: Authenticator = OPEN,
) -> Iterator[Fleet]:
    """None among `scripts`: nobody listens there, which the pool finds out by its requests alone."""
    with ExitStack() as stack:
        engines = [stack.enter_context(fake_engine(script)) for script in scripts]
        remotes = [
            replica(
                engine.url if script else "http://127.0.0.1:9",
                f"r{at}",
                first_byte_s=first_byte_s,
                listed=True,
            )
            for at, (engine, script) in enumerate(zip(engines, scripts, strict=True))
        ]
        pool = EnginePool("fleet", remotes, policy=policy)
        gateway = stack.enter_context(relaying([], settings, pools=[pool], tenants=tenants))
        yield Fleet(gateway, engines, pool)
