"""What all engines behind HTTP have in common: requests on over kept connections, bytes back, and small questions."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
import orjson
from msgspec.structs import replace

from engine_adapters.base import Health
from engine_adapters.errors import (
    EngineError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    EngineTimeoutError,
    UnsupportedByEngineError,
)
from engine_adapters.remote import openapi
from engine_adapters.remote.cache_salt import salt_values, salts_taken_out
from engine_adapters.remote.json_patch import patched, without
from engine_adapters.remote.openapi import Api, read_api
from engine_adapters.remote.paths import BESIDE_THE_API, METHODS, MODEL_PATHS
from engine_adapters.remote.prometheus import parse_metrics
from engine_adapters.remote.relay import (
    RelayedAnswer,
    RelayEngine,
    RelayRequest,
    RemoteCapabilities,
    Rewrite,
    Rewrites,
    Route,
)
from engine_adapters.remote.transport import (
    Bounds,
    EngineClient,
    Exchange,
    NoConnectionError,
    NoFreeConnectionError,
    TooLargeError,
    TooSlowError,
    TransportError,
)
from engine_adapters.reuse.model_names import ModelNames
from engine_adapters.reuse.profiles import PROFILES, Profile
from engine_adapters.reuse.reading import UsageRead
from engine_adapters.reuse.watcher import StreamWatcher, WholeWatcher

_PASSED_BACK = (
    "retry-after",
    "x-request-id",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
)
_NO_SUCH_QUESTION = (401, 403, 404, 405)  # statuses of who does not answer about its health
_AS_IT_CAME = Rewrites()
_MAX_WHOLE = 256 << 20  # bytes of an answer that is no stream


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Bounds and waits of one engine's client. Seconds."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0  # a long prompt on a busy engine
    write_s: float = 60.0
    pool_s: float = 10.0  # for a free connection
    probe_s: float = 5.0  # health and metrics
    api_s: float = 60.0  # what the server says of its routes: it is put together when it is first asked for
    max_connections: int = 1024
    headers: Mapping[str, str] = field(default_factory=dict)  # on every request, the key among them


class HttpEngine(RelayEngine):
    """An engine that speaks OpenAI's routes. Subclasses say what is different.

    `base_url` has no route in it: `http://127.0.0.1:30000`, for example, or with a prefix such as `/v1` where the
    API has one of its own (`root`).
    """

    paths: ClassVar[Mapping[Route, str]] = MODEL_PATHS
    salted: ClassVar[Collection[Route]] = ()  # those that take a salt

    usual_headers: ClassVar[Mapping[str, str]] = {}  # on every request that brings no other

    def __init__(
        self,
        name: str,
        base_url: str,
        profile: Profile,
        models: Sequence[str] = (),
        options: HttpOptions | None = None,
    ) -> None:
        self.name = name
        self.models = tuple(models)  # empty: as the engine says
        self._profile = profile
        self._options = options or HttpOptions()
        self._url = base_url.rstrip("/")
        self._root = self._url if self._url.endswith("/v1") else f"{self._url}/v1"
        headers = {**self.usual_headers, **self._options.headers}
        # Neither proxies of the environment nor redirects: requests go to the configured host and nowhere else.
        self._client = httpx.AsyncClient(timeout=self._options.probe_s, headers=headers, trust_env=False)
        self.relays = EngineClient(_bounds(self._options, headers))

    @property
    def server(self) -> str:
        """The engine's address without the API's root."""
        return self._url.removesuffix("/v1")

    async def detect(self) -> RemoteCapabilities:
        models = self.models or await self._served_models()
        return RemoteCapabilities(models=models, reports_reuse=None)

    async def _served_models(self) -> tuple[str, ...]:
        listed = (await self.ask("GET", f"{self._root}/models")).get("data")
        names = (
            [each.get("id") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )
        return tuple(name for name in names if isinstance(name, str))

    async def api(self) -> Api:
        """What the server says of its own routes; says nothing where it does not publish that."""
        try:
            url = f"{self.server}{openapi.PATH}"
            return read_api(await self.ask("GET", url, timeout=self._options.api_s))
        except EngineNotReadyError:
            return Api()

    @property
    def routes(self) -> Collection[Route]:  # type: ignore[override]
        """Those that `paths` has."""
        return self.paths.keys()

    def url(self, request: RelayRequest) -> str:
        """Where a request goes; raises UnsupportedByEngineError for a route that this engine has not."""
        path = self.paths.get(request.route)
        if path is None:
            raise UnsupportedByEngineError(f"The engine {self.name} has no route for {request.route}.")
        root = self.server if request.route in BESIDE_THE_API else self._root
        if "{id}" in path:
            path = path.replace("{id}", quote(request.target, safe=""))
        return f"{root}{path}?{request.query}" if request.query else root + path

    def upstream_body(self, request: RelayRequest) -> bytes:
        """The body as this engine needs it."""
        values = self.upstream_values(request)
        salted = request.route in self.salted
        if salted:
            values |= salt_values(request)
        body = self.patched_body(request, values)
        gone = salts_taken_out(request, salted=salted)
        return without(body, gone) if gone else body

    def patched_body(self, request: RelayRequest, values: Mapping[str, bytes]) -> bytes:
        """The request's body with `values` set."""
        return patched(request.body, values, request.fields().keys()) if values else request.body

    def upstream_headers(self, request: RelayRequest) -> Mapping[str, str]:
        """What goes on beside the headers of every request; names in lower case."""
        return request.headers

    def upstream_values(self, request: RelayRequest) -> dict[str, bytes]:
        """Top-level keys that are set upstream, as JSON texts."""
        fields = request.fields()
        values: dict[str, bytes] = {}
        if request.model and fields.get("model") != request.model:
            values["model"] = orjson.dumps(request.model)
        if request.stream and request.route in ("chat", "completions"):
            given = fields.get("stream_options")
            options = given if isinstance(given, dict) else {}
            if not options.get("include_usage"):
                values["stream_options"] = orjson.dumps({**options, "include_usage": True})
        return values

    def rewrites(self, request: RelayRequest, given: Rewrites) -> Rewrites:
        """`given`, and what keeps from the client what was asked for upstream only."""
        return _hiding(request, given)

    def names(self, request: RelayRequest) -> Mapping[str, str]:
        """What the engine calls models in its answers, each with the name that this client knows."""
        return request.names

    def relay(
        self, request: RelayRequest, rewrites: Rewrites | None = None
    ) -> AbstractAsyncContextManager[RelayedAnswer]:
        return _Relay(self, request, self.rewrites(request, rewrites or _AS_IT_CAME))

    def profile_of(self, route: Route) -> Profile:
        """How answers of a route count: whoever answers in the form of Anthropic's messages counts as they do."""
        return PROFILES["anthropic"] if route == "messages" else self._profile

    async def opened(
        self, url: str, body: bytes, headers: Mapping[str, str], method: str = "POST"
    ) -> Exchange:
        """An answer whose body is still to come; whoever gets it closes it. Names of `headers` are in lower case.

        Raises EngineNotReadyError, EngineOverloadedError or EngineFailureError where there is no answer at all.
        """
        try:
            return await self.relays.ask(method, url, body, headers)
        except TransportError as error:
            raise self.unanswered(error) from error

    def unanswered(self, error: TransportError) -> EngineError:
        """What it means that there is no answer at all."""
        if isinstance(error, NoConnectionError):
            # Its address is for the operator, who reads it in the log; this goes to the client.
            return EngineNotReadyError(f"The engine {self.name} does not answer.")
        if isinstance(error, NoFreeConnectionError):
            most = self._options.max_connections
            return EngineOverloadedError(f"All {most} connections to the engine {self.name} are in use.")
        if isinstance(error, TooSlowError):
            return EngineTimeoutError(f"The engine {self.name} took too long: {error}.")
        return EngineFailureError(f"The engine {self.name} broke the connection: {error}.")

    async def ask(self, method: str, url: str, **more: Any) -> dict[str, Any]:
        """One small JSON exchange; raises EngineNotReadyError where it cannot be had."""
        text = (await self._asked(method, url, **more)).content
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise EngineNotReadyError(f"The engine {self.name} answered {url} with no JSON.") from error
        return answer if isinstance(answer, dict) else {"data": answer}

    async def answer_of(self, method: str, url: str, **more: Any) -> httpx.Response:
        """One small exchange, whatever its status; raises EngineNotReadyError where there is no answer."""
        try:
            return await self._client.request(method, url, **more)
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            raise EngineNotReadyError(f"The engine {self.name} does not answer at {url}: {why}") from error

    async def _asked(self, method: str, url: str, **more: Any) -> httpx.Response:
        response = await self.answer_of(method, url, **more)
        if response.status_code >= 400:
            raise EngineNotReadyError(f"The engine {self.name} answered {url} with {response.status_code}.")
        return response

    @property
    def health_url(self) -> str:
        """What answers while the engine takes requests."""
        return f"{self._root}/models"

    async def counters(self) -> Mapping[str, float]:
        text = (await self._asked("GET", f"{self.server}/metrics")).text
        try:
            return parse_metrics(text)
        except ValueError as error:
            raise EngineNotReadyError(
                f"The engine {self.name} has metrics in no known format: {error}"
            ) from error

    async def health(self) -> Health:
        try:
            status = (await self.answer_of("GET", self.health_url)).status_code
        except EngineNotReadyError as error:
            return Health(False, str(error))
        if status < 400:
            return Health(True, "")
        said = f"The engine {self.name} answered {self.health_url} with {status}."
        # It is there, and will say itself what it has against a request.
        return Health(True, said, known=False) if status in _NO_SUCH_QUESTION else Health(False, said)

    async def flush(self) -> None:
        raise UnsupportedByEngineError(f"The engine {self.name} has no way to forget what it cached.")

    async def aclose(self) -> None:
        await self.relays.aclose()
        await self._client.aclose()


