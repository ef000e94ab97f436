"""Who holds which prefix, across machines: from a chain of prefix hashes to owners. KV itself is never stored there.

What it says are hints, never promises: an owner may have lost a prefix, and nobody is told.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PrefixOwner:
    """One that should hold a prefix."""

    name: str
    depth: int  # keys of the chain, from its beginning
    tier: str  # where it holds it: device, host, disk
    heat: int  # how often it was told to hold it


class PrefixDirectory(Protocol):
    """Of one engine. Keys are 64-bit hashes, each of its whole prefix; chains of different scopes share nothing.

    An owner has an epoch: what it held before it was cleared is nobody's any more, and is not looked for. Entries that
    are not told again end after a time. Called on one event loop; nothing here raises.
    """

    async def owners(self, scope: str, keys: Sequence[int], known: int = 0) -> Sequence[PrefixOwner]:
        """Who holds more than the first `known` of `keys`, the longest prefix first; empty where that is not known."""

    def holds(self, scope: str, keys: Sequence[int], owner: str, tier: str = "device") -> None:
        """`owner` holds the prefix that these are. Not waited for."""

    def cleared(self, owner: str) -> None:
        """`owner` holds nothing. Not waited for."""
