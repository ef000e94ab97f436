"""Whatever is not exactly the wanted block is refused, with a reason."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.block_header import (
    BadBlockError,
    BlockHeader,
    Body,
    Buffer,
    Coding,
    header_size,
    pack,
    unpack,
    verify,
)
from cache_core.drop_reason import DropReason

HEADER = BlockHeader(b"i" * 32, b"p" * 32, b"o" * 32, np.arange(16, dtype="<i4").tobytes(), 2)
PAYLOAD = np.arange(1000, dtype=np.uint16).tobytes()
KEY = b"k" * 32


def stored(alignment: int = 1, mac_key: bytes | None = None, header: BlockHeader = HEADER) -> bytes:
    return pack(header, Body(PAYLOAD, len(PAYLOAD)), alignment, mac_key) + PAYLOAD


def check(record: bytes, wanted: BlockHeader = HEADER, mac_key: bytes | None = None) -> Buffer:
    found = unpack(memoryview(record))
    body = memoryview(record)[found.header_bytes : found.header_bytes + found.body_bytes]
    verify(found, body, wanted, mac_key)
    return body


def reason(record: bytes, wanted: BlockHeader = HEADER, mac_key: bytes | None = None) -> DropReason:
    with pytest.raises(BadBlockError) as caught:
        check(record, wanted, mac_key)
    return caught.value.reason


@pytest.mark.parametrize("alignment", [1, 512, 4096])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_whole_block_comes_back(alignment: int, key: bytes | None) -> None:
    record = stored(alignment, key)
    assert bytes(check(record, HEADER, key)) == PAYLOAD
    assert len(record) == header_size(16, alignment) + len(PAYLOAD)
    assert unpack(memoryview(record)).header == HEADER


@given(st.data())
def test_no_flipped_bit_is_served(data: st.DataObject) -> None:
    record = bytearray(stored(mac_key=KEY))
    bit = data.draw(st.integers(0, len(record) * 8 - 1))
    record[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadBlockError):
        check(bytes(record), HEADER, KEY)


@given(st.integers(0, len(stored()) - 1))
def test_no_shortened_block_is_served(length: int) -> None:
    assert reason(stored()[:length]) in (DropReason.TRUNCATED, DropReason.CHECKSUM)


@given(st.binary(max_size=400))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BadBlockError):
        check(data)


WRONG: list[tuple[dict[str, Any], DropReason]] = [
    ({"identity": b"x" * 32}, DropReason.WRONG_IDENTITY),
    ({"parent": b"x" * 32}, DropReason.WRONG_BLOCK),
    ({"own": b"x" * 32}, DropReason.WRONG_BLOCK),
    ({"group": 3}, DropReason.WRONG_BLOCK),
    ({"tokens": np.arange(1, 17, dtype="<i4").tobytes()}, DropReason.WRONG_BLOCK),
    ({"tokens": np.arange(15, dtype="<i4").tobytes()}, DropReason.WRONG_BLOCK),
]


@pytest.mark.parametrize(("change", "expected"), WRONG)
def test_another_block_is_refused(change: dict[str, Any], expected: DropReason) -> None:
    assert reason(stored(), replace(HEADER, **change)) == expected


def test_another_version_is_refused() -> None:
    record = bytearray(stored())
    record[8] += 1
    assert reason(bytes(record)) == DropReason.OLD_VERSION


def test_what_has_no_mac_or_anothers_is_forged() -> None:
    assert reason(stored(), mac_key=KEY) == DropReason.FORGED
    assert reason(stored(mac_key=b"x" * 32), mac_key=KEY) == DropReason.FORGED


def test_token_ids_of_an_encrypted_body_are_not_in_the_header() -> None:
    head = pack(HEADER, Body(PAYLOAD, len(PAYLOAD), Coding.ENCRYPTED))
    assert HEADER.tokens not in head
    assert unpack(memoryview(head)).token_count == 16


def test_a_group_is_part_of_the_key() -> None:
    assert HEADER.key != replace(HEADER, group=3).key
