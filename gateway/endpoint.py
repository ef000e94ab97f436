"""One generation route as plain ASGI: accept, generate, write; whatever happens, the engine is let go."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from starlette.types import Receive, Scope, Send

from engine_adapters.base import Usage
from engine_adapters.errors import EngineError, EngineFailureError
from gateway.admission import Admission
from gateway.errors import (
    ApiError,
    ClientGoneError,
    GatewayError,
    StreamAbortedError,
    from_engine,
    internal,
    not_ready,
)
from gateway.generation import Generation
from gateway.jobs import Job, JobContext, JobMaker
from gateway.transport.answer import send_error, send_json
from gateway.transport.body import parse_object, read_body
from gateway.transport.disconnect import DisconnectGuard
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord, log_unexpected, record_of
from gateway.transport.sse import DONE, KEEPALIVE, EventStream
from gateway.wire.answers import StreamedAnswer, WholeAnswer
from gateway.wire.usage import cached_tokens

log = logging.getLogger("kvgate.gateway")


class GenerationEndpoint:
    """An ASGI app for one route; `make_job` is what differs between routes."""

    def __init__(self, make_job: JobMaker, context: JobContext, admission: Admission) -> None:
        self._make_job = make_job
        self._context = context
        self._settings = context.settings
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        try:
            with self._admission.enter() as ticket:
                raw = await read_body(scope, receive, self._settings, ticket.hold)
                await self._answer(raw, scope, receive, send, record)
        except (ApiError, EngineError) as error:
            await send_error(send, self._refusal(error, record))

    async def _answer(
        self, raw: bytes, scope: Scope, receive: Receive, send: Send, record: RequestRecord
    ) -> None:
        stream = EventStream(send, self._settings.write_stall_s)
        try:
            async with DisconnectGuard(receive):
                answer = await self._generate(raw, dict(scope["headers"]), stream, record)
        except asyncio.CancelledError:
            # Not the client: the server ends and has waited long enough. The task ends right after this answer.
            raise await self._cut(stream) from None
        # The last bytes go out with the guard gone: servers report a complete answer as a disconnect.
        _note_usage(answer.usages, record)
        if isinstance(answer, StreamedAnswer):
            await stream.finish(answer.last_frames() + DONE)
        else:
            await send_json(send, answer.body())

    async def _generate(
        self, raw: bytes, headers: Mapping[bytes, bytes], stream: EventStream, record: RequestRecord
    ) -> StreamedAnswer | WholeAnswer:
        body = await self._context.threads.parse(len(raw), partial(parse_object, raw))
        job = await self._make_job(Incoming(body, raw, headers), self._context, record)
        async with Generation(job.engine, job.requests, self._settings) as run:
            if isinstance(job.answer, StreamedAnswer):
                await self._stream(run, job, job.answer, stream, record)
            else:
                await self._collect(run, job, job.answer, record)
        # Before the last bytes go out: the client's next turn may come right behind them.
        await self._remember(job)
        return job.answer

    async def _remember(self, job: Job) -> None:
        if job.recorder is not None:
            await self._context.threads.canonicalize(job.recorder.recording.size, job.recorder.keep)

    async def _cut(self, stream: EventStream) -> GatewayError:
        error = not_ready("the server is shutting down", self._settings.retry_after_s)
        if not stream.started:
            return error
        await stream.fail(error)
        return StreamAbortedError()

    async def _collect(self, run: Generation, job: Job, answer: WholeAnswer, record: RequestRecord) -> None:
        while (batch := await run.batch()) is not None:
            record.saw_first_event()
            job.note(batch)
            for source, event in batch:
                answer.add(source, event)

    async def _stream(
        self,
        run: Generation,
        job: Job,
        answer: StreamedAnswer,
        stream: EventStream,
        record: RequestRecord,
    ) -> None:
        try:
            # Headers wait for the first event, so that a failure before it has its own HTTP status.
            while (batch := await run.batch(self._settings.keepalive_s)) is not None:
                if batch:
                    record.saw_first_event()
                    job.note(batch)
                frames = b"".join([answer.frames(source, event) for source, event in batch])
                if frames or not batch:
                    await stream.write(frames or KEEPALIVE)
        except ClientGoneError:
            raise
        except Exception as error:
            if not stream.started:
                raise
            await stream.fail(self._refusal(error, record))
            raise StreamAbortedError from error

    def _refusal(self, error: Exception, record: RequestRecord) -> ApiError:
        """The wire form of `error`, noted and logged as what it is."""
        record.outcome = "refused"
        if isinstance(error, ApiError):
            return error
        if isinstance(error, EngineError) and not isinstance(error, EngineFailureError):
            return from_engine(error, self._settings.retry_after_s)
        record.outcome = "failed"
        if not isinstance(error, EngineError):
            log_unexpected(record, error)
            return internal()
        log.error("the engine failed", extra={"fields": {"id": record.id, "error": str(error)}})
        return from_engine(error, self._settings.retry_after_s)


def _note_usage(usages: Sequence[Usage], record: RequestRecord) -> None:
    record.prompt_tokens = sum(usage.prompt_tokens for usage in usages)
    record.completion_tokens = sum(usage.completion_tokens for usage in usages)
    record.cached_tokens = cached_tokens(usages)
