"""What the cache asks of an eviction policy."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cache_core.metrics import TierName
from cache_core.node import Node
from cache_core.tokens import Tokens


class Lookup(NamedTuple):
    """When a path was looked up, and what was ready of it."""

    ready: int  # leading blocks
    accesses: int  # calls of `EvictionPolicy.accessed` until then


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """What it takes here to have a block again, in seconds."""

    token_s: float  # prefill of one token without those before it
    attention_s: float  # more for every token before it
    reload_s: Mapping[TierName, float]  # one block from each tier below


LiesIn = Callable[[Node], TierName | None]  # the warmest tier below that is known to have a node's last block


class EvictionPolicy(ABC):
    """Orders victims, leaf-first. Never frees a block, never changes a node but its `queued` and `record`.

    `name` is what it is called in figures. Called under the cache's lock. Nodes go in and out of evictability all
    the time, so a policy may hold entries of nodes that are leased, no leaf or gone by now; `victim` must pass over
    them.
    """

    name = "custom"

    @property
    def outside_bytes(self) -> int:
        """Memory it takes that is not Python's own."""
        return 0

    def bind(self, num_blocks: int, block_size: int) -> None:  # noqa: B027 - most policies need no sizes
        """The pool this policy works for. Called once, before anything else."""

    def accessed(self, node: Node, tokens: Tokens, scope: str, lookup: Lookup | None = None) -> int:
        """A request used the path that ends at `node`, and lets go of it.

        `tokens` are those of the whole path, in whole blocks. Called before the path's end is offered. Says how many
        blocks this policy remembered when the request looked them up, though they were not cached any more; 0
        where it remembers only what is cached.
        """
        return 0

    @abstractmethod
    def offer(self, node: Node) -> None:
        """`node` is evictable now. May be offered again while it is queued."""

    @abstractmethod
    def victim(self) -> Node | None:
        """The evictable node to shrink next, from its end; None where nothing is evictable.

        It leaves the queue: whoever leaves a rest of it offers it again.
        """

    def tail(self, node: Node) -> int:
        """How many blocks at the end of `node`, at least one, rank alike: at most these go at a time."""
        return node.num_blocks

    def evicted(self, node: Node, blocks: int) -> None:  # noqa: B027 - few policies learn from it
        """That many blocks were taken off the end of the victim `node`, for want of room."""

    def removed(self, node: Node) -> None:  # noqa: B027 - most policies find out by themselves
        """`node` left the tree in another way than as a victim."""

    def measured(self, costs: MeasuredCosts, lies_in: LiesIn) -> None:  # noqa: B027 - most ask for no costs
        """What blocks cost now; `lies_in` says whenever it is asked from where the last one of a node could come."""

    def purged(self, scope: str) -> None:  # noqa: B027 - few policies remember scopes
        """Nothing may be remembered of this scope."""
