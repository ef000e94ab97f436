"""What kvgate is compared with does the work it is said to do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import match
from bench.peers.transformers_peer import TransformersPeer
from bench.prompts import PromptMaker


@pytest.fixture
def peer(tiny_model: Callable[[str], Path]) -> TransformersPeer:
    return TransformersPeer(tiny_model("llama"))


def test_transformers_goes_on_from_the_cache_that_was_filled(peer: TransformersPeer) -> None:
    prefix = np.arange(3, 103, dtype=np.int32)
    peer.fill(prefix)
    assert peer._cache().get_seq_length() == 100
    assert peer.continue_with(prefix[:15]) > 0
    assert peer.decode_rate(4) > 0
    assert peer._cache().get_seq_length() == 100, "what was measured is taken back"
    np.testing.assert_array_equal(peer._prefix, prefix)


def test_a_question_shares_the_whole_prefix_and_no_question_comes_twice() -> None:
    prompts = PromptMaker(vocab_size=49_152, seed=1)
    prefix = prompts.tokens(64)
    one, other = prompts.question(prefix), prompts.question(prefix)
    np.testing.assert_array_equal(one[:64], prefix)
    assert len(one) == 64 + 15
    assert (one[64:] != other[64:]).any()


def test_the_match_is_measured_on_a_prompt_that_is_wholly_cached() -> None:
    figures = match.run(tokens=1000, rounds=1)
    assert figures.tokens == 1000
    assert figures.ratio > 0
