"""Device to host and back: the same bytes, whatever the layout, the order of blocks and what is cancelled."""

import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cache_core.block_header import BlockHeader
from cache_core.block_pool import BlockPool, Blocks
from cache_core.device_tier import DeviceTier, LayerLayout
from cache_core.pinned_memory import pin_memory
from cache_core.tiers.host import HostTier
from cache_core.transfer import LinkConfig, Priority, TransferEngine, TransferRefusedError
from cache_core.transfer.copy_lane import CopyLane
from cache_core.transfer.device_jobs import DeviceToHost, HostToDevice
from tests.cache_core.tiers.blocks import BLOCK, headers_of

CPU = torch.device("cpu")
BLOCKS = 32
PATIENCE = 30.0
LAYOUTS = {
    "equal": [LayerLayout(2, 16, 16)] * 6,
    "keys wider": [LayerLayout(3, 24, 8)] * 3,
    "unequal": [LayerLayout(2, 16, 16), LayerLayout(1, 8, 24), LayerLayout(4, 8, 8)],
}
LANE = CopyLane(CPU)
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.fixture
def engine() -> Iterator[TransferEngine]:
    engine = TransferEngine()
    yield engine
    assert engine.close(PATIENCE)


def device_of(layers: list[LayerLayout], fill: bool = True, device: torch.device = CPU) -> DeviceTier:
    tier = DeviceTier(layers, BLOCKS, BLOCK, torch.float32, device)
    for number, pool in enumerate((*tier.keys, *tier.values)):
        pool.copy_(torch.arange(pool.numel()).view(pool.shape) + 1e6 * number if fill else torch.zeros(()))
    return tier


def host_of(device: DeviceTier, blocks: int) -> HostTier:
    return HostTier(blocks * device.bytes_per_block, device.bytes_per_block, BLOCK, pin_memory=pin_memory)


def shuffled(count: int, seed: int) -> Blocks:
    return np.random.default_rng(seed).permutation(BLOCKS)[:count].astype(np.int32)


def bytes_of(device: DeviceTier, blocks: Blocks) -> bytes:
    return b"".join(
        view[:, int(block)].contiguous().cpu().numpy().tobytes()
        for block in blocks
        for layer in range(len(device.layers))
        for view in device.block_views(layer)
    )


@pytest.mark.parametrize("piece_bytes", [1, 3000, 8 << 20])
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("kind", DEVICES)
def test_down_and_up_again_is_bit_by_bit_the_same(
    kind: str, name: str, piece_bytes: int, engine: TransferEngine
) -> None:
    where = torch.device(kind)
    lane = CopyLane(where)
    device = device_of(LAYOUTS[name], device=where)
    host, headers = host_of(device, 20), headers_of(0, 11)
    source, target = shuffled(11, 1), shuffled(11, 2)
    let_go: list[bool] = []
    down = DeviceToHost(device, host, headers, source, lane, let_go.append, piece_bytes)
    assert engine.submit(down, Priority.WRITE_BACK).wait(PATIENCE)
    assert host.contains([header.key for header in headers]).all()

    other = device_of(LAYOUTS[name], fill=False, device=where)
    up = HostToDevice(host, other, headers, target, lane, let_go.append, piece_bytes)
    transfer = engine.submit(up)
    for layer in range(len(device.layers)):
        assert transfer.wait_layer(layer, PATIENCE)
        for mine, its in zip(device.block_views(layer), other.block_views(layer), strict=True):
            assert torch.equal(mine[:, source.tolist()], its[:, target.tolist()])
    assert transfer.wait(PATIENCE)
    assert up.count == 11
    assert bytes_of(other, target) == bytes_of(device, source)
    untouched = np.setdiff1d(np.arange(BLOCKS, dtype=np.int32), target)
    assert not any(bytes_of(other, untouched))
    assert let_go == [True, True]
    host.check_integrity()


def test_only_the_leading_blocks_that_are_there_come_up(engine: TransferEngine) -> None:
    device = device_of(LAYOUTS["equal"])
    host, headers = host_of(device, 20), headers_of(0, 6)
    engine.submit(DeviceToHost(device, host, headers, shuffled(6, 1), LANE)).wait(PATIENCE)
    host.delete([headers[3].key])
    other, target = device_of(LAYOUTS["equal"], fill=False), shuffled(6, 2)
    up = HostToDevice(host, other, headers, target, LANE)
    assert up.count == 3
    assert engine.submit(up).wait(PATIENCE)
    assert bytes_of(other, target[:3]) == bytes_of(device, shuffled(6, 1)[:3])
    assert not any(bytes_of(other, target[3:]))


def test_a_write_back_of_what_is_there_moves_nothing(engine: TransferEngine) -> None:
    device = device_of(LAYOUTS["equal"])
    host, headers = host_of(device, 20), headers_of(0, 6)
    for expected in (6 * device.bytes_per_block, 0):
        transfer = engine.submit(DeviceToHost(device, host, headers, shuffled(6, 1), LANE))
        assert transfer.wait(PATIENCE)
        assert transfer.moved_bytes == expected


