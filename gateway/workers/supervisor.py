"""The parent: starts the processes of a server, watches them, ends them. It serves nothing itself."""

import asyncio
import logging
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.process.front import OneProcess
from gateway.process.listener import bound, url_of
from gateway.workers.child import Child
from gateway.workers.plan import Plan, Role

log = logging.getLogger("kvgate.workers")


# A process that is not far enough in its start, or too far in its end, to take our signal ends by it.
_CLEAN = (0, -signal.SIGTERM, -signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds and periods, in seconds where not said otherwise."""

    restarts: int = 8  # of one process in a row; then the server ends, unless it is a worker and others serve
    first_wait_s: float = 0.2  # before it is started again; twice as long each time
    last_wait_s: float = 10.0
    steady_s: float = 60.0  # who was ready for so long begins a new row
    drain_s: float = 60.0  # that workers may take to end; it is more than the grace period of requests
    close_s: float = 30.0  # and the others behind them


class _Place:
    """One process of the server, again and again."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.child: Child | None = None
        self.ready = asyncio.Event()  # it was, at least once
        self.models: list[str] = []
        self.restarts = 0  # in a row


class Supervisor:
    """Runs one server.

    Args:
        arguments: how a child is run, as `child.command` gives it.
        workers: how many.
        engine: whether an engine runs beside them, in a process of its own.
        check: raises ListenError where this address must not be listened on.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        host: str,
        port: int,
        workers: int,
        *,
        engine: bool,
        json: bool = False,
        patience: Patience | None = None,
        check: Callable[[socket.socket], None] = lambda _: None,
    ) -> None:
        self._arguments = arguments
        self._host, self._port = host, port
        self._workers, self._engine = workers, engine
        self._patience = patience or Patience()
        self._check = check
        self._front = OneProcess(host, port, json=json)
        self._status = 0

    def run(self) -> int:
        """Until a signal, or until a process cannot be kept up; the exit status. Raises ListenError."""
        with _reserved(self._host, self._port) as kept:
            self._check(kept)
            self._url = url_of(kept)
            # Short, since the path of a socket has some hundred bytes at most.
            folder = tempfile.mkdtemp(prefix="kvgate-")
            try:
                plan = Plan("worker", 0, folder, self._host, _port(kept), self._workers)
                asyncio.run(self._run(replace(plan, server=secrets.token_hex(8))))
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return self._status

    async def _run(self, plan: Plan) -> None:
        self._stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        beside: tuple[Role, ...] = ("state", "engine") if self._engine else ("state",)
        self._beside = [_Place(replace(plan, role=role)) for role in beside]
        self._serving = [_Place(replace(plan, index=index)) for index in range(self._workers)]
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._pass_on, signal.SIGHUP)
        self._front.progress(f"listening on {self._url} with {self._workers} workers")
        tasks = [asyncio.create_task(self._keep(place)) for place in (*self._beside, *self._serving)]
        ready = asyncio.create_task(self._wait_for_all())
        await self._stopping.wait()
        ready.cancel()
        await self._end(self._serving, self._patience.drain_s)
        await self._end(self._beside, self._patience.close_s)
        await asyncio.gather(*tasks)

    async def _wait_for_all(self) -> None:
        for place in (*self._beside, *self._serving):
            await place.ready.wait()
        await self._front.ready(self._url, self._serving[0].models)

    async def _keep(self, place: _Place) -> None:
        """Start a process whenever it is not there, so often in a row."""
        while not self._stopping.is_set():
            began = None
            try:
                plan = replace(place.plan, again=place.ready.is_set())
                child = place.child = await Child.start(plan, self._arguments, self._front.progress)
            except OSError as error:
                self._give_up(place, f"cannot be started: {error}")
                return
            log.info("started", extra={"fields": {"process": place.plan.name, "pid": child.pid}})
            if self._stopping.is_set():
                child.signal(signal.SIGTERM)
            watched: list[asyncio.Future[Any]] = [child.ready, child.ended]
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if child.is_ready:
                began = asyncio.get_running_loop().time()
                place.models = child.ready.result()
                place.ready.set()
            status = await child.ended
            if self._stopping.is_set():
                self._status = self._status or int(status not in _CLEAN)
            elif not await self._again(place, status, began):
                return

    async def _again(self, place: _Place, status: int, began: float | None) -> bool:
        """Whether a process that ended by itself is started again; waits until then."""
        patience = self._patience
        if not place.ready.is_set():
            self._give_up(place, f"did not start (exit status {status})")
            return False
        if began is not None and asyncio.get_running_loop().time() - began >= patience.steady_s:
            place.restarts = 0
        if place.restarts >= patience.restarts and not self._others_serve(place):
            self._give_up(place, f"has ended {place.restarts + 1} times in a row (exit status {status})")
            return False
        wait = min(patience.first_wait_s * 2**place.restarts, patience.last_wait_s)
        place.restarts += 1
        fields = {"process": place.plan.name, "exit_status": status, "again_in_s": wait}
        log.error("A PROCESS HAS ENDED BY ITSELF and is started again", extra={"fields": fields})
        try:
            async with asyncio.timeout(wait):
                await self._stopping.wait()
        except TimeoutError:
            return True
        return False

    def _others_serve(self, place: _Place) -> bool:
        """Whether this is a worker, and another one serves: then it is tried again for ever."""
        others = [each for each in self._serving if each is not place]
        return place in self._serving and any(each.child is not None and each.child.serves for each in others)

    def _give_up(self, place: _Place, why: str) -> None:
        log.error("%s %s: the server ends", place.plan.name, why)
        self._status = 1
        self._stopping.set()

    def _stop(self, number: int) -> None:
        """The first signal ends the server, later ones hurry those that still run."""
        if self._stopping.is_set():
            self._pass_on(number)
        self._stopping.set()

    def _pass_on(self, number: int) -> None:
        for place in self._serving:
            if place.child is not None and place.child.is_ready:
                place.child.signal(number)

    async def _end(self, places: Sequence[_Place], patience_s: float) -> None:
        children = [each.child for each in places if each.child is not None and not each.child.has_ended]
        for child in children:
            child.signal(signal.SIGTERM)
        if not children:
            return
        _, stuck = await asyncio.wait([child.ended for child in children], timeout=patience_s)
        for child in children:
            if child.ended in stuck:
                log.error("%s does not end, and is killed", child.plan.name)
                child.kill()


def _reserved(host: str, port: int) -> socket.socket:
    """A socket that keeps the port for this server's workers, having found that nobody else has it."""
    with bound(host, port) as alone:
        port = _port(alone)
    return bound(host, port, shared=True)


def _port(of: socket.socket) -> int:
    return int(of.getsockname()[1])
