"""The part of a body that is for kvgate alone: `kvgate`, an object beside the fields of the OpenAI API."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import orjson
from msgspec.structs import replace
from pydantic import ConfigDict, Field

from canon.errors import JsonRefusedError
from canon.lossless import read
from engine_adapters.base import Retention
from gateway.errors import invalid
from gateway.settings import GatewaySettings
from gateway.transport.incoming import Incoming
from gateway.wire.validation import WireModel

NAME = "kvgate"
_LONGEST = 4096  # bytes of its value
_MOST_PLACES = 8  # in a body, where the name stands in quotation marks
_PRIORITIES: dict[int, Literal[-1, 0, 1]] = {-1: -1, 0: 0, 1: 1}

Seconds = Annotated[float, Field(ge=0)]


class KvgateFields(WireModel):
    """Wishes for the prefix that a request leaves in the cache. What is misspelled would be without effect: refused."""

    model_config = ConfigDict(extra="forbid")

    pin_ttl: Seconds | None = None  # keep it for so long after the answer, as an agent's next turn comes
    ttl: Seconds | None = None  # not used again by then, it goes before all others
    priority: Annotated[int, Field(ge=-1, le=1)] | None = None  # -1 goes before all others, 1 after them


def check_extension(fields: KvgateFields | None, settings: GatewaySettings) -> None:
    """Refuse what is longer than the operator allows; raises ApiError 400."""
    if fields is not None and (fields.pin_ttl or 0) > settings.longest_pin_s:
        raise invalid(
            f"A prefix can be pinned for {settings.longest_pin_s:g} seconds at most.", f"{NAME}.pin_ttl"
        )


def retention(fields: KvgateFields | None) -> Retention | None:
    """The wishes, or None where there are none."""
    if fields is None:
        return None
    wishes = Retention(fields.pin_ttl or 0.0, fields.ttl, _PRIORITIES[fields.priority or 0])
    return None if wishes == Retention() else wishes


def without_extension(incoming: Incoming) -> Incoming:
    """The request as it goes further: without that field, every other byte as it came.

    Raises:
        ApiError: 400, the field cannot be cut out.
    """
    if NAME not in incoming.body:
        return incoming
    body = {name: value for name, value in incoming.body.items() if name != NAME}
    for raw in _cuts(incoming.raw):
        if _loads(raw) == body:
            return replace(incoming, body=body, raw=raw)
    raise invalid(f"The field '{NAME}' must be spelled plainly, and stand in the body once.", NAME)


def _cuts(raw: bytes) -> Iterator[bytes]:
    """`raw` without one member, for each place where its name stands: one of them is that of the outermost object."""
    quoted = f'"{NAME}"'.encode()
    at = -1
    for _ in range(_MOST_PLACES):
        at = raw.find(quoted, at + 1)
        if at < 0:
            return
        end = _end_of_value(raw, at + len(quoted))
        if end is None:
            continue
        before, after = raw[:at].rstrip(), raw[end:].lstrip()
        if after.startswith(b","):
            yield before + after[1:]
        elif before.endswith(b","):
            yield before[:-1] + after
        else:
            yield before + after


def _end_of_value(raw: bytes, at: int) -> int | None:
    """Where the value behind a name and a colon ends; None: there is none."""
    rest = raw[at:].lstrip()
    if not rest.startswith(b":"):
        return None
    start = len(raw) - len(rest) + 1
    # The value is a small object. What is longer is no `kvgate` field that was valid.
    window = raw[start : start + _LONGEST].decode("utf-8", errors="replace")
    try:
        _, end = read(window)
    except JsonRefusedError:
        return None
    return start + len(window[:end].encode())


def _loads(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
