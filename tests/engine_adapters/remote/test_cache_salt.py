"""A client's own salt never leaves its tenant's part of the cache."""

import json

from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.remote.cache_salt import combined, salt_values
from engine_adapters.remote.relay import RelayRequest

salts = st.text(max_size=8)


def values(body: dict, salt: str | None) -> dict:
    request = RelayRequest("r", "chat", json.dumps(body).encode(), False, "m", salt=salt)
    return {key: json.loads(value) for key, value in salt_values(request).items()}


def test_without_a_tenant_s_salt_nothing_is_set():
    assert values({"cache_salt": "mine"}, None) == {}


def test_a_tenant_s_salt_is_set():
    assert values({}, "tenant") == {"cache_salt": "tenant"}


@given(a=st.tuples(salts, salts), b=st.tuples(salts, salts))
def test_two_pairs_meet_only_where_they_are_equal(a: tuple[str, str], b: tuple[str, str]):
    assert (combined(*a) == combined(*b)) == (a == b)


@given(tenant=salts, own=salts | st.integers() | st.lists(salts))
def test_a_combined_salt_is_no_tenant_s_own(tenant: str, own: object):
    assert values({"cache_salt": own}, tenant)["cache_salt"] not in (tenant, own)
