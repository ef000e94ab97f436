"""States go down behind their KV and come up with it; what is damaged, lost or purged is never handed out."""

import random
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from weakref import WeakSet

import numpy as np
import pytest

from cache_core.block_header import KEY_IDENTITY_BYTES, BlockHeader, Body, header_size, pack, unpack
from cache_core.drop_reason import DropReason
from cache_core.state_groups import StateGroup, StateOnDevice
from cache_core.tiered import TieringOptions
from cache_core.tiers.base import BlockBytes, Mask
from cache_core.tiers.disk import DiskTier
from cache_core.tiers.host import Reservation
from cache_core.tokens import Tokens
from tests.cache_core.manual_clock import ManualClock
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.cache_core.tiered.state_world import ROW, HybridWorld, hybrid_world
from tests.cache_core.tiered.world import BLOCK, until

PROMPT = [*range(40), 99]  # ten blocks
LONG = [*range(80), 99]  # twenty


def warmed(world: HybridWorld, *prompts: list[int]) -> None:
    """Each used twice, so that its KV and the state behind it are written through."""
    for prompt in prompts:
        world.run(prompt)
        assert world.run(prompt) == len(prompt) - 1
    world.it.settle()


def test_kv_and_state_come_back_from_the_host(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT, LONG)
        world.forget_device()
        for prompt in (PROMPT, LONG):
            world.fetch(prompt)
            assert world.run(prompt) == len(prompt) - 1


