"""What an operator may say about how the replicas of one engine are used."""

from dataclasses import dataclass, field

from gateway.replicas.breaker import BreakerOptions
from gateway.replicas.outliers import OutlierOptions
from gateway.replicas.retry_budget import RetryOptions


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """Times are seconds."""

    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    outliers: OutlierOptions | None = field(default_factory=OutlierOptions)  # None: nobody is too slow
    retries: RetryOptions = field(default_factory=RetryOptions)
    max_ejected: float = 0.5  # share of the replicas that are left alone at most; the last one never is
    slow_start_s: float = 20.0  # until one that came back gets its full share; 0: at once
    hedge_after_s: float | None = None  # without an answer another replica is asked, too; None: never
    timeout_s: float | None = None  # for a whole request; None: as long as it takes
    stall_s: float = 300.0  # without a byte in the middle of an answer
    hung_s: float = 30.0  # a request that ended by its deadline after so long speaks against its replica
