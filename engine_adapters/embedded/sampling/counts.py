"""Which tokens a sequence has used and how often, kept ready to become index tensors."""

import numpy as np
from numpy.typing import NDArray


class TokenCounts:
    """How often each token was generated, over the distinct tokens seen so far.

    `ids` and `counts` are views of growing buffers: one step costs O(1), and nothing is ever as long as the
    vocabulary. A prompt token that was not generated has count 0.
    """

    __slots__ = ("_counts", "_ids", "_slot")

    def __init__(self, prompt_ids: NDArray[np.int32] | None) -> None:
        """`prompt_ids`, shape [prompt tokens]: tokens that are seen before the first one is generated."""
        seen = np.unique(prompt_ids) if prompt_ids is not None else np.empty(0, np.int32)
        room = len(seen) + 64
        self._ids = np.zeros(room, np.int64)
        self._counts = np.zeros(room, np.float32)
        self._ids[: len(seen)] = seen
        self._slot = {token_id: slot for slot, token_id in enumerate(seen.tolist())}

    @property
    def ids(self) -> NDArray[np.int64]:
        """Distinct token ids, shape [seen]."""
        return self._ids[: len(self._slot)]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each of `ids` was generated, shape [seen]."""
        return self._counts[: len(self._slot)]

    def add(self, token_id: int) -> None:
        """Count one generated token."""
        slot = self._slot.setdefault(token_id, len(self._slot))
        if slot == len(self._ids):
            self._grow()
        self._ids[slot] = token_id
        self._counts[slot] += 1

    def _grow(self) -> None:
        self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
        self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