def test_a_host_tier_of_other_blocks_is_refused() -> None:
    device = device_of(LAYOUTS["equal"])
    host = HostTier(1 << 20, device.bytes_per_block + 1, BLOCK)
    with pytest.raises(ValueError, match="bytes"):
        HostToDevice(host, device, headers_of(0, 1), shuffled(1, 1), LANE)
    with pytest.raises(ValueError, match="headers"):
        DeviceToHost(device, host_of(device, 1), headers_of(0, 2), shuffled(1, 1), LANE)


class Actor:
    """Moves its own chain down and up, cancelling at random, and checks every byte it was promised."""

    def __init__(self, seed: int, engine: TransferEngine, device: DeviceTier, host: HostTier) -> None:
        self.random = random.Random(seed)
        self.engine, self.device, self.host = engine, device, host
        self.headers: list[BlockHeader] = headers_of(1000 * seed, 5)
        own = np.arange(8 * seed, 8 * seed + 8, dtype=np.int32)  # of the device's blocks
        self.source, self.target = own[:4], own[4:]
        self.held = 0
        self.failure: BaseException | None = None

    def let_go(self, done: bool) -> None:
        self.held -= 1

    def run(self, rounds: int) -> None:
        try:
            for _ in range(rounds):
                self.round()
        except BaseException as failure:  # noqa: BLE001  shown by the test's own thread
            self.failure = failure

    def round(self) -> None:
        headers = self.headers[:4]
        self.held += 1
        if self.random.random() < 0.5:
            self.move(DeviceToHost(self.device, self.host, headers, self.source, LANE, self.let_go, 1))
            return
        self.write(self.target, 0)
        up = HostToDevice(self.host, self.device, headers, self.target, LANE, self.let_go, 1)
        count = up.count if self.move(up) else 0
        assert bytes_of(self.device, self.target[:count]) == bytes_of(self.device, self.source[:count])
        if not count:
            # cancelled or refused: whoever owns the blocks writes them, and nobody writes after that
            self.write(self.target, 7)
            self.expect(self.target, 7)

    def move(self, job: DeviceToHost | HostToDevice) -> bool:
        try:
            transfer = self.engine.submit(job, self.random.choice(list(Priority)))
        except TransferRefusedError:
            assert self.held == 0
            return False
        if self.random.random() < 0.5:
            threading.Event().wait(self.random.random() * 0.002)
            assert transfer.cancel(PATIENCE)
        arrived = transfer.wait(PATIENCE)
        assert transfer.ended
        assert self.held == 0, "pins are let go of when it has ended"
        return arrived

    def write(self, blocks: Blocks, value: int) -> None:
        for layer in range(len(self.device.layers)):
            for view in self.device.block_views(layer):
                view[:, blocks.tolist()] = value

    def expect(self, blocks: Blocks, value: int) -> None:
        threading.Event().wait(0.0005)
        for layer in range(len(self.device.layers)):
            for view in self.device.block_views(layer):
                assert (view[:, blocks.tolist()] == value).all()


@pytest.mark.parametrize("close_early", [False, True])
def test_cancels_at_any_time_lose_no_pin_and_write_nothing_afterwards(close_early: bool) -> None:
    engine = TransferEngine({("host", "device"): LinkConfig(max_queued=2)})
    device = device_of(LAYOUTS["unequal"])
    host = host_of(device, 10)  # less than all chains need: they evict each other
    actors = [Actor(seed, engine, device, host) for seed in range(4)]
    threads = [threading.Thread(target=actor.run, args=(60,)) for actor in actors]
    for thread in threads:
        thread.start()
    if close_early:
        assert engine.close(PATIENCE)
    for thread in threads:
        thread.join()
    assert engine.close(PATIENCE)
    for actor in actors:
        if actor.failure is not None:
            raise actor.failure
    host.check_integrity()
    everything = host.reserve(headers_of(90_000, 10))
    assert (everything.rows >= 0).all(), "no row of the host is pinned any more"


def test_pool_holds_are_as_before_when_all_has_ended(engine: TransferEngine) -> None:
    device, pool = device_of(LAYOUTS["equal"]), BlockPool(BLOCKS, BLOCK)
    host, headers = host_of(device, 8), headers_of(0, 6)
    blocks = pool.allocate(6)
    lock = threading.Lock()

    def let_go(done: bool) -> None:
        with lock:
            pool.release(blocks)

    for _ in range(10):
        with lock:
            pool.retain(blocks)
        engine.submit(DeviceToHost(device, host, headers, blocks, LANE, let_go, 1)).cancel(PATIENCE)
        assert (pool.holders[blocks] == -1).all()
    host.check_integrity()
