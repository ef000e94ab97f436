"""Follows the events of one replica for as long as it is there."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import zmq

from engine_adapters.remote.kv_event_stream import KvEventSource, KvEventStream
from engine_adapters.remote.kv_events import (
    AllCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
    KvEventBatch,
    Missed,
)
from gateway.kv_events.silence import Silence
from gateway.routing.kv_changes import Change, Cleared, Complete, Silent, changes_of, in_parts

log = logging.getLogger("kvgate.gateway")

Tell: TypeAlias = Callable[[Sequence[Change]], None]

_SHORTEST_S, _LONGEST_S = 0.5, 30.0  # between two tries to open a socket
_LOOK_S = 1.0  # between two looks whether the connection stands
_AT_ONCE = 256  # blocks that are told of without a pause: some milliseconds
_MANY = 16_384  # tokens that are looked through without a pause


@dataclass(frozen=True, slots=True)
class Following:
    """How it stands."""

    endpoint: str
    connected: bool
    flows: bool  # whether what it says counts now
    batches: int
    lag_s: float | None  # of the newest batch, by both clocks; None: none has come
    silent: str | None  # why it is taken to publish none, in words; None: it is not
    add: str | None  # what the engine is to be started with where it is silent; None: nothing, or not known


class Follower:
    """One replica's. Used on the event loop that requests run on.

    Attributes:
        events: so far, by kind.
        gaps: times that batches were lost, could not be read, or the engine began anew.
    """

    def __init__(
        self,
        replica: str,
        source: KvEventSource,
        tell: Tell,
        clock: Callable[[], float] = time.time,
        patience: int = 10,
        *,
        flag: str | None = None,
        publishers: Callable[[], int | None] = lambda: None,
        silence: Silence | None = None,
    ) -> None:
        """`patience`: seconds without a connection, until it is made from scratch.

        `flag`: what the engine publishes with; `publishers`: how many it says by now that it has, one for each of its
        data-parallel ranks, which have a cache each; None: it does not say.
        """
        self.replica = replica
        self.events: Counter[str] = Counter()
        self.gaps = 0
        self._source = source
        self._tell = tell
        self._clock = clock
        self._patience = patience
        self._stream: KvEventStream | None = None
        self._task: asyncio.Task[None] | None = None
        self._told = ""
        self._flows = False
        self._batches = 0
        self._anew = 0  # how often everything began anew
        self._lag_s: float | None = None
        self._flag = flag
        self._publishers = publishers
        self.silence = silence or Silence(time.monotonic)
        self._silent: str | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._follow())

    async def aclose(self) -> None:
        """Listen no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def begin_anew(self) -> None:
        """What the replica has said is forgotten: it is asked for it again, where it keeps that."""
        self._flows = False
        self._anew += 1
        self.silence.begin_anew()
        if self._stream is not None:
            self._stream.begin_anew()

    @property
    def state(self) -> Following:
        """As of now."""
        connected = self._stream is not None and self._stream.connected
        return Following(
            self._source.endpoint,
            connected,
            self._flows,
            self._batches,
            self._lag_s,
            self._silent,
            None if self._silent is None or self._several() else self._flag,
        )

    async def _follow(self) -> None:
        wait = _SHORTEST_S
        while True:
            began = self._batches
            try:
                await self._listen()
            except (zmq.ZMQError, OSError) as error:
                self._say("a replica's KV events cannot be listened to; it is tried again", str(error))
            except Exception as error:
                log.exception("a replica's KV events were of no known form", extra={"fields": self._who()})
                self._told = type(error).__name__
            if self._batches > began:
                self._flows = False
                self._tell([Cleared(), Silent()])  # what happens meanwhile is missed
            wait = _SHORTEST_S if self._batches > began else min(2 * wait, _LONGEST_S)
            await asyncio.sleep(wait)

    async def _listen(self) -> None:
        async with KvEventStream(self._source) as stream:
            self._stream = stream
            tasks = [asyncio.create_task(self._read(stream)), asyncio.create_task(self._watch(stream))]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
                self._stream = None

    async def _read(self, stream: KvEventStream) -> None:
        async for item in stream:
            await self._take(item)
            await asyncio.sleep(0)  # what waits already is given out without a pause

    async def _watch(self, stream: KvEventStream) -> None:
        """A replica that is not connected may lose blocks without a word. Returns where a new socket is needed."""
        looks = 0
        while looks < self._patience:
            await asyncio.sleep(_LOOK_S)
            self._look_for_silence(stream)
            looks = 0 if stream.connected or not stream.was_connected else looks + 1
            if looks and self._flows:
                self._say("a replica's KV events have ceased", "the connection is gone")
                self._fall_silent()
        # ZeroMQ does not connect again by itself behind a message that was too large.

    def _look_for_silence(self, stream: KvEventStream) -> None:
        """The operator wants events: that there are none, or none that count, is said once, until some come."""
        publishers = self._publishers()
        if publishers is not None and publishers > 1:
            self._has_several(publishers)
            return
        detail = self.silence.detail(says_none=publishers == 0)
        before, self._silent = self._silent, detail
        if detail is None or before is not None:
            return
        fields = {
            **self._who(),
            "detail": detail,
            "connected": "yes" if stream.connected else "no",
            "add": self._flag or "what makes it publish there",
        }
        log.warning(
            "A REPLICA PUBLISHES NO KV EVENTS: what it holds is guessed from its answers",
            extra={"fields": fields},
        )

    def _has_several(self, publishers: int) -> None:
        """What one of several caches holds does not say what the replica has: which of them is asked is not known."""
        before, self._silent = self._silent, f"it has {publishers} caches, and one of them is heard"
        if before != self._silent:
            log.warning(
                "A REPLICA HAS SEVERAL CACHES: its KV events do not count, and it is known by its answers",
                extra={"fields": {**self._who(), "caches": publishers}},
            )
        if self._flows:
            self._flows = False
            self._tell([Cleared(), Silent()])

    async def _take(self, item: KvEventBatch | Missed) -> None:
        self.silence.heard()
        several = self._several()
        if not several:
            self._silent = None
        if isinstance(item, Missed):
            self.gaps += 1
            self._flows = False
            self._tell([Cleared(), Silent()])
            return
        anew = self._anew
        changes, unused = await self._changes(item.events)
        self.events.update(map(_kind, item.events))
        self.events.update(unused=unused, unknown=item.unknown)
        self._batches += 1
        self._lag_s = self._clock() - item.at
        if several:
            return
        for part in in_parts(changes, _AT_ONCE):
            if anew != self._anew:
                return
            self._begin_to_flow()
            self._tell(part)
            await asyncio.sleep(0)  # requests do not wait for a large batch
        if anew == self._anew and _tells_all(item):
            self._tell([Complete()])

    def _several(self) -> bool:
        """Whether one cache of several is heard, as far as is known by now."""
        return (self._publishers() or 0) > 1

    async def _changes(self, events: Sequence[KvEvent]) -> tuple[Sequence[Change], int]:
        if sum(len(each.token_ids) for each in events if isinstance(each, BlocksStored)) > _MANY:
            return await asyncio.to_thread(changes_of, events)
        return changes_of(events)

    def _begin_to_flow(self) -> None:
        if not self._flows:
            self._flows, self._told = True, ""
            log.info("a replica tells what it holds", extra={"fields": self._who()})

    def _fall_silent(self) -> None:
        if self._flows:
            self._flows = False
            self._tell([Silent()])

    def _who(self) -> dict[str, object]:
        engine = self.replica.partition("/")[0]
        return {"engine": engine, "replica": self.replica, "endpoint": self._source.endpoint}

    def _say(self, message: str, error: str) -> None:
        """Once, until it has changed."""
        if error != self._told:
            self._told = error
            log.warning(message, extra={"fields": {**self._who(), "error": error}})


def _tells_all(batch: KvEventBatch) -> bool:
    """Whether nothing was held before it that it does not tell of."""
    return batch.seq == 0 or any(isinstance(each, AllCleared) for each in batch.events)


def _kind(event: KvEvent) -> str:
    if isinstance(event, AllCleared):
        return "cleared"
    return "removed" if isinstance(event, BlocksRemoved) else "stored"
