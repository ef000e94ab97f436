"""How a disk tier is set up."""

from dataclasses import dataclass, field
from pathlib import Path

from cache_core.tiers.codec import Codec


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Everything about a disk tier that can be chosen."""

    folder: Path  # of this process alone
    capacity_bytes: int  # segments and index together
    segment_bytes: int = 256 << 20  # what is evicted at once; at most an eighth of the capacity
    read_bytes: int = 2 << 20  # neighbouring records are read together up to this
    write_bytes: int = 8 << 20
    queue_depth: int = 8  # reads on their way at once
    direct: bool = True  # past the page cache, where the file system can
    sync: bool = True  # flush blocks before the index knows them
    clean_below: float = 0.5  # a segment with less live bytes than this share is rewritten
    codec: Codec = field(default_factory=Codec)

    def __post_init__(self) -> None:
        if self.capacity_bytes < 1 or self.segment_bytes < 1:
            raise ValueError("a disk tier needs room: capacity and segment size are bytes, at least one")
        if self.queue_depth < 1 or self.read_bytes < 1 or self.write_bytes < 1:
            raise ValueError("queue depth, read and write size are at least one")

    @property
    def segment_limit(self) -> int:
        """Bytes at which a segment is finished."""
        return max(min(self.segment_bytes, self.capacity_bytes // 8), 1)
