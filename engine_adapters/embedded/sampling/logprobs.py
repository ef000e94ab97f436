"""Log probabilities as the model gave them: before temperature, penalties, bias and grammar."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class TokenScores:
    """One token's log probability and the most likely tokens', natural logarithm."""

    logprob: float
    top: tuple[tuple[int, float], ...]  # (token id, logprob), most likely first


def score(logits: torch.Tensor, token_ids: Sequence[int], top: Sequence[int]) -> list[TokenScores]:
    """Score one chosen token a row.

    `logits`, shape [rows, vocab], are the model's own; `top[i]` says how many alternatives row i wants (fewer
    come back where fewer have any probability).
    """
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]
    norm = logits.logsumexp(1, keepdim=True)
    own = (logits.gather(1, chosen) - norm)[:, 0].tolist()
    width = min(max(top), logits.shape[1])
    values, ids = torch.topk(logits, width)
    ranked = zip((values - norm).tolist(), ids.tolist(), strict=True)
    return [
        TokenScores(logprob, _ranking(row_values, row_ids, count))
        for logprob, (row_values, row_ids), count in zip(own, ranked, top, strict=True)
    ]


def _ranking(values: Sequence[float], ids: Sequence[int], count: int) -> tuple[tuple[int, float], ...]:
    # Equal values in order of id: topk leaves their order open.
    pairs = sorted(zip(values, ids, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return tuple((token_id, value) for value, token_id in pairs[:count] if value > float("-inf"))
