"""A process that is killed while states and their KV go to disk loses at most cache."""

import random
from collections.abc import Iterator
from pathlib import Path

from cache_core.state_groups import StateGroup
from tests.cache_core.killing import killed
from tests.cache_core.tiered.state_world import HybridWorld, hybrid_world

ROUNDS = 100
PROMPTS = [
    [number // 3 * 100 + place for place in range(8 * (number % 3 + 1))] + [-1] for number in range(18)
]


def work(folder: Path, dice: random.Random) -> Iterator[None]:
    """Uses prompts again and again, so that states and KV are written through; purges a scope at times."""
    scope = dice.choice("ab")
    with hybrid_world(folder, blocks=40, host_blocks=30, rows=4) as world:
        while True:
            yield
            prompt = dice.choice(PROMPTS)
            if dice.random() < 0.1:
                world.forget_device()
            if dice.random() < 0.02:
                world.it.tiers.purge("b")
            world.fetch(prompt, scope)
            world.run(prompt, scope)
            world.run(prompt, scope)


def test_after_a_kill_anywhere_every_state_is_right_and_has_its_kv(tmp_path: Path) -> None:
    folder, reused = tmp_path / "kv", 0
    for number in killed(__name__, folder, ROUNDS, 0.02):
        if number % 10 == 9:
            with hybrid_world(folder, blocks=40) as world:
                reused += sum(_check(world, prompt, scope) for prompt in PROMPTS for scope in "ab")
    assert reused > ROUNDS, "what was spilled before the kills is found again"


def _check(world: HybridWorld, prompt: list[int], scope: str) -> int:
    disk = world.it.tiers.colder["disk"]
    blocks = disk.contains(world.keys(prompt, StateGroup.ATTENTION, scope))
    states = disk.contains(world.keys(prompt, StateGroup.RECURRENT, scope)).nonzero()[0]
    assert all(blocks[: place + 1].all() for place in states)
    world.it.settle()  # copies of the prompt before hold rows that this one may need
    world.forget_device()
    world.fetch(prompt, scope)
    reused = world.run(prompt, scope)  # which checks every byte
    assert reused == (4 * (int(states[-1]) + 1) if len(states) else 0)
    return reused
