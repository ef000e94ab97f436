"""What requests that have ended add up to, by what they are told apart by; kept once for everyone who sends it."""

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from threading import Lock
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from engine_adapters.base import Tier
from gateway.telemetry.buckets import (
    QUEUE,
    REQUEST_DURATION,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
    TOKEN_USAGE,
)
from gateway.telemetry.distribution import Distribution
from gateway.telemetry.facts import RequestFacts, RequestLabels
from gateway.telemetry.labels import OTHER

_MOST = 2000  # labels that are counted apart; some 3 KB each

# Requests of one batch, together with those of the same labels.
Alike: TypeAlias = Mapping[RequestLabels, Sequence[RequestFacts]]
Key = TypeVar("Key", bound=Hashable)


class Tallied:
    """Requests of the same labels. What is not known is not counted, not even as 0.

    Attributes:
        since: when counting began, in nanoseconds since the epoch.
        reported: how many told reused and recomputed tokens, of which the next three are the sums.
    """

    def __init__(self, labels: RequestLabels) -> None:
        self.labels = labels
        self.since = time.time_ns()
        self.requests = 0
        self.duration_s = Distribution(REQUEST_DURATION)
        self.ttft_s = Distribution(TIME_TO_FIRST_TOKEN)
        self.time_per_output_token_s = Distribution(TIME_PER_OUTPUT_TOKEN)
        self.queued_s = Distribution(QUEUE)
        self.input_tokens = Distribution(TOKEN_USAGE)
        self.output_tokens = Distribution(TOKEN_USAGE)
        self.reported = self.reused = self.recomputed = 0
        self.by_tier: Counter[Tier] = Counter()

    def add(self, some: Sequence[RequestFacts]) -> None:
        """Count `some` more."""
        self.requests += len(some)
        self.duration_s.add([each.duration_s for each in some])
        if self.labels.reuse_class is None:
            return
        self.ttft_s.add([value for each in some if (value := each.ttft_s) is not None])
        self.time_per_output_token_s.add(
            [value for each in some if (value := each.time_per_output_token_s) is not None]
        )
        self.queued_s.add([value for each in some if (value := each.queued_s) is not None])
        self.input_tokens.add([value for each in some if (value := each.input_tokens) is not None])
        self.output_tokens.add([value for each in some if (value := each.output_tokens) is not None])
        if self.labels.reuse_status == "reported":
            self._add_reuse(some)

    def _add_reuse(self, some: Sequence[RequestFacts]) -> None:
        for each in some:
            report, prompt = each.reuse, each.input_tokens
            if report is None or report.reused is None or prompt is None:
                continue  # both or none: a rate over them counts the same requests above and below the line
            self.reported += 1
            self.reused += report.reused
            self.recomputed += prompt - report.reused
            for tier, tokens in (report.by_tier or {}).items():
                self.by_tier[tier] += tokens

    def copied(self) -> "Tallied":
        """The same, which stays as it is now."""
        kept = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Distribution):
                same = Distribution(value.bounds)
                same.merge(value)
                setattr(kept, name, same)
        kept.by_tier = self.by_tier.copy()
        return kept


class Tally:
    """Adds requests up. They are added by one thread, and read by any.

    Behind `most` labels, names of new ones are `other`.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._lock = Lock()
        self._by_labels: dict[RequestLabels, Tallied] = {}

    def add(self, alike: Alike) -> None:
        """Count the requests of a batch, each once."""
        with self._lock:
            for labels, some in alike.items():
                found = self._by_labels.get(labels)
                (self._new(labels) if found is None else found).add(some)

    def _new(self, labels: RequestLabels) -> Tallied:
        if len(self._by_labels) >= self._most:
            # Names are bounded each by itself; all that go together need not be few.
            labels = replace(labels, model=OTHER, engine=OTHER, error=labels.error and OTHER)
        return self._by_labels.setdefault(labels, Tallied(labels))

    def now(self) -> list[Tallied]:
        """Copies of all there is."""
        with self._lock:
            found = list(self._by_labels.values())
        copies = []
        for each in found:
            with self._lock:  # of one at a time: requests that end wait for it
                copies.append(each.copied())
        return copies

    def take(self) -> list[Tallied]:
        """All there is; counting begins anew."""
        with self._lock:
            found, self._by_labels = self._by_labels, {}
        return list(found.values())


def amounts(
    tallied: Iterable[Tallied],
    key: Callable[[RequestLabels], Key],
    amount: Callable[[Tallied], float | None],
) -> dict[Key, float]:
    """Sums of `amount` by `key`; None of all that have one key: there is none."""
    found: dict[Key, float] = {}
    for each in tallied:
        value = amount(each)
        if value is not None:
            name = key(each.labels)
            found[name] = found.get(name, 0) + value
    return found


def distributions(
    tallied: Iterable[Tallied],
    key: Callable[[RequestLabels], Key],
    values: Callable[[Tallied], Distribution],
) -> dict[Key, Distribution]:
    """All `values` of the same `key` as one; of a key without any there is none."""
    found: dict[Key, Distribution] = {}
    for each in tallied:
        some = values(each)
        if some.count:
            found.setdefault(key(each.labels), Distribution(some.bounds)).merge(some)
    return found


def tiers(tallied: Iterable[Tallied]) -> list[Tier]:
    """Those that reused tokens are said to be from."""
    return list(dict.fromkeys(tier for each in tallied for tier in each.by_tier))


def from_tier(tier: Tier) -> Callable[[Tallied], float | None]:
    """Reused tokens that are from there."""
    return lambda each: each.by_tier.get(tier)


def reused(each: Tallied) -> float | None:
    """Reused tokens of requests that reported."""
    return each.reused if each.reported else None


def recomputed(each: Tallied) -> float | None:
    """Prefilled tokens of the same requests."""
    return each.recomputed if each.reported else None


def total(values: Distribution) -> float | None:
    """Their sum."""
    return values.sum if values.count else None
