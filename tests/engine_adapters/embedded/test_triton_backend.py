"""The Triton kernels give what the reference gives; run by Triton's interpreter, since no GPU is needed so."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from cache_core.device_tier import LayerLayout
from engine_adapters.embedded.attention.self_check import TOLERANCE, Features, Shape, Sharing
from tests.engine_adapters.embedded import triton_worker
from tests.requirements import require

DECODE = (Sharing(0, [(0, 1), (15, 1), (16, 1), (150, 1)]),)
CASCADE = (Sharing(160, [(230, 1), (160, 1), (200, 3)]), Sharing(0, [(5, 1), (20, 7)]))


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Callable[..., float]]:
    """Calls a function of `triton_worker` in a process where triton interprets its kernels."""
    require("triton", "pip install triton")
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    with pool, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        pool.submit(torch.set_num_threads, 1).result()
        patch.undo()

        def run(function: Callable[..., float], *arguments: Any) -> float:
            return pool.submit(function, *arguments).result()

        yield run


def shape(
    *,
    heads: int = 6,
    kv_heads: int = 2,
    dims: tuple[int, int] = (16, 16),
    block: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Shape:
    return Shape(heads, LayerLayout(kv_heads, *dims), block, dtype)


@pytest.mark.parametrize(
    "layer",
    [
        shape(heads=2, kv_heads=2),
        shape(heads=3, kv_heads=1, dims=(64, 64)),
        shape(heads=7, kv_heads=1, dims=(80, 80)),
        shape(heads=24, kv_heads=1),
        shape(heads=8, kv_heads=2, dims=(128, 128)),
        shape(dims=(24, 40)),
        shape(block=1),
        shape(block=5),
        shape(block=64),
    ],
    ids=lambda layer: f"{layer.heads}x{layer.layout.kv_heads}-{layer.layout.key_dim}-{layer.block_size}",
)
@pytest.mark.parametrize("batch", [DECODE, CASCADE], ids=["decode", "cascade"])
def test_it_agrees_with_the_reference(
    interpreter: Callable[..., float], layer: Shape, batch: tuple[Sharing, ...]
) -> None:
    off = interpreter(triton_worker.backend_difference, layer, batch, Features())
    assert off <= TOLERANCE[layer.dtype]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("batch", [DECODE, CASCADE], ids=["decode", "cascade"])
def test_half_precision_is_as_near_as_its_rounding(
    interpreter: Callable[..., float], dtype: torch.dtype, batch: tuple[Sharing, ...]
) -> None:
    off = interpreter(triton_worker.backend_difference, shape(dims=(64, 64), dtype=dtype), batch, Features())
    assert off <= TOLERANCE[dtype]


@pytest.mark.parametrize(
    "features",
    [Features(window=64), Features(window=1), Features(softcap=5.0), Features(sinks=True)],
    ids=["window", "window of one", "softcap", "sinks"],
)
@pytest.mark.parametrize("min_keys", [64, 10_000], ids=["split", "whole"])
def test_windows_softcaps_and_sinks_hold_with_and_without_split_keys(
    interpreter: Callable[..., float], features: Features, min_keys: int
) -> None:
    off = interpreter(triton_worker.backend_difference, shape(), CASCADE, features, min_keys)
    assert off <= TOLERANCE[torch.float32]


def test_a_prefill_beside_decoding_sequences_goes_the_reference_s_way(
    interpreter: Callable[..., float],
) -> None:
    batch = (*CASCADE, Sharing(32, [(40, 50), (32, 1)]))
    features = Features(window=70, sinks=True)
    assert interpreter(triton_worker.backend_difference, shape(), batch, features) <= TOLERANCE[torch.float32]


def test_prefills_alone_need_no_kernel(interpreter: Callable[..., float]) -> None:
    batch = (Sharing(0, [(0, 40), (20, 33)]),)
    assert interpreter(triton_worker.backend_difference, shape(), batch, Features()) <= 1e-6


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt_oss"])
def test_a_model_s_decoded_logits_are_transformers_own(
    interpreter: Callable[..., float], architecture: str
) -> None:
    assert interpreter(triton_worker.model_difference, architecture) <= 1e-4


def test_more_query_heads_a_key_head_than_a_tile_holds_are_refused(
    interpreter: Callable[..., float],
) -> None:
    layer = shape(heads=129, kv_heads=1)
    with pytest.raises(ValueError, match="129 query heads"):
        interpreter(triton_worker.backend_difference, layer, DECODE, Features())


def test_the_kernels_compile_for_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes what the compiler does not. No GPU is needed to compile for one."""
    require("triton", "pip install triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    with pool:
        assert all(size > 0 for size in pool.submit(triton_worker.compiled_sizes, 90).result())
