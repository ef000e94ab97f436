"""Where the shared state is, and how long a request may wait for it."""

from dataclasses import dataclass, field

PREFIX = "kvgate:"


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """One Redis or Valkey server, from version 6.2 on. A cluster or Sentinel is not spoken to."""

    url: str  # redis://HOST:PORT/DB, rediss://... for TLS, unix://PATH
    password: str | None = field(default=None, repr=False)
    prefix: str = PREFIX  # of every key, so that gateways with different ones share nothing
    timeout_s: float = 0.25  # of one call; then the server counts as away, and nothing waits for it any more
    probe_s: float = 0.25  # between two looks whether it is back

    def key(self, *parts: str) -> str:
        """The name of a key."""
        return self.prefix + ":".join(parts)