def _bounds(options: HttpOptions, headers: Mapping[str, str]) -> Bounds:
    return Bounds(
        connect_s=options.connect_s,
        read_s=options.first_byte_s,
        write_s=options.write_s,
        free_s=options.pool_s,
        connections=options.max_connections,
        headers={
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": "kvgate",
            **{name.lower(): value for name, value in headers.items()},
        },
    )


def prompts_in(request: RelayRequest) -> int:
    """How many prompts one request has: completions take lists of them."""
    if request.route != "completions":
        return 1
    prompt = request.fields().get("prompt")
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], (str, list)):
        return 1
    return len(prompt)


def _hiding(request: RelayRequest, rewrites: Rewrites) -> Rewrites:
    """Keep usage that was forced upstream from a client that did not ask for it."""
    if not request.stream or request.asks_usage or request.route not in ("chat", "completions"):
        return rewrites
    return replace(rewrites, usage=_hidden)


def _hidden(payload: dict[str, Any], _: UsageRead) -> Mapping[str, Any] | None:
    if not payload.get("usage"):
        return payload
    return {**payload, "usage": None} if payload.get("choices") else None


class _Relay(AbstractAsyncContextManager[RelayedAnswer]):
    """One request from when it is sent until nobody wants its answer any more."""

    def __init__(self, engine: HttpEngine, request: RelayRequest, rewrites: Rewrites) -> None:
        self._engine = engine
        self._request = request
        self._rewrites = rewrites

    async def __aenter__(self) -> RelayedAnswer:
        engine, request = self._engine, self._request
        method = METHODS.get(request.route, "POST")
        body = engine.upstream_body(request) if request.body else b""
        url, headers = engine.url(request), engine.upstream_headers(request)
        try:  # as `opened`, without its call
            self._exchange = await engine.relays.ask(method, url, body, headers)
        except TransportError as error:
            raise engine.unanswered(error) from error
        profile = engine.profile_of(request.route)
        others = {own: shown for own, shown in engine.names(request).items() if own and own != shown}
        names = ModelNames(others) if others else None
        return _HttpAnswer(engine.name, self._exchange, profile, prompts_in(request), self._rewrites, names)

    async def __aexit__(self, *_: object) -> None:
        self._exchange.close()


