"""The public keys that tokens are signed with, from a file or from the one URL that the operator configured."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson

from gateway.errors import ApiError
from gateway.plain_file import read_plain

log = logging.getLogger("kvgate.gateway")

_LARGEST = 1 << 20  # bytes
_WAIT_S = 5.0
_FRESH_S = 600.0  # keys are asked for again after this
_PAUSE_S = 10.0  # between two askings, however many tokens with unknown keys come
_STALE_S = 86_400.0  # what was found so long ago counts no more, if nothing newer can be had
_SECRET = frozenset({"oct"})  # kinds of keys whose holder could sign as well
_MOST = 100  # keys


class JwksError(Exception):
    """There are no usable keys; the message says why."""


@dataclass(frozen=True, slots=True)
class _Found:
    keys: Mapping[str, Mapping[str, Any]]  # by their ids; "" where one has none
    at: float  # seconds of the monotonic clock


class JsonWebKeys:
    """Keys by id. Used from one event loop; asks once at a time, and goes nowhere but where it was told."""

    def __init__(self, source: Path | str, clock: Callable[[], float] = time.monotonic) -> None:
        """`source`: a file, or an http(s) URL."""
        self._source = source
        self._clock = clock
        self._found: _Found | None = None
        self._asked: float | None = None
        self._lock = asyncio.Lock()

    async def key(self, kid: str | None) -> Mapping[str, Any] | None:
        """The key with this id; None for the only one there is; None: there is none.

        Raises:
            ApiError: 503, no keys can be had.
        """
        found = await self._keys(lacking=kid)
        if kid is None:
            return next(iter(found.values())) if len(found) == 1 else None
        return found.get(kid)

    async def _keys(self, lacking: str | None) -> Mapping[str, Mapping[str, Any]]:
        if not self._serves(lacking):
            async with self._lock:
                if not self._serves(lacking) and self._may_ask():
                    await self._ask()
        found = self._found
        if found is None or self._clock() - found.at > _STALE_S:
            raise ApiError(
                503,
                "Tokens cannot be checked now: their keys cannot be had.",
                type_="service_unavailable",
                code="authentication_unavailable",
                headers={"retry-after": str(int(_PAUSE_S))},
            )
        return found.keys

    def _serves(self, kid: str | None) -> bool:
        found = self._found
        return (
            found is not None
            and self._clock() - found.at < _FRESH_S
            and (kid is None or kid in found.keys or not self._may_ask())
        )

    def _may_ask(self) -> bool:
        return self._asked is None or self._clock() - self._asked >= _PAUSE_S

    async def _ask(self) -> None:
        self._asked = self._clock()
        try:
            self._found = _Found(read_keys(await self._text()), self._clock())
        except JwksError as error:
            log.warning("keys of tokens cannot be had", extra={"fields": {"reason": str(error)}})

    async def _text(self) -> bytes:
        if isinstance(self._source, Path):
            return await asyncio.to_thread(_of_file, self._source)
        try:
            # Neither proxies of the environment nor redirects: nobody but the configured host is asked.
            async with (
                httpx.AsyncClient(trust_env=False, timeout=_WAIT_S) as client,
                client.stream("GET", self._source) as answer,
            ):
                if answer.status_code != 200:
                    raise JwksError(f"{self._source} answers {answer.status_code}")
                text = b""
                async for chunk in answer.aiter_bytes():
                    text += chunk
                    if len(text) > _LARGEST:
                        raise JwksError(f"{self._source} answers with more than {_LARGEST} bytes")
                return text
        except httpx.HTTPError as error:
            raise JwksError(f"{self._source} does not answer: {type(error).__name__}") from error


def _of_file(file: Path) -> bytes:
    try:
        return read_plain(file, _LARGEST)
    except OSError as error:
        raise JwksError(f"{file} cannot be read: {error.strerror}") from error


def read_keys(text: bytes) -> Mapping[str, Mapping[str, Any]]:
    """Public keys for signatures by their ids; raises JwksError where it is no set of keys."""
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise JwksError("what is there is no JSON") from None
    listed = given.get("keys") if isinstance(given, dict) else None
    if not isinstance(listed, list):
        raise JwksError("what is there is no set of keys: it has no list called keys")
    return {
        str(key.get("kid", "")): key
        for key in listed[:_MOST]
        if isinstance(key, dict) and key.get("kty") not in _SECRET and key.get("use", "sig") == "sig"
    }
