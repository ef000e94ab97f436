"""What a replica itself says of its cache, put into the index: blocks by the engine's own names, keys by ours.

An engine names each block by a hash of its own, with its parent's. The way from there to our keys is kept here, since
a removal tells nothing but the name.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.routing.chain import BLOCK, CHUNK, UNIT, Key, PromptChain, continued, root_of
from gateway.routing.replica_index import ReplicaIndex

BlockName: TypeAlias = Hashable  # as the engine has it: an int, or bytes

_MOST = 400_000  # blocks of one replica whose keys are remembered
_CHUNK_BYTES = CHUNK * UNIT
_BLOCK_BYTES = BLOCK * UNIT


@dataclass(frozen=True, slots=True)
class _End:
    """Where a prompt has got to: the chunks that are whole, and what is behind them."""

    digest: bytes  # of all whole chunks
    tail: bytes = b""
    open: tuple["_Block", ...] = ()  # those with a part in the tail


@dataclass(slots=True, eq=False)
class _Block:
    """One block that the replica holds. Without it, the replica has nothing under any of its keys."""

    end: _End | None = None
    keys: list[Key] = field(default_factory=list)


class KvFeed:
    """One replica's. Blocks behind one that was never told are left alone: nobody knows what is before them.

    Attributes:
        orphans: such blocks.
    """

    def __init__(self, index: ReplicaIndex, replica: str, most_blocks: int = _MOST) -> None:
        self.orphans = 0
        self._index = index
        self._replica = replica
        self._most = most_blocks
        self._known: OrderedDict[BlockName, _Block] = OrderedDict()

    def stored(
        self, names: Sequence[BlockName], parent: BlockName | None, tokens: NDArray[np.int32], seed: bytes
    ) -> None:
        """The replica has computed these blocks, one behind the other: `tokens`, shape [tokens], divided evenly.

        `parent` is the block before the first one; None: a prompt begins here, under `seed` (see `prompt_seed`).
        Media are in the tokens as `cache_core.media` writes them.
        """
        end = _End(root_of(seed)) if parent is None else self._end_of(parent)
        if end is None or not names or len(tokens) % len(names):
            self.orphans += len(names)
            return
        data = np.ascontiguousarray(tokens, dtype="<i4").tobytes()
        size = len(data) // len(names)
        chunks: list[Key] = []
        for place, name in enumerate(names):
            block = self._known[name] = _Block()
            self._known.move_to_end(name)
            end = block.end = _grown(end, block, data[place * size : (place + 1) * size], chunks)
        self._index.stored(self._replica, chunks, CHUNK)
        self._index.stored(self._replica, _tail_keys(end, size), BLOCK)
        while len(self._known) > self._most:
            self._removed(self._known.popitem(last=False)[1])

    def removed(self, names: Sequence[BlockName]) -> None:
        """The replica holds these blocks no more."""
        for name in names:
            block = self._known.pop(name, None)
            if block is not None:
                self._removed(block)

    def cleared(self) -> None:
        """The replica holds nothing, or events were lost: what it has is told from now on."""
        self._known.clear()
        self._index.cleared(self._replica)

    def _removed(self, block: _Block) -> None:
        self._index.removed(self._replica, block.keys)

    def _end_of(self, parent: BlockName) -> _End | None:
        known = self._known.get(parent)
        return None if known is None else known.end


def _grown(end: _End, block: _Block, data: bytes, chunks: list[Key]) -> _End:
    """The end behind one block more; chunks that it makes whole are added to `chunks`."""
    tail, digest, parts = end.tail + data, end.digest, (*end.open, block)
    while len(tail) >= _CHUNK_BYTES:
        digest, key = continued(digest, tail[:_CHUNK_BYTES])
        chunks.append(key)
        for part in parts:
            part.keys.append(key)
        tail, parts = tail[_CHUNK_BYTES:], (block,)
    return _End(digest, tail, parts if tail else ())


def _tail_keys(end: _End, size: int) -> list[Key]:
    """Of the index's blocks in the tail; each goes with any of the engine's, of `size` bytes, that it lies in."""
    keys = PromptChain.behind(end.digest, end.tail).blocks(0)
    for place, key in enumerate(keys):
        first, last = (len(end.tail) - at for at in (place * _BLOCK_BYTES, (place + 1) * _BLOCK_BYTES))
        for block in end.open[max(0, len(end.open) - -(-first // size)) : len(end.open) - last // size]:
            block.keys.append(key)
    return keys
