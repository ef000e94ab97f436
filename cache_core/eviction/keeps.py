"""The prefixes that hints were granted for, and how much of them counts for which scope."""

from cache_core.eviction.hints import RetentionLimits
from cache_core.node import Node

NEVER = float("inf")


class Retained:
    """What was granted to the prefix that ends at `node`. Times are clock readings."""

    __slots__ = ("blocks", "kept", "kept_until", "node", "pinned", "scope", "worthless", "worthless_from")

    def __init__(self, node: Node, scope: str, blocks: int) -> None:
        self.node = node
        self.scope = scope
        self.blocks = blocks  # of the whole prefix
        self.kept = False  # goes after all others, and counts for its scope
        self.kept_until = 0.0
        self.pinned = False  # kept by a pin, not by priority
        self.worthless = False  # goes before all others, unless it is kept
        self.worthless_from = NEVER


class Keeps:
    """Counts what is kept. Pins are promises; what priority alone keeps makes room for newer, the oldest first."""

    def __init__(self, limits: RetentionLimits, num_blocks: int) -> None:
        self._scope_blocks = int(limits.scope_share * num_blocks)
        self._total_blocks = int(limits.total_share * num_blocks)
        self._scope_keeps = limits.scope_keeps
        self._by_scope: dict[str, dict[Retained, None]] = {}
        self._held: dict[str, int] = {}
        self.blocks = 0

    def add(self, new: Retained) -> list[Retained] | None:
        """Count `new`; returns the older ones of its scope that made room, None where it does not fit."""
        yielding = self._yielding(new)
        if yielding is None:
            return None
        for older in yielding:
            self.remove(older)
        self._by_scope.setdefault(new.scope, {})[new] = None
        self._held[new.scope] = self.held(new.scope) + new.blocks
        self.blocks += new.blocks
        new.kept = True
        return yielding

    def remove(self, old: Retained) -> None:
        """`old` is kept no more."""
        old.kept = False
        mine = self._by_scope[old.scope]
        del mine[old]
        self._held[old.scope] -= old.blocks
        self.blocks -= old.blocks
        if not mine:
            del self._by_scope[old.scope], self._held[old.scope]

    def held(self, scope: str) -> int:
        """Blocks that count for a scope."""
        return self._held.get(scope, 0)

    def _yielding(self, new: Retained) -> list[Retained] | None:
        mine = self._by_scope.get(new.scope, {})
        over = new.blocks + max(self.held(new.scope) - self._scope_blocks, self.blocks - self._total_blocks)
        too_many = len(mine) + 1 - self._scope_keeps
        yielding: list[Retained] = []
        for older in mine:
            if over <= 0 and too_many <= 0:
                break
            if not older.pinned:
                yielding.append(older)
                over -= older.blocks
                too_many -= 1
        return yielding if over <= 0 and too_many <= 0 else None
