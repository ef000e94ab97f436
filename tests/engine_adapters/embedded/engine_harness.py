"""A real engine over a tiny model, with eyes on what every step computes."""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cache_core import BlockPool, PrefixCache, RetentionLimits
from engine_adapters.base import FinishReason, GenerateRequest, Retention, SamplingParams, TokenLogprob
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.engine import Engine
from engine_adapters.embedded.job import Done, Output
from engine_adapters.embedded.model_runner import ModelRunner, Segment
from engine_adapters.embedded.state.prefixes import HybridPrefixes
from engine_adapters.embedded.state.snapshot_store import SnapshotStore
from engine_adapters.errors import EngineError

BLOCK = 16
WAIT = 120.0  # seconds until a hanging engine fails a test


@dataclass
class Answer:
    """Everything one request gave back."""

    texts: dict[int, str] = field(default_factory=dict)
    finish: dict[int, FinishReason] = field(default_factory=dict)
    logprobs: dict[int, list[TokenLogprob]] = field(default_factory=dict)
    done: Done | None = None
    error: EngineError | None = None

    def tokens(self, index: int = 0) -> list[int]:
        """Sampled ids, known where logprobs were asked for."""
        return [entry.token_id for entry in self.logprobs.get(index, [])]


class WatchedRunner:
    """A model runner whose steps can be counted, held and made to fail."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self.steps: list[list[tuple[int, int]]] = []  # per step: (past, new tokens) of each segment
        self.before_step: Callable[[Sequence[Segment]], None] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def forward(self, segments: Sequence[Segment]) -> torch.Tensor:
        self.steps.append([(segment.past, len(segment.tokens)) for segment in segments])
        if self.before_step is not None:
            self.before_step(segments)
        return self._runner.forward(segments)

    @property
    def computed(self) -> int:
        """Tokens that went through the model."""
        return sum(new for step in self.steps for _, new in step)


class Pending:
    """A request under way; `result()` waits for its end."""

    def __init__(self, request_id: str) -> None:
        self.id = request_id
        self.items: queue.SimpleQueue[Output | Done | EngineError] = queue.SimpleQueue()
        self.answer = Answer()

    def next(self) -> Output | Done | EngineError:
        item = self.items.get(timeout=WAIT)
        self._note(item)
        return item

    def result(self) -> Answer:
        while self.answer.done is None and self.answer.error is None:
            self.next()
        return self.answer

    def _note(self, item: Output | Done | EngineError) -> None:
        answer = self.answer
        if isinstance(item, Done):
            answer.done = item
        elif isinstance(item, EngineError):
            answer.error = item
        else:
            answer.texts[item.index] = answer.texts.get(item.index, "") + item.text
            answer.logprobs.setdefault(item.index, []).extend(item.logprobs)
            if item.finish is not None:
                answer.finish[item.index] = item.finish


class Harness:
    """Engine, cache and runner of one test; integrity is checked after every step."""

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        blocks: int,
        limits: SchedulerLimits,
        hint_limits: RetentionLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runner = WatchedRunner(runner)
        self.cache = PrefixCache(
            BlockPool(blocks, BLOCK), copy_blocks=runner.kv.copy_blocks, limits=hint_limits, clock=clock
        )
        self.violations: list[BaseException] = []
        self.states: HybridPrefixes | None = None
        if runner.state is not None:
            store = SnapshotStore(runner.snapshot_bytes, runner.state.row_bytes)
            self.states = HybridPrefixes(self.cache, store)
        self.engine = Engine(
            self.runner,  # type: ignore[arg-type]
            self.cache,
            tokenizer,
            limits,
            after_step=self._check,
            states=self.states,
        )
        self._ids = itertools.count()

    def submit(
        self,
        tokens: Sequence[int] | NDArray[np.int32],
        scope: str = "default",
        retention: Retention | None = None,
        **sampling: Any,
    ) -> Pending:
        params = SamplingParams(
            **({"temperature": 0.0, "max_tokens": 8, "logprobs": 0, "ignore_eos": True} | sampling)
        )
        pending = Pending(f"r{next(self._ids)}")
        ids = np.asarray(tokens, dtype=np.int32)
        request = GenerateRequest(
            pending.id, "completions", "tiny", ids, params, scope=scope, retention=retention
        )
        self.engine.submit(request, pending.items.put, [None] * params.n)
        return pending

    def ask(self, tokens: Sequence[int] | NDArray[np.int32], **sampling: Any) -> Answer:
        return self.submit(tokens, **sampling).result()

    def hold(self, at: int = 1) -> threading.Event:
        """Steps wait, from the one of that number on, until the event is set: so long nothing is computed."""
        go_on = threading.Event()

        def wait(_: Sequence[Segment]) -> None:
            if len(self.runner.steps) >= at:
                assert go_on.wait(WAIT)

        self.runner.before_step = wait
        return go_on

    def idle(self) -> bool:
        """Whether nothing runs, waits, or holds a block."""
        stats = self.cache.stats()
        return not stats.leased and not stats.filling and not stats.leases

    def _check(self) -> None:
        try:
            self.cache.check_integrity()
        except BaseException as error:
            self.violations.append(error)
            raise


@contextmanager
def running(
    folder: Path, *, blocks: int = 256, limits: SchedulerLimits | None = None, **cache_options: Any
) -> Iterator[Harness]:
    """A harness over a model folder, stopped at the end; no integrity violation may have happened."""
    runner = ModelRunner.load(folder, device="cpu", num_blocks=blocks, block_size=BLOCK)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    harness = Harness(runner, tokenizer, blocks, limits or SchedulerLimits(), **cache_options)
    try:
        yield harness
    finally:
        harness.engine.stop()
    assert harness.violations == []


def random_tokens(count: int, seed: int, low: int = 3, high: int = 259) -> NDArray[np.int32]:
    """`count` ordinary ids of the tiny models' tokenizer."""
    return np.random.default_rng(seed).integers(low, high, count).astype(np.int32)
