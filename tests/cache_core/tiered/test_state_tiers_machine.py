"""A hybrid model's cache on every tier, anything in any order: whatever is reused, KV and state, is its tokens'."""

import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cache_core.state_groups import StateGroup
from cache_core.tiered import TieringOptions, WritePolicy
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.state_world import HybridWorld, hybrid_world
from tests.cache_core.tiered.test_tiered_state_machine import SCOPES, prompts

scopes = st.sampled_from(SCOPES)


class HybridTiers(RuleBasedStateMachine):
    """The bytes are their own model; `HybridWorld.run` checks all that it reuses."""

    write_policy: WritePolicy = "write_through_on_second_hit"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.troubled = False  # blocks on disk may have been lost without their states

    @initialize()
    def start(self) -> None:
        self.stack = ExitStack()
        options = TieringOptions(write_policy=self.write_policy, reserve_blocks=0)
        self.files = FaultyFiles()
        made = hybrid_world(
            self.folder / "kv", rows=3, kept=3, blocks=10, host_blocks=6, options=options, files=self.files
        )
        self.world: HybridWorld = self.stack.enter_context(made)

    def teardown(self) -> None:
        self.stack.close()
        shutil.rmtree(self.folder)

    @rule(prompt=prompts, scope=scopes)
    def request(self, prompt: list[int], scope: str) -> None:
        assert self.world.run(prompt, scope) <= len(prompt) - 1

    @rule(prompt=prompts, scope=scopes)
    def fetched_request(self, prompt: list[int], scope: str) -> None:
        self.world.fetch(prompt, scope)
        self.world.run(prompt, scope)

    @rule(prompt=prompts, scope=scopes, cancelled=st.booleans())
    def ask_without_waiting(self, prompt: list[int], scope: str, cancelled: bool) -> None:
        ask = self.world.it.tiers.ask(np.array(prompt, dtype=np.int32), scope)
        if ask is not None and cancelled:
            ask.cancel()

    @rule(prompt=prompts, scope=scopes)
    def come_back_whole(self, prompt: list[int], scope: str) -> None:
        """Used twice, then gone from the device: what the tiers say they have comes back."""
        self.world.run(prompt, scope)
        self.world.run(prompt, scope)
        self.world.it.settle()
        self.world.forget_device()
        ask = self.world.it.tiers.ask(np.array(prompt, dtype=np.int32), scope)
        self.world.it.settle()
        reused = self.world.run(prompt, scope)
        if ask is not None and ask.answer is not None and not self.troubled:
            assert reused == ask.answer.expected

    @rule(blocks=st.integers(1, 10))
    def evict(self, blocks: int) -> None:
        self.world.it.cache.evict(blocks)

    @rule(blocks=st.integers(1, 10))
    def sweep(self, blocks: int) -> None:
        self.world.it.tiers.demote(blocks)

    @rule(steps=st.integers(1, 20))
    def compact(self, steps: int) -> None:
        """Of rows that hold states a next one never lies behind another, but what is free goes together."""
        states = self.world.it.tiers.states
        assert states is not None
        for compact in (self.world.it.cache.compact, self.world.it.tiers.host.compact, states.rows.compact):
            for _ in range(steps):
                if not compact(2):
                    break

    @rule(states_too=st.booleans())
    def flush(self, states_too: bool) -> None:
        self.world.it.cache.flush()
        if states_too:
            self.world.states.flush()

    @rule()
    def lose_states_on_the_device(self) -> None:
        self.world.states.flush()

    @rule(prompt=prompts, scope=scopes, group=st.sampled_from(StateGroup), seed=st.integers(0, 99))
    def lose_some_of_a_group(self, prompt: list[int], scope: str, group: StateGroup, seed: int) -> None:
        keys = self.world.keys(prompt, group, scope)
        some = random.Random(seed).sample(keys, len(keys) // 2)
        tiers = self.world.it.tiers
        assert tiers.states is not None
        self.troubled |= bool(some)
        for tier in (tiers.host, tiers.states.rows, tiers.colder["disk"]):
            tier.delete(some)

    @rule(broken=st.booleans(), full=st.booleans())
    def trouble_with_the_disk(self, broken: bool, full: bool) -> None:
        self.files.fail_reads, self.files.full = broken, full
        self.troubled |= broken or full

    @rule()
    def restart(self) -> None:
        self.world.it.settle()
        self.stack.close()
        self.start()

    @rule(seed=st.integers(0, 2**16))
    def restart_with_damage(self, seed: int) -> None:
        self.world.it.settle()
        self.stack.close()
        self.troubled = True
        chance = random.Random(seed)
        for file in sorted((self.folder / "kv").glob("*.segment")):
            content = bytearray(file.read_bytes())
            for _ in range(4 if content else 0):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            file.write_bytes(content)
        self.start()

    @rule(scope=scopes)
    def purge(self, scope: str) -> None:
        self.files.fail_reads = self.files.full = False  # else it says that bytes could not be erased
        self.world.it.tiers.purge(scope)
        assert not [key for key in self.world.states.kept if key[0] == scope]
        prompt = [10, 11, 12, 13, 99]
        self.world.fetch(prompt, scope)
        assert self.world.run(prompt, scope) == 0

    @rule(prompt=prompts, scope=scopes)
    def on_disk_a_state_has_its_kv(self, prompt: list[int], scope: str) -> None:
        self.world.it.settle()
        if self.troubled:
            return
        disk = self.world.it.tiers.colder["disk"]
        blocks = disk.contains(self.world.keys(prompt, StateGroup.ATTENTION, scope))
        for place in disk.contains(self.world.keys(prompt, StateGroup.RECURRENT, scope)).nonzero()[0]:
            assert blocks[: place + 1].all()

    @invariant()
    def whole(self) -> None:
        if hasattr(self, "world"):
            tiers = self.world.it.tiers
            assert tiers.states is not None
            self.world.it.cache.check_integrity()
            tiers.host.check_integrity()
            tiers.states.rows.check_integrity()


class HybridTiersWrittenBack(HybridTiers):
    """The same where both are copied when they are evicted."""

    write_policy: WritePolicy = "write_back"


TestHybridTiers = HybridTiers.TestCase
TestHybridTiersWrittenBack = HybridTiersWrittenBack.TestCase
TestHybridTiers.settings = TestHybridTiersWrittenBack.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
