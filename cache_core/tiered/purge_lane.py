"""What one tier has to forget, on threads of its own, since it may hang."""

import logging
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Generic, TypeVar

log = logging.getLogger(__name__)

MOST_WAITING = 1024  # purges that one tier has not ended; of more, whoever purges is told that they failed

Asked = TypeVar("Asked")


class PurgeLane(Generic[Asked]):
    """First notes what is to be erased, so that a crash does not undo it, and then erases it, one scope at a time.

    Each on a thread of its own: what is asked for while a purge hangs is noted all the same. Purges of one scope that
    wait are done together.

    Args:
        note: as `Tier.note_purge`.
        erase: called with a scope's identity and the purges that asked for it; must not raise.
    """

    def __init__(
        self,
        name: str,
        note: Callable[[bytes], None],
        erase: Callable[[bytes, Sequence[Asked]], None],
    ) -> None:
        self._note = note
        self._erase = erase
        self._changed = Condition()  # guards what follows
        self._new: dict[bytes, list[Asked]] = {}  # by identity, in the order they came
        self._noted: dict[bytes, list[Asked]] = {}
        self._waiting = 0  # purges that are in one of them, or being noted or done
        self._closed = False
        self._all_noted = False
        self._threads = [
            Thread(target=work, name=f"kvgate {name} {what}", daemon=True)
            for work, what in ((self._run_notes, "purge notes"), (self._run_purges, "purges"))
        ]
        for thread in self._threads:
            thread.start()

    def put(self, identity: bytes, purge: Asked) -> bool:
        """Queue one; False: too many wait already."""
        with self._changed:
            if self._waiting >= MOST_WAITING:
                return False
            self._waiting += 1
            self._new.setdefault(identity, []).append(purge)
            self._changed.notify_all()
            return True

    def close(self, timeout: float) -> None:
        """End the threads when all is done, if that is within so many seconds each."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout)

    def _run_notes(self) -> None:
        while (entry := self._next(self._new, lambda: self._closed)) is not None:
            identity, purges = entry
            try:
                self._note(identity)
            except Exception:
                log.exception("a purge could not be noted; a crash before its end would undo it")
            with self._changed:
                self._noted.setdefault(identity, []).extend(purges)
                self._changed.notify_all()
        with self._changed:
            self._all_noted = True
            self._changed.notify_all()

    def _run_purges(self) -> None:
        while (entry := self._next(self._noted, lambda: self._all_noted)) is not None:
            self._erase(*entry)
            with self._changed:
                self._waiting -= len(entry[1])

    def _next(
        self, queue: dict[bytes, list[Asked]], over: Callable[[], bool]
    ) -> tuple[bytes, list[Asked]] | None:
        """Of what waits in `queue` that which came first, removed; None: it is `over`, and nothing is left."""
        with self._changed:
            while not queue:
                if over():
                    return None
                self._changed.wait()
            identity = next(iter(queue))
            return identity, queue.pop(identity)
