"""What is remembered of a prompt's hashes is what hashing it anew gives, within a bound."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cache_core.block_hash import chain_hashes, root_hash
from cache_core.tiered.hash_memory import HashMemory
from cache_core.tokens import Tokens

BLOCK = 2
ROOTS = [root_hash(bytes([i]) * 32) for i in range(2)]
PROMPTS = st.lists(st.integers(0, 1), max_size=14).map(lambda ids: np.array(ids, dtype=np.int32))


def hashes(root: bytes, tokens: Tokens) -> list[bytes]:
    return chain_hashes(root, tokens, BLOCK)


@given(st.lists(st.tuples(st.sampled_from(ROOTS), PROMPTS, st.integers(0, 7)), max_size=30))
def test_only_right_hashes_are_remembered_and_no_more_than_allowed(
    asked: list[tuple[bytes, Tokens, int]],
) -> None:
    memory = HashMemory(BLOCK, most_blocks=12, most_prompts=3)
    for root, tokens, blocks in asked:
        known = memory.known(root, tokens)
        assert known == hashes(root, tokens)[: len(known)]
        memory.remember(root, tokens, hashes(root, tokens)[:blocks])
        held = list(memory._prompts.values())
        assert len(held) <= 3
        assert memory._blocks == sum(len(prompt.hashes) for prompt in held) <= 12
        assert sum(map(len, memory._alike.values())) == len(held)


def test_a_growing_conversation_is_one_prompt_and_only_its_end_is_new() -> None:
    memory = HashMemory(BLOCK)
    tokens = np.arange(40, dtype=np.int32)
    for length in (10, 20, 40):
        memory.remember(ROOTS[0], tokens[:length], hashes(ROOTS[0], tokens[:length]))
        assert len(memory._prompts) == 1
    assert len(memory.known(ROOTS[0], np.arange(60, dtype=np.int32))) == 20


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    memory = HashMemory(BLOCK, most_prompts=2)
    prompts = [np.full(4, i, dtype=np.int32) for i in range(3)]
    for prompt in prompts[:2]:
        memory.remember(ROOTS[0], prompt, hashes(ROOTS[0], prompt))
    assert memory.known(ROOTS[0], prompts[0])
    memory.remember(ROOTS[0], prompts[2], hashes(ROOTS[0], prompts[2]))
    assert memory.known(ROOTS[0], prompts[0])
    assert not memory.known(ROOTS[0], prompts[1])


def test_what_the_caller_adds_to_its_hashes_is_not_remembered() -> None:
    memory = HashMemory(BLOCK)
    tokens = np.arange(8, dtype=np.int32)
    memory.remember(ROOTS[0], tokens, hashes(ROOTS[0], tokens))
    memory.known(ROOTS[0], tokens).append(b"x")
    assert memory.known(ROOTS[0], tokens) == hashes(ROOTS[0], tokens)


def test_a_forgotten_root_leaves_nothing_and_others_stay() -> None:
    memory, tokens = HashMemory(BLOCK), np.arange(12, dtype=np.int32)
    for root in ROOTS:
        memory.remember(root, tokens, hashes(root, tokens))
        memory.remember(root, tokens[2:], hashes(root, tokens[2:]))
    memory.forget(ROOTS[0])
    assert memory.known(ROOTS[0], tokens) == []
    assert memory.known(ROOTS[1], tokens) == hashes(ROOTS[1], tokens)
    assert len(memory._prompts) == 2
    assert memory._blocks == 6 + 5
