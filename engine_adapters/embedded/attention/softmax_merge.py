"""Attention over part of the keys, and how parts become the whole."""

import math

import torch

_MAX_SCORES = 1 << 25  # elements of one score matrix; more rows than fit are done in turn


def attend_part(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention that also says how much weight these keys have.

    Args:
        query: [kv_heads, rows, group, key_dim]; all rows see the same keys.
        keys: [kv_heads, n, key_dim].
        values: [kv_heads, n, value_dim].
        visible: [rows, n] bool, or None where every row sees every key.

    Returns:
        Output [kv_heads, rows, group, value_dim] in float32, and the natural log of the sum of exponentials
        [kv_heads, rows, group], -inf where a row sees no key.
    """
    kv_heads, rows, group, _ = query.shape
    at_once = max(1, _MAX_SCORES // (kv_heads * group * keys.shape[1]))
    parts = [
        _attend_rows(
            query[:, at : at + at_once],
            keys,
            values,
            None if visible is None else visible[at : at + at_once],
            scaling,
            softcap,
        )
        for at in range(0, rows, at_once)
    ]
    if len(parts) == 1:
        return parts[0]
    return torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1)


def _attend_rows(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    visible: torch.Tensor | None,
    scaling: float,
    softcap: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    kv_heads, rows, group, dim = query.shape
    packed = query.reshape(kv_heads, rows * group, dim)
    scores = torch.bmm(packed, keys.transpose(1, 2)).float().mul_(scaling).view(kv_heads, rows, group, -1)
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if visible is not None:
        scores.masked_fill_(~visible[None, :, None, :], -math.inf)
    total = scores.logsumexp(-1)
    finite = total.masked_fill(total == -math.inf, 0.0)
    weights = scores.sub_(finite.unsqueeze(-1)).exp_().to(values.dtype)
    output = torch.bmm(weights.view(kv_heads, rows * group, -1), values).float()
    return output.view(kv_heads, rows, group, -1), total


def merge(
    output: torch.Tensor, total: torch.Tensor, other: torch.Tensor, other_total: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over two disjoint sets of keys, from attention over each.

    Totals are -inf where a row saw no key.
    """
    difference = torch.nan_to_num(other_total - total, nan=0.0, posinf=math.inf, neginf=-math.inf)
    share = torch.sigmoid(difference).unsqueeze(-1)
    return torch.lerp(output, other, share), torch.logaddexp(total, other_total)
