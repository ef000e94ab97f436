"""The states of a hybrid model below the device: found, brought up, copied down and forgotten with their KV."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock

from cache_core.block_header import BlockHeader
from cache_core.metrics import TierName
from cache_core.state_groups import DeviceStates, StateGroup
from cache_core.tiered.backup_lanes import BackupLanes
from cache_core.tiered.fetches import Fetches
from cache_core.tiered.lookup import Inquiry
from cache_core.tiered.purges import Purges
from cache_core.tiered.state_backup import StateBackup
from cache_core.tiered.state_fetch import StateFetch
from cache_core.tiered.ways import Ways
from cache_core.tiers.base import Tier, TierStats
from cache_core.tiers.host import HostTier
from cache_core.tokens import Tokens
from cache_core.transfer import Priority

_ASKED_AT_ONCE = 512  # boundaries, from the deepest on


@dataclass(frozen=True, slots=True)
class StateOptions:
    """A state group of the model, as whoever runs it registers it."""

    rows: HostTier  # host memory for its rows alone; its `block_bytes` are one row's, as `device` fills them
    device: DeviceStates
    group: StateGroup = StateGroup.RECURRENT


class StateTiers:
    """Rows lie in a host memory of their own and, beside the blocks, in the colder tiers. Any thread may call."""

    def __init__(
        self,
        ways: Ways,
        options: StateOptions,
        purges: Purges,
        fetches: Fetches,
        lanes: BackupLanes,
    ) -> None:
        self.rows = options.rows
        self.device = options.device
        self.backup = StateBackup(ways, options.rows, purges, options.group, lanes)
        self._group = options.group
        self._ways = ways
        self._purges = purges
        self._under_way = fetches
        self._lock = Lock()
        self._fetches: dict[bytes, StateFetch] = {}  # by key
        self._came = self._failed = 0  # of those that are over

    @property
    def row_bytes(self) -> int:
        """Of one state."""
        return self.rows.block_bytes

    @property
    def idle(self) -> bool:
        """Whether no state moves."""
        return not self._fetches and self.backup.idle

    def deepest(self, headers: Sequence[BlockHeader], inquiry: Inquiry) -> tuple[int, TierName] | None:
        """Which of these blocks (in order) is the last one with a state behind it, and the warmest tier that has it."""
        if not self.rows.num_blocks:
            return None  # there is no way up
        for stop in range(len(headers), 0, -_ASKED_AT_ONCE):
            start = max(stop - _ASKED_AT_ONCE, 0)
            keys = [replace(header, group=self._group).key for header in headers[start:stop]]
            found = {name: tier.ask(keys, inquiry.patience) for name, tier in self._tiers().items()}
            last = max((int(there.nonzero()[0].max(initial=-1)) for there in found.values()), default=-1)
            if last >= 0:
                return start + last, next(name for name, there in found.items() if there[last])
            if not inquiry.goes_on():
                break
        return None

    def fetch(
        self, scope: str, tokens: Tokens, last: BlockHeader, source: TierName, deadline: float, number: int
    ) -> StateFetch | None:
        """Bring up the state behind `tokens`, whose last block is `last`; one that is on its way is waited for.

        Whoever asked counts as a user of it already. `number` is that of its scope's last purge, asked for before tiers
        were. None: there was one since.
        """
        header = replace(last, group=self._group)
        with self._lock:
            running = self._fetches.get(header.key)
            if running is not None and running.share():
                return running
            landing = self.device.landing(tokens, scope)
            fetch = StateFetch(header, source, landing, deadline, self._over)
            fetch.share()
            self._fetches[header.key] = fetch
            self._under_way.add(fetch)
        if self._purges.number(last.identity) != number:
            fetch.give_up()
            return None
        fetch.start(self._ways, self.rows, Priority.WAITING)
        return fetch

    def forget(self, scope: str, identity: bytes) -> int:
        """Drop a scope's rows on device and host. The colder tiers, told before, have them among its blocks."""
        return self.device.forget(scope) + self.rows.purge(identity)

    def stats(self) -> TierStats:
        """Of the host memory for states."""
        return self.rows.stats()

    def counters(self) -> dict[str, float]:
        """What that holds, and what became of states since the start."""
        rows = self.stats()
        return {
            "host_states": float(rows.blocks or 0),
            "host_state_bytes": float(rows.used_bytes or 0),
            "host_states_evicted": float(rows.evicted or 0),
            "states_copied_down": float(rows.stored),
            "states_brought_up": float(self._came),
            "states_lost_on_the_way_up": float(self._failed),
        }

    def close(self) -> None:
        """Let go of the host memory. Nothing may move any more."""
        self.rows.close()

    def _tiers(self) -> dict[TierName, Tier]:
        return {"host": self.rows, **self._ways.colder}

    def _over(self, fetch: StateFetch) -> None:
        with self._lock:
            if self._fetches.get(fetch.header.key) is fetch:
                del self._fetches[fetch.header.key]
            self._came += fetch.arrived
            self._failed += not fetch.arrived
        self._under_way.ended(fetch)
