"""The replica that should answer first: by the prefixes that each holds, and by what waits there."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from engine_adapters.base import ReuseReport
from gateway.routing.chain import BLOCK, CHUNK, PromptChain
from gateway.routing.known_runs import KnownRuns
from gateway.routing.kv_changes import Change
from gateway.routing.prefill_rate import PrefillRates
from gateway.routing.prompt_chain import chained
from gateway.routing.replica_index import ReplicaIndex, Sending
from gateway.routing.replica_load import Loads, ReplicaLoad
from gateway.routing.router import Decision, Reason, RouteAsk, Score
from gateway.routing.sessions import Sessions
from gateway.routing.settings import RoutingSettings
from gateway.routing.token_ratio import TokenRatios
from gateway.routing.told import ToldReplicas

log = logging.getLogger("kvgate.gateway")

Clock: TypeAlias = Callable[[], float]


class _Ticket(msgspec.Struct):
    """One choice that has not ended. Tokens are the engine's own, as far as they are known."""

    number: int
    scope: str  # empty: it is not asked for
    replica: str
    load: ReplicaLoad
    uncached: int
    ahead: int  # tokens that waited there before it
    sent_at: float
    counted: bool  # whether the prompt was hashed by its tokens
    sending: Sending | None  # None: it leaves no prefix
    told: bool  # whether its replica's events tell of its prefix, where they flow
    answered: bool = False
    ended: bool = False


class _View(msgspec.Struct, frozen=True):
    """One candidate, as it is weighed."""

    replica: str
    load: ReplicaLoad
    matched: int  # prompt tokens
    uncached: int
    rate: float  # tokens a second
    waits_s: float  # until its prefill begins
    prefill_s: float  # of what it would have to compute
    work_s: float  # that it has computed lately


