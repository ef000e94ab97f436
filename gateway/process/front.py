"""How a serving process meets the world: its socket, what it says when it is ready, and who works beside it."""

import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import orjson

from canon.memory import MemoryStore
from gateway.ledger.expectation import Predictor
from gateway.limits.counter import Counter
from gateway.process.listener import listen
from gateway.process.telling import tell_line
from gateway.routing.router import Router

_MAX_NAMED = 8  # models that the line says

Figures: TypeAlias = Sequence[Sequence[Any]]  # see `gateway.telemetry.figures`


class Siblings(Protocol):
    """The other processes of this server, which serve beside this one."""

    def offer(self, name: str, answer: Callable[..., Any | Awaitable[Any]]) -> None:
        """Let others ask for `name`."""

    async def ask(self, name: str, *args: Any) -> list[Any]:
        """What each of them answers.

        Raises:
            SiblingsAwayError: not all of them can be asked now, or not all answer. Some may have been asked.
        """

    def count(self, own: Callable[[], Figures]) -> None:
        """`own` gives what this process has counted; called on any thread."""

    async def figures(self) -> list[Figures]:
        """What this process, the others, and those that have ended have counted; empty: it is the only one.

        Raises:
            SiblingsAwayError: nobody can tell now.
        """


class SiblingsAwayError(Exception):
    """What the processes of a server share is away: what all of them say together cannot be said."""


class Alone:
    """There are none."""

    def offer(self, name: str, answer: Callable[..., Any | Awaitable[Any]]) -> None:
        """Nobody will ask."""

    async def ask(self, name: str, *args: Any) -> list[Any]:
        """Nobody answers."""
        return []

    def count(self, own: Callable[[], Figures]) -> None:
        """Nobody asks."""

    async def figures(self) -> list[Figures]:
        """It is the only one."""
        return []


ALONE = Alone()


class Front(Protocol):
    """One serving process, seen from outside."""

    @property
    def leader(self) -> bool:
        """Whether what a server does once is done in this process."""

    @property
    def workers(self) -> int:
        """Processes of this server that serve, this one among them."""

    @property
    def siblings(self) -> Siblings:
        """Who serves beside it."""

    @property
    def memory(self) -> MemoryStore | None:
        """Where conversations are remembered; None: in this process."""

    @property
    def counter(self) -> Counter | None:
        """Where it is counted what tenants use; None: in this process."""

    def predictor(self, own: Predictor | None) -> Predictor | None:
        """Who expects reuse, where `own` would in a process of its own."""

    def router(self, engine: str, own: Router) -> Router:
        """Who chooses replicas of `engine`, where `own` would in a process of its own."""

    @property
    def late(self) -> bool:
        """Whether it listens only once it is ready, since others answer until then."""

    def listen(self) -> socket.socket:
        """The socket that requests come to; raises ListenError. It listens already where this process is not late."""

    def progress(self, line: str) -> None:
        """Tell an operator how far the start has come."""

    def announce(self, line: str) -> None:
        """Tell an operator what no other process of this server knows."""

    async def ready(self, url: str, models: Sequence[str]) -> None:
        """Requests are answered from now on; `models`: by all their names, one at least."""

    async def open(self) -> None:
        """Called on the event loop before anything is served."""

    async def aclose(self) -> None:
        """Called on it when nothing is served any more."""


class OneProcess:
    """A server that is one process."""

    leader = True
    late = False
    siblings: Siblings = ALONE
    memory: MemoryStore | None = None
    workers = 1
    counter: Counter | None = None

    def __init__(self, host: str, port: int, *, json: bool = False) -> None:
        self._host, self._port, self._json = host, port, json
        self._started = time.perf_counter()

    def predictor(self, own: Predictor | None) -> Predictor | None:
        """Its own."""
        return own

    def router(self, engine: str, own: Router) -> Router:
        """Its own."""
        return own

    def listen(self) -> socket.socket:
        """The socket that requests come to; raises ListenError."""
        return listen(self._host, self._port)

    def progress(self, line: str) -> None:
        """Say on stderr how far the start has come."""
        elapsed = time.perf_counter() - self._started
        tell_line(f"[{elapsed:6.1f} s] {line}", sys.stderr)

    def announce(self, line: str) -> None:
        """Say it beside."""
        self.progress(line)

    async def ready(self, url: str, models: Sequence[str]) -> None:
        """Say so on stderr, and where JSON is wanted on stdout."""
        base_url = f"{url}/v1"
        self.progress(f"ready on {base_url} {_named(models)}")
        if self._json:
            seconds = round(time.perf_counter() - self._started, 3)
            line = {
                "ready": True,
                "base_url": base_url,
                "model": models[0],
                "models": models,
                "seconds": seconds,
            }
            tell_line(orjson.dumps(line).decode(), sys.stdout)

    async def open(self) -> None:
        """Nothing is shared."""

    async def aclose(self) -> None:
        """Nothing is shared."""


def _named(models: Sequence[str]) -> str:
    if len(models) == 1:
        return f"model={models[0]}"
    more = f" and {len(models) - _MAX_NAMED} more" if len(models) > _MAX_NAMED else ""
    return f"models={','.join(models[:_MAX_NAMED])}{more}"
