"""Where blocks can be, and what moves them."""

from collections.abc import Mapping
from dataclasses import dataclass

from cache_core.device_tier import DeviceTier
from cache_core.metrics import TierName
from cache_core.tiers.base import Tier
from cache_core.tiers.host import HostTier
from cache_core.transfer import Priority, TransferEngine
from cache_core.transfer.copy_lane import CopyLane


@dataclass(frozen=True, slots=True)
class Ways:
    """All tiers of one cache, with the engine that moves blocks between them."""

    device: DeviceTier
    host: HostTier
    colder: Mapping[TierName, Tier]  # below the host, in the order they are asked
    engine: TransferEngine
    up: CopyLane
    down: CopyLane

    def ahead(self, priority: Priority) -> dict[TierName, int]:
        """Bytes on the way up from each tier (from the host to the device) that go before a new transfer's."""
        waiting = {name: self.engine.queued_bytes(name, "host", priority) for name in self.colder}
        return {"host": self.engine.queued_bytes("host", "device", priority), **waiting}
