"""What computing costs, as measured: a fixed part of every step, and more for each token, the deeper it is."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Chunk = tuple[int, int]  # (tokens of the prompt before it, its tokens)
Seconds = NDArray[np.float64]

_DECAY = 0.9  # what is left of a measurement's weight
_FULL = 512  # once that many tokens were measured after it
# Where chunks do not differ enough in size or depth to tell, time is put down to tokens as such.
_DOUBT = np.array([1e-3, 0.0, 1e-4])
_EVERY = [list(each) for size in (1, 2, 3) for each in combinations(range(3), size)]


class PrefillEstimator:
    """Seconds to prefill a token, growing with its depth in the prompt, since attention looks at all before it.

    A step takes `fixed + sum over its tokens of (token + attention x depth)`, none of them negative: the least squares
    fit to the steps seen, newer ones counting more. The fixed part is apart, so that the ends of warm prompts, a few
    deep tokens a step, make no token look dear; whoever recomputes a block pays its tokens alone, as there is a step
    in any case. A measurement counts and ages by its tokens, so that a thousand such ends do not outvote a long
    prompt. Not locked.
    """

    def __init__(self, token_seconds: float, per_depth: float = 0.0) -> None:
        """Seconds of a token, and more for each token before it, that are assumed until something was measured."""
        self._parts = np.array([0.0, token_seconds, per_depth])
        self._squares = np.zeros((3, 3))
        self._products = np.zeros(3)
        self._stale = False  # measured since it was fitted

    def observe(self, chunks: Sequence[Chunk], seconds: float) -> None:
        """One step prefilled these chunks; anything but finite seconds >= 0 is ignored."""
        tokens = sum(each for _, each in chunks)
        if tokens <= 0 or not (np.isfinite(seconds) and seconds >= 0):
            return
        depths = sum(each * (start + (each + 1) / 2) for start, each in chunks)
        step = np.array([1.0, tokens, depths])
        keep = _DECAY ** (tokens / _FULL)
        self._squares = keep * self._squares + np.outer(step, step) / tokens
        self._products = keep * self._products + step * (seconds / tokens)
        self._stale = True

    @property
    def token(self) -> tuple[float, float]:
        """Seconds of one token without those before it, and more for each of those."""
        _, token, attention = self._fitted().tolist()
        return token, attention

    def block_seconds(self, start: int, blocks: int, block_size: int) -> Seconds:
        """Expected seconds for each of these blocks, the first of which begins at token `start`."""
        token, attention = self.token
        middles = start + block_size * np.arange(blocks, dtype=np.float64) + (block_size + 1) / 2
        return (token + attention * middles) * block_size

    def _fitted(self) -> Seconds:
        if self._stale:
            self._parts = _least_squares(self._squares, self._products)
            self._stale = False
        return self._parts


def _least_squares(squares: Seconds, products: Seconds) -> Seconds:
    """The parts, none of them negative, that fit best: of three, every choice of those above 0 can be tried."""
    scale = np.sqrt(np.diag(squares))
    normal, wanted = squares / np.outer(scale, scale) + np.diag(_DOUBT), products / scale
    best, least = np.zeros(3), 0.0
    for chosen in _EVERY:
        parts = np.linalg.lstsq(normal[np.ix_(chosen, chosen)], wanted[chosen], rcond=None)[0]
        error = -float(parts @ wanted[chosen])
        if (parts >= 0).all() and error < least:
            best, least = np.zeros(3), error
            best[chosen] = parts
    fitted: Seconds = best / scale
    return fitted
