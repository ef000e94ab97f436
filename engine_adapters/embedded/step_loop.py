"""What happens in and between steps: jobs come and go, a plan is computed, tokens are sampled and given out."""

import contextlib
import logging
from collections.abc import Callable
from collections.abc import Sequence as Many

import torch
from tokenizers import Tokenizer

from cache_core import OutOfBlocksError, PrefixCache
from cache_core.metrics import CacheObserver, NullObserver
from engine_adapters.base import FinishReason, TokenLogprob
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.job import Done, EngineCounters, Job, Output
from engine_adapters.embedded.model_runner import ModelRunner, Segment
from engine_adapters.embedded.output.token_texts import token_texts
from engine_adapters.embedded.sampling import GrammarLimitError, SampledToken, Sampler
from engine_adapters.embedded.scheduler import Chunk, Scheduler, prefilled_tokens
from engine_adapters.embedded.sequence import Sequence
from engine_adapters.embedded.state.prefixes import HybridPrefixes
from engine_adapters.embedded.tiering import Tiering, looked_up, reused_by_tier
from engine_adapters.errors import EngineError, EngineFailureError, InvalidRequestError

log = logging.getLogger("kvgate.engine")


class StepLoop:
    """Used from the engine's thread only, except for reading counters.

    Args:
        closed: called with the number of choices of every job that ended, however it ended.
        tiering: what lies below the device; None: nothing.
        states: what a hybrid model can reuse; None: the model keeps KV alone.
        observer: is told of every request that was answered what its prompt found.
    """

    def __init__(
        self,
        runner: ModelRunner,
        cache: PrefixCache,
        tokenizer: Tokenizer,
        limits: SchedulerLimits,
        clock: Callable[[], float],
        closed: Callable[[int], None],
        tiering: Tiering | None = None,
        states: HybridPrefixes | None = None,
        observer: CacheObserver | None = None,
    ) -> None:
        self._observer = observer or NullObserver()
        self._block_size = cache.block_size
        self._tiering = tiering
        self._states = states
        self._runner = runner
        self._clock = clock
        self._closed = closed
        self._limits = limits
        self._texts = token_texts(tokenizer)
        self._sampler = Sampler()
        self._jobs: dict[str, Job] = {}
        self.scheduler = Scheduler(cache, limits, clock, tiering, states)
        self.counters = EngineCounters()

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return self.scheduler.busy

    def accept(self, job: Job) -> None:
        """Queue a new job. Its first choice prefills for all; the others fork off when that is done."""
        if job.id in self._jobs:
            self._closed(len(job.open))
            job.sink(EngineFailureError(f"A request with the id {job.id} is already running."))
            return
        self._jobs[job.id] = job
        self.counters.requests += 1
        leader, *siblings = job.open.values()
        leader.siblings = siblings
        if self._tiering is not None:
            self._tiering.queued(leader, alone=not self.scheduler.busy)
        self.scheduler.add(leader)

    def drop(self, job_id: str) -> None:
        """Cancel a job; nothing more is given out for it."""
        job = self._jobs.get(job_id)
        if job is not None:
            self.counters.cancelled += 1
            self._close(job)

    def finish_choice(self, job_id: str, index: int) -> None:
        """End one choice as complete."""
        job = self._jobs.get(job_id)
        if job is not None and index in job.open:
            self._finish(job.open[index], Output(index, "", finish="stop"))

    def fail_all(self, error: EngineError) -> None:
        """End every job with `error`."""
        with contextlib.ExitStack() as every:  # goes on past one that raises
            for job in list(self._jobs.values()):
                every.callback(self._fail, job, error)

    def step(self) -> bool:
        """Plan, compute, sample, give out. False: nothing could run, all that is queued waits for something."""
        plan = self.scheduler.plan()
        for sequence in plan.out_of_room:
            self._finish(sequence, Output(sequence.index, sequence.flush(), finish="length"))
        if not plan.chunks:
            return bool(plan.out_of_room)
        try:
            self._compute(plan.chunks)
        except Exception:
            log.exception("a step of %d sequences failed", len(plan.chunks))
            self._fail_chunks(plan.chunks)
        return True

    def _compute(self, chunks: Many[Chunk]) -> None:
        started = self._clock()
        logits = self._runner.forward([_segment(chunk) for chunk in chunks])
        self._runner.synchronize()  # before the clock is read, and before anybody may find what was computed
        elapsed = self._clock() - started
        if not any(chunk.behind for chunk in chunks):
            self.scheduler.rate.observe(prefilled_tokens(chunks), elapsed)
        if self._tiering is not None:
            self._tiering.computed(chunks, elapsed)
        self.counters.steps += 1
        logits, chunks = _with_what_came(logits, chunks)
        for chunk in chunks:
            self.scheduler.computed(chunk)
        self._sample(logits, [chunk.sequence for chunk in chunks if chunk.sample])

    def _sample(self, logits: torch.Tensor, leaders: Many[Sequence]) -> None:
        """Sample a token for each row, and one more for each choice that forks off it now."""
        rows: list[Sequence] = []
        source: list[int] = []
        for row, leader in enumerate(leaders):
            group = [leader, *self._fork(leader)]
            rows.extend(group)
            source.extend([row] * len(group))
        if not rows:
            return
        if len(rows) != len(leaders):
            logits = logits[source]
        for sequence, result in zip(rows, self._choose(logits, rows), strict=True):
            if sequence.finished:  # its request failed with a choice before it
                continue
            if isinstance(result, EngineError):
                self._fail(self._jobs[sequence.request.request_id], _told(result))
            else:
                self._try_take(sequence, result)

    def _choose(self, logits: torch.Tensor, rows: Many[Sequence]) -> Many[SampledToken | EngineError]:
        """A token for each row. Where the batch cannot be sampled, each row is tried alone."""
        try:
            return self._sampler.sample(logits, [sequence.sampling for sequence in rows])
        except Exception:
            log.exception("sampling for %d sequences at once failed", len(rows))
        return [self._choose_alone(logits[i : i + 1], sequence) for i, sequence in enumerate(rows)]

    def _choose_alone(self, logits: torch.Tensor, sequence: Sequence) -> SampledToken | EngineError:
        try:
            if sequence.sampling.generated == sequence.generated:  # the failed batch has not moved it
                return self._sampler.sample(logits, [sequence.sampling])[0]
        except Exception:
            log.exception("sampling for request %s failed", sequence.request.request_id)
        return EngineFailureError("No token could be chosen for this request.")

    def _try_take(self, sequence: Sequence, sampled: SampledToken) -> None:
        """What goes wrong with one sequence's text ends its own request only."""
        try:
            self._take(sequence, sampled)
        except Exception:
            log.exception("the output of request %s failed", sequence.request.request_id)
            job = self._jobs.get(sequence.request.request_id)
            if job is not None:
                self._fail(job, EngineFailureError("The output of this request could not be made."))

    def _fork(self, leader: Sequence) -> list[Sequence]:
        """The choices of `leader` that can decode from its prompt's KV right away; the rest queues up."""
        siblings, leader.siblings = leader.siblings, []
        forked = [sibling for sibling in siblings if self._try_fork(leader, sibling)]
        self._queue(leader, [sibling for sibling in siblings if sibling.lease is None])
        return forked

    def _queue(self, leader: Sequence, siblings: Many[Sequence]) -> None:
        """Let siblings run on their own. What their leader computed for the request was not reused by it."""
        for sibling in siblings:
            sibling.reused, sibling.matched = leader.reused, leader.matched
            self.scheduler.add(sibling)

    def _try_fork(self, leader: Sequence, sibling: Sequence) -> bool:
        assert leader.lease is not None, "a sequence that was just computed holds a lease"
        if len(self.scheduler.running) >= self._limits.max_running:
            return False
        try:
            sibling.lease = leader.lease.fork()
        except OutOfBlocksError:
            return False
        sibling.computed = leader.computed
        sibling.reused, sibling.matched = leader.reused, leader.matched
        if leader.state is not None:
            sibling.state = leader.state.clone()
        self.scheduler.running.append(sibling)
        return True

    def _take(self, sequence: Sequence, sampled: SampledToken) -> None:
        """Append one sampled token, and give out what text it completes."""
        token = sampled.token_id
        sequence.append(token)
        job = self._jobs[sequence.request.request_id]
        job.completion_tokens += 1
        job.note_reused(sequence.reused or 0)
        logprobs = self._logprobs(sequence, sampled)
        if sequence.ends_at(token, self._runner.eos_token_ids):
            stop = token if token in sequence.request.sampling.stop_token_ids else None
            self._finish(sequence, Output(sequence.index, sequence.flush(), 1, logprobs, "stop", stop))
            return
        text, stopped_by = sequence.text_of(token)
        finish: FinishReason | None = None
        if stopped_by is not None or sequence.sampling.grammar_finished:
            finish = "stop"
        elif sequence.length >= sequence.max_length:
            finish = "length"
        if finish is None:
            job.sink(Output(sequence.index, text, 1, logprobs))
        else:
            rest = "" if stopped_by is not None else sequence.flush()
            self._finish(sequence, Output(sequence.index, text + rest, 1, logprobs, finish, stopped_by))

    def _logprobs(self, sequence: Sequence, sampled: SampledToken) -> tuple[TokenLogprob, ...]:
        if sampled.logprob is None:
            return ()
        top = tuple(self._logprob(token, value) for token, value in sampled.top)
        return (self._logprob(sampled.token_id, sampled.logprob, top),)

    def _logprob(self, token: int, value: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        return TokenLogprob(token, self._texts.text(token), self._texts.raw(token), value, top)

    def _finish(self, sequence: Sequence, last: Output) -> None:
        """End one choice; the job ends with its last one."""
        job = self._jobs[sequence.request.request_id]
        sequence.finished = True
        self._queue(sequence, sequence.siblings)
        self.scheduler.remove(sequence, sequence.hints)
        del job.open[sequence.index]
        job.sink(last)
        if not job.open:
            self._count(job)
            self._close(job)
            reused = job.reused or 0
            tiers = reused_by_tier(job.leader, reused)
            prompt = len(job.request.prompt_ids)
            matched = _matched(job)
            job.sink(Done(prompt, job.completion_tokens, reused, tiers, matched, job.leader.queue_s))

    def _count(self, job: Job) -> None:
        prompt = len(job.request.prompt_ids)
        self.counters.prompt_tokens += prompt
        reused = job.reused or 0
        self.counters.reused_tokens += reused
        self.counters.matched_tokens += _matched(job)
        self.counters.recomputed_tokens += prompt - reused
        self.counters.completion_tokens += job.completion_tokens
        self._tell(job.leader, reused)

    def _tell(self, leader: Sequence, reused: int) -> None:
        self._observer.looked_up(looked_up(leader, reused, self._block_size))
        for tier, blocks in leader.below.ghosts.items() if leader.below is not None else ():
            self._observer.ghost_hit(tier, blocks * self._block_size)

    def _fail_chunks(self, chunks: Many[Chunk]) -> None:
        for chunk in chunks:
            job = self._jobs.get(chunk.sequence.request.request_id)
            if job is not None:
                self._fail(job, EngineFailureError("The model failed while it worked on this request."))

    def _fail(self, job: Job, error: EngineError) -> None:
        self.counters.failed += 1
        try:
            self._close(job)
        finally:  # whatever happens here, nobody waits for an answer in vain
            job.sink(error)

    def _close(self, job: Job) -> None:
        """Take every choice of a job out of queue and batch."""
        for sequence in job.open.values():
            sequence.finished = True
            self.scheduler.remove(sequence)
        del self._jobs[job.id]
        self._closed(job.request.sampling.n)


def _told(error: EngineError) -> EngineError:
    """What the client is told: a schema that costs too much is its own, and would fail again."""
    if isinstance(error, GrammarLimitError):
        return InvalidRequestError(
            f"The schema is too complex to be followed: {error}.", param="response_format"
        )
    return error


def _segment(chunk: Chunk) -> Segment:
    sequence = chunk.sequence
    assert sequence.lease is not None, "a planned sequence holds a lease"
    tokens = sequence.tokens[chunk.past : chunk.past + chunk.tokens]
    return Segment(tokens, chunk.past, sequence.lease.blocks, chunk.sample, sequence.state, chunk.behind)


def _with_what_came(logits: torch.Tensor, chunks: Many[Chunk]) -> tuple[torch.Tensor, Many[Chunk]]:
    """Leave out chunks, and their rows, that were computed behind bytes which did not come."""
    if all(chunk.behind is None for chunk in chunks):
        return logits, chunks
    kept = [chunk for chunk in chunks if chunk.behind is None or chunk.behind.wait()]
    sampled = [chunk for chunk in chunks if chunk.sample]
    return logits[[row for row, chunk in enumerate(sampled) if chunk in kept]], kept


def _matched(job: Job) -> int:
    """Prompt tokens whose KV some tier had. A hybrid model reuses as far as it has a state, too."""
    return max(job.leader.matched or 0, job.leader.covered, job.reused or 0)
