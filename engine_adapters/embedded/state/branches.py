"""Prompts that begin alike and come at the same time: one computes the beginning, the others go on from its state."""

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass

from cache_core.tokens import common_prefix
from engine_adapters.embedded.sequence import Sequence

_MOST_BOUNDARIES = 4  # snapshots on the way through one prompt: each one ends a chunk of prefill


@dataclass(frozen=True, slots=True)
class Branches:
    """Makes whoever prefills take a snapshot where a waiting sequence branches off."""

    block_size: int

    def arrived(self, sequence: Sequence, running: Iterable[Sequence]) -> None:
        """A sequence joined the queue, between two steps."""
        for owner in running:
            self._branch(owner, sequence)

    def admitted(self, owner: Sequence, waiting: Iterable[Sequence]) -> None:
        """A sequence is about to prefill."""
        owner.follows = None
        for sequence in waiting:
            self._branch(owner, sequence)

    def waits(self, sequence: Sequence, reusable: int) -> bool:
        """Whether a snapshot is coming that lets it reuse more than the `reusable` tokens it can now."""
        if sequence.follows is None:
            return False
        owner, boundary = sequence.follows
        if owner.lease is not None and owner.computed < boundary and boundary > reusable:
            return True
        sequence.follows = None
        return False

    def _branch(self, owner: Sequence, sequence: Sequence) -> None:
        if owner.decoding or owner.request.scope != sequence.request.scope:
            return
        boundary = self._shared(owner, sequence)
        if boundary <= owner.computed:
            return
        if boundary not in owner.keep_at and len(owner.keep_at) < _MOST_BOUNDARIES:
            insort(owner.keep_at, boundary)
        reached = max((at for at in owner.keep_at if at <= boundary), default=0)
        if sequence.follows is None or not self.waits(sequence, 0) or reached > sequence.follows[1]:
            sequence.follows = (owner, reached)

    def _shared(self, owner: Sequence, sequence: Sequence) -> int:
        """Tokens in front that both have, in whole blocks that either may reuse."""
        ends = min(owner.prompt_length, sequence.length) - 1
        return common_prefix(owner.known[:ends], sequence.known[:ends]) // self.block_size * self.block_size
