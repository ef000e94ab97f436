"""SGLang's native `/generate` over HTTP: token ids in, and what was reused by tier comes whatever its flags."""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from engine_adapters.base import Capabilities, EngineAdapter, Event, GenerateRequest, Health, Tier
from engine_adapters.embedded.output.pipeline import OutputPipeline
from engine_adapters.errors import EngineFailureError, EngineNotReadyError, UnsupportedByEngineError
from engine_adapters.remote.relay import RemoteCapabilities
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.transport import TransportError
from engine_adapters.reuse.reading import part
from engine_adapters.reuse.sse import EventSplitter, event_data
from engine_adapters.sglang_process.native import error_of, events_of, native_request

_PATH = "/generate"
_TOKENIZE = "/tokenize"


class SGLangGenerate(EngineAdapter):
    """Completions by token ids. Chat belongs to the server's chat route, where its parsers are. Made with `open`."""

    def __init__(self, server: SGLangEngine, capabilities: Capabilities) -> None:
        self._server = server
        self._capabilities = capabilities

    @classmethod
    async def open(cls, server: SGLangEngine) -> "SGLangGenerate":
        """Find out what the server is.

        Raises:
            EngineNotReadyError: it does not answer.
            UnsupportedByEngineError: its streams are of a form in which stop strings cannot be cut off.
        """
        info = await server.server_info()
        return cls.of(server, await server.detected(info), info)

    @classmethod
    def of(cls, server: SGLangEngine, found: RemoteCapabilities, info: Mapping[str, Any]) -> "SGLangGenerate":
        """For a server that is known: `found` and its settings. Raises as `open` does."""
        if info.get("incremental_streaming_output"):
            raise UnsupportedByEngineError(
                f"The engine {server.name} streams incrementally, so that parts of stop strings reach the client: "
                "start SGLang without --incremental-streaming-output."
            )
        if found.context_length is None or not found.models:
            raise EngineNotReadyError(f"The engine {server.name} does not say which model it serves.")
        capabilities = Capabilities(
            model=found.models[0],
            context_length=found.context_length,
            reports_reuse=True,
            block_size=found.block_size,
            takes_token_ids=True,
            tiers=found.tiers,
        )
        return cls(server, capabilities)

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        if request.route != "completions":
            raise UnsupportedByEngineError(
                "Chat goes to SGLang's chat route, which parses tools and reasoning."
            )
        asked = orjson.dumps(native_request(request, self._capabilities.context_length))
        pipelines = [OutputPipeline(index=index) for index in range(request.sampling.n)]
        async with aclosing(self._native(asked)) as native:
            async for event in events_of(request, pipelines, native):
                yield event

    async def _native(self, asked: bytes) -> AsyncGenerator[Mapping[str, Any], None]:
        """The answer's events. Leaving early closes the connection, which ends the request in the engine."""
        response = await self._server.opened(f"{self._server.server}{_PATH}", asked, {})
        try:
            if response.status >= 400:
                raise error_of(_message(await response.read()), response.status)
            splitter = EventSplitter()
            async for chunk in response.chunks():
                for event in splitter.feed(chunk):
                    data = event_data(event)
                    if data == b"[DONE]":
                        return
                    if data:
                        yield orjson.loads(data)
        except (TransportError, orjson.JSONDecodeError) as error:
            raise EngineFailureError(
                f"The engine {self._server.name} broke off its answer: {type(error).__name__}"
            ) from error
        finally:
            response.close()
        raise EngineFailureError(f"The engine {self._server.name} ended its answer before it was whole.")

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        body = {"model": self._capabilities.model, "prompt": text, "add_special_tokens": False}
        answer = await self._server.ask("POST", f"{self._server.server}{_TOKENIZE}", json=body)
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise EngineNotReadyError(
                f"The engine {self._server.name} answered {_TOKENIZE} without token ids."
            )
        return np.asarray(tokens, dtype=np.int32)

    async def counters(self) -> Mapping[str, float]:
        return await self._server.counters()

    async def health(self) -> Health:
        return await self._server.health()

    async def flush(self, tiers: Collection[Tier] | None = None) -> None:
        """On all tiers: the server does not tell them apart."""
        await self._server.flush()

    async def aclose(self) -> None:
        await self._server.aclose()


def _message(body: bytes) -> str:
    try:
        error = part(orjson.loads(body), "error")
    except orjson.JSONDecodeError:
        error = {}
    return str(error.get("message") or "the request was refused")
