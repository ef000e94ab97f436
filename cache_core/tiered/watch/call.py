"""One call of a tier, on a thread that whoever made it can leave alone with it."""

from collections.abc import Callable
from threading import Condition
from typing import Generic, TypeVar

from cache_core.tiers.base import CallKind
from cache_core.transfer.clock import Clock
from cache_core.transfer.job import Leavable

T = TypeVar("T")


class Call(Leavable, Generic[T]):
    """Made by `Calls.begin`.

    Args:
        work: what is called; done by `run`.
        blocks: of which it moves the bytes; 0: it is a question.
        left: told when it is left alone before it is over.
    """

    def __init__(
        self,
        kind: CallKind,
        work: Callable[[], T],
        limit: float,
        blocks: int,
        clock: Clock,
        left: "Callable[[Call[T]], None]",
    ) -> None:
        self.kind: CallKind = kind
        self.began = clock.now()
        self.limit = limit
        self.blocks = blocks
        self.error: Exception | None = None
        self.over = False
        self.returned = False  # of the threads that made it; under their lock
        self._work: Callable[[], T] | None = work
        self._clock = clock
        self._left = left
        self._changed = Condition()  # guards `over` and what follows
        self._result: T | None = None
        self._then: Callable[[], None] | None = None

    def run(self) -> None:
        """Do it, on the thread that is its own."""
        work, self._work = self._work, None
        assert work is not None, "a call is made once"
        try:
            self._result = work()
        except Exception as error:  # noqa: BLE001  whoever waits for it raises it
            self.error = error
        del work  # it holds what it was called with

    def end(self) -> None:
        """What is waited for is there."""
        with self._changed:
            self.over = True
            then, self._then = self._then, None
            self._changed.notify_all()
        if then is not None:
            then()

    def wait(self, until: float) -> bool:
        with self._changed:
            while not self.over:
                left = until - self._clock.now()
                if left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    def leave(self, then: Callable[[], None] = lambda: None) -> None:
        self._left(self)
        with self._changed:
            if not self.over:
                self._then = then
                return
        then()

    def result(self) -> T:
        """What came of it, once it is over; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]
