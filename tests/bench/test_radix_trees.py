"""The comparison with SGLang's trees gives both sides the same, and says so where they are not there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import cache, radix_trees
from bench.peers import sglang_trees_peer
from bench.peers.sglang_trees_peer import SglangTreesPeer, TreeFigures
from bench.radix_trees import TreeComparison, Workload

SMALL = Workload(sequences=40, prefixes=3, shared=(60, 90), private=(8, 40))
# Answers as the worker does, for a tree that holds each distinct page once.
STAND_IN = """
import json, sys, numpy as np
held = np.load(sys.argv[2])
parts = np.split(held["tokens"], held["ends"][:-1])
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    page = asked["page"]
    pages = {part[: end * page].tobytes() for part in parts for end in range(1, len(part) // page + 1)}
    speed = 100.0 if asked["tree"] == "rust" else 200.0
    seen = {"pairs_per_cpu_second": speed, "match_p50": speed / 1e6, "tokens": len(pages) * page}
    print(json.dumps(seen), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "stand_in.py"
    program.write_text(STAND_IN)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("KVGATE_SGLANG_PYTHON", str(python))
    return python


def test_the_sequences_share_prefixes_and_come_out_the_same_from_the_same_seed() -> None:
    made, again = SMALL.make(), SMALL.make()
    assert len(made) == 40
    assert all((one == other).all() for one, other in zip(made, again, strict=True))
    assert len({one[:60].tobytes() for one in made}) == 3
    assert len({one.tobytes() for one in made}) == 40
    assert all(one.dtype == np.int32 and 68 <= len(one) <= 130 for one in made)


def test_our_tree_holds_what_a_tree_over_the_same_pages_holds(stand_in: Path) -> None:
    for one in radix_trees.run(1, lambda _: None, SMALL):
        assert one.peer is not None
        assert one.ours.tokens == one.peer.tokens
        assert one.peer.pairs_per_cpu_second == 200.0, "the better of both trees, figure by figure"
        assert one.peer.match_p50 == 100e-6


def test_trees_that_hold_something_else_are_not_compared(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = TreeFigures(1.0, 1.0, tokens=1)
    monkeypatch.setattr(radix_trees, "_ours", lambda *_: ours)
    with pytest.raises(RuntimeError, match="do not hold the same"):
        radix_trees.run(1, lambda _: None, SMALL)


def test_without_the_peer_the_rows_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVGATE_SGLANG_PYTHON", raising=False)
    monkeypatch.setenv("KVGATE_CACHE_DIR", str(tmp_path))
    (one, _) = radix_trees.run(1, lambda _: None, SMALL)
    assert one.peer is None
    for row in cache.tree_rows(one):
        assert row.reached is None
        assert row.missing == sglang_trees_peer.HOW_TO_INSTALL
        assert row.our_value > 0


def test_rows_compare_speed_and_latency_each_in_its_own_sense() -> None:
    compared = TreeComparison(1, TreeFigures(300.0, 2e-6, 1), TreeFigures(200.0, 4e-6, 1))
    speed, latency = cache.tree_rows(compared)
    assert (speed.ratio, speed.reached) == (1.5, True)
    assert (latency.ratio, latency.reached) == (0.5, True)


def test_a_worker_that_ends_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"sglang_trees\.sh"), SglangTreesPeer(python, tmp_path / "none"):
        pass


def test_the_worker_needs_nothing_of_kvgate() -> None:
    worker = Path(sglang_trees_peer.__file__).with_name("sglang_trees_worker.py")
    code = "import runpy, sys, json; runpy.run_path(sys.argv[1]); print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(worker)], capture_output=True, check=True, text=True
    )
    assert not {"bench", "cache_core", "torch"} & set(json.loads(done.stdout))


def test_sglangs_own_trees_hold_the_same() -> None:
    python = sglang_trees_peer.interpreter(os.environ)
    if python is None:
        pytest.skip(sglang_trees_peer.HOW_TO_INSTALL)
    for one in radix_trees.run(1, lambda _: None, SMALL):
        assert one.peer is not None
        assert one.ours.tokens == one.peer.tokens
