"""`kvgate sim evict` as people and scripts call it."""

import subprocess
import sys
from pathlib import Path

import orjson

from tests.bench.sim.slices import CODING_AGENT


def sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "sim", "evict", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_one_policy_at_one_size_is_one_object() -> None:
    done = sim(str(CODING_AGENT), "--policy", "lru", "--blocks", "800", "--json")
    assert done.returncode == 0, done.stderr
    result = orjson.loads(done.stdout)
    assert list(result) == ["policy", "blocks", "hit_rate", "requests"]
    assert (result["policy"], result["blocks"], result["requests"]) == ("lru", 800, 200)
    assert round(result["hit_rate"], 4) == 0.4931


def test_several_are_a_list() -> None:
    done = sim(
        str(CODING_AGENT),
        *("--policy", "lru", "--policy", "opt"),
        *("--blocks", "200", "--blocks", "400"),
        "--json",
    )
    results = orjson.loads(done.stdout)
    assert [(r["policy"], r["blocks"]) for r in results] == [
        ("lru", 200), ("lru", 400), ("opt", 200), ("opt", 400)
    ]  # fmt: skip


def test_people_get_a_table_and_a_plot_against_opt() -> None:
    done = sim(str(CODING_AGENT), "--policy", "lru", "--blocks", "800")
    assert done.returncode == 0, done.stderr
    assert "0.4931" in done.stdout
    assert "72% of OPT" in done.stdout
    assert "█" in done.stdout
    assert "reading" in done.stderr
    assert "reading" not in done.stdout


def test_other_block_sizes_are_other_blocks() -> None:
    done = sim(str(CODING_AGENT), *("--policy", "lru", "--blocks", "1600", "--block-size", "256", "--json"))
    assert round(orjson.loads(done.stdout)["hit_rate"], 3) == 0.493


def test_what_it_cannot_do_is_said_in_words(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("nothing\n")
    for arguments, said in (
        ([str(wrong), "--policy", "lru", "--blocks", "9"], "line 1"),
        ([str(CODING_AGENT), "--policy", "fifo", "--blocks", "9"], "adaptive_lrfu"),
        ([str(CODING_AGENT), "--policy", "lru", "--blocks", "9", "--block-size", "7"], "7 tokens"),
    ):
        done = sim(*arguments)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
