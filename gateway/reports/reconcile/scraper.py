"""Asks every engine from time to time what it counted, and keeps it in the ledger's database."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from engine_adapters.errors import EngineError
from gateway.ledger.errors import LedgerError
from gateway.ledger.scrapes import Scrape, ScrapeStore
from gateway.reports.reconcile.counted import counted

log = logging.getLogger("kvgate.gateway")

Counters = Callable[[], Awaitable[Mapping[str, float]]]

_EVERY_S = 30.0
_WAIT_S = 5.0  # for one engine's answer


class EngineScraper:
    """`engines` tells, each time, which there are now: by name, how to ask for counters."""

    def __init__(
        self,
        store: ScrapeStore,
        engines: Callable[[], Mapping[str, Counters]],
        every_s: float = _EVERY_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._engines = engines
        self._every_s = every_s
        self._clock = clock
        self._failing = False

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self._every_s)

    async def once(self) -> None:
        """Ask all engines at the same time. One that does not answer has no scrape this time."""
        found = await asyncio.gather(*(self._ask(name, ask) for name, ask in self._engines().items()))
        rows = [scrape for scrape in found if scrape is not None]
        try:
            await asyncio.to_thread(self._store.put, rows)
        except LedgerError as error:
            if not self._failing:
                log.warning("engines' counters are not kept", extra={"fields": {"reason": str(error)}})
            self._failing = True
        else:
            self._failing = False

    async def _ask(self, name: str, ask: Counters) -> Scrape | None:
        try:
            async with asyncio.timeout(_WAIT_S):
                counters = await ask()
        except (EngineError, TimeoutError) as error:
            log.debug("no counters", extra={"fields": {"engine": name, "error": type(error).__name__}})
            return None
        own = counted(counters)
        return Scrape(name, self._clock(), own.prompt, own.reused, own.recomputed) if own.anything else None
