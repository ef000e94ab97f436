"""What the host tier knows of each row: its key, the header's fields, and its last use. Compact: arrays by row."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cache_core.block_header import BlockHeader, of_key, parent_key
from cache_core.block_pool import BlockPool, Blocks
from cache_core.drop_reason import DropReason
from cache_core.errors import IntegrityError
from cache_core.tiers.host_shares import Holders, lowest


class HostTable:
    """Not locked. About 260 bytes a block besides its token ids.

    Args:
        share: rows that one identity may hold before it makes room for the others.
    """

    def __init__(self, num_rows: int, block_size: int, share: int) -> None:
        self._holders = Holders(num_rows, share)
        self.sums = np.zeros(num_rows, dtype=np.uint32)  # CRC-32C where the tier wants one
        self._rows: dict[bytes, int] = {}
        self._keys: list[bytes | None] = [None] * num_rows
        self._identities: list[bytes | None] = [None] * num_rows  # those of a scope are one object
        self._parents = np.zeros((num_rows, 32), dtype=np.uint8)
        self._tokens = np.zeros((num_rows, block_size * 4), dtype=np.uint8)
        self._used = np.zeros(num_rows, dtype=np.int64)  # logical time of the last use
        self._now = 0

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, key: bytes) -> int | None:
        """Where the block is."""
        return self._rows.get(key)

    def keys(self) -> list[bytes]:
        """Of all blocks."""
        return list(self._rows)

    def keys_of(self, identity: bytes) -> list[bytes]:
        """Of all blocks under one identity."""
        return [key for key, row in self._rows.items() if self._identities[row] == identity]

    def add(self, header: BlockHeader, row: int, checksum: int) -> None:
        """The block of `header` is in `row` now."""
        key = header.key  # made anew by every call
        self._rows[key] = row
        self._keys[row] = key
        self._identities[row] = header.identity
        self._holders.add(header.identity, row)
        self._parents[row] = np.frombuffer(header.parent, dtype=np.uint8)
        self._tokens[row] = np.frombuffer(header.tokens, dtype=np.uint8)
        self.sums[row] = checksum

    def pop(self, key: bytes) -> int | None:
        """Forget a block; says where it was."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._keys[row] = None
            self._holders.remove(row)
            self._tokens[row] = 0  # what is forgotten, or purged, is no longer in memory
        return row

    def key_in(self, row: int) -> bytes | None:
        """Of the block in `row`; None: there is none that can be found."""
        return self._keys[row]

    def parent_row(self, row: int) -> int | None:
        """Where the block is that lies before the one in `row`; None: it is not there, or there is none."""
        return self._rows.get(self._parent_key(row))

    def follows(self, row: int) -> bool:
        """Whether the block before the one in `row` lies in the row before."""
        return row > 0 and self.goes_on(self._keys[row - 1], row)

    def goes_on(self, key: bytes | None, row: int) -> bool:
        """Whether the block in `row` comes right after the one of `key`."""
        return key is not None and self._parent_key(row) == key

    def move(self, sources: Blocks, targets: Blocks) -> None:
        """The blocks in `sources` are in `targets` now, which held none. That is no use of them."""
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            key = self._keys[source]
            if key is None:
                raise IntegrityError(f"row {source} has no block that could move")
            self._rows[key] = target
            self._keys[target], self._keys[source] = key, None
            self._identities[target] = self._identities[source]
        for known in (self.sums, self._parents, self._tokens, self._used):
            known[targets] = known[sources]
        self._tokens[sources] = 0
        self._holders.move(sources, targets)

    def _go_up(self, key: bytes, rows: list[int]) -> None:
        """Append the row of a block, and those of all before it that are there without a gap."""
        while (row := self._rows.get(key)) is not None:
            rows.append(row)
            key = self._parent_key(row)

    def _parent_key(self, row: int) -> bytes:
        key = self._keys[row]
        return b"" if key is None else parent_key(key, self._parents[row].tobytes())

    def header(self, key: bytes) -> BlockHeader | None:
        """Of a block that is there."""
        row = self._rows.get(key)
        identity = None if row is None else self._identities[row]
        if row is None or identity is None:
            return None
        own, group = of_key(key)
        return BlockHeader(identity, self._parents[row].tobytes(), own, self._tokens[row].tobytes(), group)

    def wrong(self, row: int, wanted: BlockHeader) -> DropReason | None:
        """Why the block in `row` is not the one that is wanted, though filed under its key."""
        if self._identities[row] != wanted.identity:
            return DropReason.WRONG_IDENTITY
        same = self._parents[row].tobytes() == wanted.parent and self._tokens[row].tobytes() == wanted.tokens
        return None if same else DropReason.WRONG_BLOCK

    def parents(self, headers: Sequence[BlockHeader]) -> Blocks:
        """Rows of everything before these blocks, as far as it is there; a parent stands behind its children."""
        rows: list[int] = []
        keys = {header.key for header in headers}
        for header in headers:
            if header.parent_key not in keys:
                self._go_up(header.parent_key, rows)
        return np.array(rows, dtype=np.int32)

    def use(self, rows: Blocks) -> int:
        """These were used now, the last one latest; says the first one's logical time.

        What lies before them in their prompts counts as used later still: a parent never goes before its children.
        """
        above: list[int] = []
        given = set(rows.tolist())
        for row in rows.tolist():
            parent = self._parent_key(row)
            if self._rows.get(parent) not in given:
                self._go_up(parent, above)
        rows = np.concatenate([rows, np.array(above, dtype=np.int32)])
        first = self._now
        self._used[rows] = np.arange(first, first + len(rows))
        self._now += len(rows)
        return first

    @property
    def now(self) -> int:
        """Logical time."""
        return self._now

    def last_use(self, key: bytes) -> int:
        """Logical time of the last use of a block that is there."""
        return int(self._used[self._rows[key]])

    def oldest(self, candidates: NDArray[np.bool_], n: int, room_for: bytes | None = None) -> list[bytes]:
        """Keys of up to `n` of the candidate rows, those used longest ago first; before them what is over its share.

        `room_for`: the identity that wants the room; None: nobody does yet. Not every row may go for each.
        """
        rows = np.flatnonzero(candidates)
        over = self._holders.first_of(rows, self._used[rows], n)
        if len(over) < n:
            rest = np.setdiff1d(rows, over, assume_unique=True) if len(over) else rows
            rest = self._holders.left_to(room_for, rest)
            over = np.concatenate([over, rest[lowest(self._used[rest], n - len(over))]])
        return [key for row in over.tolist() if (key := self._keys[row]) is not None]

    def check(self, pool: BlockPool, filling: int) -> None:
        """See `HostTier.check_integrity`."""
        rows = np.array(list(self._rows.values()), dtype=np.int32)
        broken: Sequence[tuple[bool, str]] = (
            (len(np.unique(rows)) == len(rows), "two keys have one row"),
            (bool((pool.holders[rows] > 0).all()), "a key has a row that is not ready, or that nobody holds"),
            (self._holders.fits(self._identities, rows), "rows are counted for another scope than theirs"),
            (all(self._keys[row] == key for key, row in self._rows.items()), "a row does not know its key"),
            (int((pool.holders < 0).sum()) == filling, "rows that fill are not those reserved"),
            (int((pool.holders == 0).sum()) == pool.free_count, "free rows are not those in no other place"),
        )
        for holds, message in broken:
            if not holds:
                raise IntegrityError(message)
