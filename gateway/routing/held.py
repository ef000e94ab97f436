"""What one replica is believed to hold, in the order in which it would lose it."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat

from gateway.routing.chain import Key

_WEIGHT = 10  # bits of a value that say how many tokens its key stands for; the rest is when it was used
_MASK = (1 << _WEIGHT) - 1
_SMALLEST = 64 * 1024  # tokens: nobody serves with a cache that is smaller


class Held:
    """Keys by last use, the oldest first. Children are older than their parents, so they go first.

    `capacity` is in tokens; None: learned from what the replica turned out to have lost.
    """

    __slots__ = ("_keys", "_learned", "_stated", "tokens")

    def __init__(self, capacity: int | None = None) -> None:
        self._keys: OrderedDict[Key, int] = OrderedDict()
        self._stated = capacity
        self._learned: int | None = None
        self.tokens = 0

    @property
    def capacity(self) -> int | None:
        """Tokens; None: not known."""
        return self._learned if self._stated is None else self._stated

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def check(self) -> None:
        """Raises AssertionError where its sum is not that of its keys."""
        assert self.tokens == sum(value & _MASK for value in self._keys.values())

    def used(self, keys: Iterable[Key], number: int, weight: int) -> list[Key]:
        """Note the use of `keys`, children first, each `weight` tokens; gives those that are new."""
        held, value, new = self._keys, number << _WEIGHT | weight, []
        for key in keys:
            old = held.get(key)
            if old is None:
                new.append(key)
                self.tokens += weight
            else:
                self.tokens += weight - (old & _MASK)
                held.move_to_end(key)
            held[key] = value
        return new

    def touched(self, keys: Sequence[Key], number: int, weight: int) -> list[int]:
        """As `used`, of keys that are all held and stand for `weight` tokens each; gives when each was used before."""
        held, value = self._keys, number << _WEIGHT | weight
        before = [held[key] >> _WEIGHT for key in keys]
        deque(map(held.move_to_end, reversed(keys)), maxlen=0)  # without a step of the interpreter for each
        held.update(zip(keys, repeat(value)))
        return before

    def last_used(self, key: Key) -> int | None:
        """The number of the last use; None: it is not held."""
        value = self._keys.get(key)
        return None if value is None else value >> _WEIGHT

    def drop(self, keys: Iterable[Key]) -> list[Key]:
        """Keys that are held no more; gives those that were."""
        gone = []
        for key in keys:
            value = self._keys.pop(key, None)
            if value is not None:
                self.tokens -= value & _MASK
                gone.append(key)
        return gone

    def drop_used_by(self, number: int, keys: Iterable[Key]) -> list[Key]:
        """Those of `keys` that nobody used after use `number`."""
        return self.drop([key for key in keys if self.last_used(key) == number])

    def lost_until(self, number: int) -> list[Key]:
        """A key that was last used at `number` is gone: so is all that was not used after it.

        What is left says how much the replica can hold, unless nearly nothing is: then it was flushed, or restarted.
        """
        before = self.tokens
        gone = list(self._oldest(lambda value: value >> _WEIGHT <= number))
        if self.tokens >= before // 2:
            self._learned = max(self.tokens, _SMALLEST)
        return gone

    def kept(self, tokens: int) -> None:
        """All that was expected was there, and so many tokens came in: it may hold more than was thought."""
        if self._learned is not None:
            self._learned += tokens // 4

    def over(self) -> list[Key]:
        """Keys that do not fit any more."""
        capacity = self.capacity
        if capacity is None or self.tokens <= capacity:
            return []
        return list(self._oldest(lambda _: self.tokens > capacity))

    def oldest(self, count: int) -> list[Key]:
        """Give up so many keys, or all."""
        left = len(self._keys) - count
        return list(self._oldest(lambda _: len(self._keys) > left))

    def clear(self) -> list[Key]:
        """Give up all keys."""
        gone = list(self._keys)
        self._keys.clear()
        self.tokens = 0
        return gone

    def _oldest(self, condition: Callable[[int], bool]) -> Iterator[Key]:
        while self._keys:
            key, value = next(iter(self._keys.items()))
            if not condition(value):
                return
            del self._keys[key]
            self.tokens -= value & _MASK
            yield key
