"""Is a backend right on this machine? Small problems, against the reference in float32 on the CPU."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from cache_core.device_tier import DeviceTier, LayerLayout
from engine_adapters.embedded.attention.interface import LayerCall
from engine_adapters.embedded.attention.segment import Segment
from engine_adapters.embedded.attention.step import AttentionBackend, lay_out
from engine_adapters.embedded.attention.torch_backend import TorchBackend

# max|difference| / max|output|: rounding of the weights and of the output, and a margin
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 1.6e-2}
_SHARPNESS = 2.0  # few keys weigh much, so that one missing or one too many shows


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of attention layer."""

    heads: int
    layout: LayerLayout
    block_size: int
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Sharing:
    """Sequences (past, new tokens) whose pages begin alike for `shared` tokens."""

    shared: int
    sequences: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Features:
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False


# What takes each way through the kernels: one tile of rows a sequence, split keys or not, then shared pages
# within shared pages, few new tokens, and a prefill.
_DECODE = (Sharing(0, [(0, 1), (15, 1), (64, 1), (700, 1)]),)
_MIXED = (
    Sharing(320, [(400, 1), (330, 1), (600, 15), (321, 2), (350, 40)]),
    *_DECODE,
    Sharing(0, [(20, 50)]),
)
_FEATURES = (Features(), Features(window=100, softcap=20.0, sinks=True))


def fault(backend: AttentionBackend, shapes: Iterable[Shape], device: torch.device) -> str | None:
    """What is wrong with the backend for layers of these shapes; None: nothing.

    Raises:
        Exception: whatever the backend raises.
    """
    for shape in shapes:
        for batch in (_DECODE, _MIXED):
            for features in _FEATURES:
                off = difference(backend, shape, batch, features, device)
                if not off <= TOLERANCE[shape.dtype]:
                    return f"off by {off:.1e} of the largest output for {shape}, {features}"
    return None


@torch.inference_mode()
def difference(
    backend: AttentionBackend,
    shape: Shape,
    batch: Sequence[Sharing],
    features: Features,
    device: torch.device,
    seed: int = 0,
) -> float:
    """max|difference| / max|output| to the reference; inf where the backend gives no finite number.

    Blocks are shuffled, and slots that nobody owns hold NaN.
    """
    segments, blocks = _segments(batch, shape.block_size, seed)
    reference = DeviceTier([shape.layout], blocks, shape.block_size, torch.float32, torch.device("cpu"))
    tested = DeviceTier([shape.layout], blocks, shape.block_size, shape.dtype, device)
    random = torch.Generator().manual_seed(seed)
    call = _call(shape, sum(segment.size for segment in segments), features, random)
    _fill(reference, segments, shape.dtype, random)
    tested.keys[0].copy_(reference.keys[0])
    tested.values[0].copy_(reference.values[0])
    expected = _attend(TorchBackend(), reference, segments, call, features)
    ours = _attend(backend, tested, segments, _moved(call, device, shape.dtype), features).float().cpu()
    written = all(
        torch.equal(mine.float().cpu().nan_to_num(7.0), right.nan_to_num(7.0))
        for mine, right in ((tested.keys[0], reference.keys[0]), (tested.values[0], reference.values[0]))
    )
    off = float((ours - expected).abs().max() / expected.abs().max())
    return off if written and math.isfinite(off) else math.inf


def _attend(
    backend: AttentionBackend,
    tier: DeviceTier,
    segments: Sequence[Segment],
    call: LayerCall,
    features: Features,
) -> torch.Tensor:
    plan = backend.plan(lay_out(segments, tier.block_size), tier, features.window)
    return backend.attend(plan, tier, call)


def _segments(batch: Sequence[Sharing], block_size: int, seed: int) -> tuple[list[Segment], int]:
    """The batch's sequences over shuffled blocks, and how many blocks there are: twice what they take."""
    needs = [
        (sharing.shared // block_size, [-(-(past + new) // block_size) for past, new in sharing.sequences])
        for sharing in batch
    ]
    total = 2 * sum(common + sum(size - common for size in sizes) for common, sizes in needs)
    free = iter(np.random.default_rng(seed).permutation(total).astype(np.int32))
    segments = []
    for sharing, (common, sizes) in zip(batch, needs, strict=True):
        shared = [next(free) for _ in range(common)]
        for (past, new), size in zip(sharing.sequences, sizes, strict=True):
            table = np.array([*shared, *(next(free) for _ in range(size - common))], dtype=np.int32)
            segments.append(Segment(np.zeros(new, dtype=np.int32), past, table, sample=True))
    return segments, total


def _call(shape: Shape, size: int, features: Features, random: torch.Generator) -> LayerCall:
    def draw(heads: int, dim: int) -> torch.Tensor:
        return torch.randn((1, heads, size, dim), generator=random).to(shape.dtype).float()

    layout = shape.layout
    return LayerCall(
        layer=0,
        query=draw(shape.heads, layout.key_dim),
        key=draw(layout.kv_heads, layout.key_dim),
        value=draw(layout.kv_heads, layout.value_dim),
        scaling=_SHARPNESS * layout.key_dim**-0.5,
        softcap=features.softcap,
        sinks=torch.randn(shape.heads, generator=random) if features.sinks else None,
    )


def _moved(call: LayerCall, device: torch.device, dtype: torch.dtype) -> LayerCall:
    return LayerCall(
        layer=call.layer,
        query=call.query.to(device, dtype),
        key=call.key.to(device, dtype),
        value=call.value.to(device, dtype),
        scaling=call.scaling,
        softcap=call.softcap,
        sinks=None if call.sinks is None else call.sinks.to(device),
    )


def _fill(tier: DeviceTier, segments: Sequence[Segment], dtype: torch.dtype, random: torch.Generator) -> None:
    """Past tokens get keys and values that `dtype` holds exactly; all else is NaN."""
    size = tier.block_size
    owned = torch.zeros(tier.num_slots, dtype=torch.bool)
    for segment in segments:
        at = np.arange(segment.past)
        owned[torch.from_numpy(segment.blocks[at // size].astype(np.int64) * size + at % size)] = True
    for pool in (tier.keys[0], tier.values[0]):
        pool.copy_(torch.randn(pool.shape, generator=random).to(dtype))
        pool[:, ~owned] = math.nan
