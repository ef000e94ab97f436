"""One digest says whether KV bytes are interchangeable."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache_core.identity import CacheIdentity, LayerShape, digest_of, encoded

FIELDS: dict[str, Any] = {
    "weights_digest": b"w" * 32,
    "update_epoch": b"e" * 32,
    "tokenizer_digest": b"t" * 32,
    "template_digest": b"p" * 32,
    "weight_dtype": "bfloat16",
    "kv_dtype": "float16",
    "layers": (LayerShape(3, 64, 64), LayerShape(3, 64, 32)),
    "position": {"rope_type": "default", "rope_theta": 10000.0},
    "block_size": 16,
    "state_format": "kv 1",
}
OTHERS: dict[str, Any] = {
    "weights_digest": b"x" * 32,
    "update_epoch": b"x" * 32,
    "tokenizer_digest": b"x" * 32,
    "template_digest": b"x" * 32,
    "weight_dtype": "float16",
    "kv_dtype": "bfloat16",
    "layers": (LayerShape(3, 64, 32), LayerShape(3, 64, 64)),
    "position": {"rope_type": "default", "rope_theta": 10000},
    "block_size": 32,
    "state_format": "kv 2",
    "parallel_rank": 1,
    "parallel_size": 2,
    "lora_digest": b"l" * 32,
    "salt": b"tenant",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_same_fields_give_the_same_identity() -> None:
    again = dict(FIELDS, position=dict(reversed(FIELDS["position"].items())), layers=list(FIELDS["layers"]))
    assert CacheIdentity(**FIELDS) == CacheIdentity(**again)
    assert len(CacheIdentity(**FIELDS).digest) == 32


@pytest.mark.parametrize("field", OTHERS)
def test_every_field_counts(field: str) -> None:
    assert CacheIdentity(**{**FIELDS, field: OTHERS[field]}) != CacheIdentity(**FIELDS)


def test_every_field_is_tried_above() -> None:
    assert set(OTHERS) == {field.name for field in dataclasses.fields(CacheIdentity) if field.init}


def test_no_field_can_stand_in_for_another() -> None:
    contents = [field for field in FIELDS if isinstance(FIELDS[field], bytes)] + ["lora_digest", "salt"]
    base = {**FIELDS, **dict.fromkeys(contents, b"")}
    digests = {CacheIdentity(**{**base, field: b"same"}).digest for field in contents}
    assert len(digests) == len(contents)
    assert CacheIdentity(**{**base, "lora_digest": None}) != CacheIdentity(**{**base, "lora_digest": b""})


def shape(value: object) -> object:
    """The value with its types, so that 1, True and 1.0 differ."""
    if isinstance(value, list):
        return ("list", *map(shape, value))
    if isinstance(value, dict):
        return ("dict", *sorted((key, repr(shape(item))) for key, item in value.items()))
    return type(value).__name__, repr(value)


@given(VALUES, VALUES)
def test_different_values_never_have_the_same_bytes(a: Any, b: Any) -> None:
    assert (encoded(a) == encoded(b)) == (shape(a) == shape(b))
    assert not (encoded(a) != encoded(b) and encoded(b).startswith(encoded(a))), "one begins like the other"


def test_a_digest_has_a_purpose() -> None:
    assert digest_of("a", "b") != digest_of("ab", "") != digest_of("", "ab")


def test_what_has_no_tag_is_refused() -> None:
    with pytest.raises(TypeError):
        encoded(object())  # type: ignore[arg-type]