class PrefixRouter:
    """Routes one engine's requests. Used from one event loop; the same choices for the same calls and clock.

    Of the replicas that are not beyond their share of the load, the one with the lowest expected time to first token,
    in which what would be computed again counts `recompute_price` times: it takes its time now, and pushes out of that
    cache what others come back for. The more requests that are running want the same prefix, the less it counts, so
    that a hot one gets copies.

    Attributes:
        failed: choices and ends that went wrong, for a reason which was logged once.
    """

    def __init__(self, settings: RoutingSettings | None = None, clock: Clock = time.monotonic) -> None:
        self.settings = settings = settings or RoutingSettings()
        self.index = ReplicaIndex(settings.max_keys, settings.capacity_tokens)
        self.loads = Loads(settings.work_half_life_s)
        self.events = ToldReplicas(self.index)
        self._rates = PrefillRates(settings.prefill_tokens_per_s)
        self._ratios = TokenRatios()
        self._sessions = Sessions(settings.sessions)
        self._runs = KnownRuns()
        self._clock = clock
        self._choices = 0
        self.failed = 0

    async def choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        """One of `candidates`, with what was thought of each."""
        try:
            if len(candidates) == 1 and self.loads.alone(candidates[0]):
                return self._only(ask, candidates[0])
            return await self._choose(ask, candidates)
        except Exception as error:  # noqa: BLE001  whatever a body has in it, the request goes on
            self._failed(error)
            return Decision(min(candidates, key=self._last_chosen), "emptiest")

    async def _choose(self, ask: RouteAsk, candidates: Sequence[str]) -> Decision:
        chain = await chained(ask, self._runs.digests) if ask.prompt else None
        now = self._clock()
        self.events.due(now)
        found = [0] * len(candidates) if chain is None else self.index.matched(chain, candidates)
        most = max(found)
        heat = self.index.heat(chain, most) if chain is not None and most else 0
        views = self._views(ask, chain, candidates, self._hinted(ask, chain, candidates, found), now)
        home = None if ask.session is None else self._sessions.replica(ask.scope, ask.session)
        chosen = self._best(views, home, heat)
        known = chain is not None
        scores = _scores(views, known)
        sending = None
        if chain is not None:
            held = found[candidates.index(chosen.replica)]
            sending = self.index.send(chosen.replica, chain, held, most)
        ahead = int(chosen.load.ahead(chosen.rate, now))
        ticket = self._began(ask, chosen.replica, chosen.load, chosen.uncached, ahead, now, sending)
        return Decision(
            chosen.replica,
            _reason(chosen, views, home),
            scores,
            prompt=chosen.matched + chosen.uncached if known else None,
            counted=ask.tokens is not None,
            token=ticket,
        )

    def first_token(self, decision: Decision) -> None:
        """Its prefill is done: how long that took says how fast the replica is."""
        ticket = decision.token
        if isinstance(ticket, _Ticket) and not ticket.answered and not ticket.ended:
            ticket.answered = True
            now = self._clock()
            ticket.load.answers(ticket.number, now)
            self._rates.saw(ticket.replica, ticket.uncached + ticket.ahead, now - ticket.sent_at)

    def ended(self, decision: Decision, reuse: ReuseReport | None) -> None:
        """Learn what was reused. Without a report and a first token the prompt never got that far."""
        ticket = decision.token
        if not isinstance(ticket, _Ticket) or ticket.ended:
            return
        ticket.ended = True
        ticket.load.ended(ticket.number, self._clock())
        try:
            self._learn(ticket, reuse)
        except Exception as error:  # noqa: BLE001  the request has ended, whatever is believed
            self._failed(error)

    def forget(self, replica: str) -> None:
        """It holds nothing, and may be as fast or slow as any."""
        self.events.forget(replica)
        self.index.cleared(replica)
        self.loads.forget(replica)
        self._rates.forget(replica)
        self._sessions.forget(replica)

    def forget_prompts(self) -> int:
        """As `RemembersPrompts` says."""
        return self._runs.clear() + self.events.forget_prompts()

    def told(self, replica: str, changes: Sequence[Change]) -> None:
        """What the replica says of its cache: from now on that counts, and not what was sent there."""
        try:
            self.events.due(self._clock())
            self.events.take(replica, changes)
        except Exception as error:  # noqa: BLE001  whatever an engine says, requests go on
            self._failed(error)

    def _only(self, ask: RouteAsk, replica: str) -> Decision:
        """There is no other, and never was: no prompt is hashed."""
        now, rate = self._clock(), self._rates.of(replica)
        (load,) = self.loads.of((replica,), now)
        ahead = load.ahead(rate, now)
        waits = ahead + self.settings.running_tokens * (load.running + load.waiting)
        scores = (Score(replica, None, load.queued, waits / rate),)
        return Decision(
            replica, "only", scores, token=self._began(ask, replica, load, 0, int(ahead), now, None)
        )

    def known(self, chain: PromptChain, candidates: Sequence[str]) -> int:
        """Tokens of a prompt that one of `candidates` should hold at most, by what is known here."""
        return max(self.index.matched(chain, candidates))

    def _hinted(
        self, ask: RouteAsk, chain: PromptChain | None, candidates: Sequence[str], found: list[int]
    ) -> list[int]:
        """With what others say, but of replicas that say themselves all there is to know."""
        if chain is None or not ask.hints:
            return found
        return [
            there
            if hint <= there or self.events.knows(replica, chain)
            else max(there, min(hint, chain.tokens))
            for replica, there in zip(candidates, found, strict=True)
            for hint in (ask.hints.get(replica, 0),)
        ]

    def _views(
        self,
        ask: RouteAsk,
        chain: PromptChain | None,
        candidates: Sequence[str],
        found: Sequence[int],
        now: float,
    ) -> list[_View]:
        ratio = 1.0 if ask.tokens is not None else self._ratios.of(ask.scope)
        prompt = 0 if chain is None else int(chain.tokens * ratio)
        most = prompt - 1 if prompt else 0  # the last token is computed in any case
        running, rate_of, views = self.settings.running_tokens, self._rates.of, []
        for replica, load, there in zip(candidates, self.loads.of(candidates, now), found, strict=True):
            matched = int(there * ratio)
            if matched > most:
                matched = most
            rate = rate_of(replica)
            ahead = load.ahead(rate, now) if load.waiting else 0.0
            waits = ahead + running * (load.running + load.waiting)
            uncached = prompt - matched
            view = _View(
                replica, load, matched, uncached, rate, waits / rate, uncached / rate, load.work / rate
            )
            views.append(view)
        return views

    def _best(self, views: Sequence[_View], home: str | None, heat: int) -> _View:
        settings, count = self.settings, len(views)
        price = 1 + (settings.recompute_price - 1) / (1 + heat)
        mean = sum([view.work_s for view in views]) / count
        # No more waits there than their share; at least one is within that.
        most = settings.bound * sum([view.waits_s for view in views]) / count + settings.slack_s
        ranks = []
        for at, view in enumerate(views):
            if view.waits_s > most:
                continue
            cost = view.waits_s + price * view.prefill_s
            if view.work_s > mean:
                cost += settings.work_share * (view.work_s - mean)
            if view.replica == home:
                prompt_s = (view.matched + view.uncached) / view.rate
                cost -= settings.session_s + settings.session_share * price * prompt_s
            ranks.append((cost, view.work_s, view.load.chosen, at))
        return views[min(ranks)[-1]]

    def _began(
        self,
        ask: RouteAsk,
        replica: str,
        load: ReplicaLoad,
        uncached: int,
        ahead: int,
        now: float,
        sending: Sending | None,
    ) -> _Ticket:
        self._choices += 1
        load.began(self._choices, uncached, now, told=ask.streams)
        counted = ask.tokens is not None
        if ask.session is not None:
            self._sessions.went(ask.scope, ask.session, replica)
        return _Ticket(
            number=self._choices,
            scope="" if counted else ask.scope,
            replica=replica,
            load=load,
            uncached=uncached,
            ahead=ahead,
            sent_at=now,
            counted=counted,
            sending=sending,
            told=ask.seed is not None,
        )

    def _learn(self, ticket: _Ticket, reuse: ReuseReport | None) -> None:
        if ticket.sending is None:
            return
        if reuse is None and not ticket.answered:
            ticket.load.corrected(-ticket.uncached)
            self.index.withdraw(ticket.sending)
        else:
            self._learn_reuse(ticket, ticket.sending, reuse)

    def _learn_reuse(self, ticket: _Ticket, sending: Sending, reuse: ReuseReport | None) -> None:
        hashed = sending.chain.tokens
        if reuse is None or reuse.status != "reported" or reuse.reused is None or not reuse.prompt:
            self._ended(ticket, sending, None)
            return
        ticket.load.corrected(reuse.prompt - reuse.reused - ticket.uncached)
        reused = reuse.reused
        if not ticket.counted:
            self._ratios.saw(ticket.scope, hashed, reuse.prompt)
            # Tokens as they were hashed; a chunk and a tenth may be the estimate's error.
            reused = reused * hashed // reuse.prompt + CHUNK + sending.matched // 10
        self._ended(ticket, sending, reused)

    def _ended(self, ticket: _Ticket, sending: Sending, reused: int | None) -> None:
        """`reused`: of the prompt as it was hashed; a replica that tells what it holds need not be guessed at."""
        flows = self.events.flows(ticket.replica)
        self.index.ended(sending, None if flows else reused)
        if flows and ticket.told:
            self.events.settle(sending, self._clock())

    def _last_chosen(self, replica: str) -> int:
        load = self.loads.all().get(replica)
        return 0 if load is None else load.chosen

    def _failed(self, error: Exception) -> None:
        """What is believed may be in disorder, and is only a hint: it begins anew."""
        self.events.clear()
        self.index.clear()
        self.failed += 1
        if self.failed == 1:
            # Its own text is left out, since it may quote a prompt.
            log.error("a request could not be scored", extra={"fields": {"error": type(error).__name__}})


def _scores(views: Sequence[_View], known: bool) -> tuple[Score, ...]:
    """`known`: whether the prompt is. Before the request itself counts."""
    return tuple(
        [
            Score(v.replica, v.matched if known else None, v.load.queued, v.waits_s + v.prefill_s)
            for v in views
        ]
    )


def _reason(chosen: _View, views: Sequence[_View], home: str | None) -> Reason:
    if len(views) == 1:
        return "only"
    if chosen.matched + CHUNK <= max(view.matched for view in views):
        return "balance"
    if chosen.matched >= min(view.matched for view in views) + BLOCK:
        return "prefix"
    return "session" if chosen.replica == home else "emptiest"
