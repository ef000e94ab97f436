"""Whether the shared state is there: what one call found out, all others know."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("kvgate.gateway")


@dataclass(frozen=True, slots=True)
class CircuitCounts:
    """So far."""

    away: bool
    outages: int  # times that it went away
    failed_calls: int  # that had no answer; those that were not even tried do not count
    away_s: float  # in all


class Circuit:
    """Opens at the first call without an answer, says so once, and asks from a thread of its own until it is back.

    Safe to use from any thread. `probe` is called on that thread: it returns when the server answers, and raises
    what `failures` names when not. Those who wait for `on_return` are called there too, and raise nothing.
    """

    def __init__(
        self,
        where: str,
        probe: Callable[[], object],
        failures: tuple[type[Exception], ...],
        probe_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = where
        self._probe = probe
        self._failures = failures
        self._probe_s = probe_s
        self._clock = clock
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._returned: list[Callable[[], None]] = []
        self._since = 0.0  # when it went away
        self._away_s = 0.0
        self._outages = self._failed = 0
        self.away = False

    def on_return(self, tell: Callable[[], None]) -> None:
        """Call `tell` each time the server is back."""
        self._returned.append(tell)

    def failed(self, error: BaseException) -> None:
        """A call had no answer."""
        with self._lock:
            self._failed += 1
            if self.away or self._ended.is_set():
                return
            self.away, self._since = True, self._clock()
            self._outages += 1
        fields = {"redis": self._where, "error": f"{type(error).__name__}: {error}"[:300]}
        log.warning(
            "THE SHARED STATE IS AWAY: this gateway goes on alone until it is back", extra={"fields": fields}
        )
        threading.Thread(target=self._wait, name="kvgate-redis", daemon=True).start()

    def counts(self) -> CircuitCounts:
        """So far; from any thread."""
        with self._lock:
            running = self._clock() - self._since if self.away else 0.0
            return CircuitCounts(self.away, self._outages, self._failed, self._away_s + running)

    def close(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _wait(self) -> None:
        while not self._ended.wait(self._probe_s):
            try:
                self._probe()
            except self._failures:
                continue
            except Exception:
                if self._ended.is_set():
                    return  # its connection was closed under it
                raise
            self._back()
            return

    def _back(self) -> None:
        with self._lock:
            lasted = self._clock() - self._since
            self._away_s += lasted
            self.away = False
        fields = {"redis": self._where, "seconds": round(lasted, 2)}
        log.warning("the shared state is back", extra={"fields": fields})
        for tell in self._returned:
            tell()
