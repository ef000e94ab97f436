"""A real server on a free loopback port, over a scripted engine."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import openai
import uvicorn

from gateway.ledger.sink import NO_LEDGER, LedgerSink
from gateway.process.listener import listen, url_of
from gateway.process.server import server_config
from gateway.served import Backend, Served
from gateway.settings import GatewaySettings
from gateway.surface.app import create_app_over
from gateway.tenants.authenticator import OPEN, Authenticator
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine


@dataclass(slots=True)
class Running:
    """A served engine; `engine` and `prompts` are fresh for each test."""

    url: str
    port: int
    served: Served
    engine: ScriptedEngine
    prompts: BytePrompts
    http: httpx.Client

    @property
    def sdk(self) -> openai.OpenAI:
        return self.sdk_of("none")

    def sdk_of(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    @property
    def async_sdk(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def put_fresh(self) -> None:
        self.engine, self.prompts = ScriptedEngine(), BytePrompts()
        self.served.put(Backend(self.engine, self.prompts))


@contextmanager
def running(
    settings: GatewaySettings | None = None, ledger: LedgerSink = NO_LEDGER, tenants: Authenticator = OPEN
) -> Iterator[Running]:
    """Serve on a thread with a loop of its own, as `kvgate serve` does."""
    served = Served()
    listener = listen("127.0.0.1", 0)
    app = create_app_over(served, settings, ledger, tenants=tenants)
    server = uvicorn.Server(server_config(app, grace_s=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    url = url_of(listener)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        with httpx.Client(base_url=url, timeout=60) as http:
            it = Running(url, int(url.rsplit(":", 1)[1]), served, ScriptedEngine(), BytePrompts(), http)
            it.put_fresh()
            yield it
    finally:
        server.should_exit = True
        thread.join()
