"""Keeps the replicas behind a Service: a list, then every change, and a list again where changes were missed."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from gateway.replicas.address import ReplicaAddress
from gateway.replicas.discovery.backoff import Backoff
from gateway.replicas.discovery.kubernetes.api import Event, GoneError, KubernetesError, Session, SliceApi
from gateway.replicas.discovery.kubernetes.slices import ServicePort, replicas_in

log = logging.getLogger("kvgate.gateway")

_QUIET_S = 1.0  # a watch that ends later than that has worked, however it ends, also where nothing happened


class KubernetesDiscovery:
    """One Service's. `name` is what the log calls it."""

    def __init__(
        self,
        api: SliceApi,
        port: ServicePort,
        name: str,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        backoff: Backoff | None = None,
    ) -> None:
        self._api = api
        self._port = port
        self._name = name
        self._sleep = sleep
        self._backoff = backoff or Backoff()
        self._slices: dict[str, Mapping[str, Any]] = {}
        self._version: str | None = None  # to go on from; None: list
        self.failing = False
        self.lists = 0

    async def watch(self) -> AsyncGenerator[Sequence[ReplicaAddress], None]:
        """Every list of replicas that differs from the one before."""
        known: Sequence[ReplicaAddress] | None = None
        while True:
            try:
                async with (
                    self._api.session() as session,
                    aclosing(self._changes(session)) as changes,
                ):
                    async for _ in changes:
                        found = replicas_in(self._slices.values(), self._port)
                        if found != known:
                            known = found
                            yield found
            except GoneError:
                self._version = None
            except KubernetesError as error:
                self._fail(str(error))
            await self._sleep(self._backoff.wait_s())

    async def _changes(self, session: Session) -> AsyncGenerator[None, None]:
        """After the list, and after each change, until the server ends the watch."""
        if self._version is None:
            listed = await session.listed()
            self.lists += 1
            self._slices, self._version = dict(listed.slices), listed.version
            self._works()
            yield
        async with session.watching(self._version) as events:
            self._works()
            began = time.monotonic()
            try:
                async for event in events:
                    self._backoff.worked()
                    self._version = event.version or self._version
                    if self._apply(event):
                        yield
            finally:
                if time.monotonic() - began > _QUIET_S:
                    self._backoff.worked()

    def _apply(self, event: Event) -> bool:
        """Whether that has changed a slice."""
        if event.kind in ("ADDED", "MODIFIED"):
            self._slices[event.name] = event.object
        elif event.kind == "DELETED":
            self._slices.pop(event.name, None)
        else:
            return False
        return True

    def _works(self) -> None:
        if self.failing:
            log.info("endpoints are watched again", extra={"fields": {"service": self._name}})
        self.failing = False

    def _fail(self, why: str) -> None:
        if not self.failing:
            fields = {"service": self._name, "error": why}
            log.warning("endpoints cannot be watched; the replicas there are stay", extra={"fields": fields})
        self.failing = True
