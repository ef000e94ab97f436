"""The engine's process: loads the model once, and serves every worker over one socket."""

import asyncio
import logging
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvloop

from canon.errors import CanonError
from engine_adapters.engine_process.service import EngineService
from engine_adapters.errors import EngineError
from engine_adapters.rpc.server import Server
from gateway.garbage import keep_what_is_there, let_go
from gateway.process.telling import tell_line
from gateway.served import Backend, Load
from gateway.workers.seat import Seat

log = logging.getLogger("kvgate.workers")


def run_engine(seat: Seat, load: Load) -> int:
    """Until a signal; the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_Engine(seat, load).run())
    let_go()
    return status


class _Engine:
    def __init__(self, seat: Seat, load: Load) -> None:
        self._seat = seat
        self._load = load
        self._began = time.perf_counter()

    async def run(self) -> int:
        ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ending.set)
        backend = await self._loaded(ending)
        if not isinstance(backend, Backend):
            return backend
        about = {"name": backend.name, "tokenizer": str(backend.tokenizer or "")}
        server = await Server(EngineService(backend.engine, about).service()).listen(
            self._seat.plan.engine_socket
        )
        self._seat.say_ready([backend.capabilities().model])
        await ending.wait()
        server.close()
        await backend.engine.aclose()
        return 0

    async def _loaded(self, ending: asyncio.Event) -> Backend | int:
        """The engine; a number: the exit status, there is none."""
        # A thread of its own: one that is in the middle of loading must not hold up the end.
        loading = asyncio.get_running_loop().run_in_executor(
            ThreadPoolExecutor(1, thread_name_prefix="kvgate-load"), self._load, self._progress
        )
        stop = asyncio.create_task(ending.wait())
        try:
            watched: list[asyncio.Future[Any]] = [loading, stop]
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                os._exit(0)  # a model half loaded cannot be stopped
            loaded = await loading
            backend = loaded if isinstance(loaded, Backend) else await loaded
        except (EngineError, CanonError, OSError) as error:
            tell_line(f"Error: {error}", sys.stderr)
            return 1
        except Exception:
            log.exception("loading failed")
            return 1
        finally:
            stop.cancel()
        keep_what_is_there()
        return backend

    def _progress(self, line: str) -> None:
        tell_line(f"[{time.perf_counter() - self._began:6.1f} s] {line}", sys.stderr)
