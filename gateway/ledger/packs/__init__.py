"""The rows' numbers and names once more, hundreds of rows in one piece: what reports over millions of rows read."""

from gateway.ledger.packs.pack import PACKED_NUMBERS, PACKED_TEXTS, Coded, Pack, gathered, joined, kept
from gateway.ledger.packs.stored import PackError, StoredPack, packed, unpacked

__all__ = [
    "PACKED_NUMBERS",
    "PACKED_TEXTS",
    "Coded",
    "Pack",
    "PackError",
    "StoredPack",
    "gathered",
    "joined",
    "kept",
    "packed",
    "unpacked",
]
