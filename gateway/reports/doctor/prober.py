"""Sends small requests to an engine, and keeps what it said of each."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import orjson

from engine_adapters.base import ReuseReport
from engine_adapters.errors import EngineError
from engine_adapters.remote.relay import RelayEngine, RelayRequest, Route
from gateway.reports.errors import DoctorError

_NEWER_LIMIT = "max_completion_tokens"  # OpenAI's newer models take no other, and say so when they refuse
_SHOWN = 300  # bytes of an engine's refusal


@dataclass(frozen=True, slots=True)
class Told:
    """What one answer said."""

    reuse: ReuseReport
    completion: int | None  # tokens
    seconds: float  # to the first content of a stream, or to the whole answer; it is one token long

    @property
    def prompt(self) -> int | None:
        return self.reuse.prompt

    @property
    def reused(self) -> int | None:
        return self.reuse.reused


class RefusedError(DoctorError):
    """The engine answered with an error; `status` is HTTP's."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"The engine answered {status}: {said}")
        self.status = status


class TooMuchError(DoctorError):
    """One more request would cost more than was said beforehand."""


class Prober:
    """One engine, one model. `send` is the only way out, and counts. `most`: prompt tokens it may cost; None: any."""

    def __init__(
        self,
        engine: RelayEngine,
        model: str,
        route: Route,
        say: Callable[[str], None],
        most: int | None = None,
    ) -> None:
        self._engine = engine
        self.model = model
        self._route = route
        self._say = say
        self._most = most
        self._limit = "max_tokens"  # how this API calls it
        self._longest = (1, 0)  # bytes of the longest prompt so far, and the tokens that it had
        self.requests = 0
        self.prompt_tokens = 0

    async def text(self, text: str, *, stream: bool = False, salt: str | None = None) -> Told:
        """One user message, one token back."""
        return await self.send([self._user(text)], stream=stream, salt=salt)

    async def send(
        self, messages: Sequence[Mapping[str, Any]], *, stream: bool = False, salt: str | None = None
    ) -> Told:
        """One chat, one token back.

        Raises:
            RefusedError: an HTTP error status.
            TooMuchError: it was not sent.
            DoctorError: no answer at all.
        """
        size = sum(len(str(message.get("content"))) for message in messages)
        self._check_cost(size)
        try:
            told = await self._asked(messages, stream, salt)
        except RefusedError as error:
            if self._limit == _NEWER_LIMIT or _NEWER_LIMIT not in str(error):
                raise
            self._limit = _NEWER_LIMIT
            told = await self._asked(messages, stream, salt)
        self.prompt_tokens += told.prompt or 0
        self._longest = max(self._longest, (size, told.prompt or 0))
        self._say(f"request {self.requests}: {_shown(told)}")
        return told

    async def _asked(self, messages: Sequence[Mapping[str, Any]], stream: bool, salt: str | None) -> Told:
        body = orjson.dumps(self._body(messages, stream))
        request = RelayRequest(f"doctor-{self.requests}", self._route, body, stream, self.model, salt=salt)
        self.requests += 1
        return await self._sent(request)

    def _check_cost(self, size: int) -> None:
        """What is no longer than the longest prompt so far costs no more than that one, whatever the template adds."""
        longest, tokens = self._longest
        expected = ceil(tokens * max(1.0, size / longest))
        if self._most is not None and self.prompt_tokens + expected > self._most:
            raise TooMuchError(
                f"It stops after {self.requests} requests and {self.prompt_tokens:,} prompt tokens, since one more "
                f"would make it more than the {self._most:,} that were said: words have many tokens here, or the "
                "template is long. Ask with fewer --words."
            )

    async def _sent(self, request: RelayRequest) -> Told:
        started = time.monotonic()
        try:
            async with self._engine.relay(request) as answer:
                said = b"".join([chunk async for chunk in answer.chunks()])
        except EngineError as error:
            raise DoctorError(str(error)) from error
        if answer.status >= 400:
            raise RefusedError(answer.status, said[:_SHOWN].decode(errors="replace"))
        account = answer.account
        ended = account.first_token_at if request.stream else None
        return Told(account.reuse, account.completion_tokens, (ended or time.monotonic()) - started)

    def _body(self, messages: Sequence[Mapping[str, Any]], stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), self._limit: 1}
        if stream:
            body["stream"] = True
        if stream and self._route == "chat":
            body["stream_options"] = {"include_usage": True}
        return body

    def _user(self, text: str) -> dict[str, Any]:
        if self._route != "messages":
            return {"role": "user", "content": text}
        # Anthropic's API caches only up to where it is told to.
        part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        return {"role": "user", "content": [part]}


def _shown(told: Told) -> str:
    prompt = "prompt not said" if told.prompt is None else f"{told.prompt:,} tokens"
    reused = "reuse not reported" if told.reused is None else f"{told.reused:,} reused"
    return f"{prompt}, {reused}, {told.seconds * 1000:,.0f} ms"
