"""A process that is killed while it spills loses at most cache."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cache_core.tiers.blocks import headers_of, opened, put, served

ROUNDS = 100
# One process forks a child a round, so that a round costs no interpreter's start. The child says what it has
# been told is stored, writes on and on, deletes, cleans and purges, and is killed anywhere in that.
SPILL = """
import os, random, signal, sys, time
from pathlib import Path
from tests.cache_core.tiers.blocks import OTHER, headers_of, opened, put, served
folder = Path(sys.argv[1])
for seed in map(int, sys.stdin):
    child = os.fork()
    if not child:
        dice = random.Random(seed)
        tier = opened(folder, capacity_bytes=2 << 20, segment_bytes=100_000, clean_below=0.8)
        print("open", flush=True)
        while True:
            first = dice.randrange(40) * 100
            headers = headers_of(first, dice.randrange(1, 8))
            match dice.randrange(8):
                case 0:
                    tier.delete([header.key for header in headers])
                case 1:
                    tier.clean()
                case 2:
                    put(tier, headers_of(first, 3, OTHER))
                    tier.purge(OTHER)
                case 3:
                    served(tier, headers)
                case _:
                    put(tier, headers)
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


def test_after_a_kill_anywhere_every_returned_block_is_right(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-c", SPILL, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    dice, found = random.Random(7), 0
    try:
        for seed in range(ROUNDS):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "open\n"
            _kill_child(process.pid, dice.random() * 0.1)
            assert process.stdout.readline() == "gone\n"
            if seed % 10 == 9:
                found += _check(folder)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()
    assert found > ROUNDS, "what was spilled before the kills is found again"


def _kill_child(parent: int, after: float) -> None:
    time.sleep(after)
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)


def _check(folder: Path) -> int:
    """Every block that any child may have stored, and one more write."""
    tier = opened(folder, capacity_bytes=2 << 20, segment_bytes=100_000)
    found = sum(served(tier, headers_of(first * 100, 8)) for first in range(40))
    assert put(tier, headers_of(9000, 3)) == served(tier, headers_of(9000, 3)) == 3
    assert tier.stats().drops == {}, "the index never knows a block that is not whole"
    tier.close()
    return found
