"""Eviction over single blocks by plain search: slow, and right by its definition."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

Choose = Callable[
    [list[int], int], int | None
]  # (leaves, incoming block) -> who goes; None: the incoming one


def hits(
    requests: Sequence[Sequence[int]], capacity: int, choose: Choose, use: Callable[[int, int], None]
) -> int:
    """Contiguous prefix hits of a cache that evicts leaf-first and never from the current path."""
    held: dict[int, int | None] = {}  # block -> the one before it
    found = 0
    for number, path in enumerate(requests):
        known = 0
        while known < len(path) and path[known] in held:
            known += 1
        found += known
        for block in path[:known]:
            use(block, number)
        for place in range(known, len(path)):
            block = path[place]
            use(block, number)
            if len(held) >= capacity:
                inner = set(held.values())
                leaves = [leaf for leaf in held if leaf not in inner and leaf not in path]
                victim = choose(leaves, block)
                if victim is None:
                    break
                del held[victim]
            held[block] = path[place - 1] if place else None
    return found


def lru_hits(requests: Sequence[Sequence[int]], capacity: int) -> int:
    last: dict[int, int] = {}

    def oldest(leaves: list[int], _: int) -> int | None:
        return min(leaves, key=last.__getitem__, default=None)

    return hits(requests, capacity, oldest, last.__setitem__)


def optimal_hits(requests: Sequence[Sequence[int]], capacity: int) -> int:
    never = len(requests)
    uses: dict[int, list[int]] = {}
    for number, path in enumerate(requests):
        for block in path:
            uses.setdefault(block, []).append(number)
    now = 0

    def following(block: int) -> int:
        later = bisect_right(uses[block], now)
        return uses[block][later] if later < len(uses[block]) else never

    def furthest(leaves: list[int], incoming: int) -> int | None:
        best = max(leaves, key=following, default=None)
        return best if best is not None and following(best) > following(incoming) else None

    def see(_: int, number: int) -> None:
        nonlocal now
        now = number

    return hits(requests, capacity, furthest, see)
