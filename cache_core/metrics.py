"""What the cache tells whoever watches it: one interface, and an implementation that remembers."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal, TypeAlias

from cache_core.drop_reason import DropReason
from cache_core.histogram import Histogram, HistogramSnapshot

TierName: TypeAlias = Literal["device", "host", "disk", "store"]
Outcome: TypeAlias = Literal["done", "failed", "cancelled", "expired", "refused"]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """One request's prefix, once it is known what was really reused."""

    prompt: int  # tokens
    matched: Mapping[TierName, int]  # tokens, by the warmest tier that had them
    reused: Mapping[TierName, int]  # tokens whose prefill was skipped; the rest of the prompt was recomputed

    @property
    def recomputed(self) -> int:
        """Prompt tokens that were prefilled."""
        return self.prompt - sum(self.reused.values())

    @property
    def passed_over(self) -> Mapping[TierName, int]:
        """Tokens that were recomputed though a tier had them, by that tier: sooner done, or loading failed."""
        over = {tier: tokens - self.reused.get(tier, 0) for tier, tokens in self.matched.items()}
        return {tier: tokens for tier, tokens in over.items() if tokens > 0}


@dataclass(frozen=True, slots=True)
class Moved:
    """One transfer that came to an end. Seconds are None where that phase was never reached."""

    link: str
    source: TierName
    target: TierName
    priority: str
    outcome: Outcome
    moved_bytes: int  # really moved, even if the outcome is not "done"
    queued: float | None  # seconds from its submission to its first byte
    seconds: float | None  # from its first byte to its end


@dataclass(frozen=True, slots=True)
class Decided:
    """One load-or-recompute decision, in blocks and expected seconds."""

    loaded: Mapping[TierName, int]
    recomputed: int
    expected: float
    best_pure: float  # the better one of loading all and recomputing all
    tried: bool = False  # loading was expected to take longer: to measure it again


class CacheObserver:
    """Is told what happens, from any thread and often under a lock: be quick, raise nothing, call nothing back.

    This one watches nothing: override what is wanted.
    """

    def looked_up(self, event: LookedUp) -> None:
        """A request's prefix was looked up and used."""

    def moved(self, event: Moved) -> None:
        """A transfer ended."""

    def dropped(self, tier: TierName, reason: DropReason, blocks: int = 1) -> None:
        """Blocks were not stored, or not served."""

    def coded(self, tier: TierName, outcome: str, blocks: int = 1) -> None:
        """Blocks were to be stored with a loss: "quantized" within its bound, else "kept_exact"."""

    def evicted(self, tier: TierName, policy: str, blocks: int, age: float) -> None:
        """Blocks left a tier to make room, `age` seconds after their last use."""

    def ghost_hit(self, tier: TierName, tokens: int) -> None:
        """Tokens were asked for that this tier, had it been bigger, would still have had."""

    def decided(self, event: Decided) -> None:
        """How much of a hit is loaded, how much recomputed."""

    def regretted(self, seconds: float) -> None:
        """A decision cost that much more than the best alternative was expected to; 0 when it did not."""

    def late(self, tier: TierName, kind: str) -> None:
        """A call of a tier, a "read" or a "write", did not return in time and is left alone."""

    def away(self, tier: TierName, kind: str, away: bool) -> None:
        """So many did not return that no more are made, or some returned since."""

    def compacted(self, tier: TierName, blocks: int) -> None:
        """Blocks were moved within a tier, so that they lie together."""

    def fragmentation(self, tier: TierName, share: float) -> None:
        """BlockPool.fragmentation of a tier, as last seen; of the disk the share of dead bytes in its segments."""


class NullObserver(CacheObserver):
    """Watches nothing."""


