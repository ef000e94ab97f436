"""Conversations' memory in the process that workers share; while that is away, in this one."""

import logging
from typing import Any

from canon.memory import LocalStore, MemoryStore
from engine_adapters.rpc.blocking import BlockingClient
from engine_adapters.rpc.errors import RpcError

log = logging.getLogger("kvgate.workers")

_TIMEOUT_S = 0.5


class SharedMemory(MemoryStore):
    """Any thread's. `alone` takes over while nobody answers: less is found there, and nothing wrong."""

    def __init__(self, client: BlockingClient, alone: LocalStore) -> None:
        self._client = client
        self._alone = alone
        self._away = False

    @classmethod
    def at(cls, path: str, alone: LocalStore) -> "SharedMemory":
        """Reached at a socket."""
        return cls(BlockingClient(path, _TIMEOUT_S), alone)

    def get(self, key: bytes) -> bytes | None:
        there, found = self._ask("memory.get", key)
        return found if there else self._alone.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if not self._ask("memory.put", key, value)[0]:
            self._alone.put(key, value)

    def compare_and_put(self, key: bytes, expected: bytes | None, value: bytes) -> bool:
        there, done = self._ask("memory.compare_and_put", key, expected, value)
        return bool(done) if there else self._alone.compare_and_put(key, expected, value)

    def forget(self, prefix: bytes) -> int:
        here = self._alone.forget(prefix)
        there, count = self._ask("memory.forget", prefix)
        return here + (int(count) if there else 0)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _ask(self, name: str, *args: Any) -> tuple[bool, Any]:
        try:
            answer = self._client.call(name, *args)
        except RpcError as error:
            if not self._away:
                fields = {"error": str(error)}
                log.error("THE SHARED MEMORY IS AWAY: this worker remembers alone", extra={"fields": fields})  # noqa: TRY400
            self._away = True
            return False, None
        if self._away:
            log.warning("the shared memory is back")
        self._away = False
        return True, answer
