"""A worker, as the service in it sees the server around it."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from canon.memory import LocalStore, MemoryStore
from engine_adapters.engine_process.adapter import EngineInProcess
from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import AwayError, RpcError
from engine_adapters.rpc.link import Link
from engine_adapters.rpc.service import Service
from gateway.ledger.expectation import Predictor
from gateway.process.front import Figures, Siblings, SiblingsAwayError
from gateway.process.listener import bound, listen
from gateway.prompts import PromptSource
from gateway.served import Backend, Load, Progress
from gateway.settings import CanonSettings
from gateway.telemetry.figures import families_sent
from gateway.workers.fallen import leave
from gateway.workers.plan import Plan
from gateway.workers.seat import Seat
from gateway.workers.shared_limits import WorkerCounter
from gateway.workers.shared_memory import SharedMemory
from gateway.workers.shared_prediction import WorkerPredictor
from gateway.workers.shared_routing import shared_router

log = logging.getLogger("kvgate.workers")

_PUBLISH_S = 2.0  # what a process counted in the last of them is lost when it is killed
_ASK_S = 65.0  # for the answers of all others
_STATE_S = 10.0  # for the state's process at the start; then it is gone on without


class OtherWorkers(Siblings):
    """Asked through the process that all are connected to."""

    def __init__(self, path: Path, process: str, index: int = 0) -> None:
        self._process = process
        self._folder = path.parent
        self._about = families_sent(_about(index))
        self._offers = Service()
        self._own: Callable[[], Figures] = list
        # Said first on each connection, in this order: its other side may have been started anew.
        self.greetings: list[Callable[[Connection], Awaitable[None]]] = []
        self.link = Link(str(path), "the state's process", self._greet, self._offers)

    def offer(self, name: str, answer: Callable[..., Any | Awaitable[Any]]) -> None:
        self._offers.calls[name] = lambda _, *args: answer(*args)

    async def ask(self, name: str, *args: Any) -> list[Any]:
        try:
            found: list[Any] = await self.link.call("ask", name, args, timeout_s=_ASK_S)
        except RpcError as error:
            raise SiblingsAwayError(str(error)) from error
        return found

    def count(self, own: Callable[[], Figures]) -> None:
        def counted() -> Figures:
            return [*own(), *self._about]

        self._own = counted
        self._offers.calls["figures"] = lambda _: asyncio.to_thread(counted)

    async def figures(self) -> list[Figures]:
        own = await asyncio.to_thread(self._own)
        try:
            found: list[Figures] = await self.link.call("all_figures", own)
        except RpcError as error:
            raise SiblingsAwayError(str(error)) from error
        return [own, *found]

    async def publish(self) -> None:
        """Leave what this process has counted with the state's process, in case that it ends."""
        own = await asyncio.to_thread(self._own)
        if self.link.is_there:
            self.link.tell("figures", own)
            return
        try:
            await asyncio.to_thread(leave, self._folder, self._process, own)
        except OSError as error:
            log.warning("what this process has counted cannot be left: %s", error)

    async def _greet(self, connection: Connection) -> None:
        await connection.call("hello", self._process)
        for greet in self.greetings:
            await greet(connection)


def _about(index: int) -> list[Metric]:
    """One for each process: added up, how many there are, and how often each was started."""
    starts = CounterMetricFamily("kvgate_worker_starts", "Starts of a worker.", labels=("worker",))
    starts.add_metric([str(index)], 1)
    return [GaugeMetricFamily("kvgate_workers", "Workers that are there.", value=1), starts]


def _process_name(plan: Plan) -> str:
    """That no other process of this server ever has."""
    return f"{plan.index}-{os.getpid()}-{secrets.token_hex(4)}"


class WorkerFront:
    """One of several processes of a server."""

    def __init__(self, seat: Seat, settings: CanonSettings) -> None:
        self._seat = seat
        plan = seat.plan
        self.leader = plan.index == 0
        self._others = OtherWorkers(plan.state_socket, _process_name(plan), plan.index)
        self.siblings: Siblings = self._others
        alone = LocalStore(settings.memory_bytes, ttl_s=settings.memory_ttl_s)
        self._memory = SharedMemory.at(str(plan.state_socket), alone)
        self.memory: MemoryStore | None = self._memory
        self.workers = plan.workers
        counter = WorkerCounter(self._others.link, plan.workers)
        self._others.greetings.append(counter.resume)
        self._others.offer("limits.used", counter.used)
        self.counter: WorkerCounter | None = counter
        self.router = shared_router(self._others.link, listens=self.leader)
        self._publishing: asyncio.Task[None] | None = None

    @property
    def late(self) -> bool:
        """Where it takes the place of one that has ended, the others answer until it can."""
        return self._seat.plan.again

    def predictor(self, own: Predictor | None) -> Predictor | None:
        """One for all workers, where there is to be one."""
        return None if own is None else WorkerPredictor(self._others.link)

    def listen(self) -> socket.socket:
        """A socket of its own on the port of all: the kernel spreads connections evenly over those."""
        plan = self._seat.plan
        return (bound if self.late else listen)(plan.host, plan.port, shared=True)

    def progress(self, line: str) -> None:
        """The parent and the engine's process say how far the server has come."""
        log.debug("%s", line)

    def announce(self, line: str) -> None:
        """The parent says it, in its own lines."""
        self._seat.say(line)

    async def ready(self, url: str, models: Sequence[str]) -> None:
        """Tell the parent, which says so when all are. Without what workers share one goes on alone."""
        try:
            await self._others.link.there(_STATE_S)
        except AwayError as error:
            log.error("a worker starts alone: %s", error)  # noqa: TRY400
        await self._others.publish()  # that it was started counts, however soon it is killed
        self._seat.say_ready(models)

    async def open(self) -> None:
        """Begin to look for what workers share."""
        self._others.link.start()
        self._publishing = asyncio.create_task(self._publish())

    async def aclose(self) -> None:
        """Let go of what is shared."""
        if self._publishing is not None:
            self._publishing.cancel()
            await self._others.publish()
        await self._others.link.aclose()
        self._memory.close()

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(_PUBLISH_S)
            await self._others.publish()


def engine_load(seat: Seat, prompts: Callable[[Path], PromptSource]) -> Load:
    """What a worker has for an engine: that of the engine's process, waited for as long as it takes to load."""

    def load(_: Progress) -> Coroutine[Any, Any, Backend]:
        return _engine(seat.plan.engine_socket, prompts)

    return load


async def _engine(path: Path, prompts: Callable[[Path], PromptSource]) -> Backend:
    engine = await EngineInProcess.connect(path)
    folder = Path(engine.about["tokenizer"])
    return Backend(engine, await asyncio.to_thread(prompts, folder), engine.about["name"], folder)
