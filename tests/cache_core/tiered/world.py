"""A tiered cache over real tiers, whose block bytes say which tokens they belong to."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cache_core import BlockPool, Lease, OutOfBlocksError, PrefixCache
from cache_core.device_tier import DeviceTier, LayerLayout
from cache_core.identity import CacheIdentity, LayerShape
from cache_core.metrics import CacheObserver
from cache_core.tiered import StateOptions, TieredCache, TieringOptions
from cache_core.tiered.watch import CallLimits
from cache_core.tiers.base import Tier
from cache_core.tiers.disk import DiskOptions, DiskTier
from cache_core.tiers.files import Files
from cache_core.tiers.host import HostTier
from cache_core.tiers.store_folder import StoreFolder, StoreOptions
from cache_core.transfer.clock import Clock
from tests.waiting import wait_until

BLOCK = 4
LAYOUT = LayerLayout(kv_heads=2, key_dim=4, value_dim=4)
LAYERS = 3
# On however slow a machine.
UNHURRIED = CallLimits(ask=3600.0, read=3600.0, write=3600.0, clean=3600.0)
PATIENT = TieringOptions(reserve_blocks=0, fetch_deadline=3600.0, patience=3600.0, limits=UNHURRIED)

Tokens = NDArray[np.int32]


def identity(weights: bytes = b"w") -> CacheIdentity:
    return CacheIdentity(
        weights_digest=weights,
        update_epoch=b"e",
        tokenizer_digest=b"t",
        template_digest=b"c",
        weight_dtype="float32",
        kv_dtype="float32",
        layers=[LayerShape(2, 4, 4)] * LAYERS,
        position={"theta": 10000.0},
        block_size=BLOCK,
        state_format="test 1",
    )


@dataclass
class World:
    """Device, host and disk of one process."""

    cache: PrefixCache
    pool: BlockPool
    device: DeviceTier
    tiers: TieredCache
    weights: bytes = b"w"

    def compute_otherwise(self, weights: bytes) -> None:
        """Other weights from here on. No request may be running."""
        self.tiers.identify(identity(weights))
        self.weights = weights

    def run(self, tokens: list[int], scope: str = "default") -> int:
        """One request: reuse what is ready, compute the rest, leave. Returns reused tokens, bytes checked."""
        ids = np.array(tokens, dtype=np.int32)
        lease = self.cache.acquire(ids, scope)
        self.check(lease, scope)
        if lease.matched:
            self.tiers.used(ids[: lease.matched], scope)
        try:
            lease.extend(ids[lease.matched :])
        except OutOfBlocksError:  # a fetch holds what is missing
            lease.release()
            self.settle()
            return self.run(tokens, scope)
        self.compute(lease, scope)
        reused = lease.matched
        self.tiers.ended(lease.tokens, scope)
        lease.release()
        self.cache.check_integrity()
        return reused

    def lease(self, tokens: list[int], scope: str = "default") -> Lease:
        """One request that computed its prompt and has not left."""
        ids = np.array(tokens, dtype=np.int32)
        lease = self.cache.acquire(ids, scope)
        lease.extend(ids[lease.matched :])
        self.compute(lease, scope)
        return lease

    def fetch(self, tokens: list[int], scope: str = "default") -> bool:
        """Bring up what lies below the device, and wait for it. Whether something was begun."""
        fetch = self.tiers.prefetch(np.array(tokens, dtype=np.int32), scope)
        self.settle()
        return fetch is not None

    def compute(self, lease: Lease, scope: str) -> None:
        """Write the bytes that belong to every token that is not ready, and commit."""
        for block in range(lease.ready // BLOCK, lease.num_blocks):
            self.write(int(lease.blocks[block]), lease.tokens[: (block + 1) * BLOCK], scope)
        lease.commit()

    def write(self, block: int, prefix: Tokens, scope: str) -> None:
        """Compute one block: write the bytes that belong to the tokens up to its end."""
        self._views(block, lambda view: view.copy_(self._bytes(scope, prefix, view.shape)))

    def check(self, lease: Lease, scope: str) -> None:
        """Every ready block holds the bytes of its tokens and of all before them."""
        for block in range(lease.ready // BLOCK):
            prefix = lease.tokens[: (block + 1) * BLOCK]
            self._views(
                int(lease.blocks[block]),
                lambda view, p=prefix: _same(view, self._bytes(scope, p, view.shape)),
            )

    def settle(self) -> None:
        """Wait until nothing moves."""
        until(lambda: self.tiers.idle)
        self.cache.check_integrity()
        self.tiers.host.check_integrity()

    def settle_links(self) -> None:
        """Wait until no byte moves."""
        until(lambda: self.tiers._engine.idle)

    def _bytes(self, scope: str, prefix: Tokens, shape: torch.Size) -> torch.Tensor:
        return pattern(f"{scope} under {self.weights.hex()}", prefix, shape)

    def _views(self, block: int, visit: Callable[[torch.Tensor], object]) -> None:
        for layer in range(LAYERS):
            for views in self.device.block_views(layer):
                visit(views[:, block])


def _same(view: torch.Tensor, expected: torch.Tensor) -> None:
    assert torch.equal(view, expected), "a block holds other bytes than its tokens'"


def pattern(scope: str, prefix: Tokens, shape: torch.Size) -> torch.Tensor:
    """Numbers that only this scope and prefix have."""
    seed = hashlib.sha256(scope.encode() + prefix.tobytes()).digest()
    numbers = np.random.default_rng(np.frombuffer(seed, dtype=np.uint32)).standard_normal(tuple(shape))
    return torch.from_numpy(numbers.astype(np.float32))


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for it; fails when it does not come."""
    wait_until(condition, "what this test is for", seconds)


