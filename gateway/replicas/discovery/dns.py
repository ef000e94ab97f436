"""Replicas behind one name: every address that it resolves to, looked up from time to time."""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal, TypeAlias

from gateway.replicas.address import ReplicaAddress

log = logging.getLogger("kvgate.gateway")

Address: TypeAlias = IPv4Address | IPv6Address
Family: TypeAlias = Literal["any", "ipv4", "ipv6"]
# Addresses of a name, as texts; raises socket.gaierror.
Resolve: TypeAlias = Callable[[str, socket.AddressFamily], Awaitable[Sequence[str]]]

# Answers in a row without an address until its replica is gone: servers of names err, too, or do not all know the same.
_GONE = 3
_LATE_S = 20.0  # without an answer, until that is told
_AGAIN_S = 5.0  # at most, until a name is looked up again that lacked one
_FAMILIES = {"any": socket.AF_UNSPEC, "ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
_NO_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


@dataclass(frozen=True, slots=True)
class DnsName:
    """A name whose addresses are replicas, as that of a headless Service."""

    name: str
    port: int
    scheme: Literal["http", "https"] = "http"
    every_s: float = 5.0
    family: Family = "any"  # any: the IPv4 ones where there are some, since a replica may have one of each


async def resolved(name: str, family: socket.AddressFamily) -> Sequence[str]:
    """As this machine resolves names: its hosts file, search domains and servers.

    On a thread of its own, since that may wait for half a minute and cannot be stopped: threads that others wait for
    are not held up, and nor is the end of the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(found: Sequence[str] | OSError | UnicodeError) -> None:
        if future.done():
            return
        if isinstance(found, Exception):
            future.set_exception(found)
        else:
            future.set_result(found)

    def look() -> None:
        found: Sequence[str] | OSError | UnicodeError
        try:
            answers = socket.getaddrinfo(name, None, family, socket.SOCK_STREAM)
            found = [str(address[0]) for *_, address in answers]
        except (OSError, UnicodeError) as error:
            found = error
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=look, name="kvgate-dns", daemon=True).start()
    return await future


class DnsDiscovery:
    """Looks a name up again and again."""

    def __init__(
        self,
        name: DnsName,
        resolve: Resolve = resolved,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._resolve = resolve
        self._sleep = sleep
        self._lacked: dict[Address, int] = {}  # of each address, answers in a row without it
        self._unknown = True  # it has not been said yet what there is
        self.failing = False

    async def watch(self) -> AsyncGenerator[Sequence[ReplicaAddress], None]:
        """Every list that differs from the one before."""
        known: Sequence[ReplicaAddress] | None = None
        while True:
            await self._look()
            found = _replicas(self._lacked, self._name)
            if found != known and not self._unknown:
                known = found
                yield found
            await self._sleep(self._wait_s())

    async def _look(self) -> None:
        """Put what it resolves to now into what is known; nothing where it cannot be said."""
        try:
            found = await self._answer()
        except (OSError, UnicodeError) as error:
            if not isinstance(error, socket.gaierror) or error.errno not in _NO_NAME:
                self._fail(str(error))
                return
            found = ()
        self._unknown = False
        now = _parsed(found)
        if not now:
            self._fail("it has no address")
        elif self.failing:
            log.info("a name resolves again", extra={"fields": {"name": self._name.name}})
            self.failing = False
        lacked = {each: count + 1 for each, count in self._lacked.items() if count + 1 < _GONE}
        self._lacked = lacked | dict.fromkeys(now, 0)

    async def _answer(self) -> Sequence[str]:
        """However long that takes: another look would only wait beside it."""
        asked = asyncio.ensure_future(self._resolve(self._name.name, _FAMILIES[self._name.family]))
        try:
            await asyncio.wait([asked], timeout=_LATE_S)
            if not asked.done():
                self._fail(f"no answer for {_LATE_S:g} s")
            return await asked
        finally:
            asked.cancel()

    def _wait_s(self) -> float:
        every = self._name.every_s
        return min(every, _AGAIN_S) if self.failing or any(self._lacked.values()) else every

    def _fail(self, why: str) -> None:
        if not self.failing:
            fields = {"name": self._name.name, "error": why}
            log.warning("a name of replicas does not resolve; those there are stay", extra={"fields": fields})
        self.failing = True


def _parsed(found: Iterable[str]) -> set[Address]:
    """Addresses without their zones; what is none is left out."""
    parsed = set()
    for each in found:
        with suppress(ValueError):
            parsed.add(ip_address(each.partition("%")[0]))
    return parsed


def addresses(found: Iterable[str], name: DnsName) -> list[ReplicaAddress]:
    """Replicas at these addresses, in an order of their own."""
    return _replicas(_parsed(found), name)


def _replicas(found: Iterable[Address], name: DnsName) -> list[ReplicaAddress]:
    v4: list[IPv4Address] = sorted(each for each in found if isinstance(each, IPv4Address))
    v6: list[IPv6Address] = sorted(each for each in found if isinstance(each, IPv6Address))
    hosts = [str(each) for each in v4] or [f"[{each}]" for each in v6]
    return [ReplicaAddress(f"{host}:{name.port}", f"{name.scheme}://{host}:{name.port}") for host in hosts]
