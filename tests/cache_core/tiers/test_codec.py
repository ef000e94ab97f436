"""Whatever a codec does to a payload, it undoes; what is lossy stays within its bound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.block_header import BadBlockError, BlockHeader, Body, Coding, DropReason, pack, unpack
from cache_core.tiers.codec import Codec
from cache_core.tiers.quantize import Quantization, dequantized

HEADER = BlockHeader(b"i" * 32, b"p" * 32, b"o" * 32, bytes(64))
KEY = b"k" * 32


def encoded(codec: Codec, payload: bytes) -> Body:
    return codec.encode(HEADER, memoryview(payload))


def decoded(codec: Codec, body: Body, size: int, wanted: BlockHeader = HEADER) -> bytes:
    found = unpack(pack(HEADER, body))
    out = bytearray(size)
    codec.decode(found, memoryview(body.data), wanted, memoryview(out))
    return bytes(out)


@given(
    st.binary(max_size=300).map(lambda data: data * 7),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, KEY]),
)
def test_a_payload_comes_back(payload: bytes, level: int | None, item: int, key: bytes | None) -> None:
    codec = Codec(compression=level, item_size=item, key=key)
    body = encoded(codec, payload)
    assert decoded(codec, body, len(payload)) == payload
    reader = Codec(key=key)  # how it was compressed is in the block, not in the reader's options
    assert decoded(reader, body, len(payload)) == payload


def test_halves_of_floats_compress_better_side_by_side() -> None:
    values = np.linspace(-1, 1, 20_000, dtype=np.float16).tobytes()
    assert len(encoded(Codec(1, 2), values).data) < 0.6 * len(encoded(Codec(1, 1), values).data)


def test_what_does_not_compress_stays_raw() -> None:
    noise = np.random.default_rng(0).bytes(10_000)
    assert encoded(Codec(compression=1), noise).coding == Coding.RAW


def test_two_encryptions_of_one_block_differ() -> None:
    assert encoded(Codec(key=KEY), b"x" * 100).data != encoded(Codec(key=KEY), b"x" * 100).data


def test_an_encrypted_body_is_bound_to_its_block_and_key() -> None:
    body = encoded(Codec(key=KEY), b"x" * 100)
    other = BlockHeader(b"j" * 32, HEADER.parent, HEADER.own, HEADER.tokens)
    moved = unpack(pack(other, body))
    for codec, found in ((Codec(key=KEY), moved), (Codec(key=b"y" * 32), unpack(pack(HEADER, body)))):
        with pytest.raises(BadBlockError) as caught:
            codec.decode(found, body.data, HEADER, memoryview(bytearray(100)))
        assert caught.value.reason == DropReason.UNDECODABLE


def test_token_ids_in_an_encrypted_body_are_compared() -> None:
    other = BlockHeader(HEADER.identity, HEADER.parent, HEADER.own, b"\1" + HEADER.tokens[1:])
    with pytest.raises(BadBlockError) as caught:
        decoded(Codec(key=KEY), encoded(Codec(key=KEY), b"x" * 100), 100, other)
    assert caught.value.reason == DropReason.WRONG_BLOCK


@pytest.mark.parametrize("codec", [Codec(), Codec(compression=1), Codec(key=KEY)])
def test_another_size_is_refused(codec: Codec) -> None:
    body = encoded(codec, b"x" * 100)
    for size in (0, 99, 101):
        with pytest.raises(BadBlockError) as caught:
            decoded(codec, body, size)
        assert caught.value.reason == DropReason.WRONG_SIZE


def bfloat16(values: Any) -> bytes:
    return (np.asarray(values, dtype=np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()


def floats(payload: bytes, dtype: str) -> Any:
    if dtype == "bfloat16":
        return (np.frombuffer(payload, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(payload, dtype=dtype).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("compression", [None, 1])
@pytest.mark.parametrize("key", [None, KEY])
def test_int8_halves_a_block_within_its_bound(dtype: Any, compression: int | None, key: bytes | None) -> None:
    values = np.random.default_rng(0).standard_normal(64 * 100).astype(np.float32)
    payload = bfloat16(values) if dtype == "bfloat16" else values.astype(dtype).tobytes()
    codec = Codec(compression, quantization=Quantization(dtype, 0.02), key=key)
    body = encoded(codec, payload)
    assert body.coding & Coding.QUANTIZED
    assert len(body.data) < 0.55 * len(payload)
    back, real = floats(decoded(Codec(key=key), body, len(payload)), dtype), floats(payload, dtype)
    assert 0 < np.sqrt(np.square(back - real).mean() / np.square(real).mean()) <= 0.02


@given(st.floats(0, 0.02), st.integers(0, 100))
def test_no_block_is_further_off_than_its_bound(bound: float, seed: int) -> None:
    dice = np.random.default_rng(seed)
    payload = (dice.standard_normal(640) * dice.choice([1, 1, 1, 50], 640)).astype(np.float32).tobytes()
    codec = Codec(quantization=Quantization("float32", bound))
    body = encoded(codec, payload)
    back, real = floats(decoded(codec, body, len(payload)), "float32"), floats(payload, "float32")
    assert np.sqrt(np.square(back - real).sum() / np.square(real).sum()) <= bound * 1.0001
    assert body.coding & Coding.QUANTIZED or (back == real).all()


@pytest.mark.parametrize("payload", [b"", b"x" * 255, b"x" * 4 * 63, np.full(64, np.nan, "<f4").tobytes()])
def test_what_int8_cannot_hold_stays_exact(payload: bytes) -> None:
    codec = Codec(quantization=Quantization("float32", 1.0))
    body = encoded(codec, payload)
    assert body.coding == Coding.RAW
    assert decoded(codec, body, len(payload)) == payload


def test_zeros_and_values_too_small_for_a_scale_are_exact() -> None:
    codec = Codec(quantization=Quantization("float32", 0.01))
    zeros = bytes(4 * 64)
    assert decoded(codec, encoded(codec, zeros), len(zeros)) == zeros
    tiny = np.full(64, 1e-44, "<f4").tobytes()  # no scale is small enough for these
    assert decoded(codec, encoded(codec, tiny), len(tiny)) == tiny


@given(st.binary(max_size=200))
def test_a_foreign_int8_form_is_refused(data: bytes) -> None:
    with pytest.raises(BadBlockError):
        dequantized(memoryview(b"\7" + data))
