"""Digests are those of hashing everything, whatever was seen before."""

from threading import Thread

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.chain import CHUNK, chunk_digests, root_of
from gateway.routing.known_runs import RUN, KnownRuns
from gateway.routing.prefix_router import PrefixRouter
from tests.gateway.routing.prompts import ask, choose, tokens

ROOT = root_of(b"seed")


def data(*parts: tuple[int, int]) -> memoryview:
    return tokens(*parts).data.cast("B")


def prompt(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, count, dtype=np.int32)


part = st.tuples(st.integers(0, 2), st.sampled_from([1, CHUNK - 1, CHUNK, RUN - 1, RUN, RUN + 1, 2 * RUN]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(part, min_size=1, max_size=4), min_size=1, max_size=6), st.integers(1, 4))
def test_whatever_came_before_the_digests_are_those_of_all_tokens(prompts: list, room: int) -> None:
    runs = KnownRuns(room * RUN * 4)
    for number, parts in enumerate(prompts):
        given_ = data(*parts)
        root = root_of(bytes([number % 2]))
        assert runs.digests(root, given_) == chunk_digests(root, given_)
        assert len(runs) <= room


def test_one_other_token_anywhere_is_another_prompt_from_there_on() -> None:
    runs, known = KnownRuns(), prompt(2 * RUN + 3 * CHUNK)
    before = runs.digests(ROOT, known.data.cast("B"))
    for place in (0, RUN // 2, RUN - 17, RUN - 1, RUN, 2 * RUN - 1, 2 * RUN, len(known) - 1):
        other = known.copy()
        other[place] += 1
        found = runs.digests(ROOT, other.data.cast("B"))
        same = place // CHUNK
        assert found[:same] == before[:same]
        assert all(a != b for a, b in zip(found[same:], before[same:], strict=True))


def test_what_is_known_is_found_again_and_goes_on_under_new_ends() -> None:
    runs, known = KnownRuns(), prompt(2 * RUN)
    runs.digests(ROOT, known.data.cast("B"))
    assert len(runs) == 2
    longer = np.concatenate([known, prompt(RUN, 1)])
    runs.digests(ROOT, longer.data.cast("B"))
    assert len(runs) == 3


def test_nothing_is_known_under_another_seed() -> None:
    runs, given_ = KnownRuns(), prompt(RUN).data.cast("B")
    first = runs.digests(root_of(b"a"), given_)
    second = runs.digests(root_of(b"b"), given_)
    assert not set(first) & set(second)
    assert len(runs) == 2


def test_the_one_that_was_not_used_for_longest_goes_first() -> None:
    runs = KnownRuns(2 * RUN * 4)
    a, b, c = (prompt(RUN, seed).data.cast("B") for seed in range(3))
    for each in (a, b, a, c):
        runs.digests(ROOT, each)
    kept = {run for run, _ in runs._runs.values()}
    assert kept == {bytes(a), bytes(c)}


def test_short_prompts_are_not_kept() -> None:
    runs = KnownRuns()
    assert len(runs.digests(ROOT, prompt(RUN - 1).data.cast("B"))) == RUN // CHUNK - 1
    assert len(runs) == 0


def test_several_threads_may_hash_at_once() -> None:
    runs = KnownRuns(2 * RUN * 4)
    prompts = [prompt(3 * RUN, seed).data.cast("B") for seed in range(4)]
    wrong: list[int] = []

    def hash_all() -> None:
        for number in range(40):
            each = prompts[number % len(prompts)]
            if runs.digests(ROOT, each) != chunk_digests(ROOT, each):
                wrong.append(number)

    threads = [Thread(target=hash_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_router_keeps_runs_of_prompts_until_it_is_told_to_forget_them() -> None:
    router, ids = PrefixRouter(), prompt(2 * RUN)
    for _ in range(2):
        router.ended(choose(router, ask(ids), ["a", "b"]), None)
    assert router.forget_prompts() == 2
    assert router.forget_prompts() == 0
