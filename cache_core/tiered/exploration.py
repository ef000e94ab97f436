"""When to load what seems to take longer than computing it: what is never loaded is never measured again."""

from collections import Counter
from collections.abc import Collection

from cache_core.metrics import TierName


class Exploration:
    """Keeps account of what was computed although a tier had it, since that tier was measured last.

    A load that was slow once, because the machine was busy or the store not awake, would else be believed to be slow
    for ever, and so would what was assumed at the start. A load is tried when what it is expected to lose is no more
    than `share` of what computing has cost since the last measurement. So trying costs at most that share of it as
    long as estimates are right, however slow the tier is: a slower one is tried less often. Little evidence is doubted
    sooner: of a tier that was measured or tried n times, 1 / n^2 may be lost where that is more. Not locked.
    """

    def __init__(self, share: float) -> None:
        """`share` of the seconds that computing took; 0: nothing is ever tried."""
        if not 0 <= share < float("inf"):
            raise ValueError(f"{share} of what computing took cannot be lost on trying to load")
        self._share = share
        self._computed: dict[TierName, float] = {}  # expected seconds
        self._evidence: Counter[TierName] = Counter()  # measurements and trials

    def tries(self, tiers: Collection[TierName], computing: float, loss: float) -> bool:
        """Whether to load from these tiers, although computing what they have takes `loss` seconds less.

        If not, it is computed, which takes `computing` seconds. Whatever comes of a trial, the next has to wait for as
        long again.
        """
        spent = sum(self._computed.get(tier, 0.0) for tier in tiers)
        if spent > 0 and loss <= self._share_of(tiers) * spent:
            for tier in tiers:
                self.measured(tier)
            return True
        for tier in tiers:
            self._computed[tier] = self._computed.get(tier, 0.0) + computing / len(tiers)
        return False

    def measured(self, tier: TierName) -> None:
        """Something came up from there, so that its estimate is of today."""
        self._computed.pop(tier, None)
        self._evidence[tier] += 1

    def _share_of(self, tiers: Collection[TierName]) -> float:
        least = max(min(self._evidence[tier] for tier in tiers), 1)
        return max(self._share, least**-2) if self._share else 0.0
