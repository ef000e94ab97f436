"""top_k, top_p and min_p, each as one threshold a row: what lies below it gets no weight.

A threshold depends on values alone. So tokens with equal logits stay or go together, the order in which a
sort happens to leave them never matters, and no row depends on its neighbours.
"""

from collections.abc import Sequence

import numpy as np
import torch

from engine_adapters.base import SamplingParams
from engine_adapters.embedded.sampling.draw import totals

_FIRST_TOP = 256  # sorted values looked at first for top_p; mostly enough


def kept_weights(scaled: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """Unnormalized probabilities after all filters, shape [rows, vocab] float32; 0 for what is filtered out.

    `scaled`, shape [rows, vocab] float32: logits after temperature, shifted so that each row's highest is 0.
    top_k keeps the k highest; top_p keeps, of what top_k left and renormalized, the fewest highest whose
    probabilities sum to at least p; min_p keeps what is at least min_p times as probable as the highest.
    Tokens equal to the last one kept are kept too, and the most probable always is.
    """
    weights = scaled.exp()
    for lowest_of in (_lowest_of_top_k, _lowest_of_top_p, _lowest_of_min_p):
        lowest = lowest_of(scaled, weights, params)
        if lowest is not None:
            weights *= scaled >= lowest
    return weights


def _lowest_of_top_k(
    scaled: torch.Tensor, _weights: torch.Tensor, params: Sequence[SamplingParams]
) -> torch.Tensor | None:
    vocab = scaled.shape[1]
    limits = [p.top_k if 0 < p.top_k < vocab else 0 for p in params]
    if not any(limits):
        return None
    values = torch.topk(scaled, max(limits)).values
    lowest = values.gather(1, torch.tensor([[max(k, 1) - 1] for k in limits], device=scaled.device))
    return lowest.masked_fill_(torch.tensor([[k == 0] for k in limits], device=scaled.device), -torch.inf)


def _lowest_of_top_p(
    scaled: torch.Tensor, weights: torch.Tensor, params: Sequence[SamplingParams]
) -> torch.Tensor | None:
    rows = [row for row, p in enumerate(params) if p.top_p < 1]
    if not rows:
        return None
    lowest = scaled.new_full((len(params), 1), -torch.inf)
    index = torch.tensor(rows, device=scaled.device)
    share = torch.tensor([params[row].top_p for row in rows], dtype=torch.float64, device=scaled.device)
    mass = share * totals(weights)[index]
    values, missed = _nucleus_end(torch.topk(scaled[index], min(_FIRST_TOP, scaled.shape[1])).values, mass)
    lowest[index] = values
    if missed.any():
        index, mass = index[missed], mass[missed]
        lowest[index], _ = _nucleus_end(_sorted(scaled[index]), mass)
    return lowest


def _nucleus_end(values: torch.Tensor, mass: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The value at which each row of `values` (highest first) has summed up to `mass`, and where it has not."""
    sums = values.exp().cumsum(1, dtype=torch.float64)
    last = (sums < mass[:, None]).sum(1, keepdim=True)
    return values.gather(1, last.clamp(max=values.shape[1] - 1)), (last >= values.shape[1])[:, 0]


def _sorted(values: torch.Tensor) -> torch.Tensor:
    """Each row, highest first. NumPy's vectorized sort takes a third of torch's time on a CPU."""
    if values.device.type == "cpu":
        return torch.from_numpy(np.sort(values.numpy(), axis=1)).flip(1)
    return values.sort(dim=1, descending=True).values


def _lowest_of_min_p(
    scaled: torch.Tensor, _weights: torch.Tensor, params: Sequence[SamplingParams]
) -> torch.Tensor | None:
    if not any(p.min_p > 0 for p in params):
        return None
    # The highest value is 0, so p >= min_p * max(p) is value >= log(min_p); above 1 only the highest stays.
    return torch.tensor([[p.min_p] for p in params], device=scaled.device).clamp_(0, 1).log_()
