"""One call of a Transformers model that keeps states, whatever its cache argument is called."""

import inspect
from typing import Any

import torch


def call_model(
    model: torch.nn.Module, tokens: torch.Tensor, positions: torch.Tensor, cache: Any, **keywords: Any
) -> torch.Tensor:
    """Logits of `tokens` (both arguments int64 [rows, n]); the states in `cache` are changed in place.

    Positions are always given: some models count from the wrong place without them.
    """
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    logits: torch.Tensor = model(
        input_ids=tokens, position_ids=positions, use_cache=True, **{name: cache}, **keywords
    ).logits
    return logits
