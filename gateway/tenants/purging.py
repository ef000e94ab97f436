"""Forgetting a tenant: everything that keeps something of requests registers here how it forgets."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

log = logging.getLogger("kvgate.gateway")


@dataclass(frozen=True, slots=True)
class PurgeAsk:
    """What is to be forgotten."""

    tenant: str
    scopes: tuple[str, ...]  # what is kept by scope; empty: others share it, and it stays
    shared_with: tuple[str, ...] = ()  # tenants whose prefixes these are, too, so that `scopes` is empty
    flush_engines: bool = False  # empty engines that cannot forget one tenant
    salt: str | None = None  # of the tenant's group, for engines that forget by it

    @property
    def whole(self) -> bool:
        """Whether what the tenant's group shares is forgotten, too."""
        return bool(self.scopes)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What became of it in one place."""

    count: int | None = None  # of what the place counts; None: it does not count
    detail: str = ""
    complete: bool = True  # False: something is still there; `detail` says what, and until when


Purge: TypeAlias = Callable[[PurgeAsk], Awaitable[Forgotten]]


@dataclass(frozen=True, slots=True)
class Place:
    """One place that forgets."""

    name: str
    purge: Purge
    once: bool  # of a whole server; False: each of its processes has one


class Purges:
    """The places of one process. Places that other rooms have are registered when those are made."""

    def __init__(self) -> None:
        self._places: list[Place] = []

    def register(self, name: str, purge: Purge, *, once: bool = False) -> None:
        """`purge` forgets in the place called `name`; `once`: one process does it for all of a server."""
        self._places.append(Place(name, purge, once))

    async def here(self, ask: PurgeAsk, *, lead: bool = True) -> dict[str, Forgotten]:
        """Forget in this process; `lead`: in what the processes of the server share, too. Never raises.

        In the order of registration, so that what is written behind something else is forgotten behind it.
        """
        return {place.name: await _purged(place, ask) for place in self._places if lead or not place.once}

    async def asked(self, tenant: str, scopes: list[str], flush_engines: bool) -> dict[str, list[Any]]:
        """The same for another process of the server, in plain values."""
        found = await self.here(PurgeAsk(tenant, tuple(scopes), (), flush_engines), lead=False)
        return {name: [each.count, each.detail, each.complete] for name, each in found.items()}


async def _purged(place: Place, ask: PurgeAsk) -> Forgotten:
    try:
        return await place.purge(ask)
    except Exception as error:  # noqa: BLE001  the other places forget all the same
        fields = {"place": place.name, "tenant": ask.tenant, "error": type(error).__name__}
        log.error("a tenant could not be forgotten", extra={"fields": fields})  # noqa: TRY400  its text may quote
        return Forgotten(
            None, f"it failed ({type(error).__name__}): see to it, then purge again", complete=False
        )


def both(one: Forgotten, other: Forgotten) -> Forgotten:
    """What became of it in the same place of two processes."""
    count = other.count if one.count is None else one.count + (other.count or 0)
    details = dict.fromkeys(each for each in (one.detail, other.detail) if each)
    return Forgotten(count, "; ".join(details), complete=one.complete and other.complete)
