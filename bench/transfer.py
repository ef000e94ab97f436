"""Host to device and back, against one big `copy_` of the same bytes in the same run."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bench.measure import alternate, seconds
from cache_core.block_header import BlockHeader
from cache_core.device_tier import DeviceTier, LayerLayout
from cache_core.memory import anonymous_memory
from cache_core.native import NativeBuildError, SpanCopy, load_span_copy
from cache_core.pinned_memory import pin_memory
from cache_core.tiers.host import HostTier
from cache_core.transfer import Priority, TransferEngine
from cache_core.transfer.copy_lane import CopyLane
from cache_core.transfer.device_jobs import DeviceToHost, HostToDevice
from cache_core.transfer.job import Job

TARGET = 0.7  # share of one big copy
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class TransferFigures:
    """Medians of alternating runs, in bytes a second."""

    device: str
    native: bool  # the compiled copy was used
    total_bytes: int  # of one transfer
    big_up: float  # one copy_ of contiguous bytes, host to device
    big_down: float
    up: float  # shuffled blocks through the engine
    down: float

    @property
    def up_share(self) -> float:
        """Host to device, as a share of one big copy."""
        return self.up / self.big_up

    @property
    def down_share(self) -> float:
        """Device to host, as a share of one big copy."""
        return self.down / self.big_down


def run(
    device: torch.device | None = None,
    layers: int = 30,
    layout: LayerLayout | None = None,
    dtype: torch.dtype = torch.float32,
    blocks: int = 256,
    rounds: int = 9,
    native: bool = True,
    checksums: bool = False,
) -> TransferFigures:
    """Move `blocks` shuffled blocks (layout None: a small model's) down into a host tier and up again.

    With `checksums` as the embedded engine does it: each block's is made on the way down and checked on the way up.
    """
    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    copy = _span_copy() if native else None
    shape = layout or LayerLayout(3, 64, 64)
    tier = DeviceTier([shape] * layers, 2 * blocks, BLOCK_SIZE, dtype, device, copy)
    for pool in (*tier.keys, *tier.values):
        pool.fill_(1)
    total = blocks * tier.bytes_per_block
    host = HostTier(total, tier.bytes_per_block, BLOCK_SIZE, pin_memory=pin_memory, checksums=checksums)
    host.rows[:] = 1  # pages are there before anything is measured
    numbers = np.random.default_rng(0).permutation(2 * blocks).astype(np.int32)
    headers = _headers(blocks)
    engine = TransferEngine()
    lanes = CopyLane(device), CopyLane(device)

    def down() -> float:
        host.delete([header.key for header in headers])
        return _rate(
            total, lambda: _move(engine, DeviceToHost(tier, host, headers, numbers[:blocks], lanes[0]))
        )

    def up() -> float:
        return _rate(
            total, lambda: _move(engine, HostToDevice(host, tier, headers, numbers[blocks:], lanes[1]))
        )

    big_up, big_down = _big_copies(total, device)
    try:
        down()
        figures = alternate(
            {
                "big up": lambda: _rate(total, big_up),
                "up": up,
                "big down": lambda: _rate(total, big_down),
                "down": down,
            },
            rounds,
            lambda _: None,
        )
    finally:
        engine.close()
    return TransferFigures(
        str(device),
        copy is not None,
        total,
        figures["big up"],
        figures["big down"],
        figures["up"],
        figures["down"],
    )


def _move(engine: TransferEngine, job: Job) -> None:
    transfer = engine.submit(job, Priority.WAITING)
    if not transfer.wait():
        raise RuntimeError(f"the transfer ended as {transfer.outcome}: {transfer.error}")


def _rate(nbytes: int, action: Callable[[], object]) -> float:
    return nbytes / seconds(action)


def _big_copies(total: int, device: torch.device) -> tuple[Callable[[], None], Callable[[], None]]:
    memory = anonymous_memory(total)
    memory[:] = 1
    pin_memory(memory)
    here = torch.from_numpy(memory)
    there = torch.ones(total, dtype=torch.uint8, device=device)
    if device.type == "cpu":
        target = anonymous_memory(total)
        target[:] = 1
        there = torch.from_numpy(target)

    def synchronize() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def up() -> None:
        there.copy_(here, non_blocking=True)
        synchronize()

    def down() -> None:
        here.copy_(there, non_blocking=True)
        synchronize()

    return up, down


def _headers(count: int) -> list[BlockHeader]:
    """A chain in form only: the copy is what is measured."""
    tokens = bytes(4 * BLOCK_SIZE)
    names = [number.to_bytes(32, "little") for number in range(count + 1)]
    return [BlockHeader(bytes(32), names[n], names[n + 1], tokens) for n in range(count)]


def _span_copy() -> SpanCopy | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return load_span_copy(Path(folder))
        except NativeBuildError:
            return None


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.bfloat16):
        for native in (True, False):
            print(figures := run(dtype=dtype, native=native))
            print(f"up {figures.up_share:.2f}, down {figures.down_share:.2f}, target {TARGET}")


if __name__ == "__main__":
    main()
