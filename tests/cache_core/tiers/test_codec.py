"""Whatever a codec does to a payload, it undoes; what is lossy stays within its bound."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.block_header import BadBlockError, BlockHeader, Body, Coding, pack, unpack
from cache_core.drop_reason import DropReason
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


FORMS = pytest.mark.parametrize("form", ["int8", "fp8"])


@FORMS
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("compression", [None, 1])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_byte_an_element_halves_a_block_within_its_bound(
    form: Any, dtype: Any, compression: int | None, key: bytes | None
) -> None:
    values = np.random.default_rng(0).standard_normal(64 * 100).astype(np.float32)
    payload = bfloat16(values) if dtype == "bfloat16" else values.astype(dtype).tobytes()
    codec = Codec(compression, quantization=Quantization(dtype, 0.03, form=form), key=key)
    body = encoded(codec, payload)
    assert body.coding & Coding.QUANTIZED
    assert len(body.data) < 0.55 * len(payload)
    back, real = floats(decoded(Codec(key=key), body, len(payload)), dtype), floats(payload, dtype)
    assert 0 < np.sqrt(np.square(back - real).mean() / np.square(real).mean()) <= 0.03


@given(st.floats(0, 0.04), st.integers(0, 100), st.sampled_from(["int8", "fp8"]))
def test_no_block_is_further_off_than_its_bound(bound: float, seed: int, form: Any) -> None:
    dice = np.random.default_rng(seed)
    payload = (dice.standard_normal(640) * dice.choice([1, 1, 1, 50], 640)).astype(np.float32).tobytes()
    codec = Codec(quantization=Quantization("float32", bound, form=form))
    body = encoded(codec, payload)
    back, real = floats(decoded(codec, body, len(payload)), "float32"), floats(payload, "float32")
    assert np.sqrt(np.square(back - real).sum() / np.square(real).sum()) <= bound * 1.0001
    assert body.coding & Coding.QUANTIZED or (back == real).all()
    assert codec.outcome(HEADER, body) == ("quantized" if body.coding & Coding.QUANTIZED else "kept_exact")


@FORMS
@pytest.mark.parametrize("payload", [b"", b"x" * 255, b"x" * 4 * 63, np.full(64, np.nan, "<f4").tobytes()])
def test_what_a_byte_cannot_hold_stays_exact(form: Any, payload: bytes) -> None:
    codec = Codec(quantization=Quantization("float32", 0.9, form=form))
    body = encoded(codec, payload)
    assert codec.outcome(HEADER, body) == "kept_exact"
    assert body.coding == Coding.RAW
    assert decoded(codec, body, len(payload)) == payload


@FORMS
def test_zeros_and_values_too_small_for_a_scale_are_exact(form: Any) -> None:
    codec = Codec(quantization=Quantization("float32", 0.01, form=form))
    zeros = bytes(4 * 64)
    assert decoded(codec, encoded(codec, zeros), len(zeros)) == zeros
    tiny = np.full(64, 1e-44, "<f4").tobytes()  # no scale is small enough for these
    assert decoded(codec, encoded(codec, tiny), len(tiny)) == tiny


def test_small_values_beside_large_ones_are_kept_by_fp8_and_lost_by_int8() -> None:
    values = np.where(np.arange(640) % 64 == 0, 100.0, 0.1).astype("<f4")
    small = values < 1
    for form, far_off in (("int8", True), ("fp8", False)):
        codec = Codec(quantization=Quantization("float32", 0.05, form=form))  # type: ignore[arg-type]
        back = floats(decoded(codec, encoded(codec, values.tobytes()), values.nbytes), "float32")
        assert bool(np.abs(back[small] - 0.1).max() > 0.05) is far_off


def test_another_state_than_keys_and_values_is_never_quantized() -> None:
    codec = Codec(quantization=Quantization("float32", 0.5))
    state = BlockHeader(HEADER.identity, HEADER.parent, HEADER.own, HEADER.tokens, group=1)
    payload = np.linspace(-1, 1, 640, dtype="<f4").tobytes()
    assert codec.encode(HEADER, memoryview(payload)).coding == Coding.QUANTIZED
    body = codec.encode(state, memoryview(payload))
    assert (body.coding, codec.outcome(state, body)) == (Coding.RAW, None)


@pytest.mark.parametrize(
    "changes", [{"max_error": -0.1}, {"max_error": 1.0}, {"group": 0}, {"group": 1 << 16}]
)
def test_a_bound_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no bound"):
        Quantization(**{"dtype": "float32", "max_error": 0.1, **changes})


def test_what_identities_say_differs_by_form_group_and_bound() -> None:
    choices = itertools.product((0.01, 0.02), (32, 64), ("int8", "fp8"))
    every = [Quantization("float32", error, group, form) for error, group, form in choices]  # type: ignore[arg-type]
    assert len({one.stated for one in every}) == len(every)


@given(st.binary(max_size=200), st.sampled_from([b"\7", b"\0\2"]))
def test_a_foreign_form_is_refused(data: bytes, start: bytes) -> None:
    with pytest.raises(BadBlockError):
        dequantized(memoryview(start + data))
