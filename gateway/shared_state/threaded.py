"""Calls to the server from threads, which wait for them."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import redis
from redis.exceptions import NoScriptError

from gateway.shared_state.circuit import Circuit
from gateway.shared_state.clients import ANY, AWAY, threaded_client
from gateway.shared_state.errors import AwayError, SharedStateError
from gateway.shared_state.options import RedisOptions
from gateway.shared_state.scripts import Script

Result = TypeVar("Result")


class ThreadedCalls:
    """Each raises AwayError, at once where that is known, and SharedStateError where the server refuses it."""

    def __init__(self, options: RedisOptions, circuit: Circuit) -> None:
        self._client = threaded_client(options)
        self._circuit = circuit

    def execute(self, *command: str | bytes | int) -> Any:
        """What one command returns."""
        return self._tried(lambda client: _asked(client, *command))

    def run(self, script: Script, keys: list[bytes], args: list[bytes | int]) -> Any:
        """What a script returns."""
        return self._tried(lambda client: _evaluated(client, script, [len(keys), *keys, *args]))

    def keys(self, pattern: bytes) -> Iterator[list[bytes]]:
        """Keys that match, some at a time; goes through all keys of the server."""
        cursor = 0
        while True:
            cursor, found = self._tried(
                lambda client, cursor=cursor: _asked(  # type: ignore[misc]
                    client, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000
                )
            )
            if found:
                yield found
            if not int(cursor):
                return

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _tried(self, call: Callable[["redis.Redis"], Result]) -> Result:
        if self._circuit.away:
            raise AwayError("the shared state is away")
        try:
            return call(self._client)
        except AWAY as error:
            self._circuit.failed(error)
            raise AwayError(f"the shared state is away: {error}") from error
        except ANY as error:
            raise SharedStateError(str(error)) from error


def _evaluated(client: "redis.Redis", script: Script, args: list[bytes | int]) -> Any:
    try:
        return _asked(client, "EVALSHA", script.sha, *args)
    except NoScriptError:
        return _asked(client, "EVAL", script.source, *args)


def _asked(client: "redis.Redis", *command: str | bytes | int) -> Any:
    return client.execute_command(*command)  # type: ignore[no-untyped-call]
