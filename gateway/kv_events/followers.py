"""Those of one engine's replicas: they come and go with them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from engine_adapters.base import ReuseReport
from engine_adapters.remote.kv_event_stream import KvEventSource
from gateway.kv_events.flags import events_flag
from gateway.kv_events.follower import Follower
from gateway.kv_events.options import KvEventOptions
from gateway.routing.kv_changes import Change

TellOf: TypeAlias = Callable[[str, Sequence[Change]], None]  # a replica's changes


class Followers:
    """`tell` is told of each replica's changes. Used on the event loop that requests run on."""

    def __init__(self, options: KvEventOptions, tell: TellOf) -> None:
        self._options = options
        self._tell = tell
        self._of: dict[str, Follower] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._events: Counter[str] = Counter()  # of replicas that have left
        self._gaps = 0

    def came(self, replica: str, url: str, publishers: Callable[[], int | None] = lambda: None) -> None:
        """Follow the one that is asked at `url`. `publishers`: how many it says by now that it has."""
        options = self._options
        endpoint, replay = options.at(url, replica.partition("/")[2])
        source = KvEventSource(endpoint, options.topic, replay)

        def tell(changes: Sequence[Change]) -> None:
            if self._of.get(replica) is follower:  # one that has left is no other one of the same name
                self._tell(replica, changes)

        follower = self._of[replica] = Follower(
            replica,
            source,
            tell,
            flag=events_flag(options.kind, endpoint, replay, options.topic),
            publishers=publishers,
        )
        follower.start()

    def answered(self, replica: str, reuse: ReuseReport | None, block_size: int | None) -> None:
        """A request was answered there, so that something of its prompt should come."""
        if replica in self._of:
            self._of[replica].silence.answered(reuse, block_size)

    def went(self, replica: str) -> None:
        """It has left its engine."""
        follower = self._of.pop(replica, None)
        if follower is not None:
            self._events.update(follower.events)
            self._gaps += follower.gaps
            task = asyncio.get_running_loop().create_task(follower.aclose())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def forgot(self, replica: str) -> None:
        """What is known of it was given up, since it was away."""
        if replica in self._of:
            self._of[replica].begin_anew()

    def all(self) -> list[Follower]:
        """Of replicas that are there."""
        return list(self._of.values())

    def follower(self, replica: str) -> Follower | None:
        """None: it is not followed."""
        return self._of.get(replica)

    @property
    def events(self) -> Counter[str]:
        """So far, by kind, of all that ever were there."""
        return sum((each.events for each in self._of.values()), self._events.copy())

    @property
    def gaps(self) -> int:
        """So far, of all that ever were there."""
        return self._gaps + sum(each.gaps for each in self._of.values())

    async def aclose(self) -> None:
        """Listen no more."""
        await asyncio.gather(*(each.aclose() for each in self._of.values()), *self._leaving)
