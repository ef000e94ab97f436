"""What tiers below the device had of a prompt when they were asked."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from cache_core.metrics import TierName


@dataclass(frozen=True, slots=True)
class SeenBelow:
    """Leading blocks that the device lacked. Nothing is promised: blocks come and go."""

    first: int  # block of the prompt, from which on tiers were asked
    sources: tuple[TierName, ...]  # the warmest tier of each block from there on
    # blocks that each tier, were it bigger, would still have had
    ghosts: Mapping[TierName, int] = field(default_factory=dict)

    def matched(self, start: int, end: int, block_size: int) -> Counter[TierName]:
        """Tokens by the tier that had them, of the prompt's tokens `start` .. `end`."""
        skipped = max(start // block_size - self.first, 0)
        last = max(end // block_size - self.first, 0)
        found = Counter(self.sources[skipped:last])
        return Counter({tier: blocks * block_size for tier, blocks in found.items()})
