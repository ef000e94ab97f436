"""Where a replica is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """One replica as discovery says it; another URL under the same name is another replica."""

    name: str  # among those of its engine
    url: str  # as an engine's: without a route
