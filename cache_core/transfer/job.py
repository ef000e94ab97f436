"""What a transfer does, cut into pieces that can be ordered, paid for and stopped between."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cache_core.metrics import TierName


class Pending(Protocol):
    """A piece that an accelerator works on."""

    def wait(self) -> None:
        """Return when its bytes have arrived; raise when they will not."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest step: once begun it is finished, so its size bounds how long a cancel waits."""

    nbytes: int
    run: Callable[[], Pending | None]  # on a link's thread; None: the bytes are there when it returns


class Job(ABC):
    """One batch of blocks that moves one way. Made with its source and destination pinned already."""

    source: TierName
    target: TierName
    pieces: Sequence[Piece]  # done in this order
    layer_ends: Sequence[int] = ()  # layer i is there once that many pieces are; empty: layers are not apart

    def piece_done(self, index: int) -> None:  # noqa: B027  most jobs need nothing here
        """The bytes of that piece are there. Called on a link's thread, in order."""

    def moved(self, index: int) -> int:
        """Bytes of that piece that really moved; asked after `piece_done`, in order."""
        return self.pieces[index].nbytes

    @abstractmethod
    def finish(self, done: bool) -> None:
        """Publish what arrived and let go of source and destination; nothing touches them any more.

        Called exactly once, whatever happened, by any thread. `done`: every piece is.
        """
