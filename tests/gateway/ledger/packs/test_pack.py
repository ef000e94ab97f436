"""A pack says what its rows say, however it was put together."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.ledger import Divergence, LedgerRow, LedgerUnavailableError
from gateway.ledger.encoding import encoded
from gateway.ledger.packs import (
    PACKED_NUMBERS,
    PACKED_TEXTS,
    Pack,
    PackError,
    StoredPack,
    gathered,
    joined,
    kept,
    packed,
    unpacked,
)
from tests.gateway.ledger.packs.saying import number_of, text_of
from tests.gateway.ledger.rows import any_row, row


def packed_rows(rows: list[LedgerRow]) -> Pack:
    return gathered([encoded(each) for each in rows])


def assert_says(pack: Pack, rows: list[LedgerRow]) -> None:
    assert pack.rows == len(rows)
    for name in PACKED_NUMBERS:
        found = pack.numbers.get(name, np.full(len(rows), np.nan))
        np.testing.assert_array_equal(found, [number_of(each, name) for each in rows])
    for name in PACKED_TEXTS:
        coded = pack.texts.get(name)
        found_texts = [None] * len(rows) if coded is None else [coded.labels[at] for at in coded.places]
        assert found_texts == [text_of(each, name) for each in rows]


_some_rows = st.lists(any_row, min_size=1, max_size=8)


@given(_some_rows)
def test_bytes_say_what_rows_say(rows: list[LedgerRow]) -> None:
    assert_says(packed_rows(rows), rows)
    assert_says(unpacked(packed(packed_rows(rows))), rows)


@given(_some_rows, _some_rows)
def test_two_packs_become_one(first: list[LedgerRow], second: list[LedgerRow]) -> None:
    parts = (unpacked(packed(packed_rows(rows))) for rows in (first, second))
    assert_says(unpacked(packed(joined(*parts))), first + second)


@given(_some_rows, st.data())
def test_of_rows_that_leave_nothing_stays(rows: list[LedgerRow], data: st.DataObject) -> None:
    which = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)).filter(any))
    data_left = packed(kept(packed_rows(rows), np.array(which)))
    left = [each for each, stays in zip(rows, which, strict=True) if stays]
    assert_says(unpacked(data_left), left)
    stored = StoredPack.of(data_left)
    for name in PACKED_TEXTS:
        assert set(stored.coded(name).labels) == {text_of(each, name) for each in left}


@pytest.mark.parametrize("high", [126, 127, 128, 32_766, 32_767, 32_768, 2**31 - 1])
@pytest.mark.parametrize("low", [0, -127, -128, -32_767, -32_768, -(2**31) + 1])
@pytest.mark.parametrize("gap", [False, True])
def test_numbers_at_the_edge_of_their_bytes_stay(low: int, high: int, gap: bool) -> None:
    rows = [replace(row(1), canon_saved=value) for value in (low, high, None if gap else low)]
    assert_says(unpacked(packed(packed_rows(rows))), rows)


@pytest.mark.parametrize("count", [255, 256, 257, 65_536, 65_537])
def test_as_many_texts_as_there_are_rows_stay_apart(count: int) -> None:
    template = encoded(row(1))
    rows = [(*template[:1], f"tenant {number}", *template[2:]) for number in range(count)]
    labels, places = StoredPack.of(packed(gathered(rows))).coded("tenant")
    assert [labels[place] for place in places] == [f"tenant {number}" for number in range(count)]


def test_a_time_too_far_from_the_arrival_is_not_known() -> None:
    pack = packed_rows([replace(row(1), first_token=1e31, end=1.7e308, arrival=-1.7e308)])
    assert np.isnan(pack.numbers["ttft"]).all()
    assert np.isnan(pack.numbers["duration"]).all()


def test_rows_alike_take_few_bytes() -> None:
    gone = Divergence("messages[0]", 3, "clock", "00")
    rows = [replace(row(number, "tenant"), divergence=gone) for number in range(1000)]
    assert len(packed(packed_rows(rows))) < 25 * len(rows)


_GOOD = packed(packed_rows([row(1), row(2)]))


def broken(what: str) -> bytes:
    rows, numbers, texts = msgspec.msgpack.decode(_GOOD)
    numbers["prompt"], texts["tenant"] = {
        "kind": (["O", b"12345678", False], ["O", b"", ""]),
        "count": (["<i2", b"123456", False], [["a", "b"], "<u1", b"\0\0\0"]),
        "half": (["<i2", b"123", False], [["a", "b"], "<u2", b"\0\0\0"]),
        "none": (["<i2", b"", False], [["a", "b"], "<u1", b""]),
        "place": (["<f8", b"12345678", True], [["a", "b"], "<u1", b"\2\1"]),
        "negative": (["<u1", b"12", True], [["a", "b"], "<i4", b"\xff\xff\xff\xff\0\0\0\0"]),
    }[what]
    return msgspec.msgpack.encode([rows, numbers, texts])


@pytest.mark.parametrize("what", ["kind", "count", "half", "none", "place", "negative"])
def test_a_broken_column_is_said_to_be_one_and_others_are_read(what: str) -> None:
    with pytest.raises(PackError):
        unpacked(broken(what))
    if what != "kind":  # which leaves texts without their labels
        stored, out = StoredPack.of(broken(what)), np.empty(2)
        stored.fill("reused", out)
        assert out.tolist() == [1, 2]
        for read in (lambda: stored.fill("prompt", out), lambda: stored.coded("tenant")):
            with pytest.raises(LedgerUnavailableError):
                read()


@pytest.mark.parametrize("data", [b"", b"\xc1", _GOOD[:-1], b"\x93\x01\x80\xa1x", b"\x90"])
def test_bytes_that_are_no_pack_are_said_to_be_none(data: bytes) -> None:
    with pytest.raises(PackError, match="cannot be read"):
        StoredPack.of(data)
