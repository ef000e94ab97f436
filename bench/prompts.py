"""Prompts of an exact number of tokens that no earlier run has cached."""

import numpy as np
from numpy.typing import NDArray

FIRST_WORD = 1000  # ids below are special or rare in every vocabulary we measure with
QUESTION_TOKENS = 15


class PromptMaker:
    """Random token ids: their KV costs what any text's costs, and two prompts never share a block by chance."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        self._vocab_size = vocab_size
        self._random = np.random.default_rng(seed)

    def tokens(self, count: int) -> NDArray[np.int32]:
        """`count` new tokens."""
        return self._random.integers(FIRST_WORD, self._vocab_size - 1, count, dtype=np.int32)

    def question(self, prefix: NDArray[np.int32]) -> NDArray[np.int32]:
        """`prefix` and a new question behind it."""
        return np.concatenate([prefix, self.tokens(QUESTION_TOKENS)])


WORDS = [
    "the",
    "gateway",
    "keeps",
    "every",
    "block",
    "of",
    "a",
    "long",
    "prompt",
    "where",
    "the",
    "next",
    "request",
    "finds",
    "it",
    "and",
    "says",
    "how",
    "many",
    "tokens",
    "were",
    "computed",
    "again",
    "because",
    "a",
    "clock",
    "a",
    "header",
    "or",
    "a",
    "single",
    "newline",
    "moved",
    "between",
    "two",
    "calls",
    "of",
    "one",
    "agent",
]


def long_text(words: int, seed: int) -> str:
    """English-like text of that many words, about 1.1 tokens each; another seed differs from the first word on."""
    picks = np.random.default_rng(seed).integers(0, len(WORDS), words)
    return f"Manual number {seed}. " + " ".join(WORDS[i] for i in picks)
