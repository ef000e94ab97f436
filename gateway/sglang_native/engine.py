"""SGLang over HTTP with prompts as token ids: completions at its native route, chats with ids at its chat route."""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import orjson

from canon.tokens import PromptTokenizer
from engine_adapters.errors import UnsupportedByEngineError
from engine_adapters.remote.http_engine import HttpOptions
from engine_adapters.remote.relay import (
    RelayedAnswer,
    RelayRequest,
    RemoteCapabilities,
    Rewrites,
)
from engine_adapters.remote.sglang import SGLangEngine
from engine_adapters.remote.sglang_generate import SGLangGenerate
from gateway.sglang_native.completions import NativeRelay, native_completion
from gateway.sglang_native.prompts import Equal, compared

log = logging.getLogger("kvgate.sglang")

WHOLE_TEXTS_FLAG = "no --incremental-streaming-output: with it completions go to its own route, not natively"

NewId = Callable[[RelayRequest], str]


class SGLangNativeEngine(SGLangEngine):
    """Completions go to `/generate` as token ids, whose answers tell what was reused by tier whatever the flags.

    Chats go to the chat route, which parses tools and thinking, with the ids made here where the server was found to
    make the same ones. All else, and what natively would be another request, goes as it goes to any SGLang server.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        models: Sequence[str] = (),
        options: HttpOptions | None = None,
        prompts: PromptTokenizer | None = None,
        new_id: NewId | None = None,
    ) -> None:
        """`prompts`: makes them as the server does, special tokens in content acting; None: only ids that clients
        send are ids. `new_id`: makes the server's name of a request; two seconds after a stream has ended it aborts
        what runs under the same name, so that none may come twice."""
        super().__init__(name, base_url, models, options)
        self._prompts = prompts
        self._new_id = new_id or _new_id
        self._native: SGLangGenerate | None = None  # None: not asked yet, or it cannot
        self._equal = Equal()
        self._others: frozenset[str] = frozenset()  # models that it does not run natively
        self._served: object = None  # its own name for the model
        self._told: object = None

    async def detect(self) -> RemoteCapabilities:
        info = await self.server_info()
        found = await self.detected(info)
        missing = found.missing
        try:
            native = SGLangGenerate.of(self, found, info)
        except UnsupportedByEngineError:
            native, missing = None, (*missing, WHOLE_TEXTS_FLAG)
        equal = Equal() if self._prompts is None else await compared(self, self._prompts)
        if info.get("completion_template"):
            equal = replace(equal, texts=False)  # it puts texts into that first
        self._native, self._equal = native, equal
        self._others, self._served = found.adapters, info.get("served_model_name")
        self._tell(equal)
        reports = found.reports_reuse if native is None else True
        return replace(found, missing=missing, reports_reuse=reports, as_ids=equal.kinds)

    def relay(
        self, request: RelayRequest, rewrites: Rewrites | None = None
    ) -> AbstractAsyncContextManager[RelayedAnswer]:
        asked = None
        if self._native is not None and self._is_native(request):
            asked = native_completion(request, self._new_id(request))
        if asked is None or self._native is None:
            return super().relay(request, rewrites)
        events = self._native.generate(asked)
        return NativeRelay(self.name, events, asked, request, rewrites or Rewrites())

    def upstream_values(self, request: RelayRequest) -> dict[str, bytes]:
        values = super().upstream_values(request)
        if request.route == "chat" and request.tokens is not None and self._as_ids(request.fields()):
            values["input_ids"] = orjson.dumps(request.tokens, option=orjson.OPT_SERIALIZE_NUMPY)
        return values

    def _is_native(self, request: RelayRequest) -> bool:
        if request.route != "completions" or request.tokens is None:
            return False
        lora = ":" in request.model and request.model != self._served
        if lora or request.model in self._others:
            return False
        return self._equal.texts or not _is_text(request.fields().get("prompt"))

    def _as_ids(self, body: Mapping[str, Any]) -> bool:
        return self._equal.covers_chat(body)

    def _tell(self, equal: Equal) -> None:
        """What was found, once until it has changed."""
        if self._prompts is None or (equal.kinds, equal.differs) == self._told:
            return
        self._told = (equal.kinds, equal.differs)
        fields = {"engine": self.name, "kinds": ",".join(equal.kinds) or "none"}
        log.info("prompts that go to SGLang as token ids, proved equal to its own", extra={"fields": fields})
        for difference in equal.differs:
            log.warning(
                "SGLang makes these prompts itself, since our token ids are not the same",
                extra={"fields": {"engine": self.name, "difference": difference}},
            )


def _is_text(prompt: object) -> bool:
    return isinstance(prompt, str) or (
        isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], str)
    )


def _new_id(request: RelayRequest) -> str:
    return f"{request.request_id}-{secrets.token_hex(8)}"
