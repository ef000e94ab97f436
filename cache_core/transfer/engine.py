"""All links of one cache. Decides nothing about what moves; only when."""

from collections.abc import Mapping

from cache_core.metrics import CacheObserver, NullObserver, TierName
from cache_core.transfer.clock import Clock, SystemClock
from cache_core.transfer.job import Job
from cache_core.transfer.link import Link, LinkConfig
from cache_core.transfer.transfer import Priority, Transfer

Way = tuple[TierName, TierName]  # from, to

WAYS: tuple[Way, ...] = (
    ("host", "device"),
    ("device", "host"),
    ("disk", "host"),
    ("host", "disk"),
    ("store", "host"),
    ("host", "store"),
)


class TransferEngine:
    """One link for each way bytes go, each with its own queue, budget and threads.

    Ways not named in `links` get a `LinkConfig()`. Deadlines are moments of `clock`.
    """

    def __init__(
        self,
        links: Mapping[Way, LinkConfig] | None = None,
        clock: Clock | None = None,
        observer: CacheObserver | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        configured = dict.fromkeys(WAYS, LinkConfig()) | dict(links or {})
        self._links = {
            way: Link(f"{way[0]} to {way[1]}", config, self.clock, observer or NullObserver())
            for way, config in configured.items()
        }

    def submit(
        self, job: Job, priority: Priority = Priority.WAITING, deadline: float | None = None
    ) -> Transfer:
        """Start moving. The job is finished exactly once, even when this raises.

        Raises:
            TransferRefusedError: the link is closed, or full of work that is no less urgent.
        """
        return self._links[job.source, job.target].submit(job, priority, deadline)

    def queued_bytes(
        self, source: TierName, target: TierName, priority: Priority = Priority.WRITE_BACK
    ) -> int:
        """Bytes still to move on that way that are at least so urgent; what a new transfer waits for."""
        return self._links[source, target].queued_bytes(priority)

    @property
    def idle(self) -> bool:
        """Whether no transfer is under way, and nothing that is done behind one."""
        return all(link.idle for link in self._links.values())

    def close(self, timeout: float | None = None) -> bool:
        """Cancel everything; False: some piece was still at work after that many seconds for each link."""
        ended = [link.close(timeout) for link in self._links.values()]
        return all(ended)
