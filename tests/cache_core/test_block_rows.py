"""Blocks between paged device memory and rows: bit by bit the same, whatever the layout and the order."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cache_core.device_tier import DeviceTier, LayerLayout
from cache_core.native import SpanCopy, load_span_copy

CPU = torch.device("cpu")
BLOCKS, BLOCK = 24, 8
LAYOUTS = {
    "equal layers": [LayerLayout(2, 32, 32)] * 4,
    "keys wider than values": [LayerLayout(3, 24, 8)] * 3,
    "unequal layers": [LayerLayout(2, 16, 16), LayerLayout(1, 8, 24), LayerLayout(1, 8, 24)],
    "alternating layers": [LayerLayout(1, 16, 16), LayerLayout(2, 16, 16)] * 2,
    "one odd layer": [LayerLayout(1, 3, 5)],
}


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> SpanCopy:
    return load_span_copy(tmp_path_factory.mktemp("native"))


@pytest.fixture(params=["torch", "native"])
def span_copy(request: pytest.FixtureRequest, native: SpanCopy) -> SpanCopy | None:
    return native if request.param == "native" else None


def random_tier(layers: list[LayerLayout], dtype: torch.dtype, span_copy: SpanCopy | None) -> DeviceTier:
    """Every bit pattern may occur, those of NaNs as well."""
    tier = DeviceTier(layers, BLOCKS, BLOCK, dtype, CPU, span_copy)
    random = np.random.default_rng(1)
    for pool in (*tier.keys, *tier.values):
        raw = random.integers(0, 256, pool.numel() * dtype.itemsize, dtype=np.uint8)
        pool.view(torch.uint8).view(-1).copy_(torch.from_numpy(raw))
    return tier


def expected_row(tier: DeviceTier, block: int) -> bytes:
    """Layer after layer, keys before values, head after head: told slot by slot."""
    parts = []
    for key, value in zip(tier.keys, tier.values, strict=True):
        for pool in (key, value):
            parts += [
                pool[head, slot].contiguous().view(torch.uint8).numpy().tobytes()
                for head in range(pool.shape[0])
                for slot in range(block * BLOCK, (block + 1) * BLOCK)
            ]
    return b"".join(parts)


def some(count: int, limit: int, seed: int) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """Distinct numbers with a run among them."""
    numbers = np.random.default_rng(seed).permutation(limit)[:count].astype(np.int32)
    numbers[:3] = sorted(set(range(limit)) - set(numbers[3:].tolist()))[:3]
    return numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_row_holds_layer_after_layer_and_comes_back_the_same(
    name: str, dtype: torch.dtype, span_copy: SpanCopy | None
) -> None:
    tier = random_tier(LAYOUTS[name], dtype, span_copy)
    arena = torch.zeros((40, tier.bytes_per_block), dtype=torch.uint8)
    blocks, rows = some(9, BLOCKS, 2), some(9, 40, 3)
    tier.read_blocks(blocks, arena, rows)
    for block, row in zip(blocks.tolist(), rows.tolist(), strict=True):
        assert arena[row].numpy().tobytes() == expected_row(tier, block)
    others = np.setdiff1d(np.arange(40), rows)
    assert not arena[torch.from_numpy(others)].any()

    before = {block: expected_row(tier, block) for block in range(BLOCKS)}
    moved = some(9, BLOCKS, 4)
    tier.write_blocks(moved, arena, rows)
    after = dict(zip(moved.tolist(), (before[block] for block in blocks.tolist()), strict=True))
    assert {block: expected_row(tier, block) for block in range(BLOCKS)} == before | after


@pytest.mark.parametrize("name", LAYOUTS)
def test_layer_by_layer_is_the_same_as_all_at_once(name: str, span_copy: SpanCopy | None) -> None:
    layers = LAYOUTS[name]
    tier = random_tier(layers, torch.float32, span_copy)
    blocks, rows = some(7, BLOCKS, 5), some(7, 7, 6)
    whole = torch.zeros((7, tier.bytes_per_block), dtype=torch.uint8)
    parts = whole.clone()
    tier.read_blocks(blocks, whole, rows)
    for layer in range(len(layers)):
        before = parts.clone()
        tier.read_blocks(blocks, parts, rows, range(layer, layer + 1))
        first, last = tier.layer_bytes(range(layer, layer + 1))
        assert torch.equal(parts[:, :first], before[:, :first])
        assert torch.equal(parts[:, last:], before[:, last:])
    assert torch.equal(parts, whole)

    other = DeviceTier(layers, BLOCKS, BLOCK, torch.float32, CPU, span_copy)
    for layer in range(len(layers)):
        other.write_blocks(blocks, whole, rows, range(layer, layer + 1))
    assert all(expected_row(other, block) == expected_row(tier, block) for block in blocks.tolist())


def test_what_does_not_fit_is_refused_and_nothing_is_copied() -> None:
    tier = random_tier(LAYOUTS["equal layers"], torch.float32, None)
    arena = torch.zeros((4, tier.bytes_per_block), dtype=torch.uint8)
    blocks = np.array([0, 1], dtype=np.int32)
    for wrong in (
        lambda: tier.read_blocks(blocks, arena[:, 1:]),
        lambda: tier.read_blocks(blocks, arena, np.array([0], dtype=np.int32)),
        lambda: tier.read_blocks(blocks, arena, np.array([0, 4], dtype=np.int32)),
        lambda: tier.read_blocks(np.array([0, BLOCKS], dtype=np.int32), arena),
        lambda: tier.read_blocks(np.array([-1, 0], dtype=np.int32), arena),
        lambda: tier.read_blocks(blocks, arena.view(torch.int32)),
    ):
        with pytest.raises(ValueError, match=r"row|block"):
            wrong()
    assert not arena.any()


def test_no_blocks_are_no_copy(span_copy: SpanCopy | None) -> None:
    tier = random_tier(LAYOUTS["equal layers"], torch.float32, span_copy)
    nothing = np.empty(0, dtype=np.int32)
    tier.read_blocks(nothing, torch.zeros((1, tier.bytes_per_block), dtype=torch.uint8), nothing)


class Operations(TorchDispatchMode):
    """Names of the operations that were made."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("heads", "by_index"), [(1, True), (64, False)])
def test_scattered_rows_are_copied_by_index_only_where_their_parts_are_short(
    heads: int, by_index: bool
) -> None:
    """Word by word large blocks take ten times as long."""
    tier = random_tier([LayerLayout(heads, 16, 16)] * 2, torch.float32, None)
    blocks = np.array([7, 3, 11, 5], dtype=np.int32)
    rows = np.array([9, 2, 14, 6], dtype=np.int32)
    out = torch.zeros((16, tier.bytes_per_block), dtype=torch.uint8)
    with Operations() as down:
        tier.read_blocks(blocks, out, rows)
    for block, row in zip(blocks.tolist(), rows.tolist(), strict=True):
        assert out[row].numpy().tobytes() == expected_row(tier, block)
    with Operations() as up:
        tier.write_blocks(blocks[::-1].copy(), out, rows)
    for block, row in zip(blocks[::-1].tolist(), rows.tolist(), strict=True):
        assert out[row].numpy().tobytes() == expected_row(tier, block)
    assert ("index_select" in down.names) == ("index_copy_" in up.names) == by_index
