"""The embedded engine's thread, and what other threads may ask of it."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as Many
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cache_core import PrefixCache
from cache_core.metrics import CacheObserver
from engine_adapters.base import GenerateRequest
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.job import EngineCounters, Job, Sink
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.output.detokenizer import IncrementalDetokenizer
from engine_adapters.embedded.output.stop_strings import StopStrings
from engine_adapters.embedded.sampling import GrammarMatcher, SamplingState, check_params
from engine_adapters.embedded.sequence import Sequence
from engine_adapters.embedded.state.prefixes import HybridPrefixes
from engine_adapters.embedded.state.snapshot_store import SnapshotStore
from engine_adapters.embedded.step_loop import StepLoop
from engine_adapters.embedded.tiering import Tiering
from engine_adapters.errors import (
    ContextLengthError,
    EngineFailureError,
    EngineNotReadyError,
    EngineOverloadedError,
    InvalidRequestError,
)

log = logging.getLogger("kvgate.engine")

LOOK_AGAIN = 0.05  # seconds at most until the engine looks again at what it waits for
IDLE_AFTER = 0.2  # seconds without work after which the cache is compacted
PROMPT_TAIL = 16  # prompt tokens the detokenizer sees, so that it knows how the first new one continues


class Engine:
    """Continuous batching over one model and one prefix cache, on a thread of its own.

    `submit`, `cancel` and `finish_choice` may be called from any thread; they take effect before the next step.

    Args:
        after_step: called on the engine's thread after each step, for tests that check invariants.
        tiering: what lies below the device; None: nothing. Whoever gives it calls `wake` when a prefix came up.
        states: what a hybrid model can reuse; None: the model keeps KV alone.
        observer: is told of every request that was answered what its prompt found.
    """

    def __init__(
        self,
        runner: ModelRunner,
        cache: PrefixCache,
        tokenizer: Tokenizer,
        limits: SchedulerLimits,
        clock: Callable[[], float] = time.monotonic,
        after_step: Callable[[], None] | None = None,
        tiering: Tiering | None = None,
        states: HybridPrefixes | None = None,
        observer: CacheObserver | None = None,
    ) -> None:
        self._runner = runner
        self._cache = cache
        self._tokenizer = tokenizer
        self._limits = limits
        self._clock = clock
        self._states = states
        self._after_step = after_step
        self._loop = StepLoop(
            runner, cache, tokenizer, limits, clock, self._forget, tiering, states, observer
        )
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._gate = threading.Lock()  # guards the two below
        self._choices = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="kvgate-engine", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs and takes requests."""
        return self._thread.is_alive() and not self._stopping

    @property
    def busy(self) -> bool:
        """Whether any request is queued or runs."""
        return self._choices > 0

    def check(self, request: GenerateRequest) -> None:
        """Refuse what can never run.

        Raises:
            InvalidRequestError: no prompt, ids that the model does not have, or sampling out of range.
            ContextLengthError: the prompt leaves no room for a token in the model's context or in the pool.
        """
        check_prompt(request.prompt_ids, self._runner.vocab_size)
        check_params(request.sampling, self._runner.vocab_size)
        prompt = len(request.prompt_ids)
        limit = self._runner.context_length
        if prompt >= limit:
            raise ContextLengthError(
                f"The prompt has {prompt} tokens, and a request can have {limit}, its answer included: that is this "
                "model's context, or what the KV cache holds where that is less. Shorten the prompt.",
                prompt_tokens=prompt,
                limit=limit,
            )

    def submit(
        self,
        request: GenerateRequest,
        sink: Sink,
        grammars: Many[GrammarMatcher | None],
        keep: Collection[str] = (),
    ) -> None:
        """Queue a request; `sink` gets its outputs and at last Done or an error, on the engine's thread.

        Args:
            grammars: one matcher, or None, for each choice.
            keep: texts of control tokens that stay in the output, because a parser reads them.

        Raises:
            InvalidRequestError: see `check`.
            EngineOverloadedError: the queue is full.
            EngineNotReadyError: the engine stops, or has stopped.
        """
        self.check(request)
        now = self._clock()
        sequences = {i: self._sequence(request, i, g, now, keep) for i, g in enumerate(grammars)}
        job = Job(request, sink, sequences, leader=sequences[0])
        with self._gate:  # so that no job is put behind the last look at the commands
            if not self.alive:
                raise EngineNotReadyError("The engine is not running.")
            if self._choices + request.sampling.n > self._limits.max_waiting + self._limits.max_running:
                raise EngineOverloadedError(f"{self._choices} requests wait or run already; try again later.")
            self._choices += request.sampling.n
            self._commands.put(lambda: self._loop.accept(job))

    def cancel(self, request_id: str) -> None:
        """Drop a request; unknown or ended ones are ignored."""
        self._commands.put(lambda: self._loop.drop(request_id))

    def finish_choice(self, request_id: str, index: int) -> None:
        """End one choice with "stop", because its output is complete."""
        self._commands.put(lambda: self._loop.finish_choice(request_id, index))

    def counters(self) -> Mapping[str, float]:
        """Counters since the start, and what queue, batch and cache hold now."""
        cache, scheduler = self._cache.stats(), self._loop.scheduler
        since_start = {name: float(getattr(self._loop.counters, name)) for name in EngineCounters.__slots__}
        now = {
            "running": float(len(scheduler.running)),
            "waiting": float(len(scheduler.waiting)),
            "preemptions": float(scheduler.preemptions),
            "blocks_total": float(cache.total),
            "blocks_free": float(cache.free),
            "blocks_cached": float(cache.cached),
            "blocks_leased": float(cache.leased),
            "blocks_compacted": float(cache.compacted),
            "fragmentation": cache.fragmentation,
        }
        snapshots = {} if self._states is None else _snapshot_counters(self._states.store)
        return since_start | now | snapshots

    def between_steps(self, change: Callable[[], None]) -> "Future[None]":
        """Do `change` on the engine's thread while nothing computes; requests under way then begin again.

        The tokens they have are kept. `change` must leave the cache without anything from before. The future ends when
        it is done, with what it raised, or with EngineNotReadyError where the engine has stopped.
        """
        done: Future[None] = Future()

        def do() -> None:
            if self._stopping:
                done.set_exception(EngineNotReadyError("The engine was stopped."))
                return
            self._loop.scheduler.restart()
            try:
                change()
            except BaseException as error:  # noqa: BLE001  whoever asked is told, of a native library's panic, too
                done.set_exception(error)
            else:
                done.set_result(None)

        with self._gate:
            if not self.alive:
                raise EngineNotReadyError("The engine is not running.")
            self._commands.put(do)
        return done

    def wake(self) -> None:
        """Something that requests wait for has changed."""
        self._commands.put(lambda: None)

    def stop(self) -> None:
        """End the thread after its current step; what still runs ends with EngineNotReadyError."""
        with self._gate:
            self._stopping = True
        self._commands.put(lambda: None)
        self._thread.join()

    def _forget(self, choices: int) -> None:
        with self._gate:
            self._choices -= choices

    def _sequence(
        self,
        request: GenerateRequest,
        index: int,
        grammar: GrammarMatcher | None,
        now: float,
        keep: Collection[str],
    ) -> Sequence:
        params = request.sampling
        room = self._runner.context_length - len(request.prompt_ids)
        new_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        tail = request.prompt_ids[-PROMPT_TAIL:].tolist()
        return Sequence(
            request=request,
            index=index,
            max_length=len(request.prompt_ids) + new_tokens,
            arrival=now,
            sampling=SamplingState(params, request.prompt_ids, index, grammar, self._runner.eos_token_ids),
            detokenizer=IncrementalDetokenizer(self._tokenizer, params.skip_special_tokens, tail, keep),
            stops=StopStrings(params.stop, params.include_stop),
        )

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._take_commands(wait=not self._loop.busy)
                if self._loop.busy and not self._stopping:
                    self._safely(self._step)
                    if self._after_step is not None:
                        self._after_step()
        finally:
            with self._gate:
                self._stopping = True
            self._take_commands(wait=False)
            self._loop.fail_all(EngineNotReadyError("The engine was stopped."))

    def _step(self) -> None:
        if not self._loop.step():
            # Everything waits for a prefix that is on its way: sleep until it is there, or something new comes.
            with contextlib.suppress(queue.Empty):
                self._safely(self._commands.get(timeout=LOOK_AGAIN))

    def _take_commands(self, wait: bool) -> None:
        if wait:
            self._safely(self._next_command())
        with contextlib.suppress(queue.Empty):
            while True:
                self._safely(self._commands.get_nowait())

    def _next_command(self) -> Callable[[], None]:
        """Wait for one. As long as none comes, the time goes into the cache."""
        with contextlib.suppress(queue.Empty):
            return self._commands.get(timeout=IDLE_AFTER)
        self._safely(self._compact)
        return self._commands.get()

    def _compact(self) -> None:
        while self._commands.empty() and self._cache.compact():
            pass

    def _safely(self, work: Callable[[], None]) -> None:
        """Do `work`. Where it raises, all requests under way fail, and the engine goes on with the next ones.

        Should even that fail, blocks cannot be accounted for any more: the thread ends, and the engine is not ready.
        """
        try:
            work()
        except BaseException:  # a panic in a native library is no Exception
            log.exception("the engine failed between two steps")
            self._loop.fail_all(EngineFailureError("The engine failed while it worked on this request."))


def _snapshot_counters(store: SnapshotStore) -> dict[str, float]:
    return {
        "state_snapshots": float(len(store)),
        "state_snapshot_bytes": float(store.nbytes),
        "state_snapshots_evicted": float(store.evicted),
    }


def check_prompt(ids: NDArray[np.int32], vocab_size: int) -> None:
    """Refuse a prompt that would break the step it runs in.

    Raises:
        InvalidRequestError: it is empty, or holds ids that the model does not have.
    """
    if len(ids) == 0:
        raise InvalidRequestError("The prompt has no tokens.", param="prompt")
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise InvalidRequestError(
            f"The prompt holds token ids outside this model's vocabulary of {vocab_size}.", param="prompt"
        )
