"""One call of a Transformers model that keeps states, whatever its cache argument is called."""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

CACHE_ARGUMENTS = ("cache", "past_key_values", "cache_params")  # whichever a model and a version has


def call_model(
    model: torch.nn.Module, tokens: torch.Tensor, positions: torch.Tensor, states: Any, **keywords: Any
) -> torch.Tensor:
    """Logits of `tokens` (int64 [rows, n], like `positions`); the cache `states` is changed in place.

    Positions are always given: some models count from the wrong place without them.
    """
    named = {_cache_argument(type(model).forward): states}
    logits: torch.Tensor = model(
        input_ids=tokens, position_ids=positions, use_cache=True, **named, **keywords
    ).logits
    return logits


@cache
def _cache_argument(forward: Callable[..., Any]) -> str:
    known = inspect.signature(forward).parameters
    return next((name for name in CACHE_ARGUMENTS if name in known), CACHE_ARGUMENTS[0])