@contextmanager
def world(
    folder: Path | None = None,
    *,
    blocks: int = 16,
    host_blocks: int = 64,
    weights: bytes = b"w",
    policy: str = "lru",
    options: TieringOptions | None = None,
    files: Files | None = None,
    on_ready: Callable[[], None] | None = None,
    states: StateOptions | None = None,
    observer: CacheObserver | None = None,
    disk_bytes: int = 8 << 20,
    store: Path | None = None,
    store_files: Files | None = None,
    shared: Tier | None = None,  # a store that is no folder
    clock: Clock | None = None,
    scope_share: float = 1.0,  # of host, disk and store
) -> Iterator[World]:
    """A fresh process's worth of tiers; with a folder, its disk tier is in there."""
    pool = BlockPool(blocks, BLOCK)
    device = DeviceTier([LAYOUT] * LAYERS, blocks, BLOCK, torch.float32, torch.device("cpu"))
    cache = PrefixCache(pool, policy, copy_blocks=device.copy_blocks, observer=observer)
    row = device.bytes_per_block
    host = HostTier(host_blocks * row, row, BLOCK, checksums=True, observer=observer, scope_share=scope_share)
    colder: dict[str, Tier] = {}
    if folder is not None:
        colder["disk"] = DiskTier(
            DiskOptions(folder=folder, capacity_bytes=disk_bytes, scope_share=scope_share), files, observer
        )
    if store is not None:
        colder["store"] = StoreFolder(
            StoreOptions(store, 8 << 20, mac_key=b"0123456789abcdef", scope_share=scope_share),
            store_files,
            observer,
        )
    if shared is not None:
        colder["store"] = shared
    tiers = TieredCache(
        cache,
        device,
        identity(weights),
        host,
        colder,
        options or PATIENT,  # type: ignore[arg-type]
        observer=observer,
        on_ready=on_ready,
        clock=clock,
        states=states,
    )
    tiers.computed([(0, 1000)], 3600.0)  # prefill is dear, so that whatever is found is worth loading
    try:
        yield World(cache, pool, device, tiers, weights)
    finally:
        tiers.close()
