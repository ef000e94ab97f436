"""Replicas that say themselves what they hold: where they do, that counts, and what was sent is a bridge until then."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from gateway.routing.chain import Key, PromptChain
from gateway.routing.kv_changes import Change, Cleared, Complete, Removed, Silent, Stored
from gateway.routing.kv_feed import KvFeed
from gateway.routing.replica_index import ReplicaIndex, Sending

_BRIDGE_S = 2.0  # behind a request's end, by which its engine's events must have come
_MOST = 20_000  # requests that ended within that time; the oldest is settled before


class ToldReplicas:
    """Of one index. Times are seconds of any clock that only goes on."""

    def __init__(self, index: ReplicaIndex) -> None:
        self._index = index
        self._feeds: dict[str, KvFeed] = {}
        self._flowing: set[str] = set()
        self._complete: set[str] = set()
        self._ended: deque[tuple[float, Sending]] = deque()

    def flows(self, replica: str) -> bool:
        """Whether what it says counts."""
        return replica in self._flowing

    def knows(self, replica: str, chain: PromptChain) -> bool:
        """Whether what the replica says of this prompt is all there is to know: others may know nothing more."""
        if replica not in self._flowing:
            return False
        told = self._feeds[replica].told
        return (
            replica in self._complete or _begins(chain) in told or next(iter(chain.blocks(0)), None) in told
        )

    def orphans(self) -> int:
        """Blocks that were told of without what is before them."""
        return sum(feed.orphans for feed in self._feeds.values())

    def take(self, replica: str, changes: Iterable[Change]) -> None:
        """What the replica says, in its order."""
        feed = self._feeds.get(replica)
        if feed is None:
            feed = self._feeds[replica] = KvFeed(self._index, replica)
        for change in changes:
            if isinstance(change, Silent):
                self._silent(replica)
                continue
            if isinstance(change, Complete):
                self._complete.add(replica)
                continue
            if replica not in self._flowing:
                self._flowing.add(replica)
                self._index.trust(replica, True)
            _put(feed, change)

    def settle(self, sent: Sending, now: float) -> None:
        """A request has ended there: what its replica does not say it holds by then, it does not hold."""
        self._ended.append((now + _BRIDGE_S, sent))
        if len(self._ended) > _MOST:
            self._settled(self._ended.popleft()[1])

    def due(self, now: float) -> None:
        """Let what was only sent go, where its time is over."""
        while self._ended and self._ended[0][0] <= now:
            self._settled(self._ended.popleft()[1])

    def forget_prompts(self) -> int:
        """Their tokens are kept until their time is over, which comes now; how many there were."""
        count = len(self._ended)
        self.due(math.inf)
        return count

    def forget(self, replica: str) -> None:
        """It has gone, or was restarted."""
        self._feeds.pop(replica, None)
        self._silent(replica)

    def clear(self) -> None:
        """Nothing is known of anybody."""
        for replica in list(self._feeds):
            self.forget(replica)
        self._ended.clear()

    def _silent(self, replica: str) -> None:
        self._flowing.discard(replica)
        self._complete.discard(replica)
        self._index.trust(replica, False)

    def _settled(self, sent: Sending) -> None:
        feed = self._feeds.get(sent.replica)
        # Behind what was computed before anybody listened nothing can be told: what was sent is all that is known.
        if feed is not None and sent.replica in self._flowing and _begins(sent.chain) in feed.told:
            self._index.settle(sent, feed.told)


def _begins(chain: PromptChain) -> Key | None:
    return next(iter(chain.keys or chain.blocks(0)), None)


def _put(feed: KvFeed, change: Stored | Removed | Cleared) -> None:
    match change:
        case Stored():
            tokens = np.frombuffer(change.tokens, dtype="<i4")
            feed.stored(change.names, change.parent, tokens, change.seed, change.tier)
        case Removed():
            feed.removed(change.names, change.tier)
        case Cleared():
            feed.cleared()


def told_from(plain: Sequence[Sequence[object]]) -> list[Change]:
    """Changes that came from another process, each with its kind first."""
    return [_KINDS[str(kind)](*fields) for kind, *fields in plain]


def told_as(changes: Iterable[Change]) -> list[list[object]]:
    """Changes for another process."""
    return [[type(change).__name__, *change] for change in changes]


_KINDS: dict[str, Callable[..., Change]] = {
    kind.__name__: kind for kind in (Stored, Removed, Cleared, Silent, Complete)
}
