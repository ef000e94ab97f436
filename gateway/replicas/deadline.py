"""How long one request may take, as its client and the operator say."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass

from gateway.errors import ApiError, invalid

HEADER = "x-kvgate-timeout"  # seconds for the whole request; also what engines are told
_HEADER = HEADER.encode()
_SDK = b"x-stainless-read-timeout"  # how long OpenAI's SDK waits for a byte
_LONGEST_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the event loop's clock; None: whenever it is done."""

    at: float | None = None

    @property
    def left_s(self) -> float | None:
        """Seconds, never under 0."""
        return None if self.at is None else max(0.0, self.at - asyncio.get_running_loop().time())

    def kept(self) -> AbstractAsyncContextManager[None]:
        """Ends its block when the moment has come; raises ApiError 504 then."""
        return _ANY_TIME if self.at is None else _until(self.at)


_ANY_TIME = nullcontext()


@asynccontextmanager
async def _until(at: float) -> AsyncIterator[None]:
    limit = asyncio.timeout_at(at)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise deadline_exceeded() from None


NO_DEADLINE = Deadline()


def deadline_of(
    headers: Mapping[bytes, bytes], *, stream: bool, elapsed_s: float, engine_s: float | None
) -> Deadline:
    """The nearest of what is said; raises ApiError 400 for a header that is no time.

    Args:
        headers: of the request, names in lower case.
        stream: whether the answer is one. What the SDK says is for the next byte, and streams are kept alive.
        elapsed_s: what the request has taken already.
        engine_s: what the operator lets a request of this engine take; None: as long as it likes.
    """
    stated = [engine_s, _stated(headers.get(_HEADER))]
    if not stream:
        stated.append(_lenient(headers.get(_SDK)))
    known = [seconds for seconds in stated if seconds is not None]
    if not known:
        return NO_DEADLINE
    return Deadline(asyncio.get_running_loop().time() + min(known) - elapsed_s)


def deadline_exceeded() -> ApiError:
    """HTTP 504: there is no time left."""
    message = "The request took longer than it may; what an engine did of it was cancelled."
    return ApiError(504, message, type_="timeout_error", code="deadline_exceeded")


def _stated(value: bytes | None) -> float | None:
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None:
        raise invalid(f"Invalid value for '{HEADER}': a number of seconds above 0.", HEADER, "invalid_value")
    return seconds


def _lenient(value: bytes | None) -> float | None:
    """The SDK writes `None` where it waits for ever."""
    return None if value is None else _seconds(value)


def _seconds(value: bytes) -> float | None:
    if len(value) > 32 or b"_" in value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return min(seconds, _LONGEST_S) if math.isfinite(seconds) and seconds > 0 else None