class _HttpAnswer(RelayedAnswer):
    """One answer over HTTP."""

    def __init__(
        self,
        engine: str,
        exchange: Exchange,
        profile: Profile,
        prompts: int,
        rewrites: Rewrites,
        names: ModelNames | None,
    ) -> None:
        self._engine = engine
        self._exchange = exchange
        self.status = exchange.status
        self.content_type = exchange.headers.get("content-type", "application/json")
        self.headers = {name: exchange.headers[name] for name in _PASSED_BACK if name in exchange.headers}
        self._rewrite: Rewrite | None = rewrites.usage if self.status < 400 else None
        self._translate = rewrites.whole if self.status < 400 else None
        self._stream: StreamWatcher | None = None
        if "event-stream" in self.content_type and self.status < 400:
            self._stream = StreamWatcher(
                profile, prompts, rewrites.usage, rewrite_error=rewrites.error, names=names
            )
            self.account = self._stream.account
        else:
            self._whole = WholeWatcher(profile, prompts, names=names)
            self.account = self._whole.account

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._stream is None:
            yield await self.whole()
            return
        try:
            async for chunk in self._exchange.chunks():
                if passed := self._stream.feed(chunk):
                    yield passed
            if left := self._stream.end():
                yield left
        except TransportError as error:
            raise self._broken(error) from error

    async def whole(self) -> bytes:
        try:
            body = await self._exchange.read(_MAX_WHOLE)
        except TransportError as error:
            raise self._broken(error) from error
        body = self._whole.read(body, self._rewrite)
        return body if self._translate is None else self._translate(body)

    def _broken(self, error: TransportError) -> EngineFailureError:
        if isinstance(error, TooLargeError):
            return EngineFailureError(
                f"The engine {self._engine} sent an answer of more than {_MAX_WHOLE} bytes."
            )
        if isinstance(error, TooSlowError):
            return EngineTimeoutError(f"The engine {self._engine} stopped in the middle of its answer.")
        return EngineFailureError(f"The engine {self._engine} broke off its answer: {error}")
