"""What a replica itself says of its cache, put into the index: blocks by the engine's own names, keys by ours.

An engine names each block by a hash of its own, with its parent's. The way from there to our keys is kept here, since
a removal tells nothing but the name.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import Tier
from gateway.routing.chain import BLOCK, CHUNK, UNIT, Key, PromptChain, continued, root_of
from gateway.routing.replica_index import ReplicaIndex

BlockName: TypeAlias = Hashable  # as the engine has it: an int, or bytes

_MOST = 400_000  # blocks of one replica whose keys are remembered, some 250 bytes each
_CHUNK_BYTES = CHUNK * UNIT
_BLOCK_BYTES = BLOCK * UNIT
_TIERS: dict[Tier, int] = {"device": 1, "host": 2, "disk": 4}  # of one replica; a store is everybody's
_DEVICE = 1


@dataclass(frozen=True, slots=True)
class _End:
    """Where a prompt has got to: the chunks that are whole, and what is behind them."""

    digest: bytes  # of all whole chunks
    tail: bytes = b""
    open: tuple[tuple[int, "_Run"], ...] = ()  # those with a part in the tail, each with where that begins


@dataclass(slots=True, eq=False)
class _Run:
    """Blocks that are believed, and given up, together: one, or as many small ones as lie in one of the index's.

    Where one of them is missing, the replica has nothing under any of its keys.
    """

    before: _End
    data: bytes
    end: _End
    keys: list[Key] = field(default_factory=list)


class KvFeed:
    """One replica's. Blocks behind one that was never told are left alone: nobody knows what is before them.

    Attributes:
        orphans: such blocks.
        told: keys that the replica itself says it holds.
    """

    def __init__(self, index: ReplicaIndex, replica: str, most_blocks: int = _MOST) -> None:
        self.orphans = 0
        self.told: set[Key] = set()
        self._index = index
        self._replica = replica
        self._most = most_blocks
        self._known: OrderedDict[BlockName, tuple[_Run, int]] = (
            OrderedDict()
        )  # with the block's end in it, bytes
        self._tiers: dict[BlockName, int] = {}  # bits; of those that are not on the device alone

    def stored(
        self,
        names: Sequence[BlockName],
        parent: BlockName | None,
        tokens: NDArray[np.int32],
        seed: bytes,
        tier: Tier = "device",
    ) -> None:
        """The replica holds these blocks, one behind the other: `tokens`, shape [tokens], divided evenly.

        `parent` is the block before the first one; None: a prompt begins here, under `seed` (see `prompt_seed`).
        Media are in the tokens as `cache_core.media` writes them. Blocks that are known need no tokens.
        """
        bit = _TIERS.get(tier)
        if bit is None or not names:
            return
        if not len(tokens) and all(name in self._known for name in names):
            self._again(names, bit)
            return
        end = _End(root_of(seed)) if parent is None else self._end_of(parent)
        if end is None or not len(tokens) or len(tokens) % len(names):
            self.orphans += len(names)
            return
        data = np.ascontiguousarray(tokens, dtype="<i4").tobytes()
        self._add(names, end, data, bit)
        while len(self._known) > self._most:
            name, (run, _) = self._known.popitem(last=False)
            self._tiers.pop(name, None)
            self._give_up([run])

    def removed(self, names: Sequence[BlockName], tier: Tier = "device") -> None:
        """The replica holds these blocks on that tier no more."""
        bit, gone = _TIERS.get(tier, 0), []
        for name in names:
            left = self._tiers.get(name, _DEVICE) & ~bit
            if left:
                if name in self._known:
                    self._tiers[name] = left
                continue
            self._tiers.pop(name, None)
            known = self._known.pop(name, None)
            if known is not None:
                gone.append(known[0])
        self._give_up(gone)

    def cleared(self) -> None:
        """The replica holds nothing, or events were lost: what it has is told from now on."""
        self._known.clear()
        self._tiers.clear()
        self.told.clear()
        self._index.cleared(self._replica)

    def _add(self, names: Sequence[BlockName], end: _End, data: bytes, bit: int) -> None:
        size, place, chunks, again = len(data) // len(names), 0, list[Key](), list[Key]()
        while place < len(names):
            count = self._together(names, place, end, size)
            if not count:
                end = self._seen_again(names[place], bit, again)
                place += 1
                continue
            run = _Run(end, data[place * size : (place + count) * size], end)
            end = run.end = _grown(end, run, run.data, chunks)
            for number in range(count):
                self._known[names[place + number]] = run, (number + 1) * size
                if bit != _DEVICE:
                    self._tiers[names[place + number]] = bit
            place += count
        fine = self._tail_keys(end)
        self._tell([*(key for key in again if not key & 1), *chunks], CHUNK)
        self._tell([*(key for key in again if key & 1), *fine], BLOCK)

    def _together(self, names: Sequence[BlockName], place: int, end: _End, size: int) -> int:
        """How many blocks make a run from `place` on; 0: the first of them is known."""
        room = max(1, (_BLOCK_BYTES - len(end.tail) % _BLOCK_BYTES) // size)
        known = self._known
        for count in range(min(room, len(names) - place)):
            if names[place + count] in known:
                return count
        return min(room, len(names) - place)

    def _again(self, names: Sequence[BlockName], bit: int) -> None:
        for name in names:
            self._known.move_to_end(name)
            self._tiers[name] = self._tiers.get(name, _DEVICE) | bit

    def _seen_again(self, name: BlockName, bit: int, keys: list[Key]) -> _End:
        """A block that is told of once more: the index may have given it up meanwhile."""
        self._again([name], bit)
        run, at = self._known[name]
        if at == len(run.data):
            keys += run.keys
            return run.end
        return _grown(run.before, run, run.data[:at], [])

    def _tell(self, keys: Sequence[Key], weight: int) -> None:
        if keys:
            self.told.update(keys)
            self._index.stored(self._replica, list(dict.fromkeys(keys)), weight)

    def _give_up(self, runs: Sequence[_Run]) -> None:
        keys = [key for run in runs for key in run.keys]
        for run in runs:
            run.keys.clear()
        self.told.difference_update(keys)
        self._index.removed(self._replica, keys)

    def _end_of(self, parent: BlockName) -> _End | None:
        known = self._known.get(parent)
        if known is None:
            return None
        run, at = known
        # Small blocks of a run end before a chunk does, so that nothing is made whole here.
        return run.end if at == len(run.data) else _grown(run.before, run, run.data[:at], [])

    def _tail_keys(self, end: _End) -> list[Key]:
        """Of the index's blocks in the tail; each goes with any of the engine's that it lies in."""
        keys = PromptChain.behind(end.digest, end.tail).blocks(0)
        starts, new = [start for start, _ in end.open], []
        for place, key in enumerate(keys):
            if key in self.told:
                continue
            at = max(0, bisect_right(starts, place * _BLOCK_BYTES) - 1)
            while at < len(starts) and starts[at] < (place + 1) * _BLOCK_BYTES:
                end.open[at][1].keys.append(key)
                at += 1
            new.append(key)
        return new


def _grown(end: _End, run: _Run, data: bytes, chunks: list[Key]) -> _End:
    """The end behind one run more; chunks that it makes whole are added to `chunks`."""
    tail, digest, parts = end.tail + data, end.digest, (*end.open, (len(end.tail), run))
    while len(tail) >= _CHUNK_BYTES:
        digest, key = continued(digest, tail[:_CHUNK_BYTES])
        chunks.append(key)
        for _, part in parts:
            part.keys.append(key)
        tail, parts = tail[_CHUNK_BYTES:], ((0, run),)
    return _End(digest, tail, parts if tail else ())
