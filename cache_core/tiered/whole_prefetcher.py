"""Of a hybrid model's prompt: how far every group is whole, over all tiers, and what of that is worth bringing up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cache_core.block_header import BlockHeader
from cache_core.load_or_recompute import Plan
from cache_core.metrics import TierName
from cache_core.tiered.asking import Answer
from cache_core.tiered.fetch import Ended
from cache_core.tiered.lookup import Inquiry
from cache_core.tiered.prefetcher import Parts, Prefetcher
from cache_core.tiered.state_tiers import StateTiers
from cache_core.tokens import Tokens
from cache_core.transfer import Priority


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A place from which a prompt could go on."""

    blocks: int
    state_in: TierName


@dataclass(frozen=True, slots=True)
class _Found:
    """KV of a prompt's leading blocks."""

    sources: Sequence[TierName]  # the warmest tier of each, "device" in front
    ready: int  # blocks on the device
    first: int  # block of the first header: those before it are of no interest
    known: Sequence[BlockHeader]

    def headers(self, start: int, stop: int | None = None) -> list[BlockHeader]:
        """Of blocks [start, stop)."""
        stop = len(self.sources) if stop is None else stop
        return list(self.known[start - self.first : stop - self.first])


class WholePrefetcher(Prefetcher):
    """Brings up KV and state together, or neither: KV is loaded up to a boundary that has a state and no further."""

    def __init__(self, parts: Parts, states: StateTiers) -> None:
        super().__init__(parts)
        self._states = states

    def missing(self, tokens: Tokens, scope: str) -> tuple[int, int]:
        ready, limit = super().missing(tokens, scope)
        return self._states.device.deepest(tokens, scope, ready), limit

    def begin(self, tokens: Tokens, scope: str, priority: Priority, inquiry: Inquiry) -> Answer:
        ready, limit = super().missing(tokens, scope)
        now = self._states.device.deepest(tokens, scope, ready)
        number = self._purges.number(self._chains.digest(scope))
        if now >= limit or number is None:
            return Answer(now)
        found = self._kv(tokens[:limit], scope, now, ready, inquiry)
        covered = len(found.sources) * self._cache.block_size
        if not inquiry.goes_on():
            return Answer(now, covered=covered)
        began = self._ways.engine.clock.now()
        boundaries = self._boundaries(tokens, scope, found, now, inquiry)
        best, plan = self._best(found, boundaries, self._ways.ahead(priority))
        if found.ready < len(found.sources):
            self._observer.decided(plan.decided(found.sources[found.ready :]))
        if best.blocks * self._cache.block_size <= now:
            return Answer(now, covered=covered)
        over = partial(self._over, plan, began, found.ready, scope, tokens)
        answer = self._bring_up(tokens, scope, found, best, number, priority, over)
        return answer or Answer(now, covered=covered)

    def _kv(self, tokens: Tokens, scope: str, now: int, ready: int, inquiry: Inquiry) -> _Found:
        first, ready = now // self._cache.block_size, ready // self._cache.block_size
        chain = self._chains.prompt(scope, tokens, inquiry.goes_on)
        below, sources = self._lookup.find(chain, ready, inquiry)
        headers = chain.headers(first, ready) + below
        self._chains.remember(chain)
        device: list[TierName] = ["device"] * ready
        return _Found(device + sources, ready, first, headers)

    def _boundaries(
        self, tokens: Tokens, scope: str, found: _Found, now: int, inquiry: Inquiry
    ) -> list[_Boundary]:
        """Where KV and a state are: what can be reused now, with a state on the device, and with one in any tier."""
        size = self._cache.block_size
        on_device = max(now, self._states.device.deepest(tokens, scope, len(found.sources) * size))
        boundaries = [_Boundary(length // size, "device") for length in sorted({now, on_device})]
        below = self._states.deepest(found.headers(on_device // size), inquiry)
        if below is not None:
            boundaries.append(_Boundary(on_device // size + below[0] + 1, below[1]))
        return boundaries

    def _best(
        self, found: _Found, boundaries: Sequence[_Boundary], ahead: Mapping[TierName, int]
    ) -> tuple[_Boundary, Plan]:
        """From where the prompt is there soonest: KV and state come up to there, the rest is recomputed.

        Where two take the same time, the deeper one, as it leaves the processor to others.
        """
        seconds = [self._seconds(found.sources, at, ahead) for at in boundaries]
        choice = min(reversed(range(len(boundaries))), key=seconds.__getitem__)
        tried = self._tries(found, boundaries[choice], boundaries[-1], seconds[-1] - seconds[choice])
        if tried:
            choice = len(boundaries) - 1
        below = len(found.sources) - found.ready
        loaded = max(boundaries[choice].blocks - found.ready, 0)
        plan = Plan(loaded, below, below, seconds[choice], seconds[-1], seconds[0], tried)
        return boundaries[choice], plan

    def _tries(self, found: _Found, best: _Boundary, deepest: _Boundary, loss: float) -> bool:
        """Whether to bring up all that there is, though less of it is expected to be sooner: to measure it again."""
        taken = {"device", best.state_in, *found.sources[: best.blocks]}
        passed = {deepest.state_in, *found.sources[best.blocks : deepest.blocks]} - taken
        if not passed:
            return False
        start, blocks = best.blocks * self._cache.block_size, deepest.blocks - best.blocks
        computing = float(self._estimates.recompute(start, blocks).sum())
        return self._estimates.tries(passed, computing, min(loss, self.wait(start, blocks)))

    def _seconds(self, sources: Sequence[TierName], at: _Boundary, ahead: Mapping[TierName, int]) -> float:
        load = self._estimates.load(sources[: at.blocks], ahead=ahead)
        state = self._estimates.load([at.state_in], self._states.row_bytes)
        rest = self._estimates.recompute(at.blocks * self._cache.block_size, len(sources) - at.blocks)
        return load + state + float(rest.sum())

    def _bring_up(
        self,
        tokens: Tokens,
        scope: str,
        found: _Found,
        best: _Boundary,
        number: int,
        priority: Priority,
        over: Ended,
    ) -> Answer | None:
        """KV and state up to `best`; None: there is no room, or something went meanwhile."""
        length = best.blocks * self._cache.block_size
        blocks = self._blocks(tokens[: length + 1], scope, found, best.blocks, number, priority, over)
        if blocks is None:
            return None
        state = None
        if best.state_in != "device":
            deadline = self._ways.engine.clock.now() + self.wait(0, best.blocks)
            (last,) = found.headers(best.blocks - 1, best.blocks)
            state = self._states.fetch(scope, tokens[:length], last, best.state_in, deadline, number)
            if state is None:
                if blocks.fetch is not None:
                    blocks.fetch.leave()
                return None
        covered = len(found.sources) * self._cache.block_size
        return Answer(length, blocks.fetch, blocks.shared, blocks.own, state, covered)

    def _blocks(
        self,
        tokens: Tokens,
        scope: str,
        found: _Found,
        end: int,
        number: int,
        priority: Priority,
        over: Ended,
    ) -> Answer | None:
        """What brings all of these blocks up that the device lacks; None: nothing does."""
        length = end * self._cache.block_size
        if end <= found.ready:
            return Answer(length)
        coming = self._cache.computing(tokens, scope)
        if coming is not None and coming.shared >= length:
            return self._of_another(coming, priority)
        headers, sources = found.headers(found.ready, end), list(found.sources[found.ready : end])
        fetch = self._prepare(tokens, scope, headers, sources, over, whole=True)
        if fetch is None:
            return None
        self._start(fetch, number, priority)
        return Answer(length, fetch, length)
