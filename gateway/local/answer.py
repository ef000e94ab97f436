"""Answers from the engine in this process: its events become one JSON object, or frames of a stream."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from starlette.types import Send

from engine_adapters.base import Finished, Usage
from gateway.jobs import Job, JobContext, JobMaker
from gateway.local.generation import Generation, Tagged
from gateway.surface.endpoint import Finish
from gateway.transport.answer import send_json
from gateway.transport.incoming import Incoming
from gateway.transport.record import RequestRecord
from gateway.transport.sse import DONE, KEEPALIVE, EventStream
from gateway.wire.answers import StreamedAnswer, WholeAnswer
from gateway.wire.usage import cached_tokens, matched_tokens, reasoning_tokens, total_reuse


class LocalRoute:
    """One route; `make_job` is what differs between routes."""

    def __init__(self, make_job: JobMaker, context: JobContext) -> None:
        self._make_job = make_job
        self._context = context
        self._settings = context.settings

    async def __call__(
        self, incoming: Incoming, send: Send, stream: EventStream, record: RequestRecord
    ) -> Finish:
        job = await self._make_job(incoming, self._context, record)
        answer = job.answer
        record.choices = answer.head.choices * len(job.requests)
        async with self._turn(incoming, record), self._generation(job, record) as run:
            if isinstance(answer, StreamedAnswer):
                await self._stream(run, job, answer, stream, record)
            else:
                await self._collect(run, job, answer, record)
        # Before the last bytes go out: the client's next turn may come right behind them.
        await self._remember(job)
        _note_usage(answer.usages, record)
        if isinstance(answer, StreamedAnswer):
            return partial(stream.finish, answer.last_frames() + DONE)
        return partial(send_json, send, answer.body())

    def _turn(self, incoming: Incoming, record: RequestRecord) -> AbstractAsyncContextManager[None]:
        context, engine = self._context, record.engine or ""
        limits = context.limits_of(incoming.tenant)
        bound = context.max_running(engine)
        return context.limits.turn(engine, bound, incoming, limits, self._settings.queue, record)

    def _generation(self, job: Job, record: RequestRecord) -> Generation:
        record.stages.sending()
        record.attempts = 1
        return Generation(job.engine, job.requests, self._settings)

    async def _remember(self, job: Job) -> None:
        if job.recorder is not None:
            await self._context.threads.remember(job.recorder.recording.size, job.recorder.keep)

    async def _collect(self, run: Generation, job: Job, answer: WholeAnswer, record: RequestRecord) -> None:
        while (batch := await run.batch()) is not None:
            _note(batch, job, record)
            for source, event in batch:
                answer.add(source, event)

    async def _stream(
        self, run: Generation, job: Job, answer: StreamedAnswer, stream: EventStream, record: RequestRecord
    ) -> None:
        # Headers wait for the first event, so that a failure before it has its own HTTP status.
        while (batch := await run.batch(self._settings.keepalive_s)) is not None:
            if batch:
                _note(batch, job, record)
            frames = b"".join([answer.frames(source, event) for source, event in batch])
            if frames or not batch:
                await stream.write(frames or KEEPALIVE)


def _note(batch: Sequence[Tagged], job: Job, record: RequestRecord) -> None:
    record.saw_events()
    job.note(batch)
    if record.finish is None:
        for _, event in batch:
            if isinstance(event, Finished) and event.index == 0:
                record.finish = event.reason
                break


def _note_usage(usages: Sequence[Usage], record: RequestRecord) -> None:
    record.prompt_tokens = sum(usage.prompt_tokens for usage in usages)
    record.completion_tokens = sum(usage.completion_tokens for usage in usages)
    record.cached_tokens = cached_tokens(usages)
    record.matched_tokens = matched_tokens(usages)
    record.reasoning_tokens = reasoning_tokens(usages)
    record.reuse = total_reuse(usages)
    # Several prompts run side by side: how long it took until the first of them ran.
    record.stages.queued_s = min((u.queue_s for u in usages if u.queue_s is not None), default=None)
