"""A real master and real clients, in the network that `test_mooncake.py` makes for them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mooncake.store import MooncakeDistributedStore

from cache_core.drop_reason import DropReason
from cache_core.tiered import TieringOptions
from cache_core.tiers.errors import PurgeFailedError, TierError
from cache_core.tiers.store import StoreTier
from cache_core.tiers.store_mooncake import MooncakeOptions, StoreMooncake
from engine_adapters.embedded.cold_config import ColdCoding, SharedStore
from engine_adapters.embedded.cold_stores import open_colder
from engine_adapters.embedded.config import EmbeddedConfig
from tests.cache_core.tiered.world import BLOCK, world
from tests.cache_core.tiers.blocks import IDENTITY, SIZE, headers_of, put, rows, served
from tests.cache_core.tiers.store_contract import HEADERS, KEY, Place, StoreContract
from tests.waiting import wait_until

SEGMENT = 64 << 20


class Master:
    """One `mooncake_master` process on a port of its own."""

    def __init__(self) -> None:
        self.port, self._metrics = _free_port(), _free_port()
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        program = Path(os.environ["KVGATE_MOONCAKE"], "mooncake", "mooncake_master")
        arguments = ["--rpc_port", self.port, "--rpc_address", "127.0.0.1"]
        arguments += ["--metrics_host", "127.0.0.1", "--metrics_port", self._metrics]
        self.process = subprocess.Popen(
            [str(program), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _until(lambda: _answers(self.port))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        # A thread that runs on another processor answers until the signal has reached it.
        threads = Path(f"/proc/{self.process.pid}/task")
        wait_until(lambda: all(map(_stands, threads.iterdir())), "every thread of it stands")
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def _stands(thread: Path) -> bool:
    """Whether the kernel has stopped it; its name, in brackets, may hold anything."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "TtZ"


class Real(Place):
    def __init__(self, master: Master) -> None:
        self.master = master
        self.raw = MooncakeDistributedStore()  # the one that gives the memory
        assert self.raw.setup("127.0.0.1", "P2PHANDSHAKE", SEGMENT, 16 << 20, "tcp", "", master.address) == 0

    def open(self, **changes: Any) -> StoreMooncake:
        return StoreMooncake(
            MooncakeOptions(
                **{
                    "master": self.master.address,
                    "mac_key": KEY,
                    "staging_bytes": 3 * SIZE,
                    "patience": 5.0,
                    **changes,
                }
            )
        )

    def read(self, tier: StoreTier, key: bytes) -> bytes | None:
        name = self._name(tier, key)
        return bytes(self.raw.get(name)) if self.raw.is_exist(name) else None

    def write(self, tier: StoreTier, key: bytes, data: bytes) -> None:
        name = self._name(tier, key)
        self.raw.remove(name, True)
        assert self.raw.put(name, data) == 0

    @staticmethod
    def _name(tier: StoreTier, key: bytes) -> str:
        assert isinstance(tier, StoreMooncake)
        return tier._name(key)


@pytest.fixture(scope="module")
def shared_place() -> Iterator[Real]:
    master = Master()
    place = Real(master)
    yield place
    place.raw.close()
    master.kill()


@pytest.fixture
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.kill()


@pytest.fixture
def place(master: Master) -> Iterator[Real]:
    place = Real(master)
    yield place
    place.raw.close()


class TestContract(StoreContract):
    @pytest.fixture
    def place(self, shared_place: Real) -> Place:
        assert shared_place.raw.remove_all(True) >= 0
        return shared_place


def test_a_put_under_a_taken_name_is_ignored_without_a_word(place: Real) -> None:
    """Why a bad object is removed before anything else."""
    assert place.raw.put("a", b"first") == place.raw.put("a", b"second") == 0
    assert bytes(place.raw.get("a")) == b"first"


def test_a_killed_master_is_a_drop_and_another_one_serves_again(place: Real, master: Master) -> None:
    tier = place.open()
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
    master.kill()
    started = time.monotonic()
    assert put(tier, headers_of(50, 4)) == served(tier, HEADERS, timeout=20) == 0
    assert not tier.contains([HEADERS[0].key]).any()
    assert time.monotonic() - started < 30
    drops = tier.stats().drops
    assert drops[DropReason.IO_ERROR] >= 4
    with pytest.raises(PurgeFailedError):
        tier.purge(IDENTITY)
    master.start()
    _until(lambda: put(tier, HEADERS) == len(HEADERS))  # the one with the memory has to come back first
    tier.clean()  # what could not be purged
    assert served(tier, HEADERS) == 0
    assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
    tier.close()


def test_kill_after_kill_no_wrong_byte_is_served(place: Real, master: Master) -> None:
    tier = place.open()
    for round_number in range(4):
        first = 100 * round_number
        _until(lambda first=first: put(tier, headers_of(first, 6)) == 6)  # type: ignore[misc]
        master.kill()
        for number in range(round_number + 1):
            served(tier, headers_of(100 * number, 6), timeout=10)  # checks what it gets
        master.start()
    _until(lambda: put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS))
    tier.close()


