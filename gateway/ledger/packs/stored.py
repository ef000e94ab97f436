"""A pack as bytes, each column in as few bytes a row as its numbers need."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gateway.ledger.errors import LedgerUnavailableError
from gateway.ledger.packs.pack import Coded, Pack

# Little endian. The lowest number of each integer stands for `not known`.
_INTEGERS = {"<i1": -(2**7), "<i2": -(2**15), "<i4": -(2**31)}
_FLOATS = {"arrival": "<f8", "ttft": "<f4", "duration": "<f4"}
_PLACES = {"<u1": 2**8, "<u2": 2**16, "<u4": 2**32}
_KINDS = {kind: np.dtype(kind) for kind in (*_INTEGERS, *_FLOATS.values(), *_PLACES)}


class PackError(LedgerUnavailableError):
    """Bytes that are no pack."""


class _Numbers(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    data: bytes  # one number where all rows have the same
    gaps: bool  # whether it is not known of some rows


class _Texts(msgspec.Struct, array_like=True, frozen=True):
    labels: list[str | None]
    kind: str
    data: bytes  # places in `labels`; one where all rows have the same


class StoredPack(msgspec.Struct, array_like=True, frozen=True):
    """What the bytes hold, for readers that want some of its columns."""

    rows: int
    numbers: dict[str, _Numbers]
    texts: dict[str, _Texts]

    @classmethod
    def of(cls, data: bytes) -> "StoredPack":
        """Raises PackError."""
        try:
            return _decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise PackError(f"the ledger has a pack that cannot be read: {error}") from error

    def fill(self, name: str, out: NDArray[np.float64]) -> None:
        """Write a column of numbers to `out`, shape [rows]; NaN is `not known`. Raises PackError."""
        stored = self.numbers.get(name)
        if stored is None:
            out[:] = np.nan
            return
        values = _array(stored.kind, stored.data)
        try:
            out[:] = values
            if stored.gaps:
                out[values == _INTEGERS[stored.kind]] = np.nan
        except (ValueError, IndexError, KeyError) as error:
            raise PackError(f"the ledger has a pack whose {name} are not one a row") from error

    def coded(self, name: str) -> Coded:
        """A column of texts; its places have shape [rows], or [1] where all rows have the same. Raises PackError."""
        stored = self.texts.get(name)
        if stored is None:
            return Coded([None], np.zeros(1, np.int32))
        places = _array(stored.kind, stored.data)
        one_a_row = len(places) in (1, self.rows) and stored.kind in _PLACES
        if not one_a_row or places.max() >= len(stored.labels):
            raise PackError(f"the ledger has a pack whose {name} are not one a row")
        return Coded(stored.labels, places)


_decoder = msgspec.msgpack.Decoder(StoredPack)


def packed(pack: Pack) -> bytes:
    """The bytes of it."""
    numbers = {name: _numbers(name, values) for name, values in pack.numbers.items()}
    return msgspec.msgpack.encode(
        StoredPack(
            pack.rows,
            {name: its for name, its in numbers.items() if its is not None},
            {name: _texts(its) for name, its in pack.texts.items() if its.labels != [None]},
        )
    )


def unpacked(data: bytes) -> Pack:
    """What `packed` was given. Raises PackError."""
    stored = StoredPack.of(data)
    numbers = {name: np.empty(stored.rows) for name in stored.numbers}
    for name, out in numbers.items():
        stored.fill(name, out)
    texts = {}
    for name in stored.texts:
        labels, places = stored.coded(name)
        texts[name] = Coded(labels, np.broadcast_to(places, stored.rows).astype(np.int32))
    return Pack(stored.rows, numbers, texts)


def _numbers(name: str, values: NDArray[np.float64]) -> _Numbers | None:
    """None: nothing is known of any row."""
    known = ~np.isnan(values)
    inside = values[known]
    if not len(inside):
        return None
    if (kind := _FLOATS.get(name)) is not None:
        return _Numbers(kind, values.astype(kind).tobytes(), gaps=False)  # NaN is one of their numbers
    low, high = inside.min(), inside.max()
    kind = next(kind for kind, none in _INTEGERS.items() if none < low and high < -none)
    if len(inside) == len(values):
        return _Numbers(kind, (values[:1] if low == high else values).astype(kind).tobytes(), gaps=False)
    return _Numbers(kind, np.where(known, values, _INTEGERS[kind]).astype(kind).tobytes(), gaps=True)


def _texts(coded: Coded) -> _Texts:
    kind = next(kind for kind, most in _PLACES.items() if len(coded.labels) <= most)
    places = coded.places[:1] if len(coded.labels) == 1 else coded.places
    return _Texts(coded.labels, kind, places.astype(kind).tobytes())


def _array(kind: str, data: bytes) -> NDArray[Any]:
    try:
        return np.frombuffer(data, _KINDS[kind])
    except (KeyError, ValueError) as error:
        raise PackError(f"the ledger has a pack with numbers of a kind {kind!r:.10} that are none") from error
