"""The process that holds what workers share: memory of conversations, limits, figures, and the way to one another."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from canon.memory import LocalStore
from engine_adapters.rpc.connection import Connection
from engine_adapters.rpc.errors import AwayError, FailedError
from engine_adapters.rpc.server import Server
from engine_adapters.rpc.service import Call, Service
from gateway.settings import CanonSettings
from gateway.telemetry.figures import Family
from gateway.workers.fallen import Fallen
from gateway.workers.limits_keeper import LimitsKeeper
from gateway.workers.seat import Seat
from gateway.workers.shared_prediction import PredictionKeeper
from gateway.workers.shared_routing import RoutingKeeper

log = logging.getLogger("kvgate.workers")

_ANSWER_S = 2.0  # for what one worker has counted
_ASK_S = 60.0  # for one worker's answer to what another one asks of all


def run_state(seat: Seat, settings: CanonSettings) -> int:
    """Until a signal; the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(seat, settings))
    return 0


async def _run(seat: Seat, settings: CanonSettings) -> None:
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    fallen = Fallen(seat.plan.state_socket.with_name("counted"))
    fallen.find(Path(seat.plan.folder))
    service = StateService(settings, fallen, seat.plan.workers).service()
    server = await Server(service).listen(seat.plan.state_socket)
    seat.say_ready()
    await ending.wait()
    server.close()


class StateService:
    """What workers ask for. Quick calls answer at once, in the order in which they came."""

    def __init__(self, settings: CanonSettings, fallen: Fallen, workers: int) -> None:
        """`workers`: how many there should be."""
        self._expected = workers
        self._memory = LocalStore(settings.memory_bytes, ttl_s=settings.memory_ttl_s)
        self._workers: dict[Connection, str] = {}  # the process's own name, which no other ever has
        self._said: dict[Connection, list[Family]] = {}
        self._fallen = fallen
        self._limits = LimitsKeeper()
        self._routing = RoutingKeeper()
        self._prediction = PredictionKeeper()

    def service(self) -> Service:
        """For a `Server`."""
        memory = self._memory
        calls: dict[str, Call] = {
            "memory.get": lambda _, key: memory.get(key),
            "memory.put": lambda _, key, value: memory.put(key, value),
            "memory.compare_and_put": lambda _, key, old, new: memory.compare_and_put(key, old, new),
            "memory.forget": lambda _, prefix: memory.forget(prefix),
            **self._limits.calls(),
            **self._routing.calls(),
            **self._prediction.calls(),
            "hello": self._hello,
            "figures": self._figures,
            "all_figures": self._all_figures,
            "ask": self._ask,
        }
        return Service(calls, closed=self._gone)

    def _hello(self, connection: Connection, process: str) -> None:
        self._workers[connection] = process
        self._fallen.lives(process)

    def _figures(self, connection: Connection, snapshot: list[Family]) -> None:
        self._said[connection] = snapshot

    def _gone(self, connection: Connection) -> None:
        self._limits.gone(connection)
        self._routing.gone(connection)
        process, said = self._workers.pop(connection, None), self._said.pop(connection, None)
        if process is not None and said is not None:
            self._fallen.add(process, said)

    async def _all_figures(self, asking: Connection, own: list[Family]) -> list[Sequence[Family]]:
        """What the others have counted, and those that have ended. What was told once is never taken back."""
        self._said[asking] = own
        others = [each for each in self._workers if each is not asking]
        for each, (answered, said) in zip(
            others, await asyncio.gather(*(self._asked(each, "figures", []) for each in others)), strict=True
        ):
            if answered and each in self._workers:
                self._said[each] = said
        there = [self._said[each] for each in self._workers if each is not asking and each in self._said]
        return [*there, *self._fallen.snapshots()]

    async def _ask(self, asking: Connection, name: str, args: list[Any]) -> list[Any]:
        """What each other worker answers; raises AwayError where not all of them do."""
        others = [each for each in self._workers if each is not asking]
        if len(others) < self._expected - 1:
            raise AwayError(f"{len(others) + 1} of {self._expected} workers are there now")
        found = await asyncio.gather(*(self._asked(each, name, args, _ASK_S) for each in others))
        silent = [self._workers.get(each, "one that has ended") for each in others]
        silent = [who for who, (answered, _) in zip(silent, found, strict=True) if not answered]
        if silent:
            raise AwayError(f"no answer from worker {', '.join(silent)}")
        return [answer for _, answer in found]

    async def _asked(
        self, worker: Connection, name: str, args: list[Any], timeout_s: float = _ANSWER_S
    ) -> tuple[bool, Any]:
        try:
            return True, await worker.call(name, *args, timeout_s=timeout_s)
        except (AwayError, FailedError) as error:
            fields = {"asked": name, "process": self._workers.get(worker, "gone"), "error": str(error)}
            log.warning("a worker did not answer", extra={"fields": fields})
            return False, None
