"""Loads the configuration again when its files change, or when it is told to; a broken one changes nothing."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from gateway.config.assemble import Assembly, assembled
from gateway.config.effective import digest
from gateway.config.errors import ConfigError
from gateway.config.load import load_config
from gateway.config.model import Config
from gateway.config.secret_ref import secrets_in
from gateway.config.unread import unread
from gateway.reload.at_start import waiting_keys
from gateway.reload.file_watch import FileWatch
from gateway.reload.last_good import LastGood
from gateway.reload.live import Live
from gateway.reload.state import ConfigState
from gateway.replicas.pool import EnginePool
from gateway.tenants.authenticator import OPEN

log = logging.getLogger("kvgate.gateway")

_EVERY_S = 1.0
_ASKED_S = 10.0  # how long an engine that is new may take to answer before requests can reach it


class Reloader:
    """One process's. `file` None: the environment says everything, and only secrets can change."""

    def __init__(
        self,
        file: Path | None,
        environ: Mapping[str, str],
        first: Assembly,
        kept: LastGood | None = None,
        every_s: float = _EVERY_S,
    ) -> None:
        self.state = ConfigState(digest(first.config), time.time())
        self._file = file
        self._environ = environ
        self._started = first.config
        self._now = first
        self._kept = kept
        self._every_s = every_s
        self._asked = asyncio.Event()
        self._needs_keys: str | None = None
        self._unread: tuple[str, ...] = ()  # keys that were told to be of no effect
        self._watch = FileWatch(self._files(first.config))

    def begins_with_older(self, messages: tuple[str, ...]) -> None:
        """The first configuration is one that was kept, since the newest cannot be used."""
        self._failed(messages)

    def ask(self) -> None:
        """Load it again, whether anything has changed or not. Called on the event loop."""
        self._asked.set()

    def needs_keys(self, refused: str) -> None:
        """A configuration without keys cannot be used from now on, for the reason `refused`."""
        self._needs_keys = refused

    async def run(self, live: Live) -> None:
        """Until cancelled."""
        self._tell_unread(self._started)
        while True:
            try:
                async with asyncio.timeout(self._every_s):
                    await self._asked.wait()
            except TimeoutError:
                if not await asyncio.to_thread(self._watch.changed):
                    continue
            self._asked.clear()
            await self.once(live)

    async def once(self, live: Live) -> bool:
        """Load it now; False: it cannot be used, and the one before counts on."""
        try:
            wanted = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._failed(error.messages)
            return False
        except Exception:
            log.exception("loading the configuration failed")
            self._failed(("it could not be loaded",))
            return False
        await self._begin(wanted, live)
        return True

    def _load(self) -> Assembly:
        if self._file is not None and self._file.exists() and not self._file.is_file():
            raise ConfigError(f"{self._file} is no plain file")  # a pipe would be waited for, maybe for ever
        found = assembled(load_config(self._file, self._environ), self._environ, self._now)
        if self._needs_keys is not None and found.configured.tenants is OPEN:
            raise ConfigError(f"tenants: missing: {self._needs_keys}")
        return found

    async def _begin(self, wanted: Assembly, live: Live) -> None:
        fresh = wanted.fresh(self._now)
        live.share(wanted.configured)
        try:
            await _answered(fresh)
        except asyncio.CancelledError:
            await asyncio.gather(*(pool.aclose() for pool in fresh))
            raise
        before, self._now = self._now, wanted
        live.put(wanted.configured)
        _forget_gone(before, wanted)
        self._watch.look(self._files(wanted.config))
        if self._kept is not None:
            await asyncio.to_thread(self._kept.keep, wanted.config)
        self._loaded(before, wanted)

    def _loaded(self, before: Assembly, now: Assembly) -> None:
        waiting = waiting_keys(self._started, now.config)
        state = self.state
        state.digest, state.loaded_at, state.failed = digest(now.config), time.time(), False
        state.loads += 1
        fields = {"config": state.digest, **_engines(before, now)}
        log.info("the configuration was loaded again", extra={"fields": fields})
        if waiting and waiting != state.waiting:
            fields = {"keys": ", ".join(waiting)}
            log.warning("these keys have no effect before the next start", extra={"fields": fields})
        state.waiting = waiting
        self._tell_unread(now.config)

    def _tell_unread(self, config: Config) -> None:
        before, self._unread = self._unread, unread(config)
        if self._unread and self._unread != before:
            log.warning("these keys have no effect", extra={"fields": {"keys": "; ".join(self._unread)}})

    def _failed(self, messages: tuple[str, ...]) -> None:
        self.state.failed = True
        self.state.failures += 1
        fields = {"config": self.state.digest, "errors": "; ".join(messages)}
        log.error("THE CONFIGURATION CANNOT BE USED: the one before counts on", extra={"fields": fields})

    def _files(self, config: Config) -> Iterable[Path]:
        secrets = [secret.file for _, secret in secrets_in(config) if secret.file is not None]
        return secrets if self._file is None else [self._file, *secrets]


async def _answered(pools: list[EnginePool]) -> None:
    """Start engines, and give them time to say what they serve, so that no request finds them unknown."""
    for pool in pools:
        pool.start()
    waits = [asyncio.create_task(pool.asked()) for pool in pools]
    if waits:
        _, late = await asyncio.wait(waits, timeout=_ASKED_S)
        for task in late:
            task.cancel()


def _forget_gone(before: Assembly, now: Assembly) -> None:
    """A router that goes on with other replicas need not remember those that are no more."""
    for name, part in now.parts.items():
        old = before.parts.get(name)
        if old is not None and old.pool is not part.pool and old.pool.router is part.pool.router:
            for replica in {r.replica for r in old.pool.replicas} - {r.replica for r in part.pool.replicas}:
                part.pool.router.forget(replica)


def _engines(before: Assembly, now: Assembly) -> dict[str, str]:
    old, new = before.parts, now.parts
    sorts = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name].pool is not old[name].pool],
    }
    return {f"engines_{sort}": ",".join(names) for sort, names in sorts.items() if names}