def test_kv_and_state_come_back_from_disk_in_a_fresh_process(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
    with hybrid_world(tmp_path, blocks=32) as again:
        again.fetch(LONG)
        assert again.run(LONG) == 40


def test_a_state_alone_comes_up_for_kv_that_stayed(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
        world.states.flush()
        world.it.tiers.states.rows.delete(world.keys(PROMPT, StateGroup.RECURRENT))  # type: ignore[union-attr]
        world.fetch(PROMPT)
        assert world.run(PROMPT) == 40


def test_kv_is_loaded_up_to_the_deepest_state_and_no_further(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT, LONG)
        disk = world.it.tiers.colder["disk"]
        assert disk.delete(world.keys(LONG, StateGroup.RECURRENT)[-1:]) == 1
    with hybrid_world(tmp_path, blocks=32) as again:
        ask = again.it.tiers.ask(np.array(LONG, dtype=np.int32))
        again.it.settle()
        assert ask is not None
        assert ask.answer is not None
        assert (ask.answer.expected, ask.answer.covered) == (40, 80)
        assert again.it.cache.match(np.array(LONG, dtype=np.int32)) == 40
        assert again.run(LONG) == 40


def test_without_any_state_no_kv_is_loaded(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
        world.it.tiers.colder["disk"].delete(world.keys(PROMPT, StateGroup.RECURRENT))
    with hybrid_world(tmp_path, blocks=32) as again:
        again.fetch(PROMPT)
        assert again.it.tiers.stats()["disk"].hits == 0
        assert again.run(PROMPT) == 0


def test_where_recomputing_is_sooner_neither_comes_up(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
    with hybrid_world(tmp_path, blocks=32) as again:
        for _ in range(200):
            again.it.tiers.computed([(0, 1000)], 1e-9)
        again.fetch(PROMPT)
        assert again.run(PROMPT) == 0


def test_where_the_device_has_no_room_for_all_of_it_nothing_is_loaded(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, LONG)
    with hybrid_world(tmp_path, blocks=19) as again:
        again.fetch(LONG)
        assert again.it.tiers.stats()["disk"].hits == 0
        assert not again.states.kept


def test_one_state_that_some_prompts_need_comes_up_once_for_all(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
    files = FaultyFiles()
    with hybrid_world(tmp_path, blocks=32, files=files) as again:
        files.hang_reads = True
        prompts = [np.array([*PROMPT[:40], tail], dtype=np.int32) for tail in range(200, 204)]
        asks = [ask for prompt in prompts if (ask := again.it.tiers.ask(prompt)) is not None]
        until(lambda: all(ask.answer is not None for ask in asks))
        files.hang_reads = False
        files.release.set()
        again.it.settle()
        answers = [ask.answer for ask in asks if ask.answer is not None]
        assert [answer.expected for answer in answers] == [40] * 4
        states = {answer.state for answer in answers if answer.state is not None}
        assert [state.arrived for state in states] == [True]
        assert again.it.tiers.stats()["disk"].hits == 10 + 1
        assert again.run([*PROMPT[:40], 205]) == 40


def test_a_state_that_nobody_waits_for_any_more_is_given_up_and_one_that_somebody_does_is_not(
    tmp_path: Path,
) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
    files = FaultyFiles()
    with hybrid_world(tmp_path, blocks=32, files=files) as again:
        files.hang_reads = True
        prompts = [np.array([*PROMPT[:40], tail], dtype=np.int32) for tail in (200, 201)]
        first, second = (ask for prompt in prompts if (ask := again.it.tiers.ask(prompt)) is not None)
        until(lambda: first.answer is not None and second.answer is not None)
        assert first.answer is not None
        state = first.answer.state
        assert state is not None
        first.cancel()
        assert not state.done, "the second one waits for it, too"
        second.cancel()
        assert state.done
        files.release.set()
        again.it.settle()
        assert not state.arrived
        assert not again.states.kept
        assert again.run(PROMPT) == 0
        again.fetch([*PROMPT[:40], 202])
        assert again.run([*PROMPT[:40], 203]) == 40, "the next one has it brought up anew"


def test_no_state_is_below_the_device_without_its_kv(tmp_path: Path) -> None:
    """The host has room for a part of the chain only, and what lies behind that is on no tier."""
    with hybrid_world(blocks=32, host_blocks=12) as world:
        warmed(world, PROMPT)
        world.run(LONG)
        world.run(LONG)
        world.it.settle()
        states = world.it.tiers.states
        assert states is not None
        there = states.rows.contains(world.keys(LONG, StateGroup.RECURRENT))
        kv = world.it.tiers.host.contains(world.keys(LONG, StateGroup.ATTENTION))
        assert not kv.all()
        assert not there[-1]


def test_a_disk_that_refuses_kv_gets_no_state(tmp_path: Path) -> None:
    files = FaultyFiles()
    with hybrid_world(tmp_path, blocks=32, files=files) as world:
        files.full = True
        warmed(world, PROMPT)
        files.full = False
        assert not world.it.tiers.colder["disk"].contains(world.keys(PROMPT, StateGroup.RECURRENT)).any()
        world.run(PROMPT)
        world.it.settle()
        assert world.it.tiers.colder["disk"].contains(world.keys(PROMPT, StateGroup.RECURRENT))[-1]


def test_a_disk_that_lost_kv_on_its_way_gets_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        disk = world.it.tiers.colder["disk"]
        put = disk.put

        def but_the_first(headers: Sequence[BlockHeader], blocks: BlockBytes) -> Mask:
            refused = headers[0].group == StateGroup.ATTENTION
            return np.zeros(len(headers), dtype=np.bool_) if refused else put(headers, blocks)

        monkeypatch.setattr(disk, "put", but_the_first)
        warmed(world, PROMPT)
        assert disk.stats().stored == 0


@pytest.mark.parametrize("kept", [1, 8])
def test_written_back_states_go_down_when_they_or_their_kv_leave_the_device(
    tmp_path: Path, kept: int
) -> None:
    options = TieringOptions(write_policy="write_back", reserve_blocks=0)
    with hybrid_world(tmp_path, blocks=40, kept=kept, options=options) as world:
        world.run(PROMPT)
        world.run([*range(100, 120), 99])  # its state takes the room of the first one's where there is one
        world.it.settle()
        world.it.cache.evict(40)
        world.it.settle()
    with hybrid_world(tmp_path, blocks=40) as again:
        again.fetch(PROMPT)
        assert again.run(PROMPT) == 40


def test_a_state_that_is_handed_on_between_two_looks_is_still_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hybrid_world(tmp_path) as world:
        tiers = world.it.tiers
        assert tiers.states is not None
        backup, links_idle = tiers.states.backup, type(tiers._engine).idle.fget  # type: ignore[attr-defined]
        backup._count(1)  # a state has come into the host

        def handed_on_then(engine: object) -> bool:
            idle = bool(links_idle(engine))
            if not backup.idle:
                backup._count(-1)  # and is on its way to the disk now
            return idle

        monkeypatch.setattr(type(tiers._engine), "idle", property(handed_on_then))
        assert not tiers.idle
        backup._count(-backup._on_their_way)
        assert tiers.idle


def test_a_purge_forgets_states_everywhere_and_for_good(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
        world.run(PROMPT, "other")
        world.run(PROMPT, "other")
        world.it.settle()
        world.it.tiers.purge("default")
        assert {scope for scope, _ in world.states.kept} == {"other"}
        assert world.it.tiers.states is not None
        assert world.it.tiers.states.stats().blocks == 1
        world.fetch(PROMPT)
        assert world.run(PROMPT) == 0
        assert world.run(PROMPT, "other") == 40
    whole = b"".join(file.read_bytes() for file in tmp_path.glob("*.segment"))
    assert whole
    with hybrid_world(tmp_path, blocks=32) as again:
        again.fetch(PROMPT)
        assert again.run(PROMPT) == 0
        again.fetch(PROMPT, "other")
        assert again.run(PROMPT, "other") == 40


def test_what_lands_after_a_purge_is_not_kept(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        ids = np.array(PROMPT[:40], dtype=np.int32)
        landing = world.states.landing(ids, "default")
        world.it.tiers.purge("default")
        landing.keep()
        assert not world.states.kept


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_in_a_state_on_disk_is_never_handed_out(tmp_path: Path, seed: int) -> None:
    """Whatever bit of its record it is, the prompt goes on from the boundary before."""
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT, LONG)
        disk = world.it.tiers.colder["disk"]
        assert isinstance(disk, DiskTier)
        (place,) = disk._places(world.keys(LONG, StateGroup.RECURRENT)[-1:])
    assert place is not None
    dice = random.Random(seed)
    head = (0, header_size(BLOCK, 1))  # what follows it are zeros, up to the next page
    body = (place.length - ROW, place.length)
    flip(
        tmp_path / f"{place.segment:010d}.segment",
        place.offset + dice.randrange(*(head, body)[seed % 2]),
        dice,
    )
    with hybrid_world(tmp_path, blocks=32) as again:
        again.fetch(LONG)
        assert again.run(LONG) == 0, "the KV that came up with it is of no use"
        assert sum(again.it.tiers.stats()["disk"].drops.values()) == 1
        again.forget_device()
        again.fetch(LONG)
        assert again.run(LONG) == 40, "it is forgotten, so the boundary before is the deepest one"


def flip(file: Path, at: int, dice: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1 << dice.randrange(8)
    file.write_bytes(content)


def test_machines_share_states_through_a_store_that_only_they_can_sign(tmp_path: Path) -> None:
    with hybrid_world(store=tmp_path, blocks=32) as world:
        warmed(world, PROMPT, LONG)
        key = world.keys(LONG, StateGroup.RECURRENT)[-1]
    with hybrid_world(store=tmp_path, blocks=32) as other:
        other.fetch(LONG)
        assert other.run(LONG) == 80
    (file,) = tmp_path.rglob(key[KEY_IDENTITY_BYTES:].hex())
    record = file.read_bytes()
    found = unpack(record)
    body = Body(bytes(ROW), ROW)
    file.write_bytes(pack(found.header, body, mac_key=b"some other key of theirs") + bytes(ROW))
    with hybrid_world(store=tmp_path, blocks=32) as other:
        other.fetch(LONG)
        assert other.run(LONG) == 0
        assert other.it.tiers.stats()["store"].drops == {DropReason.FORGED: 1}


def test_a_flipped_bit_in_host_memory_is_never_handed_out() -> None:
    with hybrid_world(blocks=32) as world:
        warmed(world, PROMPT)
        states = world.it.tiers.states
        assert states is not None
        states.rows.rows[:, 17] ^= 4
        world.forget_device()
        world.fetch(PROMPT)
        assert world.run(PROMPT) == 0
        assert states.stats().drops


def test_a_hung_disk_holds_nobody_longer_than_the_deadline(tmp_path: Path) -> None:
    with hybrid_world(tmp_path, blocks=32) as world:
        warmed(world, PROMPT)
    files, clock = FaultyFiles(), ManualClock()
    options = TieringOptions(fetch_deadline=0.1, reserve_blocks=0)
    with hybrid_world(tmp_path, blocks=32, files=files, options=options, clock=clock) as again:
        again.run(PROMPT)
        again.states.flush()  # the KV is there, and the state hangs
        files.hang_reads = True
        ask = again.it.tiers.ask(np.array(PROMPT, dtype=np.int32))
        assert ask is not None
        assert files.hanging.wait(60)
        until(lambda: ask.answer is not None)
        assert ask.waits
        clock.advance(0.1)
        until(lambda: not ask.waits)
        assert not again.states.kept
        files.release.set()
        again.it.settle()
        again.run(PROMPT)  # what came late is right, too


def test_states_that_are_evicted_faster_than_they_are_copied_do_not_pile_up(tmp_path: Path) -> None:
    options = TieringOptions(write_policy="write_back", reserve_blocks=0)
    with hybrid_world(tmp_path, blocks=256, kept=1, rows=64, options=options) as world:
        copying, go_on = Event(), Event()
        states = world.it.tiers.states
        assert states is not None
        reserve = states.rows.reserve

        def slow(headers: Sequence[BlockHeader]) -> Reservation:
            copying.set()
            go_on.wait(60)
            return reserve(headers)

        states.rows.reserve = slow  # type: ignore[method-assign]
        held: WeakSet[StateOnDevice] = WeakSet()
        leaves = world.it.tiers.state_leaves

        def noting(tokens: Tokens, scope: str, state: StateOnDevice) -> None:
            held.add(state)
            leaves(tokens, scope, state)

        world.it.tiers.state_leaves = noting  # type: ignore[method-assign]
        for number in range(30):
            world.run([*range(number * 100, number * 100 + 8), -1])
        assert copying.wait(60)
        assert len(held) <= 4
        go_on.set()
        world.it.settle()
        assert states.rows.stats().blocks
        assert not held
