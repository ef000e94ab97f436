"""What is below the device can be reached: a block that is there has its parent there, or further down."""

import random
from pathlib import Path

import numpy as np
import pytest

from cache_core.block_hash import root_hash
from cache_core.tiered import TieringOptions, WritePolicy
from tests.cache_core.tiered.world import BLOCK, World, world

CONVERSATIONS = 5
MOST = 7  # blocks of one


def unreachable(it: World) -> list[bytes]:
    """Keys of host blocks whose parent is neither in the host nor on the disk."""
    host, disk = it.tiers.host, it.tiers.colder.get("disk")
    found = []
    for header in host.coldest(host.num_blocks):
        parent = header.parent_key
        there = host.contains([parent])[0] or (disk is not None and disk.contains([parent])[0])
        if header.parent != root_hash(header.identity) and not there:
            found.append(header.key)
    return found


@pytest.mark.parametrize("policy", ["write_through_on_second_hit", "write_back"])
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_conversations_that_grow_in_a_small_host_leave_no_child_without_its_parent(
    tmp_path: Path, policy: WritePolicy, on_disk: bool, share: float
) -> None:
    options = TieringOptions(write_policy=policy, reserve_blocks=0)
    folder = tmp_path if on_disk else None
    with world(folder, blocks=14, host_blocks=12, options=options, scope_share=share) as it:
        for seed in range(3):
            dice, prompts = random.Random(seed), dict[int, list[int]]()
            for _ in range(40):
                number = dice.randrange(CONVERSATIONS)
                prompt = prompts.setdefault(number, [100 + number] * BLOCK)
                if len(prompt) < MOST * BLOCK and dice.random() < 0.5:
                    prompt.extend([dice.randrange(9)] * BLOCK)
                if dice.random() < 0.1:
                    del prompts[number]
                if dice.random() < 0.6:
                    it.fetch([*prompt, 7], "ab"[number % 2])
                it.run([*prompt, 7], "ab"[number % 2])
                it.settle()
                assert unreachable(it) == []


def test_a_child_that_comes_later_makes_its_parents_stay_longer() -> None:
    with world(blocks=64, host_blocks=6) as it:
        first = [100] * BLOCK + [101] * BLOCK
        for prompt in (
            [*first, 7],
            [200] * BLOCK * 2 + [7],
            [*first, *[102] * BLOCK, 7],
            [300] * BLOCK * 2 + [7],
        ):
            it.run(prompt)
            it.run(prompt)
            it.settle()
        assert it.tiers.host.stats().blocks == 6
        assert unreachable(it) == []
        headers = it.tiers._chains.headers("default", np.array([*first, *[102] * BLOCK], dtype=np.int32))
        assert it.tiers.host.contains([header.key for header in headers]).all()
