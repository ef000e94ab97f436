"""Numbers and lists that no engine can serve well, refused before one tries: it works for all tenants.

Far wider than OpenAI's own bounds, since engines may take more than these. What one does not take it says itself.
"""

from collections.abc import Mapping
from typing import Any

from gateway.errors import invalid

_INT32 = 2**31 - 1
_MOST_CHOICES = 1024  # OpenAI: 128
_MOST_LOGPROBS = 1000  # of each token: 90 KB of an answer (OpenAI: 20); llama.cpp lists its whole vocabulary

_NUMBERS: Mapping[str, tuple[int, int]] = {
    "n": (1, _MOST_CHOICES),
    "best_of": (0, _MOST_CHOICES),
    "top_logprobs": (-1, _MOST_LOGPROBS),  # -1: as many as the engine likes, to some of them
    "logprobs": (-1, _MOST_LOGPROBS),
    "prompt_logprobs": (-1, _MOST_LOGPROBS),
    "n_probs": (-1, _MOST_LOGPROBS),
    # A number that fits no tensor can end an engine's scheduler, and with it what others wait for.
    "max_tokens": (-1, _INT32),  # -1: as many as fit, to llama.cpp
    "max_completion_tokens": (-1, _INT32),
    "max_output_tokens": (-1, _INT32),
    "n_predict": (-2, _INT32),
    "min_tokens": (0, _INT32),
    "top_k": (-1, _INT32),
    "seed": (-(2**63), 2**64 - 1),
}
_ITEMS: Mapping[str, int] = {  # looked for behind every token
    "stop": 1024,
    "stop_sequences": 1024,
    "stop_token_ids": 4096,
    "bad_words": 4096,
    "logit_bias": 65_536,
}

_BOUNDED = frozenset((*_NUMBERS, *_ITEMS))


def check_bounds(body: Mapping[str, Any]) -> None:
    """Raises ApiError 400 that names the first one. Values of other types are for the engine to judge."""
    if _BOUNDED.isdisjoint(body):
        return
    for name, (least, most) in _NUMBERS.items():
        value = body.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not least <= value <= most:
            raise invalid(
                f"Invalid value for '{name}': must be from {least} to {most}.", name, "invalid_value"
            )
    for name, most in _ITEMS.items():
        value = body.get(name)
        if isinstance(value, (list, dict)) and len(value) > most:
            raise invalid(
                f"Invalid value for '{name}': at most {most} items are taken.", name, "invalid_value"
            )
