"""The embedded engine under measurement: by its object, and through a real gateway on a loopback port."""

import asyncio
import itertools
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import uvicorn
from fastapi import FastAPI
from numpy.typing import NDArray

from engine_adapters.base import GenerateRequest, SamplingParams, Tier, Usage
from engine_adapters.embedded.adapter import EmbeddedAdapter
from gateway.tenants.tenant import DEFAULT

T = TypeVar("T")
Tokens = NDArray[np.int32]


class OwnEngine:
    """Calls one adapter from an event loop of its own; every call blocks until it is done."""

    name = "kvgate"

    def __init__(self, adapter: EmbeddedAdapter) -> None:
        self.adapter = adapter
        self._loop = asyncio.new_event_loop()
        self._ids = itertools.count()
        self._scope = DEFAULT.scope(adapter.capabilities().model)  # as the gateway's requests have it

    def ttft(self, tokens: Tokens) -> float:
        """Seconds from the call to the first token's event."""
        return self._await(self._stream(tokens, 1))[0][0]

    def ttft_and_reused(self, tokens: Tokens) -> tuple[float, int]:
        """As `ttft`, with the reused tokens which that request reports."""
        times, usage = self._await(self._stream(tokens, 1))
        assert usage.reuse.reused is not None, "the embedded engine always knows"
        return times[0], usage.reuse.reused

    def close(self) -> None:
        """Stop the engine and let go of its tiers."""
        self._await(self.adapter.aclose())

    def reused(self, tokens: Tokens) -> int:
        """Reused tokens that a request with this prompt reports."""
        return self.ttft_and_reused(tokens)[1]

    def decode_rate(self, prompts: Sequence[Tokens], new_tokens: int) -> float:
        """Tokens a second of all streams together while every one of them decodes; prefill is left out."""
        streams = self._await(self._together(prompts, new_tokens))
        start = max(times[0] for times in streams)
        end = min(times[-1] for times in streams)
        return sum(sum(start < at <= end for at in times) for times in streams) / (end - start)

    def flush(self) -> None:
        """Forget every prefix on the device."""
        device: tuple[Tier, ...] = ("device",)
        self._await(self.adapter.flush(device))

    async def _together(self, prompts: Sequence[Tokens], new_tokens: int) -> list[list[float]]:
        runs = await asyncio.gather(*(self._times(prompt, new_tokens) for prompt in prompts))
        return list(runs)

    async def _times(self, tokens: Tokens, new_tokens: int) -> list[float]:
        began = time.perf_counter()
        times, _ = await self._stream(tokens, new_tokens)
        return [began + at for at in times]

    async def _stream(self, tokens: Tokens, new_tokens: int) -> tuple[list[float], Usage]:
        # With log probabilities each token is an event, also one that completes no text; a single one ends anyway.
        logprobs = 0 if new_tokens > 1 else None
        sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True, logprobs=logprobs)
        request = GenerateRequest(
            request_id=f"bench-{next(self._ids)}",
            route="completions",
            model="bench",
            prompt_ids=tokens,
            sampling=sampling,
            scope=self._scope,
        )
        started = time.perf_counter()
        times: list[float] = []
        usage: Usage | None = None
        async for event in self.adapter.generate(request):
            if isinstance(event, Usage):
                usage = event
            else:
                times.append(time.perf_counter() - started)
        assert usage is not None, "a stream that did not fail ends with its usage"
        return times, usage

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


class GatewayThread:
    """A real uvicorn server for `with`, on a free loopback port."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app, host="127.0.0.1", port=0, log_level="error", loop="uvloop", access_log=False
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self.port = 0

    def __enter__(self) -> "GatewayThread":
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
