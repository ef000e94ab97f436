"""Bindings that several processes or gateways share: in the store where they keep what conversations were sent."""

import asyncio
import hashlib
from typing import Final

import orjson

from canon.memory import MemoryStore
from gateway.responses.bindings import LONGEST_ID, Binding

_PREFIX: Final = b"response:"  # no record of a conversation has it


class SharedBindings:
    """Whatever bounds that store has count here, too: a response may be forgotten at any time, and is then 404.

    Its calls block, and are made on threads.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def bind(self, tenant: str, response: str, binding: Binding) -> None:
        if len(response) > LONGEST_ID:
            return
        record = orjson.dumps([tenant, response, binding.engine, binding.replica])
        await asyncio.to_thread(self._store.put, _key(tenant, response), record)

    async def find(self, tenant: str, response: str) -> Binding | None:
        record = await asyncio.to_thread(self._store.get, _key(tenant, response))
        if not record:
            return None
        whose, name, engine, replica = orjson.loads(record)
        return Binding(engine, replica) if (whose, name) == (tenant, response) else None

    async def forget(self, tenant: str, response: str) -> None:
        await asyncio.to_thread(self._store.put, _key(tenant, response), b"")

    async def forget_tenant(self, tenant: str) -> int:
        return await asyncio.to_thread(self._store.forget, _of(tenant))


def _key(tenant: str, response: str) -> bytes:
    return _of(tenant) + hashlib.sha256(response.encode()).digest()


def _of(tenant: str) -> bytes:
    return _PREFIX + hashlib.sha256(tenant.encode()).digest()[:16]
