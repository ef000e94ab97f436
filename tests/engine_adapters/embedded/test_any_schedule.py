"""Whatever comes, goes and runs short of blocks: every answer is the one it would have been alone.

The model is a chain of hashes: a token's KV is a number that only its whole prefix gives, so that a block which was
overwritten, shared wrongly or never computed shows at once. Where the model keeps a state, too, that is the hash alone,
and a state of another prefix shows as well.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cache_core import BlockPool, PrefixCache
from cache_core.block_pool import FILLING
from engine_adapters.base import GenerateRequest, SamplingParams
from engine_adapters.embedded.config import SchedulerLimits
from engine_adapters.embedded.job import Done, Job, Output
from engine_adapters.embedded.model_runner import Segment
from engine_adapters.embedded.output.detokenizer import IncrementalDetokenizer
from engine_adapters.embedded.output.stop_strings import StopStrings
from engine_adapters.embedded.sampling import SamplingState
from engine_adapters.embedded.sequence import Sequence
from engine_adapters.embedded.state.prefixes import HybridPrefixes
from engine_adapters.embedded.state.snapshot_store import SnapshotStore
from engine_adapters.embedded.step_loop import StepLoop
from engine_adapters.errors import EngineError
from tests.output_tokenizers import byte_tokenizer

BLOCK = 4
VOCABULARY = 64
MOST_STEPS = 3000  # far more than any example needs: whoever is not done by then starves
TOKENIZER = byte_tokenizer()


def chained(before: int, token: int) -> int:
    return hash((before, int(token))) & 0x7FFF_FFFF_FFFF_FFFF


def answer_alone(prompt: Many[int], tokens: int) -> list[int]:
    state, answer = 0, []
    for token in prompt:
        state = chained(state, token)
    for _ in range(tokens):
        answer.append(state % VOCABULARY)
        state = chained(state, answer[-1])
    return answer


ROW_BYTES = 8


class ChainRunner:
    """Stands for a model runner; `slots` is its KV, and segments may bring a state."""

    eos_token_ids: tuple[int, ...] = ()

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.slots = np.zeros(pool.num_blocks * BLOCK, dtype=np.int64)
        self.parent: dict[int, int] = {}

    def synchronize(self) -> None:
        """What it computes is there when `forward` returns."""

    def forward(self, segments: Many[Segment]) -> torch.Tensor:
        states = [self._state(segment) for segment in segments]
        rows = [state % VOCABULARY for state, each in zip(states, segments, strict=True) if each.sample]
        return torch.nn.functional.one_hot(torch.tensor(rows, dtype=torch.long), VOCABULARY).float()

    def _state(self, segment: Segment) -> int:
        table = (segment.blocks[:, None].astype(np.int64) * BLOCK + np.arange(BLOCK)).reshape(-1)
        past = self.slots[table[: segment.past]].tolist()
        for before, after in zip([0, *past], past, strict=False):
            assert self.parent.get(after) == before, "a block holds another prefix's KV"
        written = np.unique(table[segment.past : segment.length] // BLOCK)
        assert (self.pool.state[written] == FILLING).all(), "a block that others may read is written"
        state = past[-1] if past else 0
        if segment.state is not None:
            assert segment.state.length == segment.past, "a state stands for other tokens than the KV"
            kept = segment.state.tensors
            assert (int(kept[0]) if kept is not None else 0) == state, "the state of another prefix"
        for token, slot in zip(segment.tokens, table[segment.past :], strict=False):
            after = chained(state, token)
            self.parent[after] = state
            self.slots[slot] = state = after
        if segment.state is not None:
            segment.state.put((torch.tensor([state]),), segment.length)
        return state

    def copy_blocks(self, source: NDArray[np.int32], target: NDArray[np.int32]) -> None:
        by_block = self.slots.reshape(-1, BLOCK)
        by_block[target] = by_block[source]


@dataclass
class Asked:
    """One request, and what came back."""

    prompt: list[int]
    choices: int
    new_tokens: int
    tokens: dict[int, list[int]] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    done: Done | None = None
    error: EngineError | None = None
    cancelled: bool = False

    def take(self, item: Output | Done | EngineError) -> None:
        assert self.done is None, "nothing comes behind the end"
        assert not self.cancelled, "nothing comes behind a cancellation"
        if isinstance(item, Done):
            self.done = item
        elif isinstance(item, EngineError):
            self.error = item
        else:
            self.tokens.setdefault(item.index, []).extend(entry.token_id for entry in item.logprobs)
            if item.finish is not None:
                self.finished.add(item.index)


class World:
    """A step loop with requests under way."""

    def __init__(self, blocks: int, limits: SchedulerLimits, snapshots: int | None = None) -> None:
        self.now = 0.0
        self.room = blocks * BLOCK
        pool = BlockPool(blocks, BLOCK)
        self.runner = ChainRunner(pool)
        self.cache = PrefixCache(pool, copy_blocks=self.runner.copy_blocks)
        self.states: HybridPrefixes | None = None
        if snapshots is not None:
            self.states = HybridPrefixes(self.cache, SnapshotStore(snapshots * ROW_BYTES, ROW_BYTES))
        self.asked: list[Asked] = []
        self.closed = 0
        self.loop = StepLoop(
            self.runner,  # type: ignore[arg-type]
            self.cache,
            TOKENIZER,
            limits,
            lambda: self.now,
            self._close,
            states=self.states,
        )

    def _close(self, choices: int) -> None:
        self.closed += choices

    def ask(self, prompt: list[int], choices: int, new_tokens: int) -> None:
        prompt = prompt[: self.room - 1]
        asked = Asked(prompt, choices, min(new_tokens, self.room - len(prompt)))
        params = SamplingParams(temperature=0.0, n=choices, logprobs=0)
        ids = np.array(prompt, dtype=np.int32)
        request = GenerateRequest(str(len(self.asked)), "completions", "m", ids, params)
        sequences = {
            index: Sequence(
                request=request,
                index=index,
                max_length=len(prompt) + asked.new_tokens,
                arrival=self.now,
                sampling=SamplingState(params, ids, index),
                detokenizer=IncrementalDetokenizer(TOKENIZER),
                stops=StopStrings(()),
            )
            for index in range(choices)
        }
        self.asked.append(asked)
        self.loop.accept(Job(request, asked.take, sequences, leader=sequences[0]))

    def drop(self, which: int) -> None:
        if self.asked:
            number = which % len(self.asked)
            asked = self.asked[number]
            asked.cancelled = asked.done is None
            self.loop.drop(str(number))

    def forget(self) -> None:
        """Every snapshot goes, and the KV stays."""
        if self.states is not None:
            self.states.store.flush()

    def step(self) -> None:
        self.now += 0.01
        self.loop.step()
        self.cache.check_integrity()
        for sequence in (*self.loop.scheduler.running, *self.loop.scheduler.waiting):
            assert (sequence.state is not None) == (self.states is not None and sequence.lease is not None)

    def finish(self) -> None:
        for _ in range(MOST_STEPS):
            if not self.loop.busy:
                return
            self.step()
        raise AssertionError("somebody starves")

    def check(self) -> None:
        for asked in self.asked:
            assert asked.error is None
            if asked.cancelled:
                continue
            assert asked.done is not None
            assert asked.finished == set(range(asked.choices))
            expected = answer_alone(asked.prompt, asked.new_tokens)
            assert all(asked.tokens[index] == expected for index in range(asked.choices))
            assert asked.done.completion_tokens == asked.choices * asked.new_tokens
            assert asked.done.reused_tokens <= self.cache.reusable(len(asked.prompt))
        assert self.closed == sum(asked.choices for asked in self.asked)
        stats = self.cache.stats()
        assert stats.free + stats.cached == stats.total


PREFIXES = [[1] * 13, [1] * 8 + [2] * 9, [3] * 22, []]
PROMPTS = st.builds(
    lambda prefix, tail: PREFIXES[prefix] + tail,
    st.integers(0, 3),
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
)
ASK = st.tuples(st.just("ask"), PROMPTS, st.integers(1, 4), st.integers(1, 20))
STEP = st.tuples(st.just("step"), st.integers(1, 6))
FORGET = st.tuples(st.just("forget"))
DROP = st.tuples(st.just("drop"), st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(
    blocks=st.integers(4, 24),
    budget=st.integers(3, 24),
    running=st.integers(1, 8),
    snapshots=st.one_of(st.none(), st.integers(0, 6)),
    script=st.lists(st.one_of(ASK, ASK, STEP, STEP, DROP, FORGET), min_size=1, max_size=24),
)
def test_every_answer_is_as_alone_nothing_leaks_and_nobody_starves(
    blocks: int, budget: int, running: int, snapshots: int | None, script: list[tuple[object, ...]]
) -> None:
    world = World(
        blocks,
        SchedulerLimits(
            max_running=running, prefill_budget=budget, prefill_budget_decoding=max(budget // 2, 1)
        ),
        snapshots,
    )
    for what, *arguments in script:
        if what == "ask":
            world.ask(*arguments)  # type: ignore[arg-type]
        elif what == "forget":
            world.forget()
        elif what == "drop":
            world.drop(*arguments)  # type: ignore[arg-type]
        else:
            for _ in range(arguments[0]):  # type: ignore[call-overload]
                world.step()
    world.finish()
    world.check()
