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


class Leavable(ABC):
    """A piece that a thread of its own works on. After its time a link goes on without it."""

    began: float  # by the clock
    limit: float  # seconds it may take, where nobody who waits for it has less
    error: Exception | None  # why it failed; known when it is over

    @abstractmethod
    def wait(self, until: float) -> bool:
        """Wait for its end; False: it is still at work at that moment of the clock."""

    @abstractmethod
    def leave(self, then: Callable[[], None]) -> None:
        """Nobody waits for it any more. `then` is called once, when it is over, on whichever thread."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest step: once begun it is finished, so its size bounds how long a cancel waits."""

    nbytes: int
    # On a link's thread; None: the bytes are there when it returns.
    run: Callable[[], Pending | Leavable | None]


class Job(ABC):
    """One batch of blocks that moves one way. Made with its source and destination pinned already."""

    source: TierName
    target: TierName
    pieces: Sequence[Piece]  # done in this order
    layer_ends: Sequence[int] = ()  # layer i is there once that many pieces are; empty: layers are not apart

    def piece_done(self, index: int) -> None:  # noqa: B027  most jobs need nothing here
        """The bytes of that piece are there. Called on a link's thread, in order."""

    def piece_left(self) -> None:  # noqa: B027  as above
        """A piece hangs, and the link goes on without it: until its end bytes may be read and written."""

    def moved(self, index: int) -> int:
        """Bytes of that piece that really moved; asked after `piece_done`, in order."""
        return self.pieces[index].nbytes

    @abstractmethod
    def finish(self, done: bool) -> None:
        """Publish what arrived and let go of source and destination; nothing touches them any more.

        Called exactly once, whatever happened, by any thread. `done`: every piece is.
        """
