"""One replica of an engine behind HTTP: what it serves, and what it was found to be able to do."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from engine_adapters.base import Health
from engine_adapters.errors import EngineError
from engine_adapters.remote.relay import RelayEngine, RemoteCapabilities
from gateway.relay.control_tokens import ControlTokenCheck

log = logging.getLogger("kvgate.gateway")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 15.0
_LOOK_S = 15.0  # between two looks whether an engine that was found is still there


class Remote:
    """Asks its engine what it can until that answers, and again when it was away: it may have other flags then.

    `names` maps the names that clients use to the engine's own; empty: as the engine lists its models.
    `control_tokens` looks through what goes to it; None: nothing does.
    """

    def __init__(
        self,
        engine: RelayEngine,
        names: Mapping[str, str] | None = None,
        control_tokens: ControlTokenCheck | None = None,
        replica: str | None = None,
    ) -> None:
        self.engine = engine
        self.name = engine.name
        self.replica = replica or engine.name  # its id among those of this engine
        self.control_tokens = control_tokens
        self.able: RemoteCapabilities | None = None  # None: not asked, or it has not answered yet
        self.detail = "it was not asked yet"
        self.asked = asyncio.Event()  # set when it was asked once, whatever came of it
        self._names = dict(names or {})
        self._told: object = None
        self._task: asyncio.Task[None] | None = None

    @property
    def models(self) -> Mapping[str, str]:
        """Names that clients use, each with the engine's own; empty while nothing is known."""
        if self._names or self.able is None:
            return self._names
        return {name: name for name in self.able.models}

    @property
    def context_length(self) -> int | None:
        """Tokens; None: not known."""
        return None if self.able is None else self.able.context_length

    @property
    def block_size(self) -> int | None:
        """Tokens; None: not known."""
        return None if self.able is None else self.able.block_size

    def start(self) -> None:
        """Begin to ask. Called on the event loop that requests run on."""
        self._task = asyncio.create_task(self._watch())

    async def aclose(self) -> None:
        """Ask no more, and close all connections; requests that run end with an error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.engine.aclose()

    async def health(self) -> Health:
        """Whether the engine takes requests now."""
        return await self.engine.health()

    async def _watch(self) -> None:
        wait = _FIRST_WAIT_S
        while True:
            found = await self._ask()
            self.asked.set()
            if found:
                await self._stays()
                wait = _FIRST_WAIT_S
            else:
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)

    async def _stays(self) -> None:
        """Returns when the engine has gone."""
        health = await self.engine.health()
        while health.ready:
            await asyncio.sleep(_LOOK_S)
            health = await self.engine.health()
        self._told = None
        self.detail = health.detail
        log.warning("an engine has gone", extra={"fields": {"engine": self.name, "detail": health.detail}})

    async def _ask(self) -> bool:
        try:
            able = await self.engine.detect()
        except EngineError as error:
            self._say_once(str(error), "an engine is not there yet; it is asked again", detail=str(error))
            self.detail = str(error)
            return False
        except Exception as error:  # noqa: BLE001  whatever an engine answers, it is asked again
            self._say_once(type(error), "an engine answers in no known form", detail=type(error).__name__)
            self.detail = "it answers in no known form"
            return False
        self.able, self.detail = able, "ready"
        facts = (able.models, able.reports_reuse, able.missing, able.version)
        if facts != self._told:
            self._told = facts
            self._tell(able)
        return True

    def _tell(self, able: RemoteCapabilities) -> None:
        fields = {
            "engine": self.name,
            "models": ",".join(able.models),
            "version": able.version or "unknown",
            "block_size": "unknown" if able.block_size is None else able.block_size,
        }
        log.info("an engine is there", extra={"fields": fields})
        if able.reports_reuse is False:
            fields = {"engine": self.name, "missing": _flags(able.missing)}
            log.warning(
                "THIS ENGINE DOES NOT REPORT WHAT IT REUSES: its requests are `not_reported` in the ledger",
                extra={"fields": fields},
            )
        elif able.missing:
            fields = {"engine": self.name, "missing": _flags(able.missing)}
            log.warning("an engine could report more", extra={"fields": fields})

    def _say_once(self, facts: object, message: str, **fields: str) -> None:
        if facts != self._told:
            self._told = facts
            log.warning(message, extra={"fields": {"engine": self.name, **fields}})


def _flags(missing: Iterable[str]) -> str:
    return "; ".join(missing) or "it has no flag for it"
