"""What can go wrong in the cache, as one small tree.

CacheError
├── OutOfBlocksError     more blocks were asked for than are free or evictable; nothing was changed
├── LeaseError           a lease was used in a way it does not allow
│   └── LeaseReleasedError   the lease was used after its release
├── UnknownPolicyError   no eviction policy has that name
└── IntegrityError       an invariant of the cache is broken: a bug here or in a caller
"""


class CacheError(Exception):
    """Root of everything the cache raises on purpose."""


class OutOfBlocksError(CacheError):
    """More blocks were asked for than are free or evictable. Nothing was changed."""

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(f"{needed} blocks are needed, {available} are free or evictable")
        self.needed = needed
        self.available = available


class LeaseError(CacheError):
    """A lease was used in a way it does not allow."""


class LeaseReleasedError(LeaseError):
    """The lease was used after its release."""


class UnknownPolicyError(CacheError):
    """No eviction policy has that name."""


class IntegrityError(CacheError):
    """An invariant of the cache is broken; the message names it."""
