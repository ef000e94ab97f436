"""A router that asks what other gateways know of replicas' caches, and tells them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from cache_core.prefix_directory import PrefixDirectory
from engine_adapters.base import ReuseReport
from gateway.routing.chain import CHUNK, PromptChain
from gateway.routing.known_runs import KnownRuns
from gateway.routing.kv_changes import Change
from gateway.routing.prompt_chain import chained
from gateway.routing.router import Decision, HearsReplicas, RemembersPrompts, RouteAsk, Router


@runtime_checkable
class _Knows(Protocol):
    def known(self, chain: PromptChain, candidates: Sequence[str]) -> int: ...


@dataclass(slots=True)
class _Sent:
    """One choice: the own router's, with what is told of it when the replica has computed its prompt."""

    token: object | None
    scope: str
    chain: PromptChain | None
    told: bool = False


def directed(own: Router, directory: PrefixDirectory) -> "DirectedRouter":
    """It hears replicas where `own` does."""
    return (ListeningDirectedRouter if isinstance(own, HearsReplicas) else DirectedRouter)(own, directory)


class DirectedRouter:
    """As `Router` says. `own` decides, with the directory's hints beside what it knows."""

    def __init__(self, own: Router, directory: PrefixDirectory) -> None:
        self.own = own
        self.directory = directory
        self._runs = KnownRuns()
        self._several = False  # where there is but one replica, nobody asks where to go

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """One of `candidates`."""
        chain = None
        self._several = self._several or len(candidates) > 1
        try:
            if ask.prompt and self._several:
                chain = await chained(ask, self._runs.digests)
                hints = await self._hints(ask.scope, chain, candidates)
                ask = replace(ask, chain=chain, hints=hints)
        except (TypeError, ValueError, RecursionError):
            chain = None  # the own router meets the same, and says so
        decision = await self.own.choose(ask, candidates)
        return replace(decision, token=_Sent(decision.token, ask.scope, chain))

    def first_token(self, decision: Decision) -> None:
        """The replica has computed the prompt: others may know."""
        own, sent = _own(decision)
        self.own.first_token(own)
        self._tell(decision.replica, sent)

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """The request has ended there."""
        own, sent = _own(decision)
        self.own.ended(own, reuse)
        if reuse is not None:
            self._tell(decision.replica, sent)

    def forget(self, replica: str) -> None:
        """It has no prefix any more, for nobody."""
        self.own.forget(replica)
        self.directory.cleared(replica)

    def forget_prompts(self) -> int:
        """As `RemembersPrompts` says."""
        own = self.own.forget_prompts() if isinstance(self.own, RemembersPrompts) else 0
        return own + self._runs.clear()

    async def _hints(self, scope: str, chain: PromptChain, candidates: Sequence[str]) -> dict[str, int]:
        """Tokens by replica."""
        known = self.own.known(chain, candidates) // CHUNK if isinstance(self.own, _Knows) else 0
        if len(candidates) < 2 or known >= len(chain.keys):
            return {}
        found = await self.directory.owners(scope, chain.keys, known)
        return {each.name: each.depth * CHUNK for each in found if each.name in candidates}

    def _tell(self, replica: str, sent: _Sent | None) -> None:
        if sent is not None and sent.chain is not None and not sent.told:
            sent.told = True
            self.directory.holds(sent.scope, sent.chain.keys, replica)


class ListeningDirectedRouter(DirectedRouter):
    """Whose own router replicas tell what they hold."""

    def told(self, replica: str, changes: Sequence[Change]) -> None:
        """As `HearsReplicas` says."""
        assert isinstance(self.own, HearsReplicas)
        self.own.told(replica, changes)


def _own(decision: Decision) -> tuple[Decision, _Sent | None]:
    sent = decision.token
    return (replace(decision, token=sent.token), sent) if isinstance(sent, _Sent) else (decision, None)
