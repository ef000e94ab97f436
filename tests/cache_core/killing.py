"""Processes that are killed with SIGKILL in the middle of their work, again and again."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# One process forks a child a round, so that a round costs no interpreter's start. A line is one write, which a kill
# does not cut in two; `print` makes two of it where Python runs unbuffered.
_PARENT = """
import os, random, sys
from pathlib import Path
from {module} import work
for seed in map(int, sys.stdin):
    child = os.fork()
    if not child:
        for _ in work(Path(sys.argv[1]), random.Random(seed)):
            os.write(1, b"next\\n")
    os.waitpid(child, 0)
    os.write(1, b"gone\\n")
"""


def killed(module: str, folder: Path, rounds: int, moment: float) -> Iterator[int]:
    """The number of each round, after its child was killed.

    `work(folder, dice)` of `module` goes on for ever and yields between two steps. The kill comes after some steps,
    however slow the machine is, and up to `moment` seconds.
    """
    command = [sys.executable, "-c", _PARENT.format(module=module), str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    dice = random.Random(7)
    try:
        for number in range(rounds):
            process.stdin.write(f"{number}\n")
            process.stdin.flush()
            for _ in range(dice.randrange(1, 10)):
                assert process.stdout.readline() == "next\n"
            time.sleep(dice.random() * moment)
            _kill_child(process.pid)
            while (line := process.stdout.readline()) != "gone\n":
                assert line == "next\n"
            yield number
    finally:
        process.stdin.close()
        process.wait(120)
        process.stdout.close()


def _kill_child(parent: int) -> None:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
