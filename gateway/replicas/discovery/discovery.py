"""The contract of discovery."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from gateway.replicas.address import ReplicaAddress


class Discovery(Protocol):
    """Says which replicas there are, and again when that has changed."""

    failing: bool  # True: what it said last may not be so any more

    def watch(self) -> AsyncGenerator[Sequence[ReplicaAddress], None]:
        """Every list that differs from the one before, until cancelled.

        Never raises: while the source cannot be asked, nobody has gone; why is logged once.
        """
