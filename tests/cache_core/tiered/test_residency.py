"""Where the blocks of a prefix are, over all tiers, and what is not asked or copied because it is known."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cache_core.residency import BITS
from cache_core.tiered import TieringOptions, WritePolicy
from cache_core.transfer import Transfer
from tests.cache_core.tiered.test_observed import prompt
from tests.cache_core.tiered.test_tiered_cache import PROMPT, warm
from tests.cache_core.tiered.world import BLOCK, PATIENT, World, until, world
from tests.waiting import PATIENCE_S

IDS = np.array(PROMPT, dtype=np.int32)
ALL = BITS["device"] | BITS["host"] | BITS["disk"]


def known(it: World, tokens: list[int] = PROMPT) -> list[int]:
    found: list[int] = it.cache.residency(np.array(tokens, dtype=np.int32)).tolist()
    return found


def warm_and_known(it: World, tokens: list[int] = PROMPT) -> None:
    warm(it, tokens)
    until(lambda: known(it, tokens) == [ALL] * 5)


def test_every_tier_is_named_for_each_block(tmp_path: Path) -> None:
    with world(tmp_path, store=tmp_path / "store") as it:
        assert it.tiers.residency(IDS) == [()] * 5
        it.run(PROMPT)
        assert it.tiers.residency(IDS) == [("device",)] * 5
        warm(it)
        assert it.tiers.residency(IDS) == [("device", "host", "disk", "store")] * 5
        it.cache.evict(2)
        it.tiers.host.delete([h.key for h in it.tiers._chains.headers("default", IDS)[:1]])
        last = ("host", "disk", "store")
        assert it.tiers.residency(IDS) == [("device", "disk", "store"), *[("device", *last)] * 2, last, last]
        assert it.tiers.residency(IDS, "other") == [()] * 5


def test_what_was_copied_down_is_known_to_be_there(tmp_path: Path) -> None:
    with world(tmp_path, store=tmp_path / "store") as it:
        it.run(PROMPT)
        assert known(it) == [BITS["device"]] * 5
        warm(it)
        until(lambda: known(it) == [ALL | BITS["store"]] * 5)


@pytest.mark.parametrize("policy", ["write_through_on_second_hit", "write_back", "none"])
def test_what_came_up_is_known_to_be_where_it_came_from(tmp_path: Path, policy: WritePolicy) -> None:
    with world(tmp_path) as it:
        warm(it)
    with world(tmp_path, options=replace(PATIENT, write_policy=policy)) as it:
        assert it.fetch(PROMPT)
        assert it.run([*PROMPT[:-1], 1, 2, 3, 4, 5]) == 5 * BLOCK
        until(lambda: known(it)[:5] == [ALL] * 5)
        it.settle()
        more = known(it, [*PROMPT[:-1], 1, 2, 3, 4, 5])
        assert more[5:] == [BITS["device"]], "what was computed lies on the device alone"


def test_each_block_that_came_up_is_known_for_itself(tmp_path: Path) -> None:
    with world(tmp_path, options=replace(PATIENT, write_policy="none")) as it:
        headers = it.tiers._chains.headers("default", IDS)
        it.run(PROMPT)
        lease = it.cache.hold(IDS)
        rows = torch.zeros((5, it.device.bytes_per_block), dtype=torch.uint8)
        it.device.read_blocks(lease.blocks, rows)
        lease.release()
        it.tiers.host.put([headers[n] for n in (0, 2, 3)], [rows[n].numpy() for n in (0, 2, 3)])
        it.tiers.colder["disk"].put(headers[1:3], [rows[n].numpy() for n in (1, 2)])
        it.cache.flush()
        assert it.fetch(PROMPT)
        both, host = BITS["host"] | BITS["disk"], BITS["host"]
        until(lambda: known(it) == [BITS["device"] | each for each in (host, both, both, host)])


def test_tiers_are_not_asked_for_what_they_are_known_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as it:
        warm_and_known(it)
        asked: list[str] = []
        for tier in (it.tiers.host, it.tiers.colder["disk"]):
            for method in ("contains", "stamp", "reserve"):
                monkeypatch.setattr(tier, method, lambda *_, name=method: asked.append(name), raising=False)
        monkeypatch.setattr(it.tiers._chains, "headers", lambda *_: asked.append("headers"))
        it.tiers.used(IDS[: 5 * BLOCK])
        until(lambda: it.tiers.idle)
        assert it.tiers.demote(5) == 5
        assert asked == []


def test_nothing_is_idle_until_what_is_done_behind_a_copy_is_done(tmp_path: Path) -> None:
    behind, go_on = threading.Event(), threading.Event()

    def held_up(_: Transfer) -> None:
        behind.set()
        assert go_on.wait(PATIENCE_S)

    with world(tmp_path) as it:
        warm(it)
        it.tiers.flush(["disk"])
        chains, backup = it.tiers._chains, it.tiers._backup
        number = backup._purges.number(chains.digest("default"))
        assert number is not None
        backup.pass_to("disk", chains.headers("default", IDS[: 5 * BLOCK]), number, held_up)
        assert behind.wait(PATIENCE_S)
        assert it.tiers._backup.idle
        assert not it.tiers.idle
        go_on.set()
        it.settle()


def test_what_the_host_evicted_is_known_no_more_and_copied_again(tmp_path: Path) -> None:
    with world(tmp_path, host_blocks=6) as it:
        warm_and_known(it)
        warm(it, prompt(2))
        assert known(it) == [ALL & ~BITS["host"]] * 5
        warm(it)
        until(lambda: known(it) == [ALL] * 5)
        assert it.tiers.residency(IDS) == [("device", "host", "disk")] * 5


def test_newer_blocks_stay_known_when_older_ones_go(tmp_path: Path) -> None:
    with world(tmp_path, host_blocks=12, blocks=32) as it:
        warm(it, prompt(1))
        warm_and_known(it, prompt(2))
        warm(it, prompt(3))
        assert it.tiers.host.stats().evicted == 3
        assert [bits & BITS["host"] for bits in known(it, prompt(1))] == [0] * 5
        assert known(it, prompt(2)) == [ALL] * 5


def test_what_a_disk_lost_is_known_no_more(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        warm_and_known(it)
        it.tiers.flush(["disk"])
        assert known(it) == [ALL & ~BITS["disk"]] * 5
        warm(it)
        until(lambda: known(it) == [ALL] * 5)


def test_demoting_does_not_lose_what_the_host_lost(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        warm_and_known(it)
        it.tiers.flush(["host", "disk"])
        assert it.tiers.demote(5) == 5
        it.settle()
        assert it.fetch(PROMPT)
        assert it.run(PROMPT) == 5 * BLOCK


def test_a_purged_scope_is_known_nowhere(tmp_path: Path) -> None:
    with world(tmp_path) as it:
        warm_and_known(it)
        it.tiers.purge("default")
        it.run(PROMPT)
        assert known(it) == [BITS["device"]] * 5


def test_a_policy_of_costs_lets_go_first_of_what_the_host_gives_back_soon(tmp_path: Path) -> None:
    with world(tmp_path, policy="cost", blocks=32, options=TieringOptions(reserve_blocks=0)) as it:
        first, second = prompt(1), prompt(2)
        for _ in range(2):
            it.run(first)
            it.run(second)
        until(lambda: it.tiers.idle)
        it.tiers.flush(["host", "disk"])
        warm_and_known(it, second)  # only that one lies below now, though it was used more often
        for _ in range(17):
            it.tiers.computed([(0, 1000)], 3600.0)  # prefill is dear
        assert it.tiers.demote(5) == 5
        assert it.cache.match(np.array(second, dtype=np.int32)) == 0
        assert it.cache.match(np.array(first, dtype=np.int32)) == 5 * BLOCK
