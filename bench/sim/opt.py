"""What no policy can beat: Belady's choice, which knows the future, and does not cache what is not worth it."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from bench.sim.trace import Ids

_NEVER = 1 << 60


def optimal_hits(
    requests: Sequence[Ids], capacity: int, progress: Callable[[int, int], None] | None = None
) -> int:
    """Blocks that hit when the leaf needed again last goes first, unless the new block is needed later still.

    A child is never needed before its parent, so leaf-first costs the optimum nothing.
    """
    paths = [ids.tolist() for ids in requests]
    cache = _Belady(capacity)
    hits = 0
    for number, (path, after) in enumerate(zip(paths, _next_uses(paths), strict=True)):
        hits += cache.request(path, after)
        if progress is not None and number % 256 == 0:
            progress(number, len(paths))
    return hits


def _next_uses(paths: Sequence[list[int]]) -> list[list[int]]:
    """For each block of each request, the number of the next request that asks for it."""
    seen: dict[int, int] = {}
    uses: list[list[int]] = []
    for number in range(len(paths) - 1, -1, -1):
        uses.append([seen.get(block, _NEVER) for block in paths[number]])
        seen.update(dict.fromkeys(paths[number], number))
    uses.reverse()
    return uses


class _Belady:
    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._next: dict[int, int] = {}  # the cached blocks, and when each is needed again
        self._parent: dict[int, int | None] = {}
        self._children: dict[int, int] = {}
        self._leaves: list[tuple[int, int]] = []

    def request(self, path: list[int], after: list[int]) -> int:
        hits = 0
        for block, again in zip(path, after, strict=True):
            if block not in self._next:
                break
            self._next[block] = again
            hits += 1
        end = path[hits - 1] if hits else None
        for block, again in zip(path[hits:], after[hits:], strict=True):
            if again == _NEVER or not self._room(again, end):
                break
            self._insert(block, again, end)
            end = block
        if end is not None:
            self._offer(end)
        return hits

    def _room(self, again: int, end: int | None) -> bool:
        if len(self._next) < self._capacity:
            return True
        while self._leaves:
            key, leaf = self._leaves[0]
            if self._next.get(leaf) != -key or self._children.get(leaf):
                heappop(self._leaves)
                continue
            if -key <= again or leaf == end:
                return False
            heappop(self._leaves)
            self._evict(leaf)
            return True
        return False

    def _insert(self, block: int, again: int, parent: int | None) -> None:
        self._next[block] = again
        self._parent[block] = parent
        if parent is not None:
            self._children[parent] = self._children.get(parent, 0) + 1

    def _evict(self, leaf: int) -> None:
        del self._next[leaf]
        parent = self._parent.pop(leaf)
        if parent is not None:
            self._children[parent] -= 1
            self._offer(parent)

    def _offer(self, block: int) -> None:
        if not self._children.get(block):
            heappush(self._leaves, (-self._next[block], block))
