"""Which tiers below the device have the blocks of a node, as far as is known: a few bytes a node, one a block.

What is known may be out of date, so nothing but cost depends on it. Each tier has a clock of its own and says of a
moment whether it may have lost what was there and used since (`Tier.kept_since`); so nothing has to be told when a
tier drops a block.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cache_core.metrics import TierName

Bits = NDArray[np.uint8]  # one a block
Kept = Callable[[int], bool]  # whether a tier still has what was there at that moment

BITS: Mapping[TierName, int] = {"device": 1, "host": 2, "disk": 4, "store": 8}

_ORDER: tuple[TierName, ...] = ("host", "disk", "store")
_HEAD = struct.Struct("<3q")  # a moment for each of them
_NEVER = -1


@dataclass(frozen=True, slots=True)
class Residency:
    """The packed form, taken apart. Blocks behind the end of `bits` are known to be in no tier."""

    moments: tuple[int, int, int]  # in the order of host, disk, store; the bits of each are from then
    bits: bytes

    def pack(self) -> bytes | None:
        """As a node holds it; None: nothing is known."""
        return _HEAD.pack(*self.moments) + self.bits if any(self.bits) else None


_NOTHING = Residency((_NEVER, _NEVER, _NEVER), b"")


def unpack(packed: bytes | None) -> Residency:
    """The other way round."""
    if packed is None:
        return _NOTHING
    host, disk, store = _HEAD.unpack_from(packed)
    return Residency((host, disk, store), packed[_HEAD.size :])


def bits_of(packed: bytes | None, blocks: int, kept: Mapping[TierName, Kept]) -> Bits:
    """What is known of that many blocks, without what may be out of date."""
    known = unpack(packed)
    found = np.zeros(blocks, dtype=np.uint8)
    bits = np.frombuffer(known.bits, dtype=np.uint8)
    trusted = 0
    for tier, moment in zip(_ORDER, known.moments, strict=True):
        if moment != _NEVER and tier in kept and kept[tier](moment):
            trusted |= BITS[tier]
    found[: len(bits)] = bits & np.uint8(trusted)
    return found


def warmest(packed: bytes | None, block: int, kept: Mapping[TierName, Kept]) -> TierName | None:
    """The warmest tier that is known to have a block of a node; None: none is."""
    if packed is None:
        return None
    known = unpack(packed)
    if block >= len(known.bits):
        return None
    found = known.bits[block]
    for tier, moment in zip(_ORDER, known.moments, strict=True):
        if found & BITS[tier] and tier in kept and kept[tier](moment):
            return tier
    return None


def noted(
    packed: bytes | None, tier: TierName, first: int, last: int, moment: int, kept: Kept
) -> bytes | None:
    """Blocks `first` .. `last` of a node are in `tier`, at that moment of its clock."""
    known, place, mine = unpack(packed), _ORDER.index(tier), BITS[tier]
    bits = np.zeros(max(len(known.bits), last), dtype=np.uint8)
    bits[: len(known.bits)] = np.frombuffer(known.bits, dtype=np.uint8)
    moments = list(known.moments)
    if moments[place] == _NEVER or not kept(moments[place]):
        bits &= np.uint8(~mine & 0xFF)  # out of date: they would make the others so
        moments[place] = moment
    bits[first:last] |= np.uint8(mine)
    moments[place] = min(moments[place], moment) if (bits & mine).sum() > last - first else moment
    return Residency((moments[0], moments[1], moments[2]), bits.tobytes()).pack()


def split(packed: bytes | None, at: int) -> tuple[bytes | None, bytes | None]:
    """Of a node's first `at` blocks, and of the others."""
    known = unpack(packed)
    parts = known.bits[:at], known.bits[at:]
    upper, lower = (Residency(known.moments, part).pack() for part in parts)
    return upper, lower


def joined(upper: bytes | None, blocks: int, lower: bytes | None) -> bytes | None:
    """Of a node of that many blocks and the one below it, as one. The older moment holds for both."""
    above, below = unpack(upper), unpack(lower)
    first, second, third = (
        b if a == _NEVER else a if b == _NEVER else min(a, b)
        for a, b in zip(above.moments, below.moments, strict=True)
    )
    return Residency((first, second, third), above.bits.ljust(blocks, b"\0") + below.bits).pack()
