"""How warm one request was, in a few words that are counted apart and never averaged."""

from typing import Literal, TypeAlias

from engine_adapters.base import ReuseReport

ReuseClass: TypeAlias = Literal["cold", "partial", "warm", "too_short", "not_reported", "inconsistent"]

_COLD_BELOW = 0.01  # of what could be reused
_WARM_FROM = 0.99


def reusable_tokens(prompt: int, block_size: int | None) -> int:
    """Tokens of a prompt that could be reused at best: whole blocks, and never its last token."""
    block = block_size or 1
    return max(prompt - 1, 0) // block * block


def predicted_within(predicted: int | None, prompt: int | None, block_size: int | None) -> int | None:
    """A prediction from before the engine had counted the prompt, as far as it can be true of what it counted."""
    if predicted is None or prompt is None:
        return predicted
    return min(predicted, reusable_tokens(prompt, block_size))


def reuse_class(report: ReuseReport | None, block_size: int | None) -> ReuseClass:
    """The class of a request that an engine worked on; None: nothing was said, as when a stream was cut."""
    if report is None or report.status == "not_reported":
        return "not_reported"
    if report.status == "inconsistent":
        return "inconsistent"
    if report.prompt is None or report.reused is None:
        return "not_reported"
    if not 0 <= report.reused <= report.prompt:
        return "inconsistent"
    reusable = reusable_tokens(report.prompt, block_size)
    if reusable == 0:
        return "too_short"
    share = report.reused / reusable
    if share < _COLD_BELOW:
        return "cold"
    return "warm" if share >= _WARM_FROM else "partial"
