"""One generation route as plain ASGI: accept, find who has the model, answer; whatever happens, engines are let go."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeAlias

from starlette.types import Receive, Scope, Send

from engine_adapters.errors import EngineError
from engine_adapters.remote.relay import Route
from gateway.errors import ApiError, ClientGoneError, GatewayError, StreamAbortedError, not_ready
from gateway.jobs import JobContext
from gateway.relay.answer import RelayedRoute
from gateway.replicas.deadline import deadline_of
from gateway.replicas.pool import EnginePool
from gateway.served import Found
from gateway.surface.admission import Admission
from gateway.surface.refusals import refusal
from gateway.surface.routes import LOCAL, NAMELESS, NO_ROW, has_none
from gateway.tenants.tenant import UNKNOWN, Tenant
from gateway.transport.answer import send_error
from gateway.transport.body import parse_object, read_body
from gateway.transport.disconnect import DisconnectGuard
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord, record_of
from gateway.transport.sse import EventStream

# Writes the last bytes of an answer.
Finish: TypeAlias = Callable[[], Awaitable[None]]

_RETRIES = re.compile(rb"[0-9]{1,4}")


class LocalAnswer(Protocol):
    """Answers from an engine in this process, which is found by the model in the body."""

    async def __call__(
        self, incoming: Incoming, send: Send, stream: EventStream, record: RequestRecord
    ) -> Finish:
        """All but the last bytes; raises ApiError or EngineError."""


class GenerationEndpoint:
    """An ASGI app for one route; `local` is None where engines in this process have no such route."""

    def __init__(
        self, route: Route, context: JobContext, admission: Admission, local: LocalAnswer | None = None
    ) -> None:
        self._route = route
        self._context = context
        self._settings = context.settings
        self._admission = admission
        self._local = local
        self._relayed = RelayedRoute(route, context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        record.route = None if self._route in NO_ROW else self._route
        headers = dict(scope["headers"])
        _note_client(headers, record)
        self._context.tracing.began(record, headers)
        try:
            record.tenant = UNKNOWN
            record.tenant = await self._context.tenants.authenticate(scope["headers"])
            with self._admission.enter() as ticket:
                raw = await self._read(headers, receive, ticket.hold, record)
                await self._answer(raw, headers, DisconnectGuard(receive, scope), send, record)
        except (ApiError, EngineError) as error:
            await send_error(send, refusal(error, record, self._settings.retry_after_s))

    async def _read(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        hold: Callable[[int], None],
        record: RequestRecord,
    ) -> bytes:
        largest = self._context.limits_of(record.tenant).max_body_bytes
        try:
            return await read_body(headers, receive, self._settings, hold, largest)
        except ApiError as error:
            if error.status == 413 and largest is not None:
                record.limited = "body"
            raise

    async def _answer(
        self,
        raw: bytes,
        headers: Mapping[bytes, bytes],
        guard: DisconnectGuard,
        send: Send,
        record: RequestRecord,
    ) -> None:
        stream = EventStream(send, self._settings.write_stall_s, named_errors=self._route == "messages")
        try:
            with guard:
                try:
                    finish = await self._dispatch(raw, headers, send, stream, record)
                except (ClientGoneError, StreamAbortedError):
                    raise
                except Exception as error:
                    if not stream.started:
                        raise
                    await stream.fail(refusal(error, record, self._settings.retry_after_s))
                    raise StreamAbortedError from error
        except asyncio.CancelledError:
            # Not the client: the server ends and has waited long enough. The task ends right after this answer.
            raise await self._cut(stream) from None
        # The last bytes go out with the guard gone: servers report a complete answer as a disconnect.
        await finish()

    async def _dispatch(
        self,
        raw: bytes,
        headers: Mapping[bytes, bytes],
        send: Send,
        stream: EventStream,
        record: RequestRecord,
    ) -> Finish:
        if self._local is None and not self._context.served.pools:
            raise self._has_none()
        threads = self._context.threads
        parsing = partial(parse_object, raw)
        body = parsing() if threads.parses_here(len(raw)) else await threads.parse(len(raw), parsing)
        began = time.perf_counter()
        try:
            found = self._found(body, record.tenant)
        finally:
            record.stages.took("route", began)
        incoming = Incoming(body, raw, headers, record.tenant, "" if found is None else found.model)
        pool = found.target if found is not None and isinstance(found.target, EnginePool) else None
        if pool is None and self._local is None:
            raise self._has_none()
        record.deadline = deadline_of(
            headers,
            stream=body.get("stream") is True,
            elapsed_s=time.perf_counter() - record.started,
            engine_s=None if pool is None else pool.policy.timeout_s,
        )
        async with self._context.limits.of(incoming, self._context.limits_of(record.tenant), record):
            if record.deadline.at is None:
                return await self._answered(incoming, pool, send, stream, record)
            async with record.deadline.kept():
                return await self._answered(incoming, pool, send, stream, record)

    def _answered(
        self,
        incoming: Incoming,
        pool: EnginePool | None,
        send: Send,
        stream: EventStream,
        record: RequestRecord,
    ) -> Awaitable[Finish]:
        if pool is not None:
            return self._relayed.answer(incoming, pool, send, stream, record)
        assert self._local is not None
        return self._local(incoming, send, stream, record)

    def _found(self, body: Mapping[str, Any], tenant: Tenant) -> Found | None:
        """Who has the body's model; None: whoever is in this process judges the body."""
        model, served = body.get("model"), self._context.served
        if model is None and self._route in NAMELESS:
            return served.only(tenant)
        if not isinstance(model, str) or not served.pools:
            return None
        return served.resolve(model, tenant)

    def _has_none(self) -> ApiError:
        """The answer where only engines in this process could have it; raises EngineNotReadyError before one is."""
        message = has_none(self._context.served.current().name, self._route, LOCAL)
        return ApiError(404, message, param="model", code="unsupported_route")

    async def _cut(self, stream: EventStream) -> GatewayError:
        error = not_ready("the server is shutting down", self._settings.retry_after_s)
        if not stream.started:
            return error
        await stream.fail(error)
        return StreamAbortedError()


def _note_client(headers: Mapping[bytes, bytes], record: RequestRecord) -> None:
    """What the client's SDK says of itself."""
    retries = headers.get(b"x-stainless-retry-count")
    if retries is not None and _RETRIES.fullmatch(retries):
        record.retries = int(retries)
