"""Which sequences run in the next step, and with how many tokens each (continuous batching)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cache_core import Lease, OutOfBlocksError, PrefixCache, RetentionHints
from cache_core.tiered import OwnLoad
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.sequence import Sequence
from engine_adapters.embedded.state.auxiliary import AuxiliaryState
from engine_adapters.embedded.state.branches import Branches
from engine_adapters.embedded.state.prefixes import Found, HybridPrefixes


@dataclass(frozen=True, slots=True)
class Chunk:
    """`tokens` more tokens of one sequence; `sample` when they reach its end.

    With `behind`, they go behind what comes up for it, whose layers are waited for one after the other.
    """

    sequence: Sequence
    tokens: int
    sample: bool
    behind: OwnLoad | None = None

    @property
    def past(self) -> int:
        """Tokens before them."""
        return self.sequence.computed if self.behind is None else self.behind.end


@dataclass(slots=True)
class Plan:
    """One step: what to compute, and which sequences ended because no block is left for them."""

    chunks: list[Chunk] = field(default_factory=list)
    out_of_room: list[Sequence] = field(default_factory=list)


class Below:
    """What lies below the device, as the scheduler sees it. Here: nothing."""

    def comes_up(self, sequence: Sequence, missing: int) -> bool:
        """Whether a queued sequence waits for its prefix, `missing` tokens of it not being cached now."""
        return False

    def admitted(self, sequence: Sequence) -> None:
        """A sequence joined the batch."""

    def left(self, sequence: Sequence) -> None:
        """A sequence is gone, wherever it was."""


class PrefillRate:
    """Prefilled tokens a second, as measured, forgetting slowly; turns work into seconds."""

    def __init__(self, initial: float = 500.0, weight: float = 0.2) -> None:
        self._rate = initial
        self._weight = weight

    def observe(self, tokens: int, seconds: float) -> None:
        """Take in one step that prefilled `tokens`."""
        if tokens > 0 and seconds > 0:
            self._rate += self._weight * (tokens / seconds - self._rate)

    def seconds(self, tokens: int) -> float:
        """How long `tokens` would take."""
        return tokens / max(self._rate, 1e-3)


class Scheduler:
    """Queue, batch and block budget. Used from the engine's thread only.

    Waiting sequences are admitted by expected seconds of prefill after their prefix hit, less the seconds they have
    waited, so short work goes first and nothing starves: every second of waiting outweighs a second of work.

    Args:
        below: what lies below the device.
        states: what a hybrid model can reuse; None: the model keeps KV alone.
    """

    def __init__(
        self,
        cache: PrefixCache,
        limits: SchedulerLimits,
        clock: Callable[[], float],
        below: Below | None = None,
        states: HybridPrefixes | None = None,
    ) -> None:
        self._below = below or Below()
        self._states = states
        self._branches = Branches(cache.block_size)
        self._cache = cache
        self._limits = limits
        self._clock = clock
        self._expected: dict[Sequence, tuple[object, int]] = {}  # -> (cache version, tokens to prefill)
        self.rate = PrefillRate()
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.preemptions = 0

    @property
    def busy(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self.waiting or self.running)

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of that many tokens could run if it were alone."""
        return self._blocks(tokens) <= self._cache.stats().total

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence that holds no lease."""
        if self._states is not None:
            self._branches.arrived(sequence, self.running)
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence, hints: RetentionHints | None = None) -> None:
        """Take a sequence out, wherever it is, and release its blocks; `hints` say how long they should stay cached."""
        if sequence in self.running:
            self.running.remove(sequence)
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self._expected.pop(sequence, None)
        sequence.waits_for = sequence.follows = None
        self._below.left(sequence)
        self._release(sequence, hints)

    def restart(self) -> None:
        """Send everything back to the queue as if nothing of it had been computed: the cache is about to forget."""
        for sequence in list(self.running):
            self._preempt(sequence)
        for sequence in self.waiting:
            self._below.left(sequence)
            sequence.waits_for = sequence.follows = None
            sequence.looks = sequence.missed = sequence.covered = 0
            sequence.reused = sequence.matched = None
            sequence.came.clear()
        self._expected.clear()

    def plan(self) -> Plan:
        """Choose the next step. Every chunk's blocks are allocated when this returns."""
        plan = Plan()
        for sequence in self.running:
            self._advance(sequence)
        preempted = self._extend_decoding(plan)
        decoding = [s for s in self.running if s.decoding]
        plan.chunks.extend(Chunk(s, 1, True) for s in decoding)
        budget = self._limits.prefill_budget_decoding if decoding else self._limits.prefill_budget
        budget = self._continue_prefill(plan, budget)
        if not preempted:
            self._admit(plan, budget)
        if not plan.chunks:
            self._go_behind(plan)
        return plan

    def computed(self, chunk: Chunk) -> None:
        """Note that a chunk's KV is in the pool; whole blocks become reusable at once."""
        sequence = chunk.sequence
        if chunk.behind is not None:
            self._take(sequence, chunk.behind)
        sequence.computed += chunk.tokens
        if sequence.lease is not None:
            sequence.lease.commit(sequence.computed)
        if self._states is not None:
            self._keep_state(self._states, sequence)

    def _extend_decoding(self, plan: Plan) -> bool:
        """Give each decoding sequence room for its last token, oldest first; True when something was preempted."""
        preempted = False
        for sequence in sorted((s for s in self.running if s.decoding), key=lambda s: s.arrival):
            while sequence.lease is not None and not self._try_extend(sequence):
                victim = max(reversed(self.running), key=lambda s: s.arrival)
                if victim is sequence and len(self.running) == 1:
                    self.remove(sequence)
                    plan.out_of_room.append(sequence)
                else:
                    self._preempt(victim)
                    preempted = True
        return preempted

    def _try_extend(self, sequence: Sequence) -> bool:
        lease = sequence.lease
        assert lease is not None, "only a running sequence is extended"
        return lease.length >= sequence.length or _extended(lease, sequence)

    def _preempt(self, sequence: Sequence) -> None:
        """Send a sequence back to the queue; what it computed stays cached until it must go."""
        self.running.remove(sequence)
        self._release(sequence)
        self.waiting.append(sequence)
        self.preemptions += 1

    def _continue_prefill(self, plan: Plan, budget: int) -> int:
        for sequence in self.running:
            if budget <= 0:
                break
            if not sequence.decoding:
                budget -= self._prefill(plan, sequence, budget)
        return budget

    @staticmethod
    def _prefill(plan: Plan, sequence: Sequence, budget: int) -> int:
        missing = sequence.length - sequence.computed
        tokens = min(budget, sequence.stops_at - sequence.computed)
        if sequence.keep_at:
            tokens = min(tokens, sequence.keep_at[0] - sequence.computed)
        if tokens > 0:
            plan.chunks.append(Chunk(sequence, tokens, tokens == missing))
        return max(tokens, 0)

    def _advance(self, sequence: Sequence) -> None:
        """Begin to load what came up for a sequence, or make it its own, if it is time to."""
        coming, lease = sequence.coming, sequence.lease
        if coming is None or lease is None:
            return
        coming.advance(lease, sequence.computed)
        if coming.there and sequence.computed == coming.start:
            self._take(sequence, coming)
        elif coming.over:
            sequence.coming = None

    @staticmethod
    def _take(sequence: Sequence, coming: OwnLoad) -> None:
        """What came up into a sequence's blocks is ready, and so it need not be computed."""
        assert sequence.lease is not None, "blocks come up for who holds a lease"
        sequence.lease.commit(coming.end)
        sequence.computed = coming.end
        came = coming.take()
        behind_prompt = max(coming.end - sequence.prompt_length, 0)
        for tier in list(came):  # tokens that it had generated before it lost its place are no prompt's
            behind_prompt, came[tier] = max(behind_prompt - came[tier], 0), max(came[tier] - behind_prompt, 0)
        sequence.came += came
        sequence.reused = (sequence.reused or 0) + came.total()
        sequence.coming = None

    def _go_behind(self, plan: Plan) -> None:
        """Where nothing else can run: a sequence all of whose first layers are about to be there begins with them."""
        for sequence in self.running:
            coming = sequence.coming
            if (
                coming is None
                or not coming.layered
                or not coming.loading
                or sequence.computed != coming.start
            ):
                continue
            missing = sequence.length - coming.end
            tokens = min(self._limits.prefill_budget, missing)
            plan.chunks.append(Chunk(sequence, tokens, tokens == missing, behind=coming))
            return

    def _admit(self, plan: Plan, budget: int) -> None:
        if budget <= 0 or len(self.running) >= self._limits.max_running:
            return
        now = self._clock()
        for sequence in self._by_urgency(now):
            if budget <= 0 or len(self.running) >= self._limits.max_running:
                return
            if self._waits_for_owner(sequence) or self._below.comes_up(sequence, self._missing(sequence)):
                continue
            if self._try_admit(sequence):
                if sequence.queue_s is None:
                    sequence.queue_s = now - sequence.arrival
                budget -= self._prefill(plan, sequence, budget)
            elif not self.running and not self.fits(sequence.length):
                self.remove(sequence)
                plan.out_of_room.append(sequence)
            elif now - sequence.arrival > self._work(sequence):
                # It has waited longer than its own work takes: what comes free now is kept for it.
                return

    def _by_urgency(self, now: float) -> list[Sequence]:
        return sorted(self.waiting, key=lambda s: self._work(s) - (now - s.arrival))

    def _work(self, sequence: Sequence) -> float:
        """Seconds of prefill expected after the prefix hit."""
        return self.rate.seconds(self._missing(sequence))

    def _missing(self, sequence: Sequence) -> int:
        """Tokens that are not cached; the peek is remembered until the cache changes."""
        source = self._cache if self._states is None else self._states
        version: object = source.version
        known = self._expected.get(sequence)
        if known is None or known[0] != version:
            known = (version, sequence.length - self._reusable(sequence))
            self._expected[sequence] = known
        return known[1]

    def _reusable(self, sequence: Sequence) -> int:
        if self._states is not None:
            return self._states.reusable(sequence.known, sequence.request.scope)
        return self._cache.match(sequence.known, sequence.request.scope)

    def _waits_for_owner(self, sequence: Sequence) -> bool:
        """Whether a running sequence is computing more of this prefix than is cached; nothing is held meanwhile."""
        if self._states is not None:
            reusable = sequence.length - self._missing(sequence)
            if self._branches.waits(sequence, reusable):
                return True
            if self._states.with_state(sequence.known, sequence.request.scope) <= reusable:
                return False  # more KV alone would be no use
        if sequence.waits_for is None or not sequence.waits_for.pending:
            sequence.waits_for = self._cache.computing(sequence.known, sequence.request.scope)
        return sequence.waits_for is not None

    def _try_admit(self, sequence: Sequence) -> bool:
        """Lease its prefix and blocks for the rest, and leave one block for each sequence that decodes."""
        reserve = sum(1 for s in self.running if s.decoding)
        if self._blocks(self._missing(sequence)) + reserve > self._cache.available():
            return False  # without a lease, which would warm what it pins at every step of a long wait
        found = None
        if self._states is not None:
            found = self._states.acquire(sequence.known, sequence.request.scope, sequence.covered)
        lease = self._cache.acquire(sequence.known, sequence.request.scope) if found is None else found.lease
        needed = self._blocks(sequence.length) - self._blocks(lease.matched)
        if needed + reserve > self._cache.available() or not _extended(lease, sequence):
            lease.release()
            return False
        matched = min(lease.matched, sequence.prompt_length)
        sequence.lease = lease
        sequence.computed = lease.matched
        sequence.reused = matched if sequence.reused is None else min(sequence.reused, matched)
        if found is not None:
            matched = min(self._start_state(sequence, found), sequence.prompt_length)
        sequence.matched = matched if sequence.matched is None else min(sequence.matched, matched)
        sequence.waits_for = None
        self._expected.pop(sequence, None)
        self.waiting.remove(sequence)
        self.running.append(sequence)
        if self._states is not None:
            self._branches.admitted(sequence, self.waiting)
        self._below.admitted(sequence)
        self._advance(sequence)
        return True

    def _start_state(self, sequence: Sequence, found: Found) -> int:
        """Give a sequence its own copy of the state it goes on from; says what the index had."""
        assert self._states is not None, "only hybrid models have states"
        sequence.state = AuxiliaryState(found.snapshot)
        sequence.flushes = found.flushes
        sequence.keep_at = self._states.boundaries(found, sequence.prompt_length)
        return found.matched

    @staticmethod
    def _keep_state(states: HybridPrefixes, sequence: Sequence) -> None:
        """Take the snapshot that is due; one whose place was chosen while a step went past it is left out."""
        while sequence.keep_at and sequence.keep_at[0] <= sequence.computed:
            boundary = sequence.keep_at.pop(0)
            if boundary == sequence.computed and sequence.state is not None:
                known, scope = sequence.known[:boundary], sequence.request.scope
                states.keep(known, scope, sequence.state, sequence.flushes)

    def _release(self, sequence: Sequence, hints: RetentionHints | None = None) -> None:
        if hints is not None and self._states is not None:
            self._states.store.retain(sequence.known, sequence.request.scope, hints)
        sequence.state = None
        sequence.keep_at = []
        if sequence.lease is not None:
            if sequence.coming is None:
                sequence.lease.release(hints)
            else:
                sequence.coming.leave(sequence.lease, hints)
            sequence.lease = sequence.coming = None
        sequence.computed = 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._cache.block_size)


def _extended(lease: Lease, sequence: Sequence) -> bool:
    """Whether `lease` could be made to cover all of the sequence's tokens; nothing changes where not."""
    try:
        lease.extend(sequence.tokens[lease.length : sequence.length])
    except OutOfBlocksError:
        return False
    return True


def prefilled_tokens(chunks: Iterable[Chunk]) -> int:
    """Prompt tokens among `chunks`, for the measured rate."""
    return sum(chunk.tokens for chunk in chunks if chunk.tokens > 1)
