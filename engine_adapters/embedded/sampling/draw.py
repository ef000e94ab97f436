"""A draw by the inverse of the cumulative distribution, over the vocabulary in order of token id."""

import torch
import torch.nn.functional as F

_BLOCK = 128  # tokens summed at once: running sums over blocks, then inside one, beat one over the vocabulary


def totals(weights: torch.Tensor) -> torch.Tensor:
    """Sum of each row of `weights`, shape [rows, vocab]; shape [rows] float64."""
    return _blocks(weights).sum(2).sum(1, dtype=torch.float64)


def draw(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """The first token of each row whose running sum of weights exceeds uniform * total; shape [rows] int64.

    `weights`, shape [rows, vocab], at least 0 and with something positive in each row; `uniforms`, shape
    [rows] float64 in [0, 1). A token of weight 0 is never drawn.
    """
    blocks = _blocks(weights)
    sums = blocks.sum(2).cumsum(1, dtype=torch.float64)
    target = uniforms[:, None] * sums[:, -1:]
    block = _first_above(sums, target)
    before = F.pad(sums, (1, 0)).gather(1, block)
    rows = torch.arange(len(blocks), device=blocks.device)
    inside = blocks[rows, block[:, 0]].cumsum(1, dtype=torch.float64)
    return (block * _BLOCK + _first_above(inside, target - before))[:, 0]


def _blocks(weights: torch.Tensor) -> torch.Tensor:
    missing = -weights.shape[1] % _BLOCK
    padded = F.pad(weights, (0, missing)) if missing else weights
    return padded.reshape(len(weights), -1, _BLOCK)


def _first_above(sums: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Where each row first exceeds its target, which rounding may have brought up to the row's total."""
    total = sums[:, -1:]
    below = total.nextafter(total.new_zeros(1))
    return torch.searchsorted(sums, torch.minimum(target, below), right=True)
