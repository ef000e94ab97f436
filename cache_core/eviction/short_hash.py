"""Short names of blocks, for what is remembered of prefixes that are not cached."""

import numpy as np

from cache_core.tokens import Tokens

KEY_BYTES = 8


class ShortHash:
    """Multilinear hash of the tokens of each block, mod 2**64, with odd random factors.

    Two different blocks collide with probability 2**-32 at most, whoever chose their tokens, and then only
    what is remembered of them is mixed up. A key says nothing about the blocks before it.
    """

    def __init__(self, block_size: int, seed: int | None = None) -> None:
        self._block_size = block_size
        factors = np.random.default_rng(seed).integers(0, 2**63, block_size, dtype=np.uint64)
        self.factors = factors * np.uint64(2) + np.uint64(1)

    def __call__(self, tokens: Tokens) -> bytes:
        """8 bytes for every whole block of `tokens`."""
        blocks = tokens.reshape(-1, self._block_size).astype(np.uint64)
        keys: bytes = np.einsum("ij,j->i", blocks, self.factors).tobytes()
        return keys
