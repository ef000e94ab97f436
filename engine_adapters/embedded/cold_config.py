"""What the embedded engine is told about the tiers below main memory."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


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
