"""What can go wrong with a tier as a whole. A single bad block raises nothing: it is counted and missed.

CacheError
└── TierError            the tier cannot be used
    ├── FolderInUseError     another process has this disk folder
    └── PurgeFailedError     bytes of a purged identity could not be erased; they are not served, and a later
                             start tries again
"""

from cache_core.errors import CacheError


class TierError(CacheError):
    """The tier cannot be used."""


class FolderInUseError(TierError):
    """Another process has this disk folder."""

    def __init__(self, folder: object, owner: str) -> None:
        super().__init__(f"{folder} is in use by {owner}; every process needs a disk folder of its own")
        self.owner = owner


class PurgeFailedError(TierError):
    """Bytes of a purged identity could not be erased; they are not served, and a later start tries again."""
