"""A process that is killed while states and their KV go to disk loses at most cache."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from cache_core.state_groups import StateGroup
from tests.cache_core.tiered.state_world import HybridWorld, hybrid_world

ROUNDS = 100
PROMPTS = [
    [number // 3 * 100 + place for place in range(8 * (number % 3 + 1))] + [-1] for number in range(18)
]
# One process forks a child a round, so that a round costs no interpreter's start. The child uses prompts again and
# again, so that states and KV are written through, purges a scope at times, and is killed anywhere in that.
SPILL = """
import os, random, sys
from pathlib import Path
from tests.cache_core.tiered.state_world import hybrid_world
from tests.cache_core.tiered.test_state_kill import PROMPTS
for seed in map(int, sys.stdin):
    child = os.fork()
    if not child:
        dice = random.Random(seed)
        with hybrid_world(Path(sys.argv[1]), blocks=40, host_blocks=30, rows=4) as world:
            while True:
                print("next", flush=True)
                prompt = dice.choice(PROMPTS)
                if dice.random() < 0.1:
                    world.forget_device()
                if dice.random() < 0.02:
                    world.it.tiers.purge("b")
                world.fetch(prompt, "ab"[seed % 2])
                world.run(prompt, "ab"[seed % 2])
                world.run(prompt, "ab"[seed % 2])
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def test_after_a_kill_anywhere_every_state_is_right_and_has_its_kv(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    process = subprocess.Popen(
        [sys.executable, "-c", SPILL, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    dice, reused = random.Random(7), 0
    try:
        for seed in range(ROUNDS):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            for _ in range(dice.randrange(1, 10)):
                assert process.stdout.readline() == "next\n"
            _kill_child(process.pid, dice.random() * 0.02)
            while (line := process.stdout.readline()) != "gone\n":
                assert line == "next\n"
            if seed % 10 == 9:
                with hybrid_world(folder, blocks=40) as world:
                    reused += sum(_check(world, prompt, scope) for prompt in PROMPTS for scope in "ab")
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
    assert reused > ROUNDS, "what was spilled before the kills is found again"


def _kill_child(parent: int, after: float) -> None:
    time.sleep(after)
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)


def _check(world: HybridWorld, prompt: list[int], scope: str) -> int:
    disk = world.it.tiers.colder["disk"]
    blocks = disk.contains(world.keys(prompt, StateGroup.ATTENTION, scope))
    states = disk.contains(world.keys(prompt, StateGroup.RECURRENT, scope)).nonzero()[0]
    assert all(blocks[: place + 1].all() for place in states)
    world.forget_device()
    world.fetch(prompt, scope)
    reused = world.run(prompt, scope)  # which checks every byte
    assert reused == (4 * (int(states[-1]) + 1) if len(states) else 0)
    return reused
