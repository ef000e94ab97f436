"""One state on its way up to the device."""

import logging
from collections.abc import Callable
from threading import Lock

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.state_groups import StateLanding
from cache_core.tiered.ways import Ways
from cache_core.tiers.host import HostTier
from cache_core.transfer import Priority, Transfer, TransferRefusedError
from cache_core.transfer.job import Job
from cache_core.transfer.state_jobs import StateToDevice
from cache_core.transfer.tier_jobs import TierToHost

log = logging.getLogger(__name__)

Ended = Callable[["StateFetch"], None]


class StateFetch:
    """From where it lies to the host, if it is not there, and from there to the device.

    Args:
        source: where it is now.
        landing: filled, then kept where everything went well.
        deadline: on the engine's clock, in seconds; after it nothing more is begun, and nobody waits any more.
        ended: called once, on whichever thread.
    """

    def __init__(
        self,
        header: BlockHeader,
        source: TierName,
        landing: StateLanding,
        deadline: float,
        ended: Ended,
    ) -> None:
        self.header = header
        self.source = source
        self.deadline = deadline
        self.arrived = False
        self.done = False  # with or without success
        self._landing = landing
        self._ended = ended
        self._lock = Lock()  # guards `done` and those below
        self._users = 0  # requests that wait for it
        self._transfer: Transfer | None = None

    @property
    def identity(self) -> bytes:
        """Of the scope it belongs to."""
        return self.header.identity

    def share(self) -> bool:
        """One more request waits for it; False: it is over."""
        with self._lock:
            self._users += not self.done
            return not self.done

    def leave(self) -> None:
        """A request that waited for it does not any more; without the last one it is given up."""
        with self._lock:
            self._users -= 1
            wanted = self._users > 0
        if not wanted:
            self.give_up()

    def start(self, ways: Ways, rows: HostTier, priority: Priority) -> None:
        """Begin; `rows` is the host memory for states."""
        if self.source == "host":
            self._load(ways, rows, priority)
            return
        tier = ways.colder[self.source]
        self._submit(
            ways,
            lambda: TierToHost(tier, self.source, rows, [self.header], left=lambda: self._loaded(False)),
            priority,
            lambda _: self._load(ways, rows, priority),
        )

    def give_up(self) -> bool:
        """Nobody waits for it any more; False: it is over already."""
        with self._lock:
            if self.done:
                return False
            self.done, transfer = True, self._transfer
        if transfer is not None:
            transfer.cancel(0.0)
        self._ended(self)
        return True

    def _load(self, ways: Ways, rows: HostTier, priority: Priority) -> None:
        jobs: list[StateToDevice] = []

        def job() -> Job:
            jobs.append(StateToDevice(rows, self.header, self._landing.write, ways.up))
            return jobs[0]

        self._submit(ways, job, priority, lambda transfer: self._loaded(transfer.done and jobs[0].there))

    def _submit(
        self, ways: Ways, job: Callable[[], Job], priority: Priority, ended: Callable[[Transfer], None]
    ) -> None:
        """Start a transfer; whatever goes wrong with that, the fetch ends."""
        if self.done:
            return
        try:
            transfer = ways.engine.submit(job(), priority, self.deadline)
        except TransferRefusedError:
            self._loaded(False)
            return
        except Exception:
            log.exception("a state could not be brought up")
            self._loaded(False)
            return
        with self._lock:
            self._transfer, given_up = transfer, self.done
        if given_up:
            transfer.cancel(0.0)
        transfer.when_ended(ended)

    def _loaded(self, whole: bool) -> None:
        if whole:  # late or not: it is there
            self._landing.keep()
            self.arrived = True
        with self._lock:
            if self.done:
                return
            self.done = True
        self._ended(self)
