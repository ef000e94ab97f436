"""The contract of routing: from one request and the replicas that could take it to one of them, explained."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine_adapters.base import ReuseReport
from gateway.routing.chain import PromptChain
from gateway.routing.kv_changes import Change
from gateway.tenants.tenant import DEFAULT, Tenant

Reason = Literal["only", "prefix", "session", "emptiest", "balance", "turn"]


class RouteAsk(msgspec.Struct, frozen=True):
    """One request that looks for a replica."""

    request_id: str
    engine: str  # the pool's name
    model: str  # as the client says it
    body: Mapping[str, Any]  # as it goes on
    size: int  # bytes of it
    tenant: Tenant = DEFAULT
    tokens: NDArray[np.int32] | None = None  # shape [prompt tokens]; None: the engine makes them itself
    session: str | None = None  # what says which requests belong together; None: nothing does
    chain: PromptChain | None = None  # of the prompt, where somebody has made it already
    seed: bytes | None = None  # of its keys where the engine's own events tell them; None: by scope
    # Tokens of it that others say replicas hold, by replica; hints.
    hints: Mapping[str, int] = MappingProxyType({})
    streams: bool = True  # whether its first token will be told of
    prompt: bool = True  # False: leaves no prefix behind (embeddings)

    @property
    def scope(self) -> str:
        """Within what prefixes can be shared."""
        return self.tenant.scope(self.model)


class Score(msgspec.Struct, frozen=True, array_like=True):
    """What was thought of one replica. None: not known."""

    replica: str
    predicted: int | None  # prompt tokens that it should have
    queued: int  # prompt tokens that wait there uncached
    ttft_s: float | None  # expected


class Decision(msgspec.Struct, frozen=True):
    """One replica, and why."""

    replica: str
    reason: Reason
    scores: tuple[Score, ...] = ()  # of every candidate that was scored; empty: none had to be
    prompt: int | None = None  # tokens of it, as far as is known here
    counted: bool = False  # whether these are the engine's own tokens, and not estimated
    token: object | None = None  # the router's own, to find the request again

    @property
    def predicted(self) -> int | None:
        """Prompt tokens that the chosen one should have; None: not known."""
        score = self._chosen
        return None if score is None else score.predicted

    @property
    def queued(self) -> int | None:
        """Uncached prompt tokens that waited at the chosen one before it; None: not known."""
        score = self._chosen
        return None if score is None else score.queued

    @property
    def uncached(self) -> int | None:
        """Prompt tokens that the chosen one should have to prefill for it; None: not known."""
        predicted = self.predicted
        return None if self.prompt is None or predicted is None else self.prompt - predicted

    @property
    def anywhere(self) -> int | None:
        """Prompt tokens that the one with the most of them should have; None: not known."""
        known = [score.predicted for score in self.scores if score.predicted is not None]
        return max(known, default=None)

    @property
    def _chosen(self) -> Score | None:
        for score in self.scores:
            if score.replica == self.replica:
                return score
        return None


@runtime_checkable
class HearsReplicas(Protocol):
    """A router that replicas tell what they hold."""

    def told(self, replica: str, changes: Sequence[Change]) -> None:
        """What the replica says of its cache, in its order. Called on the event loop; never raises."""


@runtime_checkable
class RemembersPrompts(Protocol):
    """A router that keeps tokens of prompts, to hash them once, or until their replica has told of them."""

    def forget_prompts(self) -> int:
        """Drop them all; how many runs and prompts there were here."""


class Router(Protocol):
    """Chooses replicas of one engine. Called on the event loop; never raises.

    Only `choose` may wait: what it has to ask may be in another process.
    """

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """One of `candidates`, ids of replicas that take requests now (at least one); it counts as sent there."""

    def first_token(self, decision: Decision) -> None:
        """The replica has begun to answer: its prefill is done."""

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """The request has ended there, however; called once for each decision. None: no answer said anything."""

    def forget(self, replica: str) -> None:
        """The replica has gone, or was restarted: it has no prefix any more."""
