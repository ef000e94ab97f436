"""A hybrid model's cache over real tiers: rows of state whose bytes say which tokens they stand behind."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cache_core import OutOfBlocksError
from cache_core.state_groups import StateGroup, StateOnDevice
from cache_core.tiered import StateOptions, TieredCache
from cache_core.tiers.host import HostTier
from tests.cache_core.tiered.world import BLOCK, Tokens, World, pattern, world

ROW = 4096  # bytes


def row_of(scope: str, tokens: Tokens) -> torch.Tensor:
    """The state behind these tokens, uint8 [ROW]: no other tokens and no other scope have it."""
    return pattern(f"state {scope}", tokens, torch.Size([ROW // 4])).view(torch.uint8)


class ToyStates:
    """`DeviceStates` of a model whose states are `row_of`. The least recently put go first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: dict[tuple[str, bytes], torch.Tensor] = {}
        self.forgotten = 0
        self.tiers: TieredCache | None = None

    def put(self, scope: str, tokens: Tokens, row: torch.Tensor) -> None:
        self.kept.setdefault((scope, tokens.tobytes()), row)
        while len(self.kept) > self.room:
            going = next(iter(self.kept))
            row = self.kept.pop(going)
            if self.tiers is not None:
                ids = np.frombuffer(going[1], dtype=np.int32)
                self.tiers.state_leaves(ids, going[0], StateOnDevice(len(ids), _reads(row)))

    def along(self, tokens: Tokens, scope: str) -> list[StateOnDevice]:
        found = [(end, self.kept.get((scope, tokens[:end].tobytes()))) for end in range(len(tokens) + 1)]
        return [StateOnDevice(end, _reads(row)) for end, row in found if row is not None]

    def deepest(self, tokens: Tokens, scope: str, limit: int) -> int:
        return max((state.length for state in self.along(tokens[:limit], scope)), default=0)

    def landing(self, tokens: Tokens, scope: str) -> "_Landing":
        return _Landing(self, scope, tokens.copy(), torch.zeros(ROW, dtype=torch.uint8), self.forgotten)

    def forget(self, scope: str | None) -> int:
        going = [key for key in self.kept if scope is None or key[0] == scope]
        for key in going:
            del self.kept[key]
        self.forgotten += 1
        return len(going)

    def flush(self) -> None:
        self.kept.clear()
        self.forgotten += 1


@dataclass
class _Landing:
    states: ToyStates
    scope: str
    tokens: Tokens
    row: torch.Tensor
    forgotten: int

    def write(self, row: torch.Tensor) -> None:
        self.row.copy_(row)

    def keep(self) -> None:
        if self.forgotten == self.states.forgotten:
            self.states.put(self.scope, self.tokens, self.row)


def _reads(row: torch.Tensor) -> Any:
    return lambda target: target.copy_(row)


@dataclass
class HybridWorld:
    """One process."""

    it: World
    states: ToyStates

    def run(self, tokens: list[int], scope: str = "default") -> int:
        """One request: go on from the deepest state with its KV, all bytes checked. Returns reused tokens."""
        ids = np.array(tokens, dtype=np.int32)
        cache, tiers = self.it.cache, self.it.tiers
        matched = min(cache.match(ids, scope), cache.reusable(len(ids)))
        length = self.states.deepest(ids, scope, matched)
        lease = cache.acquire(ids[: length + 1], scope)
        self.it.check(lease, scope)
        if lease.matched != length:  # blocks went meanwhile
            lease.release()
            return self.run(tokens, scope)
        if length:
            row = self.states.kept[scope, ids[:length].tobytes()]
            assert torch.equal(row, row_of(scope, ids[:length])), "a state of other tokens"
            tiers.used(ids[:length], scope)
        try:
            lease.extend(ids[lease.matched :])
        except OutOfBlocksError:  # a fetch holds what is missing
            lease.release()
            self.it.settle()
            return self.run(tokens, scope)
        self.it.compute(lease, scope)
        for end in {cache.reusable(len(ids)), matched} - {0}:
            self.states.put(scope, ids[:end], row_of(scope, ids[:end]))
        lease.release()
        cache.check_integrity()
        return length

    def fetch(self, tokens: list[int], scope: str = "default") -> None:
        """Bring up what lies below the device, and wait for it."""
        ask = self.it.tiers.ask(np.array(tokens, dtype=np.int32), scope)
        self.it.settle()
        if ask is not None:
            ask.cancel()

    def keys(self, tokens: list[int], group: StateGroup, scope: str = "default") -> list[bytes]:
        """Of every whole block."""
        headers = self.it.tiers._chains.headers(scope, np.array(tokens, dtype=np.int32))
        return [replace(header, group=int(group)).key for header in headers]

    def forget_device(self) -> None:
        self.it.cache.flush()
        self.states.flush()


@contextmanager
def hybrid_world(
    folder: Path | None = None, *, rows: int = 8, kept: int = 8, **world_options: Any
) -> Iterator[HybridWorld]:
    """A fresh process's worth of tiers, with host room for `rows` states and device room for `kept`."""
    states = ToyStates(kept)
    options = StateOptions(HostTier(rows * ROW, ROW, BLOCK, checksums=True), states)
    with world(folder, states=options, **world_options) as it:
        states.tiers = it.tiers
        yield HybridWorld(it, states)
