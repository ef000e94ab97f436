"""The embedded engine when something is wrong below the device: requests are answered, and starts say what is wrong."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import numpy as np
import pytest

from cache_core.drop_reason import DropReason
from cache_core.tiered import TieringOptions
from cache_core.tiered.watch import CallLimits
from cache_core.tiers.disk import DiskTier
from engine_adapters.base import GenerateRequest, Health, SamplingParams, Usage
from engine_adapters.embedded import cold_stores, cold_tiers
from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.cold_stores import ColdTierError
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.tiering import reused_by_tier
from engine_adapters.errors import EngineNotReadyError
from tests.cache_core.tiered.faulty_files import FaultyFiles
from tests.engine_adapters.embedded.engine_harness import WAIT
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, ask, config, running, settle, warm
from tests.waiting import wait_until

__all__ = ["config"]  # the fixture


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> FaultyFiles:
    """Under the disk tier of every engine from here on; nothing is late, and the end is soon."""
    faulty = FaultyFiles()
    monkeypatch.setattr(cold_stores, "DiskTier", lambda options, **more: DiskTier(options, faulty, **more))
    waits(monkeypatch, 3600.0)
    monkeypatch.setattr("cache_core.tiered.tiered_cache._CLOSING", 0.2)
    return faulty


def waits(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Engines from here on wait that long for what comes up."""
    options = TieringOptions(fetch_deadline=seconds, patience=seconds)
    monkeypatch.setattr(cold_tiers, "TieringOptions", lambda *_, **__: options)


def nothing_held(adapter: EmbeddedAdapter) -> bool:
    stats = adapter.cache.stats()
    return not (stats.leases or stats.leased or stats.filling)


