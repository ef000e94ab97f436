"""top_k, top_p and min_p as one threshold a row: what lies below it is not drawn.

A threshold depends on values alone. So tokens with equal logits stay or go together, the order in which a
sort happens to leave them never matters, and no row depends on its neighbours.
"""

from collections.abc import Sequence

import torch

from engine_adapters.base import SamplingParams

_FIRST_TOP = 256  # sorted values looked at first for top_p; nearly always enough
_GROWTH = 8


def thresholds(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor | None:
    """The lowest value a token may have, shape [rows, 1]; None where no row filters.

    `scaled`, shape [rows, vocab] float32: logits after temperature, shifted so that each row's highest is 0.
    top_k keeps the k highest; top_p keeps, of what top_k left and renormalized, the fewest highest whose
    probabilities sum to at least p; min_p keeps what is at least min_p times as probable as the highest.
    Tokens equal to the last one kept are kept too, and the most probable always is.
    """
    vocab = scaled.shape[1]
    by_k = [min(p.top_k, vocab) if 0 < p.top_k < vocab else vocab for p in params]
    lowest = _lowest_of_top_k(scaled, by_k)
    lowest = _raise(lowest, _lowest_of_top_p(scaled, lowest, [p.top_p for p in params]))
    return _raise(lowest, _lowest_of_min_p(scaled, [p.min_p for p in params]))


def _raise(lowest: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    if lowest is None or other is None:
        return lowest if other is None else other
    return torch.maximum(lowest, other)


def _lowest_of_top_k(scaled: torch.Tensor, k: Sequence[int]) -> torch.Tensor | None:
    vocab = scaled.shape[1]
    limited = [n for n in k if n < vocab]
    if not limited:
        return None
    widest = torch.topk(scaled, max(limited)).values
    at = torch.tensor([[min(n, widest.shape[1]) - 1] for n in k], device=scaled.device)
    off = torch.tensor([[n >= vocab] for n in k], device=scaled.device)
    return widest.gather(1, at).masked_fill(off, float("-inf"))


def _lowest_of_min_p(scaled: torch.Tensor, min_p: Sequence[float]) -> torch.Tensor | None:
    if not any(p > 0 for p in min_p):
        return None
    # The highest value is 0, so p >= min_p * max(p) is value >= log(min_p); above 1 only the highest stays.
    return torch.tensor([[p] for p in min_p], device=scaled.device).clamp(0, 1).log()


def _lowest_of_top_p(
    scaled: torch.Tensor, lowest: torch.Tensor | None, top_p: Sequence[float]
) -> torch.Tensor | None:
    rows = [row for row, p in enumerate(top_p) if p < 1]
    if not rows:
        return None
    result = torch.full((len(top_p), 1), float("-inf"), device=scaled.device)
    index = torch.tensor(rows, device=scaled.device)
    wanted = scaled.new_tensor([top_p[row] for row in rows], dtype=torch.float64)
    mass = wanted * kept_mass(scaled, lowest)[index]
    top = min(_FIRST_TOP, scaled.shape[1])
    while len(index):
        values = torch.topk(scaled[index], top).values
        sums = values.exp().double().cumsum(1)
        reached = sums[:, -1] >= mass
        at = (sums < mass[:, None]).sum(1).clamp(max=top - 1)
        result[index] = values.gather(1, at[:, None])
        if top == scaled.shape[1]:
            break
        index, mass = index[~reached], mass[~reached]
        top = min(top * _GROWTH, scaled.shape[1])
    return result


def kept_mass(scaled: torch.Tensor, lowest: torch.Tensor | None) -> torch.Tensor:
    """Sum of exp over what is not below `lowest`, shape [rows] float64."""
    return cumulated(scaled, lowest)[:, -1]


def cumulated(scaled: torch.Tensor, lowest: torch.Tensor | None) -> torch.Tensor:
    """Running sums of exp over the vocabulary without what is below `lowest`; [rows, vocab] float64."""
    weights = scaled.exp()
    if lowest is not None:
        weights *= scaled >= lowest
    return weights.cumsum(1, dtype=torch.float64)
