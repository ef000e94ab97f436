"""A completion for SGLang's native `/generate`, and its answer in OpenAI's form."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from types import MappingProxyType
from typing import Any

import orjson

from engine_adapters.base import Event, Finished, GenerateRequest, TextDelta, Usage
from engine_adapters.errors import EngineFailureError
from engine_adapters.remote.cache_salt import NAMES, salt_upstream
from engine_adapters.remote.relay import Account, RelayedAnswer, RelayRequest, Rewrites
from engine_adapters.reuse.reading import NOTHING, UsageRead
from gateway.errors import ApiError
from gateway.jobs import new_head
from gateway.transport.sse import DONE, frame
from gateway.wire.completions_answer import WholeCompletion
from gateway.wire.completions_body import DEFAULT_MAX_TOKENS, CompletionsBody
from gateway.wire.completions_stream import CompletionStream
from gateway.wire.sampling import sampling_params
from gateway.wire.validation import validate

# Fields that are the same natively. A request with any other goes to the completions route, whose they are.
_TAKEN = frozenset({
    "model", "prompt", "stream", "stream_options", "user", "metadata", "max_tokens", "temperature", "top_p", "top_k",
    "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "seed", "stop",
    "stop_token_ids", "ignore_eos", "min_tokens", "include_stop_str_in_output", "skip_special_tokens", "n", "logprobs",
    *NAMES,
})  # fmt: skip
_MOST = 128  # answers to one prompt


def native_completion(request: RelayRequest, request_id: str) -> GenerateRequest | None:
    """The request as it is asked natively, under `request_id`, which no other may have.

    None: it is left to the server's own route, whether for what it asks or for what is wrong with it.
    """
    fields = request.fields()
    said = {name: value for name, value in fields.items() if value is not None}
    if request.tokens is None or not len(request.tokens) or not said.keys() <= _TAKEN:
        return None
    try:
        # The prompt is known as token ids already.
        wanted = validate(CompletionsBody, {**said, "model": request.model, "prompt": ""})
        salt = salt_upstream(request.salt, fields)
    except (ApiError, ValueError):
        return None
    if (wanted.n or 1) > _MOST:
        return None
    limit = DEFAULT_MAX_TOKENS if wanted.max_tokens is None else wanted.max_tokens
    return GenerateRequest(
        request_id=request_id,
        route="completions",
        model=request.model,
        prompt_ids=request.tokens,
        sampling=sampling_params(wanted, max_tokens=limit, logprobs=wanted.logprobs),
        scope=salt or "",
        reasoning=False,
    )


class NativeRelay(AbstractAsyncContextManager[RelayedAnswer]):
    """One native request from when it is sent until nobody wants its answer any more.

    Nothing is sent before the answer is read; leaving early closes the connection, which ends it in the engine.
    """

    def __init__(
        self,
        engine: str,
        events: AsyncGenerator[Event, None],
        asked: GenerateRequest,
        request: RelayRequest,
        rewrites: Rewrites,
    ) -> None:
        self._events = events
        self._answer = NativeAnswer(engine, events, asked, request, rewrites)

    async def __aenter__(self) -> RelayedAnswer:
        return self._answer

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()


class NativeAnswer(RelayedAnswer):
    """The events of one native request, as one JSON object or as a stream of chunks."""

    def __init__(
        self,
        engine: str,
        events: AsyncGenerator[Event, None],
        asked: GenerateRequest,
        request: RelayRequest,
        rewrites: Rewrites,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status = 200
        self.content_type = "text/event-stream; charset=utf-8" if request.stream else "application/json"
        self.headers: Mapping[str, str] = MappingProxyType({})
        self.account = Account(NOTHING)
        self._engine = engine
        self._events = events
        self._asks_usage = request.asks_usage
        self._rewrites = rewrites
        self._clock = clock
        # In answers, a model has the name that this client knows.
        self._head = new_head("cmpl", request.names.get(asked.model, asked.model), asked.sampling.n)
        self._logprobs = asked.sampling.logprobs is not None
        self._unfinished = set(range(asked.sampling.n))

    async def chunks(self) -> AsyncIterator[bytes]:
        if not self.streams:
            yield await self.whole()
            return
        form = CompletionStream(
            self._head, echoes=[""], logprobs=self._logprobs, include_usage=self._asks_usage
        )
        async with aclosing(self._noted()) as events:
            async for event in events:
                if frames := form.frames(0, event):
                    yield frames
        last = self._rewritten(form.usage_chunk()) if self._asks_usage else None
        yield (b"" if last is None else frame(last)) + DONE

    async def whole(self) -> bytes:
        form = WholeCompletion(self._head, echoes=[""], logprobs=self._logprobs)
        async with aclosing(self._noted()) as events:
            async for event in events:
                form.add(0, event)
        body = orjson.dumps(self._rewritten(form.body()))
        return body if self._rewrites.whole is None else self._rewrites.whole(body)

    async def _noted(self) -> AsyncGenerator[Event, None]:
        """The events; what they say of the whole answer is in the account when they have ended."""
        async with aclosing(self._events) as events:
            async for event in events:
                self._note(event)
                yield event
        if self._unfinished or self.account.reuse.prompt is None:
            raise EngineFailureError(f"The engine {self._engine} ended its answer before it was whole.")
        self.account.ended = True

    def _note(self, event: Event) -> None:
        account = self.account
        if isinstance(event, Usage):
            account.reuse = event.reuse
            account.completion_tokens = event.completion_tokens
            account.reasoning_tokens = event.reasoning_tokens
        elif isinstance(event, Finished):
            self._unfinished.discard(event.index)
            if event.index == 0:
                account.finish = event.reason
        elif isinstance(event, TextDelta) and event.text and account.first_token_at is None:
            account.first_token_at = self._clock()

    def _rewritten(self, payload: dict[str, Any]) -> Mapping[str, Any] | None:
        rewrite, account = self._rewrites.usage, self.account
        if rewrite is None:
            return payload
        return rewrite(payload, UsageRead(account.reuse, account.completion_tokens, account.reasoning_tokens))
