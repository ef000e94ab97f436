"""Usage of hosted APIs whose shapes are their own."""

from engine_adapters.reuse.openai import read_openai
from engine_adapters.reuse.reading import NO_USAGE, Payload, UsageRead, count, part, report


def read_anthropic(payload: Payload) -> UsageRead:
    """`input_tokens` leaves out what was read from or written to the cache: the prompt is the sum of the three."""
    usage = part(payload, "usage") or part(payload, "message", "usage")
    if not usage:
        return NO_USAGE
    read, written = count(usage, "cache_read_input_tokens"), count(usage, "cache_creation_input_tokens")
    prompt = _sum(count(usage, "input_tokens"), read, written)
    return UsageRead(report(prompt, read, "usage.cache_read_input_tokens"), count(usage, "output_tokens"))


def read_bedrock(payload: Payload) -> UsageRead:
    """Converse: like Anthropic's, `inputTokens` leaves out the cached ones. Its OpenAI routes have OpenAI's names."""
    usage = part(payload, "usage") or part(payload, "metadata", "usage")
    if "inputTokens" not in usage:
        return read_openai(payload)
    read, written = count(usage, "cacheReadInputTokens"), count(usage, "cacheWriteInputTokens")
    prompt = _sum(count(usage, "inputTokens"), read, written)
    return UsageRead(report(prompt, read, "usage.cacheReadInputTokens"), count(usage, "outputTokens"))


def _sum(fresh: int | None, read: int | None, written: int | None) -> int | None:
    """None where nothing is said of the cache: what is left out is then not known."""
    if fresh is None or (read is None and written is None):
        return None
    return fresh + (read or 0) + (written or 0)


def read_gemini(payload: Payload) -> UsageRead:
    """`promptTokenCount` has the cached ones in it. Its OpenAI routes have OpenAI's names."""
    usage = part(payload, "usageMetadata")
    if not usage:
        return read_openai(payload)
    reuse = report(
        count(usage, "promptTokenCount"),
        count(usage, "cachedContentTokenCount"),
        "usageMetadata.cachedContentTokenCount",
    )
    return UsageRead(reuse, count(usage, "candidatesTokenCount"), count(usage, "thoughtsTokenCount"))
