"""The contract of engines behind HTTP, beside `EngineAdapter`: one request on, one answer back, accounted for."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from engine_adapters.base import Health, ReuseReport, Tier
from engine_adapters.errors import UnsupportedByEngineError
from engine_adapters.reuse.reading import UsageRead

Route = Literal[
    "chat",
    "completions",
    "responses",
    "embeddings",
    "messages",
    "count_tokens",  # of a message
    "rerank",
    "tokenize",
    "detokenize",
    "response",  # one that the engine keeps, by its id; so the next three
    "response_items",
    "response_cancel",
    "response_delete",
]
ROUTES: tuple[Route, ...] = get_args(Route)


class RelayRequest(msgspec.Struct, frozen=True):
    """One request as it goes to the engine."""

    request_id: str
    route: Route
    body: bytes  # canonical JSON; the adapter may only add what it needs upstream (include_usage, salt, model name)
    stream: bool
    model: str  # the engine's own name for it; empty: the request names none, and the engine knows
    asks_usage: bool = (
        True  # False: the client did not ask for usage in the stream, so its chunk must not reach it
    )
    salt: str | None = None  # keeps tenants apart where the engine takes one
    tenant: str = ""  # the name, for an engine that keeps books of its own; empty: it is not told
    headers: Mapping[str, str] = MappingProxyType({})  # to send on: trace context, for example
    parsed: Mapping[str, Any] | None = None  # `body`, where whoever asks has it at hand
    target: str = ""  # the id of a response, of routes to one that the engine keeps
    query: str = ""  # of the URL, without its question mark; of the same routes
    # The engine's own names of models -> what this client calls them, which is what its answer says.
    names: Mapping[str, str] = MappingProxyType({})
    tokens: NDArray[np.int32] | None = None  # of the prompt, [tokens], made here; None: they are not known

    def fields(self) -> Mapping[str, Any]:
        """The body's top-level fields; parses it where nobody did."""
        if self.parsed is not None:
            return self.parsed
        body = orjson.loads(self.body) if self.body else {}
        return body if isinstance(body, dict) else {}


# Gets the event or answer with usage in it and what was read; gives what goes on in its place, None for nothing.
Rewrite: TypeAlias = Callable[[dict[str, Any], UsageRead], Mapping[str, Any] | None]
# Gets a whole answer that is no error, as the engine sent it; gives what goes on in its place.
Translate: TypeAlias = Callable[[bytes], bytes]
# Gets an event of a stream that is an error; gives what goes on in its place.
RewriteError: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]


class Rewrites(msgspec.Struct, frozen=True):
    """What may change on the way to the client. None: it passes as it came."""

    usage: Rewrite | None = None
    error: RewriteError | None = None
    whole: Translate | None = None


class Account(msgspec.Struct):
    """What one relayed answer said of itself; complete when its bytes have ended. None means: it did not say."""

    reuse: ReuseReport
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish: str | None = None  # the first choice's reason
    first_token_at: float | None = None  # seconds of the monotonic clock: the first frame with content
    ended: bool = False  # the answer came to its own end, and was not cut
    error: str | None = None  # the kind of error where the engine sent one, never its text
    response_id: str | None = None  # of the Responses API, as soon as it is known


class RelayedAnswer(ABC):
    """An engine's answer while it arrives."""

    status: int
    content_type: str
    headers: Mapping[str, str]  # what may go to the client: retry-after and the like
    account: Account

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, comments and keep-alives included; a frame is never held back for another.

        Raises EngineFailureError when the engine dies in the middle.
        """

    @property
    def streams(self) -> bool:
        """Whether it is a stream of events."""
        return "event-stream" in self.content_type

    @abstractmethod
    async def whole(self) -> bytes:
        """The body of what is no stream, in the place of `chunks`. Raises as that does."""


@dataclass(frozen=True, slots=True)
class EventPublisher:
    """Where an engine says that it publishes what its cache holds."""

    endpoint: str  # ZeroMQ's form, as the engine was told: tcp://*:5557
    topic: str = ""
    binds: bool = True  # False: it connects there, so that whoever listens must bind


@dataclass(frozen=True, slots=True)
class RemoteCapabilities:
    """What was found out about an engine when it was registered. None: could not be found out."""

    models: tuple[str, ...]
    reports_reuse: bool | None
    missing: tuple[
        str, ...
    ] = ()  # flags the engine must be started with to report more, each with what it brings
    block_size: int | None = None  # tokens
    context_length: int | None = None  # tokens
    tiers: tuple[Tier, ...] = ()  # that it tells apart
    takes_salt: bool | None = None
    takes_token_ids: bool | None = None
    as_ids: tuple[
        str, ...
    ] = ()  # kinds of prompts that go there as token ids made here, proved equal to its own
    kv_events: bool | None = None
    publishers: tuple[EventPublisher, ...] = ()  # of KV events, where it says so
    adapters: frozenset[str] = frozenset()  # models that are LoRA of another one
    version: str | None = None


def adapters_in(cards: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Models of a list that say which one they were made from."""
    return frozenset(str(card.get("id")) for card in cards if card.get("parent"))


@dataclass(frozen=True, slots=True)
class OtherPurge:
    """What became of a tenant at an engine that forgets one."""

    blocks: int | None  # of KV; None: it does not say
    complete: bool
    detail: str = ""  # what is still there, and why


class RelayEngine(ABC):
    """One engine behind HTTP. Used from one event loop."""

    name: str
    routes: ClassVar[Collection[Route]] = (
        ROUTES  # that engines of its kind have, whether this one serves them or not
    )
    salted: ClassVar[Collection[Route]] = ()  # of them those whose requests take a salt

    @abstractmethod
    async def detect(self) -> RemoteCapabilities:
        """Ask the engine what it is and can; raises EngineNotReadyError where it does not answer."""

    @abstractmethod
    def relay(
        self, request: RelayRequest, rewrites: Rewrites | None = None
    ) -> AbstractAsyncContextManager[RelayedAnswer]:
        """Send one request on. Leaving the block early closes the connection, which cancels it in the engine.

        A usage chunk that the client did not ask for never passes; what else passes is as it came, but for
        `rewrites`. An answer of status 400 and above is not rewritten.

        Raises EngineNotReadyError or EngineFailureError where there is no answer at all, and UnsupportedByEngineError
        for a route that the engine has not.
        """

    @abstractmethod
    async def counters(self) -> Mapping[str, float]:
        """The engine's own counters, flat, with labels sorted into their names: `name{label="value"}`."""

    @abstractmethod
    async def health(self) -> Health:
        """Whether the engine takes requests now."""

    @abstractmethod
    async def flush(self) -> None:
        """Forget cached prefixes; raises UnsupportedByEngineError where the engine has no way to."""

    forgets: bool = False  # whether it can forget one tenant

    async def forget(self, tenant: str, salt: str, *, shared: bool) -> OtherPurge:
        """Forget what came under `salt`; `shared`: others have the salt, too, so that only what names the tenant goes.

        Raises UnsupportedByEngineError where the engine has no way to, EngineError where it does not do it.
        """
        raise UnsupportedByEngineError(f"The engine {self.name} has no way to forget one tenant.")

    @abstractmethod
    async def aclose(self) -> None:
        """Close all connections."""
