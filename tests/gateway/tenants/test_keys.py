"""Keys are kept as hashes, end when they say, and are found whoever they belong to."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tenants.keys import PREFIX, KeyHash, KeyRing, digest_of, expiry_of, hash_of, new_key
from tests.gateway.tenants.people import whose


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def test_a_new_key_is_another_one_each_time_and_fits_into_a_header() -> None:
    keys = {new_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(key.startswith(PREFIX) and key.isascii() and " " not in key and len(key) > 40 for key in keys)


def test_the_hash_of_a_key_is_read_as_it_was_written() -> None:
    assert digest_of(hash_of("k")) == digest("k")
    assert digest_of(hash_of("k").removeprefix("sha256:").upper()) == digest("k")


@pytest.mark.parametrize(
    "text", ["", "kvg_a-key-itself", "sha256:", "sha256:" + "a" * 63, "a" * 65, "md5:" + "a" * 64]
)
def test_what_is_no_hash_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="SHA-256") as refused:
        digest_of(text)
    assert not text or text not in str(refused.value)


def test_a_tenant_may_have_several_keys_and_each_is_its_own() -> None:
    ring = KeyRing(KeyHash(name, digest(key)) for name, key in [("a", "1"), ("a", "2"), ("b", "3")])
    assert [whose([ring], key) for key in (b"1", b"2", b"3", b"4", b"")] == ["a", "a", "b", None, None]


def test_a_key_ends_when_it_says() -> None:
    now = [100.0]
    ring = KeyRing([KeyHash("a", digest("k"), expires=200.0)], clock=lambda: now[0])
    assert whose([ring], b"k") == "a"
    now[0] = 200.0
    assert whose([ring], b"k") is None


def test_no_key_has_the_hash_of_zeros() -> None:
    assert KeyRing([]).of(bytes(32)) is None


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_only_the_very_same_key_is_found(kept: bytes, asked: bytes) -> None:
    ring = KeyRing([KeyHash("a", hashlib.sha256(kept).digest())])
    assert (whose([ring], asked) == "a") is (kept == asked)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1970-01-02", 86400.0), ("1970-01-01T01:00:00", 3600.0), ("1970-01-01T01:00:00+01:00", 0.0)],
)
def test_an_end_without_a_zone_is_utc(text: str, seconds: float) -> None:
    assert expiry_of(text) == seconds


def test_an_end_that_is_no_date_is_refused() -> None:
    with pytest.raises(ValueError, match="2027-01-31"):
        expiry_of("soon")