def test_requests_are_recomputed_while_the_disk_hangs(
    config: EmbeddedConfig, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    waits(monkeypatch, 0.2)
    with running(config) as again:
        files.hang_reads = True
        for _ in range(2):
            text, usage = ask(again, PROMPT)
            assert text == expected
            assert usage.reuse.by_tier is not None
            assert usage.reuse.by_tier.get("disk", 0) == 0
        files.hang_reads = False
        files.release.set()
        settle(again)
        assert nothing_held(again)


def test_a_disk_that_hangs_too_much_is_named_in_the_health_and_comes_back_by_itself(
    config: EmbeddedConfig, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    limits = CallLimits(ask=0.5, most_stuck=1)
    options = TieringOptions(fetch_deadline=3600.0, patience=0.2, limits=limits)
    monkeypatch.setattr(cold_tiers, "TieringOptions", lambda *_, **__: options)
    with running(config) as again:
        assert asyncio.run(again.health()).detail == "ready"
        files.hang_reads = True
        assert ask(again, PROMPT)[0] == expected
        assert again.tiers is not None
        wait_until(lambda: again.tiers is not None and again.tiers.away(), "the disk to be away")
        assert asyncio.run(again.health()) == Health(True, "ready; the disk tier hangs and is not read")
        counters = asyncio.run(again.counters())
        assert counters["cache_away_disk_read"] == 1
        assert counters["cache_late_calls_disk_read"] == 1
        files.hang_reads = False
        files.release.set()
        wait_until(lambda: again.tiers is not None and not again.tiers.away(), "the disk to be back")

        def reads_the_disk() -> bool:
            settle(again)
            asyncio.run(again.flush({"device", "host"}))
            text, usage = ask(again, PROMPT)
            assert text == expected
            assert usage.reuse.by_tier is not None
            return usage.reuse.by_tier.get("disk", 0) > 0

        wait_until(reads_the_disk, "a request that had time for the disk")  # on a slow machine some have not


def test_a_full_and_a_broken_disk_change_no_answer(config: EmbeddedConfig, files: FaultyFiles) -> None:
    with running(config) as adapter:
        files.full = True
        expected = warm(adapter)
        files.full, files.fail_reads = False, True
        adapter.cache.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.by_tier == {"device": 0, "host": 192}


def test_a_tier_that_raises_fails_no_request(config: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        assert adapter.tiers is not None
        adapter.cache.flush()

        def raises(*_: object) -> Any:
            raise RuntimeError("broken")

        monkeypatch.setattr(adapter.tiers.host, "contains", raises)
        assert ask(adapter, PROMPT)[0] == expected
        assert ask(adapter, PROMPT)[0] == expected
        settle(adapter)
        assert nothing_held(adapter)


def test_a_request_cancelled_while_its_prefix_is_on_its_way_leaves_nothing(
    config: EmbeddedConfig, files: FaultyFiles
) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    with running(config) as again:
        files.hang_reads = True

        async def cancelled() -> None:
            params = SamplingParams(temperature=0.0, max_tokens=4)
            request = GenerateRequest("gone", "completions", "tiny", PROMPT, params, scope="default")
            stream = again.generate(request)
            first = asyncio.ensure_future(anext(stream))
            await asyncio.to_thread(files.hanging.wait, WAIT)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await stream.aclose()  # type: ignore[attr-defined]

        asyncio.run(cancelled())
        files.hang_reads = False
        files.release.set()
        settle(again)
        assert nothing_held(again)
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert usage.reuse.reused == 192


def test_stopping_while_requests_wait_for_their_prefix_answers_them(
    config: EmbeddedConfig, files: FaultyFiles
) -> None:
    with running(config) as adapter:
        warm(adapter)
    errors: list[EngineNotReadyError] = []
    with running(config) as again:
        files.hang_reads = True

        def asks() -> None:
            try:
                ask(again, PROMPT)
            except EngineNotReadyError as error:
                errors.append(error)

        asking = Thread(target=asks)
        asking.start()
        assert files.hanging.wait(WAIT)
    asking.join(WAIT)
    assert len(errors) == 1
    assert nothing_held(again)
    files.release.set()


def test_choices_of_one_request_count_what_was_fetched_once(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        warm(adapter)
        adapter.cache.flush()

        async def two() -> Usage:
            params = SamplingParams(temperature=0.0, max_tokens=4, n=2)
            request = GenerateRequest("two", "completions", "tiny", PROMPT, params, scope="default")
            usages = [event async for event in adapter.generate(request) if isinstance(event, Usage)]
            return usages[-1]

        assert asyncio.run(two()).reuse.by_tier == {"device": 0, "host": 192}


def test_what_was_fetched_behind_the_reused_tokens_is_not_counted() -> None:
    class Fetched:
        def brought(self, tokens: int) -> Counter[str]:
            return Counter({"host": max(tokens - 64, 0)})

    class Of:
        fetch = Fetched()
        fetched = 1000
        came: ClassVar[Counter[str]] = Counter()

    assert reused_by_tier(Of(), 64) == {"device": 64}  # type: ignore[arg-type]
    assert reused_by_tier(Of(), 96) == {"device": 64, "host": 32}  # type: ignore[arg-type]


def test_what_came_into_a_requests_own_blocks_is_counted_as_from_there_and_never_beyond_what_was_reused() -> (
    None
):
    class Of:
        fetch = None
        came: ClassVar[Counter[str]] = Counter({"host": 32, "disk": 64})

    assert reused_by_tier(Of(), 112) == {"device": 16, "host": 32, "disk": 64}  # type: ignore[arg-type]
    assert reused_by_tier(Of(), 48) == {"device": 0, "host": 32, "disk": 16}  # type: ignore[arg-type]


# Purges.


def test_a_purge_names_a_disk_that_hangs_and_nothing_of_its_scope_is_reused(
    config: EmbeddedConfig, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cache_core.tiered.tiered_cache.TieredCache.purge.__defaults__", (0.3,))
    with running(config) as adapter:
        expected = warm(adapter)
        files.hang_writes = True
        for _ in range(2):
            ask(adapter, PROMPT[::-1].copy(), "other")
        assert files.hanging.wait(WAIT)
        purged = asyncio.run(adapter.purge("default"))
        assert purged.pending == ("disk",)
        text, usage = ask(adapter, PROMPT)
        assert (text, usage.reuse.reused) == (expected, 0)
        files.release.set()
        settle(adapter)
        assert asyncio.run(adapter.purge("default")).pending == ()


# Starts.


def test_two_engines_on_one_disk_folder_is_a_clear_refusal_before_a_model_is_loaded(
    config: EmbeddedConfig,
) -> None:
    said: list[str] = []
    with running(config), pytest.raises(ColdTierError, match="is in use by"):
        EmbeddedAdapter.load(config, said.append)
    assert not said
    with running(config):
        pass  # and free again


def test_a_start_that_fails_behind_the_tiers_leaves_the_folder_free(
    config: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raises(*_: object, **__: object) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as broken:
        broken.setattr("engine_adapters.embedded.adapter.Engine", raises)
        with pytest.raises(RuntimeError):
            EmbeddedAdapter.load(config, lambda _: None)
    with running(config):
        pass


def test_a_disk_folder_that_is_a_file_is_a_clear_refusal(config: EmbeddedConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ColdTierError, match="cannot be opened"):
        EmbeddedAdapter.load(replace(config, disk_cache_dir=tmp_path / "file"), lambda _: None)


def test_a_host_cache_smaller_than_a_block_is_a_clear_refusal(config: EmbeddedConfig) -> None:
    with pytest.raises(ColdTierError, match="less than one block"):
        EmbeddedAdapter.load(replace(config, host_cache_bytes=8), lambda _: None)


def test_where_the_machine_refuses_the_memory_the_engine_works_and_names_the_device_alone(
    config: EmbeddedConfig,
) -> None:
    with running(replace(config, host_cache_bytes=1 << 60)) as adapter:
        assert adapter.capabilities().tiers == ("device",)
        ask(adapter, PROMPT)
        assert ask(adapter, PROMPT)[1].reuse.reused == 192


def test_weights_that_changed_in_place_find_nothing_of_the_old_ones(
    config: EmbeddedConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(str(config.model), folder)
    config = replace(config, model=str(folder))
    with running(config) as adapter:
        warm(adapter)
    weights = next(folder.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with running(config) as changed:
        assert ask(changed, PROMPT)[1].reuse.reused == 0


@pytest.mark.parametrize(
    ("key", "value", "reused"), [("rms_norm_eps", 0.5, 0), ("max_position_embeddings", 4096, 192)]
)
def test_a_config_that_changed_finds_the_old_blocks_only_where_they_are_the_same(
    config: EmbeddedConfig, tmp_path: Path, key: str, value: float, reused: int
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(str(config.model), folder)
    config = replace(config, model=str(folder))
    with running(config) as adapter:
        warm(adapter)
    stated = json.loads((folder / "config.json").read_text())
    assert key in stated
    (folder / "config.json").write_text(json.dumps(stated | {key: value}))
    with running(config) as changed:
        assert ask(changed, PROMPT)[1].reuse.reused == reused


_SERVE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from engine_adapters.embedded.config import EmbeddedConfig
from tests.engine_adapters.embedded.engine_harness import WAIT
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, running, warm
model, folder = sys.argv[1:]
config = EmbeddedConfig(model=model, device="cpu", kv_bytes=1 << 20, host_cache_bytes=8 << 20,
    disk_cache_dir=Path(folder) / "kv", disk_cache_bytes=64 << 20, cache_dir=Path(folder) / "cache")
with running(config) as adapter:
    print(warm(adapter), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_leaves_a_disk_that_the_next_one_reuses(
    config: EmbeddedConfig, tmp_path: Path
) -> None:
    died = subprocess.run(
        [sys.executable, "-c", _SERVE_AND_DIE, str(config.model), str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    with running(config) as again:
        text, usage = ask(again, PROMPT)
        assert text.strip() == died.stdout.strip()
        assert usage.reuse.by_tier == {"device": 0, "disk": 192}


def test_flipped_bits_in_every_file_change_no_answer(config: EmbeddedConfig, tmp_path: Path) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
    chance = np.random.default_rng(5)
    for file in sorted(path for path in (tmp_path / "kv").rglob("*") if path.is_file()):
        content = bytearray(file.read_bytes())
        for at in chance.integers(0, max(len(content), 1), 40 if content else 0).tolist():
            content[at] ^= 1 << int(chance.integers(8))
        file.write_bytes(content)
    with running(config) as again:
        text, usage = ask(again, PROMPT)
        assert text == expected
        assert usage.reuse.reused is not None
        assert usage.reuse.reused < 192


def test_flipped_bits_in_main_memory_change_no_answer(config: EmbeddedConfig) -> None:
    with running(config) as adapter:
        expected = warm(adapter)
        assert adapter.tiers is not None
        adapter.tiers.colder["disk"].clear()
        adapter.cache.flush()
        host = adapter.tiers.host
        host.rows[:, 11] ^= 1
        text, usage = ask(adapter, PROMPT)
        assert text == expected
        assert usage.reuse.reused == 0
        assert host.stats().drops[DropReason.CHECKSUM] > 0
        settle(adapter)  # what it computed is copied down again
        assert nothing_held(adapter)
        adapter.cache.flush()
        text, usage = ask(adapter, PROMPT)
        assert text == expected
