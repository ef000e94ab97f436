"""How long rows stay. A clock that jumps deletes nothing."""

import logging
import re
import time
from collections.abc import Callable, Iterator

from gateway.ledger.database import Database
from gateway.ledger.errors import LedgerConfigError

log = logging.getLogger("kvgate.ledger")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_JUMP_S = 3600.0  # by which the two clocks may part: more than any correction, less than matters to retention


def seconds(text: str) -> float:
    """`30d`, `12h`, `90m`, `45s` or `2w` in seconds; raises LedgerConfigError for anything else."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", text.strip())
    if found is None:
        raise LedgerConfigError(f"{text!r:.40} is no span of time: write 30d, 12h, 90m, 45s or 2w")
    return float(found[1]) * _UNITS[found[2]]


class Retention:
    """Deletes rows older than `keep_s`, once in `every_s`.

    Args:
        keep_s: seconds since a row's arrival.
        every_s: seconds between two looks.
        wall, steady: clocks; the second one never jumps. Where they have parted since the start, the wall clock
            was set, and nobody can say what is old until the process is started again.
    """

    def __init__(
        self,
        keep_s: float,
        every_s: float = 3600.0,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keep_s = keep_s
        self._every_s = every_s
        self._wall, self._steady = wall, steady
        self._apart = wall() - steady()
        self._next = steady()
        self._told = False

    def due(self, database: Database) -> Iterator[int]:
        """Prune if it is time; yields how many rows went each time."""
        if self._steady() < self._next:
            return
        self._next = self._steady() + self._every_s
        now = self._wall()
        if abs(now - self._steady() - self._apart) > _JUMP_S:
            self._tell()
            return
        yield from database.prune(now - self._keep_s)

    def _tell(self) -> None:
        if not self._told:
            log.error("the clock was set by more than an hour; old rows of the ledger stay until a restart")
        self._told = True
