"""What a serving process has in common with other gateways."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from canon.memory import LocalStore, MemoryStore
from gateway.directory.options import DirectoryOptions
from gateway.limits.limits import Limits
from gateway.shared_state.options import RedisOptions

if TYPE_CHECKING:  # it needs the extra `redis`
    from gateway.directory.directories import Directories


@dataclass(frozen=True, slots=True)
class Shared:
    """None: as the process has it."""

    limits: Limits | None = None
    memory: MemoryStore | None = None
    directories: "Directories | None" = None  # of prefixes

    @classmethod
    def in_redis(
        cls,
        options: RedisOptions,
        local: Callable[[], LocalStore] | None,
        ttl_s: float,
        secret: bytes | None,
        *,
        directory: DirectoryOptions | None = None,
    ) -> Self:
        """Limits, and where `local` says what stands in while Redis is away, the memory. Needs the redis package."""
        from gateway.canonical.shared_memory import SharedMemoryStore
        from gateway.shared_state.shared_state import SharedState

        state = SharedState(options)
        limits = Limits(state)
        directories = None
        if directory is not None:
            from gateway.directory.directories import Directories

            directories = Directories(state, directory)
        if local is None:
            return cls(limits, directories=directories)
        seal = None
        if secret is not None:
            from gateway.canonical.seal import Seal

            seal = Seal(secret)
        return cls(limits, SharedMemoryStore(state, local(), ttl_s=ttl_s, seal=seal), directories)
