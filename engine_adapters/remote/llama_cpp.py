"""llama.cpp's own server."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import orjson
from msgspec.structs import replace
from numpy.typing import NDArray

from engine_adapters.base import Health
from engine_adapters.errors import EngineNotReadyError, UnsupportedByEngineError
from engine_adapters.remote.http_engine import HttpEngine, HttpOptions
from engine_adapters.remote.llama_cpp_tokens import text_answered, tokens_answered, tokens_asked
from engine_adapters.remote.paths import MESSAGE_PATHS, MODEL_PATHS, RERANK_PATHS, TOKEN_PATHS
from engine_adapters.remote.relay import RelayRequest, RemoteCapabilities, Rewrites, Route
from engine_adapters.reuse.profiles import PROFILES

_METRICS = "--metrics (its own counters, to reconcile requests with)"
_SLOTS = "--slots (which slots there are, to empty the cache)"
_ERASE = "--slot-save-path DIR, without which it erases none"
_FILE = re.compile(r".*[/\\]([^/\\]+)\.gguf", re.DOTALL)
_UNSUPPORTED = 501  # what this server answers for an endpoint that it was not started with


class LlamaCppEngine(HttpEngine):
    """Reports what it reused in every answer, token by token: usage where it is new enough, `timings` else.

    Each slot keeps one sequence, and a request takes the slot that shares most with it, so its cache is as large as
    it has slots. `models` may name what is served; a server that was given no alias calls its model by its file's path,
    which clients need not know: for them it has the file's name.
    """

    paths: ClassVar[Mapping[Route, str]] = {**MODEL_PATHS, **MESSAGE_PATHS, **RERANK_PATHS, **TOKEN_PATHS}

    def __init__(
        self, name: str, base_url: str, models: Sequence[str] = (), options: HttpOptions | None = None
    ) -> None:
        super().__init__(name, base_url, PROFILES["llama_cpp"], models, options)
        self._context: int | None = None  # tokens; None: not known
        self._calls_itself: tuple[str, ...] = ()  # in its answers, whatever it was asked for

    def upstream_values(self, request: RelayRequest) -> dict[str, bytes]:
        values = super().upstream_values(request)
        return {**values, **tokens_asked(request, self.name)} if request.route == "tokenize" else values

    def rewrites(self, request: RelayRequest, given: Rewrites) -> Rewrites:
        given = super().rewrites(request, given)
        if request.route == "tokenize" and "content" not in request.fields():
            return replace(given, whole=partial(tokens_answered, context=self._context))
        return replace(given, whole=text_answered) if request.route == "detokenize" else given

    def names(self, request: RelayRequest) -> Mapping[str, str]:
        asked = request.names.get(request.model, request.model)
        return {**request.names, **dict.fromkeys(self._calls_itself, asked)} if asked else request.names

    async def detect(self) -> RemoteCapabilities:
        props = await self.ask("GET", f"{self.server}/props")
        slots = bool(props.get("endpoint_slots"))
        metrics = bool(props.get("endpoint_metrics"))
        settings = props.get("default_generation_settings")
        context = settings.get("n_ctx") if isinstance(settings, dict) else None
        self._context = context if isinstance(context, int) else None
        own = await self._served_models()
        self._calls_itself = own if len(own) == 1 else ()  # one that has several says which one it was
        return RemoteCapabilities(
            models=self.models or (own if len(own) > 1 else tuple(map(_shown, own))),
            reports_reuse=True,
            missing=((_METRICS,) if not metrics else ()) + ((_SLOTS,) if not slots else ()),
            block_size=1,
            context_length=self._context,
            tiers=("device",),
            takes_salt=False,
            takes_token_ids=True,
            kv_events=False,
            version=_text(props.get("build_info")),
        )

    async def tokenize(self, text: str) -> NDArray[np.int32]:
        """Token ids of plain text, special tokens not added; raises EngineNotReadyError."""
        answer = await self.ask("POST", f"{self.server}/tokenize", json={"content": text})
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise EngineNotReadyError(f"The engine {self.name} answered /tokenize without token ids.")
        return np.asarray(tokens, dtype=np.int32)

    async def health(self) -> Health:
        try:
            await self._asked("GET", f"{self.server}/health")
        except EngineNotReadyError as error:
            return Health(False, str(error))
        return Health(True, "ready")

    async def flush(self) -> None:
        """Erase every slot. A slot that works is erased when it is done, as the server queues it."""
        for slot in await self._slots():
            await self._erase(slot)

    async def _slots(self) -> list[int]:
        listed = (await self.ask("GET", f"{self.server}/slots")).get("data")
        slots = listed if isinstance(listed, list) else []
        return [slot["id"] for slot in slots if isinstance(slot, dict) and isinstance(slot.get("id"), int)]

    async def _erase(self, slot: int) -> None:
        answer = await self.answer_of("POST", f"{self.server}/slots/{slot}?action=erase", json={})
        if answer.status_code == _UNSUPPORTED:
            raise UnsupportedByEngineError(
                f"The engine {self.name} cannot erase its slots: start it with {_ERASE}."
            )
        if answer.status_code >= 400:
            raise EngineNotReadyError(
                f"The engine {self.name} answered {answer.status_code} when slot {slot} was to be erased: "
                f"{_message(answer.content)}"
            )


def _shown(own: str) -> str:
    """What clients call a model that has the name of a file; the server, which has no other one, takes any name."""
    found = _FILE.fullmatch(own)
    return own if found is None else found[1]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _message(content: bytes) -> str:
    try:
        answer: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        return "no JSON"
    error = answer.get("error") if isinstance(answer, dict) else None
    return str(error.get("message"))[:200] if isinstance(error, dict) else "no reason given"
