"""A shared store, compression, a loss within a bound and encryption, as they are configured."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine_adapters.embedded.adapter import EmbeddedAdapter
from engine_adapters.embedded.cold_config import ColdCoding, SharedStore
from engine_adapters.embedded.cold_stores import ColdTierError, codec_of
from engine_adapters.embedded.config import EmbeddedConfig
from engine_adapters.embedded.model_identity import identity
from tests.cache_core.tiered.world import until
from tests.engine_adapters.embedded.test_cold_tiers import PROMPT, answer, running

SECRET = b"s" * 16


@pytest.fixture
def config(tiny_model: Callable[[str], Path], tmp_path: Path) -> EmbeddedConfig:
    return EmbeddedConfig(
        model=str(tiny_model("llama")),
        device="cpu",
        kv_bytes=1 << 20,
        host_cache_bytes=8 << 20,
        store=SharedStore(SECRET, tmp_path / "store"),
        cache_dir=tmp_path / "cache",
    )


def twice(adapter: EmbeddedAdapter) -> str:
    """Ask twice, which writes the prompt's blocks through; the answer."""
    for _ in range(2):
        text, _ = asyncio.run(answer(adapter, PROMPT, 6))
    assert adapter.tiers is not None
    until(lambda: adapter.tiers.idle)  # type: ignore[union-attr]
    return text


def test_what_one_server_computed_another_takes_from_the_store(config: EmbeddedConfig) -> None:
    with running(config) as one:
        expected = twice(one)
    with running(config) as other:
        text, usage = asyncio.run(answer(other, PROMPT, 6))
        assert text == expected
        assert usage.reuse.by_tier is not None
        assert usage.reuse.by_tier["store"] == 192
        assert other.capabilities().tiers == ("device", "host", "store")


def test_a_server_with_another_secret_takes_nothing(config: EmbeddedConfig, tmp_path: Path) -> None:
    with running(config) as one:
        expected = twice(one)
    with running(replace(config, store=SharedStore(b"x" * 16, tmp_path / "store"))) as stranger:
        text, usage = asyncio.run(answer(stranger, PROMPT, 6))
        assert text == expected
        assert usage.reuse.reused == 0


@pytest.mark.parametrize(
    "coding",
    [
        ColdCoding(compression=3),
        ColdCoding(secret=SECRET),
        ColdCoding(3, "fp8", 0.05, SECRET),
        ColdCoding(None, "int8"),
    ],
    ids=["compressed", "encrypted", "fp8 and both", "int8"],
)
def test_every_coding_comes_back_from_disk_and_store(
    config: EmbeddedConfig, tmp_path: Path, coding: ColdCoding
) -> None:
    both = replace(config, coding=coding, disk_cache_dir=tmp_path / "kv", disk_cache_bytes=64 << 20)
    with running(both) as one:
        twice(one)
        assert one.tiers is not None
        stats = one.tiers.stats()
        for name in ("disk", "store"):
            assert stats[name].stored == 12
            assert stats[name].quantized + stats[name].kept_exact == (12 if coding.quantize else 0)
        assert not coding.quantize or stats["disk"].quantized == 12
        counters = asyncio.run(one.counters())
        assert counters.get("cache_coded_store_quantized", 0) == (12 if coding.quantize else 0)
    for without in (replace(both, disk_cache_dir=None), replace(both, store=None)):
        with running(without) as other:
            _, usage = asyncio.run(answer(other, PROMPT, 6))
            assert usage.reuse.reused == 192


def test_exact_and_lossy_servers_and_two_bounds_never_mix(config: EmbeddedConfig) -> None:
    lossy = replace(config, coding=ColdCoding(quantize="fp8", quantize_error=0.05))
    with running(lossy) as one:
        twice(one)
    for other in (config, replace(lossy, coding=ColdCoding(quantize="fp8", quantize_error=0.04))):
        with running(other) as server:
            _, usage = asyncio.run(answer(server, PROMPT, 6))
            assert usage.reuse.reused == 0


def test_what_loses_nothing_is_the_same_cache(config: EmbeddedConfig) -> None:
    with running(config) as one:
        codings = [
            ColdCoding(),
            ColdCoding(compression=3),
            ColdCoding(secret=SECRET),
            ColdCoding(quantize_error=0.1),
        ]
        same = {identity(replace(config, coding=coding), one.folder, one.runner) for coding in codings}
        assert len(same) == 1
        lossy = [
            ColdCoding(quantize=form, quantize_error=e) for form in ("int8", "fp8") for e in (0.01, 0.02)
        ]  # type: ignore[arg-type]
        every = {identity(replace(config, coding=coding), one.folder, one.runner) for coding in lossy}
        assert len(every | same) == 5


def test_secrets_are_in_no_text_about_the_configuration(config: EmbeddedConfig) -> None:
    secret = replace(
        config, coding=ColdCoding(secret=b"not to be seen!!"), store=SharedStore(b"nor should this")
    )
    assert "seen" not in repr(secret)
    assert "should" not in repr(secret)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"store": SharedStore(b"short", Path("unused"))}, "16 bytes"),
        ({"store": SharedStore(SECRET)}, "folder or a Mooncake master"),
        ({"store": SharedStore(SECRET, mooncake_master="nowhere")}, "host:port"),
        ({"coding": ColdCoding(quantize="fp8", quantize_error=-1.0)}, "no bound"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    config: EmbeddedConfig, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(ColdTierError, match=says):
        EmbeddedAdapter.load(replace(config, **changes), lambda _: None)  # type: ignore[arg-type]


def test_a_folder_that_is_none_is_refused_and_the_disk_is_free_again(
    config: EmbeddedConfig, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    disk = replace(config, disk_cache_dir=tmp_path / "kv", store=SharedStore(SECRET, tmp_path / "file"))
    with pytest.raises(ColdTierError, match="shared store cannot be used"):
        EmbeddedAdapter.load(disk, lambda _: None)
    with running(replace(disk, store=None)):
        pass


def test_numbers_of_one_byte_cannot_be_quantized() -> None:
    with pytest.raises(ColdTierError, match="as small as it gets"):
        codec_of(ColdCoding(quantize="int8"), torch.float8_e4m3fn)
