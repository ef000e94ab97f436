"""Random numbers as a pure function of (seed, choice, step), so that no batch can disturb a sequence."""

import os
from hashlib import blake2b

_BITS = 53  # what a float64 holds exactly


class UniformStream:
    """One reproducible stream of uniforms in [0, 1), addressed by step.

    Nothing advances: `at(step)` is the same before and after a preemption, alone and in any batch, and on
    every platform. Different choices of one seed are independent streams.
    """

    __slots__ = ("_key",)

    def __init__(self, seed: int | None, choice: int) -> None:
        """`seed` may be any integer; None takes 128 bits from the operating system."""
        name = str(seed) if seed is not None else os.urandom(16).hex()
        self._key = blake2b(f"{name}/{choice}".encode(), digest_size=32).digest()

    def at(self, step: int) -> float:
        """The uniform that belongs to generated token number `step` (0 for the first)."""
        digest = blake2b(step.to_bytes(8, "little"), key=self._key, digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> (64 - _BITS)) / (1 << _BITS)
