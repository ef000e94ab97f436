"""Both backends compute what one dense softmax over each sequence computes."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache_core.device_tier import DeviceTier, LayerLayout
from engine_adapters.embedded.attention import (
    AttentionBackend,
    LayerCall,
    NativeBackend,
    Segment,
    TorchBackend,
)
from engine_adapters.embedded.attention.softmax_merge import attend_part, merge
from engine_adapters.embedded.attention.step import lay_out
from engine_adapters.embedded.native import load_native
from tests.requirements import require_that

BLOCK = 16
NUM_BLOCKS = 200


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> AttentionBackend:
    if request.param == "torch":
        return TorchBackend()
    library = load_native()
    require_that(library is not None, "the native kernels are missing: install a C++ compiler")
    assert library is not None
    return NativeBackend(library)


@dataclass(frozen=True)
class Shape:
    kv_heads: int = 2
    group: int = 2
    key_dim: int = 32
    value_dim: int = 32
    softcap: float | None = None
    sinks: bool = False
    window: int | None = None


def compare(backend: AttentionBackend, shape: Shape, segments: list[Segment]) -> float:
    """Largest difference between the backend and a dense softmax, over random keys and values."""
    torch.manual_seed(0)
    layout = LayerLayout(shape.kv_heads, shape.key_dim, shape.value_dim)
    tier = DeviceTier([layout], NUM_BLOCKS, BLOCK, torch.float32, torch.device("cpu"))
    for pool in (tier.keys[0], tier.values[0]):
        pool.fill_(math.nan)  # what nobody has written must not matter
    step = lay_out(segments, BLOCK)
    heads = shape.kv_heads * shape.group
    for segment in segments:
        slots = slots_of(segment)[: segment.past]
        tier.keys[0][:, slots] = torch.randn(shape.kv_heads, len(slots), shape.key_dim)
        tier.values[0][:, slots] = torch.randn(shape.kv_heads, len(slots), shape.value_dim)
    call = LayerCall(
        layer=0,
        query=torch.randn(1, step.size, heads, shape.key_dim).transpose(1, 2) * 2,
        key=torch.randn(1, step.size, shape.kv_heads, shape.key_dim).transpose(1, 2),
        value=torch.randn(1, shape.kv_heads, step.size, shape.value_dim),
        scaling=shape.key_dim**-0.5,
        softcap=shape.softcap,
        sinks=torch.randn(heads) if shape.sinks else None,
    )
    ours = backend.attend(backend.plan(step, tier, shape.window), tier, call)
    assert ours.shape == (1, step.size, heads, shape.value_dim)
    rows = [step.rows(i) for i in range(len(segments))]
    dense = [dense_attention(tier, shape, call, segments[i], rows[i]) for i in range(len(segments))]
    return float((ours[0] - torch.cat(dense)).abs().max())


def slots_of(segment: Segment) -> torch.Tensor:
    table = torch.from_numpy(segment.blocks.astype(np.int64))
    return (table[:, None] * BLOCK + torch.arange(BLOCK)).flatten()[: segment.length]


def dense_attention(
    tier: DeviceTier, shape: Shape, call: LayerCall, segment: Segment, rows: range
) -> torch.Tensor:
    slots = slots_of(segment)
    keys = tier.keys[0][:, slots].repeat_interleave(shape.group, 0)
    values = tier.values[0][:, slots].repeat_interleave(shape.group, 0)
    scores = call.query[0, :, rows.start : rows.stop] @ keys.transpose(1, 2) * call.scaling
    if shape.softcap is not None:
        scores = torch.tanh(scores / shape.softcap) * shape.softcap
    at, seen = torch.arange(segment.past, segment.length)[:, None], torch.arange(segment.length)[None]
    visible = seen <= at
    if shape.window is not None:
        visible &= seen > at - shape.window
    scores = scores.masked_fill(~visible, -math.inf)
    if call.sinks is not None:
        sink = call.sinks[:, None, None].expand(-1, len(rows), 1)
        scores = torch.cat([scores, sink], -1)
        values = torch.cat([values, torch.zeros_like(values[:, :1])], 1)
    return (scores.softmax(-1) @ values).transpose(0, 1)


def scattered(sizes: list[tuple[int, int]], shared_blocks: int = 0, seed: int = 0) -> list[Segment]:
    """Segments of (past, new) over scattered blocks, all beginning with the same `shared_blocks`."""
    free = np.random.default_rng(seed).permutation(NUM_BLOCKS).astype(np.int32)
    shared, free = free[:shared_blocks], free[shared_blocks:]
    segments = []
    for past, new in sizes:
        own = max(0, -(-(past + new) // BLOCK) - shared_blocks)
        table, free = np.concatenate([shared, free[:own]]), free[own:]
        segments.append(Segment(np.zeros(new, dtype=np.int32), past, table, sample=True))
    return segments


MIXED = [(0, 70), (300, 1), (130, 33), (77, 5), (512, 1)]


@pytest.mark.parametrize("group", [1, 2, 3, 8])
@pytest.mark.parametrize("dim", [16, 32, 64, 80, 128, 20])
def test_every_head_size_and_group(backend: AttentionBackend, dim: int, group: int) -> None:
    shape = Shape(group=group, key_dim=dim, value_dim=dim)
    assert compare(backend, shape, scattered(MIXED)) < 2e-5


@pytest.mark.parametrize(
    "shape",
    [
        Shape(key_dim=48, value_dim=32),
        Shape(key_dim=24, value_dim=72, kv_heads=1, group=5),
        Shape(softcap=5.0),
        Shape(sinks=True),
        Shape(window=40),
        Shape(window=1),
        Shape(window=100, softcap=3.0, sinks=True, group=3),
    ],
    ids=str,
)
def test_unequal_dims_softcap_sinks_and_windows(backend: AttentionBackend, shape: Shape) -> None:
    assert compare(backend, shape, scattered(MIXED)) < 2e-5


@pytest.mark.parametrize("window", [None, 50, 400])
def test_a_prefix_shared_by_many_is_attended_by_each(backend: AttentionBackend, window: int | None) -> None:
    sizes = [(20 * BLOCK + 3 * i, 1 + 9 * (i % 2)) for i in range(8)]
    segments = scattered(sizes, shared_blocks=20)
    assert compare(backend, Shape(group=3, window=window), segments) < 2e-5


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(
        st.tuples(st.integers(0, 200), st.sampled_from([1, 1, 2, 15, 65])), min_size=1, max_size=6
    ),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 5),
    window=st.none() | st.integers(1, 250),
)
def test_any_step(
    backend: AttentionBackend,
    sizes: list[tuple[int, int]],
    kv_heads: int,
    group: int,
    window: int | None,
) -> None:
    shape = Shape(kv_heads=kv_heads, group=group, window=window, key_dim=16, value_dim=16)
    assert compare(backend, shape, scattered(sizes)) < 2e-5


def test_parts_of_the_keys_merge_to_the_whole() -> None:
    query, keys, values = torch.randn(2, 4, 3, 16), torch.randn(2, 50, 16), torch.randn(2, 50, 16)
    visible = torch.rand(4, 50) < 0.5
    visible[0, :20] = False  # a row that sees nothing in the first part
    whole, total = attend_part(query, keys, values, visible, 0.25, None)
    parts = [
        attend_part(query, keys[:, part], values[:, part], visible[:, part], 0.25, None)
        for part in (slice(0, 20), slice(20, 50))
    ]
    merged, merged_total = merge(*parts[0], *parts[1])
    torch.testing.assert_close(merged, whole)
    torch.testing.assert_close(merged_total, total)
