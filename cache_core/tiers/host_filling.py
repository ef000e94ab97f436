"""Rows of the host that bytes are on their way to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cache_core.block_header import BlockHeader
from cache_core.block_pool import Blocks
from cache_core.tiers.base import Mask

NO_ROW = -1


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Rows that are being filled. Nobody sees them before `HostTier.publish`, which must be called once."""

    headers: tuple[BlockHeader, ...]
    rows: Blocks  # int32 [headers]; NO_ROW: there already, being filled by another, or no room
    there: Mask  # which are ready in the tier already
    purges: int  # the tier's last one when it was made


class Fillings:
    """Which block is filled by which reservation. Not locked: the tier's lock is held around every call."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Reservation | None] = {}  # None: it is just being made
        self._left: dict[Reservation, int] = {}  # those whose blocks others may fill, with their rows

    def begin(self, key: bytes) -> None:
        """This block is about to be reserved."""
        self._keys[key] = None

    def not_begun(self, keys: Sequence[bytes]) -> None:
        """There is no room for these."""
        for key in keys:
            del self._keys[key]

    def made(self, reservation: Reservation) -> None:
        """It has its rows."""
        for place in np.flatnonzero(reservation.rows != NO_ROW).tolist():
            self._keys[reservation.headers[place].key] = reservation

    def leave(self, reservation: Reservation) -> None:
        """What fills it hangs: its rows stay as they are, and others may fill the same blocks elsewhere."""
        places = self._places(reservation)
        for place in places:
            self._drop(reservation, reservation.headers[place].key)
        self._left[reservation] = len(places)

    def end(self, reservation: Reservation) -> list[int]:
        """Nothing is written to its rows any more; which of its blocks nobody else fills."""
        places = self._places(reservation)
        left = self._left.pop(reservation, None) is not None
        keys = [reservation.headers[place].key for place in places]
        if left:
            return [place for place, key in zip(places, keys, strict=True) if key not in self._keys]
        for key in keys:
            self._drop(reservation, key)
        return places

    def rows(self) -> int:
        """How many bytes are on their way to."""
        return len(self._keys) + sum(self._left.values())

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def _drop(self, reservation: Reservation, key: bytes) -> None:
        if self._keys.get(key) is reservation:
            del self._keys[key]

    @staticmethod
    def _places(reservation: Reservation) -> list[int]:
        return np.flatnonzero(reservation.rows != NO_ROW).tolist()
