"""Other weights under load: nothing that the old ones computed is served again, from no tier."""

import asyncio
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cache_core.identity import CacheIdentity
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_identity import identity
from engine_adapters.embedded.model_runner import ModelRunner
from engine_adapters.embedded.unsupported import UnsupportedModelError
from engine_adapters.errors import EngineError, EngineNotReadyError
from tests.engine_adapters.embedded.engine_harness import random_tokens
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, answer, ask, config, running, settle, warm
from tests.tiny_hybrids import hybrid_config
from tests.tiny_models import save_random_model, save_tiny_model

__all__ = ["config"]  # the fixture


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A checkpoint of the same architecture with other weights."""
    return save_tiny_model("llama", tmp_path / "other", seed=8)


def fresh(config: EmbeddedConfig, model: Path, prompt: np.ndarray = PROMPT) -> str:  # type: ignore[type-arg]
    with running(replace(config, model=str(model), host_cache_bytes=0)) as adapter:
        return ask(adapter, prompt)[0]


def test_after_a_reload_answers_are_the_new_models_and_reuse_begins_at_nothing(
    config: EmbeddedConfig, other: Path
) -> None:
    expected = fresh(config, other)
    with running(config) as adapter:
        old = warm(adapter)
        asyncio.run(adapter.reload_weights(other))
        text, usage = ask(adapter, PROMPT)
        assert text == expected != old
        assert usage.reuse.reused == 0
        assert ask(adapter, PROMPT)[1].reuse.reused == 192
        settle(adapter)


def test_the_old_weights_find_their_blocks_again(config: EmbeddedConfig, other: Path) -> None:
    with running(config) as adapter:
        old = warm(adapter)
        asyncio.run(adapter.reload_weights(other))
        warm(adapter)
        asyncio.run(adapter.reload_weights(Path(str(config.model))))
        text, usage = ask(adapter, PROMPT)
        assert text == old
        assert usage.reuse.reused == 192
        settle(adapter)


def test_weights_changed_in_place_without_a_name_are_a_state_that_never_was(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        old = warm(adapter)
        for _ in range(2):  # the second time changes nothing, which nobody can know
            asyncio.run(adapter.change_weights(lambda: None))
            text, usage = ask(adapter, PROMPT)
            assert (text, usage.reuse.reused) == (old, 0)
            ask(adapter, PROMPT)
            settle(adapter)


def test_weights_changed_in_place_under_one_name_share_what_is_below_the_device(
    config: EmbeddedConfig,
) -> None:
    with running(config) as adapter:
        asyncio.run(adapter.change_weights(lambda: None, b"step 7"))
        warm(adapter)
        asyncio.run(adapter.change_weights(lambda: None, b"step 8"))
        assert ask(adapter, PROMPT)[1].reuse.reused == 0
        asyncio.run(adapter.change_weights(lambda: None, b"step 7"))
        assert ask(adapter, PROMPT)[1].reuse.reused == 192
        settle(adapter)


class Panic(BaseException):
    """As of a native library."""


@pytest.mark.parametrize("error", [RuntimeError, Panic])
@pytest.mark.parametrize("host_bytes", [0, 8 << 20])
def test_after_a_change_that_failed_half_way_nothing_from_before_is_served(
    config: EmbeddedConfig, error: type[BaseException], host_bytes: int
) -> None:
    def breaks() -> None:
        raise error("half way")

    with running(replace(config, host_cache_bytes=host_bytes)) as adapter:
        for _ in range(2):
            ask(adapter, PROMPT)
        with pytest.raises(error, match="half way"):
            asyncio.run(adapter.change_weights(breaks))
        assert ask(adapter, PROMPT)[1].reuse.reused == 0
        assert ask(adapter, PROMPT)[1].reuse.reused == 192


def test_weights_of_another_shape_are_refused_and_nothing_changes(
    config: EmbeddedConfig, tmp_path: Path
) -> None:
    odd = save_tiny_model("llama", tmp_path / "odd", intermediate_size=96)
    with running(config) as adapter:
        old = warm(adapter)
        for folder, error in ((odd, UnsupportedModelError), (tmp_path / "nowhere", EngineError)):
            with pytest.raises(error):
                asyncio.run(adapter.reload_weights(folder))
        text, usage = ask(adapter, PROMPT)
        assert (text, usage.reuse.reused) == (old, 192)


def test_weights_for_another_configuration_are_refused_and_nothing_changes(
    config: EmbeddedConfig, tmp_path: Path
) -> None:
    """They fit, but the loaded model would compute with them what no other server does."""
    odd = save_tiny_model("llama", tmp_path / "odd", seed=8, rms_norm_eps=0.5)
    with running(config) as adapter:
        old = warm(adapter)
        with pytest.raises(UnsupportedModelError, match="differs"):
            asyncio.run(adapter.reload_weights(odd))
        text, usage = ask(adapter, PROMPT)
        assert (text, usage.reuse.reused) == (old, 192)


def test_weights_that_are_replaced_while_they_are_loaded_are_not_taken_for_those_behind_them(
    config: EmbeddedConfig, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, third = tmp_path / "changing", save_tiny_model("llama", tmp_path / "third", seed=9)
    shutil.copytree(other, folder)

    def replaced(load: Callable[..., Any]) -> Callable[..., Any]:
        def loads(*args: Any, **named: Any) -> Any:
            loaded = load(*args, **named)
            shutil.copytree(third, folder, dirs_exist_ok=True)
            return loaded

        return loads

    with running(config) as adapter:
        old = warm(adapter)
        with monkeypatch.context() as patch:
            patch.setattr(adapter.runner, "other_weights", replaced(adapter.runner.other_weights))
            with pytest.raises(EngineError, match="replaced while"):
                asyncio.run(adapter.reload_weights(folder))
        text, usage = ask(adapter, PROMPT)
        assert (text, usage.reuse.reused) == (old, 192)
    shutil.copytree(other, folder, dirs_exist_ok=True)
    starting = replace(config, model=str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(ModelRunner, "load", replaced(ModelRunner.load))
        with pytest.raises(EngineError, match="replaced while"):
            EmbeddedAdapter.load(starting, lambda _: None)
    with running(starting) as adapter:  # its disk folder is free again
        assert ask(adapter, PROMPT)[1].reuse.reused == 0


async def test_a_change_in_place_reads_no_file_on_the_event_loop(
    config: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def watched(*args: Any) -> CacheIdentity:
        threads.append(threading.get_ident())
        return identity(*args)

    adapter = await asyncio.to_thread(EmbeddedAdapter.load, config, lambda _: None)
    try:
        monkeypatch.setattr("engine_adapters.embedded.adapter.identity", watched)
        await adapter.change_weights(lambda: None)
    finally:
        await adapter.aclose()
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_stopped_engine_refuses(config: EmbeddedConfig, other: Path) -> None:
    with running(config) as adapter:
        pass
    with pytest.raises(EngineNotReadyError):
        asyncio.run(adapter.reload_weights(other))


@pytest.mark.parametrize("host_bytes", [0, 60 * 12288])
def test_reloads_under_load_leave_no_answer_of_old_keys_and_values(
    config: EmbeddedConfig, other: Path, host_bytes: int
) -> None:
    """Requests that begin after a reload get the new model's answers; those under way get an answer."""
    folders = [Path(str(config.model)), other]
    prompts = [np.concatenate([PROMPT[:100], random_tokens(60, 50 + number)]) for number in range(4)]
    expected = [[fresh(config, folder, prompt) for prompt in prompts] for folder in folders]
    small = replace(config, kv_bytes=40 * 12288, host_cache_bytes=host_bytes)
    chance = random.Random(5)

    async def storm(adapter: EmbeddedAdapter) -> None:
        for round_ in range(6):
            under_way = [asyncio.create_task(answer(adapter, prompts[n], 12)) for n in range(4)]
            await asyncio.sleep(chance.random() * 0.05)
            now = (round_ + 1) % 2
            await adapter.reload_weights(folders[now])
            later = await asyncio.gather(*(answer(adapter, prompts[n], 12) for n in range(4)))
            assert [text for text, _ in later] == expected[now]
            for text, usage in await asyncio.gather(*under_way):
                assert text
                assert usage.reuse.reused is not None

    with running(small) as adapter:
        asyncio.run(storm(adapter))
        if adapter.tiers is not None:
            settle(adapter)
        adapter.cache.check_integrity()
        assert adapter.cache.stats().leases == 0


def test_a_hybrid_models_states_go_with_its_weights(config: EmbeddedConfig, tmp_path: Path) -> None:
    first, second = (
        save_random_model(hybrid_config("lfm2"), tmp_path / f"lfm2-{seed}", seed=seed) for seed in (7, 8)
    )
    hybrid = replace(config, model=str(first), host_cache_bytes=32 << 20)
    expected = fresh(hybrid, second)
    with running(hybrid) as adapter:
        old = warm(adapter)
        asyncio.run(adapter.reload_weights(second))
        text, usage = ask(adapter, PROMPT)
        assert (text, usage.reuse.reused) == (expected, 0)
        assert text != old
        settle(adapter)


def test_weights_are_taken_whole_or_not_at_all(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    runner = ModelRunner.load(tiny_model("llama"), device="cpu", num_blocks=4)
    before = {name: weight.clone() for name, weight in runner._model.state_dict().items()}
    with pytest.raises(UnsupportedModelError, match="do not fit"):
        runner.other_weights(save_tiny_model("llama", tmp_path / "m", seed=3, num_hidden_layers=2))
    assert all(torch.equal(weight, before[name]) for name, weight in runner._model.state_dict().items())
