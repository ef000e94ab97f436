"""Whose a response is, and which replica keeps it.

Ids stay the engine's own, so that answers and their events pass as the bytes they are, and the engine's log names the
same id as the client. An id of ours that held tenant and replica in itself would need no memory, but every body and
event that holds it to be written anew.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

LONGEST_ID: Final = 256  # characters; what is longer is no id that an engine gives


@dataclass(frozen=True, slots=True)
class Binding:
    """Where one response is kept."""

    engine: str  # the pool's name
    replica: str


class ResponseBindings(Protocol):
    """Remembers responses by tenant and id, for a while. An id that another tenant was given is not known."""

    async def bind(self, tenant: str, response: str, binding: Binding) -> None:
        """Remember where a response is kept."""

    async def find(self, tenant: str, response: str) -> Binding | None:
        """Where it is kept; None: it was never this tenant's, or too long ago."""

    async def forget(self, tenant: str, response: str) -> None:
        """It is kept no more."""

    async def forget_tenant(self, tenant: str) -> int:
        """None of a tenant's is known any more; how many were."""


class LocalBindings:
    """In this process. Where there are too many, those go that were not used for longest, of who has most."""

    def __init__(
        self, most: int = 100_000, ttl_s: float = 30 * 86400.0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._most = most
        self._ttl_s = ttl_s
        self._clock = clock
        self._of: dict[str, OrderedDict[str, tuple[Binding, float]]] = {}  # by tenant; with when it was bound
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def bind(self, tenant: str, response: str, binding: Binding) -> None:
        if len(response) > LONGEST_ID:
            return
        its = self._of.setdefault(tenant, OrderedDict())
        self._count += response not in its
        its[response] = (binding, self._clock())
        its.move_to_end(response)
        if self._count > self._most:
            largest = max(self._of, key=lambda name: len(self._of[name]))
            self._drop(largest, next(iter(self._of[largest])))

    async def find(self, tenant: str, response: str) -> Binding | None:
        its = self._of.get(tenant)
        if its is None or response not in its:
            return None
        binding, bound = its[response]
        if self._clock() - bound > self._ttl_s:
            self._drop(tenant, response)
            return None
        its.move_to_end(response)
        return binding

    async def forget(self, tenant: str, response: str) -> None:
        if response in self._of.get(tenant, {}):
            self._drop(tenant, response)

    async def forget_tenant(self, tenant: str) -> int:
        gone = len(self._of.pop(tenant, {}))
        self._count -= gone
        return gone

    def _drop(self, tenant: str, response: str) -> None:
        its = self._of[tenant]
        del its[response]
        self._count -= 1
        if not its:
            del self._of[tenant]
