"""What the embedded engine is told about the tiers below main memory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engine_adapters.base import Tier


@dataclass(frozen=True, slots=True)
class ColdCoding:
    """How blocks are kept below main memory. But for `quantize`, every bit comes back."""

    compression: int | None = None  # zstd level, 1 to 19
    quantize: Literal["int8", "fp8"] | None = None  # a byte an element; a block over the bound stays exact
    quantize_error: float = 0.03  # root mean square of a block's errors over that of its values
    secret: bytes | None = field(default=None, repr=False)  # encrypts what is on disk, whatever its length


@dataclass(frozen=True, slots=True)
class SharedStore:
    """A store that several servers share: a folder, or Mooncake Store."""

    secret: bytes = field(repr=False)  # signs every block; all servers have the same one, at least 16 bytes
    folder: Path | None = None
    capacity_bytes: int = 64 << 30  # of the folder
    mooncake_master: str | None = None  # host:port
    mooncake_host: str = "127.0.0.1"  # this machine, as the others reach it
    mooncake_bytes: int = 0  # main memory this server gives to the store
    mounted: bool = False  # the folder is, or lies in, a mount: without one nothing is written


@dataclass(frozen=True, slots=True)
class Marks:
    """Shares of a tier that are in use: in idle time room is made above `start`, down to `stop`."""

    start: float = 0.85
    stop: float = 0.70

    def __post_init__(self) -> None:
        if not 0 <= self.stop <= self.start <= 1:
            raise ValueError(f"stop is no higher than start, both between 0 and 1: {self.start}, {self.stop}")


def swept_by_nobody(
    tier: Tier, host_bytes: float, disk: Path | None, store_folder: Path | None, mooncake: bool
) -> str | None:
    """Why watermarks of that tier would say nothing; None: they count."""
    if not host_bytes:
        return "without a host cache no tier is swept"
    if tier == "disk" and disk is None:
        return "there is no disk cache"
    if tier == "store" and mooncake:
        return "room in Mooncake Store is made by its master, which has watermarks of its own"
    if tier == "store" and store_folder is None:
        return "there is no shared store"
    return None
