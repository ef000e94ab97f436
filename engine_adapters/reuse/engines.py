"""Usage of self-hosted engines, each with the traps of its own."""

from msgspec.structs import replace

from engine_adapters.base import ReuseReport, Tier
from engine_adapters.reuse.openai import is_responses, read_openai, with_completion
from engine_adapters.reuse.reading import Payload, UsageRead, count, part, report, weak_zero

# Storage of SGLang that is a disk of this machine; every other is shared.
_LOCAL_STORAGE = ("file", "disk", "nvme")


def read_sglang(payload: Payload) -> UsageRead:
    """OpenAI routes (`--enable-cache-report`), with tiers in `sglext`; or native `/generate` with `meta_info`."""
    native = part(payload, "meta_info")
    if native:
        tiers = _sglang_tiers(part(native, "cached_tokens_details"))
        reuse = report(
            count(native, "prompt_tokens"), count(native, "cached_tokens"), "meta_info.cached_tokens", tiers
        )
        return UsageRead(reuse, count(native, "completion_tokens"), count(native, "reasoning_tokens"))
    read = read_openai(payload)
    tiers = _sglang_tiers(part(payload, "sglext", "cached_tokens_details"))
    if tiers is None:
        return read
    reused = read.reuse.reused
    source = read.reuse.source
    if reused is None:
        reused, source = sum(tiers.values()), "sglext.cached_tokens_details"
    return replace(read, reuse=report(read.reuse.prompt, reused, source, tiers))


def _sglang_tiers(details: Payload) -> dict[Tier, int] | None:
    names: dict[str, Tier] = {"device": "device", "host": "host", "storage": _storage_tier(details)}
    tiers = {tier: tokens for name, tier in names.items() if (tokens := count(details, name)) is not None}
    return tiers or None


def _storage_tier(details: Payload) -> Tier:
    backend = details.get("storage_backend")
    local = isinstance(backend, str) and any(word in backend.lower() for word in _LOCAL_STORAGE)
    return "disk" if local else "store"


def read_vllm(payload: Payload, prompts: int = 1) -> UsageRead:
    """`--enable-prompt-tokens-details`; null without it.

    The Responses route writes 0 where it does not know. Of several prompts in one request it reports one's hits.
    """
    read = read_openai(payload)
    if is_responses(part(payload, "usage")):
        return replace(read, reuse=weak_zero(read.reuse, "0 may mean not known"))
    if prompts > 1 and read.reuse.reused is not None:
        said = read.reuse
        why = f"{said.source} (of one of {prompts} prompts)"
        return replace(read, reuse=ReuseReport(said.prompt, None, None, why, "not_reported"))
    return read


def read_llama_cpp(payload: Payload) -> UsageRead:
    """`timings.cache_n` and `prompt_n`, which add up to the prompt; newer builds also in usage.

    `tokens_cached` is the size of the slot afterwards and says nothing of reuse.
    """
    read = read_openai(payload)
    timings = part(payload, "timings")
    cached, computed = count(timings, "cache_n"), count(timings, "prompt_n")
    if read.reuse.reused is not None or cached is None:
        return read
    prompt = read.reuse.prompt
    if prompt is None and computed is not None:
        prompt = cached + computed
    completion = read.completion_tokens
    if completion is None:
        completion = count(timings, "predicted_n")
    return UsageRead(report(prompt, cached, "timings.cache_n"), completion, read.reasoning_tokens)


def read_lmdeploy(payload: Payload) -> UsageRead:
    """OpenAI's field, where 0 may mean that prefix caching is off."""
    read = read_openai(payload)
    return replace(read, reuse=weak_zero(read.reuse, "0 may mean off"))


def read_ollama(payload: Payload) -> UsageRead:
    """Reports no reuse. `prompt_eval_count` leaves out what was reused, so the native prompt is not known either."""
    usage = part(payload, "usage")
    prompt = count(usage, "prompt_tokens") if usage else None
    read = with_completion(usage, ReuseReport(prompt, None, None, "ollama reports none", "not_reported"))
    return read if usage else replace(read, completion_tokens=count(payload, "eval_count"))
