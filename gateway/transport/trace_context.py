"""The client's trace, as W3C Trace Context has it in `traceparent` and `tracestate`."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
_NOBODY = (b"0" * 32, b"0" * 16)
_LONGEST_STATE = 4096  # bytes; the standard asks for at least 512 to be carried on


class TraceContext(msgspec.Struct, frozen=True):
    """Which trace a request belongs to."""

    trace_id: str | None = None  # 32 hex digits; None: to none that is known
    headers: Mapping[str, str] = MappingProxyType({})  # to send on with it
    span: object | None = None  # of who follows it here


NO_TRACE = TraceContext()


def client_trace(headers: Mapping[bytes, bytes]) -> TraceContext:
    """The client's trace, to be carried on as it came; what is no valid `traceparent` is dropped."""
    parent = headers.get(b"traceparent")
    if parent is None:
        return NO_TRACE
    parent = parent.strip()
    match = _PARENT.fullmatch(parent)
    if match is None or match[1] == _NOBODY[0] or match[2] == _NOBODY[1]:
        return NO_TRACE
    # Only its first version is known to end here.
    if parent.startswith(b"00") and len(parent) != 55:
        return NO_TRACE
    carried = {"traceparent": parent.decode("latin-1")}
    state = headers.get(b"tracestate", b"").strip()
    if state and len(state) <= _LONGEST_STATE:
        carried["tracestate"] = state.decode("latin-1")
    return TraceContext(match[1].decode(), carried)
