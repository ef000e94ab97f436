"""The prefix match of a very long prompt against one memory compare of a megabyte, in one run."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.measure import alternate, seconds
from cache_core import BlockPool, PrefixCache

COMPARED_BYTES = 1_000_000
_CALLS = 20  # per figure: one call takes tens of microseconds


@dataclass(frozen=True, slots=True)
class MatchFigures:
    """Medians of alternating runs, in seconds for one call."""

    tokens: int
    block_size: int
    match: float
    compare: float

    @property
    def ratio(self) -> float:
        """How many compares one match costs."""
        return self.match / self.compare


def run(tokens: int = 250_000, block_size: int = 16, rounds: int = 30) -> MatchFigures:
    """Match a wholly cached prompt of `tokens` random ids (seed 0), and compare two equal megabytes."""
    prompt = np.random.default_rng(0).integers(0, 150_000, tokens, dtype=np.int32)
    cache = _holding(prompt, block_size)
    asked = prompt.copy()  # other memory than what the index was built from
    left = bytes(COMPARED_BYTES)
    right = bytes(bytearray(left))
    if cache.match(asked) != tokens // block_size * block_size:
        raise RuntimeError("the prompt is not wholly cached")
    figures = alternate(
        {
            "match": lambda: _each(lambda: cache.match(asked)),
            "compare": lambda: _each(lambda: left == right),
        },
        rounds,
        lambda _: None,
    )
    return MatchFigures(tokens, block_size, figures["match"], figures["compare"])


def _holding(prompt: "np.ndarray[tuple[int], np.dtype[np.int32]]", block_size: int) -> PrefixCache:
    """A cache where this prompt came in as an engine computes it: in chunks."""
    cache = PrefixCache(BlockPool(len(prompt) // block_size + 1, block_size))
    lease = cache.acquire(prompt)
    for start in range(0, len(prompt), 2048):
        lease.extend(prompt[start : start + 2048])
        lease.commit()
    lease.release()
    return cache


def _each(call: Callable[[], object]) -> float:
    def repeat() -> None:
        for _ in range(_CALLS):
            call()

    return seconds(repeat) / _CALLS
