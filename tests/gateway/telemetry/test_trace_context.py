"""Which trace a request belongs to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.transport.trace_context import NO_TRACE, client_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_a_trace_is_carried_on_as_it_came() -> None:
    headers = {b"traceparent": PARENT.encode(), b"tracestate": b"vendor=1,other=2"}
    found = client_trace(headers)
    assert found.trace_id == TRACE
    assert found.headers == {"traceparent": PARENT, "tracestate": "vendor=1,other=2"}


def test_later_versions_may_have_more_behind() -> None:
    later = f"cc-{PARENT[3:]}-what-is-new"
    assert client_trace({b"traceparent": later.encode()}).headers == {"traceparent": later}


@pytest.mark.parametrize(
    "parent",
    [
        "",
        TRACE,
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        f"{PARENT}-more",
        f"{PARENT}\r\nx: y",
    ],
)
def test_what_is_no_trace_is_dropped_with_its_state(parent: str) -> None:
    assert client_trace({b"traceparent": parent.encode(), b"tracestate": b"a=1"}) == NO_TRACE


def test_a_state_without_end_is_not_carried() -> None:
    headers = {b"traceparent": PARENT.encode(), b"tracestate": b"a" * 5000}
    assert client_trace(headers).headers == {"traceparent": PARENT}


@given(st.binary(max_size=80))
def test_any_bytes_are_taken(parent: bytes) -> None:
    found = client_trace({b"traceparent": parent})
    assert found == NO_TRACE or found.headers["traceparent"].encode("latin-1") == parent.strip()
