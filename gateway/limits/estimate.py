"""How many tokens a request may take, before anyone has counted them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.limits.several_prompts import prompts_in, token_ids_in

BYTES_PER_TOKEN = 4
MOST = 1 << 40  # tokens of one request; what says that it takes more is refused as if it took these
ASSUMED_COMPLETION = 256  # tokens, where the request does not bound them
MEDIUM_TOKENS = 1000  # of an image or sound that stands in the body

LIGHT = frozenset({"tokenize", "detokenize", "count_tokens"})  # no model runs for these routes
_ONLY_READ = frozenset({"embeddings", "rerank"})
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_ANSWERS = ("n", "best_of")  # to each prompt; the best of several are all generated
_INLINE = b";base64,"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens of one request."""

    prompt: int
    completion: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion


def estimate(route: str | None, raw: bytes, body: Mapping[str, Any]) -> Estimate:
    """From the body's bytes and the tokens it asks for; the body is not checked yet."""
    if route in LIGHT:
        return Estimate(0, 0)
    prompt = -(-(len(raw) - _inline_bytes(raw)) // BYTES_PER_TOKEN) + MEDIUM_TOKENS * raw.count(_INLINE)
    field, prompts = prompts_in(route, body)
    if field:
        query = body.get("query") if route == "rerank" else None
        prompt += (prompts - 1) * (len(query) // BYTES_PER_TOKEN if isinstance(query, str) else 0)
    prompt = min(MOST, max(prompt, token_ids_in(route, body)))
    if route in _ONLY_READ:
        return Estimate(prompt, 0)
    bound = next((n for name in _LIMITS if (n := _count(body.get(name))) is not None), ASSUMED_COMPLETION)
    answers = max(1, *(_count(body.get(name)) or 1 for name in _ANSWERS))
    return Estimate(prompt, min(MOST, bound * prompts * answers))


def _count(value: Any) -> int | None:
    return min(value, 1 << 31) if _is_count(value) and value >= 0 else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _inline_bytes(raw: bytes) -> int:
    """Bytes of files that are written in the body as text."""
    size, at = 0, raw.find(_INLINE)
    while at >= 0:
        end = raw.find(b'"', at)
        end = len(raw) if end < 0 else end
        size += end - at
        at = raw.find(_INLINE, end)
    return size
