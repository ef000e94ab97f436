"""What a request asks for the prefix it leaves behind holds under pressure, within limits and for a time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cache_core import RetentionLimits
from canon.tokens import PromptTokenizer
from engine_adapters.base import Retention
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from gateway.served import Backend
from tests.engine_adapters.embedded.engine_harness import BLOCK, Harness, random_tokens, running
from tests.gateway.running_server import running as serving

BLOCKS = 48
PROMPT = random_tokens(8 * BLOCK + 1, 1)
OTHER = random_tokens(8 * BLOCK + 1, 2)


class Hand:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def engine(tiny_model: Callable[[str], Path], clock: Hand) -> Iterator[Harness]:
    limits = RetentionLimits(scope_share=0.25, total_share=0.5)  # 12 and 24 blocks
    with running(tiny_model("llama"), blocks=BLOCKS, clock=clock, hint_limits=limits) as harness:
        yield harness


def press(engine: Harness, scope: str = "default") -> None:
    """More prompts than fit, each asked twice, so that they are worth more than what was asked once."""
    for seed in range(100, 112):
        for _ in range(2):
            engine.submit(random_tokens(8 * BLOCK + 1, seed), scope, max_tokens=2).result()


def left(engine: Harness, scope: str = "default") -> int:
    return engine.cache.match(PROMPT, scope) // BLOCK


def leave(engine: Harness, retention: Retention | None, scope: str = "default") -> None:
    engine.submit(PROMPT, scope, retention, max_tokens=2).result()


def test_without_a_wish_a_prefix_goes_under_pressure(engine: Harness) -> None:
    leave(engine, None)
    press(engine)
    assert left(engine) == 0


def test_within_its_scope_s_share_it_stays_whatever_others_do(engine: Harness) -> None:
    leave(engine, None)
    press(engine, "pressure")
    assert left(engine) == 8


def test_a_pinned_prefix_survives_pressure_until_its_time_is_over(engine: Harness, clock: Hand) -> None:
    leave(engine, Retention(pin_s=60.0))
    clock.now = 59.0
    press(engine)
    assert left(engine) == 8
    assert engine.submit(PROMPT).result().done.reused_tokens == 8 * BLOCK  # type: ignore[union-attr]
    clock.now = 61.0
    press(engine)
    assert left(engine) == 0


def test_a_priority_keeps_a_prefix_and_a_negative_one_lets_it_go_first(engine: Harness) -> None:
    leave(engine, Retention(priority=1))
    for _ in range(4):
        engine.submit(OTHER, retention=Retention(priority=-1), max_tokens=2).result()
    press(engine)
    assert left(engine) == 8
    assert engine.cache.match(OTHER) == 0


def test_what_was_not_used_in_its_time_goes_before_all_others(engine: Harness, clock: Hand) -> None:
    for _ in range(4):
        leave(engine, Retention(ttl_s=10.0))
    engine.submit(OTHER, max_tokens=2).result()
    clock.now = 11.0
    engine.cache.evict(4)
    assert left(engine) == 4, "though it was used more often than the other one"
    assert engine.cache.match(OTHER) == 8 * BLOCK


def test_a_scope_keeps_no_more_than_its_share_and_others_keep_theirs(engine: Harness) -> None:
    leave(engine, Retention(pin_s=60.0), "greedy")
    engine.submit(OTHER, "greedy", Retention(pin_s=60.0), max_tokens=2).result()  # 8 + 8 > 12
    leave(engine, Retention(pin_s=60.0), "modest")
    press(engine, "pressure")
    assert engine.cache.stats().keeps_refused == 1
    assert left(engine, "greedy") == 8
    assert engine.cache.match(OTHER, "greedy") == 4 * BLOCK, "the rest of its share"
    assert left(engine, "modest") == 8


def test_a_cancelled_request_keeps_nothing(engine: Harness) -> None:
    go_on = engine.hold(5)
    pending = engine.submit(PROMPT, retention=Retention(pin_s=60.0), max_tokens=300)
    pending.next()
    engine.engine.cancel(pending.id)
    go_on.set()
    engine.submit(random_tokens(20, 5), "pressure", max_tokens=1).result()
    assert engine.cache.stats().kept == 0
    press(engine)
    assert left(engine) == 0


def test_a_client_pins_its_prefix_over_http(tiny_model: Callable[[str], Path]) -> None:
    config = EmbeddedConfig(model=str(tiny_model("llama")), device="cpu", kv_bytes=1 << 18)
    adapter = EmbeddedAdapter.load(config, lambda _: None)
    try:
        with serving() as server:
            server.served.put(Backend(adapter, PromptTokenizer.from_folder(adapter.folder.tokenizer_path)))
            model = adapter.capabilities().model
            words = adapter.cache.stats().total // 4 * BLOCK // 2
            first, other = random_tokens(words, 1).tolist(), random_tokens(words, 2).tolist()

            def cached(prompt: list[int], **extra: object) -> int:
                answer = server.sdk.completions.create(
                    model=model, prompt=prompt, max_tokens=1, extra_body=extra
                )
                assert answer.usage is not None
                assert answer.usage.prompt_tokens_details is not None
                return answer.usage.prompt_tokens_details.cached_tokens or 0

            cached(first, kvgate={"pin_ttl": 300})
            cached(other)
            for seed in range(100, 130):
                for _ in range(2):
                    cached(random_tokens(words, seed).tolist())
            assert cached(other) == 0
            assert cached(first) >= words - 1 - BLOCK
    finally:
        adapter.engine.stop()
