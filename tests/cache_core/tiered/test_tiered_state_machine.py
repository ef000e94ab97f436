"""Anything in any order, on every tier, with damage and restarts: whatever is reused has its tokens' bytes."""

import random
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cache_core import OutOfBlocksError
from cache_core.residency import BITS
from cache_core.tiered import TieringOptions, WritePolicy
from cache_core.tiers.base import Watermarks
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.overlapped import Request, decided
from tests.cache_core.tiered.world import BLOCK, UNHURRIED, World, until, world

SCOPES = ("a", "b")
LIMITS = replace(
    UNHURRIED, read=0.05
)  # that a read which does not hang is late on a busy machine costs a miss
# Two letters and few lengths, so that prefixes meet, part in the middle of an edge, and come back.
prompts = st.lists(st.sampled_from([1, 2]), min_size=1, max_size=7).map(
    lambda letters: [letter * 10 + place for letter in letters for place in range(BLOCK)] + [99]
)


class AllTiers(RuleBasedStateMachine):
    """The model is the content itself: bytes are a hash of weights, scope and prefix, checked when leased."""

    write_policy: WritePolicy = "write_through_on_second_hit"
    weights = b"w"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.purged: set[tuple[str, tuple[int, ...]]] = set()

    @initialize(share=st.sampled_from([0.3, 1.0]), shared=st.booleans())
    def begin(self, share: float, shared: bool) -> None:
        self.share = share
        self.store = self.folder / "store" if shared else None
        self.damaged = False
        self.start()

    def start(self) -> None:
        self.stack = ExitStack()
        options = TieringOptions(write_policy=self.write_policy, reserve_blocks=0, limits=LIMITS)
        self.files = FaultyFiles()
        folder = self.folder / "kv"
        self.it: World = self.stack.enter_context(
            world(
                folder,
                blocks=10,
                host_blocks=6,
                options=options,
                files=self.files,
                weights=self.weights,
                scope_share=self.share,
                store=self.store,
            )
        )

    def teardown(self) -> None:
        self.stack.close()
        shutil.rmtree(self.folder)

    @rule(prompt=prompts, scope=st.sampled_from(SCOPES))
    def request(self, prompt: list[int], scope: str) -> None:
        reused = self.it.run(prompt, scope)  # checks every byte it reuses
        assert reused <= len(prompt) - 1

    @rule(prompt=prompts, scope=st.sampled_from(SCOPES))
    def fetched_request(self, prompt: list[int], scope: str) -> None:
        self.it.fetch(prompt, scope)
        self.it.run(prompt, scope)

    @rule(prompt=prompts, scope=st.sampled_from(SCOPES))
    def fetch_without_waiting(self, prompt: list[int], scope: str) -> None:
        self.it.tiers.prefetch(np.array(prompt, dtype=np.int32), scope)

    @rule(
        prompt=prompts,
        scope=st.sampled_from(SCOPES),
        ends=st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted),
        evicted=st.integers(0, 10),
        steps=st.integers(0, 8),
        leaves=st.booleans(),
    )
    def request_that_loads_while_it_computes(
        self, prompt: list[int], scope: str, ends: list[int], evicted: int, steps: int, leaves: bool
    ) -> None:
        """It waits for a front, computes the middle and loads the rear, wherever these end; or goes away meanwhile."""
        self.it.settle()
        self.it.cache.evict(evicted)
        with decided(self.it, *ends):
            request = Request(self.it, np.array(prompt, dtype=np.int32), scope)
            try:
                request.admit()
            except OutOfBlocksError:  # a fetch of before holds what is missing
                return
        for _ in range(steps if leaves else 0):
            request.step()
            self.it.cache.check_integrity()
        if leaves:
            request.leave()
        else:
            request.finish()  # checks every byte

    @rule(prompt=prompts, scope=st.sampled_from(SCOPES), gone=st.integers(1, 6), lost=st.integers(0, 7))
    def cool_down_and_come_back(self, prompt: list[int], scope: str, gone: int, lost: int) -> None:
        """Used twice, partly evicted from the device and perhaps holed in the host; then wanted again."""
        self.it.run(prompt, scope)
        self.it.run(prompt, scope)
        self.it.settle()
        self.it.cache.evict(gone)
        headers = self.it.tiers._chains.headers(scope, np.array(prompt, dtype=np.int32))
        fetch = self.it.tiers.prefetch(np.array(prompt, dtype=np.int32), scope)
        self.it.tiers.host.delete([header.key for header in headers[lost:]])
        self.it.settle()
        if fetch is not None:
            assert not fetch.lease.live
        self.it.run(prompt, scope)

    @rule(blocks=st.integers(1, 10))
    def evict(self, blocks: int) -> None:
        self.it.cache.evict(blocks)

    @rule()
    def flush(self) -> None:
        self.it.cache.flush()

    @rule(prompt=prompts, scope=st.sampled_from(SCOPES), seed=st.integers(0, 2**16))
    def lose_host_blocks(self, prompt: list[int], scope: str, seed: int) -> None:
        headers = self.it.tiers._chains.headers(scope, np.array(prompt, dtype=np.int32))
        keys = [header.key for header in headers]
        self.it.tiers.host.delete(random.Random(seed).sample(keys, len(keys) // 2))

    @rule(broken=st.booleans(), full=st.booleans())
    def trouble_with_the_disk(self, broken: bool, full: bool) -> None:
        self.files.fail_reads, self.files.full = broken, full

    @rule(blocks=st.integers(1, 10))
    def sweep(self, blocks: int) -> None:
        self.it.tiers.demote(blocks)
        self.it.tiers.sweep_host(blocks)
        for tier in self.it.tiers.colder.values():
            tier.clean(marks=Watermarks(blocks / 10, blocks / 20))

    @rule(steps=st.integers(1, 20))
    def compact(self, steps: int) -> None:
        """Transfers may be under way: what they read or write is under a lease, or held in the host."""
        for compact in (self.it.cache.compact, self.it.tiers.host.compact):
            for _ in range(steps):
                if not compact(2):
                    break

    @rule(weights=st.sampled_from([b"w", b"x"]))
    def other_weights(self, weights: bytes) -> None:
        """While anything may be on its way; later perhaps back to the ones of before."""
        self.it.compute_otherwise(weights)
        self.weights = weights

    @rule()
    def restart(self) -> None:
        self.it.settle()
        self.stack.close()
        self.start()

    @rule(seed=st.integers(0, 2**16))
    def restart_with_damage(self, seed: int) -> None:
        """Bits flip in some files of disk and store while nobody has them open."""
        self.it.settle()
        self.stack.close()
        self.damaged = True
        chance = random.Random(seed)
        files = sorted(f for f in self.folder.rglob("*") if f.is_file() and f.stat().st_size)
        for file in chance.sample(files, min(2, len(files))):
            content = bytearray(file.read_bytes())
            for _ in range(4):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
        self.start()

    @rule(scope=st.sampled_from(SCOPES))
    def purge(self, scope: str) -> None:
        self.files.fail_reads = self.files.full = False  # else it says that bytes could not be erased
        self.it.tiers.purge(scope)
        prompt = np.array([10, 11, 12, 13, 99], dtype=np.int32)
        assert self.it.tiers.prefetch(prompt, scope) is None
        assert self.it.cache.match(prompt, scope) == 0

    @rule(prompt=prompts, scope=st.sampled_from(SCOPES))
    def know_what_is_below(self, prompt: list[int], scope: str) -> None:
        """What is known without asking is so; a block that went bad on the disk unnoticed is there for all that."""
        self.it.settle()
        ids = np.array(prompt, dtype=np.int32)
        there = self.it.tiers.residency(ids, scope)
        for bits, tiers in zip(self.it.cache.residency(ids, scope).tolist(), there, strict=False):
            assert {name for name, bit in BITS.items() if bits & bit} <= set(tiers)

    @rule(prompt=prompts, other=prompts, scope=st.sampled_from(SCOPES), purged=st.booleans())
    def a_read_that_hangs(self, prompt: list[int], other: list[int], scope: str, purged: bool) -> None:
        """It is left alone, others go on beside it, and it comes back late: over another of the same, or a purge."""
        for _ in range(2):
            self.it.run(prompt, scope)
        self.it.settle()
        self.it.tiers.flush({"device", "host"})  # what came down is on the disk alone
        self.files.release.clear()
        self.files.hang_next_reads = 1
        for wanted in (prompt, other, prompt):
            fetch = self.it.tiers.prefetch(np.array(wanted, dtype=np.int32), scope)
            if fetch is not None:
                until(lambda fetch=fetch: fetch.done)  # type: ignore[misc]
            self.it.tiers.host.check_integrity()
        if purged:
            self.files.fail_reads = self.files.full = False
            self.it.tiers.purge(scope)
        self.files.hang_next_reads = 0
        self.files.release.set()
        self.it.settle()
        self.it.run(prompt, scope)

    @rule()
    def settle(self) -> None:
        self.it.settle()
        stats = self.it.cache.stats()
        assert stats.free + stats.filling + stats.cached + stats.leased == stats.total
        assert stats.filling == 0

    @invariant()
    def whole(self) -> None:
        if hasattr(self, "it"):
            self.it.cache.check_integrity()
            self.it.tiers.host.check_integrity()
            if not (self.damaged or self.files.full or self.files.fail_reads):
                self.it.tiers.colder["disk"].check_integrity()  # type: ignore[attr-defined]


class AllTiersWrittenBack(AllTiers):
    """The same where blocks are copied when they are evicted."""

    write_policy: WritePolicy = "write_back"


TestAllTiers = AllTiers.TestCase
TestAllTiersWrittenBack = AllTiersWrittenBack.TestCase
TestAllTiers.settings = TestAllTiersWrittenBack.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
