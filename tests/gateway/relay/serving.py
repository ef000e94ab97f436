"""A real gateway over engines behind HTTP, on a thread with a loop of its own."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import openai

from gateway.ledger.expectation import Predictor
from gateway.ledger.row import LedgerRow
from gateway.process.listener import listen, url_of
from gateway.process.server import Ending, GatewayServer, server_config
from gateway.relay.remote import Remote
from gateway.reload.live import Configured, Live
from gateway.replicas.pool import EnginePool
from gateway.served import Backend, Served
from gateway.settings import GatewaySettings
from gateway.surface.app import create_app_over
from gateway.tenants.authenticator import OPEN, Authenticator
from tests.waiting import wait_until


@dataclass(slots=True)
class Rows:
    """A ledger that tests read."""

    kept: list[LedgerRow] = field(default_factory=list)

    def put(self, row: LedgerRow) -> None:
        self.kept.append(row)

    def one(self) -> LedgerRow:
        """The only row; waits for it, since it is put when the answer has ended."""
        wait_until(lambda: self.kept, "a row")
        (row,) = self.kept
        return row

    def of(self, request_id: str) -> LedgerRow:
        """The row of one answer, by its `x-request-id`; rows of earlier ones may still come."""
        wait_until(lambda: any(row.id == request_id for row in self.kept), "the answer's row")
        return next(row for row in self.kept if row.id == request_id)

    def last(self, count: int) -> LedgerRow:
        wait_until(lambda: len(self.kept) >= count, f"{count} rows")
        return self.kept[count - 1]


@dataclass(slots=True)
class Relaying:
    url: str
    port: int
    served: Served
    rows: Rows
    http: httpx.Client
    stop: Callable[[], None]
    live: Live
    loop: Callable[[], asyncio.AbstractEventLoop]
    connections: Callable[[], Collection[object]]  # open ones

    def on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` where requests run, and wait for its end."""
        asyncio.run_coroutine_threadsafe(work, self.loop()).result(20)

    @property
    def sdk(self) -> openai.OpenAI:
        return self.sdk_of("none")

    def sdk_of(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)


@contextmanager
def relaying(
    remotes: Sequence[Remote],
    settings: GatewaySettings | None = None,
    backend: Backend | None = None,
    pools: Sequence[EnginePool] = (),
    tenants: Authenticator = OPEN,
    predictor: Predictor | None = None,
) -> Iterator[Relaying]:
    pools = [*pools, *(EnginePool(remote.name, [remote]) for remote in remotes)]
    served, rows = Served(backend, pools=pools, embedded=False), Rows()
    listener = listen("127.0.0.1", 0)
    live = Live(Configured(settings or GatewaySettings(), served.pools, tenants))
    remotes = served.remotes
    app = create_app_over(served, ledger=rows, predictor=predictor, live=live)
    loops: list[asyncio.AbstractEventLoop] = []

    class Server(GatewayServer):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            loops.append(asyncio.get_running_loop())
            await super().startup(sockets)

    server = Server(server_config(app, grace_s=1), served, Ending(grace_s=0.5), live)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    url = url_of(listener)

    def stop() -> None:
        server.should_exit = True

    def connections() -> Collection[object]:
        return server.server_state.connections

    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        with httpx.Client(base_url=url, timeout=60) as http:
            wait_until(lambda: all(remote.asked.is_set() for remote in remotes), "all engines were asked")
            yield Relaying(
                url, int(url.rsplit(":", 1)[1]), served, rows, http, stop, live, lambda: loops[0], connections
            )
    finally:
        stop()
        thread.join()
