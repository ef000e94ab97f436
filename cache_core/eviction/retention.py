"""Hints of requests, over any eviction policy."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count

from cache_core.eviction.hints import RetentionHints, RetentionLimits
from cache_core.eviction.keeps import NEVER, Keeps, Retained
from cache_core.eviction.leaf_queue import LeafQueue
from cache_core.eviction.policy import EvictionPolicy, LiesIn, Lookup, MeasuredCosts
from cache_core.eviction.shares import Shares
from cache_core.node import Node
from cache_core.tokens import Tokens

_TIDY_FROM = 1024


class Retention(EvictionPolicy):
    """Victims in this order: what is worthless by a hint, what `policy` says, what is kept by a hint.

    Of what the policy says, that of scopes over their share first, where `shares` are given.

    A leaf that is kept keeps all above it, because leaves go first. Kept leaves are set aside, not queued;
    the times of all hints wait in one heap, which is looked at when a victim is wanted.
    """

    def __init__(
        self,
        policy: EvictionPolicy,
        limits: RetentionLimits,
        clock: Callable[[], float],
        shares: Shares | None = None,
    ) -> None:
        self._policy = policy
        self._shares = shares or Shares(1 << 62)
        self.name = policy.name
        self._limits = limits
        self._clock = clock
        self._keeps = Keeps(limits, 0)
        self._worthless = LeafQueue(lambda node: node.last_access)
        self._aside: dict[Node, None] = {}
        self._times: list[tuple[float, int, Retained]] = []
        self._expired: dict[Retained, None] = {}  # their time to live is over, and nobody used them since
        self._tidy_at = _TIDY_FROM
        self._order = count()
        self._granted = False  # any hint, ever: until then there is none to look for
        self.refused = 0  # wishes to keep that were over a limit
        self.overruled = 0  # kept prefixes that gave way because a request had no other room

    @property
    def kept_blocks(self) -> int:
        """Blocks that count as kept."""
        return self._keeps.blocks

    def bind(self, num_blocks: int, block_size: int) -> None:
        self._keeps = Keeps(self._limits, num_blocks)
        self._policy.bind(num_blocks, block_size)

    def accessed(self, node: Node, tokens: Tokens, scope: str, lookup: Lookup | None = None) -> int:
        ghosts = self._policy.accessed(node, tokens, scope, lookup)
        step: Node | None = node if self._granted else None
        while step is not None:
            if step.retained is not None:
                self._used_again(step.retained)
            step = step.parent
        return ghosts

    def retain(self, node: Node, scope: str, blocks: int, hints: RetentionHints) -> None:
        """A request lets go of the path to `node`, which is `blocks` long, and asks for this.

        Takes the place of what was asked for the same path before. Called before `node` is offered.
        """
        if node.retained is not None:
            self._withdraw(node.retained)
        if self._times:
            self._tell_time()
        now = self._clock()
        new = Retained(node, scope, blocks)
        if hints.priority < 0:
            new.worthless = True
        elif hints.ttl_s is not None:
            self._set_time(new, now + hints.ttl_s)
            new.worthless_from = now + hints.ttl_s
        self._keep(new, hints, now)
        if new.kept or new.worthless or new.worthless_from != NEVER:
            node.retained = new
            self._granted = True

    def offer(self, node: Node) -> None:
        retained = node.retained
        if retained is not None and retained.kept:
            self._aside[node] = None
        elif retained is not None and retained.worthless:
            node.queued = None  # its entry in the other queue, if any, is dead
            self._worthless.offer(node)
        else:
            self._policy.offer(node)

    def victim(self) -> Node | None:
        if self._times:
            self._tell_time()
        while (node := self._worthless.pop()) is not None:
            if node.retained is not None and node.retained.worthless and not node.retained.kept:
                return node
            self.offer(node)
        while (node := self._shares.victim(self._policy)) is not None:
            if node.retained is None or not node.retained.kept:
                return node
            self._aside[node] = None
        return self._overruled()

    def expired(self) -> list[Node]:
        """Evictable leaves that were not used within their time to live: nobody is to come back to them."""
        if self._times:
            self._tell_time()
        self._expired = {one: None for one in self._expired if _in_force(one) and one.worthless}
        return [one.node for one in self._expired if one.node.evictable and not one.kept]

    def tail(self, node: Node) -> int:
        return self._policy.tail(node)

    def evicted(self, node: Node, blocks: int) -> None:
        self._policy.evicted(node, blocks)

    def removed(self, node: Node) -> None:
        if node.retained is not None:
            self._withdraw(node.retained)
        self._policy.removed(node)

    def measured(self, costs: MeasuredCosts, lies_in: LiesIn) -> None:
        self._policy.measured(costs, lies_in)

    def purged(self, scope: str) -> None:
        self._policy.purged(scope)

    def _keep(self, new: Retained, hints: RetentionHints, now: float) -> None:
        pin = min(hints.pin_s, self._limits.longest_pin_s)
        lasts = max(pin, self._limits.priority_s if hints.priority > 0 else 0.0)
        if lasts <= 0:
            return
        new.pinned, new.kept_until = pin > 0, now + lasts
        yielding = self._keeps.add(new)
        if yielding is None:
            self.refused += 1
            return
        self._set_time(new, new.kept_until)
        for older in yielding:
            self._offer_again(older.node)

    def _set_time(self, retained: Retained, time: float) -> None:
        heappush(self._times, (time, next(self._order), retained))
        if len(self._times) > self._tidy_at:
            self._times = [entry for entry in self._times if _in_force(entry[2])]
            heapify(self._times)
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._times))

    def _tell_time(self) -> None:
        now = self._clock()
        while self._times and self._times[0][0] <= now:
            _, _, retained = heappop(self._times)
            if not _in_force(retained):
                continue
            if retained.kept and retained.kept_until <= now:
                self._keeps.remove(retained)
            if retained.worthless_from <= now:
                retained.worthless = True
                self._expired[retained] = None
            self._offer_again(retained.node)

    def _used_again(self, retained: Retained) -> None:
        """What is used is neither worthless nor about to be; what was kept stays kept."""
        retained.worthless, retained.worthless_from = False, NEVER
        if not retained.kept:
            retained.node.retained = None

    def _withdraw(self, retained: Retained) -> None:
        if retained.kept:
            self._keeps.remove(retained)
        self._aside.pop(retained.node, None)
        retained.node.retained = None

    def _offer_again(self, node: Node) -> None:
        """What holds for `node` changed."""
        retained = node.retained
        if retained is not None and not retained.kept:
            self._aside.pop(node, None)
            if not retained.worthless and retained.worthless_from == NEVER:
                node.retained = None
        if node.evictable:
            self.offer(node)

    def _overruled(self) -> Node | None:
        """The kept leaf that gives way: without a pin before with one, the soonest to end first."""
        self._aside = {node: None for node in self._aside if node.evictable}
        waiting = [node.retained for node in self._aside if node.retained is not None]
        if not waiting:
            return None
        first = min(waiting, key=lambda retained: (retained.pinned, retained.kept_until))
        self._withdraw(first)
        self.overruled += 1
        return first.node


def _in_force(retained: Retained) -> bool:
    return retained.node.retained is retained and retained.node.parent is not None
