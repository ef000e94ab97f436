"""Does an engine tell what its cache holds? What it says of that, and what comes while it is examined."""

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from engine_adapters.remote.relay import EventPublisher, RemoteCapabilities
from gateway.kv_events.flags import events_flag
from gateway.reports.doctor.checkup import Check, Finding
from gateway.reports.errors import DoctorError

_QUESTION = "Does it tell what its cache holds (KV events)?"
_NOT_HERE = "which cannot be heard from here: say where, with --kv-events tcp://HOST:PORT."
_NEEDS = "listening takes pip install 'kvgate[events]'."
_CONNECT_S = 2.0  # until a connection stands: what is published before is not heard
_LAST_S = 3.0  # behind the last request, for what is still on its way
_STEP_S = 0.05
_MOST = 16  # publishers that are listened to: ranks of one engine
_WILDCARDS = frozenset({"*", "0.0.0.0", "[::]"})  # noqa: S104 -- what an engine was told; nothing is bound here


class Ear(Protocol):
    """Listens while an engine is examined."""

    async def check(self) -> Check:
        """What was heard; waits a little for what is on its way."""


class Deaf:
    """Listens to nothing; what there is to say is known already."""

    def __init__(self, check: Check) -> None:
        self._check = check

    async def check(self) -> Check:
        return self._check


class Listener:
    """Counts what comes from publishers that an operator or the engine has named."""

    def __init__(self, endpoints: Sequence[str], *, insists: bool) -> None:
        """`insists`: an operator has named them, so that silence is bad news."""
        self._places = ", ".join(endpoints)
        self._insists = insists
        self.connected = self.batches = self.stored = self.lost = 0

    async def check(self) -> Check:
        await until(lambda: self.stored, _LAST_S)
        came = f"{self.batches:,} batch{'' if self.batches == 1 else 'es'} came"
        if self.stored:
            lost = f", {self.lost:,} could not be read or were lost" if self.lost else ""
            detail = f"It publishes at {self._places}: {came}, {self.stored:,} blocks{lost}."
            return _check("yes", detail)
        why = f"{came}, and no block was stored" if self.batches else "nothing came"
        how = "" if self.connected else ", and no connection stood"
        detail = f"It publishes at {self._places}, and {why}{how}."
        if not self._insists:
            return _check("unknown", f"{detail} From where it can be heard, say --kv-events tcp://HOST:PORT.")
        return _check(
            "no", detail, "See that the engine publishes there, and that this machine reaches the port."
        )


@asynccontextmanager
async def listening(
    kind: str, url: str, found: RemoteCapabilities, asked: str | None = None
) -> AsyncIterator[Ear]:
    """Listen where the engine at `url` says that it publishes, or at `asked`, where an operator says so.

    Raises DoctorError where it cannot be listened to at `asked`.
    """
    if asked is not None and not asked.startswith(("tcp://", "ipc://")):
        raise DoctorError("--kv-events: write tcp://HOST:PORT or ipc://PATH.")
    publishers = found.publishers[:_MOST] if asked is None else (EventPublisher(asked),)
    heard = [
        place
        for each in publishers
        if (place := _from_here(each, url, anywhere=asked is not None)) is not None
    ]
    heard = list(dict.fromkeys(heard))  # ranks may be said to share one
    here = importlib.util.find_spec("zmq") is not None
    if asked is not None and not here:
        raise DoctorError(f"--kv-events: {_NEEDS}")
    if not heard or not here:
        yield Deaf(_unheard(kind, found, reachable=bool(heard)))
        return
    listener = Listener([endpoint for endpoint, _ in heard], insists=asked is not None)
    async with AsyncExitStack() as stack:
        for endpoint, topic in heard:
            try:
                await stack.enter_async_context(_listened(endpoint, topic, listener))
            except DoctorError:
                if asked is not None:
                    raise  # an engine's own word may be nonsense, which silence will show
        yield listener


def _from_here(publisher: EventPublisher, url: str, *, anywhere: bool) -> tuple[str, str] | None:
    """Endpoint and topic as they are reached from here; None: they are not.

    An engine's word leads nowhere but to the machine that it was asked at, unless `anywhere`.
    """
    if not publisher.binds:
        return None
    host = urlsplit(url).hostname or ""
    scheme, _, place = publisher.endpoint.partition("://")
    name, _, port = place.rpartition(":")
    if scheme == "tcp" and name in _WILDCARDS:
        return f"tcp://{f'[{host}]' if ':' in host else host}:{port}", publisher.topic
    same = _is_near(host) if scheme == "ipc" or _is_near(name.strip("[]")) else name.strip("[]") == host
    return (publisher.endpoint, publisher.topic) if anywhere or same else None


def _is_near(host: str) -> bool:
    """Whether it is this machine's name for itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _unheard(kind: str, found: RemoteCapabilities, *, reachable: bool) -> Check:
    places = ", ".join(each.endpoint for each in found.publishers)
    if reachable:
        return _check("unknown", f"It publishes at {places}; {_NEEDS}")
    if found.publishers:
        does = "publishes at" if all(each.binds for each in found.publishers) else "connects by itself to"
        return _check("unknown", f"It {does} {places}, {_NOT_HERE}")
    add = events_flag(kind)
    flag = "" if add is None else f" To have them: {add}."
    if found.kv_events is False:
        return _check("absent", f"It publishes none.{flag}")
    return _check("unknown", f"Not reported: it does not say whether it publishes any.{flag}")


def _check(finding: Finding, detail: str, fix: str = "") -> Check:
    return Check("events", _QUESTION, finding, detail, fix)


@asynccontextmanager
async def _listened(endpoint: str, topic: str, listener: Listener) -> AsyncIterator[None]:
    """Tell `listener` what comes from there."""
    import zmq  # an extra, as what follows

    from engine_adapters.remote.kv_event_stream import KvEventSource, KvEventStream
    from engine_adapters.remote.kv_events import BlocksStored, KvEventBatch

    async def read(stream: KvEventStream) -> None:
        async for item in stream:
            if isinstance(item, KvEventBatch):
                listener.batches += 1
                listener.stored += sum(
                    len(each.hashes) for each in item.events if isinstance(each, BlocksStored)
                )
            else:
                listener.lost += item.batches or 0

    try:
        async with KvEventStream(KvEventSource(endpoint, topic)) as stream:
            reading = asyncio.create_task(read(stream))
            try:
                await until(lambda: stream.connected, _CONNECT_S)
                listener.connected += stream.connected
                yield
            finally:
                reading.cancel()
                await asyncio.wait([reading])
    except zmq.ZMQError as error:
        raise DoctorError(f"KV events cannot be listened to at {endpoint}: {error}.") from error


async def until(condition: Callable[[], object], seconds: float) -> None:
    """Return when it is true, or when it has not become so by then."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:  # noqa: ASYNC110  nothing tells
        await asyncio.sleep(_STEP_S)
