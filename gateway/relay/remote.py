"""One replica of an engine behind HTTP: what it serves, and what it was found to be able to do."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine_adapters.base import Health, ReuseReport
from engine_adapters.errors import EngineError
from engine_adapters.remote.relay import RelayEngine, RemoteCapabilities
from gateway.relay.control_tokens import ControlTokenCheck
from gateway.relay.learned import LearnedReuse
from gateway.tenants.tenant import Tenant

log = logging.getLogger("kvgate.gateway")

_FIRST_WAIT_S = 0.5
_SHORTEST_S = 0.2  # between two looks, whoever asks for one
_AGAIN_S = 0.5  # behind a look that found nobody


@dataclass(frozen=True, slots=True)
class LookOptions:
    """How an engine is watched."""

    every_s: float = (
        5.0  # between two looks whether it is still there; also the longest wait for one that is away
    )
    misses: int = 2  # looks in a row that find it away, until it is


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
        look: LookOptions | None = None,
        cache_tokens: int | None = None,
    ) -> None:
        self.engine = engine
        self.name = engine.name
        self.replica = replica or engine.name  # its id among those of this engine
        self.control_tokens = control_tokens
        self.cache_tokens = cache_tokens  # of KV that it keeps, as the operator says; None: not said
        self.able: RemoteCapabilities | None = None  # None: not asked, or it has not answered yet
        self.detail = "it was not asked yet"
        self.asked = asyncio.Event()  # set when it was asked once, whatever came of it
        self.learned = LearnedReuse()  # by its answers
        self.changed: Callable[[bool], None] = lambda _: None  # told when it begins and ends to take requests
        self._health = Health(True, "it was not asked yet", known=False)
        self._look = look or LookOptions()
        self._nudged = asyncio.Event()
        self._names = dict(names or {})
        self._named: tuple[str, ...] | None = None  # the engine's models, as `_same` has them
        self._same: Mapping[str, str] = {}
        self._told: object = None
        self._task: asyncio.Task[None] | None = None

    @property
    def models(self) -> Mapping[str, str]:
        """Names that clients use, each with the engine's own; empty while nothing is known."""
        if self._names or self.able is None:
            return self._names
        if self._named is not self.able.models:
            self._named = self.able.models
            self._same = {name: name for name in self._named}
        return self._same

    def shown(self, tenant: Tenant) -> Mapping[str, str]:
        """The engine's own names of its models, each with what `tenant` may ask for, where there is such a name."""
        every = {own: name for name, own in self.models.items()}
        return every | {own: name for name, own in self.models.items() if tenant.may_use(name)}

    @property
    def context_length(self) -> int | None:
        """Tokens; None: not known."""
        return None if self.able is None else self.able.context_length

    @property
    def block_size(self) -> int | None:
        """Tokens; None: not known."""
        return None if self.able is None else self.able.block_size

    @property
    def reports_reuse(self) -> bool | None:
        """As it was found out by asking, else by its answers; None: not known."""
        asked = None if self.able is None else self.able.reports_reuse
        return True if asked is None and self.learned.verdict == "reports" else asked

    @property
    def takes_salt(self) -> bool:
        """Whether salts can keep tenants apart there; of an engine that did not say yet, or does not, each request is
        judged on its own."""
        return bool(self.engine.salted) and (self.able is None or self.able.takes_salt is not False)

    @property
    def ready(self) -> bool:
        """Whether requests may go there, as it was found last; who was not asked yet is taken to be."""
        return self._health.ready

    def start(self) -> None:
        """Begin to ask. Called on the event loop that requests run on."""
        self._task = asyncio.create_task(self._watch())

    async def aclose(self) -> None:
        """Ask no more, and close all connections; requests that run end with an error."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self.asked.set()  # nobody waits for what will not come
        await self.engine.aclose()

    async def health(self) -> Health:
        """Whether the engine takes requests now; what was seen last where it is watched."""
        return await self.engine.health() if self._task is None else self._health

    def answered(self, reuse: ReuseReport) -> None:
        """A whole answer to a prompt came; what it said of reuse. What that teaches is said once in the log."""
        before = self.learned.verdict
        self.learned.take(reuse)
        now = self.learned.verdict
        if now == before or self.able is None or self.able.reports_reuse is not None:
            return  # or what it was asked has told
        fields = {**self._who(), "answers": self.learned.answers}
        if now == "reports":
            log.info("an engine reports what it reuses, as its answers show", extra={"fields": fields})
        else:
            log.warning(
                "THIS ENGINE HAS NOT REPORTED WHAT IT REUSES: its requests are `not_reported` in the ledger",
                extra={"fields": fields},
            )

    def nudge(self) -> None:
        """A request met nobody there: look at once."""
        self._nudged.set()

    async def _watch(self) -> None:
        wait = _FIRST_WAIT_S
        while True:
            found = await self._ask()
            self._now(await self._asked())
            self.asked.set()
            if found:
                await self._stays()
                wait = _FIRST_WAIT_S
            else:
                await self._pause(wait)
                wait = min(2 * wait, max(self._look.every_s, _FIRST_WAIT_S))

    def _now(self, health: Health) -> None:
        before, self._health = self._health, health
        if not health.ready and self.able is not None:
            self.detail = health.detail
        if before.ready != health.ready or not self.asked.is_set():
            self.changed(health.ready)

    async def _pause(self, seconds: float) -> None:
        """Until then, or until a request finds out more; never so short that looking is all there is."""
        await asyncio.sleep(min(seconds, _SHORTEST_S))
        try:
            async with asyncio.timeout(seconds - _SHORTEST_S):
                await self._nudged.wait()
        except TimeoutError:
            pass
        self._nudged.clear()

    async def _stays(self) -> None:
        """Returns when the engine has gone."""
        missed, health = 0, self._health
        while health.ready or missed < self._look.misses - 1:
            missed = 0 if health.ready else missed + 1
            await self._pause(_AGAIN_S if missed else self._look.every_s)
            health = await self._asked()
        self._told = None
        self.learned = LearnedReuse()  # what comes back may be another
        self._now(health)
        log.warning("an engine has gone", extra={"fields": {**self._who(), "detail": health.detail}})

    async def _asked(self) -> Health:
        try:
            return await self.engine.health()
        except Exception as error:  # noqa: BLE001  whatever an engine answers, it is looked at again
            return Health(False, f"it answers in no known form ({type(error).__name__})")

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
            **self._who(),
            "models": ",".join(able.models),
            "version": able.version or "unknown",
            "block_size": _known(able.block_size),
            "context": _known(able.context_length),
            "tiers": ",".join(able.tiers) or "not told",
            "salt": _yes_or_no(able.takes_salt),
            "token_ids": _yes_or_no(able.takes_token_ids),
            "kv_events": _yes_or_no(able.kv_events),
        }
        log.info("an engine is there", extra={"fields": fields})
        if able.reports_reuse is False:
            fields = {**self._who(), "missing": _flags(able.missing)}
            log.warning(
                "THIS ENGINE DOES NOT REPORT WHAT IT REUSES: its requests are `not_reported` in the ledger",
                extra={"fields": fields},
            )
        elif able.missing:
            fields = {**self._who(), "missing": _flags(able.missing)}
            log.warning("an engine could report more", extra={"fields": fields})

    def _who(self) -> dict[str, object]:
        one = self.replica == self.name
        return {"engine": self.name} if one else {"engine": self.name, "replica": self.replica}

    def _say_once(self, facts: object, message: str, **fields: str) -> None:
        if facts != self._told:
            self._told = facts
            log.warning(message, extra={"fields": {**self._who(), **fields}})


def _known(value: int | None) -> object:
    return "unknown" if value is None else value


def _yes_or_no(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def _flags(missing: Iterable[str]) -> str:
    return "; ".join(missing) or "it has no flag for it"
