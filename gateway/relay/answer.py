"""One relayed answer: its bytes to the client as they come, its account to the record."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial

from starlette.types import Send

from engine_adapters.errors import EngineFailureError
from engine_adapters.remote.relay import Account, Route
from gateway.canonical.recorder import Recording
from gateway.errors import ApiError, StreamAbortedError
from gateway.jobs import JobContext
from gateway.relay.attempts import Attempts
from gateway.relay.begun import Begun
from gateway.relay.errors import from_answer, lacks_route
from gateway.relay.recorder import RelayRecorder
from gateway.relay.request import Prepared, prepared
from gateway.relay.stall import StallGuard
from gateway.replicas.pool import EnginePool
from gateway.responses.kept import KeptResponse
from gateway.surface.routes import path_of
from gateway.transport.answer import send_bytes
from gateway.transport.incoming import Incoming
from gateway.transport.keepalive import kept_alive
from gateway.transport.record import RequestRecord
from gateway.transport.sse import EventStream


class RelayedRoute:
    """Answers of one route by engines behind HTTP."""

    def __init__(self, route: Route, context: JobContext) -> None:
        self._route = route
        self._context = context
        self._settings = context.settings

    async def answer(
        self, incoming: Incoming, pool: EnginePool, send: Send, stream: EventStream, record: RequestRecord
    ) -> Callable[[], Awaitable[None]]:
        """All but the last bytes, which the result writes; raises ApiError or EngineError."""
        given = await prepared(incoming, self._route, pool, self._context, record)
        kept = self._kept(given, pool)
        only = None if kept is None else await kept.replica()
        attempts = Attempts(given, pool, self._context, record, only)
        turn = self._turn(incoming, pool, record)
        if not given.wanted.stream and turn is None:
            return await self._attempted(attempts, kept, send, stream, record)
        async with turn or nullcontext():
            if not given.wanted.stream:
                return await self._attempted(attempts, kept, send, stream, record)
            async with kept_alive(stream, self._settings.keepalive_s):
                return await self._attempted(attempts, kept, send, stream, record)

    async def _attempted(
        self,
        attempts: Attempts,
        kept: KeptResponse | None,
        send: Send,
        stream: EventStream,
        record: RequestRecord,
    ) -> Callable[[], Awaitable[None]]:
        opened = await attempts.open()
        account = opened.begun.answer.account
        try:
            told = None if kept is None else partial(kept.told, opened.visit.remote.replica, account)
            return await self.pass_on(opened.begun, opened.sent.recording, send, stream, record, told)
        except (EngineFailureError, StreamAbortedError):
            opened.outcome = "doubtful"
            raise
        finally:
            _note(account, record)
            await opened.aclose()

    def _turn(
        self, incoming: Incoming, pool: EnginePool, record: RequestRecord
    ) -> AbstractAsyncContextManager[None] | None:
        """None: as many run as like."""
        context = self._context
        if pool.name not in self._settings.max_running:
            return None
        limits = context.limits_of(incoming.tenant)
        bound = context.max_running(pool.name, max(1, pool.at_work))
        return context.limits.turn(pool.name, bound, incoming, limits, self._settings.queue, record)

    def _kept(self, given: Prepared, pool: EnginePool) -> KeptResponse | None:
        if self._route != "responses":
            return None
        return KeptResponse(given.wanted, given.incoming.tenant, pool.name, self._context.responses)

    async def pass_on(
        self,
        begun: Begun,
        recording: Recording | None,
        send: Send,
        stream: EventStream,
        record: RequestRecord,
        told: Callable[[], Awaitable[None]] | None = None,
    ) -> Callable[[], Awaitable[None]]:
        """The answer to the client, all but its last bytes, which the result writes.

        `told` is called before the client gets any byte of what the account holds by then.
        """
        answer = begun.answer
        headers = dict(answer.headers)
        headers.pop("x-request-id", None)  # the answer has one of its own
        if answer.status >= 400:
            raise self._refusal(answer.status, begun.first, headers, record)
        if answer.status >= 300:
            raise EngineFailureError(
                "The engine answered with a redirect: configure the URL that it leads to."
            )
        streams = answer.streams
        recorder = None if recording is None else RelayRecorder(recording, stream=streams)
        if streams:
            stream.add_headers(headers)
            await self._stream(begun, recorder, stream, record, told)
            return partial(stream.finish, b"")
        if told is not None:
            await told()
        if recorder is not None:
            recorder.add(begun.first)
            await self._keep(recorder)
        if stream.started:
            raise EngineFailureError("The engine answered a request for a stream with something else.")
        headers["content-type"] = answer.content_type
        return partial(send_bytes, send, begun.first, status=answer.status, headers=headers)

    def _refusal(
        self, status: int, body: bytes, headers: Mapping[str, str], record: RequestRecord
    ) -> ApiError:
        if not lacks_route(status, body):
            return from_answer(status, body, headers)
        message = f"The engine {record.engine} does not serve {path_of(self._route)}: it has nothing there."
        return ApiError(404, message, param="model", code="unsupported_route")

    async def _stream(
        self,
        begun: Begun,
        recorder: RelayRecorder | None,
        stream: EventStream,
        record: RequestRecord,
        told: Callable[[], Awaitable[None]] | None,
    ) -> None:
        account, chunk, rest = begun.answer.account, begun.first, begun.rest
        assert rest is not None  # it is a stream
        async with StallGuard(begun.stall_s) as stall:
            while chunk:
                stall.busy()
                if told is not None and account.response_id is not None:
                    await told()
                    told = None
                if account.first_token_at is not None:
                    if record.ttft_s is None and begun.first_token is not None:
                        begun.first_token()
                    record.saw_events()
                if recorder is not None:
                    recorder.add(chunk)
                    if account.ended:
                        # Before the client sees the end: its next turn may come right behind it.
                        await self._keep(recorder)
                        recorder = None
                await stream.write(chunk)
                stall.waiting()
                chunk = await anext(rest, b"")
        if account.error is not None:
            # The client was told by an event of the engine's own.
            raise StreamAbortedError
        if not account.ended and account.finish is None:
            raise EngineFailureError("The engine's stream ended before the answer was finished.")

    async def _keep(self, recorder: RelayRecorder) -> None:
        await self._context.threads.remember(recorder.size, recorder.keep)


def _note(account: Account, record: RequestRecord) -> None:
    reuse = account.reuse
    record.reuse = reuse
    record.prompt_tokens = reuse.prompt
    record.cached_tokens = reuse.reused if reuse.status == "reported" else None
    record.completion_tokens = account.completion_tokens
    record.reasoning_tokens = account.reasoning_tokens
    record.finish = account.finish
    record.error = account.error
