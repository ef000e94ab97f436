"""How a disk tier is set up."""

from dataclasses import dataclass, field
from pathlib import Path

from cache_core.tiers.codec import Codec


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Everything about a disk tier that can be chosen."""

    folder: Path  # of this process alone
    capacity_bytes: int  # segments and index together
    segment_bytes: int = 256 << 20  # what is evicted at once; less of a small capacity
    read_bytes: int = 4 << 20  # neighbouring records are read together up to this
    write_bytes: int = 8 << 20
    queue_depth: int = 8  # reads on their way at once
    direct: bool = True  # past the page cache, where the file system can
    sync: bool = True  # flush blocks before the index knows them
    clean_below: float = 0.5  # a segment with less live bytes than this share is rewritten
    codec: Codec = field(default_factory=Codec)
    # Of the capacity: what one scope (told by its identity) may hold before it makes room for others. Below 1, each
    # scope has segments of its own.
    scope_share: float = 1.0

    def __post_init__(self) -> None:
        if self.capacity_bytes < 1 or self.segment_bytes < 1:
            raise ValueError("a disk tier needs room: capacity and segment size are bytes, at least one")
        if self.queue_depth < 1 or self.read_bytes < 1 or self.write_bytes < 1:
            raise ValueError("queue depth, read and write size are at least one")
        if not 0 <= self.scope_share <= 1:
            raise ValueError(f"a share is between 0 and 1, not {self.scope_share}")

    @property
    def apart(self) -> bool:
        """Whether each scope has segments of its own."""
        return self.scope_share < 1

    @property
    def segment_limit(self) -> int:
        """Bytes at which a segment is finished. Smaller where a scope loses whole ones that are its own."""
        return max(min(self.segment_bytes, self.capacity_bytes // (32 if self.apart else 8)), 1)