def test_a_hanging_master_is_waited_for_until_the_deadline_alone(place: Real, master: Master) -> None:
    tier = place.open(patience=0.3)
    put(tier, HEADERS)
    out = rows(len(HEADERS))
    with master.hanging():
        started = time.monotonic()
        assert not tier.contains([HEADERS[0].key]).any()
        tier.get(HEADERS, out, timeout=0.5)  # the client may still know where they are
        assert time.monotonic() - started < 5
    _until(lambda: served(tier, HEADERS) == len(HEADERS))
    tier.close()


OWNER = """
import sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", sys.argv[1]) == 0
print("in", flush=True)
time.sleep(600)
"""


def test_the_machine_that_held_the_bytes_goes_away(master: Master) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, master.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert owner.stdout is not None
        _until(lambda: owner.stdout.readline() == "in\n")  # type: ignore[union-attr]
        tier = StoreMooncake(MooncakeOptions(master.address, KEY))
        assert put(tier, HEADERS) == served(tier, HEADERS) == len(HEADERS)
        owner.kill()
        owner.wait()
        assert served(tier, HEADERS, timeout=5) == 0
        stats = tier.stats()
        assert sum(stats.drops.values()) + stats.misses >= len(HEADERS)
        tier.close()
    finally:
        owner.kill()
        owner.wait()


def test_a_full_store_drops_or_evicts_and_never_mixes_up(place: Real) -> None:
    tier, size = place.open(staging_bytes=8 << 20), 1 << 20
    for first in range(0, 1000, 8):
        put(tier, headers_of(first * 10, 8), size)
    found = sum(served(tier, headers_of(first * 10, 8), size) for first in range(0, 1000, 8))
    assert 0 < found < SEGMENT // size
    tier.close()


WRITER = """
import sys
from cache_core.tiers.store_mooncake import MooncakeOptions, StoreMooncake
from tests.cache_core.tiers.blocks import headers_of, put, served
tier = StoreMooncake(MooncakeOptions(sys.argv[1], b"m" * 32))
for round_number in range(8):
    for first in range(0, 1000, 100):
        put(tier, headers_of(first, 4))
        served(tier, headers_of(first, 4))
    tier.delete([header.key for header in headers_of(round_number * 100, 4)])
print("well")
"""


def test_writers_of_several_processes_do_not_disturb_each_other(place: Real, master: Master) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, master.address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(3)
    ]
    assert ["well\n" in writer.communicate(timeout=120)[0] for writer in writers] == [True] * 3
    tier = place.open()
    assert served(tier, headers_of(900, 4)) == 4
    tier.close()


def test_what_one_server_computed_another_fetches(place: Real) -> None:
    prompt = [7, *range(6 * BLOCK)]
    options = TieringOptions(write_policy="write_through_on_second_hit", reserve_blocks=0)
    with world(options=options, shared=place.open()) as one:
        one.run(prompt)
        one.run(prompt)  # the second use is written through
        one.settle()
        assert one.tiers.stats()["store"].stored == 6
        with world(options=options, shared=place.open()) as other:
            assert other.fetch(prompt)
            assert other.run(prompt) == 6 * BLOCK  # every byte checked
            assert other.tiers.stats()["store"].hits == 6
            other.tiers.purge("default")
        assert one.tiers.stats()["store"].blocks is None
        assert not one.tiers.colder["store"].contains([h.key for h in _headers(one, prompt)]).any()


def test_the_embedded_engine_joins_it_as_configured(place: Real, master: Master) -> None:
    store = SharedStore(KEY, mooncake_master=master.address, mooncake_bytes=16 << 20)
    coding = ColdCoding(compression=1, quantize="fp8", secret=KEY)
    opened = open_colder(EmbeddedConfig(store=store, coding=coding), torch.float32, None)
    tier = opened["store"]
    assert isinstance(tier, StoreMooncake)
    assert tier.stats().capacity_bytes == 16 << 20
    block = np.linspace(-1, 1, SIZE // 4, dtype=np.float32).view(np.uint8).reshape(1, SIZE)
    assert tier.put(HEADERS[:1], block).all()
    out = rows(1)
    assert tier.get(HEADERS[:1], out).all()
    assert np.abs(out.view(np.float32) - block.view(np.float32)).max() < 0.05
    assert (tier.stats().quantized, tier.stats().kept_exact) == (1, 0)
    tier.close()


def test_without_a_master_it_says_so_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(TierError, match="No Mooncake master answers"):
        StoreMooncake(MooncakeOptions(f"127.0.0.1:{_free_port()}", KEY))
    assert time.monotonic() - started < 10


def _headers(it: Any, prompt: list[int]) -> Any:
    return it.tiers._chains.headers("default", np.array(prompt, dtype=np.int32))


def _until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _answers(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False
