"""Usage in OpenAI's shapes, and in the shapes of those that follow it with a field of their own."""

from engine_adapters.base import ReuseReport
from engine_adapters.reuse.reading import NO_USAGE, Payload, UsageRead, count, part, report

_CHAT = "usage.prompt_tokens_details.cached_tokens"
_RESPONSES = "usage.input_tokens_details.cached_tokens"


def is_responses(usage: Payload) -> bool:
    """Whether this is the usage of the Responses API, which has names of its own."""
    return "input_tokens" in usage and "prompt_tokens" not in usage


def read_openai(payload: Payload) -> UsageRead:
    """Chat Completions, Completions and Responses."""
    usage = part(payload, "usage")
    if not usage:
        return NO_USAGE
    if is_responses(usage):
        prompt, details, source = "input_tokens", "input_tokens_details", _RESPONSES
    else:
        prompt, details, source = "prompt_tokens", "prompt_tokens_details", _CHAT
    cached = count(part(usage, details), "cached_tokens")
    return with_completion(usage, report(count(usage, prompt), cached, source))


def with_completion(usage: Payload, reuse: ReuseReport) -> UsageRead:
    """The report with the completion's tokens beside it."""
    responses = is_responses(usage)
    details = part(usage, "output_tokens_details" if responses else "completion_tokens_details")
    completion = count(usage, "output_tokens" if responses else "completion_tokens")
    return UsageRead(reuse, completion, count(details, "reasoning_tokens"))


def read_deepseek(payload: Payload) -> UsageRead:
    """`prompt_cache_hit_tokens` and `prompt_cache_miss_tokens`, which add up to the prompt."""
    usage = part(payload, "usage")
    hit, miss = count(usage, "prompt_cache_hit_tokens"), count(usage, "prompt_cache_miss_tokens")
    if hit is None:
        return read_openai(payload)
    prompt = count(usage, "prompt_tokens")
    reuse = report(prompt, hit, "usage.prompt_cache_hit_tokens")
    if miss is not None and prompt is not None and hit + miss != prompt:
        reuse = ReuseReport(prompt, hit, None, reuse.source, "inconsistent")
    return with_completion(usage, reuse)


def read_kimi(payload: Payload) -> UsageRead:
    """Nested, or `cached_tokens` at the top of usage."""
    return _nested_or(payload, "cached_tokens")


def read_xai(payload: Payload) -> UsageRead:
    """Nested, or `cached_prompt_text_tokens`."""
    return _nested_or(payload, "cached_prompt_text_tokens")


def read_minimax(payload: Payload) -> UsageRead:
    """Nested, or Anthropic's `cache_read_input_tokens` beside OpenAI's names."""
    return _nested_or(payload, "cache_read_input_tokens")


def _nested_or(payload: Payload, key: str) -> UsageRead:
    nested = read_openai(payload)
    usage = part(payload, "usage")
    cached = count(usage, key)
    if nested.reuse.reused is not None or cached is None:
        return nested
    return with_completion(usage, report(nested.reuse.prompt, cached, f"usage.{key}"))
