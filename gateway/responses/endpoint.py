"""Routes to one response by its id, answered by the replica that keeps it."""

import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.types import Receive, Scope, Send

from engine_adapters.errors import EngineNotReadyError
from engine_adapters.remote.relay import RelayRequest, Rewrites, Route
from gateway.errors import ApiError, invalid
from gateway.jobs import JobContext
from gateway.relay.begun import Held
from gateway.relay.remote import Remote
from gateway.relay.request import error_event
from gateway.relay.usage import usage_rewrite
from gateway.replicas.pool import EnginePool
from gateway.responses.bindings import Binding
from gateway.responses.kept import not_kept
from gateway.surface.admission import Admission
from gateway.surface.endpoint import Finish, GenerationEndpoint
from gateway.surface.routes import has_none
from gateway.transport.keepalive import kept_alive
from gateway.transport.record import RequestRecord
from gateway.transport.sse import EventStream

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
_LONGEST_QUERY: Final = 4096  # bytes


class KeptResponseEndpoint:
    """An ASGI app for one of these routes; the path holds the id."""

    def __init__(self, route: Route, context: JobContext, admission: Admission) -> None:
        self._made = (route, context, admission)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target, query = scope["path_params"]["id"], scope["query_string"]
        await _OneResponse(*self._made, target, query)(scope, receive, send)


class _OneResponse(GenerationEndpoint):
    """The same for one request."""

    def __init__(
        self, route: Route, context: JobContext, admission: Admission, target: str, query: bytes
    ) -> None:
        super().__init__(route, context, admission)
        self._target = target
        self._query = query

    async def _dispatch(
        self,
        raw: bytes,
        headers: Mapping[bytes, bytes],
        send: Send,
        stream: EventStream,
        record: RequestRecord,
    ) -> Finish:
        asked = _query(self._query)
        binding = await self._binding(record)
        pool, remote = self._keeper(binding)
        if self._route not in pool.routes:
            raise ApiError(404, has_none(pool.name, self._route, pool.routes), code="unsupported_route")
        record.engine, record.replica = pool.name, remote.replica if len(pool.replicas) > 1 else None
        request = RelayRequest(
            request_id=record.id,
            route=self._route,
            body=b"",
            stream=("stream", "true") in asked,
            model="",
            salt=record.tenant.salt,
            tenant=record.tenant.name,
            headers={"x-request-id": record.id, **record.trace.headers},
            parsed={},
            target=self._target,
            query=urlencode(asked),
            names=remote.shown(record.tenant),
        )
        return await self._relay(request, remote, send, stream, record)

    async def _relay(
        self, request: RelayRequest, remote: Remote, send: Send, stream: EventStream, record: RequestRecord
    ) -> Finish:
        async with AsyncExitStack() as stack:
            if request.stream:
                await stack.enter_async_context(kept_alive(stream, self._settings.keepalive_s))
            rewrites = Rewrites(usage_rewrite(None), error_event(self._route))
            held = Held()
            stack.push_async_callback(held.aclose)
            relay = remote.engine.relay(request, rewrites)
            answer = await relay.__aenter__()
            held.entered(relay)
            begun = await held.begin(answer, remote.name, stream=request.stream)
            told = partial(self._forget, record) if self._route == "response_delete" else None
            return await self._relayed.pass_on(begun, None, send, stream, record, told)

    async def _forget(self, record: RequestRecord) -> None:
        await self._context.responses.forget(record.tenant.name, self._target)

    async def _binding(self, record: RequestRecord) -> Binding:
        binding = None
        if _ID.fullmatch(self._target):
            binding = await self._context.responses.find(record.tenant.name, self._target)
        if binding is None:
            raise not_kept(self._target, None)
        return binding

    def _keeper(self, binding: Binding) -> tuple[EnginePool, Remote]:
        """Raises EngineNotReadyError where the replica is not among those there now: it may come back."""
        for pool in self._context.served.pools:
            if pool.name == binding.engine:
                for remote in pool.replicas:
                    if remote.replica == binding.replica:
                        return pool, remote
        raise EngineNotReadyError(
            f"The engine {binding.engine} has the replica no more that keeps this response."
        )


def _query(given: bytes) -> list[tuple[str, str]]:
    """What the client asks for beside the id, read and not just passed on; raises ApiError 400."""
    if len(given) > _LONGEST_QUERY:
        raise invalid(f"The query is longer than {_LONGEST_QUERY} bytes.")
    try:
        return parse_qsl(given.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise invalid("The query is no UTF-8 text in URL encoding.") from None
