"""A serving process over a scripted engine, for tests of its life: `python -m tests.gateway.served_process PORT`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable

from engine_adapters.base import Event, GenerateRequest, TextDelta
from engine_adapters.errors import EngineFailureError, EngineNotReadyError
from gateway.logs import configure_logs
from gateway.process.listener import ListenError
from gateway.process.server import Ending
from gateway.process.service import ServeOptions, Service
from gateway.reload.live import Configured
from gateway.served import Backend
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine, hello


class StoppableEngine(ScriptedEngine):
    """Requests with a seed run that many seconds, or until the engine is closed."""

    def __init__(self) -> None:
        super().__init__(self._run)
        self._stop = asyncio.Event()

    async def _run(self, request: GenerateRequest) -> AsyncIterator[Event]:
        if request.sampling.seed is not None:
            yield TextDelta(0, "wait ")
            try:
                await asyncio.wait_for(self._stop.wait(), request.sampling.seed)
            except TimeoutError:
                pass
            else:
                raise EngineNotReadyError("the engine has stopped")
        async for event in hello(request):
            yield event

    async def aclose(self) -> None:
        self._stop.set()
        print("engine closed", file=sys.stderr, flush=True)


def main(port: str, load: str = "works", grace_s: str = "0.5", delay_s: str = "0") -> int:
    configure_logs(json=False)

    def loads(progress: Callable[[str], None]) -> Backend:
        progress("loading")
        if load == "fails":
            raise EngineFailureError("no such model")
        if load == "hangs":
            time.sleep(60)
        return Backend(StoppableEngine(), BytePrompts())

    try:
        return Service(
            loads,
            ServeOptions("127.0.0.1", int(port), Ending(float(delay_s), float(grace_s)), json=True),
            Configured(),
        ).run()
    except ListenError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
