"""Clients of the server, made alike: bounded in time, and never trying again by themselves."""

from typing import Any
from urllib.parse import urlsplit

import redis
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    BusyLoadingError,
    MasterDownError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from gateway.shared_state.options import RedisOptions

# The server is not there, or will not work for now, whatever it is asked.
AWAY: tuple[type[Exception], ...] = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    MasterDownError,
    TryAgainError,
    OSError,
)
ANY: tuple[type[Exception], ...] = (RedisError, OSError)

THREADS = 64  # connections of the client for threads
_PROBE_TIMEOUT_S = 1.0  # nobody waits for it


def threaded_client(options: RedisOptions) -> "redis.Redis":
    """For calls from any thread."""
    return redis.Redis(
        connection_pool=redis.BlockingConnectionPool.from_url(
            options.url,
            max_connections=THREADS,
            timeout=options.timeout_s,
            retry=Retry(NoBackoff(), 0),
            **_alike(options, options.timeout_s),
        )
    )


def probing_client(options: RedisOptions) -> "redis.Redis":
    """For whoever looks whether the server is back."""
    return redis.Redis.from_url(
        options.url, retry=Retry(NoBackoff(), 0), **_alike(options, max(_PROBE_TIMEOUT_S, options.timeout_s))
    )


def loop_client(options: RedisOptions) -> "aioredis.Redis":
    """For one event loop, and one call at a time. Without a time limit of its own: see `Pipe`."""
    return aioredis.Redis.from_url(
        options.url, retry=AsyncRetry(NoBackoff(), 0), **_alike(options, None), max_connections=1
    )


def where(url: str) -> str:
    """The server, as the log names it: without what stands in front of an @."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _alike(options: RedisOptions, timeout_s: float | None) -> dict[str, Any]:
    password = {} if options.password is None else {"password": options.password}
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        "client_name": "kvgate",
        "health_check_interval": 0,
        **password,
    }