@dataclass(frozen=True, slots=True)
class CacheRecord:
    """Everything a RecordingObserver has been told. Histograms are in seconds."""

    lookups: int
    hits: int  # lookups that reused at least one token
    prompt_tokens: int
    matched_tokens: Mapping[TierName, int]
    reused_tokens: Mapping[TierName, int]
    recomputed_tokens: int
    tier_hits: Mapping[TierName, int]  # lookups that reused at least one token of a tier
    passed_over_tokens: Mapping[TierName, int]  # of the recomputed ones, see LookedUp.passed_over
    moved_bytes: Mapping[tuple[TierName, TierName], int]  # by (source, target)
    transfers: Mapping[tuple[str, str, Outcome], int]  # by (link, priority, outcome)
    queued: Mapping[tuple[str, str], HistogramSnapshot]  # by (link, priority)
    seconds: Mapping[tuple[TierName, TierName], HistogramSnapshot]  # of done transfers, by (source, target)
    drops: Mapping[tuple[TierName, DropReason], int]  # blocks
    coded: Mapping[tuple[TierName, str], int]  # blocks, see CacheObserver.coded
    evictions: Mapping[tuple[TierName, str], int]  # blocks, by (tier, policy)
    eviction_age: Mapping[tuple[TierName, str], HistogramSnapshot]
    ghost_tokens: Mapping[TierName, int]
    decisions: int
    tried: int  # of them, loads that were expected to take longer
    decided_load: Mapping[TierName, int]  # blocks
    decided_recompute: int  # blocks
    expected_saving: float  # seconds under the better one of loading all and recomputing all, summed
    regret: HistogramSnapshot
    fragmentation: Mapping[TierName, float]
    compacted_blocks: Mapping[TierName, int]
    late_calls: Mapping[tuple[TierName, str], int]  # by (tier, kind)
    away: Mapping[tuple[TierName, str], bool]  # as last told

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to a colder tier."""
        return sum(size for way, size in self.moved_bytes.items() if _colder(*way))

    @property
    def fetched_bytes(self) -> int:
        """Bytes that came up to a warmer tier."""
        return sum(self.moved_bytes.values()) - self.spilled_bytes


_WARMTH: dict[TierName, int] = {"device": 3, "host": 2, "disk": 1, "store": 0}


def _colder(source: TierName, target: TierName) -> bool:
    return _WARMTH[target] < _WARMTH[source]


@dataclass(slots=True)
class _Counts:
    """The same as CacheRecord, while it grows."""

    plain: Counter[str] = field(default_factory=Counter)
    matched: Counter[TierName] = field(default_factory=Counter)
    reused: Counter[TierName] = field(default_factory=Counter)
    tier_hits: Counter[TierName] = field(default_factory=Counter)
    passed_over: Counter[TierName] = field(default_factory=Counter)
    moved: Counter[tuple[TierName, TierName]] = field(default_factory=Counter)
    transfers: Counter[tuple[str, str, Outcome]] = field(default_factory=Counter)
    queued: defaultdict[tuple[str, str], Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    seconds: defaultdict[tuple[TierName, TierName], Histogram] = field(
        default_factory=lambda: defaultdict(Histogram)
    )
    drops: Counter[tuple[TierName, DropReason]] = field(default_factory=Counter)
    coded: Counter[tuple[TierName, str]] = field(default_factory=Counter)
    evictions: Counter[tuple[TierName, str]] = field(default_factory=Counter)
    age: defaultdict[tuple[TierName, str], Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    ghosts: Counter[TierName] = field(default_factory=Counter)
    loaded: Counter[TierName] = field(default_factory=Counter)
    saving: float = 0.0
    regret: Histogram = field(default_factory=Histogram)
    fragmentation: dict[TierName, float] = field(default_factory=dict)
    compacted: Counter[TierName] = field(default_factory=Counter)
    late: Counter[tuple[TierName, str]] = field(default_factory=Counter)
    away: dict[tuple[TierName, str], bool] = field(default_factory=dict)


class RecordingObserver(CacheObserver):
    """Keeps counts and histograms in memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = _Counts()

    def looked_up(self, event: LookedUp) -> None:
        with self._lock:
            counts = self._counts
            counts.plain["lookups"] += 1
            counts.plain["hits"] += any(event.reused.values())
            counts.plain["prompt"] += event.prompt
            counts.plain["recomputed"] += event.recomputed
            counts.matched.update(event.matched)
            counts.reused.update(event.reused)
            counts.tier_hits.update(tier for tier, tokens in event.reused.items() if tokens)
            counts.passed_over.update(event.passed_over)

    def moved(self, event: Moved) -> None:
        with self._lock:
            counts, way = self._counts, (event.source, event.target)
            counts.moved[way] += event.moved_bytes
            counts.transfers[event.link, event.priority, event.outcome] += 1
            if event.queued is not None:
                counts.queued[event.link, event.priority].add(event.queued)
            if event.seconds is not None and event.outcome == "done":
                counts.seconds[way].add(event.seconds)

    def dropped(self, tier: TierName, reason: DropReason, blocks: int = 1) -> None:
        with self._lock:
            self._counts.drops[tier, reason] += blocks

    def coded(self, tier: TierName, outcome: str, blocks: int = 1) -> None:
        with self._lock:
            self._counts.coded[tier, outcome] += blocks

    def evicted(self, tier: TierName, policy: str, blocks: int, age: float) -> None:
        with self._lock:
            self._counts.evictions[tier, policy] += blocks
            self._counts.age[tier, policy].add(age, blocks)

    def ghost_hit(self, tier: TierName, tokens: int) -> None:
        with self._lock:
            self._counts.ghosts[tier] += tokens

    def decided(self, event: Decided) -> None:
        with self._lock:
            self._counts.plain["decisions"] += 1
            self._counts.plain["decided_recompute"] += event.recomputed
            self._counts.loaded.update(event.loaded)
            self._counts.plain["tried"] += event.tried
            self._counts.saving += event.best_pure - event.expected

    def regretted(self, seconds: float) -> None:
        with self._lock:
            self._counts.regret.add(seconds)

    def late(self, tier: TierName, kind: str) -> None:
        with self._lock:
            self._counts.late[tier, kind] += 1

    def away(self, tier: TierName, kind: str, away: bool) -> None:
        with self._lock:
            self._counts.away[tier, kind] = away

    def compacted(self, tier: TierName, blocks: int) -> None:
        with self._lock:
            self._counts.compacted[tier] += blocks

    def fragmentation(self, tier: TierName, share: float) -> None:
        with self._lock:
            self._counts.fragmentation[tier] = share

    def record(self) -> CacheRecord:
        """Everything so far, as one consistent picture."""
        with self._lock:
            counts = self._counts
            return CacheRecord(
                lookups=counts.plain["lookups"],
                hits=counts.plain["hits"],
                prompt_tokens=counts.plain["prompt"],
                matched_tokens=dict(counts.matched),
                reused_tokens=dict(counts.reused),
                recomputed_tokens=counts.plain["recomputed"],
                tier_hits=dict(counts.tier_hits),
                passed_over_tokens=dict(counts.passed_over),
                moved_bytes=dict(counts.moved),
                transfers=dict(counts.transfers),
                queued={key: one.snapshot() for key, one in counts.queued.items()},
                seconds={key: one.snapshot() for key, one in counts.seconds.items()},
                drops=dict(counts.drops),
                coded=dict(counts.coded),
                evictions=dict(counts.evictions),
                eviction_age={key: one.snapshot() for key, one in counts.age.items()},
                ghost_tokens=dict(counts.ghosts),
                decisions=counts.plain["decisions"],
                tried=counts.plain["tried"],
                decided_load=dict(counts.loaded),
                decided_recompute=counts.plain["decided_recompute"],
                expected_saving=counts.saving,
                regret=counts.regret.snapshot(),
                fragmentation=dict(counts.fragmentation),
                compacted_blocks=dict(counts.compacted),
                late_calls=dict(counts.late),
                away=dict(counts.away),
            )
